"""The rounds of a table: the cells that describe a round, and its event as a JSON line."""

import mmap
import tempfile
from array import array
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import msgspec

from stream_rater.tables.doubts import NOBODY, ColumnQuestion, Doubts, Members, Numbers, Statuses
from stream_rater.tables.layout import Layout
from stream_rater.tables.sources import identifier, is_missing, players
from stream_rater.tables.times import NO_TIME, Moment, Times

JOINT = "-"  # The text between the parts of an id of several columns.


class EntryJson(msgspec.Struct, omit_defaults=True, gc=False):
    """An entry of an event. The fast reader takes fields in this order."""

    player: str | None = None
    team: tuple[str, ...] | None = None
    rank: int | None = None
    dnf: bool = False
    shares: tuple[float, ...] | None = None
    score: int | float | None = None
    seat: str | None = None


class RoundJson(msgspec.Struct, omit_defaults=True, gc=False):
    """A `round-completed` event."""

    round_id: str
    ladder: str
    completed_at: str
    standings: list[EntryJson]
    weight: int | float = 1


_encode = msgspec.json.Encoder().encode


def entry(
    players: tuple[str, ...], rank: int | None, score: int | float | None = None,
    seat: str | None = None, shares: tuple[float, ...] | None = None,
) -> EntryJson:  # fmt: skip
    """An entry. `rank`: None for an entry that did not finish."""
    alone, team = (players[0], None) if len(players) == 1 else (None, players)
    return EntryJson(alone, team, rank, rank is None, shares, score, seat)


class RoundHead(NamedTuple):
    """The data of a round without its standings."""

    line: int  # The number of its first row.
    round_id: str
    ladder: str
    moment: Moment
    weight: int | float


Events = Iterator[tuple[RoundHead, bytes]]  # With each round, its event (`event_of`).


def event_of(head: RoundHead, standings: list[EntryJson]) -> bytes:
    """The event of a round as JSON, without a line end."""
    _, round_id, ladder, moment, weight = head
    return _encode(RoundJson(round_id, ladder, moment[1], standings, weight))


class Spool:
    """A temporary file of many short texts, which can be read in any order once it is sealed."""

    def __init__(self) -> None:
        self._file = tempfile.TemporaryFile()  # noqa: SIM115 - as long as this object lives
        self._ends = array("q", [0])
        self._view: mmap.mmap | bytes = b""

    def append(self, text: bytes) -> None:
        self._file.write(text)
        self._ends.append(self._ends[-1] + len(text))

    def seal(self) -> None:
        """End the writing, and begin the reading."""
        self._file.flush()
        if self._ends[-1]:
            self._view = mmap.mmap(self._file.fileno(), 0, access=mmap.ACCESS_READ)

    def __len__(self) -> int:
        return len(self._ends) - 1

    def __getitem__(self, number: int) -> bytes:
        return self._view[self._ends[number] : self._ends[number + 1]]


def joined(cells: Sequence[Any], places: Sequence[int], columns: Sequence[str]) -> str:
    """The id in these places of a row. Raises Invalid."""
    return JOINT.join([identifier(cells[place], columns[place]) for place in places])


class RoundCells:
    """Reads the cells of a row that describe its round."""

    def __init__(
        self, layout: Layout, stem: str, ladder: str, times: Times | None, doubts: Doubts
    ) -> None:
        """`ladder`: the ladder of all rounds; empty: each row names its own."""
        self.row = 0
        """The number of the present row."""
        self._layout, self._stem, self._all, self._times = layout, stem, ladder, times
        self._round = layout.roles.get("round", ())
        self._ladder = layout.roles.get("ladder", ())
        self._time = layout.roles.get("time", ())
        self._weight = layout.roles.get("weight", (-1,))[0]
        self._weights = Numbers(layout.column("weight"), doubts) if self._weight >= 0 else None
        self._asked: ColumnQuestion | None = None
        if "weight" in layout.general:
            column, by = layout.column("weight"), doubts.reading.by_columns
            cure = f"say {by({'weight': column})} or {by({'weight': ''})}"
            text = "is it the weight of the round, or of a player?"
            self._asked = ColumnQuestion(column, doubts, text, cure)
        cells = [side.players for side in layout.sides] or [layout.roles["player"]]
        named = [layout.columns[places[0]] for places in cells if len(places) == 1]
        self.members = Members(" and ".join(named[:2]), doubts)
        self._nobody: dict[str, Statuses] = {}
        self._takes_nobody, self._doubts = doubts.reading.columns.get("status") == "", doubts

    def round_id(self, cells: Sequence[Any]) -> str:
        """The round's id: that of its columns, or the table's name with the number of the row."""
        if not self._round:
            return f"{self._stem}{JOINT}{self.row}"
        return joined(cells, self._round, self._layout.columns)

    def ladder(self, cells: Sequence[Any]) -> str:
        return self._all or joined(cells, self._ladder, self._layout.columns)

    def moment(self, cells: Sequence[Any]) -> Moment:
        if self._times is None:
            return NO_TIME
        return self._times.of(*[cells[place] for place in self._time[:2]])

    def weight_of(self, cells: Sequence[Any]) -> int | float:
        if self._weights is None:
            return 1
        weight = self._weights.of(cells[self._weight], "bad-weight")
        if self._asked is not None and weight != 1:
            self._asked.note(str(cells[self._weight]))
        return weight

    def players(self, cells: Sequence[Any], places: Sequence[int]) -> tuple[str, ...]:
        """The players in one column, or the members in several, some of which may be empty."""
        columns = self._layout.columns
        if len(places) == 1:
            column = columns[places[0]]
            return self._somebody(players(self.members.of(cells[places[0]]), column), column)
        at = [i for i in places if not is_missing(cells[i])] or places[:1]
        named = [self._somebody((identifier(cells[i], columns[i]),), columns[i]) for i in at]
        return tuple(member for (member,) in named)

    def _somebody(self, players: tuple[str, ...], column: str) -> tuple[str, ...]:
        """The players of a column, once it is looked whether they are people."""
        for player in () if self._takes_nobody else NOBODY.intersection(players):
            if column not in self._nobody:
                self._nobody[column] = Statuses(column, self._doubts)
            self._nobody[column].note(player)
        return players
