"""Committed offsets of `round-completed` in Kafka's form.

The checksum of the record before the offset is in the commit's metadata, a text that Kafka keeps
with each committed offset.
"""

from collections.abc import Mapping

from confluent_kafka import TopicPartition

from stream_rater.pipeline.ports import SourceCommit, Tails

TAIL = "tail="
"""What the metadata begins with. The checksum follows in hexadecimal digits."""


def committing(topic: str, offsets: Mapping[int, int], tails: Tails) -> list[TopicPartition]:
    """The offsets to commit."""
    known = {p: f"{TAIL}{tail:08x}" for p, tail in tails.items() if tail is not None}
    return [
        TopicPartition(topic, p, o, known[p]) if p in known else TopicPartition(topic, p, o)
        for p, o in offsets.items()
    ]


def source_commit(found: TopicPartition) -> SourceCommit | None:
    """A committed offset as Kafka returns it; None: never committed."""
    return SourceCommit(found.offset, _tail_in(found.metadata)) if found.offset >= 0 else None


def _tail_in(metadata: str | None) -> int | None:
    """The checksum in a commit's metadata; None if something else committed it."""
    prefix, digits = (metadata or "")[: len(TAIL)], (metadata or "")[len(TAIL) :]
    try:
        return int(digits, 16) if prefix == TAIL else None
    except ValueError:
        return None
