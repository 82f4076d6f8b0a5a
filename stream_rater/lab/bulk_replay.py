"""Every player of every ladder in one table, rated many rounds at a time: what `rebuild` runs.

It goes through rounds as the service does, in waves: rounds that share no player are rated in one
call, of whatever ladders they are, if by the same parameters. What a round does depends on its
players' beliefs alone, so the bits are those of `replay`, which takes one round after the other.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from stream_rater.columns.arrays import Bytes, Ints
from stream_rater.columns.kernels import kernel
from stream_rater.columns.player_column import LadderColumn, PlayerColumn
from stream_rater.columns.ranges import bounds, spread
from stream_rater.columns.strings import StringColumn, put
from stream_rater.lab.player_index import PlayerIndex
from stream_rater.rating import record, systems
from stream_rater.rating.model import Beliefs, newcomers
from stream_rater.rating.parameters import RatingConfig
from stream_rater.rating.systems import RatingRule
from stream_rater.rounds.batch import RoundBatch

MARK = 4
"""Bytes before each name: the number of its ladder, to tell it from namesakes."""


@kernel
def _marked(data: Bytes, starts: Ints, ends: Ints, numbers: Ints) -> tuple[Bytes, Ints]:
    """Names in a row, each behind its number, and where they end."""
    out = np.empty(MARK * len(ends) + (ends - starts).sum(), np.uint8)
    out_ends = np.empty(len(ends), np.int64)
    at = 0
    for i in range(len(ends)):
        for k in range(MARK):
            out[at + k] = (numbers[i] >> (8 * k)) & 255
        at = put(out, at + MARK, data, starts[i], ends[i])
        out_ends[i] = at
    return out, out_ends


class Census:
    """Who is who: each player of each ladder has a row, in order of appearance."""

    def __init__(self) -> None:
        self._roll = PlayerIndex()
        self._numbers: dict[str, int] = {}
        """By ladder."""
        self._ladders = LadderColumn(StringColumn.of([]))
        """As they were last asked for."""

    def __len__(self) -> int:
        return len(self._roll)

    def rows(self, players: PlayerColumn) -> Ints:
        """(P,) row of each player; new ones are entered."""
        known = self._numbers
        numbers = [known.setdefault(each, len(known)) for each in players.ladders.texts]
        names = players.names
        data, ends = _marked(
            names.data, names.starts, names.ends, np.array(numbers, np.int64)[players.ladder]
        )
        return self._roll.rows(StringColumn(data, np.append(0, ends)[:-1], ends))

    def players(self, rows: Ints) -> PlayerColumn:
        """Who is in these rows."""
        if len(self._ladders.names.ends) < len(self._numbers):
            self._ladders = LadderColumn(StringColumn.of(list(self._numbers)))
        names = self._roll.names(rows)
        marks = names.data[names.starts[:, np.newaxis] + np.arange(MARK)]
        ladder = marks.view("<u4").ravel().astype(np.int64)
        return PlayerColumn(
            self._ladders, ladder, StringColumn(names.data, names.starts + MARK, names.ends)
        )


@dataclass(frozen=True, slots=True)
class Played:
    """Rounds that can teach anything, in the order of the log, and where they were read."""

    rounds: RoundBatch
    rule: Ints
    """(R,) by which of the intake's ratings each is rated."""
    partition: Ints
    """(R,)"""
    offset: Ints
    """(R,)"""

    def take(self, chosen: Ints) -> "Played":
        """These rounds only."""
        return Played(
            self.rounds.take(chosen), self.rule[chosen], self.partition[chosen], self.offset[chosen]
        )

    @classmethod
    def concat(cls, some: Sequence["Played"]) -> "Played":
        """The rounds of all these, of which there is one, in turn."""
        return cls(
            RoundBatch.concat([each.rounds for each in some]),
            np.concatenate([each.rule for each in some]),
            np.concatenate([each.partition for each in some]),
            np.concatenate([each.offset for each in some]),
        )


@dataclass(frozen=True, slots=True)
class Turn:
    """Rounds to be rated in one call: they share parameters and no player. P players in all."""

    played: Played
    rows: Ints
    """(P,) round by round."""

    @property
    def partitions(self) -> Ints:
        """(P,) where each one's round was read."""
        return np.repeat(self.played.partition, self.played.rounds.sizes)

    @property
    def offsets(self) -> Ints:
        """(P,)"""
        return np.repeat(self.played.offset, self.played.rounds.sizes)


@kernel
def _depths(starts: Ints, rows: Ints, latest: Ints) -> Ints:
    """How many rounds must be rated before each, the longest way back from player to player.

    Round r has the players rows[starts[r] : starts[r + 1]]; `latest` has room for every row and is
    zero, before and after.
    """
    found = np.zeros(len(starts) - 1, np.int64)
    for r in range(len(found)):
        for i in range(starts[r], starts[r + 1]):
            found[r] = max(found[r], latest[rows[i]])
        for i in range(starts[r], starts[r + 1]):
            latest[rows[i]] = found[r] + 1
    for row in rows:
        latest[row] = 0
    return found


class BulkReplay:
    """The beliefs of all rows of a census."""

    def __init__(self) -> None:
        self._beliefs = newcomers(0, 1, 0.0, 1.0, coded=True)
        self._latest = np.zeros(0, np.int64)
        self._laws: dict[int, tuple[RatingConfig, RatingRule]] = {}

    def make_room(self, rows: int) -> None:
        """Hold beliefs of so many rows."""
        held = len(self._beliefs)
        if rows <= held:
            return
        rows = max(rows, held + held // 2)
        header, factors = self._beliefs.header, self._beliefs.factors
        header.resize(rows, refcheck=False)  # in place: the system moves pages, not bytes
        factors.resize((rows, *factors.shape[1:]), refcheck=False)
        self._latest = np.zeros(rows, np.int64)

    def turns(self, played: Played, rows: Ints) -> Iterator[Turn]:
        """Rounds whose players are in these rows, turn by turn: each is to be rated before the
        next."""
        starts = bounds(played.rounds.sizes)
        depth = _depths(starts, rows, self._latest)
        order = np.lexsort((played.rule, depth))
        changes = np.flatnonzero(np.diff(depth[order]) | np.diff(played.rule[order])) + 1
        for some in np.split(order, changes):
            turn = played.take(some)
            yield Turn(turn, rows[spread(starts[some], turn.rounds.sizes)])

    def rate(self, turn: Turn, config: RatingConfig) -> None:
        """Change the beliefs of all players of a turn, whose rounds are rated so."""
        rating, rule = self._law(config)
        rows, header, rounds = turn.rows, self._beliefs.header, turn.played.rounds
        new = rows[header["rounds"][rows] == 0]
        header[new] = newcomers(1, 0, rule.initial_mu, rule.initial_sigma).header
        evidence = systems.estimate(rating, rounds.wave(header, rows))
        systems.update(self._beliefs, rows, evidence, [rule], np.zeros(len(rows), np.int64))
        times = np.repeat(rounds.time, rounds.sizes)
        systems.note_round(self._beliefs, rows, turn.offsets, times)

    def _law(self, rating: RatingConfig) -> tuple[RatingConfig, RatingRule]:
        """What holds where this is configured; there is room for the factors it keeps."""
        known = self._laws.get(id(rating))
        if known is None:
            known = self._laws[id(rating)] = rating, systems.rule_of(rating)
            assert known[1].kept, "no record holds a full history"
            self._widen(known[1].kept + 1)
        return known

    def _widen(self, capacity: int) -> None:
        factors = self._beliefs.factors
        if capacity > factors.shape[1]:
            wider = np.zeros((len(factors), capacity), np.int64)
            wider[:, : factors.shape[1]] = factors
            self._beliefs = Beliefs(self._beliefs.header, wider)

    def rated(self, rows: Ints) -> Ints:
        """Those of the rows whose players have played."""
        return rows[self._beliefs.header["rounds"][rows] > 0]

    def records(self, rows: Ints) -> StringColumn:
        """Each belief as the service stores it."""
        held = self._beliefs
        data, starts = record.encode_all(Beliefs(held.header[rows], held.factors[rows]))
        return StringColumn(data, starts[:-1], starts[1:])
