"""Rounds as nearly all are written, read in one pass: JSON whose every line is a player and a rank.

    {"round_id": ..., ..., "standings": [{"player": "ann", "rank": 1}, ...], ...}

Lines are found by a kernel, which makes no object of any; the rest goes to the decoder with the
list left empty. It takes a fifth of the decoder's time. What is written in any other way, be it an
escape, another key or a rank that is none, is left to the decoder, which finds the mistake if there
is one: nothing is taken here that it would refuse, or would read in another way.

That holds because the list begins where a JSON reader would see it begin: where no text is escaped,
a quote in front of `standings` opens a key, or ends a text and what follows is no JSON, with lines
or without. The key must be the only one of its name.
"""

import re
from dataclasses import dataclass

import msgspec
import numpy as np

from stream_rater import nesting
from stream_rater.events import MAX_ID_BYTES, MAX_RANK, EmptyRound, Round, empty_round_from_json
from stream_rater.names import Bytes, LaidOut, Names
from stream_rater.rating.compiled import kernel
from stream_rater.rating.model import Ints, Places

BEGIN = re.compile(rb'"standings" *: *\[')
LEAST_LINE = len('{"player":"a","rank":1}')
RANK_DIGITS = 10

SPACE, QUOTE, COMMA, ZERO, BACKSLASH, COLON, CLOSE_LIST, OPEN, CLOSE = b' ",0\\:]{}'
PLAYER, RANK = (np.frombuffer(key, np.uint8) for key in (b'"player"', b'"rank"'))
NOWHERE = -1

WORTH_BYTES = 2000
"""What is shorter, the decoder reads as fast: of lobbies it takes half the time."""


@kernel
def _skip(data: Bytes, i: int) -> int:
    while i < len(data) and data[i] == SPACE:
        i += 1
    return i


@kernel
def _after(data: Bytes, i: int, what: int) -> int:
    """Behind this character and the spaces around it; NOWHERE if it is not there, as below."""
    if i < 0:
        return NOWHERE
    i = _skip(data, i)
    return _skip(data, i + 1) if i < len(data) and data[i] == what else NOWHERE


@kernel
def _after_key(data: Bytes, i: int, key: Bytes) -> int:
    """Behind this key and its colon."""
    if i < 0 or i + len(key) > len(data):
        return NOWHERE
    for k in range(len(key)):
        if data[i + k] != key[k]:
            return NOWHERE
    return _after(data, i + len(key), COLON)


@kernel
def _end_of_text(data: Bytes, i: int) -> int:
    """The quote that ends the text of which one at i is the first; it may not be escaped."""
    if i < 0 or i >= len(data) or data[i] != QUOTE:
        return NOWHERE
    i += 1
    while i < len(data) and data[i] >= SPACE and data[i] != QUOTE and data[i] != BACKSLASH:
        i += 1
    return i


@kernel
def _rank(data: Bytes, i: int) -> tuple[int, int]:
    """The rank at i, and behind it."""
    first, rank = i, 0
    while 0 <= i < min(len(data), first + RANK_DIGITS) and ZERO <= data[i] < ZERO + 10:
        rank = 10 * rank + (data[i] - ZERO)
        i += 1
    good = i > first and data[first] != ZERO and rank <= MAX_RANK
    return rank, i if good else NOWHERE


@kernel
def _line(data: Bytes, i: int) -> tuple[int, int, int, int]:
    """Where the name in the line at i starts and ends, its rank, and behind the line."""
    quote = _after_key(data, _after(data, i, OPEN), PLAYER)
    end = _end_of_text(data, quote)
    key = _after(data, _after(data, end, QUOTE), COMMA)
    rank, i = _rank(data, _after_key(data, key, RANK))
    good = quote + 1 < end <= quote + 1 + MAX_ID_BYTES
    return quote + 1, end, rank, _after(data, i, CLOSE) if good else NOWHERE


@kernel
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


@dataclass(frozen=True, slots=True)
class Lines:
    """The lines of a round, in order of place."""

    place: Places
    names: Names

    def __len__(self) -> int:
        return len(self.place)


def scan(data: bytes, max_depth: int) -> tuple[Round, Lines] | None:
    """A round and its lines, nowhere nested deeper than `max_depth`; None: it is written otherwise.

    A round with lines has a depth of 3, which may not be over the limit.
    """
    begin = BEGIN.search(data)
    if begin is None:
        return None
    most = (len(data) - begin.end()) // LEAST_LINE
    starts, ends, place = np.empty(most, np.int64), np.empty(most, np.int64), np.empty(most, "i4")
    text = np.frombuffer(data, np.uint8)
    count, end = _lines(text, begin.end(), starts, ends, place)
    if count == 0 or not _is_utf8(data):
        return None
    empty = _decoded(data[: begin.end()] + data[end:], max_depth)
    return None if empty is None else (empty, _in_order(text, starts[:count], ends[:count], place))


def _in_order(text: Bytes, starts: Ints, ends: Ints, place: Places) -> Lines:
    """The first lines, so many as there are names, by place."""
    place = place[: len(ends)]
    if (place[1:] < place[:-1]).any():
        order = np.argsort(place, kind="stable")
        place, starts, ends = place[order], starts[order], ends[order]
    return Lines(place.copy(), Names(LaidOut(text, starts, ends)))


def _decoded(rest: bytes, max_depth: int) -> EmptyRound | None:
    """What stands around the list; None if there may be another, or it is no such round."""
    if rest.count(b"standings") > 1 or b"\\" in rest:
        return None
    if nesting.json_depth(rest, max_depth) > max_depth:
        return None
    try:
        return empty_round_from_json(rest)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def _is_utf8(data: bytes) -> bool:
    try:
        return data.isascii() or bool(data.decode())
    except UnicodeDecodeError:
        return False
