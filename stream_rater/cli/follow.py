"""`stream-rater watch` and `stream-rater rejected`: what the service writes, as it comes."""

import base64
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

import msgspec

from stream_rater.adapters.kafka.reader import follow
from stream_rater.adapters.kafka.topics import Admin
from stream_rater.config.errors import BadConfiguration, Failed
from stream_rater.config.settings import Settings
from stream_rater.contract.corrections import EVENT_TYPE
from stream_rater.contract.events import (
    JSON,
    MAX_ID_BYTES,
    RatingChanged,
    header,
    rating_changed_from_json,
    shown,
)
from stream_rater.contract.record import Record
from stream_rater.rounds.validation import CODES
from stream_rater.runtime.failures import named_failures

SILENT_S = 5.0
"""After so long without a line it says that it waits."""

SHOWN_LINE = "{time}  {ladder:<16} {who:<24} {what}"


class Following(msgspec.Struct, frozen=True, kw_only=True):
    """From where, and until when, a topic is followed."""

    from_start: bool = False
    count: int | None = None
    """Stop after so many lines; None: never."""
    wait_s: float | None = None
    """Stop after so long without one; None: never."""


def watch(
    settings: Settings, following: Following, *, ladder: str | None, player: str | None,
    as_json: bool,
) -> None:  # fmt: skip
    """Print rating-changed events as they come."""

    def line(record: Record) -> str | None:
        value = record.value
        if value is None:  # its player was erased
            return None
        event = rating_changed_from_json(value)
        if (ladder and event.ladder != ladder) or (player and event.player != player):
            return None
        return value.decode() if as_json else _told(event)

    with named_failures():
        admin = Admin(settings)
        chosen = {"ladder": ladder, "player": player}
        _print_lines(settings, admin, admin.topics.changed, following, line, chosen)


def rejected(
    settings: Settings, following: Following, *, ladder: str | None, code: str | None,
    as_json: bool,
) -> None:  # fmt: skip
    """Print rejected rounds as they come, each with the reason and its place."""
    if code is not None and code not in CODES:
        raise BadConfiguration(f"--code: none is {code!r}; they are {', '.join(sorted(CODES))}")

    def line(record: Record) -> str | None:
        told = rejection_of(record)
        if (ladder and told.ladder != ladder) or (code and told.code != code):
            return None
        return msgspec.json.encode(told).decode() if as_json else _told_rejection(told)

    with named_failures():
        admin = Admin(settings)
        chosen = {"ladder": ladder, "code": code}
        _print_lines(settings, admin, admin.topics.rejected, following, line, chosen)


def _print_lines(
    settings: Settings, admin: Admin, topic: str, following: Following,
    line: Callable[[Record], str | None], chosen: Mapping[str, str | None],
) -> None:  # fmt: skip
    """Print the lines of a topic's records; Failed where there were fewer than asked for.

    `chosen` is what `line` selects by, in the words of the options.
    """
    (partitions,) = admin.partitions_of(topic)
    records = follow(settings, topic, partitions, from_start=following.from_start)
    printed = 0
    lines = (None if each is None else line(each) for each in records)
    told = _waiting(topic, following, chosen)
    for text in _in_time(lines, following.wait_s, time.monotonic, told):
        print(text, flush=True)
        printed += 1
        if printed == following.count:
            return
    if following.count is not None:
        raise Failed(
            f"{topic}: {printed} of {following.count} lines, and no other within "
            f"{following.wait_s:g} s"
        )


def _waiting(topic: str, following: Following, chosen: Mapping[str, str | None]) -> str:
    """What is waited for, in one line."""
    given = ", ".join(f"{name} {value!r}" for name, value in chosen.items() if value)
    of = f" of {given}" if given else ""
    earlier = "" if following.from_start else "; --from-start begins with what is there"
    return f"{topic}: waiting for messages{of} (Ctrl-C ends it{earlier})"


def _in_time(
    lines: Iterator[str | None], wait_s: float | None, clock: Callable[[], float], waiting: str
) -> Iterator[str]:
    """The lines, until none has come for so long; None stands for a while without one.

    If it may wait for ever, `waiting` is printed on standard error once, after SILENT_S.
    """
    last_s, told = clock(), wait_s is not None
    for text in lines:
        if text is not None:
            yield text
            last_s = clock()
            continue
        silent_s = clock() - last_s
        if wait_s is not None and silent_s >= wait_s:
            return
        if not told and silent_s >= SILENT_S:
            print(waiting, file=sys.stderr)
            told = True


# --- rating-changed ------------------------------------------------------------------------------


def _told(event: RatingChanged) -> str:
    return SHOWN_LINE.format(
        time=in_utc(event.completed_at), ladder=shown(event.ladder), who=shown(event.player),
        what=outcome_of(event),
    )  # fmt: skip


def in_utc(time: str) -> str:
    """A time of RFC 3339 as a column shows it: in UTC, to the second. What is none stays as it
    is."""
    try:
        return datetime.fromisoformat(time).astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    except (ValueError, OverflowError):
        return shown(time)


def outcome_of(event: RatingChanged) -> str:
    """What a round or a correction did to a player, as a line's end. A newcomer's rating before the
    first round is no number that anybody was shown: there is none."""
    before, change = f"{event.previous_rating:.1f}", event.rating - event.previous_rating
    moved = f"{before:>7} -> {event.rating:7.1f} ({change:+.1f})"
    if (correction := event.correction) is not None:
        of = f"{correction.cause} {correction.round_id}".rstrip()
        return f"{'correction':<14} {moved}  {shown(of)}"
    rank = "did not finish" if event.rank is None else f"rank {event.rank}"
    if event.rounds == 1:
        moved = f"{'(new)':>7} -> {event.rating:7.1f}"
    return f"{rank:<14} {moved}  {shown(event.round_id)}"


# --- round-rejected ------------------------------------------------------------------------------


class Rejected(msgspec.Struct, kw_only=True, omit_defaults=True):
    """A rejected record, as `rejected --json` writes it."""

    code: str
    error: str
    event_type: str | None = None
    """The kind of a correction; a round has none."""
    ladder: str | None = None
    """As far as it can be read, as all ids."""
    round_id: str | None = None
    player: str | None = None
    into: str | None = None
    season: int | None = None
    source_topic: str = ""
    source_partition: int | None = None
    source_offset: int | None = None
    rejected_at: str = ""
    """When the record had arrived in the source topic."""
    value: str | None = None
    """The record, where it is text."""
    value_base64: str | None = None
    """The record, where it is not."""


class _Ids(msgspec.Struct):
    """What a record is about: a round, or a correction."""

    ladder: str | None = None
    round_id: str | None = None
    player: Any = None
    into: Any = None
    season: Any = None


_FROM_JSON, _FROM_MSGPACK = msgspec.json.Decoder(_Ids), msgspec.msgpack.Decoder(_Ids)


def rejection_of(record: Record) -> Rejected:
    """What a record of round-rejected says."""
    headers, value = record.headers, record.value or b""
    json = header(headers, "content-type").startswith(JSON)
    ids = _ids(_FROM_JSON if json else _FROM_MSGPACK, value)
    told = Rejected(
        code=header(headers, "error-code"),
        error=header(headers, "error"),
        ladder=ids.ladder,
        round_id=ids.round_id,
        source_topic=header(headers, "source-topic"),
        source_partition=_number(header(headers, "source-partition")),
        source_offset=_number(header(headers, "source-offset")),
        rejected_at=header(headers, "ce_time"),
    )
    if kind := header(headers, EVENT_TYPE):
        told.event_type = kind
        told.player, told.into = _text(ids.player), _text(ids.into)
        told.season = ids.season if isinstance(ids.season, int) else None
    try:
        told.value = value.decode()
    except UnicodeDecodeError:
        told.value_base64 = base64.b64encode(value).decode()
    return told


def _ids(
    decoder: "msgspec.json.Decoder[_Ids] | msgspec.msgpack.Decoder[_Ids]", value: bytes
) -> _Ids:
    try:
        return decoder.decode(value)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return _Ids()


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None


def _number(text: str) -> int | None:
    return int(text) if text.isdecimal() else None


def _told_rejection(told: Rejected) -> str:
    where = f"{told.source_topic} partition {told.source_partition} offset {told.source_offset}"
    kind = f"{shown(told.event_type)[:MAX_ID_BYTES]} refused: " if told.event_type else ""
    return SHOWN_LINE.format(
        time=in_utc(told.rejected_at), ladder=shown(told.ladder or "-")[:MAX_ID_BYTES],
        who=_about(told), what=f"{kind}{shown(told.code)}: {shown(told.error)} ({shown(where)})",
    )  # fmt: skip


def _about(told: Rejected) -> str:
    """Which round it is; of another correction, which player or season."""
    player, into = (shown(each or "")[:MAX_ID_BYTES] for each in (told.player, told.into))
    if told.round_id is not None or told.event_type is None:
        return shown(told.round_id or "-")[:MAX_ID_BYTES]
    if told.season is not None:
        return f"season {told.season}"
    return f"{player} -> {into}" if into else player or "-"
