"""The events that travel: what they hold, how they are encoded, and how ids are joined.

JSON is the default; MessagePack where `content-type` says so. Decoders are made once.
"""

import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Annotated

import msgspec

ROUND_COMPLETED = "round-completed"
PERFORMANCE_ESTIMATED = "performance-estimated"
LADDERS_NOTED = "ladders-noted"
RATING_CHANGED = "rating-changed"
ROUND_REJECTED = "round-rejected"

MAX_ID_BYTES = 128
MAX_RANK = 2**31 - 2
"""An int32 that leaves a greater one, to sort those that did not finish."""

Headers = Sequence[tuple[str, bytes | None]]
"""A record's headers, as Kafka gives them: some without a value."""

JSON = "application/json"
MSGPACK = "application/msgpack"


class Entry(msgspec.Struct, frozen=True, gc=False):
    """One entry of a round's standings: a player or a team, ranked or not finished."""

    player: str | None = None
    rank: int | None = None
    dnf: bool = False
    team: tuple[str, ...] | None = None
    shares: tuple[float, ...] | None = None


class Round(msgspec.Struct, frozen=True, kw_only=True):
    """What stands around the list of a round's entries."""

    round_id: str
    ladder: str
    completed_at: str
    weight: float = 1.0
    performance_ceiling: float | None = None


class RoundCompleted(Round, frozen=True, kw_only=True):
    """A finished round, as a game backend reports it."""

    standings: list[Entry]


class StrictEntry(Entry, frozen=True, gc=False, forbid_unknown_fields=True):
    """An entry without other fields."""


class StrictRound(RoundCompleted, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A round without other fields: it decodes as RoundCompleted does, or not at all."""

    standings: list[StrictEntry]  # type: ignore[assignment]


class EmptyRound(Round, frozen=True, kw_only=True, gc=False):
    """A round whose entries have been taken out of it."""

    standings: tuple[()]


class CorrectionCause(msgspec.Struct, frozen=True, kw_only=True, gc=False, omit_defaults=True):
    """The correction that changed a rating."""

    cause: str
    """Its kind, by the name in the header `event-type`."""
    offset: int
    """Its own, in `round-completed`."""
    round_id: str = ""
    """Of the round that was corrected, if it was about one."""


class RatingChanged(msgspec.Struct, frozen=True, kw_only=True, gc=False, omit_defaults=True):
    """One player's rating after one round, or after a correction."""

    event_id: str
    ladder: str
    player: str
    round_id: str
    completed_at: str
    rank: int | None
    """None for a player who did not finish."""
    mu: float
    sigma: float
    previous_mu: float
    previous_sigma: float
    performance: float | None
    """None after a correction, and only then."""
    rating: float
    previous_rating: float
    rounds: int
    """It can fall: a correction takes rounds away."""
    provisional: bool
    offset: int
    """In `round-completed`, of the round or of the correction. Of a player's events on a ladder the
    one with the greatest is the newest."""
    season: int | None = None
    """The ladder's season, if one was started."""
    correction: CorrectionCause | None = None
    """None after a round."""


round_from_json = msgspec.json.Decoder(RoundCompleted).decode
round_from_msgpack = msgspec.msgpack.Decoder(RoundCompleted).decode
strict_round_from_json = msgspec.json.Decoder(StrictRound).decode
strict_round_from_msgpack = msgspec.msgpack.Decoder(StrictRound).decode
empty_round_from_json = msgspec.json.Decoder(EmptyRound).decode
empty_rounds_from_lines = msgspec.json.Decoder(EmptyRound).decode_lines
rating_changed_from_json = msgspec.json.Decoder(RatingChanged).decode
to_json = msgspec.json.Encoder().encode

UNDECODABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""What these decoders raise."""

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_timestamp = msgspec.json.Decoder(Annotated[datetime, msgspec.Meta(tz=True)]).decode

_RESERVED = re.compile("[%:{}]").search
_ESCAPES = str.maketrans({c: f"%{ord(c):02X}" for c in "%:{}"})


def escape(part: str) -> str:
    """Percent-encode what separates parts of a key (`:`), what tags a shard (`{}`) and `%`."""
    return part.translate(_ESCAPES) if _RESERVED(part) else part


def joined(*parts: str) -> str:
    """A key or event id: escaped parts with colons between, so that no two sets of parts meet."""
    return ":".join(map(escape, parts))


def shown(text: str) -> str:
    """An id as it may be printed: it must not command a terminal, nor break a line."""
    return text if text.isprintable() else repr(text)[1:-1]


def parse_time(text: str) -> int:
    """Unix seconds, rounded down, of an RFC 3339 time with a zone; ValueError otherwise."""
    since: timedelta = _timestamp(to_json(text)) - EPOCH
    return since.days * 86_400 + since.seconds


def header(headers: Headers, name: str) -> str:
    """The first header of this name as text, or the empty string."""
    for key, value in headers:
        if key == name:
            return (value or b"").decode("utf-8", "replace")
    return ""
