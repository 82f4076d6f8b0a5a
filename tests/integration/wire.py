"""Sends one record that confluent_kafka cannot: produce version 3, record batch version 2."""

import socket
import struct
import time
from collections.abc import Sequence

PRODUCE, VERSION, CORRELATION_ID = 0, 3, 7
CASTAGNOLI = 0x82F63B78
TIMEOUT_S = 180.0


def append(
    kafka: str, topic: str, partition: int, value: bytes, *, key: bytes,
    headers: Sequence[tuple[bytes, bytes | None]],
) -> int:  # fmt: skip
    """Append a record whose header names may be any bytes. Returns its offset."""
    batch = _batch(_record(value, key, headers))
    name = topic.encode()
    body = (
        struct.pack(">hhihhhi", PRODUCE, VERSION, CORRELATION_ID, -1, -1, -1, int(1000 * TIMEOUT_S))
        + struct.pack(">ih", 1, len(name)) + name
        + struct.pack(">iii", 1, partition, len(batch)) + batch
    )  # fmt: skip
    host, _, port = kafka.rpartition(":")
    with socket.create_connection((host, int(port)), timeout=TIMEOUT_S) as broker:
        broker.sendall(struct.pack(">i", len(body)) + body)
        stream = broker.makefile("rb")
        answer = stream.read(struct.unpack(">i", stream.read(4))[0])
    # correlation id, topics, name, partitions, partition, then error and offset
    error, offset = struct.unpack_from(">hq", answer, 4 + 4 + 2 + len(name) + 4 + 4)
    assert error == 0, f"Kafka answered with error {error}"
    return int(offset)


def _record(value: bytes, key: bytes, headers: Sequence[tuple[bytes, bytes | None]]) -> bytes:
    fields = b"\0" + _varint(0) + _varint(0) + _sized(key) + _sized(value) + _varint(len(headers))
    fields += b"".join(_sized(name) + _sized(content) for name, content in headers)
    return _varint(len(fields)) + fields


def _batch(record: bytes) -> bytes:
    now_ms = int(1000 * time.time())
    tail = struct.pack(">hiqqqhii", 0, 0, now_ms, now_ms, -1, -1, -1, 1) + record
    return struct.pack(">qiibI", 0, 4 + 1 + 4 + len(tail), -1, 2, _crc32c(tail)) + tail


def _varint(number: int) -> bytes:
    """A zigzag varint."""
    number = (number << 1) ^ (number >> 63)
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes(out) + bytes([number])


def _sized(data: bytes | None) -> bytes:
    return _varint(-1) if data is None else _varint(len(data)) + data


def _crc32c(data: bytes) -> int:
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (CASTAGNOLI if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF
