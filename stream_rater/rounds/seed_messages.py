"""Makes the records of seeds: it brings ratings to a ladder's scale, and packs players.

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
from stream_rater.contract import seeds
from stream_rater.contract.events import to_json
from stream_rater.rating.parameters import RatingConfig
from stream_rater.rounds.seed_records import nearest_valid

PRECISION = 7
"""The decimals of a rating on a scale whose initial sigma is 1. A record stores fewer (float32)."""

SCALES = {
    "trueskill": (25.0, 25.0 / 3.0),
    "openskill": (25.0, 25.0 / 3.0),
    "glicko": (1500.0, 350.0),
    "elo": (1500.0, 350.0),
}
"""By the name of a system, the mu and the sigma that a newcomer has there by default."""

OWN = "ladder"
"""The name of the scale of the ladder itself."""

NAMES = (*SCALES, OWN)


class BadScale(ValueError):
    """A text is not a scale. The text of the error is one line with the cure."""


class Scale(NamedTuple):
    """The scale of a rating system: what a newcomer has there."""

    mu: float
    sigma: float

    def to(self, target: "Scale") -> "ScaleMap":
        """The map to another scale, which brings newcomers to newcomers."""
        return ScaleMap(target.mu - self.mu * target.sigma / self.sigma, target.sigma / self.sigma)


class ScaleMap(NamedTuple):
    """The affine map from one scale to another: mu becomes `shift` + `factor` · mu, and sigma
    `factor` · sigma."""

    shift: float
    factor: float


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
    players: int
    """The number of its players."""
    value: bytes
    """The event as JSON, with its kind in `event_type`."""


def seed_messages(
    ladder: str, at: str, source: str, players: Iterable[seeds.SeededPlayer],
    most_bytes: int = seeds.MOST_SEED_BYTES,
) -> Iterator[SeedMessage]:  # fmt: skip
    """Yield seeds with these players, in their order. Each has at most MOST_PLAYERS players and at
    most `most_bytes` bytes."""
    wanted = iter(players)
    while some := list(islice(wanted, seeds.MOST_PLAYERS)):
        yield from _within(ladder, at, source, some, most_bytes)


def _within(
    ladder: str, at: str, source: str, players: Sequence[seeds.SeededPlayer], most_bytes: int
) -> Iterator[SeedMessage]:
    """Yield seeds with these players, each within the limit of bytes."""
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
    """One seed with these players."""
    listed = msgspec.json.encode(players)
    round_id = seed_id(ladder, source, listed)
    value = to_json(
        seeds.PlayersSeeded(
            event_type=seeds.SEEDED, ladder=ladder, round_id=round_id, at=at, source=source,
            players=msgspec.Raw(listed),  # type: ignore[arg-type]
        )
    )  # fmt: skip
    return SeedMessage(round_id, len(players), value)


def seed_id(ladder: str, source: str, players: bytes) -> str:
    """The id of a seed with these players, as JSON. The time of the seed has no part in it."""
    content = msgspec.json.encode((ladder, source)) + players
    return f"seed-{hashlib.blake2b(content, digest_size=16).hexdigest()}"


class Taken(NamedTuple):
    """How much of another ladder's certainty is taken over, in points of the target."""

    more_sigma: float = 0.0
    """What is added to each sigma."""
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
