"""Replays rounds in bulk: the players of all ladders in one table, many rounds rated in one call.
`rebuild` runs this.

Rounds pass in waves (`bulk_waves`). The result of a round depends on its players' beliefs alone, so
the bits equal those of `replay`, which rates one round after the other, on any number of cores.
"""

from collections.abc import Sequence
from functools import partial
from itertools import pairwise

import numpy as np

from stream_rater.columns.arrays import Bytes, Ints
from stream_rater.columns.kernels import kernel
from stream_rater.columns.player_column import LadderColumn, PlayerColumn
from stream_rater.columns.strings import StringColumn, put
from stream_rater.operations.bulk_waves import BulkRounds, BulkWave, SeedWave
from stream_rater.rating import record, seasons, stages
from stream_rater.rating.model import Evidence, Wave, look_up, newcomers
from stream_rater.rating.parameters import EloMMR, RatingConfig, Season
from stream_rater.rating.stages import RatingRule
from stream_rater.replay.cores import ONE_CORE, Cores, cut, rate_waves
from stream_rater.replay.player_index import PlayerIndex
from stream_rater.replay.pool import BeliefTable

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

    @property
    def ladders(self) -> list[str]:
        """All ladders, in the order of their numbers."""
        return list(self._numbers)

    def ladder_numbers(self, ladders: Sequence[str]) -> Ints:
        """(n,) the number of each of these ladders. New ladders are added."""
        known = self._numbers
        if not known.keys() >= set(ladders):
            for each in ladders:
                known.setdefault(each, len(known))
        return np.fromiter(map(known.__getitem__, ladders), np.int64, len(ladders))

    def rows(self, players: PlayerColumn) -> Ints:
        """(P,) the row of each player. New players are added."""
        numbers = self.ladder_numbers(players.ladders.texts)
        return self.rows_of(players.names, numbers[players.ladder])

    def rows_of(self, names: StringColumn, numbers: Ints) -> Ints:
        """(P,) the row of each player. `numbers` (P,) are the numbers of their ladders. New players
        are added."""
        data, ends = _prefixed(names.data, names.starts, names.ends, numbers)
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


class BulkReplay(BeliefTable):
    """The beliefs of the players of all ladders, in the rows of a PlayerTable."""

    def __init__(self, cores: Cores = ONE_CORE) -> None:
        super().__init__(newcomers(0, 1, 0.0, 1.0, coded=True))
        self._cores = cores

    def rate(
        self, wave: BulkWave, rating: RatingConfig, started: tuple[Season, ...] = ()
    ) -> Evidence:
        """Rate rounds: update the beliefs of their players by this configuration.

        `started`: the seasons that had started before the rounds; they are the same on all of their
        ladders. Returns (P, 3) the evidence, or (P, 4) of systems that place newcomers.
        """
        rule = self._rule_of(rating, started)
        rows, header = wave.rows, self._beliefs.header
        new = rows[header["rounds"][rows] == 0]
        header[new] = newcomers(1, 0, rule.initial_mu, rule.initial_sigma).header
        rounds = wave.rounds.wave(rating)
        if isinstance(rating, EloMMR) and not started:
            offsets = wave.rounds.offset
            return rate_waves(
                self._cores, rating, self._beliefs, rows, rounds, wave.waves, offsets
            )[0]
        starts, found = rounds.entry_starts[rounds.round_starts], list[Evidence]()
        for first, end in pairwise(wave.waves.tolist()):
            found += self._cores.run([
                partial(self._rate_part, wave.rounds.slice(a, b), rounds.part(a, b), rating, rule)
                for a, b in cut(starts, first, end, self._cores.count)
            ])  # fmt: skip
        return np.concatenate(found)

    def _rate_part(
        self, part: BulkRounds, rounds: Wave, rating: RatingConfig, rule: RatingRule
    ) -> Evidence:
        """Rate rounds of one wave."""
        rows, same = part.rows, np.zeros(len(part.rows), np.int64)
        before = seasons.draw([rule], same, self._beliefs, rows)
        rounds.mu[:], rounds.sigma[:], rounds.rounds[:], rounds.last_time[:] = look_up(
            self._beliefs.header, rows
        )
        evidence = stages.estimate(rating, rounds)
        stages.update(self._beliefs, rows, evidence, [rule], same)
        offsets, times = (np.repeat(each, part.sizes) for each in (part.offset, part.time))
        stages.record_round(self._beliefs, rows, offsets, times)
        seasons.remember(self._beliefs, before)
        return evidence

    def seed(self, wave: SeedWave) -> None:
        """Apply rows of seeds, or of resets: update the beliefs of those players whom they
        change."""
        seed, started, *_ = wave.first
        rule = self._rule_of(seed.rating, started)
        header, rows = self._beliefs.header, wave.rows
        chosen = np.flatnonzero((header["rounds"][rows] > 0) == seed.is_reset)
        own, mu, sigma = rows[chosen], wave.mu[chosen], wave.sigma[chosen]
        offset = wave.offsets[chosen]
        if not seed.is_reset:
            given = mu, sigma, wave.rounds[chosen], wave.time[chosen], offset
            header[own] = seasons.seeded(rule, *given)
            return
        for i, at in enumerate(offset.tolist()):
            one = slice(i, i + 1)
            seasons.reset(rule, self._beliefs, own[one], mu[one], sigma[one], at)

    def _rule_of(self, rating: RatingConfig, started: tuple[Season, ...]) -> RatingRule:
        """The rule of a configuration. Makes room for as many factors as the rule keeps."""
        rule = stages.rule_of(rating, started)
        assert rule.kept, "no record holds a full history"
        self.lengthen(rule.kept)
        return rule

    def rated(self, rows: Ints) -> Ints:
        """The rows among these whose players have at least one round."""
        return rows[self._beliefs.header["rounds"][rows] > 0]

    def column(self, rows: Ints) -> StringColumn:
        """The encoded record of each belief, as the service stores it."""
        data, starts = record.encode_all(self.beliefs(rows))
        return StringColumn(data, starts[:-1], starts[1:])
