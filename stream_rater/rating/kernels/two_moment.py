"""Stage 1 of the two-moment filter: the mean and the variance of each skill, given the round.

A side's performance P is its skill S, normal with mean m and variance v, plus noise of variance
b^2. The noise is skewed: on either kind of day, a usual or a bad one, P is normal (`duel`). Let
f_j be the density of side j's performance, and F_j its distribution function. The places of the
other sides give the likelihood L(x) of a performance x of side i:

    ln L(x) = sum over worse ln F_j(x) + sum over better ln (1 - F_j(x)) + sum over tied ln f_j(x).

On each kind of day the moments of S follow exactly from those of P: with k = v / (v + PART b^2),
E[S] = m + k (E[P] - m - SHIFT b) and Var[S] = v (1 - k) + k^2 Var[P].

The noise's density is log-concave. So are f_j, F_j, 1 - F_j and L, and the density of P has one
summit. The slope of ln F_j is at least that of ln f_j, which is at least that of ln (1 - F_j): of
two places the better one gives the better skill, and so does a victory in place of a tie. No result
makes a skill less certain. If equals tie and nobody else plays, their means stay.

There are three ways to compute it:

- `duel`: two sides, in closed form;
- `few_sides`: products of probabilities on a grid, unless the result is too surprising for them;
- `many_sides`: sums of logarithms on a grid, for all that remains.

The derivation is in docs/internals/mathematics.md ("The two-moment filter").
"""

from typing import NamedTuple

import numpy as np

from stream_rater.columns.arrays import Floats
from stream_rater.columns.kernels import giving, inlined, kernel
from stream_rater.rating.elementary import aligned, exp, log, tanh
from stream_rater.rating.elo_mmr.performance import SECONDS_PER_DAY
from stream_rater.rating.kernels.duel import rate_duel
from stream_rater.rating.kernels.few_sides import FEW, MOST_COLUMNS, rate_few, room
from stream_rater.rating.kernels.many_sides import rate_many
from stream_rater.rating.model import LEAST_TEAM, Evidence, Places, Wave


@giving
def rate_sides(
    place: Places, m: Floats, v: Floats, b2: Floats, ceiling: Floats, seen: float, noise: float,
    rows: Floats, out: Floats,
) -> None:  # fmt: skip
    """Write into `out` (n, 3) the mean performance of each side of a round, and the mean and the
    variance of its skill after the round.

    `place` (n,) is in rising order. `m`, `v` and `b2` (n,) are the sides' means, the variances of
    their skills, and the variances of their noise. Means, ceilings and performances are in points
    from the initial rating, variances in points^2. On days of either kind, the mean performance is
    limited to the side's `ceiling` (n,). `seen` is the difference of the performances as the
    scores of two sides show it, 0 if they show nothing, and `noise` the variance of what they show,
    as a multiple of the variance of both sides' noise. `rows` is scratch space (`few_sides.room`).
    """
    n = len(m)
    if n == 2:
        rate_duel(place[0] == place[1], m, v, b2, ceiling, seen, noise, out)
    elif n > FEW or not rate_few(place, m, v, b2, ceiling, rows, out):
        rate_many(place, m, v, b2, ceiling, out)


class Model(NamedTuple):
    """The parameters, as kernels take them."""

    initial_mu: float
    initial_sigma: float
    beta: float
    drift: float  # The variance that a round adds, in points^2.
    drift_per_day: float  # The variance that a day adds, in points^2.
    score_scale: float  # The points of a margin of 1.
    score_cap: float  # The margin that no difference of scores exceeds.
    score_ratio: bool  # Whether the margin is that of the logarithms.
    score_noise: float
    """The variance of what scores show of the difference of two performances, as a multiple of the
    variance of both sides' noise."""
    team_noise: float  # The power of a side's members by which beta grows, from LEAST_TEAM on.


@inlined
def _seen(wave: Wave, model: Model, first: int, end: int) -> float:
    """The difference of the performances of a round's entries [first, end), in points, as their
    scores show it: less than scale times cap. It is 0 unless there are two, both with scores that
    agree with their places."""
    if len(wave.score) == 0 or end - first != 2:
        return 0.0
    a, b = wave.score[first], wave.score[first + 1]
    if model.score_ratio:
        margin = log(a + 1.0) - log(b + 1.0) if min(a, b) >= 0.0 else 0.0
    else:
        margin = a - b
    return (
        model.score_scale
        * model.score_cap
        * tanh((margin if margin > 0.0 else 0.0) / model.score_cap)
    )


@giving
def _sums(wave: Wave, model: Model, r: int, variance: Floats, sides: Floats) -> None:
    """Write the mean, the variance, the noise and the ceiling of each side of round r into the rows
    of `sides`, and the variance of each player before the round into `variance`."""
    most = model.initial_sigma * model.initial_sigma
    first, end = wave.round_starts[r], wave.round_starts[r + 1]
    a = wave.entry_starts[first]
    for e in range(end - first):
        i, j = wave.entry_starts[first + e], wave.entry_starts[first + e + 1]
        drift = model.drift / ((j - i) * (j - i))
        m = v = b2 = 0.0
        for p in range(i, j):
            own = wave.sigma[p] * wave.sigma[p]
            if wave.rounds[p] > 0:
                days = max(wave.time[r] - wave.last_time[p], 0) / SECONDS_PER_DAY
                own = min(own + drift + model.drift_per_day * days, max(own, most))
            share = wave.share[p]
            variance[p - a] = own
            m += share * (wave.mu[p] - model.initial_mu)
            v += share * share * own
            b2 += share * share
        if model.team_noise > 0.0 and j - i >= LEAST_TEAM:
            b2 *= exp(2.0 * model.team_noise * log(float(j - i)))
        sides[0, e], sides[1, e] = m, v
        sides[2, e] = b2 * (model.beta * model.beta / wave.weight[r])
        sides[3, e] = wave.ceiling[first + e] - model.initial_mu


@giving
def _share_out(
    wave: Wave, model: Model, r: int, variance: Floats, sides: Floats, found: Floats, out: Floats
) -> None:
    """Write each player's evidence from the results of the sides of round r."""
    first, end = wave.round_starts[r], wave.round_starts[r + 1]
    a = wave.entry_starts[first]
    for e in range(end - first):
        m, v = sides[0, e], sides[1, e]
        gain, left = (found[e, 1] - m) / v, found[e, 2] / v
        for p in range(wave.entry_starts[first + e], wave.entry_starts[first + e + 1]):
            own = variance[p - a]
            part = wave.share[p] * own
            of_side = wave.share[p] * part / v
            out[p, 0] = model.initial_mu + found[e, 0]
            out[p, 1] = wave.mu[p] + part * gain
            out[p, 2] = np.sqrt(own * (max(1.0 - of_side, 0.0) + of_side * left))


@kernel
def rate_rounds(wave: Wave, model: Model) -> Evidence:
    """Evidence (P, 3) of a wave whose newcomers have already been placed: the performance of each
    player's side, the new mu and the new sigma."""
    out = np.empty((len(wave.mu), 3))
    players = entries = needed = 0
    for r in range(len(wave.weight)):
        first, end = wave.round_starts[r], wave.round_starts[r + 1]
        players = max(players, wave.entry_starts[end] - wave.entry_starts[first])
        entries = max(entries, end - first)
        needed = max(needed, room(end - first) if end > first + 2 else 0)
    variance, sides, found = np.empty(players), np.empty((4, entries)), np.empty((entries, 3))
    rows = aligned(needed * MOST_COLUMNS).reshape((needed, MOST_COLUMNS))
    for r in range(len(wave.weight)):
        first, end = wave.round_starts[r], wave.round_starts[r + 1]
        n = end - first
        _sums(wave, model, r, variance, sides)
        rate_sides(
            wave.place[first:end], sides[0, :n], sides[1, :n], sides[2, :n], sides[3, :n],
            _seen(wave, model, first, end), model.score_noise, rows, found[:n],
        )  # fmt: skip
        _share_out(wave, model, r, variance, sides, found, out)
    return out
