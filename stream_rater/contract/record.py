"""The input of both machines: a record of a Kafka topic, and the key of a belief."""

import zlib

import msgspec

from stream_rater.contract.events import Headers

Player = tuple[str, str]
"""(ladder, player id): the key of a belief."""


class Record(msgspec.Struct, frozen=True, gc=False):
    """One record of a machine's input topic."""

    partition: int
    offset: int
    value: bytes | None
    headers: Headers = ()
    received_s: float = 0.0
    """The time when the log received the record, in Unix seconds."""
    key: bytes | None = None
    unreadable: str = ""
    """Why the value cannot be read: the record's batch decompresses to more bytes than the worker
    accepts. Empty if nothing is wrong."""


def checksum(message: bytes | None) -> int:
    """The checksum of a message of any kind. A message without a value has one, too."""
    return zlib.crc32(message or b"")
