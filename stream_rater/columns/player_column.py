"""Players, and what is written of them, as columns, as thousands are asked for at once; read one by
one where few are."""

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import TypeVar, overload

import numpy as np

from stream_rater.columns.arrays import Ints
from stream_rater.columns.sharding import columns
from stream_rater.columns.strings import LaidOut, lay_out
from stream_rater.contract.events import escape
from stream_rater.contract.record import Player

T = TypeVar("T")


class Ladders:
    """Those of a roster, and of all that are cut from it."""

    def __init__(self, names: LaidOut) -> None:
        self.names = names

    @cached_property
    def texts(self) -> list[str]:
        """Their ids."""
        return self.names.texts()

    @cached_property
    def escaped(self) -> LaidOut:
        """As they stand in keys."""
        return lay_out([escape(each) for each in self.texts])


class Columns(Sequence[T]):
    """A sequence that is the same as any other of the same things."""

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and list(self) == list(other)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return repr(list(self))


class Roster(Columns[Player]):
    """(ladder, id) of each player."""

    __slots__ = ("ladder", "ladders", "names")

    def __init__(self, ladders: Ladders, ladder: Ints, names: LaidOut) -> None:
        self.ladders = ladders
        self.ladder = ladder
        """(P,) which of those each player is on."""
        self.names = names

    @classmethod
    def of(cls, players: Sequence[Player]) -> "Roster":
        """These players, if they are no roster yet."""
        if isinstance(players, Roster):
            return players
        ladders: dict[str, int] = {}
        ladder = [ladders.setdefault(each, len(ladders)) for each, _ in players]
        names = lay_out([name for _, name in players])
        return cls(Ladders(lay_out(list(ladders))), np.array(ladder, np.int64), names)

    def __len__(self) -> int:
        return len(self.ladder)

    def __iter__(self) -> Iterator[Player]:
        ladders = [self.ladders.texts[i] for i in self.ladder.tolist()]
        return iter(zip(ladders, self.names.texts(), strict=True))

    @overload
    def __getitem__(self, index: int) -> Player: ...
    @overload
    def __getitem__(self, index: slice) -> "Roster": ...
    def __getitem__(self, index: int | slice) -> "Player | Roster":
        if isinstance(index, slice):
            return Roster(self.ladders, self.ladder[index], self.names.some(index))
        return next(iter(self[index : index + 1 or None]))

    def rows(self, rows: Ints) -> "Roster":
        """These of them."""
        return Roster(self.ladders, self.ladder[rows], self.names.rows(rows))


class Entries(Columns[tuple[Player, bytes]]):
    """Players, and of each one what is written of it."""

    __slots__ = ("players", "records")

    def __init__(self, players: Roster, records: LaidOut) -> None:
        self.players = players
        self.records = records
        """(P,) the bytes."""

    @classmethod
    def of(cls, beliefs: Sequence[tuple[Player, bytes]]) -> "Entries":
        """The same, if these are no entries yet."""
        if isinstance(beliefs, Entries):
            return beliefs
        data, ends = columns([record for _, record in beliefs])
        # a copy: kernels are compiled anew for what cannot be written
        records = LaidOut(data.copy(), np.append(0, ends)[:-1], ends)
        return cls(Roster.of([player for player, _ in beliefs]), records)

    def rows(self, rows: Ints) -> "Entries":
        """These of them."""
        return Entries(self.players.rows(rows), self.records.rows(rows))

    def __len__(self) -> int:
        return len(self.players)

    def __iter__(self) -> Iterator[tuple[Player, bytes]]:
        spans = zip(self.records.starts.tolist(), self.records.ends.tolist(), strict=True)
        records = (self.records.data[start:end].tobytes() for start, end in spans)
        return iter(zip(self.players, records, strict=True))

    @overload
    def __getitem__(self, index: int) -> tuple[Player, bytes]: ...
    @overload
    def __getitem__(self, index: slice) -> "Entries": ...
    def __getitem__(self, index: int | slice) -> "tuple[Player, bytes] | Entries":
        if isinstance(index, slice):
            return Entries(self.players[index], self.records.some(index))
        return next(iter(self[index : index + 1 or None]))
