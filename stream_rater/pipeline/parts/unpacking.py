"""Finds the columns of parts in their messages: one kernel call for many messages.

It accepts messages with the elements that `schema.encode` writes, in MessagePack's shortest forms
or others. It leaves all other messages, including damaged ones, to `schema.decode`, which finds the
mistake if there is one. It accepts no message that `schema.decode` would refuse or read
differently.
"""

import numpy as np

from stream_rater.columns.arrays import Bytes, Ints
from stream_rater.columns.kernels import inlined, kernel
from stream_rater.columns.player_map import Fingerprints
from stream_rater.columns.sharding import shard_of
from stream_rater.columns.siphash import Key, derived, hashed
from stream_rater.columns.strings import are_distinct
from stream_rater.pipeline.parts.schema import EVIDENCE_BYTES, SHORT_EVIDENCE, VERSION
from stream_rater.rating.model import BEGAN

OFFSET, RULE, TIME, ID, ID_END, LADDER, LADDER_END, AT, AT_END, TRACE, TRACE_END = range(11)
ROUND = 11
"""The number of values that are found for each round: three numbers, and the positions where its
texts and its trace start and end."""

INDEX, PLACE, NAME, NAME_END = range(4)
ROW = 4
"""The number of values that are found for each row, besides its evidence. INDEX is the number of
its round, among the rounds of all messages."""

RULES, RULES_END, ROUNDS, ROWS, DISTINCT, SHARDS, HOME = range(7)
MESSAGE = 7
"""The number of values that are found for each message: where its rules start and end; the numbers
after its last round and row; whether all its players have different fingerprints; the number of
shards that it was cut for (0: unknown); and the shard that all its players belong to (NOWHERE:
unknown, or several shards). A message that is left to `schema.decode` has no rules."""

SEEN, SHORT = EVIDENCE_BYTES, SHORT_EVIDENCE
"""The number of bytes of a row's evidence, with and without its last column. A last column that is
left out is NAN."""
NAN = int(np.array([np.nan]).view(np.int64)[0])  # The bits of a NaN. Evidence is written as bits.
LEAST_ROUND, LEAST_ROW = 7, 33  # The fewest bytes that a round and a row take.

OLD_SIZE, SIZE = 7, 8
"""The number of elements in a message of an older release, which does not name the number of
shards, and in one of this release."""

PADDING = bytes(16)
"""Appended to the last message, because the kernel reads a head before it checks whether the head
ends within the message."""

NOWHERE = -1

LIST, TEXT, BYTES = (0x90, 16, 0xDC, 0xDD), (0xA0, 32, 0xD9, 0xDB), (0, 0, 0xC4, 0xC6)
"""MessagePack's type codes of each kind: the first code that contains the size, and the number of
such codes; then the first and the last code that the size follows. The size takes four bytes after
the last of these codes, and half as many after each one before it."""

UINT8, UINT64, INT8, INT64, FLOAT32, FLOAT64 = 0xCC, 0xCF, 0xD0, 0xD3, 0xCA, 0xCB
NIL, FALSE, TRUE = 0xC0, 0xC2, 0xC3


@inlined
def _unsigned(data: Bytes, at: int, width: int) -> int:
    value = np.int64(0)
    for k in range(width):
        value = (value << 8) | np.int64(data[at + k])
    return int(value)


@inlined
def _sized(data: Bytes, at: int, end: int, kind: tuple[int, int, int, int]) -> tuple[int, int]:
    """The size of the item of this kind at `at`, and the position where its content starts; NOWHERE
    if the item is of another kind. Here and in the functions below, an item that starts at NOWHERE
    gives NOWHERE."""
    if not 0 <= at < end:
        return 0, NOWHERE
    short, shorts, first, last = kind
    code = int(np.int64(data[at]))
    if short <= code < short + shorts:
        return code - short, at + 1
    if first <= code <= last:
        width = 4 >> (last - code)
        return _unsigned(data, at + 1, width), at + 1 + width
    return 0, NOWHERE


@inlined
def _number(data: Bytes, at: int, end: int) -> tuple[int, int]:
    """The integer at `at`, and the position after it."""
    if not 0 <= at < end:
        return 0, NOWHERE
    code = int(np.int64(data[at]))
    if code < 0x80 or code >= 0xE0:
        return code - 256 * (code >= 0xE0), at + 1
    if UINT8 <= code <= UINT64:
        width = 1 << (code - UINT8)
        value = _unsigned(data, at + 1, width)
        return value, at + 1 + width if value >= 0 else NOWHERE
    if INT8 <= code <= INT64:
        width = 1 << (code - INT8)
        shift = 64 - 8 * width
        return (_unsigned(data, at + 1, width) << shift) >> shift, at + 1 + width
    return 0, NOWHERE


@kernel
def _is_utf8(data: Bytes, i: int, end: int) -> bool:
    while i < end:
        lead = data[i]
        if lead < 0x80:
            i += 1
            continue
        size = 2 if lead < 0xE0 else 3 if lead < 0xF0 else 4
        if lead < 0xC2 or lead > 0xF4 or i + size > end:
            return False
        for k in range(1, size):
            if data[i + k] & 0xC0 != 0x80:
                return False
        second = data[i + 1]
        if (lead == 0xE0 and second < 0xA0) or (lead == 0xF0 and second < 0x90):  # overlong form
            return False
        if (lead == 0xED and second >= 0xA0) or (lead == 0xF4 and second >= 0x90):
            return False
        i += size
    return True


@inlined
def _text(data: Bytes, at: int, end: int) -> tuple[int, int]:
    """The positions where the text at `at` starts and ends."""
    size, start = _sized(data, at, end, TEXT)
    if start < 0 or start + size > end or not _is_utf8(data, start, start + size):
        return 0, NOWHERE
    return start, start + size


@kernel
def _skipped(data: Bytes, at: int, end: int) -> int:
    """The position after the item at `at`, of any kind."""
    left = 1
    while left > 0:
        if not 0 <= at < end:
            return NOWHERE
        left -= 1
        code = data[at]
        size, inside = _sized(data, at, end, LIST)
        _, text_end = _text(data, at, end)
        _, number_end = _number(data, at, end)
        if inside >= 0:
            left, at = left + size, inside
        elif text_end >= 0:
            at = text_end
        elif number_end >= 0:
            at = number_end
        elif code in (FLOAT32, FLOAT64):
            at += 5 if code == FLOAT32 else 9
        elif code in (NIL, FALSE, TRUE):
            at += 1
        else:
            return NOWHERE
    return at if at <= end else NOWHERE


@inlined
def _round(data: Bytes, at: int, end: int, rules: int, to: Ints, r: int) -> int:
    """The position after the round at `at`, whose values are written to column r of `to`."""
    size, at = _sized(data, at, end, LIST)
    if at < 0 or not 6 <= size <= 7:
        return NOWHERE
    to[OFFSET, r], at = _number(data, at, end)
    to[RULE, r], at = _number(data, at, end)
    to[TIME, r], at = _number(data, at, end)
    for column in (ID, LADDER, AT):
        to[column, r], at = _text(data, at, end)
        to[column + 1, r] = at
    to[TRACE, r] = to[TRACE_END, r] = 0
    if size == 7 and at >= 0:
        start = at
        at = _skipped(data, at, end)
        if at > start + 1:  # not nil
            to[TRACE, r], to[TRACE_END, r] = start, at
        elif at >= 0 and data[start] != NIL:
            return NOWHERE
    return at if 0 <= to[RULE, r] < rules else NOWHERE


@inlined
def _bytes(data: Bytes, at: int, end: int) -> tuple[int, int]:
    """The positions where the bytes at `at` start and end."""
    size, start = _sized(data, at, end, BYTES)
    return (start, start + size) if 0 <= start <= end - size else (0, NOWHERE)


@inlined
def _int32(data: Bytes, at: int) -> int:
    """The little-endian 32-bit integer at `at`."""
    value = np.int64(0)
    for k in range(4):
        value |= np.int64(data[at + k]) << (8 * k)
    return int((value << 32) >> 32)


@inlined
def _int64(data: Bytes, at: int) -> int:
    """The little-endian 64-bit integer at `at`. Indices are unsigned (see `strings.put`)."""
    start, value = np.uint64(at), np.uint64(0)
    for k in range(8):
        value |= np.uint64(data[start + np.uint64(k)]) << np.uint64(8 * k)
    return int(np.int64(value))


@inlined
def _put_evidence(to: Ints, first: int, data: Bytes, start: int, count: int, width: int) -> None:
    """Write the evidence of `count` rows, with `width` bytes each, into the rows of `to` from
    `first` on. It is copied number by number, since copying byte by byte takes twice as long."""
    for i in range(count):
        own = start + width * i
        for column in range(BEGAN):
            to[first + i, column] = _int64(data, own + 8 * column)
        to[first + i, BEGAN] = _int64(data, own + SHORT) if width > SHORT else NAN


@inlined
def _rows(
    data: Bytes, at: int, end: int, first_round: int, rounds: int, first: int,
    to: Ints, evidence: Ints,
) -> tuple[int, int]:  # fmt: skip
    """The number of rows in the columns at `at`, and the position after the last column."""
    index, index_end = _bytes(data, at, end)
    place, place_end = _bytes(data, index_end, end)
    seen, seen_end = _bytes(data, place_end, end)
    count, at = _sized(data, seen_end, end, LIST)
    width = SEEN if count > 0 and seen_end - seen == SEEN * count else SHORT
    sizes = index_end - index, place_end - place, seen_end - seen
    if at < 0 or sizes != (4 * count, 4 * count, width * count):
        return 0, NOWHERE
    for i in range(count):
        own = _int32(data, index + 4 * i)
        to[NAME, first + i], at = _text(data, at, end)
        to[NAME_END, first + i] = at
        if at < 0 or not 0 <= own < rounds:
            return 0, NOWHERE
        to[INDEX, first + i] = first_round + own
        to[PLACE, first + i] = _int32(data, place + 4 * i)
    _put_evidence(evidence, first, data, seen, count, width)
    return count, at


@inlined
def _fingerprint(
    data: Bytes,
    rounds: Ints,
    rows: Ints,
    first: int,
    last: int,
    fingerprints: Fingerprints,
    key: Key,
) -> None:
    for i in range(first, last):
        r = rows[INDEX, i]
        own = derived(key, hashed(key, data, rounds[LADDER, r], rounds[LADDER_END, r]))
        fingerprints[i] = hashed(own, data, rows[NAME, i], rows[NAME_END, i])


@inlined
def _home(data: Bytes, rows: Ints, first: int, last: int, shards: int) -> int:
    """The one of `shards` shards that all of these players belong to; NOWHERE if there is none."""
    if shards <= 0 or last <= first:
        return NOWHERE
    home = shard_of(data, rows[NAME, first], rows[NAME_END, first], shards)
    for i in range(first + 1, last):
        if shard_of(data, rows[NAME, i], rows[NAME_END, i], shards) != home:
            return NOWHERE
    return home


@kernel
def unpack(
    data: Bytes, ends: Ints, rounds: Ints, rows: Ints, evidence: Ints, fingerprints: Fingerprints,
    key: Key,
) -> Ints:  # fmt: skip
    """(M, MESSAGE) the values that are found for the messages in `data`, which end at `ends`.
    Writes the values of all rounds to `rounds` (ROUND, -) and those of all rows to `rows` (ROW, -).
    For each row it also writes the bits of its evidence to `evidence`, and to `fingerprints` a hash
    of ladder and name under the key."""
    found = np.zeros((len(ends), MESSAGE), np.int64)
    start = first_round = first = 0
    for m in range(len(ends)):
        end = ends[m]
        size, at = _sized(data, start, end, LIST)
        version, rules_at = _number(data, at, end)
        rules, _ = _sized(data, rules_at, end, LIST)
        known = version == VERSION and OLD_SIZE <= size <= SIZE
        rules_end = _skipped(data, rules_at, end) if known else NOWHERE
        count, at = _sized(data, rules_end, end, LIST)
        r = 0
        while at >= 0 and r < count:
            at = _round(data, at, end, rules, rounds, first_round + r)
            r += 1
        n, at = _rows(data, at, end, first_round, count, first, rows, evidence)
        shards, at = _number(data, at, end) if size == SIZE else (0, at)
        if at == end:
            found[m, SHARDS] = shards
            found[m, HOME] = _home(data, rows, first, first + n, shards)
            _fingerprint(data, rounds, rows, first, first + n, fingerprints, key)
            found[m, RULES], found[m, RULES_END] = rules_at, rules_end
            found[m, DISTINCT] = are_distinct(fingerprints[first : first + n])
            first_round, first = first_round + count, first + n
        found[m, ROUNDS], found[m, ROWS] = first_round, first
        start = end
    return found
