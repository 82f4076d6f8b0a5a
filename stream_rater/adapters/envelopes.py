"""What goes around the events that are published: CloudEvents headers, traces, why a record was
rejected and where it came from."""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from stream_rater.contract import events
from stream_rater.contract.record import Record
from stream_rater.contract.tracecontext import Trace, trace_of
from stream_rater.pipeline.ports import Event, Rejection

SOURCE = "stream-rater"

LONGEST_CONTENT_TYPE = 256
"""Of the producer's header, in a rejection."""

Headers = list[tuple[str, Any]]

ALWAYS: Headers = [("content-type", events.JSON.encode()), ("ce_specversion", b"1.0")]


def cloud_event_headers(event_id: str, kind: str, time_: str, source: str = SOURCE) -> Headers:
    """CloudEvents 1.0 in Kafka's binary mode."""
    return [
        ("ce_id", event_id.encode()),
        *ALWAYS,
        ("ce_type", kind.encode()),
        ("ce_source", source.encode()),
        ("ce_time", time_.encode()),
    ]


def round_headers(time_: str, trace: Trace | None) -> Headers:
    """What the events of a round have in common: what they are, and the trace that it carried."""
    _, *common = cloud_event_headers("", events.RATING_CHANGED, time_)
    return common + (trace.headers() if trace else [])


def change_headers(
    event: Event, common: Callable[[str, Trace | None], Headers] = round_headers
) -> Headers:
    """Of a rating change; who makes many has `common` remember."""
    return [("ce_id", event.event_id), *common(event.time, event.trace)]


def rejection_headers(rejection: Rejection, topic: str) -> Headers:
    """Where a rejected record came from and why, with its own content type."""
    record = rejection.record
    content_type = events.header(record.headers, "content-type") or events.JSON
    event_id = f"{topic}:{record.partition}:{record.offset}"
    envelope = dict(cloud_event_headers(event_id, events.ROUND_REJECTED, _moment(record)))
    envelope["content-type"] = content_type[:LONGEST_CONTENT_TYPE].encode()
    trace = trace_of(record.headers)
    return [
        *envelope.items(),
        *(trace.headers() if trace else ()),
        ("error-code", rejection.code.encode()),
        ("error", rejection.message.encode("utf-8", "replace")),
        ("source-topic", topic.encode()),
        ("source-partition", str(record.partition).encode()),
        ("source-offset", str(record.offset).encode()),
    ]


def place_of(headers: events.Headers) -> tuple[int, int] | None:
    """Partition and offset of the record that a rejection is of; None if it is no rejection."""
    told = [events.header(headers, f"source-{name}") for name in ("partition", "offset")]
    return (int(told[0]), int(told[1])) if all(map(str.isdecimal, told)) else None


def _moment(record: Record) -> str:
    """When the log received a record; the epoch where its clock, a client's, makes no sense."""
    try:
        return datetime.fromtimestamp(record.received_s, UTC).isoformat()
    except (ValueError, OverflowError, OSError):
        return datetime.fromtimestamp(0, UTC).isoformat()


def rejected_message(rejection: Rejection, topic: str, largest: int) -> dict[str, Any]:
    """Key, value and headers for `round-rejected`: the original bytes.

    A record that was compressed may hold more than any topic takes in one piece: then it is cut,
    and a header tells its length. One that cannot be decompressed has no bytes here, and a header
    says so. All of either is still at its source.
    """
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
