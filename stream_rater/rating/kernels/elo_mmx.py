"""Elo-MMx: Elo-MMR with a Gaussian performance model (section 3, "Gaussian performance model").

Entry j performs normally around mu_j with variance delta_j^2; z_j = (x - mu_j) / delta_j. With the
hazard H(z) = phi(z) / Phi(-z), the performance of an entry is the zero of

    -Q(x) = sum over better H(z_j) / delta_j - sum over worse H(-z_j) / delta_j + ties,

which increases with x. A full tie pulls x towards mu_j by z_j / delta_j. A split tie is half a loss
and half a win. All tied entries share one performance. Entries whose place is DID_NOT_FINISH are
worse than all ranked ones and are not compared with each other, so each has its own performance.

The belief stays Gaussian, so the new belief is known at once: it is the product of two Gaussians,
the prior and the performance.
"""

import math
from typing import NamedTuple

import numpy as np

from stream_rater.columns.arrays import Floats
from stream_rater.columns.intrinsics import fma
from stream_rater.columns.kernels import inlined, kernel
from stream_rater.rating.elementary import aligned, log
from stream_rater.rating.elo_mmr.performance import falls, let_fall, player_variances
from stream_rater.rating.kernels.expansion import ranked_performances, unfinished_performances
from stream_rater.rating.kernels.series import LANES, Scratch, new_work
from stream_rater.rating.model import Evidence, Places, Variances, Wave, count_ranked
from stream_rater.rating.normal import tails

# --- small rounds: sums over all entries, computed for all entries at once ------------------------
#
# Each entry has a lane, which contains its current x. Each pass computes the first four Taylor
# coefficients of -Q about x, and moves x to the zero of the cubic. An error of r then becomes about
# r^4 / 50.

MOST = 32  # The number of lanes. Larger rounds use `expansion`.

ROOM = 13 * MOST  # The size of the scratch space.

PASSES = 8
"""The most passes, which is more than enough. If an entry needs more, the search fails, and
`perform` uses `expansion` instead."""

SETTLED = 3e-2
"""The search ends when its longest step is at most this fraction of the narrowest delta. The
remaining error is about 2e-8 of that delta."""

START, OWN = 0.48, 2.0
"""The search starts START deviations from the mean for each unit of the log odds of a rank. The
start is then moved by OWN / (n + 4) times the distance from the mean to the entry's own tie
group."""

TRUSTED = 1.5
"""If a line's step is shorter than this many times the narrowest delta, the zero of the cubic is a
better guess than that of the line."""


@inlined
def _add(
    x: Floats, better: Floats, worse: Floats, mu: float, v: float, j: float, scratch: Floats,
    f: Floats,
) -> None:  # fmt: skip
    """Add the terms of entry j (v = 1/delta) to each lane. For a lane, entries before `better` are
    better and entries from `worse` on are worse. There are two loops, because short loops overlap
    their iterations."""
    for i in range(len(x)):
        g = v if j < better[i] else (-v if j >= worse[i] else 0.0)
        z = (x[i] - mu) * g
        scratch[i], scratch[MOST + i] = g, z
        scratch[2 * MOST + i], scratch[3 * MOST + i] = tails(z)
    for i in range(len(x)):
        g, z, d, left = (
            scratch[i], scratch[MOST + i], scratch[2 * MOST + i], scratch[3 * MOST + i]
        )  # fmt: skip
        a = abs(z)
        h = a + d if z >= 0.0 else left
        excess = d if z >= 0.0 else left + a
        t0 = g * h
        e = g * excess
        b = t0 + e
        t1 = t0 * e
        g2 = g * g
        t2 = 0.5 * fma(t1, b, -g2 * t0)
        f[i] += t0
        f[MOST + i] += t1
        f[2 * MOST + i] += t2
        f[3 * MOST + i] = fma(fma(t2, b, t1 * (t1 - g2)), 1.0 / 3.0, f[3 * MOST + i])


@inlined
def _step(x: Floats, f: Floats, trusted: float) -> float:
    """Move x to the zero of each lane's cubic. Returns the longest step."""
    longest = 0.0
    for i in range(len(x)):
        f0, f1, f2, f3 = f[i], f[MOST + i], f[2 * MOST + i], f[3 * MOST + i]
        line = -f0 / f1
        r = -f0 / fma(line, fma(line, f3, f2), f1)
        r = -f0 / fma(r, fma(r, f3, f2), f1)
        r = r if abs(line) < trusted else line
        x[i] += r
        longest = max(longest, abs(r))
    return longest


@inlined
def small_performances(
    place: Places, mu: Floats, delta: Floats, split: bool, mean: float, deviation: float,
    narrowest: float, room: Floats, found: Floats,
) -> bool:  # fmt: skip
    """Write the performances of up to MOST entries, all ranked, into `found`. Returns whether the
    search succeeded. `room` (ROOM) is scratch space."""
    n = len(mu)
    lanes = (n + 3) // 4 * 4
    room[:] = 0.0
    x, better, worse = room[:lanes], room[MOST : MOST + lanes], room[2 * MOST : 2 * MOST + lanes]
    value, slope = room[3 * MOST : 4 * MOST], room[4 * MOST : 5 * MOST]
    f, scratch = room[5 * MOST : 9 * MOST], room[9 * MOST :]
    first = 0
    while first < n:
        end, pull, weight = first, 0.0, 0.0
        while end < n and place[end] == place[first]:
            g = 1.0 / delta[end]
            pull += g * g * mu[end]
            weight += g * g
            end += 1
        start = mean + START * deviation * log((2.0 * n - (first + end)) / (first + end))
        start += OWN / (n + 4.0) * (pull / weight - mean)
        for i in range(first, end):
            x[i], better[i], worse[i] = start, float(first), float(end)
            value[i], slope[i] = pull, weight
        first = end
    for _ in range(PASSES):
        for i in range(n):
            f[i] = f[MOST + i] = f[2 * MOST + i] = f[3 * MOST + i] = 0.0
            if not split:
                f[i] = slope[i] * x[i] - value[i]
                f[MOST + i] = slope[i]
        for j in range(n):
            if split:  # the mean of all better and all worse; a factor moves no zero
                _add(x, better, better, mu[j], 1.0 / delta[j], float(j), scratch, f)
                _add(x, worse, worse, mu[j], 1.0 / delta[j], float(j), scratch, f)
            else:
                _add(x, better, worse, mu[j], 1.0 / delta[j], float(j), scratch, f)
        for i in range(n, lanes):
            f[i], f[MOST + i] = 0.0, 1.0
        if _step(x, f, TRUSTED * narrowest) <= SETTLED * narrowest:
            for i in range(n):
                found[i] = x[i]
            return True
    return False


# --- rounds of any size ---------------------------------------------------------------------------

FEW = 8
"""The least number of ranks that are examined together. Examining ranks beyond the end of a cell is
wasted work."""

FIRST = 0.85
"""The search for the best performance starts at this fraction of the expected best of n normal
ones."""


@inlined
def _spread(mu: Floats, delta: Floats) -> tuple[float, float]:
    """The mean and the standard deviation of a random entry's performance."""
    mean = variance = 0.0
    for j in range(len(mu)):
        mean += mu[j]
    mean /= len(mu)
    for j in range(len(mu)):
        variance += (mu[j] - mean) * (mu[j] - mean) + delta[j] * delta[j]
    return mean, np.sqrt(variance / len(mu))


@inlined
def _reach(mu: Floats, delta: Floats) -> tuple[float, float, float]:
    """The least delta, and bounds of all performances. At t times the widest delta beyond all mu,
    an entry's own tie pulls by at least t/2 / widest, and all others together pull by less than 2 n
    phi(t) / narrowest, which is less from this t on."""
    narrowest = widest = delta[0]
    low = high = mu[0]
    for j in range(1, len(mu)):
        narrowest, widest = min(narrowest, delta[j]), max(widest, delta[j])
        low, high = min(low, mu[j]), max(high, mu[j])
    reach = widest * (1.0 + np.sqrt(2.0 * log(4.0 * len(mu) * widest / narrowest)))
    return narrowest, low - reach, high + reach


class Room(NamedTuple):
    """Scratch space that all rounds use, one after the other."""

    mu: Floats
    """Ratings, followed by at least LANES zeros. `v` = 1/delta has the same length; `g` has LANES
    fewer elements."""
    v: Floats
    g: Floats
    few: Floats  # Scratch space for small rounds.
    work: Scratch


@kernel
def new_room(most: int) -> Room:
    """Scratch space for rounds of up to `most` entries."""
    size = _padded(most)
    return Room(
        aligned(size + LANES), aligned(size + LANES), aligned(size), aligned(ROOM), new_work()
    )


@inlined
def _padded(n: int) -> int:
    """n rounded up to whole groups of FEW ranks."""
    return (n + FEW - 1) // FEW * FEW


@inlined
def perform(
    place: Places, mu: Floats, delta: Floats, split: bool, room: Room, found: Floats
) -> None:
    """Write what `performances` returns into `found` (n,); `room` is scratch space."""
    n, size = len(mu), _padded(len(mu))
    ranked = count_ranked(place)
    mean, deviation = _spread(mu, delta)
    narrowest, lowest, highest = _reach(mu, delta)
    if (
        n == ranked
        and n <= MOST
        and small_performances(place, mu, delta, split, mean, deviation, narrowest, room.few, found)
    ):
        if not falls(place, found, 0, n):
            let_fall(place, found, 0, n)
        return
    best = mean + FIRST * deviation * np.sqrt(2.0 * log(n + 1.0))
    all_mu, v, g = room.mu[: size + LANES], room.v[: size + LANES], room.g[:size]
    for j in range(n):
        all_mu[j], v[j], found[j] = mu[j], 1.0 / delta[j], math.nan
    for j in range(n, size + LANES):
        all_mu[j] = v[j] = 0.0
    block = min(max(n // 64, 1) * FEW, LANES)
    ranked_performances(
        place[:ranked], all_mu, v, block, split, best - narrowest, narrowest, lowest, highest,
        room.work, g, found,
    )  # fmt: skip
    if ranked < n:
        unfinished_performances(
            all_mu, v, ranked, split, 2.0 * mean - best, narrowest, lowest, highest,
            room.work, g, found,
        )  # fmt: skip
    if not falls(place, found, 0, n):
        let_fall(place, found, 0, n)


@kernel
def performances(place: Places, mu: Floats, delta: Floats, split: bool) -> Floats:
    """(n,) the performance of each entry. Entries are in order of place, unfinished ones last."""
    found = np.empty(len(mu))
    perform(place, mu, delta, split, new_room(len(mu)), found)
    return found


# --- beliefs --------------------------------------------------------------------------------------


@inlined
def _entry_moments(
    initial_mu: float, i: int, j: int, share: Floats, mu: Floats, prior: Floats, beta2: Floats
) -> tuple[float, float]:
    """(mu, delta) of the entry of players [i, j). The members' deviations from the initial rating
    add up, and so do their variances (section 3.3). A single player who played the whole round
    needs no team arithmetic, and is spared its rounding."""
    if j == i + 1 and share[i] == 1.0:
        return mu[i], np.sqrt(prior[i] + beta2[i])
    team_mu, variance = initial_mu, 0.0
    for m in range(i, j):
        team_mu += share[m] * (mu[m] - initial_mu)
        variance += share[m] * share[m] * (prior[m] + beta2[m])
    return team_mu, np.sqrt(variance)


@inlined
def _learn(
    performance: float, i: int, j: int, team_mu: float, delta: float, initial_mu: float,
    share: Floats, mu: Floats, prior: Floats, beta2: Floats, out: Floats,
) -> None:  # fmt: skip
    """Write each member's evidence into `out`. The new belief is the product of two: the prior, and
    the team's performance minus the other members."""
    for m in range(i, j):
        found, noise = performance, beta2[m]
        if j > i + 1 or share[m] != 1.0:
            found = mu[m] + (performance - team_mu) / share[m]
            noise = delta * delta / (share[m] * share[m]) - prior[m]
        out[m, 0] = found
        out[m, 1] = mu[m] + prior[m] / (prior[m] + noise) * (found - mu[m])
        out[m, 2] = np.sqrt(prior[m] * noise / (prior[m] + noise))


class WaveWork(NamedTuple):
    """Scratch space for the players and entries of the largest round."""

    prior: Floats  # (P,) each player's variance before the round, after diffusion.
    beta2: Floats  # (P,) beta^2 of each player.
    entry_mu: Floats  # (E,) the rating of each entry.
    delta: Floats  # (E,) the standard deviation of each entry's performance.
    found: Floats  # (E,) the performance of each entry.
    room: Room


@inlined
def _rate_all(
    wave: Wave, variances: Variances, initial_mu: float, split: bool, work: WaveWork, out: Floats
) -> None:
    """Rate the rounds one after the other, and write the evidence into `out` (P, 3); `work` is
    scratch space."""
    round_starts, entry_starts, sigma = wave.round_starts, wave.entry_starts, wave.sigma
    prior, beta2, entry_mu, delta, found = (
        work.prior, work.beta2, work.entry_mu, work.delta, work.found
    )  # fmt: skip
    for r in range(len(wave.weight)):
        first, end = round_starts[r], round_starts[r + 1]
        a, b, n = entry_starts[first], entry_starts[end], end - first
        own_share, own_mu, own = wave.share[a:b], wave.mu[a:b], out[a:b]
        player_variances(
            wave.weight[r], wave.rounds[a:b], wave.time[r], wave.last_time[a:b], variances, own
        )
        for i in range(b - a):
            prior[i] = sigma[a + i] * sigma[a + i] + own[i, 2]
            beta2[i] = own[i, 1]
        for e in range(n):
            i, j = entry_starts[first + e] - a, entry_starts[first + e + 1] - a
            entry_mu[e], delta[e] = _entry_moments(
                initial_mu, i, j, own_share, own_mu, prior, beta2
            )
        perform(wave.place[first:end], entry_mu[:n], delta[:n], split, work.room, found[:n])
        for e in range(n):
            i, j = entry_starts[first + e] - a, entry_starts[first + e + 1] - a
            _learn(
                min(found[e], wave.ceiling[e]), i, j, entry_mu[e], delta[e], initial_mu,
                own_share, own_mu, prior, beta2, own,
            )  # fmt: skip


@kernel
def rate_rounds(wave: Wave, variances: Variances, initial_mu: float, split: bool) -> Evidence:
    """Evidence (P, 3): performance, new mu, new sigma."""
    out = np.empty((len(wave.mu), 3))
    entries = players = 0
    for r in range(len(wave.weight)):
        first, end = wave.round_starts[r], wave.round_starts[r + 1]
        entries = max(entries, end - first)
        players = max(players, wave.entry_starts[end] - wave.entry_starts[first])
    work = WaveWork(
        np.empty(players), np.empty(players), np.empty(entries), np.empty(entries),
        np.empty(entries), new_room(entries),
    )  # fmt: skip
    _rate_all(wave, variances, initial_mu, split, work, out)
    return out
