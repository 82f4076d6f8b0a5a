"""Defines the data of the two rating stages as columns: arrays with one element for each round,
entry or player.

An *entry* is what a round ranks: a player or a team of players. A *wave* is a set of rounds that
share no player, so that all of them can be rated in one call.
"""

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from stream_rater.columns.arrays import Flags, Floats, Ints
from stream_rater.columns.kernels import inlined, kernel

Codes = npt.NDArray[np.int64]
"""(n, capacity) logistic factors, each encoded as in a record: see `factor`."""
History = npt.NDArray[np.float64]
"""(n, capacity, 3) logistic factors as unrounded numbers: rows (p, a, r)."""
Factors = npt.NDArray[Any]  # Codes or a History.
Places = npt.NDArray[np.int32]
Table = npt.NDArray[Any]  # A structured array with the fields of `HEADER`.

DID_NOT_FINISH = 0
"""The place of an entry that did not finish. It is worse than every ranked entry. The ladder's
`dnf` parameter says how such entries are compared with each other (`stages.compared`)."""

LAST = 2**31 - 1
"""A place behind every ranked entry. Entries that did not finish share it if they are tied."""

LEAST_TEAM = 3  # The fewest members of a side whose noise depends on their number.
NEVER = -(2**63)  # The `last` of a player who has played no round.

HEADER = np.dtype(
    [
        ("version", "u1"),
        ("grid", "i1"),  # performances are rounded to multiples of 2^grid
        ("count", "<u2"),  # logistic factors stored
        ("rounds", "<u4"),  # rounds played
        ("season", "<u2"),  # number of seasons that had started at the last round
        ("previous_season", "<u2"),  # `season` before the last round
        ("untold", "u1"),  # 1: no event has published the present values
        ("last", "<i8"),  # source offset of the last round
        ("time", "<i8"),  # time of the last round, Unix seconds; never decreases
        ("previous_time", "<i8"),  # `time` before the last round
        ("mu", "<f8"),  # in rating points, as all fields below unless stated
        ("sigma", "<f8"),
        ("previous_mu", "<f8"),  # `mu` before the last round
        ("previous_sigma", "<f8"),
        ("center", "<f8"),  # mean of the Gaussian factor (the paper's p_0)
        ("precision", "<f8"),  # its weight w_0, in points^-2
        ("scale", "<f8"),  # unit of the logistic factors' weights
        ("width", "<f8"),  # standard deviation of the narrowest factor, if rounded; 0: a = o
        ("volatility", "<f8"),  # relative to the initial one of Glicko-2, without unit; 0: none yet
    ]
)
"""The header of a belief, without its logistic factors.

Stage 1 reads no field after `previous_sigma`. If a season drew the belief just before the last
round, the `previous_*` fields have the values before that draw (`seasons`).

A logistic factor is a row (p, a, r), or a code. With o = scale * r, its term in the log-posterior's
derivative is o * tanh((x - p) * a), so its weight is w = 2 a o / C^2 (C = pi / sqrt 3).
"""


@inlined
def count_ranked(place: Places) -> int:
    """The number of entries that finished. They precede the others in `place`."""
    ranked = len(place)
    while ranked > 0 and place[ranked - 1] == DID_NOT_FINISH:
        ranked -= 1
    return ranked


@kernel
def tie_bounds(place: Places) -> tuple[Ints, Ints]:
    """(lo, hi), each (n,): the 0-based first and last position of each entry's tie group. Entries
    that did not finish tie with each other."""
    n = len(place)
    lo, hi = np.empty(n, np.int64), np.empty(n, np.int64)
    first = 0
    while first < n:
        end = first + 1
        while end < n and place[end] == place[first]:
            end += 1
        lo[first:end] = first
        hi[first:end] = end - 1
        first = end
    return lo, hi


class Variances(NamedTuple):
    """The parameters from which beta^2 and gamma^2 are computed (section 4), as kernels take
    them."""

    weight_limit: float
    sigma_limit: float
    drift_per_day: float  # The variance that a day adds, in points^2.
    drift_in_beta: float
    """The part of `drift_per_day` in beta^2 at w = 1: all or none (`Evolving.drift_in_beta`)."""
    newcomer_weights: Floats  # The weights of a player's first rounds, in order.


NO_FIXED = np.zeros(0, np.bool_)  # The `fixed` of a wave in which no player's rating is fixed.
NO_SHIFT = np.zeros(0)  # The `shift` of a wave in which no entry has a seat that counts.
NO_SCORE = np.zeros(0)  # The `score` of a wave whose ladder uses no scores.
NOT_MOVED = np.zeros(0)  # The `moved` of a wave whose ratings were not moved.


class Wave(NamedTuple):
    """Rounds with the data of their players that stage 1 needs, as kernels take them.

    The rounds share no player, except where a function also takes the starts of several waves
    (`rate_waves`). The entries of a round are in order of place. Those that did not finish are
    last. There are R rounds, E entries and P players (P > E if there are teams).
    """

    round_starts: Ints  # (R+1,) the first entry of each round; the last element is E.
    weight: Floats  # (R,) the relative weight of the round's evidence.
    ceiling: Floats  # (E,) the cap on the entry's performance; infinite for none.
    time: Ints  # (R,) the time of completion, Unix seconds.
    place: Places
    """(E,) the place, from 1; equal places tie. DID_NOT_FINISH if the entry did not finish."""
    entry_starts: Ints  # (E+1,) the first player of each entry; the last element is P.
    share: Floats  # (P,) the share of the round played, in (0, 1].
    mu: Floats  # (P,) the rating before the round.
    sigma: Floats  # (P,) the uncertainty before the round, not yet diffused.
    rounds: Ints  # (P,) the number of rounds played before.
    last_time: Ints  # (P,) the time of the player's last round; ignored if there was none.
    fixed: Flags = NO_FIXED
    """(P,) whether the configuration fixes the player's rating; (0,) if it fixes no rating."""
    shift: Floats = NO_SHIFT
    """(E,) the points by which the seat raises the entry's performance; (0,) if no seat counts."""
    score: Floats = NO_SCORE
    """(E,) the score of the entry, NaN if it has none; (0,) if the ladder uses no scores."""
    moved: Floats = NOT_MOVED
    """(P,) the points by which `mu` is above the rating, for this round alone (`levels`); (0,) if
    the round changes neither mu nor shares."""
    moved_side: Floats = NOT_MOVED
    """(E,) the points by which the mean performance of the entry is above that by its own ratings
    and shares; (0,) where no system reads it."""

    def part(self, first: int, end: int) -> "Wave":
        """The rounds [first, end). All arrays except the two of starts are views."""
        a, b = self.round_starts[first], self.round_starts[end]
        i, j = self.entry_starts[a], self.entry_starts[b]
        return Wave(
            self.round_starts[first : end + 1] - a, self.weight[first:end], self.ceiling[a:b],
            self.time[first:end], self.place[a:b], self.entry_starts[a : b + 1] - i,
            self.share[i:j], self.mu[i:j], self.sigma[i:j], self.rounds[i:j], self.last_time[i:j],
            self.fixed[i:j], self.shift[a:b], self.score[a:b], self.moved[i:j],
            self.moved_side[a:b],
        )  # fmt: skip


Evidence = Floats
"""(P, 3) the result of stage 1 for each player. For Elo-MMR the columns are the performance, its
variance beta^2 and the diffusion variance gamma^2, which depend on the player's own weights.

A fourth column, BEGAN, is optional. For newcomers whom the system placed (`levels`), it is
their mu at the beginning of the round. For all other players it is NaN."""

PERFORMANCE, PERFORMANCE_VARIANCE, DIFFUSION_VARIANCE, BEGAN = 0, 1, 2, 3


@dataclass(frozen=True, slots=True)
class Beliefs:
    """The posteriors of n players: headers, and up to `capacity` logistic factors each."""

    header: Table  # (n,) of type HEADER.
    factors: Factors
    """The factors of each player in order of p; the first header.count are valid. If records store
    the beliefs, these are codes (n, capacity); if not, rows (p, a, r), as (n, capacity, 3)."""

    def __len__(self) -> int:
        return len(self.header)

    @property
    def in_full(self) -> bool:
        """Whether the factors are unrounded numbers, as in a full history. Such beliefs cannot be
        encoded as records."""
        return self.factors.ndim > 2


def grid_of(initial_mu: float, initial_sigma: float) -> int:
    """The exponent of the grid's step, as a power of two. The step is small relative to sigma, and
    the grid is wide enough for any performance: it reaches beyond 4 |mu| and beyond 60 sigma."""
    part, exponent = math.frexp(max(initial_sigma / 2.0**13, abs(initial_mu) / 2.0**17))
    return exponent - 1 if part == 0.5 else exponent


def newcomers(
    count: int, capacity: int, mu: float, sigma: float, *, coded: bool = False
) -> Beliefs:
    """The beliefs of `count` players who have not played: one Gaussian factor at the initial
    rating. `coded` says whether the logistic factors that they will get are codes or rows of
    numbers."""
    header = np.zeros(count, HEADER)
    header["grid"] = grid_of(mu, sigma)
    header["last"] = NEVER
    header["mu"] = header["previous_mu"] = header["center"] = mu
    header["sigma"] = header["previous_sigma"] = sigma
    header["precision"] = 1.0 / sigma**2
    if coded:
        return Beliefs(header, np.zeros((count, capacity), np.int64))
    return Beliefs(header, np.zeros((count, capacity, 3)))


# --- what stage 1 reads of a belief, and what is recorded of a round ------------------------------


@inlined
def read_priors(
    header: Table, rows: Ints, mu: Floats, sigma: Floats, played: Ints, time: Ints
) -> None:
    """Write mu, sigma, the number of rounds played and the time of the last round of the players in
    `rows`, each (len(rows),)."""
    for i in range(len(rows)):
        belief = header[rows[i]]
        mu[i], sigma[i] = belief.mu, belief.sigma
        played[i], time[i] = belief.rounds, belief.time


@kernel
def look_up(header: Table, rows: Ints) -> tuple[Floats, Floats, Ints, Ints]:
    """mu, sigma, the number of rounds played and the time of the last round of the players in
    `rows`, each (len(rows),)."""
    mu, sigma = np.empty(len(rows)), np.empty(len(rows))
    played, time = np.empty(len(rows), np.int64), np.empty(len(rows), np.int64)
    read_priors(header, rows, mu, sigma, played, time)
    return mu, sigma, played, time


@kernel
def record_rounds(header: Table, rows: Ints, offset: Ints, time: Ints) -> None:
    """Record one round of each player in `rows` in the player's belief.

    `offset` and `time` (len(rows),) are the source offset and the time of each player's round. The
    belief's time never decreases. The belief is marked as published, even if its values before the
    round were not. Its previous season becomes its present season; `seasons.remember` corrects this
    for beliefs that a season drew.
    """
    for i in range(len(rows)):
        belief = header[rows[i]]
        before = belief.time
        belief.previous_time, belief.previous_season = before, belief.season
        belief.time = time[i] if belief.rounds == 0 else max(before, time[i])
        belief.last = offset[i]
        belief.untold = 0
        belief.rounds += 1
