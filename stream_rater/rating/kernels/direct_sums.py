"""Elo-MMx in small rounds: sums over all entries, computed for all entries at once.

Each entry has a lane, which contains its current x. Each pass computes the first four Taylor
coefficients of -Q about x, and moves x to the zero of the cubic. An error of r then becomes about
r^4 / 50.
"""

from stream_rater.columns.arrays import Floats
from stream_rater.columns.intrinsics import fma
from stream_rater.columns.kernels import inlined
from stream_rater.rating.elementary import log
from stream_rater.rating.kernels.hazards import tails
from stream_rater.rating.model import Places

MOST = 32  # The number of lanes.

ROOM = 13 * MOST  # The size of the scratch space.

PASSES = 8
"""The most passes, which is more than enough. If an entry needs more, the search fails, and
`gaussian.perform` uses `expansion` instead."""

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
    search succeeded.

    `room` (ROOM) is scratch space.
    """
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
