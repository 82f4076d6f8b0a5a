"""Parts as the last release, 0.1.0, knew them: without a trace."""

import msgspec

from stream_rater.rating.stages import RatingRule


class LastRound(msgspec.Struct, frozen=True, array_like=True):
    offset: int
    rule: int
    time: int
    round_id: str
    ladder: str
    completed_at: str


class LastPart(msgspec.Struct, frozen=True, array_like=True):
    version: int
    rules: tuple[RatingRule, ...]
    rounds: tuple[LastRound, ...]
    round_index: bytes
    place: bytes
    evidence: bytes
    players: list[str]


def as_last(part: bytes) -> bytes:
    """A part as that release would have read it, and sent it."""
    return msgspec.msgpack.encode(msgspec.msgpack.decode(part, type=LastPart))
