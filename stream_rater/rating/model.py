"""What the two stages take and give, as columns: arrays, one element per round, entry or player.

An *entry* is what a round ranks: a player, or a team of players. A *wave* is a set of rounds that
share no player, so that all of them can be rated in one call without one seeing another's result.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from stream_rater.columns.arrays import Floats, Ints
from stream_rater.rating.rounding import grid_of

Codes = npt.NDArray[np.int64]
"""(n, capacity) logistic factors as a record has them: see `factor`."""
History = npt.NDArray[np.float64]
"""(n, capacity, 3) the same as numbers, never rounded: rows (p, a, r)."""
Factors = npt.NDArray[Any]
"""Codes or a History."""
Places = npt.NDArray[np.int32]
Table = npt.NDArray[Any]
"""A structured array with `HEADER`'s fields."""

DID_NOT_FINISH = 0
"""The place of an entry that did not finish: worse than every ranked one, order not observed."""

NEVER = -(2**63)
"""The source offset of the last round of a player who has played none."""

HEADER = np.dtype(
    [
        ("version", "u1"),
        ("grid", "i1"),  # performances are rounded to multiples of 2^grid
        ("count", "<u2"),  # logistic factors held
        ("rounds", "<u4"),  # rounds played
        ("last", "<i8"),  # source offset of the last round
        ("time", "<i8"),  # of the last round, Unix seconds; never goes back
        ("previous_time", "<i8"),  # `time` before the last round
        ("mu", "<f8"),  # rating points, as all below unless said
        ("sigma", "<f8"),
        ("previous_mu", "<f8"),  # `mu` before the last round
        ("previous_sigma", "<f8"),
        ("center", "<f8"),  # mean of the Gaussian factor (the paper's p_0)
        ("precision", "<f8"),  # its weight w_0, in points^-2
        ("scale", "<f8"),  # what the weights of the logistic factors are relative to
        ("width", "<f8"),  # standard deviation of the narrowest, where they are rounded; 0: a = o
    ]
)
"""A belief without its logistic factors; stage 1 looks at no more than its first half.

A logistic factor is a row (p, a, r) beside it, or its code. With o = scale * r its term in the
posterior's log-derivative is o * tanh((x - p) * a), so its weight is w = 2 a o / C^2
(C = pi / sqrt 3).
"""


@dataclass(frozen=True, slots=True)
class Wave:
    """Rounds that share no player, with what stage 1 needs to know of each player.

    Entries of a round stand in order of place, those that did not finish last. R rounds, E entries,
    P players (P > E where there are teams).
    """

    round_starts: Ints
    """(R+1,) first entry of each round; the last element is E."""
    weight: Floats
    """(R,) relative weight of the round's evidence."""
    ceiling: Floats
    """(R,) cap on performances, infinite for none."""
    time: Ints
    """(R,) completion, Unix seconds."""
    place: Places
    """(E,) 1-based, equal places tie; DID_NOT_FINISH."""
    entry_starts: Ints
    """(E+1,) first player of each entry; the last element is P."""
    share: Floats
    """(P,) part of the round played, in (0, 1]."""
    mu: Floats
    """(P,) rating before the round."""
    sigma: Floats
    """(P,) uncertainty before the round, not yet diffused."""
    rounds: Ints
    """(P,) rounds played before."""
    last_time: Ints
    """(P,) time of the last round before; ignored where there was none."""
    players: Sequence[Sequence[str]] = ()
    """(R,) each round's players by id, for systems that know some by name."""


Evidence = Floats
"""(P, 3) what stage 1 found for each player. For Elo-MMR the columns are the performance, its
variance beta^2 and the diffusion variance gamma^2, which depend on the player's own weights."""

PERFORMANCE, PERFORMANCE_VARIANCE, DIFFUSION_VARIANCE = 0, 1, 2


@dataclass(frozen=True, slots=True)
class Beliefs:
    """Posteriors of n players: their headers and up to `capacity` logistic factors each."""

    header: Table
    """(n,) of HEADER."""
    factors: Factors
    """In order of p; the first header.count of each row are valid. (n, capacity) codes if the
    beliefs are to be records, rounded to what these can say; else (n, capacity, 3): rows (p, a, r).
    """

    def __len__(self) -> int:
        return len(self.header)

    @property
    def in_full(self) -> bool:
        """Whether the factors are numbers, as of a history kept in full, which no record holds."""
        return self.factors.ndim > 2


def newcomers(
    count: int, capacity: int, mu: float, sigma: float, *, coded: bool = False
) -> Beliefs:
    """Beliefs of players who have not played: one Gaussian factor at the initial rating.

    Their logistic factors are going to be codes, or numbers.
    """
    header = np.zeros(count, HEADER)
    header["grid"] = grid_of(mu, sigma)
    header["last"] = NEVER
    header["mu"] = header["previous_mu"] = header["center"] = mu
    header["sigma"] = header["previous_sigma"] = sigma
    header["precision"] = 1.0 / sigma**2
    if coded:
        return Beliefs(header, np.zeros((count, capacity), np.int64))
    return Beliefs(header, np.zeros((count, capacity, 3)))
