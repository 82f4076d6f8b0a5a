"""Reads what all rows of a round have in common: its id, its ladder, its time."""

from collections.abc import Sequence
from typing import Any

from stream_rater.tables.cells import identifier
from stream_rater.tables.layout import Layout
from stream_rater.tables.times import NO_TIME, Moment, Times

JOINT = "-"
"""The text between the parts of an id of several columns."""


class RoundCells:
    """Reads the cells of a row that describe its round."""

    def __init__(self, layout: Layout, stem: str, ladder: str, times: Times | None) -> None:
        """`ladder`: the ladder of all rounds; empty: each row names its own."""
        self.row = 0
        """The number of the present row."""
        self._layout, self._stem, self._all, self._times = layout, stem, ladder, times
        self._round = layout.roles.get("round", ())
        self._ladder = layout.roles.get("ladder", (-1,))[0]
        self._time = layout.roles.get("time", ())
        self.weight = layout.roles.get("weight", (-1,))[0]
        """The place of the weight; -1 without one."""

    def round_id(self, cells: Sequence[Any]) -> str:
        """The round's id: that of its columns, or the table's name with the number of the row."""
        if not self._round:
            return f"{self._stem}{JOINT}{self.row}"
        columns = self._layout.columns
        return JOINT.join([identifier(cells[place], columns[place]) for place in self._round])

    def ladder(self, cells: Sequence[Any]) -> str:
        """The id of the round's ladder."""
        return self._all or identifier(cells[self._ladder], self._layout.columns[self._ladder])

    def moment(self, cells: Sequence[Any]) -> Moment:
        """The time of the round's completion."""
        if self._times is None:
            return NO_TIME
        of_day = cells[self._time[1]] if len(self._time) > 1 else None
        return self._times.of(cells[self._time[0]], of_day)
