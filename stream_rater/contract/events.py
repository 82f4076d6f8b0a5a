"""The events of all topics: their fields, their encoding, and how ids are joined.

An event is JSON unless its header `content-type` names MessagePack. Decoders are made once.

The code that cuts messages bounds the size of each kind, because the worker that must write a
message that is larger than a limit would retry for ever, and so would each of its successors. The
limits of Kafka and Redis, and the largest message of each kind, are in
`docs/reference/settings.md`. Two messages cannot be cut: a part with one row of a ladder on which
some 40,000 seasons have started, and the ladder event of a ladder with some 25,000 changes in the
ladders file. A worker that cannot write a message logs its size and the command that helps
(`producers`), and continues as soon as the topic accepts the message.
"""

import re
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any

import msgspec

ROUND_COMPLETED = "round-completed"
PERFORMANCE_ESTIMATED = "performance-estimated"
LADDERS_NOTED = "ladders-noted"
RATING_CHANGED = "rating-changed"
ROUND_REJECTED = "round-rejected"

ESTIMATORS = "stream-rater-estimators"
"""The consumer group that reads `round-completed`, without the topic prefix before it."""
UPDATERS = "stream-rater-updaters"  # The consumer group that reads `performance-estimated`.

LOG_LOST = "log-lost"
"""The cause of an event that a rebuild publishes because the rounds of older events were lost."""

MAX_ID_BYTES = 128
MAX_RANK = 2**31 - 2
"""The greatest rank. The next int32 is left free, so that entries that did not finish sort last."""

MOST_BYTES = 1_000_000
"""The most bytes of a part, of a correction part and of a ladder event. Every topic that workers
accept allows a message of this size with its headers, compressed or not."""
LEAST_BYTES = 1_048_588
"""The least `max.message.bytes` of a topic that workers write to. It is Kafka's default."""

JSON = "application/json"
MSGPACK = "application/msgpack"

SOURCE = "stream-rater"  # The `source` of every CloudEvent.


def cloud_event_headers(event_id: str, kind: str, time_: str) -> list[tuple[str, Any]]:
    """The headers of a CloudEvent 1.0 in Kafka's binary mode."""
    return [
        ("ce_id", event_id.encode()), ("content-type", JSON.encode()), ("ce_specversion", b"1.0"),
        ("ce_type", kind.encode()), ("ce_source", SOURCE.encode()), ("ce_time", time_.encode()),
    ]  # fmt: skip


class Entry(msgspec.Struct, frozen=True, gc=False):
    """One entry of a round's standings: a player or a team, ranked or not finished."""

    player: str | None = None
    rank: int | None = None
    dnf: bool = False
    team: tuple[str, ...] | None = None
    shares: tuple[float, ...] | None = None
    seat: str | None = None
    score: float | None = None


class Round(msgspec.Struct, frozen=True, kw_only=True):
    """The fields of a round other than its entries."""

    round_id: str
    ladder: str
    completed_at: str
    weight: float = 1.0
    performance_ceiling: float | None = None


class RoundCompleted(Round, frozen=True, kw_only=True):
    """A finished round, as a game backend reports it."""

    standings: list[Entry]


class StrictEntry(Entry, frozen=True, gc=False, forbid_unknown_fields=True):
    """An entry that rejects unknown fields."""


class StrictRound(RoundCompleted, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A round that rejects unknown fields. Others are decoded as by RoundCompleted."""

    standings: list[StrictEntry]  # type: ignore[assignment]


ABSENT = msgspec.Raw(b"")  # The value of a field that is not in the message.


class LenientEntry(Entry, frozen=True, gc=False):
    """An entry whose seat and score may have any value, and are the bytes of the message: a game
    may have used these names for something else before they had a meaning."""

    seat: msgspec.Raw = ABSENT  # type: ignore[assignment]
    score: msgspec.Raw = ABSENT  # type: ignore[assignment]


class LenientRound(RoundCompleted, frozen=True, kw_only=True):
    """A round that may have unknown fields."""

    standings: list[LenientEntry]  # type: ignore[assignment]


class EmptyRound(Round, frozen=True, kw_only=True, gc=False):
    """A round whose entries have been cut out of its message."""

    standings: tuple[()]


class CorrectionCause(msgspec.Struct, frozen=True, kw_only=True, gc=False, omit_defaults=True):
    """The correction that changed a rating."""

    cause: str
    """The kind of the correction, as named in the header `event-type`."""
    offset: int
    """The offset of the correction in `round-completed`."""
    round_id: str = ""
    """The id of the corrected round. Empty if the correction is not about one round."""


class RatingChanged(msgspec.Struct, frozen=True, kw_only=True, gc=False, omit_defaults=True):
    """One player's rating after one round, or after a correction."""

    event_id: str
    ladder: str
    player: str
    round_id: str
    completed_at: str
    rank: int | None
    """The player's rank in the round. None for a player who did not finish."""
    mu: float
    sigma: float
    previous_mu: float
    previous_sigma: float
    performance: float | None
    """The performance in the round. None after a correction, and only then."""
    rating: float
    previous_rating: float
    rounds: int
    """The number of the player's rounds. It can fall, because a correction may remove rounds."""
    provisional: bool
    offset: int
    """The offset of the round or correction in `round-completed`. Among a player's events on a
    ladder, the event with the greatest offset is the newest."""
    season: int | None = None
    """The ladder's season. None before the first season starts."""
    correction: CorrectionCause | None = None
    """The correction that changed the rating. None after a round."""


round_from_json = msgspec.json.Decoder(LenientRound).decode
round_from_msgpack = msgspec.msgpack.Decoder(LenientRound).decode
strict_round_from_json = msgspec.json.Decoder(StrictRound).decode
strict_round_from_msgpack = msgspec.msgpack.Decoder(StrictRound).decode
empty_round_from_json = msgspec.json.Decoder(EmptyRound).decode
empty_rounds_from_lines = msgspec.json.Decoder(EmptyRound).decode_lines
seat_from_json = msgspec.json.Decoder(str | None).decode
seat_from_msgpack = msgspec.msgpack.Decoder(str | None).decode
score_from_json = msgspec.json.Decoder(float | None).decode
score_from_msgpack = msgspec.msgpack.Decoder(float | None).decode
rating_changed_from_json = msgspec.json.Decoder(RatingChanged).decode
to_json = msgspec.json.Encoder().encode

UNDECODABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""The exceptions that these decoders raise."""

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_timestamp = msgspec.json.Decoder(Annotated[datetime, msgspec.Meta(tz=True)]).decode

_RESERVED = re.compile("[%:{}]").search
_ESCAPES = str.maketrans({c: f"%{ord(c):02X}" for c in "%:{}"})


def escape(part: str) -> str:
    """Percent-encode the characters with a meaning in a key: `:` separates its parts, `{}` tag a
    shard, and `%` begins an escape."""
    return part.translate(_ESCAPES) if _RESERVED(part) else part


def offset_of(value: bytes | None) -> int:
    """`offset` of a `rating-changed` event in JSON; -1 without a value, as after an erasure."""
    return rating_changed_from_json(value).offset if value else -1


def joined(*parts: str) -> str:
    """Join escaped parts with colons into a key or event id. Different parts never give the same
    result."""
    return ":".join(map(escape, parts))


def shown(text: str) -> str:
    """An id that is safe to print. It contains no terminal control sequence and no line break."""
    return text if text.isprintable() else repr(text)[1:-1]


def parse_time(text: str) -> int:
    """The Unix seconds of an RFC 3339 time with a zone, rounded down; else raises ValueError."""
    since: timedelta = _timestamp(to_json(text)) - EPOCH
    return since.days * 86_400 + since.seconds
