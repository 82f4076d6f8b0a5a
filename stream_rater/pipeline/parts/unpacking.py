"""Finds the columns of parts in their messages (`schema`): one kernel call for many messages. A
message that is damaged, or not of this version, is left out.
"""

import numpy as np

from stream_rater.columns.arrays import Bytes, Ints
from stream_rater.columns.kernels import inlined, kernel
from stream_rater.columns.player_map import Fingerprints
from stream_rater.columns.sharding import shard_of
from stream_rater.columns.siphash import Key, derived, hashed
from stream_rater.columns.strings import are_distinct
from stream_rater.pipeline.parts.schema import (
    BIN,
    EVIDENCE_COLUMNS,
    OF_RECORD,
    OF_ROW,
    SIZES,
    VERSION,
    WIDTHS,
)

OFFSET, RULE, TIME, ID, ID_END, LADDER, LADDER_END, AT, AT_END, TRACE, TRACE_END = range(11)
ROUND = 11
"""The number of values that are found for each record: three numbers, and the positions where its
texts and its trace start and end. A record without a trace has 0 for both."""

INDEX, PLACE, NAME, NAME_END, BELIEF, BELIEF_END = range(6)
ROW = 6
"""The number of values that are found for each row, besides its evidence. INDEX is the number of
its record, among the records of all messages."""

HEAD, HEAD_END, RULES, ROUNDS, ROWS, DISTINCT, SHARDS, HOME = range(8)
MESSAGE = 8
"""The number of values that are found for each message: where its head starts and ends (0: it is
left out); how many rules its head must have; the numbers after its last record and row; whether all
its players have different fingerprints; the number of shards that it was cut for (0: unknown); and
the shard that all its players belong to (NOWHERE: unknown, or several shards)."""

NAN = int(np.array([np.nan]).view(np.int64)[0])  # The bits of a NaN. Evidence is written as bits.
LEAST_COLUMNS = WIDTHS + OF_RECORD + OF_ROW  # The fewest bytes of the columns.
LEAST_MESSAGE = LEAST_COLUMNS + 2 * (1 + SIZES)  # The fewest bytes of a message.

PADDING = bytes(16)
"""Appended to the last message, because the kernel may read a number before it knows that it is
behind the end."""

NOWHERE = -1


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
def _little(data: Bytes, at: int, width: int) -> int:
    """The integer in so many bytes, the lowest first. Indices are unsigned (`strings.put`)."""
    start, value = np.uint64(at), np.uint64(0)
    for k in range(np.uint64(width)):
        value |= np.uint64(data[start + k]) << (np.uint64(8) * k)
    return int(np.int64(value))


@inlined
def _bytes(data: Bytes, at: int, end: int) -> tuple[int, int]:
    """Where the bytes at `at` start and end; NOWHERE if there are none, or they end too late."""
    if not 0 <= at < end - SIZES or data[at] != BIN:
        return 0, NOWHERE
    size, start = 0, at + 1 + SIZES
    for k in range(SIZES):
        size = 256 * size + int(data[at + 1 + k])
    return (start, start + size) if size <= end - start else (0, NOWHERE)


@inlined
def _ints(data: Bytes, at: int, width: int, to: Ints, first: int, count: int) -> int:
    """Write a column of integers to `to` from `first` on. Returns the position after it."""
    if width == 0:
        to[first : first + count] = 0
    elif width == 1:
        for i in range(count):
            to[first + i] = data[np.uint64(at + i)]
    elif width == 2:
        for i in range(count):
            to[first + i] = _little(data, at + 2 * i, 2)
    elif width == 4:
        for i in range(count):
            to[first + i] = _little(data, at + 4 * i, 4)
    else:
        for i in range(count):
            to[first + i] = _little(data, at + 8 * i, 8)
    return at + width * count


@inlined
def _texts(
    data: Bytes, at: int, end: int, starts: Ints, ends: Ints, first: int, count: int, checked: bool
) -> int:  # fmt: skip
    """Make the sizes in `ends`, of strings that lie one after the other from `at` on, the positions
    where each starts and ends. Returns the position after the last one; NOWHERE if this is behind
    the end, or if a string that is to be `checked` is not UTF-8."""
    for i in range(first, first + count):
        size = ends[i]
        if at < 0 or not 0 <= size <= end - at:
            return NOWHERE
        if checked and not _is_utf8(data, at, at + size):
            return NOWHERE
        starts[i], ends[i] = at, at + size
        at += size
    return at


@inlined
def _columns(
    data: Bytes, at: int, end: int, first_round: int, first: int, rounds: Ints, rows: Ints,
    evidence: Ints,
) -> tuple[int, int]:  # fmt: skip
    """The numbers of the records and rows in the columns at `at`, which are written to the other
    arrays from `first_round` and from `first` on; NOWHERE if the columns are damaged."""
    if end - at < LEAST_COLUMNS:
        return NOWHERE, 0
    count, n = _little(data, at, 4), _little(data, at + 8, 4)
    rules, widths = _little(data, at + 4, 4), at + WIDTHS
    columns = _little(data, widths - 1, 1)
    at = widths + OF_RECORD + OF_ROW + columns
    left = end - at
    if columns > EVIDENCE_COLUMNS or left < 0:
        return NOWHERE, 0
    for c in range(OF_RECORD + OF_ROW + columns):
        width = _little(data, widths + c, 1)
        if width not in (0, 1, 2, 4, 8) or (c >= OF_RECORD + OF_ROW and width % 8):
            return NOWHERE, 0
        left -= width * (count if c < OF_RECORD else n)
    if left < 0 or first_round + count > rounds.shape[1] or first + n > rows.shape[1]:
        return NOWHERE, 0
    for c in range(3):
        at = _ints(data, at, _little(data, widths + c, 1), rounds[c], first_round, count)
    for c in range(4):
        width = _little(data, widths + 3 + c, 1)
        at = _ints(data, at, width, rounds[ID_END + 2 * c], first_round, count)
    at = _ints(data, at, _little(data, widths + OF_RECORD, 1), rows[INDEX], first, n)
    at = _ints(data, at, _little(data, widths + OF_RECORD + 1, 1), rows[PLACE], first, n)
    at = _ints(data, at, _little(data, widths + OF_RECORD + 2, 1), rows[NAME_END], first, n)
    at = _ints(data, at, _little(data, widths + OF_RECORD + 3, 1), rows[BELIEF_END], first, n)
    for c in range(EVIDENCE_COLUMNS):
        width = _little(data, widths + OF_RECORD + OF_ROW + c, 1) if c < columns else 0
        for i in range(n):
            evidence[first + i, c] = _little(data, at + 8 * i, 8) if width else NAN
        at += width * n
    for c in range(4):
        at = _texts(
            data, at, end, rounds[ID + 2 * c], rounds[ID_END + 2 * c], first_round, count, c < 3
        )
    at = _texts(data, at, end, rows[NAME], rows[NAME_END], first, n, True)
    at = _texts(data, at, end, rows[BELIEF], rows[BELIEF_END], first, n, False)
    if at != end:
        return NOWHERE, 0
    for r in range(first_round, first_round + count):
        if not 0 <= rounds[RULE, r] < rules:
            return NOWHERE, 0
        if rounds[TRACE, r] == rounds[TRACE_END, r]:
            rounds[TRACE, r] = rounds[TRACE_END, r] = 0
    for i in range(first, first + n):
        if not 0 <= rows[INDEX, i] < count:
            return NOWHERE, 0
        rows[INDEX, i] += first_round
    return count, n


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
def most(data: Bytes, ends: Ints) -> tuple[int, int]:
    """How many records and rows the messages in `data`, which end at `ends`, have at most."""
    records = rows = start = 0
    for end in ends:
        _, behind = _bytes(data, start + 2 if end - start >= LEAST_MESSAGE else NOWHERE, end)
        at, _ = _bytes(data, behind, end)
        if 0 <= at <= end - LEAST_COLUMNS:
            records += min(_little(data, at, 4), end - at)
            rows += min(_little(data, at + 8, 4), end - at)
        start = end
    return records, rows


@kernel
def unpack(
    data: Bytes, ends: Ints, rounds: Ints, rows: Ints, evidence: Ints, fingerprints: Fingerprints,
    key: Key,
) -> Ints:  # fmt: skip
    """(M, MESSAGE) the values that are found for the messages in `data`, which end at `ends`.
    Writes the values of all records to `rounds` (ROUND, -) and those of all rows to `rows`
    (ROW, -). For each row it also writes the bits of its evidence to `evidence`, and to
    `fingerprints` a hash of ladder and name under the key."""
    found = np.zeros((len(ends), MESSAGE), np.int64)
    start = first_round = first = 0
    for m in range(len(ends)):
        end = ends[m]
        known = end - start >= LEAST_MESSAGE and data[start] == 0x93 and data[start + 1] == VERSION
        head, head_end = _bytes(data, start + 2 if known else NOWHERE, end)
        at, last = _bytes(data, head_end, end)
        count, n = NOWHERE, 0
        if last == end:
            count, n = _columns(data, at, end, first_round, first, rounds, rows, evidence)
        if count >= 0:
            shards = _little(data, at + 12, 4)
            found[m, HEAD], found[m, HEAD_END] = head, head_end
            found[m, RULES], found[m, SHARDS] = _little(data, at + 4, 4), shards
            found[m, HOME] = _home(data, rows, first, first + n, shards)
            _fingerprint(data, rounds, rows, first, first + n, fingerprints, key)
            found[m, DISTINCT] = are_distinct(fingerprints[first : first + n])
            first_round, first = first_round + count, first + n
        found[m, ROUNDS], found[m, ROWS] = first_round, first
        start = end
    return found
