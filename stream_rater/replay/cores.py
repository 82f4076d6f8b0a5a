"""Rates rounds on several cores, with the same bits as on one. The rounds of a wave share no
player, and a round's result depends on its players' beliefs alone. So a wave can be cut anywhere
between two rounds, and the pieces can be rated at the same time: each writes the rows of its own
players. The kernels run without the interpreter's lock, so threads are enough, and all of them
share one table of beliefs."""

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from functools import partial
from itertools import pairwise
from typing import NamedTuple, TypeVar

import numpy as np

from stream_rater.columns.arrays import Ints
from stream_rater.rating import stages
from stream_rater.rating.elo_mmr.belief import Posteriors
from stream_rater.rating.model import Beliefs, Evidence, Wave
from stream_rater.rating.parameters import RatingConfig
from stream_rater.replay.files import prefetched

T = TypeVar("T")
LEAST_PIECE = 2048  # The fewest players in a piece of a wave: fewer are not worth a hand-over.


class Cores:
    """Threads that work at the same time. The calling thread is one of them."""

    def __init__(self, count: int = 1) -> None:
        self.count = count
        self._others = ThreadPoolExecutor(count - 1) if count > 1 else None

    @classmethod
    def of(cls, count: int | None) -> "Cores":
        """This many threads; None: one for each core of the machine."""
        return cls(count or all_cores())

    def ahead(self, items: Iterable[T], most: int) -> Iterator[T]:
        """Yield the items. With several cores, another thread makes up to `most` items ahead."""
        return iter(items) if self.count == 1 else prefetched(items, most)

    def run(self, work: Sequence[Callable[[], T]]) -> list[T]:
        """Call these functions, and return their results in order. Raises the first exception, once
        all have ended."""
        if self._others is None or len(work) < 2:
            return [each() for each in work]
        others = [self._others.submit(each) for each in work[1:]]
        try:
            first = work[0]()
        finally:
            wait(others)
        return [first, *(each.result() for each in others)]


ONE_CORE = Cores()


def all_cores() -> int:
    """The number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class _Piece(NamedTuple):
    """Consecutive rounds [first, end) with their players, in one wave or in several."""

    first: int
    end: int
    waves: Ints  # The bounds of the waves, counted from the first round.


def rate_waves(
    cores: Cores, config: RatingConfig, beliefs: Beliefs, rows: Ints, wave: Wave, waves: Ints,
    offset: Ints,
) -> tuple[Evidence, Posteriors]:  # fmt: skip
    """Do the same as `stages.rate_waves`, with the pieces of large waves on several cores."""
    starts = wave.entry_starts[wave.round_starts]
    sizes = np.diff(starts[waves])
    large = np.flatnonzero(sizes >= 2 * LEAST_PIECE)
    if cores.count == 1 or not len(large):
        return stages.rate_waves(config, beliefs, rows, wave, waves, offset)

    def rate(piece: _Piece) -> tuple[Evidence, Posteriors]:
        first, end, own_waves = piece
        a, b = starts[[first, end]]
        return stages.rate_waves(
            config, beliefs, rows[a:b], wave.part(first, end), own_waves, offset[first:end]
        )

    found = list[tuple[Evidence, Posteriors]]()
    for step in _steps(starts, waves, large, cores.count):
        found += cores.run([partial(rate, piece) for piece in step])
    evidence, after = zip(*found, strict=True)
    return np.concatenate(evidence), Posteriors(*map(np.concatenate, zip(*after, strict=True)))


def _steps(starts: Ints, waves: Ints, large: Ints, cores: int) -> Iterator[list[_Piece]]:
    """Yield the pieces that can be rated at the same time: those of each large wave, and each run
    of other waves as one piece. `starts`: as in `_cut`."""
    before = 0
    for w in [*large.tolist(), len(waves) - 1]:
        if before < w:
            run = waves[before : w + 1]
            yield [_Piece(int(run[0]), int(run[-1]), run - run[0])]
        if w < len(waves) - 1:
            first, end = waves[w : w + 2].tolist()
            yield [_Piece(a, b, np.array([0, b - a])) for a, b in _cut(starts, first, end, cores)]
        before = w + 1


def _cut(starts: Ints, first: int, end: int, cores: int) -> list[tuple[int, int]]:
    """Cut the rounds [first, end) into at most `cores` pieces, with about as many players each, and
    at least LEAST_PIECE. `starts` (R+1,) are the first players of the rounds. Returns the first
    round of each piece and the round after its last."""
    players = int(starts[end] - starts[first])
    count = max(1, min(cores, players // LEAST_PIECE))
    targets = np.linspace(starts[first], starts[end], count + 1)[1:-1]
    cuts = first + np.searchsorted(starts[first : end + 1], targets)
    return [*pairwise(np.unique([first, *cuts, end]).tolist())]
