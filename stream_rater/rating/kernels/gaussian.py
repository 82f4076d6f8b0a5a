"""Elo-MMx's stage 1: computes how well each entry played if performances are normal (section 3,
"Gaussian performance model").

Entry j performs normally around mu_j with variance delta_j^2; z_j = (x - mu_j) / delta_j. With the
hazard H(z) = phi(z) / Phi(-z), the performance of an entry is the zero of

    -Q(x) = sum over better H(z_j) / delta_j - sum over worse H(-z_j) / delta_j + ties,

which increases with x. A full tie pulls x towards mu_j by z_j / delta_j. A split tie is half a loss
and half a win. All tied entries share one performance. Entries whose place is DID_NOT_FINISH are
worse than all ranked ones and are not compared with each other, so each has its own performance.
"""

import math
from typing import NamedTuple

import numpy as np

from stream_rater.columns.arrays import Floats
from stream_rater.columns.kernels import inlined, kernel
from stream_rater.rating.elementary import aligned, log
from stream_rater.rating.elo_mmr.performance import falls, let_fall
from stream_rater.rating.kernels.direct_sums import ROOM, small_performances
from stream_rater.rating.kernels.expansion import ranked_performances, unfinished_performances
from stream_rater.rating.kernels.series import LANES, Scratch, new_work
from stream_rater.rating.model import DID_NOT_FINISH, Places

FEW = 8
"""The least number of ranks that are examined together. Examining ranks beyond the end of a cell is
wasted work."""

SMALL = 32  # In rounds of up to this many entries, the sums are computed again for each entry.

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
    """The least delta, and bounds of all performances.

    At t times the widest delta beyond all mu, an entry's own tie pulls by at least t/2 / widest,
    and all others together pull by less than 2 n phi(t) / narrowest, which is less from this t on.
    """
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
    ranked = n
    while ranked > 0 and place[ranked - 1] == DID_NOT_FINISH:
        ranked -= 1
    mean, deviation = _spread(mu, delta)
    narrowest, lowest, highest = _reach(mu, delta)
    if (
        n == ranked
        and n <= SMALL
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
