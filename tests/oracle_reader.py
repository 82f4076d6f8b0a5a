"""The readable oracle of `rounds/decoder.py`: it reads entry by entry, rule by rule. The two share
only the decoders of `contract/events`, the reader of headers and the constants."""

import math
import re
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
from msgspec import structs

from stream_rater.columns.sharding import ANYWHERE, partition_of
from stream_rater.config.ladders import Ladders, Limits
from stream_rater.contract import events
from stream_rater.contract.events import MAX_ID_BYTES, MAX_RANK, Entry, RoundCompleted
from stream_rater.contract.record import Record, header
from stream_rater.rating.model import DID_NOT_FINISH
from stream_rater.rating.parameters import RatingConfig
from stream_rater.rounds.batch import MAX_TIME_LENGTH
from stream_rater.rounds.validation import (
    EARLIEST,
    LEAST_CEILING,
    LEAST_SHARE,
    MIN_ENTRIES,
    Invalid,
)


@dataclass(frozen=True)
class ReadRound:
    """A valid round: its entries in order of place, those that did not finish last."""

    round_id: str
    ladder: str
    completed_at: str
    time: int
    weight: float
    ceiling: float
    place: list[int]
    members: list[int]
    share: list[float]  # By player, entry by entry.
    seat: list[str]  # By entry; empty for none.
    score: list[float | None]  # By entry.
    players: list[str]
    rating: RatingConfig  # The parameters by which it is rated.


def read(ladders: Ladders, record: Record, partitions: int = ANYWHERE) -> ReadRound:
    """The round in a record of a topic with so many partitions; raises Invalid."""
    if record.unreadable:
        raise Invalid("too-large", record.unreadable)
    event = _decoded(record, ladders.limits)
    try:
        return _valid(event, ladders, record, partitions)
    except Invalid as invalid:
        invalid.set_round(event.ladder, event.round_id)
        raise


_FIELD_CODES = (
    (re.compile(r"\.rank`"), "bad-rank"),
    (re.compile(r"\.weight`|`weight`"), "bad-weight"),
    (re.compile(r"\.shares(\[|`)"), "bad-shares"),
    (re.compile(r"\.completed_at`|`completed_at`"), "bad-time"),
    (re.compile(r"\.(round_id|ladder|player|team)(\[[\d.]*\])?`|`(round_id|ladder)`"), "bad-id"),
)


def _decoded(record: Record, limits: Limits) -> RoundCompleted:
    data = record.value or b""
    if len(data) > limits.max_bytes:
        raise Invalid("too-large", f"{len(data)} bytes, over the limit of {limits.max_bytes}")
    packed = "msgpack" in header(record.headers, "content-type").lower()
    if (packed_depth(data) if packed else json_depth(data)) > limits.max_depth:
        raise Invalid("too-deep", f"nesting deeper than {limits.max_depth}")
    try:
        event = events.round_from_msgpack(data) if packed else events.round_from_json(data)
    except msgspec.ValidationError as error:
        codes = [code for pattern, code in _FIELD_CODES if pattern.search(str(error))]
        raise Invalid([*codes, "malformed"][0], str(error) + _advice(str(error))) from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Invalid("malformed", str(error)) from None
    decode = msgspec.msgpack.decode if packed else msgspec.json.decode
    entries = [
        structs.replace(
            entry,
            seat=_value(entry.seat, decode, str), score=_value(entry.score, decode, int | float),
        )
        for entry in event.standings
    ]  # fmt: skip
    return structs.replace(event, standings=entries)


def _value(raw: Any, decode: Callable[..., Any], kind: Any) -> Any:
    """A decoded value of the message: None if it is absent, math.inf if it is not of this kind."""
    if raw == msgspec.Raw():
        return None
    try:
        found = decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return math.inf
    return found if found is None or _is(found, kind) else math.inf


def _is(value: object, kind: Any) -> bool:
    if isinstance(value, bool) or not isinstance(value, kind):
        return False
    return not isinstance(value, int) or abs(value) <= sys.float_info.max


def _advice(mistake: str) -> str:
    """What to do about an id that is a number."""
    got_number = re.match(r"Expected `str[^`]*`, got `(int|float)`", mistake) is not None
    place = mistake.rpartition(" at ")[2].rstrip("`").rpartition(".")[2].partition("[")[0]
    is_id = place in ("round_id", "ladder", "player", "team")
    return ": ids are texts, so quote it" if got_number and is_id else ""


def json_depth(data: bytes) -> int:
    """How deep brackets outside of strings are nested, in JSON or in bytes that are no JSON."""
    deepest = depth = 0
    outside = re.sub(rb'"(?:[^"\\]|\\.)*(?:"|\\?\Z)', b"", data, flags=re.DOTALL)
    for c in outside:
        depth += (c in b"[{") - (c in b"]}")
        deepest = max(deepest, depth)
    return deepest


def packed_depth(data: bytes) -> int:
    """The same of valid MessagePack; 0 for others, which these tests never nest deeply."""
    try:
        return _depth(msgspec.msgpack.decode(data))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return 0


def _depth(value: object) -> int:
    if isinstance(value, dict):
        return 1 + max(map(_depth, [*value.keys(), *value.values()])) if value else 0
    if isinstance(value, list | tuple):
        return 1 + max([0, *map(_depth, value)]) if value else 0
    return 0


def _valid(event: RoundCompleted, ladders: Ladders, record: Record, partitions: int) -> ReadRound:
    _check_id("round_id", event.round_id)
    _check_id("ladder", event.ladder)
    terms = ladders.find(event.ladder, record.offset)
    if terms is None:
        raise Invalid("unknown-ladder", f"ladder {event.ladder!r} is not configured")
    limits = terms.limits
    time = _time(event.completed_at, record.received_s, limits)
    if not 0.0 < event.weight <= limits.max_weight:
        raise Invalid("bad-weight", f"weight: {event.weight} is not in (0, {limits.max_weight:g}]")
    ceiling = math.inf if event.performance_ceiling is None else event.performance_ceiling
    if not ceiling >= LEAST_CEILING:
        raise Invalid("malformed", f"performance_ceiling: {ceiling} is not over {LEAST_CEILING:g}")
    entries, size, most = event.standings, len(event.standings), limits.max_entries
    if size < MIN_ENTRIES:
        raise Invalid("too-few-entries", f"standings: {size}, a round needs {MIN_ENTRIES}")
    if size > most:
        raise Invalid("too-many-entries", f"standings: {size}, the limit is {most}")
    places = [_place(i, entry) for i, entry in enumerate(entries)]
    members = [_members(i, entry) for i, entry in enumerate(entries)]
    shares = [_shares(i, entry, len(members[i])) for i, entry in enumerate(entries)]
    seats = [_seat(i, entry, terms.rating) for i, entry in enumerate(entries)]
    scores = [_score(i, entry, terms.rating) for i, entry in enumerate(entries)]
    order = sorted(range(len(entries)), key=lambda i: places[i] or MAX_RANK + 1)
    players = [player for i in order for player in members[i]]
    for player in players:
        _check_id(f"player {player[:MAX_ID_BYTES]!r}", player)
    if len(set(players)) < len(players):
        player = Counter(players).most_common(1)[0][0]
        raise Invalid("duplicate-player", f"player {player!r} stands in the round twice")
    if partitions and record.partition != (home := partition_of(event.ladder, partitions)):
        raise Invalid(
            "wrong-partition", f"ladder {event.ladder!r} has its rounds in partition {home}, this "
            f"one is in {record.partition}: the record's key must be the ladder, and a producer of "
            "librdkafka needs partitioner=murmur2_random",
        )  # fmt: skip
    return ReadRound(
        event.round_id, event.ladder, event.completed_at, time, event.weight, ceiling,
        [places[i] for i in order], [len(members[i]) for i in order],
        [share for i in order for share in shares[i]], [seats[i] for i in order],
        [scores[i] for i in order], players, terms.rating,
    )  # fmt: skip


def _check_id(name: str, value: str) -> None:
    if not value:
        raise Invalid("bad-id", f"{name}: empty")
    if len(value.encode()) > MAX_ID_BYTES:
        raise Invalid("bad-id", f"{name}: over {MAX_ID_BYTES} bytes")


def _time(completed_at: str, received_s: float, limits: Limits) -> int:
    if len(completed_at) > MAX_TIME_LENGTH:
        raise Invalid("bad-time", f"completed_at: over {MAX_TIME_LENGTH} characters")
    try:
        time = events.parse_time(completed_at)
    except (ValueError, OverflowError) as error:
        raise Invalid("bad-time", f"completed_at: {error}") from None
    if time < EARLIEST:
        raise Invalid("bad-time", "completed_at: before the year 1900")
    if time > received_s + limits.max_skew_s:
        raise Invalid("bad-time", f"completed_at: over {limits.max_skew_s} s ahead of its arrival")
    return time


def _place(index: int, entry: Entry) -> int:
    if entry.dnf:
        return DID_NOT_FINISH
    if entry.rank is None:
        raise Invalid("bad-rank", f"standings[{index}]: neither rank nor dnf")
    if not 1 <= entry.rank <= MAX_RANK:
        raise Invalid("bad-rank", f"standings[{index}].rank: not in 1..{MAX_RANK}")
    return entry.rank


def _members(index: int, entry: Entry) -> Sequence[str]:
    if (entry.player is None) == (not entry.team):
        raise Invalid("malformed", f"standings[{index}]: needs a player or a team, one of them")
    return entry.team if entry.team else (entry.player or "",)


def _shares(index: int, entry: Entry, size: int) -> Sequence[float]:
    if entry.shares is None:
        return (1.0,) * size
    place = f"standings[{index}].shares"
    if len(entry.shares) != size:
        raise Invalid("bad-shares", f"{place}: {len(entry.shares)} for {size} players")
    for share in entry.shares:
        if not LEAST_SHARE <= share <= 1.0:
            raise Invalid("bad-shares", f"{place}: {share} is not in [{LEAST_SHARE}, 1]")
    return entry.shares


def _seat(index: int, entry: Entry, rating: RatingConfig) -> str:
    seat: Any = entry.seat
    if seat is None:
        return ""
    if isinstance(seat, str) and re.fullmatch(r"[ -~]{1,8}", seat):
        return seat
    if rating.seats:
        raise Invalid("bad-seat", f"standings[{index}].seat")
    return ""


def _score(index: int, entry: Entry, rating: RatingConfig) -> float | None:
    score = entry.score
    if score is None or math.isfinite(score):
        return score if score is None else float(score)
    if getattr(rating, "score", None) is not None:
        raise Invalid("bad-score", f"standings[{index}].score")
    return None
