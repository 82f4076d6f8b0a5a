"""Replays rounds in bulk: the players of all ladders in one table, many rounds rated in one call.
`rebuild` runs this.

Rounds pass in waves, as in the service: rounds that share no player and have the same parameters
are rated in one call, whatever their ladders. The result of a round depends on its players' beliefs
alone, so the bits equal those of `replay`, which rates one round after the other.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from stream_rater.columns.arrays import Bytes, Ints
from stream_rater.columns.kernels import kernel
from stream_rater.columns.player_column import LadderColumn, PlayerColumn
from stream_rater.columns.ranges import bounds, spread
from stream_rater.columns.strings import StringColumn, put
from stream_rater.rating import record, seasons, stages
from stream_rater.rating.model import Evidence, newcomers
from stream_rater.rating.parameters import RatingConfig, Season
from stream_rater.rating.stages import RatingRule
from stream_rater.replay.edited_log import LoggedRounds
from stream_rater.replay.player_index import PlayerIndex
from stream_rater.replay.pool import BeliefTable, depths

PREFIX_BYTES = 4
"""The bytes before each name that hold the number of its ladder, so that equal names on two ladders
differ."""


@kernel
def _prefixed(data: Bytes, starts: Ints, ends: Ints, numbers: Ints) -> tuple[Bytes, Ints]:
    """Concatenate names, each after its ladder's number. Returns the bytes and the (n,) ends."""
    out = np.empty(PREFIX_BYTES * len(ends) + (ends - starts).sum(), np.uint8)
    out_ends = np.empty(len(ends), np.int64)
    at = 0
    for i in range(len(ends)):
        for k in range(PREFIX_BYTES):
            out[at + k] = (numbers[i] >> (8 * k)) & 255
        at = put(out, at + PREFIX_BYTES, data, starts[i], ends[i])
        out_ends[i] = at
    return out, out_ends


class PlayerTable:
    """The players of all ladders, each in a row, in order of appearance."""

    def __init__(self) -> None:
        self._index = PlayerIndex()
        self._numbers: dict[str, int] = {}
        """The number of each ladder."""
        self._ladder_column = LadderColumn(StringColumn.of([]))
        """The ladders' column, as of the last call of `at`."""

    def __len__(self) -> int:
        return len(self._index)

    def rows(self, players: PlayerColumn) -> Ints:
        """(P,) the row of each player. New players are added."""
        known = self._numbers
        numbers = [known.setdefault(each, len(known)) for each in players.ladders.texts]
        names = players.names
        data, ends = _prefixed(
            names.data, names.starts, names.ends, np.array(numbers, np.int64)[players.ladder]
        )
        return self._index.rows(StringColumn(data, np.append(0, ends)[:-1], ends))

    def at(self, rows: Ints) -> PlayerColumn:
        """The players in these rows."""
        if len(self._ladder_column.names.ends) < len(self._numbers):
            self._ladder_column = LadderColumn(StringColumn.of(list(self._numbers)))
        names = self._index.names(rows)
        marks = names.data[names.starts[:, np.newaxis] + np.arange(PREFIX_BYTES)]
        ladder = marks.view("<u4").ravel().astype(np.int64)
        return PlayerColumn(
            self._ladder_column,
            ladder,
            StringColumn(names.data, names.starts + PREFIX_BYTES, names.ends),
        )


@dataclass(frozen=True, slots=True)
class BulkWave:
    """Rounds that are rated in one call: they have the same parameters and share no player. P
    players in all."""

    logged: LoggedRounds
    rows: Ints
    """(P,) the rows of the players, round by round."""

    @property
    def partitions(self) -> Ints:
        """(P,) the partition of each player's round."""
        return np.repeat(self.logged.partition, self.logged.rounds.sizes)

    @property
    def offsets(self) -> Ints:
        """(P,) the offset of each player's round."""
        return np.repeat(self.logged.offset, self.logged.rounds.sizes)


class BulkReplay(BeliefTable):
    """The beliefs of the players of all ladders, in the rows of a PlayerTable."""

    def __init__(self) -> None:
        super().__init__(newcomers(0, 1, 0.0, 1.0, coded=True))
        self._latest = np.zeros(0, np.int64)
        self._rules: dict[tuple[int, tuple[Season, ...]], tuple[RatingConfig, RatingRule]] = {}

    def waves(self, logged: LoggedRounds, rows: Ints) -> Iterator[BulkWave]:
        """Yield the rounds in waves. The caller must rate each wave before it takes the next one.

        `rows`: (P,) the rows of the players, round by round.
        """
        if len(self._latest) < len(self._beliefs):
            self._latest = np.zeros(len(self._beliefs), np.int64)
        starts = bounds(logged.rounds.sizes)
        depth = depths(starts, rows, self._latest)
        rule = logged.rounds.config_index
        order = np.lexsort((rule, depth))
        changes = np.flatnonzero(np.diff(depth[order]) | np.diff(rule[order])) + 1
        for places in np.split(order, changes):
            wave = logged.take(places)
            yield BulkWave(wave, rows[spread(starts[places], wave.rounds.sizes)])

    def rate(
        self, wave: BulkWave, config: RatingConfig, started: tuple[Season, ...] = ()
    ) -> Evidence:
        """Rate a wave: update the beliefs of its players by this configuration.

        `started`: the seasons that had started before its rounds; they are the same on all ladders
        of the wave. Returns (P, 3) the evidence.
        """
        rating, rule = self._rule_of(config, started)
        rows, header, rounds = wave.rows, self._beliefs.header, wave.logged.rounds
        new = rows[header["rounds"][rows] == 0]
        header[new] = newcomers(1, 0, rule.initial_mu, rule.initial_sigma).header
        same = np.zeros(len(rows), np.int64)
        before = seasons.draw([rule], same, self._beliefs, rows)
        evidence = stages.estimate(rating, rounds.wave(header, rows, rating.fixed_players))
        stages.update(self._beliefs, rows, evidence, [rule], same)
        times = np.repeat(rounds.time, rounds.sizes)
        stages.record_round(self._beliefs, rows, wave.offsets, times)
        seasons.remember(self._beliefs, before)
        return evidence

    def _rule_of(
        self, rating: RatingConfig, started: tuple[Season, ...]
    ) -> tuple[RatingConfig, RatingRule]:
        """The configuration and its rule. Makes room for as many factors as the rule keeps."""
        known = self._rules.get((id(rating), started))
        if known is None:
            known = rating, stages.rule_of(rating, started)
            self._rules[id(rating), started] = known
            assert known[1].kept, "no record holds a full history"
            self.lengthen(known[1].kept)
        return known

    def rated(self, rows: Ints) -> Ints:
        """The rows among these whose players have at least one round."""
        return rows[self._beliefs.header["rounds"][rows] > 0]

    def column(self, rows: Ints) -> StringColumn:
        """The encoded record of each belief, as the service stores it."""
        data, starts = record.encode_all(self.beliefs(rows))
        return StringColumn(data, starts[:-1], starts[1:])
