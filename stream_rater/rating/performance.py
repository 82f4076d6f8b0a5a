"""Stage 1: how well did each entry play? (Section 3.1 of the paper, with all opponents.)

Entry j performs logistically around mu_j, its variance being delta_j^2 = sigma_j^2 + gamma_j^2 +
beta_j^2. With u_j = C / delta_j, s_j(x) = 1 / (1 + exp(-(x - mu_j) u_j)) and t_j = 1 - s_j, the
performance of an entry is the root of

    sum over better and tied u_j s_j(x)  =  sum over worse and tied u_j t_j(x)      (Theorem 3.2)

where the tied, the entry itself included, count on both sides: wholly (`ties = "full"`) or by half
("split"). We solve ln(left) = ln(right) instead: the same root, but nearly linear in x and without
cancellation in the tails, so Halley's method takes two or three steps from the next better root.

One case is left over: after an upset over a gap of thousands of points, with weights that happen to
balance, both sides are saturated between the two and any point there seems a root. Then we bisect
left - right, summed so that the weights cancel first and the small remainders decide.

All tied entries share one performance. Entries that did not finish are worse than all ranked ones
and are not compared with each other, so each has a performance of its own.
"""

import math

import numpy as np

from stream_rater.rating import shared
from stream_rater.rating.compiled import kernel
from stream_rater.rating.elementary import exp, log
from stream_rater.rating.model import DID_NOT_FINISH, Floats, Ints, Places
from stream_rater.rating.roots import MAX_STEPS, safeguard

C = math.pi / math.sqrt(3.0)
"""A logistic distribution of variance delta^2 has scale delta / C."""

TOLERANCE = 1e-7
"""A Halley step smaller than this part of the narrowest 1/u ends the search; it cubes the error."""

FLAT, NOISE = 1e-6, 1e-9
"""Where |f| < NOISE and its slope is below FLAT of the widest u, f is too flat to show its zero."""

DIRECT = 40
"""Up to so many entries every sum is taken anew for every place; above, `shared` is faster."""

SECONDS_PER_DAY = 86400.0

LEAST_WEIGHT = 1e-9
"""A lighter round weighs this: it tells nothing, and 1/w stays finite."""


@kernel
def _sums(
    x: float, mu: Floats, u: Floats, first: int, end: int
) -> tuple[float, float, float, float]:
    """Sums over entries [first, end) of u s, u t, u^2 s t and u^3 s t (t - s)."""
    won = lost = slope = bend = 0.0
    for j in range(first, end):
        e = exp((mu[j] - x) * u[j])
        s = 1.0 / (1.0 + e)
        t = e * s
        won += u[j] * s
        lost += u[j] * t
        d = u[j] * u[j] * s * t
        slope += d
        bend += d * u[j] * (t - s)
    return won, lost, slope, bend


@kernel
def _halley_step(
    x: float, mu: Floats, u: Floats, better: int, tied: int, tied_end: int, worse: int, tie: float
) -> tuple[float, float, float]:
    """f = ln(left) - ln(right) at x, its slope, and Halley's step towards its zero.

    Of the entries, [0, better) are better, [tied, tied_end) tied and [worse, n) worse.
    """
    left, _, left1, left2 = _sums(x, mu, u, 0, better)
    _, right, right1, right2 = _sums(x, mu, u, worse, len(mu))
    won, lost, slope, bend = _sums(x, mu, u, tied, tied_end)
    left, right = left + tie * won, right + tie * lost
    rise = (left1 + tie * slope) / left
    fall = (right1 + tie * slope) / right
    f = log(left) - log(right)
    f1 = rise + fall
    f2 = (left2 + tie * bend) / left - rise * rise + (right2 + tie * bend) / right + fall * fall
    return f, f1, -2.0 * f * f1 / (2.0 * f1 * f1 - f * f2)


@kernel
def _balance(
    x: float, mu: Floats, u: Floats, better: int, tied: int, tied_end: int, worse: int, tie: float
) -> float:
    """left - right at x, exact where every term is saturated: u s = u - u t, the u apart."""
    whole = rest = 0.0
    for j in range(len(mu)):
        wins = loses = tie
        if not tied <= j < tied_end:
            wins = 1.0 if j < better else 0.0
            loses = 1.0 if j >= worse else 0.0
        small = (wins + loses) * u[j] / (1.0 + exp(abs(x - mu[j]) * u[j]))
        if x > mu[j]:
            whole += wins * u[j]
            rest -= small
        else:
            whole -= loses * u[j]
            rest += small
    return whole + rest


@kernel
def _bisect(
    mu: Floats, u: Floats, better: int, tied: int, tied_end: int, worse: int, tie: float,
    low: float, high: float, tolerance: float,
) -> float:  # fmt: skip
    """The zero of `_balance` in (low, high)."""
    for _ in range(MAX_STEPS):
        x = 0.5 * (low + high)
        if high - low <= 1e-3 * tolerance:
            break
        if _balance(x, mu, u, better, tied, tied_end, worse, tie) < 0.0:
            low = x
        else:
            high = x
    return x


@kernel
def _solve(
    x: float, mu: Floats, u: Floats, better: int, tied: int, tied_end: int, worse: int, tie: float,
    low: float, high: float, tolerance: float,
) -> float:  # fmt: skip
    """The performance of the entries [tied, tied_end), searched from x within (low, high)."""
    last = math.inf
    for _ in range(MAX_STEPS):
        f, slope, step = _halley_step(x, mu, u, better, tied, tied_end, worse, tie)
        if abs(f) < NOISE and slope * tolerance < FLAT * TOLERANCE:
            return _bisect(mu, u, better, tied, tied_end, worse, tie, low, high, tolerance)
        if abs(step) <= tolerance:
            return x + step
        x, low, high, last = safeguard(x, f, step, low, high, last)
        if abs(last) <= tolerance * 1e-6:
            return x
    return x


@kernel
def direct_performances(
    place: Places, mu: Floats, u: Floats, ranked: int, tie: float, low: float, high: float,
    found: Floats,
) -> None:  # fmt: skip
    """All performances into `found`, every sum taken anew for every place: for small rounds."""
    n = len(place)
    tolerance = TOLERANCE / np.max(u)
    x: float = np.sum(mu * u) / np.sum(u)
    first = 0
    while first < ranked:
        end = first + 1
        while end < ranked and place[end] == place[first]:
            end += 1
        x = _solve(x, mu, u, first, first, end, end, tie, low, high, tolerance)
        found[first:end] = x
        first = end
    for i in range(ranked, n):
        found[i] = _solve(x, mu, u, ranked, i, i + 1, n, tie, low, high, tolerance)


@kernel
def _fill_flat(
    place: Places, mu: Floats, u: Floats, ranked: int, tie: float, low: float, high: float,
    found: Floats,
) -> None:  # fmt: skip
    """Solve the groups that the shared table left open, directly."""
    tolerance = TOLERANCE / np.max(u)
    first = 0
    while first < ranked:
        end = first + 1
        while end < ranked and place[end] == place[first]:
            end += 1
        if np.isnan(found[first]):
            x = 0.5 * (low + high)
            found[first:end] = _solve(x, mu, u, first, first, end, end, tie, low, high, tolerance)
        first = end


@kernel
def performances(place: Places, mu: Floats, u: Floats, tie: float) -> Floats:
    """The performance of each entry of one round; entries in order of place, unfinished last."""
    n = len(place)
    ranked = n
    while ranked > 0 and place[ranked - 1] == DID_NOT_FINISH:
        ranked -= 1
    # Beyond `reach` one side's single term outweighs the whole other side, so the root is inside.
    reach = log(2.0 * np.sum(u) / (tie * np.min(u))) / np.min(u)
    low, high = np.min(mu) - reach, np.max(mu) + reach
    found = np.empty(n)
    if n <= DIRECT:
        direct_performances(place, mu, u, ranked, tie, low, high, found)
    else:
        shared.ranked_performances(place, mu, u, ranked, tie, low, high, found)
        if ranked < n:
            shared.unfinished_performances(mu, u, ranked, tie, low, high, found)
        _fill_flat(place, mu, u, ranked, tie, low, high, found)
    return found


@kernel
def player_variances(
    round_weight: float, rounds: Ints, elapsed_s: Ints, newcomer_weights: Floats,
    weight_limit: float, sigma_limit: float, drift_per_day: float, out: Floats,
) -> None:  # fmt: skip
    """Each player's beta^2 and gamma^2 into out[:, 1] and out[:, 2].

    w = weight_limit * round weight * newcomer weight, s = sigma_limit, d = drift per day:
    gamma^2 = w s^2 + d * days, beta^2 = (1 + 1/w) s^2 + d / w.
    """
    s2 = sigma_limit * sigma_limit
    for i in range(len(rounds)):
        w = weight_limit * round_weight
        if rounds[i] < len(newcomer_weights):
            w *= newcomer_weights[rounds[i]]
        w = max(w, LEAST_WEIGHT)
        days = max(elapsed_s[i], 0) / SECONDS_PER_DAY if rounds[i] > 0 else 0.0
        out[i, 1] = (1.0 + 1.0 / w) * s2 + drift_per_day / w
        out[i, 2] = w * s2 + drift_per_day * days


@kernel
def is_solo(share: Floats) -> bool:
    """Whether an entry is one player who played the whole round: not to be rounded as a team."""
    return len(share) == 1 and share[0] == 1.0


@kernel
def team(initial_mu: float, share: Floats, mu: Floats, variance: Floats) -> tuple[float, float]:
    """A team's rating and the variance of its performance (section 3.3), members' shares applied.

    Deviations from the initial rating add up, so that two newcomers against one start level.
    """
    return initial_mu + np.sum(share * (mu - initial_mu)), np.sum(share * share * variance)


@kernel
def credit_members(
    performance: float, initial_mu: float, share: Floats, mu: Floats, prior: Floats, out: Floats
) -> None:
    """Each member's evidence: the team's performance less the others' ratings (section 3.3)."""
    team_mu, _ = team(initial_mu, share, mu, prior)
    spread = np.sum(share * share * (prior + out[:, 1]))
    for i in range(len(mu)):
        others = team_mu - share[i] * (mu[i] - initial_mu)
        out[i, 0] = initial_mu + (performance - others) / share[i]
        out[i, 1] = (spread - share[i] * share[i] * prior[i]) / (share[i] * share[i])


@kernel
def estimate(
    round_starts: Ints, weight: Floats, ceiling: Floats, time: Ints, place: Places,
    entry_starts: Ints, share: Floats, mu: Floats, sigma: Floats, rounds: Ints, last_time: Ints,
    weight_limit: float, sigma_limit: float, drift_per_day: float, newcomer_weights: Floats,
    initial_mu: float, tie: float,
) -> Floats:  # fmt: skip
    """Evidence (P, 3) for every player of a wave (see model.Wave and model.Evidence)."""
    out = np.empty((len(mu), 3))
    for r in range(len(weight)):
        first, end = round_starts[r], round_starts[r + 1]
        a, b = entry_starts[first], entry_starts[end]
        player_variances(
            weight[r], rounds[a:b], time[r] - last_time[a:b], newcomer_weights,
            weight_limit, sigma_limit, drift_per_day, out[a:b],
        )  # fmt: skip
        prior = sigma[a:b] * sigma[a:b] + out[a:b, 2]
        entry_mu, u = np.empty(end - first), np.empty(end - first)
        for e in range(first, end):
            i, j = entry_starts[e], entry_starts[e + 1]
            variance = prior[i - a : j - a] + out[i:j, 1]
            if is_solo(share[i:j]):
                entry_mu[e - first], delta2 = mu[i], variance[0]
            else:
                entry_mu[e - first], delta2 = team(initial_mu, share[i:j], mu[i:j], variance)
            u[e - first] = C / np.sqrt(delta2)
        found = performances(place[first:end], entry_mu, u, tie)
        for e in range(first, end):
            i, j = entry_starts[e], entry_starts[e + 1]
            performance = min(found[e - first], ceiling[r])
            if is_solo(share[i:j]):
                out[i, 0] = performance
            else:
                credit_members(
                    performance, initial_mu, share[i:j], mu[i:j], prior[i - a : j - a], out[i:j]
                )
    return out
