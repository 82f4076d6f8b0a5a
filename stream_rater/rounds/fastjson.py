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

from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import accumulate
from typing import NamedTuple

import msgspec
import numpy as np

from stream_rater.columns.arrays import Bytes, Hashes, Ints
from stream_rater.columns.kernels import inlined, kernel
from stream_rater.columns.siphash import Key, hashed
from stream_rater.columns.strings import (
    FEW,
    NEW_LINE,
    SECRET_KEY,
    LaidOut,
    Names,
    are_distinct,
    close_up,
    put,
)
from stream_rater.contract.events import (
    MAX_ID_BYTES,
    MAX_RANK,
    EmptyRound,
    Round,
    empty_round_from_json,
    empty_rounds_from_lines,
)
from stream_rater.rating.model import Places

LEAST_LINE = len('{"player":"a","rank":1}')
RANK_DIGITS = 10

SPACE, QUOTE, COMMA, ZERO, BACKSLASH, COLON, OPEN_LIST, CLOSE_LIST, OPEN, CLOSE = b' ",0\\:[]{}'
PLAYER, RANK, KEY = (np.frombuffer(k, np.uint8) for k in (b'"player"', b'"rank"', b'"standings"'))
WORD = KEY[1:-1]
NOWHERE = -1
LATER = 2
DISTINCT = (False, True, None)
"""What is known of names: for LATER nothing yet."""

UNDECODABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


@inlined
def _skip(data: Bytes, i: int) -> int:
    while i < len(data) and data[np.uint64(i)] == SPACE:
        i += 1
    return i


@inlined
def _after(data: Bytes, i: int, what: int) -> int:
    """Behind this character and the spaces around it; NOWHERE if it is not there, as below."""
    if i < 0:
        return NOWHERE
    i = _skip(data, i)
    return _skip(data, i + 1) if i < len(data) and data[np.uint64(i)] == what else NOWHERE


@inlined
def _is_at(data: Bytes, i: int, word: Bytes) -> bool:
    if i + len(word) > len(data):
        return False
    other, at = np.uint8(0), np.uint64(i)
    for k in range(np.uint64(len(word))):
        other |= data[at + k] ^ word[k]
    return bool(other == 0)


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
def _text_end(data: Bytes, i: int) -> int:
    """The quote that ends the text of which one at i is the first; nothing in it may be escaped."""
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
    while 0 <= i < min(len(data), first + RANK_DIGITS) and ZERO <= data[np.uint64(i)] < ZERO + 10:
        rank = 10 * rank + (data[np.uint64(i)] - ZERO)
        i += 1
    good = i > first and data[first] != ZERO and rank <= MAX_RANK
    return rank, i if good else NOWHERE


@inlined
def _line(data: Bytes, i: int) -> tuple[int, int, int, int]:
    """Where the name in the line at i starts and ends, its rank, and behind the line."""
    quote = _after_key(data, _after(data, i, OPEN), PLAYER)
    end = _text_end(data, quote)
    key = _after(data, _after(data, end, QUOTE), COMMA)
    rank, i = _rank(data, _after_key(data, key, RANK))
    good = quote + 1 < end <= quote + 1 + MAX_ID_BYTES
    return quote + 1, end, rank, _after(data, i, CLOSE) if good else NOWHERE


@inlined
def _lines(
    data: Bytes, i: int, starts: Ints, ends: Ints, hashes: Hashes, place: Places, key: Key
) -> tuple[int, int]:
    """The lines of the list opened before i; how many there are, and where it is closed."""
    for count in range(len(place)):
        starts[count], ends[count], place[count], i = _line(data, i)
        if i < 0:
            break
        hashes[count] = hashed(key, data, starts[count], ends[count])
        if i < len(data) and data[i] == CLOSE_LIST:
            return count + 1, i
        i = _after(data, i, COMMA)
    return 0, NOWHERE


@kernel
def _is_plain_around(data: Bytes, begin: int, close: int, max_depth: int) -> bool:
    """Whether around the list nothing is escaped, nothing else is named so, nor nested deeper, and
    nothing closed that is not opened there."""
    named = depth = i = 0
    quoted = False
    while i < len(data):
        i = close if i == begin else i
        c = data[i]
        if c == BACKSLASH or (quoted and c == NEW_LINE):
            return False
        if c == QUOTE:
            quoted = not quoted
        elif c == WORD[0] and _is_at(data, i, WORD):
            named += 1
        elif not quoted and c in (OPEN, OPEN_LIST):
            depth += 1
        elif not quoted and c in (CLOSE, CLOSE_LIST):
            depth -= 1
        if named > 1 or depth > max_depth or depth < 0:
            return False
        i += 1
    return True


@kernel
def _in_order(starts: Ints, ends: Ints, hashes: Hashes, place: Places) -> None:
    """Lines by place, as given where they tie."""
    for i in range(1, len(place)):
        if place[i] < place[i - 1]:
            order = np.argsort(place, kind="mergesort")
            starts[:], ends[:] = starts[order], ends[order]
            hashes[:], place[:] = hashes[order], place[order]
            return


@inlined
def _put_rest(data: Bytes, begin: int, close: int, out: Bytes, at: int) -> int:
    """Copy what is around the list, as one line."""
    end = put(out, put(out, at, data, 0, begin), data, close, len(data))
    for i in range(at, end):
        if out[i] == NEW_LINE:
            out[i] = SPACE
    out[end] = NEW_LINE
    return end + 1


@kernel
def _scan(
    data: Bytes, round_ends: Ints, max_depth: int,
    names: Bytes, hashes: Hashes, starts: Ints, ends: Ints, place: Places, rests: Bytes, key: Key,
) -> tuple[Ints, int, int]:  # fmt: skip
    """By round after which line its own end, and whether its names have hashes of their own; and
    the bytes of all names, and of what is around the lists. One without lines is no such round.

    Of many names, that they have is not looked at: who looks them up finds it in passing.
    """
    found = np.zeros((len(round_ends), 2), np.int64)
    start = first = size = rest = 0
    for r in range(len(round_ends)):
        own = data[start : round_ends[r]]
        begin = _begin(own)
        count, close = _lines(
            own, begin, starts[first:], ends[first:], hashes[first:], place[first:], key
        )
        if count and _is_plain_around(own, begin, close, max_depth):
            last = first + count
            _in_order(starts[first:last], ends[first:last], hashes[first:last], place[first:last])
            size = close_up(own, starts[first:last], ends[first:last], names, size)
            rest = _put_rest(own, begin, close, rests, rest)
            found[r, 1] = LATER if count > FEW else are_distinct(hashes[first:last])
            first = last
        found[r, 0] = first
        start = round_ends[r]
    return found, size, rest


class Lines(msgspec.Struct, frozen=True, gc=False):
    """The lines of a round, in order of place."""

    place: Places
    names: Names

    def __len__(self) -> int:
        return len(self.place)


Scanned = tuple[Round, Lines]


class Scan(NamedTuple):
    """What messages that are scanned in one call hold, all lines in a row."""

    told: list[EmptyRound | None]
    """By message what is around its lines; None: it is written otherwise, and its lines, if there
    are any here, are nobody's."""
    ends: Ints
    """By message after which line its own end."""
    distinct: Ints
    """By message whether nobody stands in it twice, or LATER."""
    place: Places
    """In order of place, message by message."""
    names: LaidOut

    def each(self) -> list[Scanned | None]:
        """One by one."""
        scanned: list[Scanned | None] = []
        first = 0
        for event, last, distinct in zip(
            self.told, self.ends.tolist(), self.distinct.tolist(), strict=True
        ):
            own = Names(self.names, first, last, distinct=DISTINCT[distinct])
            lines = Lines(self.place[first:last], own)
            scanned.append(None if event is None else (event, lines))
            first = last
        return scanned


def scan(data: bytes, max_depth: int) -> Scanned | None:
    """A round and its lines, nowhere nested deeper than `max_depth`; None: it is written otherwise.

    A round with lines has a depth of 3, which may not be over the limit.
    """
    return scan_all([data], max_depth).each()[0]


def scan_all(rounds: Sequence[bytes], max_depth: int) -> Scan:
    """The same of each round, of which there is one: of many small ones in a few calls."""
    data = rounds[0] if len(rounds) == 1 else b"".join(rounds)
    text, most = np.frombuffer(data, np.uint8), len(data) // LEAST_LINE
    starts, ends, place = np.empty(most, np.int64), np.empty(most, np.int64), np.empty(most, "i4")
    names, rests = np.empty(len(data), np.uint8), np.empty(len(data) + len(rounds), np.uint8)
    hashes, round_ends = np.empty(most, np.uint64), np.array([*accumulate(map(len, rounds))])
    found, size, rest = _scan(
        text, round_ends, max_depth, names, hashes, starts, ends, place, rests, SECRET_KEY
    )
    line_ends, distinct = found.T.copy()
    count = int(line_ends[-1])
    around = iter(_decoded(rests[:rest].tobytes()))
    told = [next(around) if some else None for some in np.diff(line_ends, prepend=0).tolist()]
    if not data.isascii():
        told = [event if _is_utf8(each) else None for event, each in zip(told, rounds, strict=True)]
    laid_out = LaidOut(
        names[:size].copy(), starts[:count].copy(), ends[:count].copy(), hashes[:count].copy()
    )
    return Scan(told, line_ends, distinct, place[:count].copy(), laid_out)


def runs(messages: Sequence[bytes], most: int) -> Iterator[list[bytes]]:
    """Messages that follow each other, together while they have no more bytes than that."""
    some, size = list[bytes](), 0
    for data in messages:
        if some and size + len(data) > most:
            yield some
            some, size = [], 0
        some.append(data)
        size += len(data)
    if some:
        yield some


def _decoded(rests: bytes) -> Sequence[EmptyRound | None]:
    """What stands around each list, by lines; None where it is no such round.

    In one call, if all are such rounds. None then reads on into the next line, as no line closes
    what another opened; and none is two, as each names its list, of which a line has one.
    """
    with suppress(*UNDECODABLE):
        return empty_rounds_from_lines(rests)
    return [_decoded_alone(rest) for rest in rests.split(b"\n")[:-1]]


def _decoded_alone(rest: bytes) -> EmptyRound | None:
    try:
        return empty_round_from_json(rest)
    except UNDECODABLE:
        return None


def _is_utf8(data: bytes) -> bool:
    try:
        return data.isascii() or bool(data.decode())
    except UnicodeDecodeError:
        return False
