"""Makes events of a table in the wide form: a row is a match with all its sides."""

from collections.abc import Iterator, Sequence
from typing import Any, Final

from stream_rater.config.errors import BadConfiguration
from stream_rater.rounds.validation import Invalid
from stream_rater.tables import doubts as open_
from stream_rater.tables import rounds, sources
from stream_rater.tables.layout import Layout, SideColumns
from stream_rater.tables.names import key_of, names_of_side, plain
from stream_rater.tables.sources import DRAWN, FIRST, SECOND, Reject, Row, is_missing

PROBE: Final = 1_000
"""The number of first rows in which a column with a doubtful name must have no id twice."""

Players = Sequence[tuple[str, ...]]
Outcome = tuple[Sequence[int | None], Sequence[int | float | None]]
"""The rank of each side, None for one that did not finish, and its score, None where unknown."""


class WideEvents:
    """Makes an event of each row."""

    def __init__(self, layout: Layout, head: rounds.RoundCells, doubts: open_.Doubts) -> None:
        self._layout, self._reading, self._head = layout, doubts.reading, head
        self._sides, columns, by = layout.sides, layout.columns, doubts.reading.by
        self._result = layout.roles.get("result", (-1,))[0]
        self._neutral = layout.roles.get("neutral", (-1,))[0]
        self._has_scores = all(side.score >= 0 for side in layout.sides)
        self._has_ranks = all(side.rank >= 0 for side in layout.sides)
        self._is_won = layout.sides[0].role == "winner"
        scored = self._sides if self._has_scores else []
        ranked = self._sides if self._has_ranks else []
        self._scores_of = {side: open_.Scores(columns[side.score], doubts) for side in scored}
        self._ranks_of = {side: open_.Places(columns[side.rank], doubts) for side in ranked}
        self._results: open_.Results | None = None
        if self._result >= 0:
            column = columns[self._result]
            self._names_winner = plain(column) in names_of_side("winner") and not self._is_won
            seats = zip(self._sides, (FIRST, SECOND), strict=True)
            initials = {side.role[0]: ranks for side, ranks in seats if side.seat}
            self._results = open_.Results(
                column, doubts, initials, scored=self._has_scores, names_winner=self._names_winner
            )
        self._is_neutral: open_.Flags | None = None
        if self._neutral >= 0:
            self._is_neutral = open_.Flags(columns[self._neutral], doubts, "neutral")
        first = columns[self._result if self._result >= 0 else max(self._sides[0].score, 0)]
        both = f"{first} and {columns[max(self._sides[1].score, 0)]}"
        left, draw, win = by("skip", {first: ""}), {"equal": "draw"}, {"equal": "win"}
        self._unplayed, self._tied, self._lower = (
            open_.ColumnQuestion(name, doubts, text, f"say {cure}")
            for name, text, cure in (
                (first, "a match without a result:", f"{left} to leave such rows out"),
                (both, "winner and loser have equal scores:",
                 f"{by('result', draw)} or {by('result', win)}"),
                (both, "the winner has the lower score:",
                 f"{by('score', 'low')} if it is the better one, or {self._without_scores()} to "
                 "leave the scores out"),
            )
        )  # fmt: skip
        self._ids: dict[str, int] | None = {} if "round" in layout.general else None

    def events(self, rows: Iterator[Row], reject: Reject) -> rounds.Events:
        """Yield the event of each row. A row that is no match goes to `reject`."""
        for line, cells in rows:
            try:
                yield self._event(line, cells)
            except open_.LeftOut:
                pass
            except Invalid as invalid:
                reject(line, invalid, cells)

    def _event(self, line: int, cells: Sequence[Any]) -> tuple[rounds.RoundHead, bytes]:
        head, sides = self._head, self._sides
        round_id = head.round_id(cells)
        if self._ids is not None:
            self._check_distinct(self._ids, round_id, line)
        ladder, moment = head.ladder(cells), head.moment(cells)
        if len(sides) > 2:
            sides = [side for side in sides if not all(is_missing(cells[i]) for i in side.players)]
        players = [head.players(cells, side.players) for side in sides]
        ranks, scores = self._outcome(cells, sides, players)
        neutral = self._is_neutral is not None and self._is_neutral.of(cells[self._neutral])
        standings = [
            rounds.entry(names, rank, score, None if neutral else side.seat)
            for side, names, rank, score in zip(sides, players, ranks, scores, strict=True)
        ]
        found = rounds.RoundHead(line, round_id, ladder, moment, head.weight_of(cells))
        return found, rounds.event_of(found, standings)

    def _outcome(
        self, cells: Sequence[Any], sides: Sequence[SideColumns], players: Players
    ) -> Outcome:
        """The ranks and the scores of the sides. Raises Invalid, or LeftOut."""
        scores: list[Any] = [None] * len(sides)
        scored = self._has_scores and not all(is_missing(cells[side.score]) for side in sides)
        ranks = [self._ranks_of[side].of(cells[side.rank]) for side in sides if self._has_ranks]
        if scored:
            scores = [self._scores_of[side].score(cells[side.score]) for side in sides]
        if self._has_ranks:
            return ranks, scores
        if scored and None in scores:  # somebody did not finish
            return [None if score is None else 1 for score in scores], scores
        by_score = sources.order(scores, low=self._reading.score == "low") if scored else ()
        if self._results is None and not self._is_won:
            if not scored:
                self._unplayed.note("", players)
                raise open_.LeftOut
            return by_score, scores
        named: tuple[int, ...] = FIRST if self._is_won else by_score
        if self._results is not None and not (scored and is_missing(cells[self._result])):
            cell, pair = cells[self._result], tuple[int | float, ...]()
            known = not self._names_winner and self._results.is_known(cell)
            if not known and (winner := self._winner(cell, players)):
                self._results.has_ids |= str(cell).strip().isdecimal()
                named = winner
            else:
                named, pair = self._results.of(cell, players)
            if not scored:
                return named, pair or scores
        if not scored or by_score == named:
            return named, scores
        if by_score == DRAWN:
            said = self._reading.result.get("equal")
            if self._is_won and self._results is None and said is None:
                self._tied.note(f"{scores[0]}-{scores[1]}", players)
            is_draw = self._is_won and self._results is None and said == "draw"
            return DRAWN if is_draw else named, scores
        if self._is_won:
            self._lower.note(f"{scores[0]}-{scores[1]}", players)
            return named, scores
        raise sources.mistake(
            "bad-rank", self._layout.columns[self._result],
            f"{sources.shown(cells[self._result])}, but the scores are {scores[0]} and "
            f"{scores[1]}: correct one of them, or leave the scores out, as "
            f"{self._without_scores()}",
        )  # fmt: skip

    def _without_scores(self) -> str:
        roles = (role for role in self._layout.roles if "score" in role)
        return self._reading.by_columns(dict.fromkeys(roles, ""))

    def _winner(self, cell: Any, players: Players) -> tuple[int, int] | None:
        """The ranks if a cell has the name of one of two sides."""
        if is_missing(cell):
            return None
        named = sources.identifier(cell, column := self._layout.columns[self._result])
        whole = {*sources.players(self._head.members.of(named), column)}
        for ranks, names in zip((FIRST, SECOND), players, strict=True):
            if named in names or whole == {*names}:
                return ranks
        for ranks, side in zip((FIRST, SECOND), self._sides, strict=True):
            key = key_of(side.role)
            if any(map(str.isalpha, named)) and plain(named) in {key, *names_of_side(key)}:
                return ranks
        return None

    def _check_distinct(self, ids: dict[str, int], round_id: str, line: int) -> None:
        """Ask whether the column has ids, if one of the first values is there twice."""
        earlier = ids.setdefault(round_id, line)
        if earlier != line:
            layout, by_columns = self._layout, self._reading.by_columns
            column = layout.column("round")
            raise BadConfiguration(
                f"{layout.name}: column {column} has {sources.shown(round_id)} in the "
                f"{layout.unit}s {earlier} and {line}, so it may be no id of a match: say "
                f"{by_columns({'round': column})} if it is one, or leave it out, as "
                f"{by_columns({'round': ''})}"
            )
        if len(ids) >= PROBE:
            self._ids = None
