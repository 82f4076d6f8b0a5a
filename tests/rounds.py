"""Rounds for tests: as events, as bytes, and as columns."""

import math
from collections.abc import Sequence
from typing import Any

import msgspec

from stream_rater.config import one_ladder
from stream_rater.rating.model import Beliefs, Floats
from stream_rater.rating.parameters import RatingConfig
from stream_rater.standings import Reader, Standings

MSGPACK_HEADERS = [("content-type", b"application/msgpack")]


def event(*standings: Any, **fields: Any) -> dict[str, Any]:
    """A valid `round-completed` but for what is given; by default ann beat bob."""
    return {
        "round_id": "r-1",
        "ladder": "ranked-eu",
        "completed_at": "2026-11-20T20:15:05Z",
        "standings": list(standings)
        or [{"player": "ann", "rank": 1}, {"player": "bob", "rank": 2}],
        **fields,
    }


def as_json(*standings: Any, **fields: Any) -> bytes:
    """The same in JSON."""
    return msgspec.json.encode(event(*standings, **fields))


def as_msgpack(*standings: Any, **fields: Any) -> bytes:
    """The same in MessagePack."""
    return msgspec.msgpack.encode(event(*standings, **fields))


def read(config: RatingConfig, *standings: Any, **fields: Any) -> Standings:
    """The same as the service reads it."""
    return Reader(one_ladder(config)).read(as_json(*standings, **fields))


def ranked(places: Sequence[int], names: Sequence[str] | None = None) -> list[dict[str, Any]]:
    """Standings by place; place 0 did not finish."""
    names = names or [f"p{i}" for i in range(len(places))]
    return [
        {"player": name, "rank": place} if place else {"player": name, "dnf": True}
        for name, place in zip(names, places, strict=True)
    ]


def logistic_weight(beliefs: Beliefs) -> Floats:
    """The weights w = 2 a o / C^2 of the first belief's factors (p, a, r), with o = scale * r."""
    _p, a, r = beliefs.factors[0, : beliefs.header["count"][0]].T
    weights: Floats = 2.0 * a * r * beliefs.header["scale"][0] * 3.0 / math.pi**2
    return weights
