"""Makes seeds: from ratings on another scale, and from those of another ladder.

A seed that our own programs send has an id that is made of its content. So the same players with
the same ratings have the same id, whoever sends them, and however often.
"""

import hashlib
import math
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import NamedTuple

import msgspec
import numpy as np

from stream_rater.columns.arrays import Floats
from stream_rater.contract import events, seeds
from stream_rater.rating.parameters import RatingConfig
from stream_rater.rounds.correction_records import nearest_valid

PRECISION = 7
"""The decimals of a rating on a scale whose initial sigma is 1. A record stores fewer (float32)."""

_TRUESKILL, _GLICKO = (25.0, 25.0 / 3.0), (1500.0, 350.0)
SCALES = {"trueskill": _TRUESKILL, "openskill": _TRUESKILL, "glicko": _GLICKO, "elo": _GLICKO}
"""By the name of a system, the mu and the sigma that a newcomer has there by default."""

OWN = "ladder"  # The name of the scale of the ladder itself.
NAMES = (*SCALES, OWN)


class BadScale(ValueError):
    """A text is not a scale. The text of the error is one line with the cure."""


class Scale(NamedTuple):
    """The scale of a rating system: what a newcomer has there."""

    mu: float
    sigma: float

    def to(self, target: "Scale") -> tuple[float, float]:
        """The map to another scale: shift and factor. It maps newcomers to newcomers: mu becomes
        shift + factor · mu, and sigma factor · sigma."""
        return target.mu - self.mu * target.sigma / self.sigma, target.sigma / self.sigma


def scale_of(text: str, rating: RatingConfig) -> Scale:
    """The scale that a text means: one of NAMES, or `MU,SIGMA`. Raises BadScale."""
    if text == OWN:
        return own_scale(rating)
    if text in SCALES:
        return Scale(*SCALES[text])
    first, comma, second = text.partition(",")
    try:
        found = Scale(float(first), float(second))
    except ValueError:
        comma = ""
    if not comma or not math.isfinite(found.mu) or not 0.0 < found.sigma < math.inf:
        raise BadScale(
            f"{text!r} is no scale: give {', '.join(NAMES)}, or the mu and the sigma of a newcomer "
            "as in 25,8.333"
        )
    return found


def own_scale(rating: RatingConfig) -> Scale:
    """The scale of a ladder with these parameters."""
    return Scale(rating.initial_mu, rating.initial_sigma)


def decimals_of(rating: RatingConfig) -> int:
    """The number of decimals with which ratings of a ladder are written."""
    return max(0, math.ceil(PRECISION - math.log10(rating.initial_sigma)))


class SeedMessage(NamedTuple):
    """A seed that can be sent."""

    round_id: str
    players: int  # The number of its players.
    value: bytes  # The event as JSON, with its kind in `event_type`.


def seed_messages(
    ladder: str, at: str, source: str, players: Iterable[seeds.SeededPlayer],
    most_bytes: int = seeds.MOST_SEED_BYTES,
) -> Iterator[SeedMessage]:  # fmt: skip
    """Yield seeds with these players in order, of at most MOST_PLAYERS and `most_bytes` bytes."""
    wanted = iter(players)
    while some := list(islice(wanted, seeds.MOST_PLAYERS)):
        yield from _within(ladder, at, source, some, most_bytes)


def _within(
    ladder: str, at: str, source: str, players: Sequence[seeds.SeededPlayer], most_bytes: int
) -> Iterator[SeedMessage]:
    message = seed_message(ladder, at, source, players)
    if len(message.value) <= most_bytes or len(players) == 1:
        yield message
        return
    half = len(players) // 2
    yield from _within(ladder, at, source, players[:half], most_bytes)
    yield from _within(ladder, at, source, players[half:], most_bytes)


def seed_message(
    ladder: str, at: str, source: str, players: Sequence[seeds.SeededPlayer]
) -> SeedMessage:
    """One seed with these players. Its id does not depend on its time."""
    listed = msgspec.json.encode(players)
    content = msgspec.json.encode((ladder, source)) + listed
    round_id = f"seed-{hashlib.blake2b(content, digest_size=16).hexdigest()}"
    value = events.to_json(
        seeds.PlayersSeeded(
            event_type=seeds.SEEDED, ladder=ladder, round_id=round_id, at=at, source=source,
            players=msgspec.Raw(listed),  # type: ignore[arg-type]
        )
    )  # fmt: skip
    return SeedMessage(round_id, len(players), value)


class Taken(NamedTuple):
    """How much of another ladder's certainty is taken over, in points of the target."""

    more_sigma: float = 0.0  # What is added to each sigma.
    most_sigma: float = math.inf
    """The greatest sigma. No sigma is greater than a newcomer's, either."""


def brought(
    source: RatingConfig, target: RatingConfig, mu: Floats, sigma: Floats, taken: Taken
) -> tuple[Floats, Floats, int]:
    """(n,) mu and (n,) sigma with which players of one ladder begin on another one, and the number
    of sigmas that were cut. `mu` and `sigma` (n,) are those on the ladder of the parameters
    `source`."""
    shift, factor = own_scale(source).to(own_scale(target))
    decimals = decimals_of(target)
    wanted = factor * sigma + taken.more_sigma
    most = min(taken.most_sigma, target.initial_sigma)
    to_mu, to_sigma = (shift + factor * mu).round(decimals), wanted.round(decimals)
    found = nearest_valid(target, to_mu, np.minimum(to_sigma, most))
    return *found, int((to_sigma > most).sum())


def seeded_players(
    rating: RatingConfig, players: Sequence[str], mu: Floats, sigma: Floats
) -> list[seeds.SeededPlayer]:
    """These players as a seed of a ladder has them. A system that learns no sigma gets none."""
    takes_sigma = rating.takes_sigma
    return [
        seeds.SeededPlayer(player, its_mu, its_sigma if takes_sigma else None)
        for player, its_mu, its_sigma in zip(players, mu.tolist(), sigma.tolist(), strict=True)
    ]
