"""Reads rounds in the form of JSON that nearly all clients write. A kernel finds their entries in
one pass.

    {"round_id": ..., ..., "standings": [{"player": "ann", "rank": 1}, ...], ...}

An entry is a player or a team, followed by its rank or `"dnf":true`. It may have shares, a seat and
a score before or after the rank. The kernel finds the entries of many rounds in one call, and makes
no Python objects. msgspec decodes each message's fields outside `standings`, with an empty list in
its place.

A message in another form (with an escape, another key, another order of keys, or a number in
another form) is left to `fallback`. The kernel rejects no round, and checks only the form: it
accepts only messages that msgspec would decode to the same values.

The values are the same because the kernel finds the beginning of the list where a JSON reader would
find it. In a text without a backslash, a quote before `standings` either opens a key, or it ends a
string and the text after it is not valid JSON. The key must be the only one with its name.
"""

from collections.abc import Sequence
from contextlib import suppress
from itertools import accumulate
from typing import NamedTuple, cast

import numpy as np

from stream_rater.columns.arrays import Bytes, Flags, Floats, Hashes, Ints
from stream_rater.columns.kernels import inlined, kernel
from stream_rater.columns.siphash import Key, hashed
from stream_rater.columns.strings import NEW_LINE, SECRET_KEY, StringColumn, compact, put
from stream_rater.contract import events
from stream_rater.contract.events import MAX_RANK, UNDECODABLE, EmptyRound, Round
from stream_rater.rating.model import DID_NOT_FINISH, Places
from stream_rater.rating.seats import MOST_CHARACTERS, NO_SEAT, SeatCodes
from stream_rater.rounds.batch import BAD_SEAT, NO_SCORES, NO_SEATS, RoundBatch, reported_batch

LEAST_ENTRY = len('{"player":"a","rank":1}')  # The fewest bytes that an entry takes.
BYTES_PER_PLAYER = 8  # Room for one player per so many bytes. With more players, msgspec decodes.
RANK_DIGITS = 10
SHARE_DIGITS = SCORE_DIGITS = 15
"""The most decimals of a share, and the most digits of a score. With these either is a quotient of
integers below 2**53, which is rounded correctly."""
TEAM_DEPTH = 4  # The nesting depth of a round with a team. Other rounds have one level less.

SPACE, QUOTE, COMMA, ZERO, ONE, POINT, BACKSLASH, COLON, MINUS, TILDE = b' ",01.\\:-~'
OPEN_LIST, CLOSE_LIST, OPEN, CLOSE = b"[]{}"
PLAYER, TEAM, SHARES, SEAT, SCORE, RANK, DNF, TRUE = (
    np.frombuffer(word, np.uint8)
    for word in (
        b'"player"', b'"team"', b'"shares"', b'"seat"', b'"score"', b'"rank"', b'"dnf"', b"true",
    )
)  # fmt: skip
HAS_SHARES, HAS_SEAT, HAS_SCORE = 1, 2, 4  # The bits of the details that were read of an entry.
STANDINGS, ROUND_ID, LADDER, COMPLETED_AT, WEIGHT, CEILING = (
    np.frombuffer(b'"%b"' % word, np.uint8)
    for word in (
        b"standings", b"round_id", b"ladder", b"completed_at", b"weight", b"performance_ceiling",
    )
)  # fmt: skip
STANDINGS_WORD = STANDINGS[1:-1]
NOWHERE = -1


class Scanned(NamedTuple):
    """The columns that the kernel writes, with room for all that the bytes may contain."""

    place: Places  # The place of each entry.
    members: Ints  # The number of players of each entry.
    seat: SeatCodes  # The number of the seat of each entry, BAD_SEAT if its name is not valid.
    score: Floats  # The score of each entry, NaN if it has none.
    details: Ints  # (1,) the bits of the details that any entry has.
    starts: Ints  # By player, as the columns below: where the name starts.
    ends: Ints
    hashes: Hashes
    share: Floats


def scan(messages: Sequence[bytes], max_depth: int) -> tuple[RoundBatch, Flags]:
    """Read the rounds of the messages that the kernel accepts ("takes"). Entries are in the order
    of the message. Also returns, for each message, whether it is taken.

    `messages` must not be empty. A message that is nested deeper than `max_depth` is not taken.
    """
    data = messages[0] if len(messages) == 1 else b"".join(messages)
    found, round_ends = _room_for(data), np.array([*accumulate(map(len, messages))])
    names, rests = np.empty(len(data), np.uint8), np.empty(len(data) + len(messages), np.uint8)
    (entries, sizes, unknown), size, rest = scan_all(
        np.frombuffer(data, np.uint8), round_ends, max_depth, found, names, rests, SECRET_KEY
    )
    taken = entries > 0
    heads = _decode_heads(rests[:rest].tobytes(), messages, taken)
    if not data.isascii():
        for i in np.flatnonzero(taken).tolist():
            try:
                messages[i].decode()
            except UnicodeDecodeError:
                taken[i] = False
    e, p = int(entries.sum()), int(sizes.sum())
    column = StringColumn(
        names[:size].copy(), found.starts[:p].copy(), found.ends[:p].copy(),
        found.hashes[:p].copy(),
    )  # fmt: skip
    rounds = reported_batch(
        cast(Sequence[Round], heads), unknown > 0, entries, sizes, found.place[:e].copy(),
        found.members[:e].copy(), found.share[:p].copy(), column,
        found.seat[:e].copy() if found.details[0] & HAS_SEAT else NO_SEATS,
        found.score[:e].copy() if found.details[0] & HAS_SCORE else NO_SCORES,
    )  # fmt: skip
    return (rounds if taken.all() else rounds.take(np.flatnonzero(taken))), taken


def _room_for(data: bytes) -> Scanned:
    entries, players = len(data) // LEAST_ENTRY, len(data) // BYTES_PER_PLAYER
    return Scanned(
        np.empty(entries, np.int32), np.empty(entries, np.int64), np.empty(entries, np.uint64),
        np.empty(entries), np.zeros(1, np.int64), np.empty(players, np.int64),
        np.empty(players, np.int64), np.empty(players, np.uint64), np.empty(players),
    )  # fmt: skip


def _decode_heads(rests: bytes, messages: Sequence[bytes], taken: Flags) -> list[EmptyRound | None]:
    """Decode each message's fields outside `standings`. The result is None for a message that is
    not taken. Clear `taken` where msgspec rejects the fields. `rests` has a line for each message
    that is taken.

    If all lines are rounds, one call decodes them. Then no round extends into the next line, since
    no line closes a bracket that another line opened. And no line contains two rounds, since each
    round has a key `standings`, and a line has only one.
    """
    with suppress(*UNDECODABLE):
        found: list[EmptyRound | None] = [*events.empty_rounds_from_lines(rests)]
        if len(found) == len(messages):
            return found
        around = iter(found)
        return [next(around) if each else None for each in taken.tolist()]
    heads: list[EmptyRound | None] = [None] * len(messages)
    for i, line in zip(np.flatnonzero(taken).tolist(), rests.split(b"\n"), strict=False):
        with suppress(*UNDECODABLE):
            heads[i] = events.empty_round_from_json(line)
    taken[:] = [head is not None for head in heads]
    return heads


# --- the kernel ----------------------------------------------------------------------------------
# These functions take a position, read an item there, and return the position after it. They return
# NOWHERE if the item is not there, or if the position they take is NOWHERE.


@inlined
def _skip(data: Bytes, i: int) -> int:
    while i < len(data) and data[np.uint64(i)] == SPACE:
        i += 1
    return i


@inlined
def _after(data: Bytes, i: int, what: int) -> int:
    """The position after this character and the spaces around it; NOWHERE if the character is not
    there. The functions below return NOWHERE likewise."""
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
    """The position after this key and its colon."""
    return _after(data, i + len(key), COLON) if i >= 0 and _is_at(data, i, key) else NOWHERE


@kernel
def _begin(data: Bytes) -> int:
    """The position after the bracket that opens the list of entries."""
    for i in range(len(data)):
        if data[i] == QUOTE and _is_at(data, i, STANDINGS):
            at = _after_key(data, i, STANDINGS)
            if 0 <= at < len(data) and data[at] == OPEN_LIST:
                return at + 1
    return NOWHERE


@inlined
def _text_end(data: Bytes, i: int) -> int:
    """The position of the quote that ends the text which begins with a quote at i. A backslash or
    control character ends the text, too, and the caller checks for the quote."""
    if i < 0 or i >= len(data) or data[i] != QUOTE:
        return NOWHERE
    i += 1
    while i < len(data) and data[i] >= SPACE and data[i] != QUOTE and data[i] != BACKSLASH:
        i += 1
    return i


@inlined
def _rank(data: Bytes, i: int) -> tuple[int, int]:
    """The rank at i, and the position after it."""
    first, rank = i, 0
    while 0 <= i < min(len(data), first + RANK_DIGITS) and ZERO <= data[np.uint64(i)] < ZERO + 10:
        rank = 10 * rank + (data[np.uint64(i)] - ZERO)
        i += 1
    good = i > first and data[first] != ZERO and rank <= MAX_RANK
    return rank, i if good else NOWHERE


@inlined
def _share(data: Bytes, i: int) -> tuple[float, int]:
    """The number at i, which begins with 0 or 1 and maybe has decimals, and where it ends."""
    if not 0 <= i < len(data) or not ZERO <= data[i] <= ONE:
        return 0.0, NOWHERE
    value, scale, i = np.int64(data[i] - ZERO), np.int64(1), i + 1
    if i < len(data) and data[i] == POINT:
        first = i = i + 1
        while i < min(len(data), first + SHARE_DIGITS) and ZERO <= data[i] < ZERO + 10:
            value, scale = 10 * value + (data[i] - ZERO), 10 * scale
            i += 1
        if i == first:
            return 0.0, NOWHERE
    return float(value) / float(scale), i


@inlined
def _shares(data: Bytes, i: int, share: Floats, first: int, last: int) -> int:
    """The position after the list of shares at i. It must have a share for each player from `first`
    to before `last`."""
    i = _after(data, i, OPEN_LIST)
    for p in range(first, last):
        share[p], i = _share(data, i)
        i = _after(data, i, CLOSE_LIST if p == last - 1 else COMMA)
    return i


@inlined
def _seat(data: Bytes, i: int) -> tuple[np.uint64, int]:
    """The number of the seat whose name begins with the quote at i, and the position after it."""
    end = _text_end(data, i)
    if end < 0 or end >= len(data) or data[end] != QUOTE:
        return np.uint64(NO_SEAT), NOWHERE
    code = np.uint64(NO_SEAT)
    if i + 1 < end <= i + 1 + MOST_CHARACTERS:
        for k in range(end - i - 1):
            c = data[i + 1 + k]
            code |= np.uint64(c) << np.uint64(8 * k)
            if c > TILDE:
                return np.uint64(BAD_SEAT), end + 1
        return code, end + 1
    return np.uint64(BAD_SEAT), end + 1


@inlined
def _score(data: Bytes, i: int) -> tuple[float, int]:
    """The number at i, which may have decimals but no exponent, and the position after it."""
    minus = 0 <= i < len(data) and data[i] == MINUS
    first = i = i + 1 if minus else i
    value, scale = np.int64(0), np.int64(1)
    while 0 <= i < min(len(data), first + SCORE_DIGITS) and ZERO <= data[i] < ZERO + 10:
        value = 10 * value + (data[i] - ZERO)
        i += 1
    whole = i - first
    if i < 0 or whole == 0 or (whole > 1 and data[first] == ZERO):
        return 0.0, NOWHERE
    if i < len(data) and data[i] == POINT:
        i += 1
        last = min(len(data), first + 1 + SCORE_DIGITS)
        while i < last and ZERO <= data[i] < ZERO + 10:
            value, scale = 10 * value + (data[i] - ZERO), 10 * scale
            i += 1
        if scale == 1:
            return 0.0, NOWHERE
    return float(-value if minus else value) / float(scale), i


@inlined
def _detail(
    data: Bytes, i: int, max_depth: int, found: Scanned, e: int, first: int, last: int
) -> tuple[int, int]:
    """The bit of the detail of entry e at i, and the position after its value. The players of the
    entry are those from `first` to before `last`."""
    value = _after_key(data, i, SEAT)
    if value >= 0:
        found.seat[e], i = _seat(data, value)
        return HAS_SEAT, i
    value = _after_key(data, i, SCORE)
    if value >= 0:
        found.score[e], i = _score(data, value)
        return HAS_SCORE, i
    value = _after_key(data, i, SHARES) if max_depth >= TEAM_DEPTH else NOWHERE
    return HAS_SHARES, _shares(data, value, found.share, first, last)


@inlined
def _details(
    data: Bytes, i: int, max_depth: int, found: Scanned, e: int, first: int, last: int, before: int
) -> tuple[int, int, bool]:
    """Read all details of entry e from i on. Returns the bits of `before` and of these, the
    position after the comma or brace after the last of them, and whether it is a brace. `before`
    has the bits of those that the entry had already. The players of the entry are those from
    `first` to before `last`."""
    closed = False
    while not closed and 0 <= i < len(data) - 1 and data[i] == QUOTE and data[i + 1] == SEAT[1]:
        bit, i = _detail(data, i, max_depth, found, e, first, last)
        if before & bit:
            return before, NOWHERE, False
        before |= bit
        if i >= 0:
            i = _skip(data, i)
            closed = i < len(data) and data[i] == CLOSE
            i = _after(data, i, CLOSE if closed else COMMA)
    return before, i, closed


@inlined
def _name(data: Bytes, quote: int, found: Scanned, p: int, key: Key) -> int:
    """Write the name that begins with this quote as player p's. Returns the position after it."""
    end = _text_end(data, quote)
    if end < 0 or end >= len(data) or data[end] != QUOTE or p >= len(found.ends):
        return NOWHERE
    found.starts[p], found.ends[p], found.share[p] = quote + 1, end, 1.0
    found.hashes[p] = hashed(key, data, quote + 1, end)
    return _skip(data, end + 1)


@inlined
def _team(data: Bytes, i: int, found: Scanned, first: int, key: Key) -> tuple[int, int]:
    """The number after the last player in the list at i, and the position after the list."""
    i, p = _after(data, i, OPEN_LIST), first
    while i >= 0:
        i = _name(data, i, found, p, key)
        p += 1
        if 0 <= i < len(data) and data[i] == CLOSE_LIST:
            return p, _skip(data, i + 1)
        i = _after(data, i, COMMA)
    return p, NOWHERE


@inlined
def _outcome(data: Bytes, i: int) -> tuple[int, int]:
    """The place that the key at i and its value give, and the position after the value."""
    value = _after_key(data, i, RANK)
    if value >= 0:
        return _rank(data, value)
    value = _after_key(data, i, DNF)
    if value >= 0 and _is_at(data, value, TRUE):
        return DID_NOT_FINISH, value + len(TRUE)
    return 0, NOWHERE


@inlined
def _entry(
    data: Bytes, i: int, max_depth: int, found: Scanned, e: int, first: int, key: Key
) -> tuple[int, int]:
    """The number after the last player of the entry at i, and the position after the entry."""
    i = _after(data, i, OPEN)
    quote = _after_key(data, i, PLAYER)
    if quote >= 0:
        last, i = first + 1, _name(data, quote, found, first, key)
    else:
        list_ = _after_key(data, i, TEAM) if max_depth >= TEAM_DEPTH else NOWHERE
        last, i = _team(data, list_, found, first, key)
    found.seat[e], found.score[e] = NO_SEAT, np.nan
    i = _after(data, i, COMMA)
    bits, i, closed = _details(data, i, max_depth, found, e, first, last, 0)
    found.place[e], i = _outcome(data, NOWHERE if closed else i)
    found.members[e] = last - first
    end = _after(data, i, CLOSE)
    if end < 0:
        i = _after(data, i, COMMA)
        bits, end, closed = _details(data, i, max_depth, found, e, first, last, bits)
        end = end if closed else NOWHERE
    found.details[0] |= bits
    return last, end


@inlined
def _entries(
    data: Bytes, i: int, max_depth: int, found: Scanned, e: int, p: int, key: Key
) -> tuple[int, int, int]:
    """Read the entries of the list that was opened before i; its first entry is e, and its first
    player p. Returns the numbers after the last entry and the last player, and the position where
    the list is closed."""
    while 0 <= i < len(data) and e < len(found.place):
        p, i = _entry(data, i, max_depth, found, e, p, key)
        e += 1
        if 0 <= i < len(data) and data[i] == CLOSE_LIST:
            return e, p, i
        i = _after(data, i, COMMA)
    return e, p, NOWHERE


@inlined
def _is_known(data: Bytes, i: int) -> bool:
    """Whether the key that begins with a quote at i is a field of rounds."""
    first = data[min(i + 1, len(data) - 1)]
    if first == LADDER[1]:
        return _is_at(data, i, LADDER)
    if first == ROUND_ID[1]:
        return _is_at(data, i, ROUND_ID)
    if first == COMPLETED_AT[1]:
        return _is_at(data, i, COMPLETED_AT)
    if first == STANDINGS[1]:
        return _is_at(data, i, STANDINGS)
    return _is_at(data, i, WEIGHT) or _is_at(data, i, CEILING)


@kernel
def _unknown_around(data: Bytes, begin: int, close: int, max_depth: int) -> int:
    """The number of keys outside the list that are not fields of rounds. NOWHERE if the text
    outside the list has a backslash or a line break in a string, has the word `standings` again, is
    nested deeper than `max_depth`, or closes a bracket that it did not open."""
    named = depth = i = unknown = 0
    quoted, before = False, SPACE
    while i < len(data):
        i = close if i == begin else i
        c = data[i]
        if c == BACKSLASH or (quoted and c == NEW_LINE):
            return NOWHERE
        if c == QUOTE:
            if not quoted and depth == 1 and before in (OPEN, COMMA):
                unknown += not _is_known(data, i)
            quoted = not quoted
        elif c == STANDINGS_WORD[0] and _is_at(data, i, STANDINGS_WORD):
            named += 1
        elif not quoted and c in (OPEN, OPEN_LIST):
            depth += 1
        elif not quoted and c in (CLOSE, CLOSE_LIST):
            depth -= 1
        if named > 1 or depth > max_depth or depth < 0:
            return NOWHERE
        before = c if c > SPACE else before
        i += 1
    return unknown


@inlined
def _copy_rest(data: Bytes, begin: int, close: int, out: Bytes, at: int) -> int:
    """Copy the text outside the list to `out`, as one line. Returns the position after the line."""
    end = put(out, put(out, at, data, 0, begin), data, close, len(data))
    for i in range(at, end):
        if out[i] == NEW_LINE:
            out[i] = SPACE
    out[end] = NEW_LINE
    return end + 1


@kernel
def scan_all(
    data: Bytes, round_ends: Ints, max_depth: int, found: Scanned, names: Bytes, rests: Bytes,
    key: Key,
) -> tuple[Ints, int, int]:  # fmt: skip
    """(3, R) the number of entries, of players, and of unknown keys outside the list, for each
    round; then the number of bytes written to `names` and to `rests`, which get the names and the
    texts outside the lists. A round that is left to msgspec has no entries."""
    counts = np.zeros((3, len(round_ends)), np.int64)
    start = e = p = size = rest = 0
    for r in range(len(round_ends)):
        own = data[start : round_ends[r]]
        begin = _begin(own)
        last_e, last_p, close = _entries(own, begin, max_depth, found, e, p, key)
        unknown = _unknown_around(own, begin, close, max_depth) if close >= 0 else NOWHERE
        if unknown >= 0:
            size = compact(own, found.starts[p:last_p], found.ends[p:last_p], names, size)
            rest = _copy_rest(own, begin, close, rests, rest)
            counts[0, r], counts[1, r], counts[2, r] = last_e - e, last_p - p, unknown
            e, p = last_e, last_p
        start = round_ends[r]
    return counts, size, rest
