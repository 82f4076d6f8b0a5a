"""Makes events of a table in the wide form: a row is a match with all its sides."""

from collections.abc import Iterator, Sequence
from typing import Any, Final

from stream_rater.config.errors import BadConfiguration
from stream_rater.rounds.validation import Invalid
from stream_rater.tables import cells as read
from stream_rater.tables.cells import DRAWN, FIRST, SECOND, is_missing, mistake, order, shown
from stream_rater.tables.event_lines import Entry, Event, Made, encode, entry, weight_of
from stream_rater.tables.layout import Layout, Side
from stream_rater.tables.names import names_of_side, plain
from stream_rater.tables.reading import Reading
from stream_rater.tables.rounds import RoundCells
from stream_rater.tables.source import Reject

PROBE: Final = 1_000
"""The number of rows in which a column of ids whose name may mean something else must have no value
twice."""

MOST_RESULTS: Final = 1_000

Row = tuple[int, Sequence[Any]]
Outcome = tuple[Sequence[int | None], Sequence[int | float | None]]
"""The rank of each side, None for one that did not finish, and its score, None where unknown."""


class WideEvents:
    """Makes an event of each row."""

    def __init__(self, layout: Layout, reading: Reading, head: RoundCells) -> None:
        self._layout, self._reading, self._head = layout, reading, head
        self._sides = layout.sides
        self._columns = [layout.columns[each.players] for each in layout.sides]
        self._result = layout.roles.get("result", (-1,))[0]
        self._names_winner = self._result >= 0 and (
            plain(layout.columns[self._result]) in names_of_side("winner")
        )
        self._has_scores = all(each.score >= 0 for each in layout.sides)
        self._has_ranks = all(each.rank >= 0 for each in layout.sides)
        self._is_won = layout.sides[0].role == "winner"
        self._low = reading.score == "low"
        self._results: dict[str, tuple[tuple[int, int], Sequence[int | float]]] = {}
        """Results that were read before."""
        self._ids: dict[str, int] | None = {} if layout.general_round else None

    def events(self, rows: Iterator[Row], reject: Reject) -> Iterator[Made]:
        """Yield the event of each row. A row that is no match goes to `reject`."""
        for line, cells in rows:
            try:
                yield self._event(line, cells)
            except Invalid as invalid:
                reject(line, invalid, cells)

    def _event(self, line: int, cells: Sequence[Any]) -> Made:
        head = self._head
        round_id = head.round_id(cells)
        if self._ids is not None:
            self._check_distinct(round_id, line)
        ladder, moment = head.ladder(cells), head.moment(cells)
        players = [
            read.players(cells[each.players], column)
            for each, column in zip(self._sides, self._columns, strict=True)
            if len(self._sides) == 2 or not is_missing(cells[each.players])
        ]
        sides = self._sides
        if len(players) < len(sides):
            sides = [each for each in sides if not is_missing(cells[each.players])]
        ranks, scores = self._outcome(cells, sides, players)
        standings: list[Entry] = [
            entry(names, rank, score, side.seat)
            for side, names, rank, score in zip(sides, players, ranks, scores, strict=True)
        ]
        event = Event(round_id, ladder, moment[1], standings)
        if head.weight >= 0:
            event.weight = weight_of(cells[head.weight], self._layout.column("weight"))
        return Made(moment, line, encode(event))

    def _outcome(
        self, cells: Sequence[Any], sides: Sequence[Side], players: Sequence[tuple[str, ...]]
    ) -> Outcome:
        """The ranks and the scores of the sides. Raises Invalid."""
        nothing = [None] * len(sides)
        if self._has_ranks:
            ranks = [read.rank(cells[each.rank], self._layout.columns[each.rank]) for each in sides]
            return ranks, self._scores(cells, sides) if self._has_scores else nothing
        if self._is_won:
            return FIRST, nothing
        if self._result < 0:
            scores = self._scores(cells, sides)
            return order(scores, low=self._low), scores
        found, own = self._named_result(cells, players)
        if not self._has_scores:
            return found, own or nothing
        if all(is_missing(cells[each.score]) for each in sides):
            return found, nothing
        scores = self._scores(cells, sides)
        by_score = order(scores, low=self._low)
        if by_score not in (DRAWN, found):
            raise mistake(
                "bad-rank", self._layout.columns[self._result],
                f"{shown(cells[self._result])}, but the scores are {scores[0]} and {scores[1]}: "
                f"correct one of them, or leave the scores out, as {self._without_scores()}",
            )  # fmt: skip
        return found, scores

    def _scores(self, cells: Sequence[Any], sides: Sequence[Side]) -> list[int | float]:
        return [read.number(cells[each.score], self._layout.columns[each.score]) for each in sides]

    def _without_scores(self) -> str:
        return self._reading.by_columns({
            role: "" for role in self._layout.roles if "score" in role
        })  # fmt: skip

    def _named_result(
        self, cells: Sequence[Any], players: Sequence[tuple[str, ...]]
    ) -> tuple[tuple[int, int], Sequence[int | float]]:
        """The ranks by the column of the result, which may name the winner."""
        cell, column = cells[self._result], self._layout.columns[self._result]
        if self._names_winner and (winner := self._winner(cell, players)):
            return winner, ()
        if type(cell) is str and (known := self._results.get(cell)):
            return known
        try:
            found = read.result(cell, column)
            if type(cell) is str and len(self._results) < MOST_RESULTS:
                self._results[cell] = found
            return found
        except Invalid:
            if winner := self._winner(cell, players):
                return winner, ()
            if self._names_winner and not is_missing(cell):
                raise mistake(
                    "bad-rank", column,
                    f"{shown(cell)} is neither of the two sides, nor a draw",
                ) from None  # fmt: skip
            raise

    def _winner(self, cell: Any, players: Sequence[tuple[str, ...]]) -> tuple[int, int] | None:
        """The ranks if a cell has the name of one of two sides."""
        if is_missing(cell):
            return None
        named = str(cell)
        for ranks, side, names in zip((FIRST, SECOND), self._sides, players, strict=True):
            if names == (named,) or plain(named) == side.role:
                return ranks
        return None

    def _check_distinct(self, round_id: str, line: int) -> None:
        """Ask whether the column has ids, if one of the first values is there twice."""
        assert self._ids is not None
        earlier = self._ids.setdefault(round_id, line)
        if earlier != line:
            layout, reading = self._layout, self._reading
            column = layout.column("round")
            raise BadConfiguration(
                f"{layout.name}: column {column} has {shown(round_id)} in the {layout.unit}s "
                f"{earlier} and {line}, so it may be no id of a match: say "
                f"{reading.by_columns({'round': column})} if it is one, or leave it out, as "
                f"{reading.by_columns({'round': ''})}"
            )
        if len(self._ids) >= PROBE:
            self._ids = None
