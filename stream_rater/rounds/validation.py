"""What is a valid round: from the bytes of `round-completed` to `Standings`, or a named refusal.

The verdict is a pure function of the record (its bytes, headers, offset and the time the log
received it) and the ladders' configuration. Codes are those of the event contract; each message
says where.
"""

import math
import re
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import cast

import msgspec
import numpy as np

from stream_rater.columns.arrays import Floats, Ints
from stream_rater.columns.strings import Names
from stream_rater.config import Ladders, Limits, Terms
from stream_rater.contract import events
from stream_rater.contract.events import MAX_ID_BYTES, MAX_RANK, Entry, Headers, PlainEntry, Round
from stream_rater.rating.model import DID_NOT_FINISH, Places
from stream_rater.rounds import depth
from stream_rater.rounds.fastjson import UNDECODABLE, Lines, scan

MIN_ENTRIES = 2
MAX_TIME_LENGTH = 64
"""More digits than any clock has; the text goes into every event of the round."""
LEAST_SHARE = 1e-6
"""A member's evidence has a variance over share^2."""
LEAST_CEILING = -1e9
"""A lower cap would not leave the arithmetic room; no ladder's ratings reach it."""
EARLIEST = events.parse_time("1900-01-01T00:00:00Z")
"""Rounds before this are absurd."""


CODES = (
    "malformed", "too-large", "too-deep", "unknown-ladder", "too-few-entries", "too-many-entries",
    "duplicate-player", "bad-rank", "bad-weight", "bad-shares", "bad-id", "bad-time",
    "duplicate-round", "wrong-partition",
)  # fmt: skip
"""By which records are rejected."""


class Invalid(Exception):
    """A round that cannot be rated: `code` from the contract, and a message with the place."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(code, message)  # both, so that it can be sent to another process
        self.code = code
        self.ladder = self.round_id = ""
        """Whose round it is, as far as its record could be read, and no longer than ids are."""

    def tell(self, ladder: str, round_id: str) -> None:
        """Whose round it is."""
        self.ladder, self.round_id = ladder[:MAX_ID_BYTES], round_id[:MAX_ID_BYTES]

    def __str__(self) -> str:
        return str(self.args[1])


class Standings(msgspec.Struct, frozen=True, gc=False):
    """A valid round: its entries in order of place, those that did not finish last."""

    round_id: str
    ladder: str
    completed_at: str
    time: int
    """Unix seconds."""
    weight: float
    ceiling: float
    """Cap on performances; infinite for none."""
    place: Places
    """(E,) rank as reported, or DID_NOT_FINISH."""
    names: Names
    """(P,) ids of the players, entry by entry."""
    entry_starts: Ints
    """(E+1,) first player of each entry."""
    share: Floats
    """(P,) part of the round each player played."""

    @property
    def players(self) -> list[str]:
        """(P,) ids, entry by entry."""
        return self.names.texts

    @property
    def head(self) -> Round:
        """What goes with it, and no more of it."""
        return Round(round_id=self.round_id, ladder=self.ladder, completed_at=self.completed_at)

    @property
    def members(self) -> Ints:
        """(E,) how many players each entry has."""
        return np.diff(self.entry_starts)

    def rates(self, *, skip_all_tied: bool) -> bool:
        """Whether anything can be learnt: somebody finished, and it is not one big tie to skip."""
        best = self.place.item(0)
        return best != DID_NOT_FINISH and not (skip_all_tied and best == self.place.item(-1))

    def player_places(self) -> Places:
        """(P,) each player's place."""
        if len(self.place) == len(self.share):
            return self.place
        return np.repeat(self.place, np.diff(self.entry_starts))


_FIELD_CODES = (
    (re.compile(r"\.rank`"), "bad-rank"),
    (re.compile(r"\.weight`|`weight`"), "bad-weight"),
    (re.compile(r"\.shares(\[|`)"), "bad-shares"),
    (re.compile(r"\.completed_at`|`completed_at`"), "bad-time"),
    (re.compile(r"\.(round_id|ladder|player|team)(\[[\d.]*\])?`|`(round_id|ladder)`"), "bad-id"),
)

WORTH_BYTES = 2000
"""What is shorter and comes alone, the decoder reads as fast as `scan`."""

Found = tuple[Round, list[Entry] | Lines]
"""A round and its lines, already checked if they are Lines."""


def _decode(data: bytes, content_type: str, limits: Limits) -> Found:
    if len(data) > limits.max_bytes:
        raise Invalid("too-large", f"{len(data)} bytes, over the limit of {limits.max_bytes}")
    packed = "msgpack" in content_type.lower()
    if not packed and len(data) >= WORTH_BYTES:
        scanned = scan(data, limits.max_depth)
        if scanned is not None:
            return scanned
    depth_of = depth.msgpack_depth if packed else depth.json_depth
    if depth_of(data, limits.max_depth) > limits.max_depth:
        raise Invalid("too-deep", f"nesting deeper than {limits.max_depth}")
    with suppress(*UNDECODABLE):  # of what is no plain round, the mistake is found below
        plain = events.plain_round_from_msgpack if packed else events.plain_round_from_json
        event = plain(data)
        return event, _checked_lines(event.standings)
    try:
        found = events.round_from_msgpack(data) if packed else events.round_from_json(data)
    except msgspec.ValidationError as error:
        for pattern, code in _FIELD_CODES:
            if pattern.search(str(error)):
                raise Invalid(code, str(error)) from None
        raise Invalid("malformed", str(error)) from None
    except UNDECODABLE as error:
        raise Invalid("malformed", str(error)) from None
    return found, found.standings


def _check_id(name: str, value: str) -> None:
    if not value:
        raise Invalid("bad-id", f"{name}: empty")
    if len(value) * 4 > MAX_ID_BYTES and len(value.encode()) > MAX_ID_BYTES:
        raise Invalid("bad-id", f"{name}: over {MAX_ID_BYTES} bytes")


def _check_time(completed_at: str, received_s: float, limits: Limits) -> int:
    if len(completed_at) > MAX_TIME_LENGTH:
        raise Invalid("bad-time", f"completed_at: over {MAX_TIME_LENGTH} characters")
    try:
        time = events.parse_time(completed_at)
    except (ValueError, OverflowError) as error:
        raise Invalid("bad-time", f"completed_at: {error}") from None
    if time < EARLIEST:
        raise Invalid("bad-time", "completed_at: before the year 1900")
    if time > received_s + limits.max_skew_s:
        raise Invalid("bad-time", f"completed_at: over {limits.max_skew_s} s ahead of its arrival")
    return time


def _check_weight(name: str, value: float, most: float) -> None:
    if not 0.0 < value <= most:
        raise Invalid("bad-weight", f"{name}: {value} is not in (0, {most:g}]")


def _place(index: int, entry: Entry) -> int:
    if entry.dnf:
        return DID_NOT_FINISH
    if entry.rank is None:
        raise Invalid("bad-rank", f"standings[{index}]: neither rank nor dnf")
    if not 1 <= entry.rank <= MAX_RANK:
        raise Invalid("bad-rank", f"standings[{index}].rank: not in 1..{MAX_RANK}")
    return entry.rank


def _members(index: int, entry: Entry) -> Sequence[str]:
    if (entry.player is None) == (not entry.team):
        raise Invalid("malformed", f"standings[{index}]: needs a player or a team, one of them")
    return entry.team if entry.team else (entry.player or "",)


def _shares(index: int, entry: Entry, size: int) -> Sequence[float]:
    if entry.shares is None:
        return (1.0,) * size
    if len(entry.shares) != size:
        raise Invalid(
            "bad-shares", f"standings[{index}].shares: {len(entry.shares)} for {size} players"
        )
    for share in entry.shares:
        if not LEAST_SHARE <= share <= 1.0:
            raise Invalid(
                "bad-shares", f"standings[{index}].shares: {share} is not in [{LEAST_SHARE}, 1]"
            )
    return entry.shares


def _check_players(players: list[str]) -> None:
    if "" in players or max(map(len, players)) * 4 > MAX_ID_BYTES:
        for player in players:
            _check_id(f"player {player[:MAX_ID_BYTES]!r}", player)


def check_unique(standings: Standings) -> None:
    """Raise Invalid where a player stands in the round twice."""
    if standings.names.distinct:
        return
    players = standings.players
    if len(set(players)) < len(players):
        raise twice_in_round(Counter(players).most_common(1)[0][0])


def check_partition(standings: Standings, found: int, home: int) -> None:
    """Raise Invalid where a round was found in another partition than its ladder's home."""
    if found == home:
        return
    invalid = Invalid(
        "wrong-partition",
        f"ladder {standings.ladder!r} has its rounds in partition {home}, this one is in {found}: "
        "the record's key must be the ladder, and a producer of librdkafka needs "
        "partitioner=murmur2_random",
    )
    invalid.tell(standings.ladder, standings.round_id)
    raise invalid


def twice_in_round(player: str) -> Invalid:
    """The refusal of a round in which this player stands twice."""
    return Invalid("duplicate-player", f"player {player!r} stands in the round twice")


def _order(place: Places) -> Ints:
    """Indices that put entries in order of place, as given where they tie, unfinished last."""
    return np.argsort(np.where(place == DID_NOT_FINISH, MAX_RANK + 1, place), kind="stable")


Columns = tuple[Places, list[str], Ints, Floats]
"""Place by entry, players, first player by entry, and share by player."""


def _checked_lines(entries: list[PlainEntry]) -> Lines:
    """Entries that the decoder has checked, in order of place."""
    ranks = [e.rank for e in entries]
    in_order = sorted(ranks)
    players = [e.player for e in entries]
    if in_order != ranks:
        players = [players[i] for i in np.argsort(ranks, kind="stable").tolist()]
    return Lines(np.array(in_order, np.int32), Names(players))


def _alone(count: int) -> tuple[Ints, Floats]:
    """First player by entry and share by player, of so many who play alone and all the time."""
    if count <= SMALL:
        return _SMALL[count]
    return np.arange(count + 1), np.ones(count)


SMALL = 1000
_STARTS, _SHARES = np.arange(SMALL + 1), np.ones(SMALL)
_STARTS.flags.writeable = _SHARES.flags.writeable = False  # the rounds share them
_SMALL = [(_STARTS[: count + 1], _SHARES[:count]) for count in range(SMALL + 1)]


def _plain_columns(entries: list[Entry]) -> Columns | None:
    """What `_columns` gives where all is in order and nobody is in a team; else None.

    Column by column, a tenth of the time that it takes entry by entry.
    """
    if [e for e in entries if e.team is not None or e.shares is not None]:
        return None
    players = [e.player for e in entries]
    try:
        place = np.array([DID_NOT_FINISH if e.dnf else e.rank for e in entries], np.int64)
    except (TypeError, OverflowError):  # a rank is missing, or huge
        return None
    if None in players or place.max() > MAX_RANK:
        return None
    keys = np.where(place == DID_NOT_FINISH, MAX_RANK + 1, place)
    if place.min() < 1 and np.count_nonzero(place < 1) > sum([e.dnf for e in entries]):
        return None
    if (keys[1:] < keys[:-1]).any():
        order = np.argsort(keys, kind="stable")
        place, players = place[order], [players[i] for i in order.tolist()]
    named = cast(list[str], players)
    return place.astype(np.int32), named, *_alone(len(place))


def _columns(lines: list[Entry] | Lines, count: int) -> tuple[Places, Names, Ints, Floats]:
    """Place by entry, players, first player by entry, and share by player, of so many lines."""
    if isinstance(lines, Lines):
        return lines.place, lines.names, *_alone(count)
    plain = _plain_columns(lines)
    place, players, starts, share = _any_columns(lines) if plain is None else plain
    _check_players(players)
    return place, Names(players), starts, share


def _any_columns(entries: list[Entry]) -> Columns:
    """The same for any entries; raises Invalid with the place of the mistake."""
    place = np.array([_place(i, e) for i, e in enumerate(entries)], np.int32)
    members = [_members(i, e) for i, e in enumerate(entries)]
    shares = [_shares(i, e, len(members[i])) for i, e in enumerate(entries)]
    order = _order(place)
    players = [player for i in order for player in members[i]]
    starts = np.zeros(len(entries) + 1, np.int64)
    np.cumsum([len(members[i]) for i in order], out=starts[1:])
    share = np.array([part for i in order for part in shares[i]], np.float64)
    return place[order], players, starts, share


class Reader:
    """Reads rounds for a set of ladders; `check` has the last word on each, raising Invalid."""

    def __init__(self, ladders: Ladders, check: Callable[[Standings], None] = check_unique) -> None:
        self._ladders = ladders
        self._check = check

    def terms(self, ladder: str, offset: float = math.inf) -> Terms:
        """By what a ladder's round, which was read at this offset, is to be rated."""
        found = self._ladders.find(ladder, offset)
        assert found is not None, "read() refuses unknown ladders"
        return found

    def read(
        self, data: bytes | None, headers: Headers = (), received_s: float = math.inf,
        offset: float = math.inf,
    ) -> Standings:  # fmt: skip
        """The round in a record of `round-completed`, received at that Unix time; or Invalid.

        Without an offset, by what holds in the end.
        """
        content_type = events.header(headers, "content-type")
        event, lines = _decode(data or b"", content_type, self._ladders.limits)
        try:
            return self._valid(event, lines, received_s, offset)
        except Invalid as invalid:
            invalid.tell(event.ladder, event.round_id)
            raise

    def _valid(
        self, event: Round, lines: list[Entry] | Lines, received_s: float, offset: float
    ) -> Standings:
        _check_id("round_id", event.round_id)
        _check_id("ladder", event.ladder)
        terms = self._ladders.find(event.ladder, offset)
        if terms is None:
            raise Invalid("unknown-ladder", f"ladder {event.ladder!r} is not configured")
        standings = _standings(event, lines, terms.limits, received_s)
        self._check(standings)
        return standings


def _standings(
    event: Round, lines: list[Entry] | Lines, limits: Limits, received_s: float
) -> Standings:
    time = _check_time(event.completed_at, received_s, limits)
    _check_weight("weight", event.weight, limits.max_weight)
    ceiling = math.inf if event.performance_ceiling is None else event.performance_ceiling
    if not ceiling >= LEAST_CEILING:
        raise Invalid("malformed", f"performance_ceiling: {ceiling} is not over {LEAST_CEILING:g}")
    count = len(lines)
    if count < MIN_ENTRIES:
        raise Invalid("too-few-entries", f"standings: {count}, a round needs {MIN_ENTRIES}")
    if count > limits.max_entries:
        raise Invalid("too-many-entries", f"standings: {count}, the limit is {limits.max_entries}")
    place, names, starts, share = _columns(lines, count)
    return Standings(
        round_id=event.round_id,
        ladder=event.ladder,
        completed_at=event.completed_at,
        time=time,
        weight=event.weight,
        ceiling=ceiling,
        place=place,
        names=names,
        entry_starts=starts,
        share=share,
    )
