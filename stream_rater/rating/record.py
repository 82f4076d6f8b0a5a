"""Encodes beliefs as records. A record is one player's posterior in bytes, as Redis stores it.

The layout is fixed and little-endian. It has no checksum, which is the store's task:

    0  version u8      3  rounds u24          16  time before the last round i40
    1  grid i8         6  last offset i40     21  mu, sigma and those before the round: 4 float32
    2  count u8       11  time i40            37  season and that before the last round: 2 u16

   41  flags u8: bit 0 is untold,             42  end of the header
       bit 1 says that a volatility follows

The flag `untold` says that no event has published the present values. Behind the header comes the
relative volatility of Glicko-2 (float32), if the belief has one. If there are logistic factors,
center, precision, scale and width follow (4 float32), then the 48 bits of each factor's code (see
`factor`).

A record without factors has version 3, so that the release before can read it. Records of version 3
with factors are read, too, and are written in this form with the next change. Their codes have 40
bits, because an excess width has 8 bits less: those of the mantissa.

Beliefs are rounded to these formats after each round (see `factor`), so encoding and decoding
change nothing. A record of an unknown version, or of a length that does not match its count, is
rejected.
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from stream_rater.columns.arrays import Bytes, Ints
from stream_rater.columns.kernels import kernel
from stream_rater.columns.player_column import RecordColumn
from stream_rater.columns.strings import put
from stream_rater.rating.factor import OLD_WIDTH_BITS, wider
from stream_rater.rating.model import HEADER, NEVER, Beliefs, Codes, Table, newcomers

VERSION = 4
OLD_VERSION = 3  # That of records without factors, and of those that the release before wrote.
READS = f"this release reads {OLD_VERSION} and {VERSION}"
HEADER_SIZE = 42
HISTORY_SIZE = 16
"""The size in bytes of what all logistic factors share: center, precision, scale and width."""
FACTOR_SIZE = 6  # The size in bytes of a factor's code.
OLD_FACTOR_SIZE = 5
MOST_FACTORS = 64
UNANNOUNCED = 1  # The bit of the flags for `untold`: no event has published the present values.
VOLATILE = 2
"""The bit of the flags which says that a volatility follows the header. A record of a release that
does not know it is too long for its count, and is refused."""
VOLATILITY_SIZE = 4  # The size in bytes of a volatility.

ROUNDS_SIZE, OFFSET_SIZE, TIME_SIZE, SEASON_SIZE = 3, 5, 5, 2
MOST_ROUNDS = 2 ** (8 * ROUNDS_SIZE) - 1
NO_OFFSET = -(2 ** (8 * OFFSET_SIZE - 1))  # The encoded offset that stands for NEVER.


class UnknownRecord(ValueError):
    """Bytes that are not a belief record of this version."""


class Unrecordable(ValueError):
    """A belief that cannot be encoded: it has a full history, or a number is too large."""


@kernel
def _put(out: Bytes, at: int, size: int, value: Any) -> int:
    for k in range(size):
        out[at + k] = (value >> (8 * k)) & 255
    return at + size


@kernel
def _put_single(out: Bytes, at: int, value: float) -> int:
    return _put(out, at, 4, np.int64(np.float32(value).view(np.int32)))


@kernel
def _get(data: Bytes, at: int, size: int) -> int:
    """An unsigned integer of `size` bytes."""
    value = np.int64(0)
    for k in range(size):
        value |= np.int64(data[at + k]) << (8 * k)
    return int(value)


@kernel
def _get_signed(data: Bytes, at: int, size: int) -> int:
    shift = 64 - 8 * size
    return int((np.int64(_get(data, at, size)) << shift) >> shift)


@kernel
def _get_single(data: Bytes, at: int) -> float:
    value: float = np.float64(np.int32(_get_signed(data, at, 4)).view(np.float32))
    return value


@kernel
def _pack(header: Table, factors: Codes, starts: Ints, out: Bytes) -> None:
    """Write the record of belief i at starts[i]."""
    for i in range(len(header)):
        belief, at = header[i], starts[i]
        at = _put(out, at, 1, VERSION if belief.count > 0 else OLD_VERSION)
        at = _put(out, at, 1, belief.grid)
        at = _put(out, at, 1, belief.count)
        at = _put(out, at, ROUNDS_SIZE, belief.rounds)
        at = _put(out, at, OFFSET_SIZE, belief.last if belief.last != NEVER else NO_OFFSET)
        at = _put(out, at, TIME_SIZE, belief.time)
        at = _put(out, at, TIME_SIZE, belief.previous_time)
        for x in (belief.mu, belief.sigma, belief.previous_mu, belief.previous_sigma):
            at = _put_single(out, at, x)
        at = _put(out, at, SEASON_SIZE, belief.season)
        at = _put(out, at, SEASON_SIZE, belief.previous_season)
        volatile = belief.volatility > 0.0
        at = _put(out, at, 1, (belief.untold + 0) | (VOLATILE if volatile else 0))
        if volatile:
            at = _put_single(out, at, belief.volatility)
        if belief.count == 0:
            continue
        for x in (belief.center, belief.precision, belief.scale, belief.width):
            at = _put_single(out, at, x)
        for k in range(belief.count):
            at = _put(out, at, FACTOR_SIZE, factors[i, k])


@kernel
def _is_known(version: int) -> bool:
    return version in (VERSION, OLD_VERSION)


@kernel
def _unpack_header(data: Bytes, at: int, belief: Table, i: int) -> None:
    to = belief[i]
    to.version, to.grid, to.count = data[at], _get_signed(data, at + 1, 1), data[at + 2]
    to.rounds = _get(data, at + 3, ROUNDS_SIZE)
    last = _get_signed(data, at + 6, OFFSET_SIZE)
    to.last = last if last != NO_OFFSET else NEVER
    to.time = _get_signed(data, at + 11, TIME_SIZE)
    to.previous_time = _get_signed(data, at + 16, TIME_SIZE)
    to.mu, to.sigma = _get_single(data, at + 21), _get_single(data, at + 25)
    to.previous_mu, to.previous_sigma = _get_single(data, at + 29), _get_single(data, at + 33)
    to.season = _get(data, at + 37, SEASON_SIZE)
    to.previous_season = _get(data, at + 39, SEASON_SIZE)
    to.untold = data[at + 41] & UNANNOUNCED


@kernel
def _unpack_headers_at(data: Bytes, starts: Ints, ends: Ints, rows: Ints, header: Table) -> int:
    """Read the header of each record in these rows into the same row of `header`. Returns the row
    of the first record that is none of this version; -1 if there is no such record."""
    for i in rows:
        if ends[i] - starts[i] < HEADER_SIZE or not _is_known(data[starts[i]]):
            return int(i)
        _unpack_header(data, starts[i], header, i)
    return -1


@kernel
def _copy_headers(data: Bytes, starts: Ints, ends: Ints, rows: Ints, out: Bytes) -> None:
    """Copy the header of each record in these rows to its place."""
    for i in rows:
        put(out, i * HEADER_SIZE, data, starts[i], min(ends[i], starts[i] + HEADER_SIZE))


@kernel
def _unpack(data: Bytes, starts: Ints, rows: Ints, header: Table, factors: Codes) -> None:
    """Read the record at starts[i] into belief rows[i]."""
    for i in range(len(rows)):
        at, row = starts[i], rows[i]
        _unpack_header(data, at, header, row)
        belief, volatile = header[row], data[at + HEADER_SIZE - 1] & VOLATILE
        at += HEADER_SIZE
        if volatile:
            belief.volatility = _get_single(data, at)
            at += VOLATILITY_SIZE
        if belief.count == 0:
            belief.center, belief.precision = belief.mu, 1.0 / (belief.sigma * belief.sigma)
            continue
        belief.center, belief.precision = _get_single(data, at), _get_single(data, at + 4)
        belief.scale, belief.width = _get_single(data, at + 8), _get_single(data, at + 12)
        at += HISTORY_SIZE
        for k in range(belief.count):
            if belief.version == VERSION:
                factors[row, k] = _get(data, at, FACTOR_SIZE)
                at += FACTOR_SIZE
            else:
                factors[row, k] = wider(_get(data, at, OLD_FACTOR_SIZE), OLD_WIDTH_BITS)
                at += OLD_FACTOR_SIZE


def encode(beliefs: Beliefs) -> list[bytes]:
    """The record of each belief. Raises Unrecordable."""
    out, starts = encode_all(beliefs)
    data = out.tobytes()
    return [data[a:b] for a, b in pairwise(starts.tolist())]


def encode_all(beliefs: Beliefs) -> tuple[Bytes, Ints]:
    """The records of all beliefs, concatenated, and (n + 1,) the start of each and the end of the
    last. Raises Unrecordable."""
    header = beliefs.header
    _check(beliefs)
    starts = np.zeros(len(header) + 1, np.int64)
    sizes = _size(header["count"].astype(np.int64), header["volatility"] > 0.0)
    np.cumsum(sizes, out=starts[1:])
    out = np.empty(starts[-1], np.uint8)
    _pack(header, beliefs.factors, starts, out)
    return out, starts


def _size(count: Any, volatile: Any) -> Any:
    """The bytes of a record with this many factors (an integer or an array). `volatile`: whether it
    has a volatility."""
    history = (count > 0) * HISTORY_SIZE + FACTOR_SIZE * count
    return HEADER_SIZE + volatile * VOLATILITY_SIZE + history


def _check(beliefs: Beliefs) -> None:
    header = beliefs.header
    if beliefs.in_full:
        raise Unrecordable("belief record: these beliefs have a full history")
    for name, most in (
        ("count", MOST_FACTORS), ("rounds", MOST_ROUNDS), ("last", -NO_OFFSET - 1),
        ("time", -NO_OFFSET - 1),
    ):  # fmt: skip
        if len(header) and header[name].max() > most:
            raise Unrecordable(f"belief record: {name} {header[name].max()} exceeds {most}")


@kernel
def _counts(data: Bytes, starts: Ints, sizes: Ints) -> Ints:
    """(n,) the number of factors of each record; -1 if it is no valid record."""
    counts = np.full(len(starts), -1)
    for i in range(len(starts)):
        at = starts[i]
        if sizes[i] >= HEADER_SIZE and _is_known(data[at]) and data[at + 2] <= MOST_FACTORS:
            count = np.int64(data[at + 2])
            size = FACTOR_SIZE if data[at] == VERSION else OLD_FACTOR_SIZE
            history = HISTORY_SIZE + size * count if count > 0 else 0
            volatile = data[at + HEADER_SIZE - 1] & VOLATILE
            if sizes[i] == HEADER_SIZE + history + (VOLATILITY_SIZE if volatile else 0):
                counts[i] = count
    return counts


def decode(
    records: Sequence[bytes | None], capacity: int, initial_mu: float, initial_sigma: float
) -> Beliefs:
    """Decode records into beliefs; None stands for a newcomer. The beliefs have room for at least
    `capacity` factors, and for one more than any record has. Raises UnknownRecord."""
    column = RecordColumn.of(records)
    rows, strings = np.arange(len(column)), column.strings
    if column.absent:
        rows = np.flatnonzero(column.is_present)
        strings = strings.take(rows)
    counts = _counts(strings.data, strings.starts, strings.ends - strings.starts)
    if counts.min(initial=0) < 0:
        raise UnknownRecord(_why_unknown(strings.strings()[int(np.argmax(counts < 0))]))
    room = max(capacity, int(counts.max(initial=-1)) + 1)
    header, factors = np.zeros(len(column), HEADER), np.zeros((len(column), room), np.int64)
    if len(rows) < len(column):
        newcomer = newcomers(1, 0, initial_mu, initial_sigma).header
        header[~column.is_present] = newcomer
    _unpack(strings.data, strings.starts, rows, header, factors)
    return Beliefs(header, factors)


def headers_of(records: Sequence[bytes | None]) -> Table:
    """(n,) the headers of records. A missing record gives a header of zeros: its version is 0, and
    its `last` says nothing. Fields of `HEADER` that a record does not contain are zero. Raises
    UnknownRecord."""
    column = RecordColumn.of(records)
    header = np.zeros(len(column), HEADER)
    rows, strings = np.flatnonzero(column.is_present), column.strings
    wrong = _unpack_headers_at(strings.data, strings.starts, strings.ends, rows, header)
    if wrong >= 0:
        raise UnknownRecord(_why_unknown(strings.slice(wrong, wrong + 1).strings()[0]))
    return header


def header_bytes(records: Sequence[bytes | None]) -> bytes:
    """The first HEADER_SIZE bytes of each record, concatenated; zeros for a missing one, and in the
    place of bytes that a record does not have."""
    column = RecordColumn.of(records)
    rows, strings = np.flatnonzero(column.is_present), column.strings
    out = np.zeros(len(column) * HEADER_SIZE, np.uint8)
    _copy_headers(strings.data, strings.starts, strings.ends, rows, out)
    return out.tobytes()


def _why_unknown(record: bytes) -> str:
    if not record or record[0] not in (VERSION, OLD_VERSION):
        version = record[0] if record else "missing"
        return f"belief record: version {version}, {READS}"
    count = record[2] if len(record) >= HEADER_SIZE else 0
    return f"belief record: {len(record)} bytes for {count} factors"


def read_headers(data: bytes) -> Table:
    """Decode concatenated headers of HEADER_SIZE bytes. A header of zeros means no belief. Fields
    of `HEADER` that the bytes do not contain are zero. Raises UnknownRecord."""
    if len(data) % HEADER_SIZE:
        raise UnknownRecord(f"belief record: {len(data)} bytes are no whole number of headers")
    packed = np.frombuffer(bytearray(data), np.uint8)  # the kernel is compiled for what is writable
    versions = packed[::HEADER_SIZE]
    unknown = versions[~np.isin(versions, (0, OLD_VERSION, VERSION))]
    if len(unknown):
        raise UnknownRecord(f"belief record: version {unknown[0]}, {READS}")
    header, starts = np.zeros(len(versions), HEADER), np.arange(0, len(data), HEADER_SIZE)
    _unpack_headers_at(packed, starts, starts + HEADER_SIZE, np.flatnonzero(versions), header)
    return header
