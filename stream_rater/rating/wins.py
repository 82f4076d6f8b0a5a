"""The win probabilities and the expected ranks of the sides of a round, and the round's evenness.

The performance of a side is normal. Its mean and variance are those of a team in the rating rule
(section 3.3 of the paper): the members' deviations from the ladder's initial rating add up, each
times the member's share, and their variances add up, each times the share's square. A member's
variance is `sigmas` sigma^2 + `noise` of `chances`, times the variance factor. Performances are
independent. Side i wins with probability

    w_i = integral over x of phi_i(x) prod over j != i of Phi_j(x - m)

where phi_i and Phi_i are the density and the distribution function of its performance, and m is the
draw margin: two sides draw if their performances differ by no more. Without a margin there are no
draws: the integrands add up to the derivative of the product of all Phi_j, so the w_i add up to 1.
With a margin the w_i add up to less, and the rest is the probability that nobody wins.

A part 2 u of the rounds that somebody wins, where u is the ladder's `upset`, is decided by chance
alone. So of n sides, side i wins with probability

    p_i = (1 - 2 u) w_i + 2 u (sum of all w_j) / n

The same holds for each pair, with n = 2. `upset` changes no probability of a draw.

One Gauss-Legendre rule serves all sides. Its panels are narrow where the density of a side is
narrow. The first panel begins where the density of the best side begins. So the number of panels
grows with the logarithm of the ratio of the greatest standard deviation to the least, and the time
grows with the number of sides.

For two sides w_i is Phi((mu_i - mu_j - m) / sqrt(variance_i + variance_j)). This one
link serves all systems, for scoring (`evaluation.accuracy`), for predicting and on the page. Where
a system's own performances are logistic, the normal ones have the same variance. For two sides the
two probabilities then differ by at most 0.023.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from stream_rater.columns.arrays import Floats, Ints
from stream_rater.columns.kernels import giving, inlined, kernel
from stream_rater.rating import levels
from stream_rater.rating.elementary import log
from stream_rater.rating.model import LEAST_TEAM, Wave
from stream_rater.rating.normal import below, density, mills
from stream_rater.rating.parameters import RatingConfig
from stream_rater.rating.seats import codes_of, shifts_of

ANY = 2**31 - 1  # Stands for no limit on the number of sides.
MOST_OF_ROUND = 50.0  # The most pairs of sides that a round counts as when factors are learned.
LEAST_SIGMA = 1e-3
"""The least standard deviation of a side's performance, in points. Topcoder's volatility has no
lower bound of its own."""


class Quadrature(NamedTuple):
    """The precision of the integrals."""

    negligible: float  # The probability that may be neglected in a round.
    step: float
    """The width of a panel, in standard deviations of the side that needs the narrowest panel."""
    nodes: Floats  # The nodes of one panel, from -1 to 1.
    weights: Floats  # The weight of each node.


EXACT = Quadrature(1e-16, 2.0, *np.polynomial.legendre.leggauss(16))  # Gives probabilities to 1e-9.
FAST = Quadrature(1e-6, 2.0, *np.polynomial.legendre.leggauss(10))
"""Gives probabilities to 1e-5, for many rounds at once."""
TOGETHER = 64
"""The number of sides whose densities are computed before it is checked whether they matter."""


class Performances(NamedTuple):
    """The distributions of the performances of S sides."""

    mu: Floats  # (S,) means, in rating points.
    sigma: Floats  # (S,) standard deviations, in rating points.
    margin: float = 0.0
    """Performances that differ by no more, in rating points, are a draw; 0: there are no draws."""
    upset: float = 0.0  # Half the share of decided rounds whose winner is chance alone.


def performances_of(
    config: RatingConfig, starts: Ints, share: Floats, mu: Floats, sigma: Floats,
    variance_factor: float = 1.0,
) -> Performances:  # fmt: skip
    """The performances of S sides with P players in all, by a ladder's parameters.

    `starts` (S+1,) contains the index of the first player of each side, and P. `share` (P,) is each
    player's part of the round. `mu` and `sigma` (P,) are the players' ratings before the round, in
    rating points. The variances are multiplied by `variance_factor` and by that of the ladder.
    """
    chances = config.chances.times(config.variance_factor * variance_factor)
    initial_mu = config.initial_mu
    deviation = np.add.reduceat(share * (mu - initial_mu), starts[:-1])
    sigma = widened(config, starts, sigma)
    variance = share**2 * (chances.sigmas * sigma**2 + chances.noise)
    spread = np.maximum(np.sqrt(np.add.reduceat(variance, starts[:-1])), LEAST_SIGMA)
    return Performances(initial_mu + deviation, spread, config.drawn_within, config.upset)


def of_wave(config: RatingConfig, wave: Wave) -> Performances:
    """The performances of the sides of a wave, whose newcomers are placed."""
    mu, share = levels.measured(config, wave)
    return performances_of(config, wave.entry_starts, share, mu, wave.sigma)


def widened(config: RatingConfig, starts: Ints, sigma: Floats) -> Floats:
    """(P,) the sigmas of players on sides that begin at `starts` (S+1,), with what `team_noise`
    adds to their noise. So a performance's variance is `sigmas` sigma^2 + `noise` on any side."""
    if config.team_noise == 0.0:
        return sigma
    members, (sigmas, noise) = np.diff(starts), config.chances
    more = np.where(members < LEAST_TEAM, 0.0, members ** (2.0 * config.team_noise) - 1.0)
    found: Floats = np.sqrt(sigma**2 + np.repeat(more, members) * (noise / sigmas))
    return found


def win_probabilities(sides: Performances) -> Floats:
    """(S,) the probability that each side performs better than all others, by more than the margin.
    They add up to 1 where there are no draws."""
    found: Floats = _win_probabilities(sides.mu, sides.sigma, sides.margin, EXACT)
    found = found / max(float(found.sum()), 1.0)  # rounding may make the sum more than 1
    return _with_upsets(found, np.array([0, len(found)]), sides.upset)


def of_rounds(
    starts: Ints, sides: Performances, most: int = ANY, margins: Floats | None = None
) -> Floats:
    """(S,) the win probabilities of R rounds at once, each with two sides or more, to 1e-5. Rounds
    of more than `most` sides are left out: their probabilities are 0.

    `starts` (R+1,) contains the index of the first side of each round, and S. `margins` (R,) has
    the draw margin of each round; None: it is that of `sides` for all.
    """
    if margins is None:
        margins = np.full(len(starts) - 1, sides.margin)
    found: Floats = _of_rounds(starts, sides.mu, sides.sigma, margins, most, FAST)
    return _with_upsets(np.minimum(found, 1.0), starts, sides.upset)


def _with_upsets(win: Floats, starts: Ints, upset: float) -> Floats:
    """(S,) the win probabilities of R rounds, where a part 2 `upset` of the winners is chance."""
    if upset == 0.0:
        return win
    even = np.repeat(np.add.reduceat(win, starts[:-1]) / np.diff(starts), np.diff(starts))
    found: Floats = (1.0 - 2.0 * upset) * win + 2.0 * upset * even
    return found


def pairwise(sides: Performances) -> Floats:
    """(S, S) the probability that the side of the row is better than that of the column; 0 on the
    diagonal."""
    found: Floats = _pairwise(sides.mu, sides.sigma, sides.margin)
    return (1.0 - sides.upset) * found + sides.upset * found.T


def expected_ranks(sides: Performances) -> Floats:
    """(S,) the mean rank of each side; 1 is the best. It is 1 plus the sum of the probabilities
    that each other side performs better. Sides that draw each take the mean of their ranks. The
    mean ranks add up to S (S + 1) / 2."""
    found: Floats = _expected_ranks(sides.mu, sides.sigma, sides.margin)
    middle = 0.5 * (1.0 + len(found))
    return found if sides.upset == 0.0 else middle + (1.0 - 2.0 * sides.upset) * (found - middle)


def evenness(win: Floats) -> float:
    """The quality of a round of sides that win with these (S,) probabilities: 1 if all are equally
    likely to win, 0 if the winner is certain. It is the entropy of the winner, given that there is
    one, divided by that of an even round, ln S."""
    part = win[win > 0.0] / win.sum()
    return float(min(max(-(part * np.log(part)).sum() / np.log(len(win)), 0.0), 1.0))


@inlined
def _better(mu: Floats, sigma: Floats, margin: float, i: int, j: int) -> tuple[float, float]:
    """The probabilities that side i performs better than side j, and j than i."""
    spread = np.sqrt(sigma[i] * sigma[i] + sigma[j] * sigma[j])
    worse = below((mu[j] - mu[i] - margin) / spread)
    if margin == 0.0:  # so both add up to exactly 1, and are equal for equals
        return (1.0 - worse, worse) if mu[i] != mu[j] else (0.5, 0.5)
    return below((mu[i] - mu[j] - margin) / spread), worse


@kernel
def _pairwise(mu: Floats, sigma: Floats, margin: float) -> Floats:
    found = np.zeros((len(mu), len(mu)))
    for i in range(len(mu)):
        for j in range(i):
            found[i, j], found[j, i] = _better(mu, sigma, margin, i, j)
    return found


@kernel
def _expected_ranks(mu: Floats, sigma: Floats, margin: float) -> Floats:
    found = np.ones(len(mu))
    for i in range(len(mu)):
        for j in range(i):
            better, worse = _better(mu, sigma, margin, i, j)
            found[i] += 0.5 * (1.0 + worse - better)
            found[j] += 0.5 * (1.0 + better - worse)
    return found


@giving
def _panel(
    mu: Floats, sigma: Floats, margin: float, reach: float, step: float, x: float, alive: Ints
) -> tuple[int, float]:
    """The number of sides that matter in the panel that begins at x or beyond it, and the panel's
    width. The sides' indices are written to `alive`. A side matters up to where its density ends,
    and up to the margin beyond that. Above both it is worse than any side that is there."""
    count, width = 0, np.inf
    for i in range(len(mu)):
        if mu[i] + margin + reach * sigma[i] <= x:
            continue
        alive[count] = i
        count += 1
        for centre in (mu[i], mu[i] + margin):
            if centre + reach * sigma[i] > x:
                width = min(width, max(step * sigma[i], centre - reach * sigma[i] - x))
    return count, width


@inlined
def _at(y: float, margin: float, mu: Floats, unit: Floats, at: Floats, own: Floats,
        tail: Floats) -> None:  # fmt: skip
    """Write the densities at y into `at`, and the probabilities of less than y - margin into `own`.
    The loops run over arrays, and only the last one has a branch, so that the processor works on
    several sides at once."""
    for i in range(len(mu)):
        z = (y - mu[i]) * unit[i]
        at[i] = density(z) * unit[i]
        own[i] = z - margin * unit[i]
    for i in range(len(mu)):
        tail[i] = density(own[i]) * mills(abs(own[i]))
    for i in range(len(mu)):
        own[i] = tail[i] if own[i] < 0.0 else 1.0 - tail[i]


@giving
def _integrals(mu: Floats, sigma: Floats, margin: float, quadrature: Quadrature) -> Floats:
    """(S,) the probability that each side wins. The product over all other sides is the product
    over those before a side times the product over those after it. It is not found by division,
    because a factor may be 0.

    Below the first panel some side is always better, and beyond the last one no side is. A node is
    left out if the product over all other sides is negligible for every side.
    """
    sides = len(mu)
    found, alive = np.zeros(sides), np.empty(sides, np.int64)
    before, own, part = np.empty(sides), np.empty(sides), np.empty(sides)
    centre, unit = np.empty(sides), np.empty(sides)
    at, tail = np.empty(sides), np.empty(sides)
    negligible = quadrature.negligible / sides
    reach = np.sqrt(-2.0 * log(negligible))  # Phi(-z) is less than exp(-z^2 / 2)
    x, high = np.max(mu - reach * sigma), np.max(mu + reach * sigma)
    while x < high:
        count, width = _panel(mu, sigma, margin, reach, quadrature.step, x, alive)
        half = 0.5 * min(width, high - x)
        for i in range(count):
            centre[i], unit[i], part[i] = mu[alive[i]], 1.0 / sigma[alive[i]], 0.0
        for q in range(len(quadrature.nodes)):
            y, product, least, seen = x + half * (1.0 + quadrature.nodes[q]), 1.0, 1.0, 0
            while seen < count and product > negligible * least:
                first, seen = seen, min(seen + TOGETHER, count)
                some = slice(first, seen)
                _at(y, margin, centre[some], unit[some], at[some], own[some], tail[some])
                for i in range(first, seen):
                    before[i] = product
                    product *= own[i]
                    least = min(least, own[i])
            if product <= negligible * least:
                continue
            product = half * quadrature.weights[q]
            for i in range(count - 1, -1, -1):
                before[i] *= product
                product *= own[i]
            for i in range(count):
                part[i] += before[i] * at[i]
        for i in range(count):
            found[alive[i]] += part[i]
        x += 2.0 * half
    return found


@kernel
def _win_probabilities(mu: Floats, sigma: Floats, margin: float, quadrature: Quadrature) -> Floats:
    if len(mu) == 2:
        return np.array(_better(mu, sigma, margin, 0, 1))
    return _integrals(mu, sigma, margin, quadrature)


@kernel
def _of_rounds(
    starts: Ints, mu: Floats, sigma: Floats, margins: Floats, most: int, quadrature: Quadrature
) -> Floats:
    found = np.zeros(len(mu))
    for r in range(len(starts) - 1):
        a, b = starts[r], starts[r + 1]
        if b - a == 2:
            found[a], found[a + 1] = _better(mu, sigma, margins[r], a, a + 1)
        elif b - a <= most:
            found[a:b] = _integrals(mu[a:b], sigma[a:b], margins[r], quadrature)
    return found


# --- the forecast of one round --------------------------------------------------------------------


class Believed(NamedTuple):
    """The beliefs about P players before a round."""

    mu: Floats  # (P,) in rating points; the initial rating for newcomers.
    sigma: Floats  # (P,) in rating points.
    rounds: Ints  # (P,) the number of rounds that each player has played; 0 for a newcomer.


class Forecast(NamedTuple):
    """The prediction for a round with S sides."""

    win: Floats  # (S,) the probability that each side is better than all others.
    draw: float
    """The probability that no side is better than all others; 0 on ladders without draws. `win` and
    `draw` add up to 1."""
    expected_rank: Floats  # (S,) the mean rank of each side, from 1.
    pairwise: Floats
    """(S, S) the probability that the side of the row is better than that of the column; 0 on the
    diagonal."""
    quality: float  # 1 if all sides are equally likely to win, 0 if the winner is certain.


class VarianceFactor(NamedTuple):
    """The factor by which the variances of a prediction are multiplied. Predictions with more than
    1 are less sure."""

    factor: float = 1.0
    rounds: int = 0  # The number of rounds from which it was learned; 0: it was given.

    def margin(self, config: RatingConfig) -> float:
        """The width of draws: with a learned factor it grows with the spread, as it did there."""
        return config.drawn_within * (math.sqrt(self.factor) if self.rounds else 1.0)

    def performances(
        self, config: RatingConfig, starts: Ints, share: Floats, mu: Floats, sigma: Floats
    ) -> Performances:
        """The performances of sides (`performances_of`) with the factor."""
        found = performances_of(config, starts, share, mu, sigma, self.factor)
        return found._replace(margin=self.margin(config))

    def forecast(
        self, config: RatingConfig, starts: Ints, share: Floats, players: Believed,
        shift: Floats | None = None,
    ) -> Forecast:  # fmt: skip
        """The forecast of a round of S sides with P players in all, by a ladder's parameters.

        `starts` (S+1,) contains the index of the first player of each side, and P. `share` (P,) is
        each player's part of the round, in (0, 1]. `shift` (S,) has the points of each side's seat
        (`seats.shifts_of`); None: no seats.
        """
        began = levels.of_newcomers(config, starts, share, *players)
        found = levels.of_one_round(config, starts, share, began, players.rounds, shift)
        return forecast(self.performances(config, starts, found.share, found.mu, players.sigma))


MODEL = VarianceFactor()  # The model as it is.


def deviations(config: RatingConfig, players: Believed, teams: int) -> Floats:
    """(P,) by how many points each player is above the rating from which a round of this many teams
    is measured: the initial rating, or their mean without `newcomer_offset` if some team has one
    player more. It is assumed that the newcomers are dealt evenly among the teams."""
    share = np.full(len(players.mu), 1.0 / teams)
    together = np.array([0, len(share)])  # so the newcomers' shares add up to those of one team
    began = levels.of_newcomers(config, together, share, *players)
    measured = levels.of_one_round(config, together, share, began, players.rounds).mu
    if len(share) % teams == 0:
        return measured - config.initial_mu
    return measured - np.mean(measured - levels.offset_of(config, share, players.rounds))


def forecast(sides: Performances) -> Forecast:
    """The forecast of a round of two sides or more."""
    win = win_probabilities(sides)
    draw = 1.0 - float(win.sum()) if sides.margin > 0.0 else 0.0
    return Forecast(win, max(draw, 0.0), expected_ranks(sides), pairwise(sides), evenness(win))


def shift_of_sides(config: RatingConfig, seats: Sequence[str | None]) -> Floats | None:
    """(S,) the points of the seats of S sides, None for a side without one. None if the ladder has
    no points for seats."""
    return shifts_of(config.seats, codes_of(seats)) if config.seats else None
