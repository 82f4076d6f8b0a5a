"""Keeps costs that occur only once out of measured times: compiling kernels, loading them, and the
first access to pages of memory.

A kernel is compiled, or loaded from the cache, when it is first called with arguments of some
types. So a configuration rates a few rounds of each kind before its time is measured (`warm`). If a
kernel was nevertheless compiled or loaded during a measured run, the run is repeated (`timed`).
"""

from collections.abc import Callable, Sequence
from typing import TypeVar

import numpy as np

from stream_rater.columns.arrays import Ints
from stream_rater.columns.compiling import SharedCache, Watcher, watchers
from stream_rater.evaluation.evaluation import evaluate
from stream_rater.evaluation.season import Session
from stream_rater.rating.parameters import RatingConfig

T = TypeVar("T")

MOST_RUNS = 3


def samples(sessions: Sequence[Session]) -> list[Session]:
    """A few rounds of each kind: the first two, the smallest, the largest, and the one whose teams
    have the most members. There is a session for each kind."""
    if not sessions:
        return []
    found = [sessions[0].take(np.arange(min(2, len(sessions[0].rounds))))]
    for measure in (_smallest, _largest, _of_teams):
        session, at = max(
            ((each, int(np.argmax(measure(each)))) for each in sessions),
            key=lambda pair: measure(pair[0])[pair[1]],
        )
        found.append(session.take(np.array([at])))
    return found


def _smallest(session: Session) -> Ints:
    return -session.rounds.entries


def _largest(session: Session) -> Ints:
    return session.rounds.entries


def _of_teams(session: Session) -> Ints:
    return session.rounds.sizes - session.rounds.entries


def warm(
    config: RatingConfig,
    sessions: Sequence[Session],
    *,
    most_sides: int,
    by_display: bool = False,
) -> None:
    """Evaluate a few of these rounds twice, so that all kernels are compiled and loaded. The result
    is dropped."""
    some = samples(sessions)
    evaluate([*some, *some], config, most_sides=most_sides, by_display=by_display)


class _Compiled(Watcher):
    """Counts the kernels that this process compiles, or waits for while another process compiles
    them."""

    def __init__(self) -> None:
        self.count = 0

    def compiling(self, kernel: str, number: int) -> None:
        self.count += 1

    def waiting(self, kernel: str) -> None:
        self.count += 1


def timed(run: Callable[[], T]) -> T:
    """The result of a run in which no kernel was compiled or first loaded. If one was, `run` is
    called again, up to MOST_RUNS times in all. The result of the last call is returned."""
    watcher = _Compiled()
    watchers.append(watcher)
    try:
        for _ in range(MOST_RUNS):
            before = watcher.count, len(SharedCache.ready)
            found = run()
            if before == (watcher.count, len(SharedCache.ready)):
                break
    finally:
        watchers.remove(watcher)
    return found
