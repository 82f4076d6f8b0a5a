"""Rows of many parts as one set of columns, which stage 2 computes with."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from stream_rater.columns.arrays import Ints
from stream_rater.columns.player_column import Ladders, Roster
from stream_rater.columns.strings import LaidOut, distinct
from stream_rater.contract.tracecontext import Trace
from stream_rater.parts.decoder import Piece, Slab, together
from stream_rater.parts.unpacking import (
    AT,
    AT_END,
    ID,
    ID_END,
    INDEX,
    LADDER,
    LADDER_END,
    LAW,
    NAME,
    NAME_END,
    OFFSET,
    PLACE,
    TIME,
)
from stream_rater.rating.model import Evidence
from stream_rater.rating.systems import Law


@dataclass(frozen=True, slots=True)
class Rows:
    """n players, each in one of R rounds; a round counts for each part that it is in."""

    laws: Sequence[Law]
    law: Ints
    """(n,) index of each row's law."""
    round: Ints
    """(n,) index of each row's round."""
    offset: Ints
    """(n,) of the round in `round-completed`."""
    time: Ints
    """(n,) when the round was completed, Unix seconds."""
    place: Ints
    """(n,) as in Wave."""
    evidence: Evidence
    """(n, 3) as in Wave's Evidence."""
    players: Roster
    """(n,)"""
    round_ids: LaidOut
    """(R,)"""
    completed_at: LaidOut
    """Different ones."""
    completed: Ints
    """(R,) which of them is each round's."""
    traces: Mapping[int, Trace | None]
    """Of the rounds that have one."""

    def __len__(self) -> int:
        return len(self.law)

    def those(self, rows: Ints) -> "Rows":
        """These rows only, beside all rounds."""
        if len(rows) == len(self):
            return self
        return replace(
            self,
            law=self.law[rows],
            round=self.round[rows],
            offset=self.offset[rows],
            time=self.time[rows],
            place=self.place[rows],
            evidence=self.evidence[rows],
            players=self.players.rows(rows),
        )


def _players(slab: Slab, rows: Ints) -> Roster:
    """(n,) of these of its rows."""
    rounds = slab.rounds
    ladders, ladder = distinct(LaidOut(slab.data, rounds[LADDER], rounds[LADDER_END]))
    names = LaidOut(slab.data, rows[NAME], rows[NAME_END])
    return Roster(Ladders(ladders), ladder[rows[INDEX]], names)


def players_in(slab: Slab) -> tuple[Roster, Ints]:
    """Of all its rows: (n,) players, and (n,) source offsets of their rounds."""
    return _players(slab, slab.rows), slab.rounds[OFFSET][slab.rows[INDEX]]


def rows_of(pieces: Sequence[Piece]) -> Rows:
    """The rows of these parts, of which there are some, one part after the other."""
    slab, index = together(pieces)
    rows, rounds = slab.rows.take(index, axis=1), slab.rounds
    of = rows[INDEX]
    completed_at, completed = distinct(LaidOut(slab.data, rounds[AT], rounds[AT_END]))
    return Rows(
        laws=slab.laws,
        law=rounds[LAW][of],
        round=of,
        offset=rounds[OFFSET][of],
        time=rounds[TIME][of],
        place=rows[PLACE],
        evidence=slab.evidence[index],
        players=_players(slab, rows),
        round_ids=LaidOut(slab.data, rounds[ID], rounds[ID_END]),
        completed_at=completed_at,
        completed=completed,
        traces=slab.traces,
    )
