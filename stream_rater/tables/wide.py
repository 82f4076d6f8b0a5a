"""Makes events of a table in the wide form: a row is a match with all its sides."""

from collections.abc import Iterator, Sequence
from typing import Any, Final

from stream_rater.config.errors import BadConfiguration
from stream_rater.rounds.validation import Invalid
from stream_rater.tables import cells as read
from stream_rater.tables.cells import DRAWN, FIRST, SECOND, is_missing, mistake, order, shown
from stream_rater.tables.doubts import (
    Doubts,
    Flags,
    LeftOut,
    Places,
    Results,
    Scores,
    TextQuestion,
)
from stream_rater.tables.event_lines import EntryLine, EventLine, Made, encode, entry
from stream_rater.tables.layout import Layout, SideColumns
from stream_rater.tables.layout import Places as ColumnPlaces
from stream_rater.tables.names import names_of_side, plain
from stream_rater.tables.rounds import RoundCells
from stream_rater.tables.source import Reject

PROBE: Final = 1_000
"""The number of rows in which a column of ids whose name may mean something else must have no value
twice."""

Players = Sequence[tuple[str, ...]]
Row = tuple[int, Sequence[Any]]
Outcome = tuple[Sequence[int | None], Sequence[int | float | None]]
"""The rank of each side, None for one that did not finish, and its score, None where unknown."""


class WideEvents:
    """Makes an event of each row."""

    def __init__(self, layout: Layout, head: RoundCells, doubts: Doubts) -> None:
        self._layout, self._reading, self._head = layout, doubts.reading, head
        self._sides, columns = layout.sides, layout.columns
        self._result = layout.roles.get("result", (-1,))[0]
        self._neutral = layout.roles.get("neutral", (-1,))[0]
        self._has_scores = all(each.score >= 0 for each in layout.sides)
        self._has_ranks = all(each.rank >= 0 for each in layout.sides)
        self._is_won = layout.sides[0].role == "winner"
        self._low = self._reading.score == "low"
        self._scores_of = {
            side: Scores(columns[side.score], doubts) for side in self._sides if self._has_scores
        }
        self._ranks_of = {
            side: Places(columns[side.rank], doubts) for side in self._sides if self._has_ranks
        }
        self._results: Results | None = None
        if self._result >= 0:
            column = columns[self._result]
            self._names_winner = plain(column) in names_of_side("winner") and not self._is_won
            initials = {
                side.role[0]: ranks
                for side, ranks in zip(self._sides, (FIRST, SECOND), strict=True) if side.seat
            }  # fmt: skip
            self._results = Results(
                column, doubts, initials, scored=self._has_scores, names_winner=self._names_winner
            )
        self._is_neutral = (
            Flags(columns[self._neutral], doubts, "neutral") if self._neutral >= 0 else None
        )
        by = self._reading
        first = columns[self._result if self._result >= 0 else max(self._sides[0].score, 0)]
        self._unplayed = TextQuestion(
            first, doubts, "a match without a result:", "say "
            f"{by.by('skip', {first: ''})} to leave such rows out",
        )  # fmt: skip
        self._tied = TextQuestion(
            f"{first} and {columns[max(self._sides[1].score, 0)]}", doubts,
            "winner and loser have equal scores:",
            f"say {by.by('result', {'equal': 'draw'})} or {by.by('result', {'equal': 'win'})}",
        )  # fmt: skip
        self._lower = TextQuestion(
            f"{first} and {columns[max(self._sides[1].score, 0)]}", doubts,
            "the winner has the lower score:",
            f"say {by.by('score', 'low')} if it is the better one, or "
            f"{self._without_scores()} to leave the scores out",
        )  # fmt: skip
        self._ids: dict[str, int] | None = {} if "round" in layout.general else None

    def events(self, rows: Iterator[Row], reject: Reject) -> Iterator[Made]:
        """Yield the event of each row. A row that is no match goes to `reject`."""
        for line, cells in rows:
            try:
                yield self._event(line, cells)
            except LeftOut:
                pass
            except Invalid as invalid:
                reject(line, invalid, cells)

    def _event(self, line: int, cells: Sequence[Any]) -> Made:
        head = self._head
        round_id = head.round_id(cells)
        if self._ids is not None:
            self._check_distinct(round_id, line)
        ladder, moment = head.ladder(cells), head.moment(cells)
        sides = self._sides
        if len(sides) > 2:
            sides = [side for side in sides if not all(is_missing(cells[i]) for i in side.players)]
        players = [self._players(cells, side.players) for side in sides]
        ranks, scores = self._outcome(cells, sides, players)
        neutral = self._is_neutral is not None and self._is_neutral.of(cells[self._neutral])
        standings: list[EntryLine] = [
            entry(names, rank, score, None if neutral else side.seat)
            for side, names, rank, score in zip(sides, players, ranks, scores, strict=True)
        ]
        event = EventLine(round_id, ladder, moment[1], standings, head.weight_of(cells))
        return Made(moment, line, encode(event))

    def _players(self, cells: Sequence[Any], places: ColumnPlaces) -> tuple[str, ...]:
        """The players of a side. A member of a team may be missing."""
        columns, head = self._layout.columns, self._head
        if len(places) == 1:
            column = columns[places[0]]
            return head.somebody(read.players(cells[places[0]], column), column)
        return head.members(cells, places, columns)

    def _outcome(
        self, cells: Sequence[Any], sides: Sequence[SideColumns], players: Players
    ) -> Outcome:
        """The ranks and the scores of the sides. Raises Invalid, or LeftOut."""
        nothing = [None] * len(sides)
        scored = self._has_scores and not all(is_missing(cells[each.score]) for each in sides)
        if self._has_ranks:
            ranks = [self._ranks_of[side].of(cells[side.rank]) for side in sides]
            return ranks, self._scores(cells, sides) if scored else nothing
        scores = self._scores(cells, sides) if scored else nothing
        if scored and None in scores:  # somebody did not finish
            return [None if score is None else 1 for score in scores], scores
        by_score = order(scores, low=self._low) if scored else ()  # type: ignore[arg-type]
        if self._results is None and not self._is_won:
            if not scored:
                self._unplayed.note("", players)
                raise LeftOut
            return by_score, scores
        if self._results is None or (scored and is_missing(cells[self._result])):
            found, own = FIRST if self._is_won else by_score, nothing
        else:
            found, own = self._named_result(cells, players)  # type: ignore[assignment]
        if not scored:
            return found, own or nothing
        if by_score in (found, DRAWN):
            if self._is_won and by_score == DRAWN and self._results is None:
                return self._of_tied(players, scores), scores
            return found, scores
        if self._is_won:
            self._lower.note(f"{scores[0]}-{scores[1]}", players)
            return found, scores
        raise mistake(
            "bad-rank", self._layout.columns[self._result],
            f"{shown(cells[self._result])}, but the scores are {scores[0]} and {scores[1]}: "
            f"correct one of them, or leave the scores out, as {self._without_scores()}",
        )  # fmt: skip

    def _of_tied(self, players: Players, scores: Sequence[Any]) -> tuple[int, int]:
        """The ranks of a winner and a loser with equal scores."""
        said = self._reading.result.get("equal")
        if said is None:
            self._tied.note(f"{scores[0]}-{scores[1]}", players)
        return DRAWN if said == "draw" else FIRST

    def _scores(self, cells: Sequence[Any], sides: Sequence[SideColumns]) -> list[Any]:
        return [self._scores_of[side].score(cells[side.score]) for side in sides]

    def _without_scores(self) -> str:
        return self._reading.by_columns({
            role: "" for role in self._layout.roles if "score" in role
        })  # fmt: skip

    def _named_result(
        self, cells: Sequence[Any], players: Players
    ) -> tuple[tuple[int, int], Sequence[int | float]]:
        """The ranks by the column of the result, which may name the winner."""
        assert self._results is not None
        cell = cells[self._result]
        known = not self._names_winner and self._results.is_known(cell)
        if not known and (winner := self._winner(cell, players)):
            self._results.has_ids |= str(cell).strip().isdecimal()
            return winner, ()
        return self._results.of(cell, players)

    def _winner(self, cell: Any, players: Players) -> tuple[int, int] | None:
        """The ranks if a cell has the name of one of two sides."""
        if is_missing(cell):
            return None
        named = read.identifier(cell, self._layout.columns[self._result])
        for ranks, names in zip((FIRST, SECOND), players, strict=True):
            if named in names:
                return ranks
        if not any(map(str.isalpha, named)):
            return None
        for ranks, side in zip((FIRST, SECOND), self._sides, strict=True):
            key = side.role.removeprefix("player") or side.role
            if plain(named) in {key, *names_of_side(key)}:
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
