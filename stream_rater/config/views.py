"""Views of ratings: who is listed on a ladder, and which tier a rating has. No belief depends on
them."""

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from stream_rater.columns.arrays import Flags
from stream_rater.config.ladders import Ladders
from stream_rater.rating.model import Table

DAY_S = 86_400


@dataclass(frozen=True)
class Listing:
    """The rules by which a player with a round is listed."""

    min_rounds: int = 0
    max_sigma: float = math.inf
    idle_days: float = math.inf
    """A player without a round for longer than this is not listed."""


@dataclass(frozen=True)
class Tier:
    """A tier: the ratings from `from_rating` to below the next tier."""

    name: str
    from_rating: float


class Views(NamedTuple):
    """The views of a ladder."""

    listing: Listing = Listing()
    tiers: tuple[Tier, ...] = ()
    """The tiers, in order of their ratings."""


EVERYBODY = Views()
"""The views of a ladder that names none: everybody is listed, and nobody has a tier."""


def views_of(ladders: Ladders, ladder: str) -> Views:
    """The views of a ladder."""
    return EVERYBODY


def listed(views: Views, header: Table, at_s: float) -> Flags:
    """(n,) whether each of the players with these headers (n,) is listed at a time (Unix
    seconds)."""
    rules = views.listing
    found: Flags = header["rounds"] >= np.maximum(1, rules.min_rounds)
    found &= header["sigma"] <= rules.max_sigma
    found &= at_s - header["time"] <= rules.idle_days * DAY_S
    return found


def tier_of(views: Views, rating: float) -> str | None:
    """The name of the tier that a rating has; None if the ladder has no tier for it."""
    name = None
    for each in views.tiers:
        if rating < each.from_rating:
            break
        name = each.name
    return name
