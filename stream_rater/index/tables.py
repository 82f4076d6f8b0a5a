"""The tables of the index in LMDB: their keys, their values, and the order that both give.

| table | key | value |
|---|---|---|
| `state` | `STATE` | `State` |
| `ladders` | ladder | `LadderRow` |
| `players` | n, player | `StoredPlayer` |
| `ranks` | n, score, player | - |
| `points` | n, bin of the histogram | the number of listed players at each of its points |
| `changes` | n, offset, player | `IndexedChange` |
| `dues` | moment, n, player | - |
| `seasons` | ladder, season | `LadderRow` |

`n` is the number of a ladder, or of a past season of one, in this index, in four bytes. The
standings of a season are a leaderboard of their own, which never changes. All numbers in keys are
stored so that the order of their bytes is the order of the numbers. A score is minus the displayed
rating, so that players of equal rating are in order of the bytes of their ids: a page of a
leaderboard is a range of `ranks`, and players whose ids begin alike are a range of `players`.

The players of one round are a range of `changes`, so its opponents can be read. New changes lie at
the end, which costs less than to keep those of a player together; the player's row has their
offsets. `predict` reads mu and sigma of a player: one Gaussian. A ladder with a bank of filters
will read the workers' beliefs.
"""

import struct
from collections.abc import Iterable, Iterator, Sequence
from itertools import takewhile
from typing import Any, NamedTuple

import msgspec
import numpy as np

from stream_rater.contract.events import MAX_ID_BYTES
from stream_rater.contract.season_ended import SeasonKept
from stream_rater.index import entries

FORMAT = 2  # The format of the tables. An index of another format is made again.

STATE = b"state"


class Tables(NamedTuple):
    """LMDB's handles of the tables."""

    state: Any
    ladders: Any
    players: Any
    ranks: Any
    points: Any
    changes: Any
    dues: Any
    seasons: Any


_FIRST, _ALL, _SIGN = 1 << 63, (1 << 64) - 1, np.int64(-(1 << 63))
_double, _bits, _number = struct.Struct(">d"), struct.Struct(">Q"), struct.Struct(">I")
_counts = struct.Struct(f"<{entries.BIN}I")


class Tail(msgspec.Struct, frozen=True, array_like=True):
    """The last record that was read of a partition."""

    offset: int
    checksum: int


class State(msgspec.Struct, array_like=True):
    """From which records the index was made. It is written in the transaction of their data."""

    log: str  # The id of the log of `rating-changed`.
    current_s: float  # When the index last had all events, or was begun (Unix seconds).
    positions: list[int]  # By partition: the index has every event before.
    tails: dict[int, Tail]  # By partition, the last record that was read.
    seasons_log: str  # The id of the log of standings; empty if none was read.
    seasons: list[int]  # By partition of that log, the next offset.
    complete: bool = False  # Whether the writer has reached the ends as of its start.


class LadderRow(msgspec.Struct, array_like=True):
    """The data about a ladder as a whole, or about a past season of one."""

    number: int
    summary: entries.LadderSummary
    listed: int  # The number of players on the leaderboard.
    views: str = ""  # The id of the views by which players are placed; empty without views.
    swept: entries.Swept = entries.NOT_SWEPT  # Whom a sweep has taken out last.
    kept: SeasonKept | None = None  # The summary of a season, once all of it is there.

    @property
    def prefix(self) -> bytes:
        """The prefix of the ladder's keys."""
        return _number.pack(self.number)


class StoredPlayer(NamedTuple):
    """A player, with the offsets of the player's history."""

    player: entries.IndexedPlayer
    offsets: bytes  # The offsets of the kept changes, in order (`number_key`).


decode_change = msgspec.msgpack.Decoder(entries.IndexedChange).decode
_decode_all = msgspec.msgpack.Decoder(list[StoredPlayer]).decode
encode_entry = msgspec.msgpack.Encoder().encode
decode_state = msgspec.msgpack.Decoder(State).decode
decode_ladder = msgspec.msgpack.Decoder(LadderRow).decode


def ordered(values: Sequence[float]) -> list[bytes]:
    """Numbers as parts of keys, eight bytes each, in the same order. -0.0 counts as 0.0."""
    bits = (np.array(values, dtype=float) + 0.0).view(np.int64)
    data = (bits ^ ((bits >> 63) | _SIGN)).astype(">i8").tobytes()
    return [data[at : at + 8] for at in range(0, len(data), 8)]


def scores_of(ratings: Sequence[float]) -> list[bytes]:
    """The scores of these displayed ratings."""
    return ordered([0.0 - rating for rating in ratings])


def value_of(key: bytes) -> float:
    """The number in a key that `ordered` has made."""
    (bits,) = _bits.unpack(key)
    (found,) = _double.unpack(_bits.pack(bits ^ _FIRST if bits & _FIRST else bits ^ _ALL))
    return float(found)


def rating_of(score: bytes) -> float:
    """The displayed rating with this score."""
    return 0.0 - value_of(score)


def is_id(text: str) -> bool:
    """Whether a text may be the id of a ladder or player: it is not empty, and fits into a key."""
    return 0 < len(text.encode()) <= MAX_ID_BYTES


def rows_from(
    cursor: Any, prefix: bytes, first: bytes = b"", *, values: bool = True
) -> Iterator[Any]:
    """The rows whose keys begin with `prefix`, in order, from `prefix + first` on; without `values`
    the keys alone. (If there is none, LMDB's cursor would begin with the first row.)"""
    if not cursor.set_range(prefix + first):
        return iter(())
    rows = cursor.iternext(values=values)
    if values:
        return takewhile(lambda row: row[0].startswith(prefix), rows)
    return takewhile(lambda key: key.startswith(prefix), rows)


def stored_players(cursor: Any, prefix: bytes, names: Iterable[str]) -> dict[str, StoredPlayer]:
    """The players of a ladder whom the index has, of these. `cursor` is one of `players`."""
    found = cursor.getmulti(sorted({prefix + name.encode() for name in names}))
    rows = b"".join([value for _, value in found])
    decoded = _decode_all(b"\xdd" + len(found).to_bytes(4, "big") + rows)  # one call for all
    return {key[4:].decode(): each for (key, _), each in zip(found, decoded, strict=True)}


def number_key(number: int) -> bytes:
    """A whole number as a part of a key. Negative numbers come first."""
    return _bits.pack(number + _FIRST)


def number_in(key: bytes) -> int:
    """The number in a key that `number_key` has made."""
    return int(_bits.unpack(key)[0]) - _FIRST


def season_key(ladder: str, season: int) -> bytes:
    """The key of a season in `seasons`."""
    name = ladder.encode()
    return bytes((len(name),)) + name + number_key(season)


def offsets_in(packed: bytes) -> list[bytes]:
    """The offsets of a history, each as `number_key` has made it."""
    return [packed[at : at + 8] for at in range(0, len(packed), 8)]


def counts_in(value: bytes | None) -> list[int]:
    """The numbers of listed players at the points of a histogram bin."""
    return [0] * entries.BIN if value is None else [*_counts.unpack(value)]


pack_counts = _counts.pack
