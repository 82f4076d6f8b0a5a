"""Times without what happens only once: compiling kernels, loading them, touching pages first.

A kernel is compiled, or loaded from the cache, when it is first called with arguments of some
types. So a configuration plays a few rounds of each kind before its time counts (`warm`); and where
a run was the first one of a kernel all the same, it is run again (`timed`).
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
    """A few rounds of each kind: the first ones, the smallest and the largest, one with a team."""
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
    config: RatingConfig, sessions: Sequence[Session], *, most_sides: int, draws: bool,
    shown: bool = False,
) -> None:  # fmt: skip
    """Play a few of these rounds twice, so that all kernels are there, and forget it."""
    some = samples(sessions)
    evaluate([*some, *some], config, most_sides=most_sides, draws=draws, shown=shown)


class _Compiled(Watcher):
    """Counts what is compiled."""

    def __init__(self) -> None:
        self.count = 0

    def compiling(self, kernel: str, number: int, most: int) -> None:
        self.count += 1

    def waiting(self, kernel: str) -> None:
        self.count += 1


def timed(run: Callable[[], T]) -> T:
    """What a run gives in which no kernel was compiled or first loaded: it is run again if one was,
    MOST_RUNS times at most."""
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
