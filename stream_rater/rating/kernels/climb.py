"""Kerby's systems: one number per player, which climbs the gradient of the result's log-likelihood.

"Kerby" is B. Kerby, "Multiplayer generalizations of Elo rating system", 2025. A round has a
likelihood P(result | x), where x are the ratings in units of `scale` points. The rating of each
player then changes by (section 3)

    rating += learning rate * round weight * d ln P / dx,

where the learning rate is the one at the player's rating before the round (section 5.2). No rating
falls below the floor. All four systems have in common:

- **Did not finish**: such entries are worse than all that finished; the order among them is not
  observed (section 4). If the ladder ties them for last instead, they are tied entries like any
  others. If there is an anchor, both rules give the same result.
- **Anchor** (section 5.1): a dummy of constant rating that is tied for last. It counts as one more
  entry that did not finish. If all entries finished, the order of the anchor and of the entries in
  the last place is not observed.
- **Ties** of other entries count as half a win and half a loss, like a draw in chess. If P is the
  likelihood of a whole order (Plackett-Luce, Thurstone), the gradient is the mean of two orders:
  tied entries are ordered by rating, once rising and once falling. Tied entries of equal rating
  share the mean of their gradients. The note has no such ties.
- **Teams**: a team's rating is the initial rating plus its members' deviations, each times the
  share of the round played. So a member's gradient is the team's times the share.
- **Seats and unequal sides** (`levels`): the learning rate and the floor go by the rating as it
  was before it was moved for the round.
- **Fixed** players take part, but their ratings never change.
- **Steps** are those of the note, however long. Thurstone's likelihood is log-concave in x with a
  curvature of 1 at most. So ratings approach its maximum if rate * weight / scale is below 2, and a
  step never passes a performance if it is at most 1. Beyond 2, each upset may drive ratings further
  apart than the one before. They end at MOST_RATING, which a record can still hold.

The `performance` of the evidence is the rating plus `scale` times the gradient. In Thurstone's
model this is the mean of the performance given the result.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from stream_rater.columns.arrays import Flags, Floats, Ints
from stream_rater.columns.kernels import kernel
from stream_rater.rating.elo_mmr.sum_table import chance, log_odds, table_of
from stream_rater.rating.kernels import plackett_luce, thurstone
from stream_rater.rating.model import Evidence, Places, Wave, count_ranked, tie_bounds
from stream_rater.rating.normal import hazard

PAIRS, EXPONENTIAL, GAUSSIAN, CHOICES = 0, 1, 2, 3
"""The kinds of likelihood: of all pairs, or of the whole order by an exponential or a Gaussian
model. CHOICES is the exponential one in the usual orientation."""

MOST_RATING = 3.4028234663852886e38
"""No rating is above this or below its negative: it is the largest float32, which a record
holds."""
LARGEST = 1.7e308  # The largest product of learning rate and round weight that is used.

LIKELIHOODS = {
    "pairs": PAIRS, "exponential": EXPONENTIAL, "gaussian": GAUSSIAN, "choices": CHOICES,
}  # fmt: skip


# --- Elo and pairwise Elo: a game between each pair of entries (sections 3.1 and 3.2.1) -----------
#
# The logistic model is the exponential one of section 3.1.1: P(i beats j) = 1 / (1 + exp(x_j -
# x_i)). Its gradient is the score of an entry minus its expected score, which follows at any x from
# the log odds there, without a look at every pair (`log_odds`).
#
# The Gaussian model of section 3.1.2 has P = Phi((x_i - x_j) / sqrt 2) and follows the maximum
# likelihood rule, whose steps have no bound. A tie is half a win and half a loss.

INVERSE_SQRT_2 = 1.0 / math.sqrt(2.0)


@kernel
def _pull(difference: float) -> float:
    """The derivative of ln P(win) in the Gaussian model by `difference`, the winner's rating minus
    the loser's."""
    return INVERSE_SQRT_2 * hazard(-INVERSE_SQRT_2 * difference)


@kernel
def _gaussian(x: Floats, hi: Ints, ranked: int, g: Floats) -> None:
    for i in range(ranked):
        for j in range(i + 1, len(x)):
            pull = _pull(x[i] - x[j])
            if j <= hi[i]:
                pull = 0.5 * (pull - _pull(x[j] - x[i]))
            g[i] += pull
            g[j] -= pull


@kernel
def _logistic(x: Floats, hi: Ints, ranked: int, g: Floats) -> None:
    """Write the gradient of the logistic model into `g`. An entry counts as its own opponent: it
    scores half against itself, and its expected score is half, too."""
    n, first = len(x), 0
    for i in range(ranked):
        first = i if hi[first] < i else first
        g[i] = (n - 1 - hi[i]) + 0.5 * (hi[i] - first + 1)
    _less_expected(x, x[:ranked], g[:ranked])
    _less_expected(x[:ranked], x[ranked:], g[ranked:])


@kernel
def _less_expected(x: Floats, at: Floats, g: Floats) -> None:
    """Subtract from each g (k,) the expected score at `at` (k,) against all of x."""
    if len(x) == 0 or len(at) == 0:
        return
    u = np.ones(len(x))
    c, low, h = table_of(x, u, min(np.min(x), np.min(at)), max(np.max(x), np.max(at)))
    for i in range(len(at)):
        value, _ = log_odds(at[i], x, u, c, low, h)
        g[i] -= len(x) * chance(value)


@kernel
def gradient_of_pairs(x: Floats, hi: Ints, ranked: int, gaussian: bool, average: bool) -> Floats:
    """(n,) d/dx of the sum over pairs of ln P(outcome), or of the mean over each entry's own pairs.

    Entries are in order of place; hi (n,) is the last position of each tie group. Entries from
    `ranked` on are not compared with each other. Unless averaged, the gradients add up to zero:
    what one entry gains, another loses.
    """
    n = len(x)
    g = np.zeros(n)
    if gaussian:
        _gaussian(x, hi, ranked, g)
    else:
        _logistic(x, hi, ranked, g)
    if average:
        for i in range(n):
            g[i] /= max(n - 1 if i < ranked else ranked, 1)
    return g


# --- all systems ----------------------------------------------------------------------------------


@kernel
def _of_order(x: Floats, order: Ints, ranked: int, likelihood: int, out: Floats) -> None:
    """Add half the gradient of an order (indices of entries, best first) to `out`."""
    g = np.empty(len(x))
    if likelihood == GAUSSIAN:
        thurstone.gradient(x[order], ranked, g)
    elif likelihood == CHOICES and len(x) > 2:
        plackett_luce.gradient_of_choices(x[order], ranked, g)
    else:  # of two entries both orientations are the same, here to the bit
        plackett_luce.gradient(x[order], ranked, g)
    for k in range(len(x)):
        out[order[k]] += 0.5 * g[k]


@kernel
def _share_alike(x: Floats, order: Ints, lo: Ints, ranked: int, g: Floats) -> None:
    """Give tied entries of equal rating, which are neighbours in `order`, the mean of their
    gradients."""
    first = 0
    while first < ranked:
        end, total = first, 0.0
        while end < ranked and lo[end] == lo[first] and x[order[end]] == x[order[first]]:
            total += g[order[end]]
            end += 1
        for k in range(first, end):
            g[order[k]] = total / (end - first)
        first = end


@kernel
def order_gradient(x: Floats, lo: Ints, hi: Ints, ranked: int, likelihood: int) -> Floats:
    """(n,) d ln P(order) / dx. If some of the first `ranked` entries tie, it is the mean of two
    orders (see the module's docstring)."""
    falling, rising = np.arange(len(x)), np.arange(len(x))
    tied = False
    for i in range(ranked):
        if lo[i] == i and hi[i] > i:
            tied = True
            group = i + np.argsort(x[i : hi[i] + 1], kind="mergesort")
            rising[i : hi[i] + 1] = group
            falling[i : hi[i] + 1] = group[::-1]
    g = np.zeros(len(x))
    _of_order(x, falling, ranked, likelihood, g)
    if not tied:
        return 2.0 * g
    _of_order(x, rising, ranked, likelihood, g)
    _share_alike(x, rising, lo, ranked, g)
    return g


@kernel
def gradient(
    place: Places, x: Floats, anchor: float, likelihood: int, gaussian: bool, average: bool
) -> Floats:
    """(n,) d ln P / dx of a round, whose entries are in order of place. `anchor`: NaN if there is
    none."""
    n = len(x)
    lo, hi = tie_bounds(place)
    ranked = count_ranked(place)
    entries = x
    if not np.isnan(anchor):
        entries = np.append(x, anchor)
        if ranked == n:
            ranked = lo[n - 1]
    if ranked == 0:
        return np.zeros(n)
    if likelihood == PAIRS:
        return gradient_of_pairs(entries, hi, ranked, gaussian, average)[:n]
    return order_gradient(entries, lo, hi, ranked, likelihood)[:n]


@kernel
def interpolate(at: float, knots: Floats, values: Floats) -> float:
    """The linear interpolation between rising knots; it is constant outside them."""
    value: float = values[0]
    for k in range(len(knots) - 1):
        part = (at - knots[k]) / (knots[k + 1] - knots[k])
        if part > 0.0:
            value = values[k] + min(part, 1.0) * (values[k + 1] - values[k])
    return value


@kernel
def _within_records(rating: float) -> float:
    """The nearest rating that a record can hold."""
    return min(max(rating, -MOST_RATING), MOST_RATING)


class Climb(NamedTuple):
    """The parameters with which ratings climb the gradient of a round's likelihood."""

    knots: Floats
    rates: Floats
    """The learning rate at each rating of `knots`; it is linear between them, constant outside."""
    scale: float  # The number of points per unit of x.
    initial_mu: float
    anchor: float  # The rating of the dummy player who is tied for last; NaN if there is none.
    floor: float  # No rating falls below this; -inf if there is no floor.
    likelihood: int
    gaussian: bool
    average: bool


@kernel
def _rounds(wave: Wave, fixed: Flags, climb: Climb) -> Floats:
    round_starts, entry_starts, share = wave.round_starts, wave.entry_starts, wave.share
    mu, scale, initial_mu = wave.mu, climb.scale, climb.initial_mu
    is_moved = len(wave.moved) > 0
    out = np.empty((len(mu), 3))
    for r in range(len(wave.weight)):
        first, end = round_starts[r], round_starts[r + 1]
        x = np.zeros(end - first)
        for e in range(first, end):
            for i in range(entry_starts[e], entry_starts[e + 1]):
                x[e - first] += share[i] * (mu[i] - initial_mu) / scale
        g = gradient(
            wave.place[first:end], x, (climb.anchor - initial_mu) / scale,
            climb.likelihood, climb.gaussian, climb.average,
        )  # fmt: skip
        for e in range(first, end):
            for i in range(entry_starts[e], entry_starts[e + 1]):
                slope = share[i] * g[e - first]
                moved = wave.moved[i] if is_moved else 0.0
                rate = wave.weight[r] * interpolate(mu[i] - moved, climb.knots, climb.rates)
                after = _within_records(mu[i] + min(rate, LARGEST) * slope)
                out[i, 0] = _within_records(mu[i] + scale * slope)
                out[i, 1] = mu[i] if fixed[i] else max(after, climb.floor + moved)
                out[i, 2] = wave.sigma[i]
    return out


def estimate(
    wave: Wave, rates: Sequence[tuple[float, float]], scale: float, initial_mu: float,
    anchor: float | None, floor: float | None, likelihood: tuple[str, bool, bool],
) -> Evidence:  # fmt: skip
    """Evidence (P, 3): performance, new mu, and the unchanged sigma. The parameters are those of
    `systems.kerby.Climbing`. `likelihood` is the name of one of LIKELIHOODS, whether it is
    Gaussian, and whether it is averaged over an entry's pairs."""
    fixed = wave.fixed if len(wave.fixed) else np.zeros(len(wave.mu), np.bool_)
    table, (kind, gaussian, average) = np.array(rates, np.float64), likelihood
    climb = Climb(
        table[:, 0].copy(), table[:, 1].copy(), scale, initial_mu,
        math.nan if anchor is None else anchor, -math.inf if floor is None else floor,
        LIKELIHOODS[kind], gaussian, average,
    )  # fmt: skip
    evidence: Evidence = _rounds(wave, fixed, climb)
    return evidence
