"""`stream-rater watch` and `stream-rater rejected`: follow topics that the service writes."""

import base64
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

import msgspec

from stream_rater import places
from stream_rater.config.errors import BadConfiguration, Failed, named_failures
from stream_rater.config.settings import Settings
from stream_rater.contract import corrections, events, seeds
from stream_rater.contract.errors import REJECTIONS
from stream_rater.contract.record import Record, header
from stream_rater.places.port import CHANGED, REJECTED

HINT_S = 5.0  # The time without a line after which a hint says that the command waits, in seconds.


class FollowedSpan(msgspec.Struct, frozen=True, kw_only=True):
    """The part of a topic that a command follows."""

    from_start: bool = False  # Whether to begin with the first record that is kept.
    count: int | None = None  # The number of lines after which to stop; None: no limit.
    wait_s: float | None = None  # Stop after this time without a line; None: never.


def watch(
    settings: Settings, following: FollowedSpan, *, ladder: str | None, player: str | None,
    as_json: bool,
) -> Iterator[str]:  # fmt: skip
    """Yield a line for each `rating-changed` event as it comes. `ladder`, `player`: if given, only
    events of this ladder or player. Raises BadConfiguration or Failed."""

    def line(record: Record) -> str | None:
        value = record.value
        if value is None:  # the player was erased
            return None
        event = events.rating_changed_from_json(value)
        if (ladder and event.ladder != ladder) or (player and event.player != player):
            return None
        return value.decode() if as_json else line_of(event)

    yield from _lines(settings, CHANGED, following, line, {"ladder": ladder, "player": player})


def rejected(
    settings: Settings, following: FollowedSpan, *, ladder: str | None, code: str | None,
    as_json: bool,
) -> Iterator[str]:  # fmt: skip
    """Yield a line for each rejected record as it comes. `ladder`, `code`: if given, only records
    of this ladder or with this error code. Raises BadConfiguration or Failed."""
    if code is not None and code not in REJECTIONS:
        raise BadConfiguration(
            f"--code: none is {code!r}; they are {', '.join(sorted(REJECTIONS))}"
        )

    def line(record: Record) -> str | None:
        rejection = rejection_of(record)
        if (ladder and rejection.ladder != ladder) or (code and rejection.code != code):
            return None
        if as_json:
            return msgspec.json.encode(rejection).decode()
        return _line_of_rejection(rejection)

    yield from _lines(settings, REJECTED, following, line, {"ladder": ladder, "code": code})


def _lines(
    settings: Settings, topic: str, following: FollowedSpan, line: Callable[[Record], str | None],
    chosen: Mapping[str, str | None],
) -> Iterator[str]:  # fmt: skip
    """Yield the lines of a topic's records (CHANGED or REJECTED) as they come. `line` makes the
    line of a record, or None to skip it. `chosen`: the options by which `line` selects, for the
    hint. Raises Failed if there are fewer lines than `count`."""
    count = 0
    with named_failures(), places.opened(settings) as place:
        records = place.follow(topic, from_start=following.from_start)
        name = place.topic(topic)
        lines = (None if record is None else line(record) for record in records)
        hint = _hint(name, following, chosen)
        for text in _in_time(lines, following.wait_s, time.monotonic, hint):
            yield text
            count += 1
            if count == following.count:
                return
    if following.count is not None:
        raise Failed(
            f"{name}: {count} of {following.count} lines, and no other within "
            f"{following.wait_s:g} s"
        )


def _hint(topic: str, following: FollowedSpan, chosen: Mapping[str, str | None]) -> str:
    """One line that says which messages the command waits for."""
    given = ", ".join(f"{name} {value!r}" for name, value in chosen.items() if value)
    of = f" of {given}" if given else ""
    earlier = "" if following.from_start else "; --from-start begins with what is there"
    return f"{topic}: waiting for messages{of} (Ctrl-C ends it{earlier})"


def _in_time(
    lines: Iterator[str | None], wait_s: float | None, clock: Callable[[], float], hint: str
) -> Iterator[str]:
    """Yield the lines, and stop after `wait_s` seconds without one. The input has None where no
    line has come for a while. Without `wait_s`, the hint is printed once, after HINT_S."""
    last_s, hinted = clock(), wait_s is not None
    for text in lines:
        if text is not None:
            yield text
            last_s = clock()
            continue
        idle_s = clock() - last_s
        if wait_s is not None and idle_s >= wait_s:
            return
        if not hinted and idle_s >= HINT_S:
            print(hint, file=sys.stderr)
            hinted = True


# --- rating-changed ------------------------------------------------------------------------------


def line_of(event: events.RatingChanged) -> str:
    """A rating change in one line."""
    ladder, player = events.shown(event.ladder), events.shown(event.player)
    return _line(in_utc(event.completed_at), ladder, player, outcome_of(event))


def _line(time: str, ladder: str, who: str, what: str) -> str:
    return f"{time}  {ladder:<16} {who:<24} {what}"


def in_utc(time: str) -> str:
    """An RFC 3339 time in UTC, cut to the second. A text that is not a time stays as it is."""
    try:
        return datetime.fromisoformat(time).astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    except (ValueError, OverflowError):
        return events.shown(time)


def outcome_of(event: events.RatingChanged) -> str:
    """The end of a line: the rank, the correction or the seed, and the ratings before and after. A
    newcomer has no rating before the first round, because none was displayed."""
    before, change = f"{event.previous_rating:.1f}", event.rating - event.previous_rating
    moved = f"{before:>7} -> {event.rating:7.1f} ({change:+.1f})"
    if (correction := event.correction) is not None:
        of = f"{correction.cause} {correction.round_id}".rstrip()
        return f"{_LABELS.get(correction.cause, 'correction'):<14} {moved}  {events.shown(of)}"
    rank = "did not finish" if event.rank is None else f"rank {event.rank}"
    if event.rounds == 1:
        moved = f"{'(new)':>7} -> {event.rating:7.1f}"
    return f"{rank:<14} {moved}  {events.shown(event.round_id)}"


_LABELS = {seeds.SEEDED: "seed", seeds.RESET: "reset"}
"""How a line names what is neither a round nor a correction, by the cause in the event."""


# --- round-rejected ------------------------------------------------------------------------------


class Rejected(msgspec.Struct, kw_only=True, omit_defaults=True):
    """A rejected record, as `rejected --json` writes it."""

    code: str
    error: str
    event_type: str | None = None  # For a correction, a seed or a reset; None for a round.
    ladder: str | None = None  # Like all other ids, None if it cannot be read.
    round_id: str | None = None
    player: str | None = None
    into: str | None = None
    season: int | None = None
    source_topic: str = ""
    source_partition: int | None = None
    source_offset: int | None = None
    rejected_at: str = ""  # The time at which the source topic received the record, RFC 3339.
    value: str | None = None  # The record, if it is text.
    value_base64: str | None = None  # The record, if it is not text.


class _Ids(msgspec.Struct):
    """The ids in a round or in a correction."""

    ladder: str | None = None
    round_id: str | None = None
    player: Any = None
    into: Any = None
    season: Any = None


_from_json = msgspec.json.Decoder(_Ids).decode
_from_msgpack = msgspec.msgpack.Decoder(_Ids).decode


def rejection_of(record: Record) -> Rejected:
    """Decode a record of `round-rejected`."""
    headers, value = record.headers, record.value or b""
    json = header(headers, "content-type").startswith(events.JSON)
    ids = _ids(value, packed=not json)
    rejection = Rejected(
        code=header(headers, "error-code"), error=header(headers, "error"), ladder=ids.ladder,
        round_id=ids.round_id, source_topic=header(headers, "source-topic"),
        source_partition=_number(header(headers, "source-partition")),
        source_offset=_number(header(headers, "source-offset")),
        rejected_at=header(headers, "ce_time"),
    )  # fmt: skip
    if kind := header(headers, corrections.EVENT_TYPE):
        rejection.event_type = kind
        rejection.player, rejection.into = _text(ids.player), _text(ids.into)
        rejection.season = ids.season if isinstance(ids.season, int) else None
    try:
        rejection.value = value.decode()
    except UnicodeDecodeError:
        rejection.value_base64 = base64.b64encode(value).decode()
    return rejection


def _ids(value: bytes, *, packed: bool) -> _Ids:
    try:
        return (_from_msgpack if packed else _from_json)(value)
    except events.UNDECODABLE:
        return _Ids()


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None


def _number(text: str) -> int | None:
    return int(text) if text.isdecimal() else None


def _line_of_rejection(rejection: Rejected) -> str:
    source = rejection.source_topic, rejection.source_partition, rejection.source_offset
    place = events.shown("{} partition {} offset {}".format(*source))
    kind = f"{_short(rejection.event_type)} refused: " if rejection.event_type else ""
    what = f"{kind}{events.shown(rejection.code)}: {events.shown(rejection.error)} ({place})"
    time, ladder = in_utc(rejection.rejected_at), _short(rejection.ladder or "-")
    return _line(time, ladder, _about(rejection), what)


def _about(rejection: Rejected) -> str:
    """The id of the round, or the player or the season of a correction without a round."""
    if rejection.round_id is not None or rejection.event_type is None:
        return _short(rejection.round_id or "-")
    if rejection.season is not None:
        return f"season {rejection.season}"
    player, into = _short(rejection.player or ""), _short(rejection.into or "")
    return f"{player} -> {into}" if into else player or "-"


def _short(text: str) -> str:
    return events.shown(text)[: events.MAX_ID_BYTES]
