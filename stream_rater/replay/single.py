"""Rates and predicts plain rounds one at a time, with the bits of the replay.

In a replay, the arrays of a single round take fifty times as long as its arithmetic. Here one
kernel has both stages of a round in it. A plain round has sides of equal sizes that all finished,
without shares, a ceiling, seats and scores. So only experience moves its sides (`rating.levels`).
"""

from collections.abc import Sequence
from itertools import chain
from typing import Any

import numpy as np

from stream_rater.columns.arrays import Floats, Ints
from stream_rater.columns.kernels import giving, kernel
from stream_rater.columns.ranges import bounds
from stream_rater.columns.strings import StringColumn
from stream_rater.rating import levels, model, wins
from stream_rater.rating.elo_mmr import belief
from stream_rater.rating.factor import single
from stream_rater.rating.kernels import two_moment
from stream_rater.rating.model import Codes, Places, Table, Wave
from stream_rater.rating.parameters import EloMMR
from stream_rater.rating.stages import NotANumber
from stream_rater.rating.systems.elo_mmr import variances_of
from stream_rater.replay.pool import Pool

CHANGES = "mu", "sigma", "previous_mu", "previous_sigma", "performance", "rounds"
MU, SIGMA, PREVIOUS_MU, PREVIOUS_SIGMA, PERFORMANCE, ROUNDS = range(6)
"""The rows of what a round changed, (6, P)."""

Newcomers = tuple[tuple[float, float, float, float, int], tuple[float, float]]
"""The last arguments of `levels._place`, and those of `levels._of_experience`."""


Changes = tuple[Floats, Places, Ints]
"""What a plain round of S sides and P players changed: the CHANGES (6, P), the ranks (S,) in rising
order, and the first player of each side, and P (S+1,)."""


@giving
def _wave(
    header: Table, rows: Ints, starts: Ints, ranks: Places, weight: float, time: int, by: Newcomers
) -> Wave:
    """The wave of a round. Newcomers are placed; without an offset and a field, where they are."""
    mu, sigma, rounds, last = model.look_up(header, rows)
    none, of_round, share = np.empty(0), np.array([0, len(ranks)]), np.ones(len(rows))
    levels._place(of_round, starts, share, mu, sigma, rounds, *by[0])
    return Wave(
        of_round, np.full(1, weight), np.full(len(ranks), np.inf), np.full(1, time), ranks, starts,
        share, mu, sigma, rounds, last, np.empty(0, np.bool_), none, none, none, none,
    )  # fmt: skip


@kernel
def _elo_mmr(
    header: Table, factors: Codes, rows: Ints, starts: Ints, ranks: Places, weight: float,
    time: int, offset: int, parameters: Any, by: Newcomers, out: Floats,
) -> None:  # fmt: skip
    """Rate a round of the players in these rows, the better sides first, in place, and write what
    it changed into `out`."""
    evidence, same = np.empty((len(rows), 3)), np.full(len(rows), offset)
    wave = _wave(header, rows, starts, ranks, weight, time, by)
    belief.rate_waves(
        header, factors, rows, wave, np.arange(2),
        belief.RoundStamps(same, np.full(len(rows), time)),
        belief.EloMMRModel(model.Variances(*parameters[0]), *parameters[1:]), evidence,
        belief.Posteriors(out[MU], out[SIGMA]),
    )  # fmt: skip
    out[PREVIOUS_MU], out[PREVIOUS_SIGMA], out[ROUNDS] = wave.mu, wave.sigma, wave.rounds + 1
    out[PERFORMANCE] = evidence[:, model.PERFORMANCE]


@kernel
def _two_moment(
    header: Table, _: Codes, rows: Ints, starts: Ints, ranks: Places, weight: float, time: int,
    offset: int, parameters: Any, by: Newcomers, out: Floats,
) -> None:  # fmt: skip
    """Do the same as `_elo_mmr` by the two-moment filter. Raises NotANumber."""
    wave = _wave(header, rows, starts, ranks, weight, time, by)
    out[PREVIOUS_MU], out[PREVIOUS_SIGMA], out[ROUNDS] = wave.mu, wave.sigma, wave.rounds + 1
    points, moved = levels._of_experience(wave.rounds, *by[1]), wave.mu
    moved += points
    found = two_moment.rate_rounds(wave, two_moment.Model(*parameters))
    if not np.isfinite(found).all():
        raise NotANumber("the evidence is no number")
    for e in range(len(ranks)):
        of_side = 0.0
        for p in range(starts[e], starts[e + 1]):
            of_side += points[p]
        for p in range(starts[e], starts[e + 1]):
            head, before, mu = header[rows[p]], out[PREVIOUS_MU, p], found[p, 1]
            out[PERFORMANCE, p] = found[p, 0] - of_side
            out[MU, p] = single(before + (mu - moved[p]) if points[p] != 0.0 else mu)
            out[SIGMA, p] = single(found[p, 2])
            head.previous_mu, head.previous_sigma = before, head.sigma
            head.mu, head.sigma = out[MU, p], out[SIGMA, p]
    model.record_rounds(header, rows, np.full(len(rows), offset), np.full(len(rows), time))


@kernel
def _forecast(
    header: Table, rows: Ints, starts: Ints, by: Newcomers, sigmas: float, noise: float,
    margin: float, out: Floats,
) -> tuple[float, float]:  # fmt: skip
    """The probability that each of two players in these rows is better; NaN if they are not two.
    Writes the mu and the sigma of each player, as the round measures them, into `out` (2, P)."""
    wave = _wave(header, rows, starts, np.ones(len(starts) - 1, np.int32), 1.0, 0, by)
    out[0], out[1] = wave.mu + levels._of_experience(wave.rounds, *by[1]), wave.sigma
    if len(rows) > 2:
        return np.nan, np.nan
    found = np.empty((2, 2))
    for i in range(2):
        found[0, i] = by[0][0] + (out[0, i] - by[0][0])
        variance = sigmas * (wave.sigma[i] * wave.sigma[i]) + noise
        found[1, i] = max(np.sqrt(variance), wins.LEAST_SIGMA)
    win, lose = wins._better(found[0], found[1], margin, 0, 1)
    return win, lose


def wave_of(rounds: Sequence[Changes]) -> Wave:
    """The wave of plain rounds that were rated."""
    changes, ranks, starts = zip(*rounds, strict=True)
    columns, sizes = np.concatenate(changes, axis=1), np.concatenate([*map(np.diff, starts)])
    n, none = columns.shape[1], np.empty(0)
    return Wave(
        bounds(np.array([*map(len, ranks)])), none, none, np.zeros(0, np.int64),
        np.concatenate(ranks), bounds(sizes), np.ones(n), columns[PREVIOUS_MU],
        columns[PREVIOUS_SIGMA], columns[ROUNDS].astype(np.int64) - 1, np.zeros(n, np.int64),
    )  # fmt: skip


class PlainRounds:
    """The plain rounds of a pool, while no season has started."""

    def __init__(self, pool: Pool) -> None:
        config, self._pool, self._rows = pool.rating, pool, dict[str, int]()
        self._shapes = dict[tuple[int, int], tuple[Ints, Places]]()
        places = getattr(config, "newcomer_offset", 0.0), getattr(config, "newcomer_field", 0.0)
        start = config.initial_mu, config.initial_sigma, *places, config.kept
        self._newcomers: Any = start, tuple(config.inexperience_of_newcomers)
        self._chances = config.chances
        # Numba takes a tuple as an argument more quickly than a named tuple.
        own: tuple[Any, ...] = tuple(getattr(config, "for_kernels", ()))
        if isinstance(config, EloMMR):
            variances = tuple(variances_of(config))
            own = variances, config.initial_mu, config.tie, config.momentum, config.kept
        self._kernel: Any = _elo_mmr if isinstance(config, EloMMR) else _two_moment
        self._parameters = own
        self.rates = len(own) > 0 and config.kept > 0
        """Whether rounds can be rated here. They can be predicted for every system."""

    def _shape(self, sides: Sequence[Sequence[str]]) -> tuple[Ints, Places]:
        """The first player of each side, and P; and ranks of sides that are in order."""
        key = len(sides), len(sides[0])
        if key not in self._shapes:
            starts = np.arange(0, (key[0] + 1) * key[1], key[1])
            self._shapes[key] = starts, np.arange(1, key[0] + 1, dtype=np.int32)
        return self._shapes[key]

    def rate(
        self, sides: Sequence[Sequence[str]], ranks: Sequence[int], weight: float, time: int,
        offset: int,
    ) -> tuple[Changes, Floats]:  # fmt: skip
        """Rate a round with a weight of LEAST_WEIGHT or more; without ranks, the better sides come
        first. Returns what it changed, and the same CHANGES (6, P) in the order of the sides.
        Raises NotANumber."""
        order, (starts, places) = None, self._shape(sides)
        if ranks:
            order = sorted(range(len(sides)), key=ranks.__getitem__)
            sides, places = [sides[i] for i in order], np.array([ranks[i] for i in order], np.int32)
        players = [*chain.from_iterable(sides)]
        rows = [*map(self._rows.get, players)]
        if None in rows:
            at = self._pool.rows(StringColumn.of(players))
            self._rows.update(zip(players, at.tolist(), strict=True))
        else:
            at = np.array(rows)
        beliefs, out = self._pool._beliefs, np.empty((6, len(players)))
        self._kernel(
            beliefs.header, beliefs.factors, at, starts, places, weight, time, offset,
            self._parameters, self._newcomers, out,
        )  # fmt: skip
        given = out
        if order is not None:
            given = np.empty_like(out)
            given.reshape(6, len(sides), -1)[:, order] = out.reshape(6, len(sides), -1)
        return (out, places, starts), given

    def forecast(
        self, sides: Sequence[Sequence[str]], variance_factor: float, margin: float
    ) -> tuple[float, float, Floats]:
        """What `_forecast` says of these sides, and writes."""
        players, pool = [*chain.from_iterable(sides)], self._pool
        rows, out = [*map(self._rows.get, players)], np.empty((2, len(players)))
        if None in rows:
            rows = [*map(pool.find, players)]
            self._rows |= {p: row for p, row in zip(players, rows, strict=True) if row is not None}
            pool.make_room(len(pool) + 1)  # the rows after those of players are newcomers
            rows = [len(pool) if row is None else row for row in rows]
        factor = pool.rating.variance_factor * variance_factor
        win, lose = _forecast(
            pool._beliefs.header, np.array(rows), self._shape(sides)[0], self._newcomers,
            factor * self._chances.sigmas, factor * self._chances.noise, margin,
            out,
        )  # fmt: skip
        return win, lose, out
