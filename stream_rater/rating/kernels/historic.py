"""The systems that the Elo-MMR paper compares with, except TrueSkill: the kernel of each.

`rate_each_round` gives them the rounds of a wave. It rates a team as one player, with the initial
rating plus the members' deviations from it (section 3.3). The team's change is distributed to the
members as in a linear Gaussian model, in proportion to their parts of the team's variance.

The parameters are in `systems.historic`. This module is loaded when a ladder that names one of its
systems rates a round, so other ladders neither import nor compile it. The kernel of a system gets
the columns of a round (`SoloRound`), and returns (n, 3): performance, new mu, new sigma.
"""

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from stream_rater.columns.arrays import Floats, Ints
from stream_rater.columns.kernels import kernel
from stream_rater.rating.elementary import exp, log
from stream_rater.rating.elo_mmr.sum_table import chance, log_odds, scores, table_of
from stream_rater.rating.model import Evidence, Places, Wave, tie_bounds
from stream_rater.rating.normal import chance_below, quantile
from stream_rater.rating.roots import MAX_STEPS, safeguard

C = math.pi / math.sqrt(3.0)


class SoloRound(NamedTuple):
    """A round without teams, of n entries in order of place."""

    place: Places  # (n,) the places, as in Wave.
    mu: Floats  # (n,) the ratings before the round.
    sigma: Floats  # (n,) the uncertainties before the round.
    rounds: Ints  # (n,) the number of rounds played before.
    weight: float  # The relative weight of the round's evidence.
    ceiling: Floats  # (n,) the caps on performances; infinite for none.
    moved: Floats
    """(n,) by how many points `mu` is above the entry's own rating, for this round (`levels`)."""


def rate_each_round(
    wave: Wave, initial_mu: float, rate: Callable[..., Floats], *parameters: float
) -> Evidence:
    """Evidence (P, 3) for every player of a wave: the performance, the new mu and the new sigma.
    `rate` computes these three numbers for the n entries of a SoloRound, as (n, 3)."""
    out = np.empty((len(wave.mu), 3))
    for r in range(len(wave.weight)):
        first, end = wave.round_starts[r], wave.round_starts[r + 1]
        starts = wave.entry_starts[first : end + 1]
        a, b = starts[0], starts[-1]
        mu, sigma = wave.mu[a:b], wave.sigma[a:b]
        solo = SoloRound(
            wave.place[first:end], mu, sigma, wave.rounds[a:b], float(wave.weight[r]),
            wave.ceiling[first:end],
            wave.moved_side[first:end] if len(wave.moved_side) else np.zeros(end - first),
        )  # fmt: skip
        share = wave.share[a:b]
        if len(mu) == end - first and not (len(wave.moved) and (share != 1.0).any()):
            out[a:b] = rate(solo, *parameters)
            continue
        own = starts[:-1] - a
        team_mu = initial_mu + np.add.reduceat(share * (mu - initial_mu), own)
        team_sigma = np.sqrt(np.add.reduceat((share * sigma) ** 2, own))
        played = np.maximum.reduceat(solo.rounds, own)
        rated = rate(solo._replace(mu=team_mu, sigma=team_sigma, rounds=played), *parameters)
        of = np.repeat(np.arange(end - first), np.diff(starts))
        gain = share * (sigma / team_sigma[of]) ** 2
        shrink = (rated[of, 2] / team_sigma[of]) ** 2 - 1.0
        out[a:b, 0] = rated[of, 0]
        out[a:b, 1] = mu + gain * (rated[of, 1] - team_mu[of])
        out[a:b, 2] = sigma * np.sqrt(1.0 + gain * share * shrink)
    return out


@kernel
def _pushes(
    own_mu: float, own_variance: float, lo: int, hi: int, mu: Floats, variance: Floats,
    pushes: Floats,
) -> None:  # fmt: skip
    """Compute each opponent's contribution. The loop is simple, so that a processor can run it for
    several opponents at once."""
    for j in range(len(mu)):
        c = np.sqrt(own_variance + variance[j])
        p = 1.0 / (1.0 + exp((mu[j] - own_mu) * C / c))
        outcome = 0.5 if lo <= j <= hi else (1.0 if j > hi else 0.0)
        pushes[j] = (outcome - p) / c


@kernel
def bar(solo: SoloRound, beta: float, drift: float, kappa: float) -> Floats:
    """(n, 3) evidence of one round by BAR, the Bayesian approximation for rankings (Weng and Lin):
    a mean over pairs. `kappa` bounds how much a round may shrink the variance."""
    n, mu = len(solo.mu), solo.mu
    b2 = beta * beta / solo.weight
    variance = solo.sigma * solo.sigma + drift * drift
    lo, hi = tie_bounds(solo.place)
    out = np.empty((n, 3))
    pushes = np.empty(n)
    for i in range(n):
        _pushes(mu[i], variance[i] + 2.0 * b2, lo[i], hi[i], mu, variance, pushes)
        push = 0.0
        for j in range(n):
            push += pushes[j]
        shrink = 0.25 * variance[i] / (variance[i] + 2.0 * b2)
        out[i, 1] = mu[i] + variance[i] * push / n
        out[i, 0] = out[i, 1]
        out[i, 2] = np.sqrt(variance[i] * max(kappa, 1.0 - shrink))
    return out


@kernel
def _performance(
    rank: float, x: float, mu: Floats, u: Floats, c: Floats, begin: float, h: float, low: float,
    high: float,
) -> float:  # fmt: skip
    """The rating in [low, high] whose expected rank is `rank`, searched from x."""
    level = log((len(mu) + 0.5 - rank) / (rank - 0.5))
    below, above, last = low, high, math.inf
    for _ in range(MAX_STEPS):
        value, slope = log_odds(x, mu, u, c, begin, h)
        step = (level - value) / slope
        if abs(step) * u[0] <= 1e-9:
            return x + step
        x, below, above, last = safeguard(x, value - level, step, below, above, last)
    return x


@kernel
def codeforces(solo: SoloRound, beta: float, w: float) -> Floats:
    """(n, 3) evidence of one round by Codeforces, as the Elo-MMR paper evaluates it. `beta` is the
    spread of performances, and `w` is the weight of a round's performance.

    A player's performance is the rating whose expected rank is the geometric mean of the player's
    expected rank and actual rank. All opponents have the same scale, so the expected rank at x is n
    + 1/2 - n P / (P + Q). So a given rank is expected at the rating where the log odds L have a
    given value (`log_odds`).
    """
    n, mu, weight = len(solo.mu), solo.mu, solo.weight
    u = np.full(n, C * np.sqrt(weight) / beta)
    reach = (log(2.0 * n) + 1.0) / u[0]  # the best rank is 1, with odds of n to 1/2
    low, high = np.min(mu) - reach, np.max(mu) + reach
    c, begin, h = table_of(mu, u, low, high)
    lo, hi = tie_bounds(solo.place)
    out = np.empty((n, 3))
    for i in range(n):
        value, _ = log_odds(mu[i], mu, u, c, begin, h)
        expected = 0.5 + n * chance(-value)
        actual = 0.5 * (lo[i] + hi[i] + 2)
        rank = np.sqrt(actual * expected)
        performance = _performance(rank, mu[i], mu, u, c, begin, h, low, high)
        out[i, 0] = performance
        out[i, 1] = (mu[i] + w * weight * performance) / (1.0 + w * weight)
        out[i, 2] = solo.sigma[i]
    return out


@kernel
def glicko(solo: SoloRound, beta: float, drift: float) -> Floats:
    """(n, 3) evidence of one round by Glicko for n players: a round counts as one fully informative
    match. `drift` is the growth of sigma between rounds.

    An opponent's g and u are proportional, so the expected score, the sum of g_j s_j(x), is the
    fraction P / (P + Q) of the sum of all g (`log_odds`).
    """
    n, mu = len(solo.mu), solo.mu
    b2 = beta * beta / solo.weight
    variance = solo.sigma * solo.sigma + drift * drift
    g = 1.0 / np.sqrt(1.0 + variance / b2)
    u = C / np.sqrt(variance + b2)
    c, low, h = table_of(mu, u, np.min(mu), np.max(mu))
    lo, hi = tie_bounds(solo.place)
    actual, total = scores(lo, hi, g)
    out = np.empty((n, 3))
    for i in range(n):
        value, _ = log_odds(mu[i], mu, u, c, low, h)
        surprise = actual[i] - total * chance(value)
        after = 1.0 / (1.0 / variance[i] + 0.25 * C * C / b2)
        out[i, 1] = mu[i] + C / np.sqrt(b2) * after * surprise / n
        out[i, 0] = mu[i] + (out[i, 1] - mu[i]) * (1.0 + b2 / variance[i])
        out[i, 2] = np.sqrt(after)
    return out


@kernel
def _chances(
    own_mu: float, own_sigma: float, mu: Floats, sigma: Floats, root: float, chance: Floats
) -> None:
    """Compute the probability that each opponent is better. The loop is simple, so that a processor
    can run it for several opponents at once."""
    for j in range(len(mu)):
        spread = np.sqrt(own_sigma * own_sigma + sigma[j] * sigma[j])
        chance[j] = chance_below(root * (mu[j] - own_mu) / spread)


@kernel
def topcoder(solo: SoloRound, newcomer_weight: float, weight_limit: float) -> Floats:
    """(n, 3) evidence of one round by Topcoder, whose volatility players can exploit, as the
    Elo-MMR paper shows (section 5.1). `sigma` is the volatility. Results are weighed by the rating
    that was not moved."""
    n, mu, sigma, weight = len(solo.mu), solo.mu, solo.sigma, solo.weight
    mean = np.mean(mu)
    c = np.sqrt(np.mean(sigma * sigma) + np.sum((mu - mean) ** 2) / (n - 1))
    lo, hi = tie_bounds(solo.place)
    root = np.sqrt(weight)
    out, chance = np.empty((n, 3)), np.empty(n)
    for i in range(n):
        _chances(mu[i], sigma[i], mu, sigma, root, chance)
        expected = 0.0
        for j in range(n):
            expected += chance[j]
        actual = 0.5 * (1.0 + lo[i] + hi[i])
        performance = mu[i] + c * (quantile(expected / n) - quantile(actual / n))
        performance = min(performance, solo.ceiling[i])
        k = solo.rounds[i] + 1.0
        u = weight_limit + (newcomer_weight - weight_limit) / k
        cap = (150.0 + 1500.0 / (k + 1.0)) * root * u / (0.18 + 0.42 / k)
        v = u * weight / (1.0 - u)
        rating = mu[i] - solo.moved[i]
        if rating >= 2500.0:
            v *= 0.8
        elif rating >= 2000.0:
            v *= 0.9
        target = (mu[i] + v * performance) / (1.0 + v)
        out[i, 0] = performance
        out[i, 1] = min(max(target, mu[i] - cap), mu[i] + cap)
        out[i, 2] = np.sqrt((target - mu[i]) ** 2 / v + sigma[i] ** 2 / (1.0 + v))
    return out
