"""Players and their belief records as columns, which can also be read item by item."""

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Self, TypeVar, overload

import numpy as np

from stream_rater.columns.arrays import Flags, Ints
from stream_rater.columns.strings import StringColumn
from stream_rater.contract.events import escape
from stream_rater.contract.record import Player

T = TypeVar("T")

NO_FLAGS: Flags = np.empty(0, np.bool_)


class LadderColumn:
    """The ladders of a PlayerColumn, and of all columns that are taken from it."""

    def __init__(self, names: StringColumn) -> None:
        self.names = names

    @cached_property
    def texts(self) -> list[str]:
        """The ids of the ladders."""
        return self.names.texts()

    @cached_property
    def escaped(self) -> StringColumn:
        """The ids of the ladders, escaped as in keys."""
        return StringColumn.of([escape(each) for each in self.texts])


class ColumnSequence(Sequence[T]):
    """A sequence that equals any other sequence of the same items."""

    __slots__ = ()

    @abstractmethod
    def cut(self, first: int, last: int) -> Self:
        """A view of the rows from `first` to before `last`."""

    @overload
    def __getitem__(self, index: int) -> T: ...
    @overload
    def __getitem__(self, index: slice) -> Self: ...
    def __getitem__(self, index: int | slice) -> T | Self:
        if isinstance(index, slice):
            first, last, _ = index.indices(len(self))
            return self.cut(first, last)
        return next(iter(self[index : index + 1 or None]))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and list(self) == list(other)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return repr(list(self))


class PlayerColumn(ColumnSequence[Player]):
    """(ladder, id) of each player."""

    __slots__ = ("ladder", "ladders", "names")

    def __init__(self, ladders: LadderColumn, ladder: Ints, names: StringColumn) -> None:
        self.ladders = ladders
        self.ladder = ladder  # (P,) the index in `ladders` of each player's ladder.
        self.names = names

    @classmethod
    def of(cls, players: Sequence[Player]) -> "PlayerColumn":
        """A column of these players."""
        ladders: dict[str, int] = {}
        ladder = [ladders.setdefault(each, len(ladders)) for each, _ in players]
        names = StringColumn.of([name for _, name in players])
        return cls(LadderColumn(StringColumn.of(list(ladders))), np.array(ladder, np.int64), names)

    def __len__(self) -> int:
        return len(self.ladder)

    def __iter__(self) -> Iterator[Player]:
        ladders = [self.ladders.texts[i] for i in self.ladder.tolist()]
        return iter(zip(ladders, self.names.texts(), strict=True))

    def cut(self, first: int, last: int) -> Self:
        names = self.names.slice(first, last)
        return type(self)(self.ladders, self.ladder[first:last], names)

    def take(self, rows: Ints) -> "PlayerColumn":
        """The players in these rows."""
        return PlayerColumn(self.ladders, self.ladder[rows], self.names.take(rows))


class BeliefColumn(ColumnSequence[tuple[Player, bytes]]):
    """Players, each with the bytes of its belief record."""

    __slots__ = ("players", "records")

    def __init__(self, players: PlayerColumn, records: StringColumn) -> None:
        self.players = players
        self.records = records  # (P,) the bytes of each player's belief record.

    @classmethod
    def of(cls, beliefs: Sequence[tuple[Player, bytes]]) -> "BeliefColumn":
        """A column of these beliefs."""
        records = StringColumn.of_bytes([record for _, record in beliefs])
        return cls(PlayerColumn.of([player for player, _ in beliefs]), records)

    def take(self, rows: Ints) -> "BeliefColumn":
        """The players in these rows, with their records."""
        return BeliefColumn(self.players.take(rows), self.records.take(rows))

    def __len__(self) -> int:
        return len(self.players)

    def __iter__(self) -> Iterator[tuple[Player, bytes]]:
        return iter(zip(self.players, self.records.strings(), strict=True))

    def cut(self, first: int, last: int) -> Self:
        return type(self)(self.players[first:last], self.records.slice(first, last))


class RecordColumn(ColumnSequence["bytes | None"]):
    """The belief records of players as a column of bytes; None where a player has no record."""

    __slots__ = ("is_present", "strings")

    def __init__(self, strings: StringColumn, is_present: Flags) -> None:
        self.strings = strings  # (P,) the bytes of each record; any bytes if there is none.
        self.is_present = is_present  # (P,) whether there is a record.

    @classmethod
    def of(cls, records: Sequence[bytes | None]) -> "RecordColumn":
        """A column of these records: they themselves, if they are one."""
        if isinstance(records, RecordColumn):
            return records
        is_present = np.array([each is not None for each in records], np.bool_)
        return cls(StringColumn.of_bytes([each or b"" for each in records]), is_present)

    @classmethod
    def nothing(cls, count: int) -> "RecordColumn":
        """A column of `count` players without records."""
        places = np.zeros(count, np.int64)
        return cls(StringColumn(np.empty(0, np.uint8), places, places), np.zeros(count, np.bool_))

    @classmethod
    def joined(cls, columns: Sequence["RecordColumn"]) -> "RecordColumn":
        """The records of all these columns, one column after the other."""
        if len(columns) == 1:
            return columns[0]
        strings = StringColumn.joined([each.strings for each in columns])
        return cls(strings, np.concatenate([NO_FLAGS, *(each.is_present for each in columns)]))

    @property
    def absent(self) -> int:
        """The number of players without a record."""
        return len(self) - int(np.count_nonzero(self.is_present))

    def replaced(self, rows: Ints, others: "RecordColumn") -> "RecordColumn":
        """The same records, but in these rows the others, in that order."""
        if not len(rows):
            return self
        place = np.arange(len(self))
        place[rows] = np.arange(len(self), len(self) + len(rows))
        return RecordColumn.joined([self, others]).take(place)

    def take(self, rows: Ints) -> "RecordColumn":
        """The records in these rows."""
        return RecordColumn(self.strings.take(rows), self.is_present[rows])

    def __len__(self) -> int:
        return len(self.strings)

    def __iter__(self) -> "Iterator[bytes | None]":
        each = zip(self.strings.strings(), self.is_present.tolist(), strict=True)
        return (record if present else None for record, present in each)

    def cut(self, first: int, last: int) -> Self:
        return type(self)(self.strings.slice(first, last), self.is_present[first:last])
