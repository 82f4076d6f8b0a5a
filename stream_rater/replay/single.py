"""Rates and predicts duels one at a time, with the bits of the replay.

In a replay, the arrays of a single round take fifty times as long as its arithmetic. Here one
kernel has both stages of a duel in it. A duel is a round of two players who finished, without
shares, a ceiling, seats and scores. So only experience moves its sides (`rating.levels`).
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from stream_rater.columns.arrays import Floats, Ints
from stream_rater.columns.kernels import giving, kernel
from stream_rater.columns.strings import StringColumn
from stream_rater.rating import levels, model, wins
from stream_rater.rating.elo_mmr import belief
from stream_rater.rating.factor import single
from stream_rater.rating.kernels import two_moment
from stream_rater.rating.model import Codes, Table, Wave
from stream_rater.rating.parameters import EloMMR
from stream_rater.rating.stages import NotANumber
from stream_rater.rating.systems.elo_mmr import variances_of
from stream_rater.replay.pool import Pool

CHANGES = "mu", "sigma", "previous_mu", "previous_sigma", "performance", "rounds"
MU, SIGMA, PREVIOUS_MU, PREVIOUS_SIGMA, PERFORMANCE, ROUNDS = range(6)
"""The rows of what a duel changed, (6, 2)."""

Two = tuple[int, int]
Newcomers = tuple[tuple[float, float, float, float, int], tuple[float, float]]
"""The last arguments of `levels._place`, and those of `levels._of_experience`."""


@giving
def _wave(header: Table, rows: Ints, ranks: Ints, weight: float, time: int, by: Newcomers) -> Wave:
    """The wave of a duel. Newcomers are placed; without an offset and a field, where they are."""
    mu, sigma, rounds, last = model.look_up(header, rows)
    none, starts, of_round, share = np.empty(0), np.arange(3), np.arange(0, 3, 2), np.ones(2)
    levels._place(of_round, starts, share, mu, sigma, rounds, *by[0])
    return Wave(
        of_round, np.full(1, weight), np.full(2, np.inf), np.full(1, time), ranks.astype(np.int32),
        starts, share, mu, sigma, rounds, last, np.empty(0, np.bool_), none, none, none, none,
    )  # fmt: skip


@kernel
def _elo_mmr(
    header: Table, factors: Codes, two: Two, ranks: Two, weight: float, time: int, offset: int,
    parameters: Any, by: Newcomers, out: Floats,
) -> None:  # fmt: skip
    """Rate a duel of the players in the rows `two`, the better one first, in place, and write what
    it changed into `out`."""
    rows, evidence = np.array(two), np.empty((2, 3))
    wave = _wave(header, rows, np.array(ranks), weight, time, by)
    belief.rate_waves(
        header, factors, rows, wave, np.arange(2),
        belief.RoundStamps(np.full(2, offset), np.full(2, time)),
        belief.EloMMRModel(model.Variances(*parameters[0]), *parameters[1:]), evidence,
        belief.Posteriors(out[MU], out[SIGMA]),
    )  # fmt: skip
    out[PREVIOUS_MU], out[PREVIOUS_SIGMA], out[ROUNDS] = wave.mu, wave.sigma, wave.rounds + 1
    out[PERFORMANCE] = evidence[:, model.PERFORMANCE]


@kernel
def _two_moment(
    header: Table, _: Codes, two: Two, ranks: Two, weight: float, time: int, offset: int,
    parameters: Any, by: Newcomers, out: Floats,
) -> None:  # fmt: skip
    """Do the same as `_elo_mmr` by the two-moment filter. Raises NotANumber."""
    rows = np.array(two)
    wave = _wave(header, rows, np.array(ranks), weight, time, by)
    out[PREVIOUS_MU], out[PREVIOUS_SIGMA], out[ROUNDS] = wave.mu, wave.sigma, wave.rounds + 1
    points, moved = levels._of_experience(wave.rounds, *by[1]), wave.mu
    moved += points
    found = two_moment.rate_rounds(wave, two_moment.Model(*parameters))
    if not np.isfinite(found).all():
        raise NotANumber("the evidence is no number")
    for i in range(2):
        head, before, mu = header[rows[i]], out[PREVIOUS_MU, i], found[i, 1]
        out[PERFORMANCE, i] = found[i, 0] - points[i]
        out[MU, i] = single(before + (mu - moved[i]) if points[i] != 0.0 else mu)
        out[SIGMA, i] = single(found[i, 2])
        head.previous_mu, head.previous_sigma = before, head.sigma
        head.mu, head.sigma = out[MU, i], out[SIGMA, i]
    model.record_rounds(header, rows, np.full(2, offset), np.full(2, time))


@kernel
def _forecast(
    header: Table, two: Two, by: Newcomers, sigmas: float, noise: float, margin: float
) -> tuple[float, float, float, float, float, float]:
    """The probability that each of the players in these rows is better, and the mu and the sigma of
    each, as the round measures them."""
    wave = _wave(header, np.array(two), np.arange(1, 3), 1.0, 0, by)
    found, points = np.empty((2, 2)), levels._of_experience(wave.rounds, *by[1])
    for i in range(2):
        wave.mu[i] += points[i]
        found[0, i] = by[0][0] + (wave.mu[i] - by[0][0])
        variance = sigmas * (wave.sigma[i] * wave.sigma[i]) + noise
        found[1, i] = max(np.sqrt(variance), wins.LEAST_SIGMA)
    win, lose = wins._better(found[0], found[1], margin, 0, 1)
    return win, lose, wave.mu[0], wave.mu[1], wave.sigma[0], wave.sigma[1]


def wave_of_duels(duels: Sequence[tuple[Floats, Two]]) -> Wave:
    """The wave of duels that were rated: their CHANGES and ranks, in the order of the players."""
    ranks, changes = np.array([each for _, each in duels]), np.array([each for each, _ in duels])
    better_last = ranks[:, 1] < ranks[:, 0]
    changes[better_last] = changes[better_last, :, ::-1]
    n, none, never = len(duels), np.empty(0), np.zeros(2 * len(duels), np.int64)
    mu, sigma, rounds = (changes[:, i].ravel() for i in (PREVIOUS_MU, PREVIOUS_SIGMA, ROUNDS))
    return Wave(
        np.arange(0, 2 * n + 1, 2), none, none, never[:0], np.sort(ranks).ravel().astype(np.int32),
        np.arange(2 * n + 1), np.ones(2 * n), mu, sigma, rounds.astype(np.int64) - 1, never,
    )  # fmt: skip


class Duels:
    """The duels of a pool, while no season has started."""

    def __init__(self, pool: Pool) -> None:
        config, self._pool, self._rows = pool.rating, pool, dict[str, int]()
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
        """Whether duels can be rated here. They can be predicted for every system."""

    def row(self, player: str) -> int | None:
        """The row of a player; None for a newcomer. It is found quickly from the second time on."""
        row = self._rows.get(player)
        if row is None and (row := self._pool.find(player)) is not None:
            self._rows[player] = row
        return row

    def rate(
        self, players: tuple[str, str], ranks: Two, weight: float, time: int, offset: int
    ) -> Floats:
        """Rate a duel with a weight of LEAST_WEIGHT or more. Returns what it changed, with a column
        for each player. Raises NotANumber."""
        if swapped := ranks[1] < ranks[0]:
            players, ranks = players[::-1], ranks[::-1]
        rows = self.row(players[0]), self.row(players[1])
        if None in rows:
            rows = tuple(self._pool.rows(StringColumn.of(players)).tolist())
        beliefs, out = self._pool._beliefs, np.empty((6, 2))
        self._kernel(
            beliefs.header, beliefs.factors, rows, ranks, weight, time, offset, self._parameters,
            self._newcomers, out,
        )  # fmt: skip
        return out[:, ::-1] if swapped else out

    def forecast(
        self, players: tuple[str, str], variance_factor: float, margin: float
    ) -> tuple[float, ...]:
        """What `_forecast` says of two players."""
        new, (one, other) = len(self._pool), map(self.row, players)
        self._pool.make_room(new + 1)  # the rows after those of players are newcomers
        rows = new if one is None else one, new if other is None else other
        factor = self._pool.rating.variance_factor * variance_factor
        sigmas, noise = factor * self._chances.sigmas, factor * self._chances.noise
        header = self._pool._beliefs.header
        return _forecast(header, rows, self._newcomers, sigmas, noise, margin)
