"""Columns of strings: UTF-8 bytes in one array, and where each string starts and ends.

Python strings are made only where they are shown or sent. For millions of names, making them takes
longer than decoding the names and looking them up.

Names come from outside. So each table that stores them takes its slots from their hashes under
SECRET_KEY. Nothing that is stored, sent or shown depends on these hashes of one process.
"""

import secrets
from collections.abc import Sequence

import msgspec
import numpy as np

from stream_rater.columns.arrays import Bytes, Hashes, Ints
from stream_rater.columns.kernels import inlined, kernel
from stream_rater.columns.siphash import Key, hashed

NEW_LINE = 10

SECRET_KEY = Key(np.uint64(secrets.randbits(64)), np.uint64(secrets.randbits(64)))
"""The key is drawn once per process, so that nobody outside can choose names that share a slot. It
is an argument of kernels: numba would compile a global into them and store it on disk."""

FEW = 32  # Up to this many hashes are all compared with each other.

FREE, ONE = np.uint64(0), np.uint64(1)

NO_BYTES, NO_PLACES = np.empty(0, np.uint8), np.empty(0, np.int64)


class StringColumn(msgspec.Struct, gc=False):
    """Strings in UTF-8, with the start and end of each. Between them may be any bytes."""

    data: Bytes
    starts: Ints
    ends: Ints
    known_hashes: Hashes | None = None  # The `hashes`; None until they have been computed.

    @classmethod
    def of(cls, texts: Sequence[str]) -> "StringColumn":
        """A column of these texts."""
        data = "\n".join(texts).encode("utf-8", "surrogatepass")
        if data.count(b"\n") == len(texts) - 1:
            # A copy: to kernels, an array that is read-only is of another type.
            text = np.frombuffer(data, np.uint8).copy()
            ends = np.flatnonzero(text == NEW_LINE)
            return cls(text, np.append(0, ends + 1), np.append(ends, len(data)))
        return cls.of_bytes([text.encode("utf-8", "surrogatepass") for text in texts])

    @classmethod
    def of_bytes(cls, strings: Sequence[bytes]) -> "StringColumn":
        """A column of these strings, whatever bytes they contain."""
        ends = np.fromiter(map(len, strings), np.int64, len(strings)).cumsum()
        starts = np.append(0, ends)[:-1]
        return cls(np.frombuffer(b"".join(strings), np.uint8).copy(), starts, ends)

    @classmethod
    def concat(cls, columns: Sequence["StringColumn"]) -> "StringColumn":
        """The strings of all these columns, one column after the other. They are copied, with
        nothing between them."""
        starts = np.concatenate([each.starts for each in columns])
        ends = np.concatenate([each.ends for each in columns])
        data = np.empty(int((ends - starts).sum()), np.uint8)
        at = first = 0
        for each in columns:
            last = first + len(each)
            at = _compact(each.data, starts[first:last], ends[first:last], data, at)
            first = last
        return cls(data, starts, ends)

    @classmethod
    def joined(cls, columns: Sequence["StringColumn"]) -> "StringColumn":
        """The strings of all these columns, one column after the other. Columns that share their
        bytes go on sharing them, and the bytes of others are copied."""
        data, firsts = list[Bytes](), dict[int, int]()
        size = 0
        for each in columns:
            if id(each.data) not in firsts:
                firsts[id(each.data)] = size
                data.append(each.data)
                size += len(each.data)
        if len(data) == 1:
            starts = np.concatenate([each.starts for each in columns])
            return cls(data[0], starts, np.concatenate([each.ends for each in columns]))
        moved = [(firsts[id(each.data)], each) for each in columns]
        starts = np.concatenate([NO_PLACES, *(each.starts + first for first, each in moved)])
        ends = np.concatenate([NO_PLACES, *(each.ends + first for first, each in moved)])
        return cls(np.concatenate([NO_BYTES, *data]), starts, ends)

    def __len__(self) -> int:
        return len(self.ends)

    def take(self, rows: Ints, *, compact: bool = False) -> "StringColumn":
        """The strings in these rows. If `compact`, they are copied, so that the bytes of the others
        can be freed."""
        starts, ends, data = self.starts[rows], self.ends[rows], self.data
        if compact:
            data = np.empty(int((ends - starts).sum()), np.uint8)
            _compact(self.data, starts, ends, data, 0)
        return StringColumn(data, starts, ends)

    def slice(self, first: int, last: int) -> "StringColumn":
        """A view of the strings in the rows from `first` to before `last`."""
        hashes = None if self.known_hashes is None else self.known_hashes[first:last]
        return StringColumn(self.data, self.starts[first:last], self.ends[first:last], hashes)

    @property
    def hashes(self) -> Hashes:
        """(n,) the hash of each string under SECRET_KEY. It depends on the string's bytes alone."""
        if self.known_hashes is None:
            self.known_hashes = hash_each(self.data, self.starts, self.ends, SECRET_KEY)
        return self.known_hashes

    def texts(self) -> list[str]:
        """The strings as Python strings."""
        if len(self) == 0:
            return []
        lines = _in_lines(self.data, self.starts, self.ends).tobytes()
        if lines.count(b"\n") == len(self) - 1:
            return lines.decode("utf-8", "surrogatepass").split("\n")
        return [each.decode("utf-8", "surrogatepass") for each in self.strings()]

    def strings(self) -> list[bytes]:
        """The strings as bytes, one object each."""
        spans = zip(self.starts.tolist(), self.ends.tolist(), strict=True)
        return [self.data[start:end].tobytes() for start, end in spans]


@kernel
def put(out: Bytes, at: int, data: Bytes, start: int, end: int) -> int:
    """Copy data[start:end] to `out` at `at`. Returns where the copy ends in `out`. The indices are
    unsigned. Signed ones may count from the end, and checking for that at each byte takes five
    times as long as the copying."""
    to, of = np.uint64(at), np.uint64(start)
    for k in range(np.uint64(end - start)):
        out[to + k] = data[of + k]
    return at + end - start


@kernel
def put_number(out: Bytes, at: int, number: int) -> int:
    """Write a number that is not below 0 into `out` in decimal digits. Returns where it ends."""
    size, rest = 1, number // 10
    while rest:
        size, rest = size + 1, rest // 10
    for i in range(size - 1, -1, -1):
        out[at + i] = 48 + number % 10
        number //= 10
    return at + size


@kernel
def hash_each(data: Bytes, starts: Ints, ends: Ints, key: Key) -> Hashes:
    """(n,) the hash of each string's bytes under a key."""
    found = np.empty(len(ends), np.uint64)
    for i in range(len(ends)):
        found[i] = hashed(key, data, starts[i], ends[i])
    return found


@kernel
def are_distinct(hashes: Hashes) -> bool:
    """Whether no two hashes are equal. Among more than FEW hashes, a 0 counts as a duplicate."""
    if len(hashes) <= FEW:
        same = 0
        for i in range(1, len(hashes)):
            for k in range(i):
                same += hashes[i] == hashes[k]
        return same == 0
    slots = 2 * FEW
    while slots < 2 * len(hashes):
        slots *= 2
    seen, mask = np.zeros(slots, np.uint64), np.uint64(slots - 1)
    for h in hashes:  # 0 marks a free slot: a name that has it, by chance, counts as a duplicate
        slot = h & mask
        while seen[slot] != FREE and seen[slot] != h:
            slot = (slot + ONE) & mask
        if seen[slot] == h:
            return False
        seen[slot] = h
    return True


@kernel
def _in_lines(data: Bytes, starts: Ints, ends: Ints) -> Bytes:
    """The strings, with a new line between each two."""
    size = len(ends) - 1
    for i in range(len(ends)):
        size += ends[i] - starts[i]
    out = np.full(size, NEW_LINE, np.uint8)
    at = 0
    for i in range(len(ends)):
        at = put(out, at, data, starts[i], ends[i]) + 1
    return out


@kernel
def _distinct(data: Bytes, starts: Ints, ends: Ints, key: Key) -> tuple[Ints, Ints]:
    """The first row of each different string, and (n,) the index of each row's string."""
    slots = 1
    while slots < 2 * len(ends):
        slots *= 2
    table, firsts = np.full(slots, -1), np.empty(len(ends), np.int64)
    which = np.empty(len(ends), np.int64)
    kinds = 0
    for i in range(len(ends)):
        slot = np.int64(hashed(key, data, starts[i], ends[i])) & (slots - 1)
        while table[slot] >= 0 and not _are_same(data, starts, ends, firsts[table[slot]], i):
            slot = (slot + 1) & (slots - 1)
        if table[slot] < 0:
            table[slot], firsts[kinds] = kinds, i
            kinds += 1
        which[i] = table[slot]
    return firsts[:kinds], which


@kernel
def _are_same(data: Bytes, starts: Ints, ends: Ints, i: int, j: int) -> bool:
    if ends[j] - starts[j] != ends[i] - starts[i]:
        return False
    size, k = ends[i] - starts[i], 0
    while k < size and data[starts[i] + k] == data[starts[j] + k]:
        k += 1
    return bool(k == size)


def distinct(strings: StringColumn) -> tuple[StringColumn, Ints]:
    """The different strings, as they appear, and (n,) the index of each row's string in them."""
    firsts, which = _distinct(strings.data, strings.starts, strings.ends, SECRET_KEY)
    return strings.take(firsts), which


@inlined
def compact(data: Bytes, starts: Ints, ends: Ints, out: Bytes, at: int) -> int:
    """Copy strings to `out`, from `at` on, with nothing between them. `starts` and `ends` are
    changed to the positions in `out`. Returns where the last string ends."""
    for i in range(len(starts)):
        first, at = at, put(out, at, data, starts[i], ends[i])
        starts[i], ends[i] = first, at
    return at


@kernel
def _compact(data: Bytes, starts: Ints, ends: Ints, out: Bytes, at: int) -> int:
    return compact(data, starts, ends, out, at)


# --- times, in the form of RFC 3339 that nearly all clients write ---

UNUSUAL = np.iinfo(np.int64).min
"""Stands for a time in another form (`events.parse_time` parses it), or a text that is no time."""

SHAPE = np.frombuffer(b"0000-00-00T00:00:00", np.uint8).copy()
"""The form of a time, in which 0 stands for any digit."""
ZERO, NINE, POINT, PLUS, MINUS, COLON, ZULU = b"09.+-:Z"
MOST_DECIMALS = 6  # The most decimals of a second; more would be rounded.
FIRST_YEAR, LAST_YEAR = 1000, 9998
DAY_S, HOUR_S, MINUTE_S = 86_400, 3_600, 60
DAYS_BEFORE_MONTH = np.array([0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334, 365], np.int64)
DAYS_BEFORE_1970 = 719_162
"""The number of days from the first day of year 1 to the first day of 1970."""


@inlined
def _two(data: Bytes, at: int) -> int:
    return int(10 * (np.int64(data[at]) - ZERO) + np.int64(data[at + 1]) - ZERO)


@inlined
def _zone_s(data: Bytes, at: int, end: int) -> int:
    """The seconds by which the time zone at the end of the text is ahead of UTC, or UNUSUAL."""
    if end - at == 1 and data[at] == ZULU:
        return 0
    if end - at != 6 or (data[at] != PLUS and data[at] != MINUS) or data[at + 3] != COLON:
        return UNUSUAL
    for i in (at + 1, at + 2, at + 4, at + 5):
        if not ZERO <= data[i] <= NINE:
            return UNUSUAL
    hours, minutes = _two(data, at + 1), _two(data, at + 4)
    if hours > 23 or minutes > 59:
        return UNUSUAL
    ahead_s = hours * HOUR_S + minutes * MINUTE_S
    return ahead_s if data[at] == PLUS else -ahead_s


@inlined
def _seconds(data: Bytes, start: int, end: int) -> int:
    for i in range(len(SHAPE)):
        c = data[start + i]
        if not ZERO <= c <= NINE if SHAPE[i] == ZERO else c != SHAPE[i]:
            return UNUSUAL
    year = 100 * _two(data, start) + _two(data, start + 2)
    month, day = _two(data, start + 5), _two(data, start + 8)
    hour, minute, second = _two(data, start + 11), _two(data, start + 14), _two(data, start + 17)
    if not (FIRST_YEAR <= year <= LAST_YEAR and 1 <= month <= 12):
        return UNUSUAL
    leap = int(year % 4 == 0 and (year % 100 != 0 or year % 400 == 0))
    most = DAYS_BEFORE_MONTH[month] - DAYS_BEFORE_MONTH[month - 1] + leap * (month == 2)
    if not 1 <= day <= most or hour > 23 or minute > 59 or second > 59:
        return UNUSUAL
    at = start + len(SHAPE)
    if data[at] == POINT:
        first = at = at + 1
        while at < end and ZERO <= data[at] <= NINE:
            at += 1
        if not 1 <= at - first <= MOST_DECIMALS:
            return UNUSUAL
    ahead_s = _zone_s(data, at, end)
    if ahead_s == UNUSUAL:
        return UNUSUAL
    before = year - 1
    days = 365 * before + before // 4 - before // 100 + before // 400 - DAYS_BEFORE_1970
    days += DAYS_BEFORE_MONTH[month - 1] + leap * (month > 2) + day - 1
    return int(days * DAY_S + hour * HOUR_S + minute * MINUTE_S + second - ahead_s)


@kernel
def _all_seconds(data: Bytes, starts: Ints, ends: Ints) -> Ints:
    found = np.full(len(ends), UNUSUAL)
    for i in range(len(ends)):
        if ends[i] - starts[i] > len(SHAPE):
            found[i] = _seconds(data, starts[i], ends[i])
    return found


def seconds(texts: StringColumn) -> Ints:
    """(n,) the Unix seconds of each time, rounded down; UNUSUAL where a time has another form."""
    return _all_seconds(texts.data, texts.starts, texts.ends)
