"""Headers of published records: CloudEvents, traces, corrections and rejections; and `Sender`."""

import uuid
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime
from itertools import islice
from typing import Any

import msgspec

from stream_rater.contract import corrections, events
from stream_rater.contract.record import Headers as RecordHeaders
from stream_rater.contract.record import (
    Record,
    RecordPlace,
    RejectedRecord,
    Trace,
    header,
    trace_of,
)
from stream_rater.pipeline.ports import Event, Rejection
from stream_rater.pipeline.updater.rating_events import Events

DECIDED_OFFSET = "decided-offset"  # The header with `Rejection.decided_at`.
LONGEST_CONTENT_TYPE = 256
"""The most characters of a record's content type, or kind, that a rejection repeats."""

Headers = list[tuple[str, Any]]


def round_headers(time_: str, trace: Trace | None) -> Headers:
    """The headers that all rating changes of a round share: CloudEvents and the trace context."""
    _, *common = events.cloud_event_headers("", events.RATING_CHANGED, time_)
    return common + (trace.headers() if trace else [])


def change_headers(event: Event) -> Headers:
    """The headers of a rating change."""
    return [("ce_id", event.event_id), *round_headers(event.time, event.trace)]


def event_of(record: Record) -> Event:
    """The event in a record of `rating-changed`."""
    event_id, time_ = (dict(record.headers)[name] or b"" for name in ("ce_id", "ce_time"))
    return Event(
        record.partition, record.key or b"", record.value or b"", event_id, time_.decode(),
        trace_of(record.headers),
    )  # fmt: skip


def change_messages(events: Events) -> Iterator[tuple[int, bytes, bytes, Headers]]:
    """Yield the partition, key, value and headers of rating changes, in the order of `Events`."""
    shared = {id(run.times): run.times for run in events.runs}
    common = {name: [round_headers(*each) for each in times] for name, times in shared.items()}
    runs = [(run.shard, common[id(run.times)], run.texts()) for run in events.runs]
    for most in (1, None):
        for shard, headers, texts in runs:
            for key, event_id, value, time_ in islice(texts, most):
                yield shard, key, value, [("ce_id", event_id), *headers[time_]]


def rejection_headers(rejection: Rejection, topic: str) -> Headers:
    """The headers of a rejection: the record's place, the reason, the record's content type, its
    kind if it is a correction, and the offset of the later record that decided, if there is one."""
    record = rejection.record
    content_type = header(record.headers, "content-type") or events.JSON
    event_id = f"{topic}:{record.partition}:{record.offset}"
    try:
        received = datetime.fromtimestamp(record.received_s, UTC)
    except (ValueError, OverflowError, OSError):  # the timestamp is not a valid time
        received = datetime.fromtimestamp(0, UTC)
    envelope = dict(
        events.cloud_event_headers(event_id, events.ROUND_REJECTED, received.isoformat())
    )
    envelope["content-type"] = content_type[:LONGEST_CONTENT_TYPE].encode()
    trace = trace_of(record.headers)
    kind, decided_at = header(record.headers, corrections.EVENT_TYPE), rejection.decided_at
    return [
        *envelope.items(),
        *([(corrections.EVENT_TYPE, kind[:LONGEST_CONTENT_TYPE].encode())] if kind else ()),
        *(trace.headers() if trace else ()),
        ("error-code", rejection.code.encode()),
        ("error", rejection.message.encode("utf-8", "replace")),
        ("source-topic", topic.encode()),
        ("source-partition", str(record.partition).encode()),
        ("source-offset", str(record.offset).encode()),
        *([(DECIDED_OFFSET, str(decided_at).encode())] if decided_at is not None else ()),
    ]


def place_of(headers: RecordHeaders) -> tuple[int, int] | None:
    """The place of a rejected record, from the rejection's headers; None if it is no rejection."""
    place = [header(headers, f"source-{name}") for name in ("partition", "offset")]
    return (int(place[0]), int(place[1])) if all(map(str.isdecimal, place)) else None


def next_offset_of(headers: RecordHeaders) -> tuple[int, int] | None:
    """The partition and `next_offset` of a rejection, by its headers; None if it is none."""
    place, decided_at = place_of(headers), header(headers, DECIDED_OFFSET)
    if place is None:
        return None
    return place[0], (int(decided_at) if decided_at.isdecimal() else place[1]) + 1


class _Names(msgspec.Struct):
    """The ladder and the id that a round names."""

    ladder: str = ""
    round_id: str = ""


_names = msgspec.json.Decoder(_Names).decode


def rejection_in(record: Record) -> RejectedRecord | None:
    """The rejection in a record of `round-rejected`; None if it is none."""
    place, names = place_of(record.headers), _Names()
    if place is None:
        return None
    if not header(record.headers, corrections.EVENT_TYPE):
        with suppress(*events.UNDECODABLE):
            names = _names(record.value or b"")
    code, detail = header(record.headers, "error-code"), header(record.headers, "error")
    return RejectedRecord(RecordPlace(*place), code, detail, names.ladder, names.round_id)


def rejected_record(rejection: Rejection) -> RejectedRecord:
    """A rejection that is not in a topic, as `rejection_in` returns it."""
    record = rejection.record
    is_round = not header(record.headers, corrections.EVENT_TYPE)
    names = (rejection.ladder, rejection.round_id) if is_round else ("", "")
    place = RecordPlace(record.partition, record.offset)
    return RejectedRecord(place, rejection.code, rejection.message, *names)


def rejected_message(rejection: Rejection, topic: str, largest: int) -> dict[str, Any]:
    """The key, value and headers of a message in `round-rejected`. Key and value are the record's
    bytes. A compressed record may hold more bytes than any topic takes in one message. Then they
    are cut to `largest`, and the header `original-bytes` has their number. A record that cannot be
    decompressed has no bytes here; its `original-bytes` is `unknown`. The whole record is still at
    its source."""
    key, value = rejection.record.key, rejection.record.value
    headers = rejection_headers(rejection, topic)
    if rejection.record.unreadable:
        headers.append(("original-bytes", b"unknown"))
    size = len(key or b"") + len(value or b"")
    if size > largest:
        key = key and key[: largest // 2]
        value = value and value[: largest - len(key or b"")]
        headers.append(("original-bytes", str(size).encode()))
    return {"key": key, "value": value, "headers": headers}


class Sender(ABC):
    """Appends rounds, seeds and corrections to the log (`places.port.Submitter`)."""

    def __init__(self) -> None:
        self.failures: list[str] = []
        """Why records were not appended. An append to a file raises an error instead."""
        self.corrections: list[tuple[int, int]] = []
        """Partition and offset of each seed, reset or correction that was appended, in order."""

    def submit(self, ladder: str, round_id: str, completed_at: str, value: bytes) -> None:
        """Append one round."""
        headers = events.cloud_event_headers(round_id, events.ROUND_COMPLETED, completed_at)
        self._send(round_id, ladder, value, headers, corrects=False)

    def correct(self, ladder: str, kind: str, value: bytes, subject: str) -> None:
        """Append one correction, seed or reset of this kind. `subject` is what it is about."""
        now = datetime.now(UTC).isoformat()
        headers = events.cloud_event_headers(uuid.uuid4().hex, kind, now)
        headers.append((corrections.EVENT_TYPE, kind.encode()))
        self._send(f"{kind} {subject}".rstrip(), ladder, value, headers, corrects=True)

    @abstractmethod
    def _send(
        self, name: str, ladder: str, value: bytes, headers: Headers, *, corrects: bool
    ) -> None:
        """Append one record, keyed by ladder. `name` is what messages call the record."""

    @abstractmethod
    def flush(self) -> None:
        """Wait until the outcome of all records is known."""
