"""Stage 1: computes how well each entry of a round played, against all opponents (section 3.1 of
the paper).

Entry j performs logistically around mu_j with variance delta_j^2 = sigma_j^2 + gamma_j^2 +
beta_j^2. With u_j = C / delta_j, s_j(x) = 1 / (1 + exp(-(x - mu_j) u_j)) and t_j = 1 - s_j, the
performance of an entry is the root of

    sum over better and tied u_j s_j(x)  =  sum over worse and tied u_j t_j(x)      (Theorem 3.2)

where tied entries, including the entry itself, count on both sides: fully (`ties = "full"`, c = 1)
or by half (`"split"`, c = 1/2). `sums` explains how the equation is solved; `small_rounds`,
`large_rounds` and `direct` compute the sums.

All tied entries share one performance. Entries whose place is DID_NOT_FINISH are worse than all
ranked ones and are not compared with each other, so each has its own performance. (If a ladder ties
them for last, no place is DID_NOT_FINISH here: see `stages.compared`.)
"""

import math

import numpy as np

from stream_rater.columns.arrays import Floats, Ints
from stream_rater.columns.kernels import giving, inlined, kernel
from stream_rater.rating.elementary import inverse_root
from stream_rater.rating.elo_mmr import direct, large_rounds, small_rounds
from stream_rater.rating.elo_mmr.sums import HIGH, KNOWN, LOW, round_bounds
from stream_rater.rating.model import DID_NOT_FINISH, Places, Variances, Wave

C = math.pi / math.sqrt(3.0)  # A logistic distribution with variance delta^2 has scale delta / C.

SECONDS_PER_DAY = 86400.0

TOGETHER = 8192
"""The number of entries that are rated together, so that arrays stay in the second-level cache."""

MANY = 512
"""If fewer rounds than this are rated together, they may have twice as many entries. The last
rounds leave lanes of `small_rounds` empty, which costs relatively more if there are few rounds."""

LEAST_WEIGHT = 1e-9
"""The least weight of a round, so that 1/w stays finite. A round that weighs less gets this weight,
with which it carries no information."""


@kernel
def performances(place: Places, mu: Floats, u: Floats, tie: float) -> Floats:
    """(n,) the performance of each entry of one round. Entries are in order of place, unfinished
    ones last."""
    return solve_rounds(np.array([0, len(mu)]), place, mu, u, tie)


@kernel
def solve_rounds(round_starts: Ints, place: Places, mu: Floats, u: Floats, tie: float) -> Floats:
    """(E,) the performance of each entry of some rounds. Rounds do not affect each other."""
    rounds = len(round_starts) - 1
    found, known = np.empty(len(mu)), np.empty((rounds, KNOWN))
    few, many = np.empty(rounds, np.int64), np.empty(rounds, np.int64)
    less = large = 0
    for r in range(rounds):
        a, b = round_starts[r], round_starts[r + 1]
        round_bounds(mu, u, a, b, tie, known[r])
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
    round_weight: float, rounds: Ints, time: int, last_time: Ints, variances: Variances,
    out: Floats,
) -> None:  # fmt: skip
    """Write each player's beta^2 and gamma^2 into out[:, 1] and out[:, 2]. Times are in seconds.

    With w = weight_limit * round weight * newcomer weight, s = sigma_limit and d = drift per day,
    gamma^2 = w s^2 + d * days and beta^2 = (1 + 1/w) s^2 + d / w. If beta was given, beta^2 has no
    term with d.
    """
    weight_limit, drift_per_day = variances.weight_limit, variances.drift_per_day
    drift_in_beta, newcomer_weights = variances.drift_in_beta, variances.newcomer_weights
    s2 = variances.sigma_limit * variances.sigma_limit
    usual = max(weight_limit * round_weight, LEAST_WEIGHT)
    usual_beta2 = (1.0 + 1.0 / usual) * s2 + drift_in_beta / usual
    n = len(rounds)
    for i in range(n):
        out[i, 1], out[i, 2] = usual_beta2, usual * s2
    for i in range(n if len(newcomer_weights) > 0 else 0):
        if rounds[i] < len(newcomer_weights):
            w = max(weight_limit * round_weight * newcomer_weights[rounds[i]], LEAST_WEIGHT)
            out[i, 1], out[i, 2] = (1.0 + 1.0 / w) * s2 + drift_in_beta / w, w * s2
    for i in range(n if drift_per_day > 0.0 else 0):
        if rounds[i] > 0:
            out[i, 2] += drift_per_day * (max(time - last_time[i], 0) / SECONDS_PER_DAY)


@inlined
def rounds_together(round_starts: Ints, first: int) -> int:
    """The end of the rounds from `first` on that are rated together. There is at least one round.
    They have up to TOGETHER entries, or twice that while there are fewer rounds than MANY."""
    end = first + 1
    while end + 1 < len(round_starts):
        most = TOGETHER if end - first >= MANY else 2 * TOGETHER
        if round_starts[end + 1] - round_starts[first] > most:
            break
        end += 1
    return end


@inlined
def is_solo(share: Floats, i: int, j: int) -> bool:
    """Whether players [i, j) are a single player who played the whole round. Such a player needs no
    team arithmetic, and so is not rounded by it."""
    return j == i + 1 and share[i] == 1.0


@giving
def team(initial_mu: float, share: Floats, mu: Floats, variance: Floats) -> tuple[float, float]:
    """A team's rating, and the variance of its performance, by its members' shares (section 3.3).
    The members' deviations from the initial rating add up, so that two newcomers against one are
    even."""
    return initial_mu + np.sum(share * (mu - initial_mu)), np.sum(share * share * variance)


@giving
def credit_members(
    performance: float, initial_mu: float, share: Floats, mu: Floats, prior: Floats, out: Floats
) -> None:
    """Write each member's evidence: the team's performance minus the other members' ratings
    (section 3.3)."""
    team_mu, _ = team(initial_mu, share, mu, prior)
    spread = np.sum(share * share * (prior + out[:, 1]))
    for i in range(len(mu)):
        others = team_mu - share[i] * (mu[i] - initial_mu)
        out[i, 0] = initial_mu + (performance - others) / share[i]
        out[i, 1] = (spread - share[i] * share[i] * prior[i]) / (share[i] * share[i])


@kernel
def _is_each_alone(entry_starts: Ints, share: Floats) -> bool:
    """Whether every entry is a single player who played the whole round."""
    if len(share) != len(entry_starts) - 1:
        return False
    parts = 0
    for i in range(len(share)):
        parts += share[i] != 1.0
    return parts == 0


@kernel
def _prior(sigma: Floats, out: Floats) -> Floats:
    """(n,) the players' variances, diffused by the gamma^2 in out[:, 2]."""
    return sigma * sigma + out[:, 2]


@kernel
def _find_entries(wave: Wave, initial_mu: float, out: Floats, entry_mu: Floats, u: Floats) -> None:
    """Write each entry's rating and u = C/delta, from its players and their beta^2 and gamma^2 in
    `out`."""
    share, mu, sigma = wave.share, wave.mu, wave.sigma
    for e in range(len(entry_mu)):
        i, j = wave.entry_starts[e], wave.entry_starts[e + 1]
        if is_solo(share, i, j):
            entry_mu[e], delta2 = mu[i], sigma[i] * sigma[i] + out[i, 2] + out[i, 1]
        else:
            variance = _prior(sigma[i:j], out[i:j]) + out[i:j, 1]
            entry_mu[e], delta2 = team(initial_mu, share[i:j], mu[i:j], variance)
        u[e] = C * inverse_root(delta2)


@kernel
def _credit(wave: Wave, found: Floats, initial_mu: float, out: Floats) -> None:
    """Write each player's evidence from the entries' performances `found`."""
    share, mu, sigma = wave.share, wave.mu, wave.sigma
    for e in range(len(found)):
        i, j = wave.entry_starts[e], wave.entry_starts[e + 1]
        if is_solo(share, i, j):
            out[i, 0] = found[e]
        else:
            prior = _prior(sigma[i:j], out[i:j])
            credit_members(found[e], initial_mu, share[i:j], mu[i:j], prior, out[i:j])


@kernel
def _estimate(wave: Wave, variances: Variances, initial_mu: float, tie: float, out: Floats) -> None:
    """Write the evidence of the players of some rounds into `out`."""
    round_starts, entry_starts, sigma = wave.round_starts, wave.entry_starts, wave.sigma
    alone = _is_each_alone(entry_starts, wave.share)
    u = np.empty(len(wave.place))
    for r in range(len(wave.weight)):
        first, end = entry_starts[round_starts[r]], entry_starts[round_starts[r + 1]]
        for a in range(first, end, TOGETHER):
            b = min(a + TOGETHER, end)
            player_variances(
                wave.weight[r], wave.rounds[a:b], wave.time[r], wave.last_time[a:b], variances,
                out[a:b],
            )  # fmt: skip
            if alone:
                for i in range(a, b):
                    u[i] = C * inverse_root(sigma[i] * sigma[i] + out[i, 2] + out[i, 1])
    entry_mu = wave.mu
    if not alone:
        entry_mu = np.empty(len(wave.place))
        _find_entries(wave, initial_mu, out, entry_mu, u)
    found = solve_rounds(round_starts, wave.place, entry_mu, u, tie)
    for r in range(len(wave.weight)):
        a, b = round_starts[r], round_starts[r + 1]
        if alone:
            for i in range(a, b):
                out[i, 0] = min(found[i], wave.ceiling[i])
        else:
            np.minimum(found[a:b], wave.ceiling[a:b], found[a:b])
    if not alone:
        _credit(wave, found, initial_mu, out)


@kernel
def some_rounds(wave: Wave, first: int, end: int) -> Wave:
    """The rounds [first, end), with their entries and players."""
    a, b = wave.round_starts[first], wave.round_starts[end]
    i, j = wave.entry_starts[a], wave.entry_starts[b]
    return Wave(
        wave.round_starts[first : end + 1] - a, wave.weight[first:end], wave.ceiling[a:b],
        wave.time[first:end], wave.place[a:b], wave.entry_starts[a : b + 1] - i, wave.share[i:j],
        wave.mu[i:j], wave.sigma[i:j], wave.rounds[i:j], wave.last_time[i:j], wave.fixed[i:j],
    )  # fmt: skip


@kernel
def estimate(wave: Wave, variances: Variances, initial_mu: float, tie: float, out: Floats) -> None:
    """Write the evidence of every player of a wave into `out` (P, 3): see model.Wave and
    model.Evidence. A few rounds are computed at a time, so that the working arrays stay in the
    cache."""
    first = 0
    while first < len(wave.weight):
        end = rounds_together(wave.round_starts, first)
        i = wave.entry_starts[wave.round_starts[first]]
        j = wave.entry_starts[wave.round_starts[end]]
        _estimate(some_rounds(wave, first, end), variances, initial_mu, tie, out[i:j])
        first = end


# --- the order of performances: Theorem 5.2 to the last bit ---------------------------------------


@kernel
def has_open(found: Floats, first: int, end: int) -> bool:
    """Whether any of found[first:end] is NaN, because a search left it open."""
    left = 0
    for i in range(first, end):
        left += found[i] != found[i]
    return left > 0


@kernel
def _just_below(x: float) -> float:
    return x - abs(x) * 2.0**-52 - 1e-300


@inlined
def falls(place: Places, found: Floats, first: int, end: int) -> bool:
    """Whether entries [first, end) have the order that `let_fall` enforces, and none is NaN."""
    wrong = 0 if found[first] == found[first] else 1
    for i in range(first + 1, end):
        limit = found[i - 1] if place[i] == place[i - 1] else _just_below(found[i - 1])
        wrong += 0 if found[i] <= limit else 1
    return wrong == 0


@kernel
def let_fall(place: Places, found: Floats, first: int, end: int) -> None:
    """Enforce Theorem 5.2 to the last bit: a worse place means a worse performance.

    Two roots that are closer than a search's tolerance may come out in the wrong order. The root of
    the worse place is then set just below that of the better one. (An entry that did not finish is
    only below all ranked ones.) The entries [first, end) are those of one round.
    """
    limit = math.inf
    for i in range(first, end):
        if i > first and place[i] != place[i - 1]:
            limit = _just_below(found[i - 1])
        found[i] = min(found[i], limit)
