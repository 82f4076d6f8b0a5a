"""Rounds as nearly all are written, read in one pass: JSON whose every line is a player and a rank.

    {"round_id": ..., ..., "standings": [{"player": "ann", "rank": 1}, ...], ...}

Lines are found by a kernel, which makes no object of any, for many rounds in one call; the rest of
each goes to the decoder with the list left empty. It takes a fifth of the decoder's time. What is
written in any other way, be it an escape, another key or a rank that is none, is left to the
decoder, which finds the mistake if there is one: nothing is taken here that it would refuse, or
would read in another way.

That holds because the list begins where a JSON reader would see it begin: where no text is escaped,
a quote in front of `standings` opens a key, or ends a text and what follows is no JSON, with lines
or without. The key must be the only one of its name.
"""

from collections.abc import Sequence

import msgspec
import numpy as np
import numpy.typing as npt

from stream_rater.events import MAX_ID_BYTES, MAX_RANK, EmptyRound, Round, empty_round_from_json
from stream_rater.names import HASH_START, Bytes, LaidOut, Names, hashed, put
from stream_rater.rating.compiled import inlined, kernel
from stream_rater.rating.model import Ints, Places

Hashes = npt.NDArray[np.uint64]

LEAST_LINE = len('{"player":"a","rank":1}')
RANK_DIGITS = 10

SPACE, QUOTE, COMMA, ZERO, BACKSLASH, COLON, OPEN_LIST, CLOSE_LIST, OPEN, CLOSE = b' ",0\\:[]{}'
PLAYER, RANK, KEY = (np.frombuffer(k, np.uint8) for k in (b'"player"', b'"rank"', b'"standings"'))
WORD = KEY[1:-1]
NOWHERE = -1

TOGETHER_BYTES = 2**16
"""So much is scanned in one call, and kept as long as any round of it is waiting."""

FREE, ONE = np.uint64(0), np.uint64(1)
FEW = 32


@inlined
def _skip(data: Bytes, i: int) -> int:
    while i < len(data) and data[i] == SPACE:
        i += 1
    return i


@inlined
def _after(data: Bytes, i: int, what: int) -> int:
    """Behind this character and the spaces around it; NOWHERE if it is not there, as below."""
    if i < 0:
        return NOWHERE
    i = _skip(data, i)
    return _skip(data, i + 1) if i < len(data) and data[i] == what else NOWHERE


@inlined
def _is_at(data: Bytes, i: int, word: Bytes) -> bool:
    k = 0
    while k < len(word) and i + k < len(data) and data[i + k] == word[k]:
        k += 1
    return k == len(word)


@inlined
def _after_key(data: Bytes, i: int, key: Bytes) -> int:
    """Behind this key and its colon."""
    return _after(data, i + len(key), COLON) if i >= 0 and _is_at(data, i, key) else NOWHERE


@kernel
def _begin(data: Bytes) -> int:
    """Behind the bracket that opens the list of lines."""
    for i in range(len(data)):
        if data[i] == QUOTE and _is_at(data, i, KEY):
            at = _after_key(data, i, KEY)
            if 0 <= at < len(data) and data[at] == OPEN_LIST:
                return at + 1
    return NOWHERE


@inlined
def _end_of_text(data: Bytes, i: int) -> int:
    """The quote that ends the text of which one at i is the first; it may not be escaped."""
    if i < 0 or i >= len(data) or data[i] != QUOTE:
        return NOWHERE
    i += 1
    while i < len(data) and data[i] >= SPACE and data[i] != QUOTE and data[i] != BACKSLASH:
        i += 1
    return i


@inlined
def _rank(data: Bytes, i: int) -> tuple[int, int]:
    """The rank at i, and behind it."""
    first, rank = i, 0
    while 0 <= i < min(len(data), first + RANK_DIGITS) and ZERO <= data[i] < ZERO + 10:
        rank = 10 * rank + (data[i] - ZERO)
        i += 1
    good = i > first and data[first] != ZERO and rank <= MAX_RANK
    return rank, i if good else NOWHERE


@inlined
def _line(data: Bytes, i: int) -> tuple[int, int, int, int]:
    """Where the name in the line at i starts and ends, its rank, and behind the line."""
    quote = _after_key(data, _after(data, i, OPEN), PLAYER)
    end = _end_of_text(data, quote)
    key = _after(data, _after(data, end, QUOTE), COMMA)
    rank, i = _rank(data, _after_key(data, key, RANK))
    good = quote + 1 < end <= quote + 1 + MAX_ID_BYTES
    return quote + 1, end, rank, _after(data, i, CLOSE) if good else NOWHERE


@inlined
def _lines(data: Bytes, i: int, starts: Ints, ends: Ints, place: Places) -> tuple[int, int]:
    """The lines of the list opened before i; how many there are, and where it is closed."""
    for count in range(len(place)):
        starts[count], ends[count], place[count], i = _line(data, i)
        if 0 <= i < len(data) and data[i] == CLOSE_LIST:
            return count + 1, i
        i = _after(data, i, COMMA)
        if i < 0:
            break
    return 0, NOWHERE


@kernel
def _is_plain_around(data: Bytes, begin: int, close: int, max_depth: int) -> bool:
    """Whether around the list nothing is escaped, nothing else is named so, nor nested deeper."""
    named = depth = i = 0
    quoted = False
    while i < len(data):
        i = close if i == begin else i
        c = data[i]
        if c == BACKSLASH:
            return False
        if c == QUOTE:
            quoted = not quoted
        elif c == WORD[0] and _is_at(data, i, WORD):
            named += 1
        elif not quoted and c in (OPEN, OPEN_LIST):
            depth += 1
        elif not quoted and c in (CLOSE, CLOSE_LIST):
            depth -= 1
        if named > 1 or depth > max_depth:
            return False
        i += 1
    return True


@kernel
def _in_order(starts: Ints, ends: Ints, place: Places) -> None:
    """Lines by place, as given where they tie."""
    for i in range(1, len(place)):
        if place[i] < place[i - 1]:
            order = np.argsort(place, kind="mergesort")
            starts[:], ends[:], place[:] = starts[order], ends[order], place[order]
            return


@inlined
def _put_names(data: Bytes, starts: Ints, ends: Ints, out: Bytes, at: int, hashes: Hashes) -> int:
    """Copy names to `out`, and tell where they are there instead."""
    for i in range(len(starts)):
        hashes[i] = hashed(HASH_START, data, starts[i], ends[i])
        first, at = at, put(out, at, data, starts[i], ends[i])
        starts[i], ends[i] = first, at
    return at


@kernel
def _are_distinct(hashes: Hashes) -> bool:
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
    for h in hashes:  # 0, which nobody has but by chance, is a free slot: that name counts as two
        slot = h & mask
        while seen[slot] != FREE and seen[slot] != h:
            slot = (slot + ONE) & mask
        if seen[slot] == h:
            return False
        seen[slot] = h
    return True


@kernel
def _scan(
    data: Bytes, round_ends: Ints, max_depth: int,
    names: Bytes, starts: Ints, ends: Ints, place: Places,
) -> tuple[Ints, int]:  # fmt: skip
    """By round: where its list begins and closes, after which line its own end, and whether its
    names have hashes of their own; and the bytes of all names. One without lines is no such round.
    """
    found = np.zeros((len(round_ends), 4), np.int64)
    hashes = np.empty(len(place), np.uint64)
    start = first = size = 0
    for r in range(len(round_ends)):
        own = data[start : round_ends[r]]
        begin = _begin(own)
        count, close = _lines(own, begin, starts[first:], ends[first:], place[first:])
        if count and _is_plain_around(own, begin, close, max_depth):
            last = first + count
            _in_order(starts[first:last], ends[first:last], place[first:last])
            size = _put_names(
                own, starts[first:last], ends[first:last], names, size, hashes[first:last]
            )
            found[r, 3] = _are_distinct(hashes[first:last])
            first = last
        found[r, 0], found[r, 1], found[r, 2] = begin, close, first
        start = round_ends[r]
    return found, size


class Lines(msgspec.Struct, frozen=True, gc=False):
    """The lines of a round, in order of place."""

    place: Places
    names: Names

    def __len__(self) -> int:
        return len(self.place)


Scanned = tuple[Round, Lines]


def scan(data: bytes, max_depth: int) -> Scanned | None:
    """A round and its lines, nowhere nested deeper than `max_depth`; None: it is written otherwise.

    A round with lines has a depth of 3, which may not be over the limit.
    """
    return scan_all([data], max_depth)[0]


def scan_all(rounds: Sequence[bytes], max_depth: int) -> list[Scanned | None]:
    """The same of each round: of many small ones in a few calls."""
    scanned: list[Scanned | None] = []
    some, size = list[bytes](), 0
    for data in rounds:
        if some and size + len(data) > TOGETHER_BYTES:
            scanned += _scanned(some, max_depth)
            some, size = [], 0
        some.append(data)
        size += len(data)
    return scanned + (_scanned(some, max_depth) if some else [])


def _scanned(rounds: Sequence[bytes], max_depth: int) -> list[Scanned | None]:
    data = rounds[0] if len(rounds) == 1 else b"".join(rounds)
    text, most = np.frombuffer(data, np.uint8), len(data) // LEAST_LINE
    starts, ends, place = np.empty(most, np.int64), np.empty(most, np.int64), np.empty(most, "i4")
    names = np.empty(len(data), np.uint8)
    round_ends = np.cumsum([len(each) for each in rounds])
    found, size = _scan(text, round_ends, max_depth, names, starts, ends, place)
    count = int(found[-1, 2])
    place = place[:count].copy()
    laid_out = LaidOut(names[:size].copy(), starts[:count].copy(), ends[:count].copy())
    scanned: list[Scanned | None] = []
    first, is_ascii = 0, data.isascii()
    for each, (begin, close, last, distinct) in zip(rounds, found.tolist(), strict=True):
        taken = last > first and (is_ascii or _is_utf8(each))
        event = _decoded(each[:begin] + each[close:]) if taken else None
        if event is None:
            scanned.append(None)
        else:
            own = Names(laid_out, first, last, distinct=bool(distinct))
            scanned.append((event, Lines(place[first:last], own)))
        first = last
    return scanned


def _decoded(rest: bytes) -> EmptyRound | None:
    """What stands around the list; None if it is no such round."""
    try:
        return empty_round_from_json(rest)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def _is_utf8(data: bytes) -> bool:
    try:
        return data.isascii() or bool(data.decode())
    except UnicodeDecodeError:
        return False
