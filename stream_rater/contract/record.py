"""What both machines read: a record of a Kafka topic, and whom a belief is of."""

import zlib

import msgspec

from stream_rater.contract.events import Headers

Player = tuple[str, str]
"""(ladder, player id): whose belief it is."""


class Record(msgspec.Struct, frozen=True, gc=False):
    """One record of a machine's input topic."""

    partition: int
    offset: int
    value: bytes | None
    headers: Headers = ()
    received_s: float = 0.0
    """When the log took it in, Unix seconds."""
    key: bytes | None = None
    unreadable: str = ""
    """Why its bytes cannot be had: it came in a batch that decompresses to more than we take."""


def checksum(message: bytes | None) -> int:
    """The checksum of a message, which may be of any kind or have no value."""
    return zlib.crc32(message or b"")
