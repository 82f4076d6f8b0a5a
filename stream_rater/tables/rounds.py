"""Reads what all rows of a round have in common: its id, its ladder, its time."""

from collections.abc import Sequence
from typing import Any

from stream_rater.tables.cells import identifier, is_missing
from stream_rater.tables.doubts import NOBODY, Doubts, Numbers, Statuses, TextQuestion
from stream_rater.tables.layout import Layout
from stream_rater.tables.times import NO_TIME, Moment, Times

JOINT = "-"
"""The text between the parts of an id of several columns."""


def joined(cells: Sequence[Any], places: Sequence[int], columns: Sequence[str]) -> str:
    """The id in these places of a row. Raises Invalid."""
    if len(places) == 1:
        return identifier(cells[places[0]], columns[places[0]])
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
        general, by = "weight" in layout.general, doubts.reading
        self._asked = TextQuestion(
            layout.column("weight"), doubts, "is it the weight of the round, or of a player?",
            f"say {by.by_columns({'weight': layout.column('weight')})} or "
            f"{by.by_columns({'weight': ''})}",
        ) if general else None  # fmt: skip
        self._nobody: dict[str, Statuses] = {}
        self._takes_nobody, self._doubts = by.columns.get("status") == "", doubts

    def round_id(self, cells: Sequence[Any]) -> str:
        """The round's id: that of its columns, or the table's name with the number of the row."""
        if not self._round:
            return f"{self._stem}{JOINT}{self.row}"
        return joined(cells, self._round, self._layout.columns)

    def ladder(self, cells: Sequence[Any]) -> str:
        """The id of the round's ladder."""
        return self._all or joined(cells, self._ladder, self._layout.columns)

    def moment(self, cells: Sequence[Any]) -> Moment:
        """The time of the round's completion."""
        if self._times is None:
            return NO_TIME
        of_day = cells[self._time[1]] if len(self._time) > 1 else None
        return self._times.of(cells[self._time[0]], of_day)

    def weight_of(self, cells: Sequence[Any]) -> int | float:
        """The weight of the round. Raises Invalid."""
        if self._weights is None:
            return 1
        found = self._weights.of(cells[self._weight], "bad-weight")
        if self._asked is not None and found != 1:
            self._asked.note(str(cells[self._weight]))
        return found

    def somebody(self, players: tuple[str, ...], column: str) -> tuple[str, ...]:
        """The players of a column, once it is looked whether they are people."""
        if not self._takes_nobody and not NOBODY.isdisjoint(players):
            if column not in self._nobody:
                self._nobody[column] = Statuses(column, self._doubts)
            for each in NOBODY.intersection(players):
                self._nobody[column].note(each)
        return players

    def members(
        self, cells: Sequence[Any], places: Sequence[int], columns: Sequence[str]
    ) -> tuple[str, ...]:
        """The members of a team, each in a column; one may be missing. Raises Invalid."""
        at = [i for i in places if not is_missing(cells[i])] or places[:1]
        return tuple(self.somebody((identifier(cells[i], columns[i]),), columns[i])[0] for i in at)
