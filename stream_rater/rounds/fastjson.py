"""The fast road: rounds in JSON as nearly all clients write them, found by a kernel in one pass.

    {"round_id": ..., ..., "standings": [{"player": "ann", "rank": 1}, ...], ...}

An entry is a player or a team, then its rank or `"dnf":true`; a team may have shares before that or
behind it. The kernel finds the entries of many rounds in one call, and makes no Python object of
any. What stands around each list goes to msgspec, with the list left empty.

Whatever is written otherwise (an escape, another key or order of keys, a number in another form) is
left to `fallback`. The kernel refuses nothing, and checks nothing but the form: it takes only what
msgspec would decode, to the same values.

That holds because the list begins where a JSON reader would see it begin. In a text without a
backslash, a quote in front of `standings` opens a key, or it ends a string and what follows is no
JSON. The key must be the only one of its name.
"""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import accumulate
from typing import NamedTuple

import numpy as np

from stream_rater.columns.arrays import Flags, Floats, Ints
from stream_rater.columns.strings import SECRET_KEY, StringColumn
from stream_rater.contract.events import (
    UNDECODABLE,
    EmptyRound,
    empty_round_from_json,
    empty_rounds_from_lines,
)
from stream_rater.rating.model import Places
from stream_rater.rounds.scan_kernel import BYTES_PER_PLAYER, LEAST_ENTRY, Found, scan_all


class Scan(NamedTuple):
    """What messages that are scanned in one call hold."""

    heads: list[EmptyRound | None]
    """By message what stands around its list; None if it is left to msgspec."""
    taken: Flags
    """By message whether it is not; the entries of others, if there are any here, are nobody's."""
    entries: Ints
    """By message, how many."""
    sizes: Ints
    """By message, how many players."""
    unknown: Flags
    """By message, whether there are keys around its list that are no fields of rounds."""
    place: Places
    """By entry, in the order of the message; as below."""
    members: Ints
    """By entry."""
    share: Floats
    """By player."""
    names: StringColumn
    """By player, with their hashes."""


def _room_for(data: bytes) -> Found:
    entries, players = len(data) // LEAST_ENTRY, len(data) // BYTES_PER_PLAYER
    return Found(
        np.empty(entries, np.int32), np.empty(entries, np.int64), np.empty(players, np.int64),
        np.empty(players, np.int64), np.empty(players, np.uint64), np.empty(players),
    )  # fmt: skip


def scan(messages: Sequence[bytes], max_depth: int) -> Scan:
    """The rounds in these messages, of which there is one, nowhere nested deeper than that."""
    data = messages[0] if len(messages) == 1 else b"".join(messages)
    found, round_ends = _room_for(data), np.array([*accumulate(map(len, messages))])
    names, rests = np.empty(len(data), np.uint8), np.empty(len(data) + len(messages), np.uint8)
    (entries, sizes, unknown), size, rest = scan_all(
        np.frombuffer(data, np.uint8), round_ends, max_depth, found, names, rests, SECRET_KEY
    )
    taken = entries > 0
    heads = _around(rests[:rest].tobytes(), messages, taken)
    if not data.isascii():
        for i in np.flatnonzero(taken).tolist():
            taken[i] = _is_utf8(messages[i])
            heads[i] = heads[i] if taken[i] else None
    e, p = int(entries.sum()), int(sizes.sum())
    column = StringColumn(
        names[:size].copy(), found.starts[:p].copy(), found.ends[:p].copy(),
        found.hashes[:p].copy(),
    )  # fmt: skip
    return Scan(
        heads, taken, entries, sizes, unknown > 0, found.place[:e].copy(),
        found.members[:e].copy(), found.share[:p].copy(), column,
    )  # fmt: skip


def runs(messages: Sequence[bytes], most: int) -> Iterator[Sequence[bytes]]:
    """Messages that follow each other, together while they have no more bytes than that."""
    if messages and sum(map(len, messages)) <= most:
        yield messages
        return
    some, size = list[bytes](), 0
    for data in messages:
        if some and size + len(data) > most:
            yield some
            some, size = [], 0
        some.append(data)
        size += len(data)
    if some:
        yield some


def _around(rests: bytes, messages: Sequence[bytes], taken: Flags) -> list[EmptyRound | None]:
    """By message what stands around its list; messages in which msgspec finds no round are taken no
    more. `rests` has a line of each that is taken.

    In one call, if all lines are rounds. None then reads on into the next line, as no line closes
    what another opened; and none is two, as each names its list, of which a line has one.
    """
    with suppress(*UNDECODABLE):
        found: list[EmptyRound | None] = [*empty_rounds_from_lines(rests)]
        if len(found) == len(messages):
            return found
        around = iter(found)
        return [next(around) if each else None for each in taken.tolist()]
    lines = iter(rests.split(b"\n"))
    heads = [_round_in(next(lines)) if each else None for each in taken.tolist()]
    taken[:] = [head is not None for head in heads]
    return heads


def _round_in(rest: bytes) -> EmptyRound | None:
    try:
        return empty_round_from_json(rest)
    except UNDECODABLE:
        return None


def _is_utf8(data: bytes) -> bool:
    try:
        return data.isascii() or bool(data.decode())
    except UnicodeDecodeError:
        return False
