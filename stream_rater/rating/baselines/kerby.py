"""Kerby's systems: one number per player, which climbs the gradient of the result's likelihood.

"Kerby" is B. Kerby, "Multiplayer generalizations of Elo rating system", 2025. A round has a
likelihood P(result | x) in ratings x, counted in units of `scale` points; then (section 3)

    rating += learning rate * round weight * d ln P / dx,

the learning rate being that at the player's rating before the round (section 5.2), and no rating
falls below the floor. What all four have in common:

- **Did not finish**: worse than all who finished; the order among them is not observed (section 4).
- **Anchor** (section 5.1): a dummy of constant rating, tied for last. It is one more of those who
  did not finish; if everybody did, nothing is observed between it and those in the last place, nor
  among these.
- **Ties** of others: half a win and half a loss, as a draw in chess. Where P is of a whole order
  (Plackett-Luce, Thurstone) it is half of two: the tied stand by rating, once rising, once falling,
  and equally rated ones share alike. The note has no such ties.
- **Teams**: a team's rating is the initial one plus its members' deviations, each times the share
  of the round played; so a member's gradient is the team's, times the share.
- **Fixed** players take part, but never move.

The `performance` of the evidence is the rating plus `scale` times the gradient: for Thurstone's
model, the mean of the performance given the result.
"""

import math

import numpy as np

from stream_rater.columns.arrays import Flags, Floats, Ints
from stream_rater.columns.kernels import kernel
from stream_rater.rating.baselines import pairwise_elo, plackett_luce, thurstone
from stream_rater.rating.baselines.places import tie_bounds
from stream_rater.rating.model import DID_NOT_FINISH, Evidence, Places, Wave
from stream_rater.rating.parameters import (
    Climbing,
    Elo,
    PairwiseElo,
    PlackettLuce,
    Thurstone,
)

PAIRS, EXPONENTIAL, GAUSSIAN = 0, 1, 2
"""Which likelihood: of all pairs, or of the whole order by an exponential or a Gaussian model."""


@kernel
def _of_order(x: Floats, order: Ints, ranked: int, likelihood: int, out: Floats) -> None:
    """Add half the gradient of the order `order` (indices of entries, best first) to `out`."""
    g = np.empty(len(x))
    if likelihood == EXPONENTIAL:
        plackett_luce.gradient(x[order], ranked, g)
    else:
        thurstone.gradient(x[order], ranked, g)
    for k in range(len(x)):
        out[order[k]] += 0.5 * g[k]


@kernel
def _share_alike(x: Floats, order: Ints, lo: Ints, ranked: int, g: Floats) -> None:
    """Give entries of equal place and equal rating, neighbours in `order`, their mean."""
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
    """d ln P(order) / dx (n,); ties among the first `ranked` half and half."""
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
    """d ln P / dx (n,) of a round; entries in order of place; `anchor` NaN for none."""
    n = len(x)
    lo, hi = tie_bounds(place)
    ranked = n
    while ranked > 0 and place[ranked - 1] == DID_NOT_FINISH:
        ranked -= 1
    entries = x
    if not np.isnan(anchor):
        entries = np.append(x, anchor)
        if ranked == n:
            ranked = lo[n - 1]
    if ranked == 0:
        return np.zeros(n)
    if likelihood == PAIRS:
        return pairwise_elo.gradient(entries, hi, ranked, gaussian, average)[:n]
    return order_gradient(entries, lo, hi, ranked, likelihood)[:n]


@kernel
def interpolate(at: float, knots: Floats, values: Floats) -> float:
    """Linear between rising knots, flat outside."""
    value: float = values[0]
    for k in range(len(knots) - 1):
        part = (at - knots[k]) / (knots[k + 1] - knots[k])
        if part > 0.0:
            value = values[k] + min(part, 1.0) * (values[k + 1] - values[k])
    return value


@kernel
def _rounds(
    round_starts: Ints, weight: Floats, place: Places, entry_starts: Ints, share: Floats,
    mu: Floats, sigma: Floats, held: Flags, knots: Floats, rates: Floats, scale: float,
    initial_mu: float, anchor: float, floor: float, likelihood: int, gaussian: bool, average: bool,
) -> Floats:  # fmt: skip
    out = np.empty((len(mu), 3))
    for r in range(len(weight)):
        first, end = round_starts[r], round_starts[r + 1]
        x = np.zeros(end - first)
        for e in range(first, end):
            for i in range(entry_starts[e], entry_starts[e + 1]):
                x[e - first] += share[i] * (mu[i] - initial_mu) / scale
        g = gradient(
            place[first:end], x, (anchor - initial_mu) / scale, likelihood, gaussian, average
        )
        for e in range(first, end):
            for i in range(entry_starts[e], entry_starts[e + 1]):
                slope = share[i] * g[e - first]
                rate = weight[r] * interpolate(mu[i], knots, rates)
                out[i, 0] = mu[i] + scale * slope
                out[i, 1] = mu[i] if held[i] else max(mu[i] + rate * slope, floor)
                out[i, 2] = sigma[i]
    return out


def _likelihood(config: Climbing) -> tuple[int, bool, bool]:
    """Which one; whether pairs are Gaussian; whether they are averaged."""
    match config:
        case PlackettLuce():
            return EXPONENTIAL, False, False
        case Thurstone():
            return GAUSSIAN, True, False
        case PairwiseElo():
            return PAIRS, config.model == "gaussian", config.pairs == "average"
        case Elo():
            return PAIRS, config.model == "gaussian", False
        case _:
            raise AssertionError(f"{config} has no likelihood")


def estimate(config: Climbing, wave: Wave) -> Evidence:
    """Evidence (P, 3): performance, new mu, sigma as it was."""
    held = np.zeros(len(wave.mu), np.bool_)
    if config.fixed:
        fixed = frozenset(config.fixed)
        held[:] = [player in fixed for players in wave.players for player in players]
    table = np.array(config.rates, np.float64)
    evidence: Evidence = _rounds(
        wave.round_starts, wave.weight, wave.place, wave.entry_starts, wave.share,
        wave.mu, wave.sigma, held, table[:, 0].copy(), table[:, 1].copy(), config.scale,
        config.initial_mu, math.nan if config.anchor is None else config.anchor,
        -math.inf if config.floor is None else config.floor, *_likelihood(config),
    )  # fmt: skip
    return evidence
