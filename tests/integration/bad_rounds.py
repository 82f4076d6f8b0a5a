"""Records that are no valid rounds, by the code that they are rejected with."""

import random
import socket
import struct
import time
from collections.abc import Iterator, Sequence
from typing import Any

from stream_rater.columns.sharding import partition_of
from tests import rounds
from tests.integration.topics import Bytes

LADDER = "ranked-eu"
SMALL = "small"
MOST = 4  # The most entries that the small ladder allows.

LADDERS = f"""
[ladders.{LADDER}]
rating = {{ system = "elo-mmr", weight_limit = 0.2, sigma_limit = 80 }}
[ladders.{SMALL}]
rating = {{ system = "elo-mmr", weight_limit = 0.2, sigma_limit = 80, seats = {{ home = 60 }} }}
limits = {{ max_entries = {MOST} }}
"""

MEBIBYTE = 2**20
KEY = LADDER.encode()
ANY = -1  # The key decides the partition.
ELSEWHERE = (partition_of(LADDER, 4) + 1) % 4  # One of the four that is not the ladder's partition.
PACKED = [("content-type", b"application/msgpack")]


def a_round(*standings: Any, **fields: Any) -> bytes:
    return rounds.as_json(*standings, **{"completed_at": "2020-05-01T20:15:05Z", **fields})


def packed(*standings: Any, **fields: Any) -> bytes:
    return rounds.as_msgpack(*standings, **{"completed_at": "2020-05-01T20:15:05Z", **fields})


def lobby(size: int) -> list[dict[str, Any]]:
    return rounds.ranked(range(1, size + 1))


def two(**fields: Any) -> list[dict[str, Any]]:
    """Two entries, the second of which has these fields."""
    return [{"player": "ann", "rank": 1}, {"player": "bob", "rank": 2, **fields}]


def text(old: bytes, new: bytes) -> bytes:
    """A valid round with a piece of its text replaced."""
    whole = a_round()
    assert old in whole
    return whole.replace(old, new)


BAD: dict[str, list[bytes | None]] = {
    "malformed": [
        None, b"", b"\0", b"{", b"null", b"[]", b"\xff\xfe{}", a_round()[:-1], a_round() + b"x",
        a_round().decode().encode("utf-16"), b"\xef\xbb\xbf" + a_round(),
        text(b'"ann"', b'"\\ud800"'), text(b'"ann"', b'"\xed\xa0\x80"'), text(b'"bob"', b"null"),
        text(b'"standings":[', b'"standings":[1,'), a_round(*two(team=["x"])),
        a_round(performance_ceiling="high"), packed(),
    ],
    "too-large": [
        a_round() + b" " * (8 * MEBIBYTE), random.Random(1).randbytes(16 * MEBIBYTE - 200),
    ],
    "too-deep": [
        b"[" * 25_000 + b"]" * 25_000, b"[" * 50_000, b'{"a":' * 10_000,
        text(b'"ranked-eu"', b"[" * 50 + b"]" * 50),
    ],
    "unknown-ladder": [a_round(ladder=name) for name in ("ranked-us", "*", "Ranked-eu")],
    "too-few-entries": [text(b"[{", b"[],\"x\":[{"), a_round({"player": "ann", "rank": 1})],
    "too-many-entries": [a_round(*lobby(MOST + 1), ladder=SMALL)],
    "duplicate-player": [
        a_round(*two(player="ann")),
        a_round({"team": ["ann", "ann"], "rank": 1}, {"player": "bob", "rank": 2}),
    ],
    "bad-rank": [
        a_round(*two(rank=rank)) for rank in (0, -1, 1.5, "2", None, 2**31, 2**63, 2**64, True)
    ],
    "bad-weight": [
        *(a_round(weight=weight) for weight in (0, -1, 1e9, "1", None)),
        text(b'"round_id"', b'"weight":1e999,"round_id"'),
    ],
    "bad-shares": [
        a_round(*two(player=None, team=["b", "c"], shares=shares))
        for shares in ([1], [1, 0], [1, -1], [1, 2], ["1", "1"], "11")
    ],
    "bad-seat": [
        a_round(*two(seat=seat), ladder=SMALL) for seat in ("", "123456789", "ä", 7, ["home"])
    ],
    "bad-id": [
        b"{}", *(a_round(round_id=each) for each in ("", "x" * 129, 7)),
        *(a_round(ladder=each) for each in ("", "\u00e9" * 65)),
        *(a_round(*two(player=each)) for each in ("", "x" * 129, ["x"])),
    ],
    "bad-time": [
        a_round(completed_at=time)
        for time in (
            "", "yesterday", "2020-05-01", "2020-05-01T20:15:05", "2020-13-01T00:00:00Z", 1.5e9,
            "1899-12-31T23:59:59Z", "2999-01-01T00:00:00Z", "2020-05-01T20:15:05Z" + "0" * 100,
        )
    ],
    "duplicate-round": [a_round(round_id="good-0"), a_round(*lobby(3), round_id="good-0")],
    "wrong-partition": [a_round(round_id="elsewhere"), a_round(*lobby(40), round_id="nowhere")],
}  # fmt: skip

BAD_PACKED = {
    "malformed": [
        b"", b"\xc1", packed()[:-1], packed() + b"\x01", a_round(), b"\xdb\xff\xff\xff\xff",
    ],
    "too-deep": [b"\x91" * 50_000, b"\x81\xa1x" * 20_000],
    "bad-rank": [packed(*two(rank=0))],
    "bad-id": [packed(round_id="")],
}  # fmt: skip


def bad_records() -> Iterator[tuple[str, Bytes]]:
    for code, values in BAD.items():
        for value in values:
            yield code, Bytes(value, KEY, partition=ELSEWHERE if code == "wrong-partition" else ANY)
    for code, packed_values in BAD_PACKED.items():
        for packed_value in packed_values:
            yield code, Bytes(packed_value, KEY, PACKED)


def good_record(number: int) -> Bytes:
    """A valid round of ann and bob."""
    name = f"good-{number}"
    if number % 3 == 1:
        return Bytes(packed(round_id=name), KEY, PACKED)
    return Bytes(a_round(round_id=name), KEY, ODD_HEADERS[number % len(ODD_HEADERS)])


ODD_HEADERS: list[list[tuple[str, bytes | None]]] = [
    [], [("content-type", None)], [("content-type", b"")],
    [("content-type", b"application/json; charset=utf-8")], [("content-type", b"\xff\xfe")],
    [("", b""), ("\u00fc", None), ("ce_id", b"\x00")], [("x", b"y")] * 1000,
    [("large", b"z" * MEBIBYTE)],
]  # fmt: skip
"""Headers that do not matter."""


def random_bytes(rng: random.Random, count: int) -> Iterator[Bytes]:
    """Random bytes, and valid rounds with some bytes changed; most of them are no valid rounds."""
    whole = (a_round(*lobby(6)), packed(*lobby(6)))
    for number in range(count):
        headers = PACKED if rng.random() < 0.5 else []
        if rng.random() < 0.3:
            yield Bytes(rng.randbytes(rng.randrange(300)), KEY, headers)
            continue
        value = bytearray(whole[1 if headers else 0].replace(b"r-1", b"%03d" % (number % 999)))
        for _ in range(rng.randint(1, 3)):
            at = rng.randrange(len(value))
            value[at : at + rng.randrange(3)] = rng.randbytes(rng.randrange(3))
        yield Bytes(bytes(value), KEY, headers)


# --- what confluent_kafka cannot send -------------------------------------------------------------

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
