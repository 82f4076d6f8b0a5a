"""The rows of many parts as one set of columns, which stage 2 computes with."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from stream_rater.columns.arrays import Ints
from stream_rater.columns.player_column import LadderColumn, PlayerColumn
from stream_rater.columns.player_map import Fingerprints
from stream_rater.columns.strings import StringColumn, distinct
from stream_rater.contract.tracecontext import Trace
from stream_rater.pipeline.parts.decoder import PartBatch, PartView, concat
from stream_rater.pipeline.parts.unpacking import (
    AT,
    AT_END,
    ID,
    ID_END,
    INDEX,
    LADDER,
    LADDER_END,
    NAME,
    NAME_END,
    OFFSET,
    PLACE,
    RULE,
    TIME,
)
from stream_rater.rating.model import Evidence
from stream_rater.rating.stages import RatingRule


@dataclass(frozen=True, slots=True)
class Rows:
    """n players, each in one of R rounds; a round is counted once for each part that it is in."""

    rules: Sequence[RatingRule]
    rule: Ints
    """(n,) index of each row's rule."""
    round: Ints
    """(n,) index of each row's round."""
    offset: Ints
    """(n,) offset of each row's round in `round-completed`."""
    time: Ints
    """(n,) when each row's round was completed, Unix seconds."""
    place: Ints
    """(n,) as in Wave."""
    evidence: Evidence
    """(n, 4) as in Wave's Evidence."""
    players: PlayerColumn
    """(n,)"""
    fingerprints: Fingerprints
    """(n,) hashes of ladder and name: those of two players differ, but by chance."""
    round_ids: StringColumn
    """(R,)"""
    completed_at: StringColumn
    """Each different time once, as reported."""
    completed: Ints
    """(R,) index of each round's time among these."""
    traces: Mapping[int, Trace | None]
    """By number of its round, where a round has one."""

    def __len__(self) -> int:
        return len(self.rule)

    def take(self, rows: Ints) -> "Rows":
        """These rows only, which rise, beside all rounds."""
        if len(rows) == len(self):
            return self
        return replace(
            self,
            rule=self.rule[rows],
            round=self.round[rows],
            offset=self.offset[rows],
            time=self.time[rows],
            place=self.place[rows],
            evidence=self.evidence[rows],
            players=self.players.take(rows),
            fingerprints=self.fingerprints[rows],
        )


def _players(part_batch: PartBatch, rows: Ints) -> PlayerColumn:
    """(n,) the players of these rows of a batch."""
    rounds = part_batch.rounds
    ladders, ladder = distinct(StringColumn(part_batch.data, rounds[LADDER], rounds[LADDER_END]))
    names = StringColumn(part_batch.data, rows[NAME], rows[NAME_END])
    return PlayerColumn(LadderColumn(ladders), ladder[rows[INDEX]], names)


def players_in(part_batch: PartBatch) -> tuple[PlayerColumn, Ints]:
    """(n,) players of all rows of a batch, and (n,) source offsets of their rounds."""
    return _players(part_batch, part_batch.rows), part_batch.rounds[OFFSET][part_batch.rows[INDEX]]


def rows_of(views: Sequence[PartView]) -> Rows:
    """The rows of these parts, of which there is one, in turn."""
    part_batch, index = concat(views)
    rows, rounds = part_batch.rows.take(index, axis=1), part_batch.rounds
    of = rows[INDEX]
    completed_at, completed = distinct(StringColumn(part_batch.data, rounds[AT], rounds[AT_END]))
    return Rows(
        rules=part_batch.rules,
        rule=rounds[RULE][of],
        round=of,
        offset=rounds[OFFSET][of],
        time=rounds[TIME][of],
        place=rows[PLACE],
        evidence=part_batch.evidence[index],
        players=_players(part_batch, rows),
        fingerprints=part_batch.fingerprints[index],
        round_ids=StringColumn(part_batch.data, rounds[ID], rounds[ID_END]),
        completed_at=completed_at,
        completed=completed,
        traces=part_batch.traces,
    )
