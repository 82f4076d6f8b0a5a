"""Stage 1: how well did each entry play? (Section 3.1 of the paper, with all opponents.)

Entry j performs logistically around mu_j, its variance being delta_j^2 = sigma_j^2 + gamma_j^2 +
beta_j^2. With u_j = C / delta_j, s_j(x) = 1 / (1 + exp(-(x - mu_j) u_j)) and t_j = 1 - s_j, the
performance of an entry is the root of

    sum over better and tied u_j s_j(x)  =  sum over worse and tied u_j t_j(x)      (Theorem 3.2)

where the tied, the entry itself included, count on both sides: wholly (`ties = "full"`, c = 1) or
by half ("split", c = 1/2). `balance` says how we solve it, `direct` and `shared` where the sums
come from.

All tied entries share one performance. Entries that did not finish are worse than all ranked ones
and are not compared with each other, so each has a performance of its own.
"""

import math

import numpy as np

from stream_rater.columns.arrays import Floats, Ints
from stream_rater.columns.kernels import giving, inlined, kernel
from stream_rater.rating import direct, large_rounds, small_rounds
from stream_rater.rating.elementary import inverse_root
from stream_rater.rating.model import DID_NOT_FINISH, Places
from stream_rater.rating.roots import falls, has_open, let_fall
from stream_rater.rating.survey import HIGH, KNOWN, LOW, survey

C = math.pi / math.sqrt(3.0)
"""A logistic distribution of variance delta^2 has scale delta / C."""

SECONDS_PER_DAY = 86400.0

TOGETHER = 8192
"""Entries whose rounds are rated together: what is worked in then stays in the second cache."""

MANY = 512
"""Fewer rounds than this may be twice as many entries: the last ones leave lanes of `small` empty,
which counts for more the fewer they are."""

LEAST_WEIGHT = 1e-9
"""A lighter round weighs this: it tells nothing, and 1/w stays finite."""


@kernel
def performances(place: Places, mu: Floats, u: Floats, tie: float) -> Floats:
    """The performance of each entry of one round; entries in order of place, unfinished last."""
    return solve_rounds(np.array([0, len(mu)]), place, mu, u, tie)


@kernel
def solve_rounds(round_starts: Ints, place: Places, mu: Floats, u: Floats, tie: float) -> Floats:
    """The performance of each entry of some rounds: those of one round do not depend on others."""
    rounds = len(round_starts) - 1
    found, known = np.empty(len(mu)), np.empty((rounds, KNOWN))
    few, many = np.empty(rounds, np.int64), np.empty(rounds, np.int64)
    less = large = 0
    for r in range(rounds):
        a, b = round_starts[r], round_starts[r + 1]
        survey(mu, u, a, b, tie, known[r])
        if b - a > small_rounds.SMALL:
            many[large] = r
            large += 1
        elif place[b - 1] != DID_NOT_FINISH:
            few[less] = r
            less += 1
        else:
            found[a:b] = math.nan
    if less > 0:
        small_rounds.solve_small(round_starts, few[:less], known, place, mu, u, tie, found)
    if large > 0:
        large_rounds.solve_large(round_starts, many[:large], known, place, mu, u, tie, found)
    for r in range(rounds):
        a, b = round_starts[r], round_starts[r + 1]
        if not falls(place, found, a, b):
            if has_open(found, a, b):
                low, high = known[r, LOW], known[r, HIGH]
                direct.fill_open(place[a:b], mu[a:b], u[a:b], tie, low, high, found[a:b])
            let_fall(place, found, a, b)
    return found


@inlined
def player_variances(
    round_weight: float, rounds: Ints, time: int, last_time: Ints, newcomer_weights: Floats,
    weight_limit: float, sigma_limit: float, drift_per_day: float, out: Floats,
) -> None:  # fmt: skip
    """Each player's beta^2 and gamma^2 into out[:, 1] and out[:, 2]; times in seconds.

    w = weight_limit * round weight * newcomer weight, s = sigma_limit, d = drift per day:
    gamma^2 = w s^2 + d * days, beta^2 = (1 + 1/w) s^2 + d / w.
    """
    s2 = sigma_limit * sigma_limit
    usual = max(weight_limit * round_weight, LEAST_WEIGHT)
    usual_beta2 = (1.0 + 1.0 / usual) * s2 + drift_per_day / usual
    n = len(rounds)
    for i in range(n):
        out[i, 1], out[i, 2] = usual_beta2, usual * s2
    for i in range(n if len(newcomer_weights) > 0 else 0):
        if rounds[i] < len(newcomer_weights):
            w = max(weight_limit * round_weight * newcomer_weights[rounds[i]], LEAST_WEIGHT)
            out[i, 1], out[i, 2] = (1.0 + 1.0 / w) * s2 + drift_per_day / w, w * s2
    for i in range(n if drift_per_day > 0.0 else 0):
        if rounds[i] > 0:
            out[i, 2] += drift_per_day * (max(time - last_time[i], 0) / SECONDS_PER_DAY)


@inlined
def rounds_together(round_starts: Ints, first: int) -> int:
    """The end of the rounds from `first` on that are rated together: one, or as many as are up to
    TOGETHER entries; twice that while they are fewer than MANY."""
    end = first + 1
    while end + 1 < len(round_starts):
        most = TOGETHER if end - first >= MANY else 2 * TOGETHER
        if round_starts[end + 1] - round_starts[first] > most:
            break
        end += 1
    return end


@inlined
def is_solo(share: Floats, i: int, j: int) -> bool:
    """Whether players [i, j) are one who played the whole round: not to be rounded as a team."""
    return j == i + 1 and share[i] == 1.0


@giving
def team(initial_mu: float, share: Floats, mu: Floats, variance: Floats) -> tuple[float, float]:
    """A team's rating and the variance of its performance (section 3.3), members' shares applied.

    Deviations from the initial rating add up, so that two newcomers against one start level.
    """
    return initial_mu + np.sum(share * (mu - initial_mu)), np.sum(share * share * variance)


@giving
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
def _is_each_alone(entry_starts: Ints, share: Floats) -> bool:
    """Whether every entry is one player who played the whole round."""
    if len(share) != len(entry_starts) - 1:
        return False
    parts = 0
    for i in range(len(share)):
        parts += share[i] != 1.0
    return parts == 0


@kernel
def _prior(sigma: Floats, out: Floats) -> Floats:
    """The players' variances, diffused by the gamma^2 in out[:, 2]."""
    return sigma * sigma + out[:, 2]


@kernel
def _find_entries(
    entry_starts: Ints, share: Floats, mu: Floats, sigma: Floats, initial_mu: float, out: Floats,
    entry_mu: Floats, u: Floats,
) -> None:  # fmt: skip
    """Each entry's rating and u = C/delta, from its players' and their beta^2, gamma^2 in `out`."""
    for e in range(len(entry_mu)):
        i, j = entry_starts[e], entry_starts[e + 1]
        if is_solo(share, i, j):
            entry_mu[e], delta2 = mu[i], sigma[i] * sigma[i] + out[i, 2] + out[i, 1]
        else:
            variance = _prior(sigma[i:j], out[i:j]) + out[i:j, 1]
            entry_mu[e], delta2 = team(initial_mu, share[i:j], mu[i:j], variance)
        u[e] = C * inverse_root(delta2)


@kernel
def _credit(
    found: Floats, entry_starts: Ints, share: Floats, mu: Floats, sigma: Floats, initial_mu: float,
    out: Floats,
) -> None:  # fmt: skip
    """Each player's evidence from the entries' performances `found`."""
    for e in range(len(found)):
        i, j = entry_starts[e], entry_starts[e + 1]
        if is_solo(share, i, j):
            out[i, 0] = found[e]
        else:
            prior = _prior(sigma[i:j], out[i:j])
            credit_members(found[e], initial_mu, share[i:j], mu[i:j], prior, out[i:j])


@kernel
def _estimate(
    round_starts: Ints, weight: Floats, ceiling: Floats, time: Ints, place: Places,
    entry_starts: Ints, share: Floats, mu: Floats, sigma: Floats, rounds: Ints, last_time: Ints,
    weight_limit: float, sigma_limit: float, drift_per_day: float, newcomer_weights: Floats,
    initial_mu: float, tie: float, out: Floats,
) -> None:  # fmt: skip
    """Evidence for the players of some rounds into `out`."""
    alone = _is_each_alone(entry_starts, share)
    u = np.empty(len(place))
    for r in range(len(weight)):
        first, end = entry_starts[round_starts[r]], entry_starts[round_starts[r + 1]]
        for a in range(first, end, TOGETHER):
            b = min(a + TOGETHER, end)
            player_variances(
                weight[r], rounds[a:b], time[r], last_time[a:b], newcomer_weights,
                weight_limit, sigma_limit, drift_per_day, out[a:b],
            )  # fmt: skip
            if alone:
                for i in range(a, b):
                    u[i] = C * inverse_root(sigma[i] * sigma[i] + out[i, 2] + out[i, 1])
    entry_mu = mu
    if not alone:
        entry_mu = np.empty(len(place))
        _find_entries(entry_starts, share, mu, sigma, initial_mu, out, entry_mu, u)
    found = solve_rounds(round_starts, place, entry_mu, u, tie)
    for r in range(len(weight)):
        a, b = round_starts[r], round_starts[r + 1]
        if alone:
            for i in range(a, b):
                out[i, 0] = min(found[i], ceiling[r])
        else:
            np.minimum(found[a:b], ceiling[r], found[a:b])
    if not alone:
        _credit(found, entry_starts, share, mu, sigma, initial_mu, out)


@kernel
def estimate(
    round_starts: Ints, weight: Floats, ceiling: Floats, time: Ints, place: Places,
    entry_starts: Ints, share: Floats, mu: Floats, sigma: Floats, rounds: Ints, last_time: Ints,
    weight_limit: float, sigma_limit: float, drift_per_day: float, newcomer_weights: Floats,
    initial_mu: float, tie: float,
) -> Floats:  # fmt: skip
    """Evidence (P, 3) for every player of a wave (see model.Wave and model.Evidence).

    A few rounds at a time, with which the arrays worked in stay in the cache.
    """
    out = np.empty((len(mu), 3))
    first = 0
    while first < len(weight):
        end = rounds_together(round_starts, first)
        a, b = round_starts[first], round_starts[end]
        i, j = entry_starts[a], entry_starts[b]
        _estimate(
            round_starts[first : end + 1] - a, weight[first:end], ceiling[first:end],
            time[first:end], place[a:b], entry_starts[a : b + 1] - i, share[i:j], mu[i:j],
            sigma[i:j], rounds[i:j], last_time[i:j], weight_limit, sigma_limit, drift_per_day,
            newcomer_weights, initial_mu, tie, out[i:j],
        )  # fmt: skip
        first = end
    return out
