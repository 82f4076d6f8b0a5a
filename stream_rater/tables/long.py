"""Makes events of a table in the long form: a row is an entry, or a member of a team. The rows of a
round need not be adjacent, so all rows are read before the first event is made. They are stored in
a temporary file; of each row only some numbers stay in memory."""

import re
from array import array
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Any, Final, TypeVar

import msgspec
import numpy as np

from stream_rater.rounds.validation import Invalid
from stream_rater.tables import doubts as open_
from stream_rater.tables import rounds
from stream_rater.tables.layout import LONG_ROLES, Layout
from stream_rater.tables.sources import Reject, Row, is_missing, mistake, order
from stream_rater.tables.times import Moment

LIKELY_TEAM: Final = re.compile("team|side|squad|pair|group|colou?r|alliance")
"""Words that show that a column may have teams."""
C = TypeVar("C", bound=open_.ReadColumn)


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


_pack = msgspec.msgpack.Encoder().encode
_unpack = msgspec.msgpack.Decoder(_Member).decode


class LongEvents:
    """Makes an event of the rows of each round."""

    def __init__(self, layout: Layout, head: rounds.RoundCells, doubts: open_.Doubts) -> None:
        self._layout, self._reading, self._head = layout, doubts.reading, head
        self._at = {role: layout.roles.get(role, (-1,))[0] for role in LONG_ROLES}

        def reader(role: str, kind: type[C]) -> C | None:
            return kind(layout.column(role), doubts) if role in layout.roles else None

        self._ranks, self._scores = reader("rank", open_.Places), reader("score", open_.Scores)
        self._flags, self._shares = reader("dnf", open_.Flags), reader("share", open_.Numbers)
        by = self._reading.by_columns
        self._minutes = open_.ColumnQuestion(
            layout.column("share") if self._shares else "", doubts,
            "a share is at most 1, the whole round:",
            f"say {by({'share': 'COLUMN:90'})} if 90 is the whole round, or {by({'share': ''})}",
        )  # fmt: skip
        self._shared: dict[bool, int] = {True: 0, False: 0}
        """The number of rounds in which each place has several entries, and of all others."""
        self._doubts = doubts
        self._rounds: list[rounds.RoundHead | None] = []
        """The rounds in the order of their first rows; None in the place of a rejected one."""
        self._numbers: dict[tuple[str, str], int] = {}
        """The number of each round by its ladder and id."""
        self._rows, self._round_of_row = rounds.Spool(), array("q")

    def events(self, rows: Iterator[Row], reject: Reject) -> rounds.Events:
        """Yield each round's event, in the order of first rows. A mistake rejects its round,
        once."""
        for line, cells in rows:
            try:
                self._add(line, cells)
            except open_.LeftOut:
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
                event = self._event(first, [_unpack(self._rows[row]) for row in own])
            except _InRow as error:
                number, why = error.args
                reject(number, why, ())
            else:
                yield first, event
        is_said = "team" in self._reading.columns or self._layout.has_members
        if not is_said and self._at["team"] < 0 and self._shared[True] and not self._shared[False]:
            self._ask_team()

    def _ask_team(self) -> None:
        by, used = self._reading.by_columns, {*chain(*self._layout.roles.values())}
        likely = [
            column for place, column in enumerate(self._layout.columns)
            if place not in used and LIKELY_TEAM.search(column.lower())
        ]  # fmt: skip
        self._doubts.ask(
            "in all rounds each place has several players: are they teams? Say "
            f"{by({'team': [*likely, 'COLUMN'][0]})}, or {by({'team': ''})} if they are not"
        )

    def drop(self, cells: Sequence[Any]) -> bool:
        """Reject the round of a damaged row. Returns False if it was rejected before."""
        try:
            key = self._head.ladder(cells), self._head.round_id(cells)
        except (Invalid, IndexError):
            return True
        number = self._numbers.setdefault(key, len(self._rounds))
        is_new = number == len(self._rounds)
        was_there = is_new or self._rounds[number] is not None
        self._rounds[number : number + 1] = [None]
        return was_there

    def _add(self, line: int, cells: Sequence[Any]) -> None:
        head = self._head
        ladder, round_id = head.ladder(cells), head.round_id(cells)
        moment, weight = head.moment(cells), head.weight_of(cells)
        number = self._numbers.get((ladder, round_id), len(self._rounds))
        if number < len(self._rounds):
            if (first := self._rounds[number]) is None:
                return
            self._check_same(first, moment, weight)
        row = self._member(line, cells)
        if number == len(self._rounds):
            self._numbers[ladder, round_id] = number
            self._rounds.append(rounds.RoundHead(line, round_id, ladder, moment, weight))
        self._rows.append(_pack(row))
        self._round_of_row.append(number)

    def _check_same(self, first: rounds.RoundHead, moment: Moment, weight: int | float) -> None:
        for role, old, new in (
            ("time", first.moment[1], moment[1]), ("weight", first.weight, weight)
        ):  # fmt: skip
            if old != new:
                text = f"{new}, but {self._layout.unit} {first.line} of the round has {old}"
                raise mistake(f"bad-{role}", self._layout.column(role), text)

    def _member(self, line: int, cells: Sequence[Any]) -> _Member:
        at, roles = self._at, self._layout.roles

        def text(role: str) -> str | None:
            if at[role] < 0 or is_missing(cells[at[role]]):
                return None
            return rounds.joined(cells, roles[role], self._layout.columns)

        if self._layout.has_members or len(roles["player"]) == 1:
            players = self._head.players(cells, roles["player"])
        else:
            players = (rounds.joined(cells, roles["player"], self._layout.columns),)
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

    def _event(self, first: rounds.RoundHead, rows: Sequence[_Member]) -> bytes:
        teams: dict[Any, list[_Member]] = {}
        for number, row in enumerate(rows):
            teams.setdefault(number if row.team is None else row.team, []).append(row)
        sides = [self._of_one_team(members) for members in teams.values()]
        ranks = [side[0].rank for side in sides]
        if self._at["rank"] < 0:
            scores = [side[0].score or 0 for side in sides if not side[0].dnf]
            places = iter(order(scores, low=self._reading.score == "low"))
            ranks = [None if side[0].dnf else next(places) for side in sides]
        if len(set(ranks) - {None}) > 1:
            self._shared[min(Counter(ranks).values()) > 1] += 1
        standings = [_entry(side, rank) for side, rank in zip(sides, ranks, strict=True)]
        return rounds.event_of(first, standings)

    def _of_one_team(self, members: list[_Member]) -> list[_Member]:
        """The members of a team, who must agree on its place."""
        for member in members[1:]:
            if member.placing != members[0].placing:
                cure = self._reading.by_columns({"team": ""})
                raise _InRow(member.line, mistake(
                    "bad-rank", self._layout.column("team"),
                    f"{member.team!r} has another rank, score or seat than in {self._layout.unit} "
                    f"{members[0].line} of the round: {cure} if they are no team",
                ))  # fmt: skip
        return members


class _InRow(Exception):
    """A mistake in a row that was read before. Its arguments: the row's number, and an Invalid."""


def _entry(members: Sequence[_Member], rank: int | None) -> rounds.EntryJson:
    players = tuple(name for row in members for name in row.players)
    shares = tuple(1.0 if row.share is None else row.share for row in members for _ in row.players)
    differ = any(share != 1.0 for share in shares)
    score, seat = members[0].score, members[0].seat
    return rounds.entry(players, rank, score, seat, shares if differ else None)
