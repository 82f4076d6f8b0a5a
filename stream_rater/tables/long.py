"""Makes events of a table in the long form: a row is an entry, or a member of a team.

The rows of a round need not be adjacent, so all rows are read before the first event is made. They
are stored in a temporary file; of each row only some numbers stay in memory.
"""

import re
from array import array
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, TypeVar

import msgspec
import numpy as np

from stream_rater.rounds.validation import Invalid
from stream_rater.tables import cells as read
from stream_rater.tables.cells import is_missing, mistake, order
from stream_rater.tables.doubts import (
    Column,
    Doubts,
    Flags,
    LeftOut,
    Numbers,
    Places,
    Scores,
    TextQuestion,
)
from stream_rater.tables.event_lines import EntryLine, EventLine, Made, Spool, encode, entry
from stream_rater.tables.layout import LONG_ROLES, Layout
from stream_rater.tables.rounds import RoundCells, joined
from stream_rater.tables.source import Reject
from stream_rater.tables.times import Moment

C = TypeVar("C", bound=Column)
Row = tuple[int, Sequence[Any]]


class _Member(msgspec.Struct, array_like=True, gc=False):
    """A row of a round."""

    line: int
    players: tuple[str, ...]
    team: str | None
    rank: int | None
    score: int | float | None
    dnf: bool
    seat: str | None
    share: float | None

    @property
    def placing(self) -> tuple[Any, ...]:
        """What all members of a team have in common."""
        return self.rank, self.score, self.dnf, self.seat


class _Round(NamedTuple):
    """The facts about a round in its first row."""

    line: int
    round_id: str
    ladder: str
    moment: Moment
    weight: int | float


_pack = msgspec.msgpack.Encoder().encode
_unpack = msgspec.msgpack.Decoder(_Member).decode


class LongEvents:
    """Makes an event of the rows of each round."""

    def __init__(self, layout: Layout, head: RoundCells, doubts: Doubts) -> None:
        self._layout, self._reading, self._head = layout, doubts.reading, head
        self._at = {role: layout.roles.get(role, (-1,))[0] for role in LONG_ROLES}

        def reader(role: str, kind: type[C]) -> C | None:
            return kind(layout.column(role), doubts) if role in layout.roles else None

        self._ranks, self._scores = reader("rank", Places), reader("score", Scores)
        self._flags, self._shares = reader("dnf", Flags), reader("share", Numbers)
        self._minutes = TextQuestion(
            layout.column("share") if self._shares else "", doubts,
            "a share is at most 1, the whole round:",
            f"say {self._reading.by_columns({'share': 'COLUMN:90'})} if 90 is the whole round, or "
            f"{self._reading.by_columns({'share': ''})}",
        )  # fmt: skip
        self._shared: dict[bool, int] = {True: 0, False: 0}
        """The number of rounds in which each place has several entries, and of all others."""
        self._doubts = doubts
        self._rounds: list[_Round | None] = []
        """The rounds; None in the place of one that is rejected."""
        self._numbers: dict[tuple[str, str], int] = {}
        """The number of each round by its ladder and id."""
        self._rows, self._round_of_row = Spool(), array("q")

    def events(self, rows: Iterator[Row], reject: Reject) -> Iterator[Made]:
        """Yield the event of each round, in the order of their first rows. A mistake in a row
        rejects its round, once."""
        for line, cells in rows:
            try:
                self._add(line, cells)
            except LeftOut:
                pass
            except Invalid as invalid:
                if self.drop(cells):
                    reject(line, invalid, cells)
        self._rows.seal()
        numbers = np.array(self._round_of_row, np.int64)
        sorted_rows = np.argsort(numbers, kind="stable")
        starts = np.searchsorted(numbers[sorted_rows], np.arange(len(self._rounds) + 1))
        for number, first in enumerate(self._rounds):
            if first is None:
                continue
            own = sorted_rows[starts[number] : starts[number + 1]].tolist()
            try:
                made = self._event(first, [_unpack(self._rows[row]) for row in own])
            except _InRow as error:
                reject(error.line, error.invalid, ())
            else:
                yield made
        is_said = "team" in self._reading.columns or self._layout.has_members
        if not is_said and self._at["team"] < 0 and self._shared[True] and not self._shared[False]:
            self._ask_team()

    def _ask_team(self) -> None:
        """Ask whether those who share each place are a team."""
        layout, used = self._layout, {i for each in self._layout.roles.values() for i in each}
        free = [each for i, each in enumerate(layout.columns) if i not in used]
        likely = [each for each in free if re.search("team|side|squad|pair|group|colou?r|alliance",
                                                     each.lower())]  # fmt: skip
        team = self._reading.by_columns({"team": (likely or ["COLUMN"])[0]})
        self._doubts.ask(
            "in all rounds each place has several players: are they teams? Say "
            f"{team}, or {self._reading.by_columns({'team': ''})} if they are not"
        )

    def drop(self, cells: Sequence[Any]) -> bool:
        """Reject the round of a damaged row. Returns False if it was rejected before."""
        try:
            key = self._head.ladder(cells), self._head.round_id(cells)
        except (Invalid, IndexError):
            return True
        number = self._numbers.setdefault(key, len(self._rounds))
        if number == len(self._rounds):
            self._rounds.append(None)
            return True
        was_there = self._rounds[number] is not None
        self._rounds[number] = None
        return was_there

    def _add(self, line: int, cells: Sequence[Any]) -> None:
        head = self._head
        ladder, round_id = head.ladder(cells), head.round_id(cells)
        moment, weight = head.moment(cells), head.weight_of(cells)
        number = self._numbers.get((ladder, round_id), -1)
        if number < 0:
            number = len(self._rounds)
        elif (first := self._rounds[number]) is None:
            return
        else:
            self._check_same(first, moment, weight)
        row = self._member(line, cells)
        if number == len(self._rounds):
            self._numbers[ladder, round_id] = number
            self._rounds.append(_Round(line, round_id, ladder, moment, weight))
        self._rows.append(_pack(row))
        self._round_of_row.append(number)

    def _check_same(self, first: _Round, moment: Moment, weight: int | float) -> None:
        for role, code, one, two in (
            ("time", "bad-time", first.moment, moment),
            ("weight", "bad-weight", first.weight, weight),
        ):  # fmt: skip
            if one != two:
                old, new = (each[1] if isinstance(each, tuple) else each for each in (one, two))
                raise mistake(
                    code, self._layout.column(role),
                    f"{new}, but {self._layout.unit} {first.line} of the round has {old}",
                )  # fmt: skip

    def _member(self, line: int, cells: Sequence[Any]) -> _Member:
        at, columns, roles = self._at, self._layout.columns, self._layout.roles

        def text(role: str) -> str | None:
            if at[role] < 0 or is_missing(cells[at[role]]):
                return None
            return joined(cells, roles[role], columns)

        places = roles["player"]
        if self._layout.has_members:
            players = self._head.members(cells, places, columns)
        elif len(places) > 1:
            players = (joined(cells, places, columns),)
        else:
            column = columns[places[0]]
            players = self._head.somebody(read.players(cells[places[0]], column), column)
        dnf = self._flags is not None and self._flags.of(cells[at["dnf"]])
        rank, score = None, None
        if self._ranks is not None and not (dnf and is_missing(cells[at["rank"]])):
            rank = self._ranks.of(cells[at["rank"]])
            dnf = dnf or rank is None
        if self._scores is not None and not (
            (dnf or self._ranks is not None) and is_missing(cells[at["score"]])
        ):
            score = self._scores.score(cells[at["score"]])
            dnf = dnf or (score is None and self._ranks is None)
        share = None
        if self._shares is not None:
            share = self._shares.of(cells[at["share"]], "bad-shares") / self._layout.share_of
            if share > 1.0 and self._layout.share_of == 1.0:
                self._minutes.note(str(cells[at["share"]]))
        return _Member(
            line, players, text("team"), None if dnf else rank, score, dnf, text("seat"), share
        )

    # --- the event of a round ---

    def _event(self, first: _Round, rows: Sequence[_Member]) -> Made:
        teams: dict[Any, list[_Member]] = {}
        for number, row in enumerate(rows):
            teams.setdefault(number if row.team is None else row.team, []).append(row)
        sides = [self._of_one_team(members) for members in teams.values()]
        if self._at["rank"] >= 0:
            ranks: Sequence[int | None] = [each[0].rank for each in sides]
        else:
            ranked = order(
                [each[0].score or 0 for each in sides if not each[0].dnf],
                low=self._reading.score == "low",
            )
            places = iter(ranked)
            ranks = [None if each[0].dnf else next(places) for each in sides]
        if len(set(ranks) - {None}) > 1:
            self._shared[min(Counter(ranks).values()) > 1] += 1
        standings = [_entry(each, rank) for each, rank in zip(sides, ranks, strict=True)]
        event = EventLine(first.round_id, first.ladder, first.moment[1], standings, first.weight)
        return Made(first.moment, first.line, encode(event))

    def _of_one_team(self, members: list[_Member]) -> list[_Member]:
        """The members of a team, who must agree on its place."""
        for each in members[1:]:
            if each.placing != members[0].placing:
                cure = self._reading.by_columns({"team": ""})
                raise _InRow(each.line, mistake(
                    "bad-rank", self._layout.column("team"),
                    f"{each.team!r} has another rank, score or seat than in {self._layout.unit} "
                    f"{members[0].line} of the round: {cure} if they are no team",
                ))  # fmt: skip
        return members


class _InRow(Exception):
    """A mistake in a row that was read before."""

    def __init__(self, line: int, invalid: Invalid) -> None:
        super().__init__(line, invalid)
        self.line, self.invalid = line, invalid


def _entry(members: Sequence[_Member], rank: int | None) -> EntryLine:
    first = members[0]
    players = tuple(name for each in members for name in each.players)
    shares = tuple(
        1.0 if each.share is None else each.share for each in members for _ in each.players
    )
    same = all(each == 1.0 for each in shares)
    return entry(players, rank, first.score, first.seat, None if same else shares)
