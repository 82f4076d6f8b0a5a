"""How sure the predictions of a ladder should be, by its newest rounds.

Each of these rounds is predicted by the ratings before it, and `evaluation.calibrating` fits the
factor of the variance that suits the results. It is fitted at fixed numbers of pairs, which
grow by a quarter at most, and by MOST_STEP at most. So it follows from the rounds of the ladder,
and not from when predictions were asked for, or from how many rounds were rated in one call.
"""

from collections import deque
from functools import cached_property

import numpy as np

from stream_rater.columns.arrays import Floats, Ints
from stream_rater.columns.ranges import bounds, spread
from stream_rater.rating.model import Places, Wave
from stream_rater.rating.parameters import RatingConfig
from stream_rater.rating.wins import MODEL, MOST_OF_ROUND, Performances, VarianceFactor, of_wave
from stream_rater.replay.sequential import Rated
from stream_rater.replay.single import Changes, wave_of

LEAST_STEP, MOST_STEP = 16, 1024  # The number of pairs until the next fit.
WINDOW = 3072  # The number of pairs, of the newest rounds, from which the factor is learned.


class _Part:
    """Rounds that were rated together, with these parameters and `first` pairs before them."""

    def __init__(self, first: float, config: RatingConfig, wave: Wave, chosen: Ints) -> None:
        """`chosen` (R,) has the order of the rounds in the log."""
        self.config, self._wave, self._order = config, wave, np.argsort(chosen)
        self.sizes = np.diff(wave.round_starts)[self._order]  # (R,) the number of sides.
        self.ends = first + np.cumsum(np.minimum(0.5 * self.sizes, MOST_OF_ROUND))
        """(R,) the number of pairs after each round in the order of the log. It is exact."""

    @cached_property
    def sides(self) -> tuple[Places, Floats, Floats]:
        """The place, mu and sigma of all sides, in the order of the log."""
        found, starts = of_wave(self.config, self._wave), self._wave.round_starts[self._order]
        chosen = spread(starts, self.sizes)
        return self._wave.place[chosen], found.mu[chosen], found.sigma[chosen]


class FactorLearner:
    """Learns how sure the predictions of a ladder should be."""

    def __init__(self) -> None:
        self._parts, self._plain = deque[_Part](), list[Changes]()
        self._count = 0.0  # The number of pairs so far, as they count.
        self._level = 0  # The number of pairs after which the factor is fitted.
        self._due = LEAST_STEP  # The number of pairs at which the level rises.
        self._now: VarianceFactor | None = MODEL  # None: not fitted yet.

    def add(self, rated: Rated) -> None:
        """Take the next rounds."""
        self._together()
        part = _Part(self._count, rated.pool.rating, rated.result.wave, rated.chosen)
        self._parts.append(part)
        self._count_to(float(part.ends[-1]))

    def add_plain(self, changes: Changes) -> None:
        """Take the next round, which is a plain one. The first round is no such."""
        self._plain.append(changes)
        self._count_to(self._count + min(0.5 * len(changes[1]), MOST_OF_ROUND))

    def _together(self) -> None:
        """Make one part of the plain rounds since the last part."""
        if n := len(self._plain):
            wave, last = wave_of(self._plain), self._parts[-1]
            self._parts.append(_Part(last.ends[-1], last.config, wave, np.arange(n)))
            self._plain = []

    def _count_to(self, pairs: float) -> None:
        """Note the number of pairs so far. If it is at a new level, forget the rounds that are not
        needed there."""
        self._count = pairs
        if pairs < self._due:
            return
        self._together()
        step = max(min(1 << (int(pairs).bit_length() - 3), MOST_STEP), LEAST_STEP)
        self._level = int(pairs) // step * step
        self._due, self._now = self._level + step, None
        while self._parts[0].ends[-1] <= self._level - WINDOW:
            self._parts.popleft()

    @property
    def now(self) -> VarianceFactor:
        """What suits the next round."""
        if self._now is None:
            self._now = self._fitted()
        return self._now

    def _fitted(self) -> VarianceFactor:
        from stream_rater.evaluation.calibrating import factor_of

        columns = zip(*((each.sizes, each.ends, *each.sides) for each in self._parts), strict=True)
        sizes, ends, *sides = map(np.concatenate, columns)
        first, last = np.searchsorted(ends, [self._level - WINDOW, self._level], "right").tolist()
        chosen, config = slice(*bounds(sizes)[[first, last]]), self._parts[-1].config
        place, mu, sigma = (each[chosen] for each in sides)
        performed = Performances(mu, sigma, config.drawn_within, config.upset)
        return VarianceFactor(factor_of(bounds(sizes[first:last]), place, performed), last - first)
