"""Replays rounds in bulk: the players of all ladders in one table, many rounds rated in one call.
`rebuild` runs this.

Rounds pass in waves, as in the service: rounds that share no player and have the same parameters
are rated in one call, whatever their ladders. The result of a round depends on its players' beliefs
alone, so the bits equal those of `replay`, which rates one round after the other. A row of a seed
is one player, and depends on nothing but that player's belief. So each row has a wave of its own.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from stream_rater.columns.arrays import Bytes, Floats, Ints
from stream_rater.columns.kernels import kernel
from stream_rater.columns.player_column import LadderColumn, PlayerColumn
from stream_rater.columns.ranges import bounds, spread
from stream_rater.columns.strings import StringColumn, put
from stream_rater.rating import record, seasons, seeding, stages
from stream_rater.rating.model import Evidence, newcomers
from stream_rater.rating.parameters import RatingConfig, Season
from stream_rater.rating.stages import RatingRule
from stream_rater.replay.edited_log import NO_LOGGED, LoggedRounds
from stream_rater.replay.player_index import PlayerIndex
from stream_rater.replay.pool import BeliefTable, depths
from stream_rater.rounds.seed_records import Seed

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
    def latest(self) -> int:
        """The largest offset of its rounds."""
        return int(self.logged.offset.max())

    @property
    def partitions(self) -> Ints:
        """(P,) the partition of each player's round."""
        return np.repeat(self.logged.partition, self.logged.rounds.sizes)

    @property
    def offsets(self) -> Ints:
        """(P,) the offset of each player's round."""
        return np.repeat(self.logged.offset, self.logged.rounds.sizes)


class DueSeed(NamedTuple):
    """A seed or a reset after the corrections, and the seasons that had started before it."""

    seed: Seed
    started: tuple[Season, ...]

    @property
    def players(self) -> PlayerColumn:
        """(n,) its players."""
        ladders = LadderColumn(StringColumn.of([self.seed.ladder]))
        return PlayerColumn(ladders, np.zeros(len(self.seed), np.int64), self.seed.names)


@dataclass(frozen=True, slots=True)
class SeedWave:
    """n rows of seeds, or of resets, that are applied in one call: they have the same parameters,
    and no two of them are of one player."""

    first: DueSeed
    """One of the seeds, for what they have in common."""
    rows: Ints
    """(n,) the rows of the players."""
    partitions: Ints
    """(n,) the partition of each row's record."""
    offsets: Ints
    """(n,) the offset of each row's record."""
    time: Ints
    """(n,) the time of each row's record, Unix seconds."""
    mu: Floats
    """(n,) as in Seed, as are the next two columns."""
    sigma: Floats
    rounds: Ints

    @property
    def latest(self) -> int:
        """The largest offset of its seeds."""
        return int(self.offsets.max())


class _SeedRows:
    """All rows of some seeds and resets, as columns."""

    def __init__(self, due: Sequence[DueSeed]) -> None:
        seeds = [each.seed for each in due]
        self._due, sizes = due, [len(each) for each in seeds]
        self._which = np.repeat(np.arange(len(due)), sizes)
        self._heads = np.array([[s.partition, s.offset, s.time] for s in seeds], np.int64)
        self._mu, self._sigma, self._rounds = (
            np.concatenate([getattr(each, name) for each in seeds])
            for name in ("mu", "sigma", "rounds")
        )

    def wave(self, chosen: Ints, rows: Ints) -> SeedWave:
        """The rows of seeds at these indices, whose players are in these `rows`."""
        which = self._which[chosen]
        partitions, offsets, time = self._heads[which].T
        return SeedWave(
            self._due[int(which[0])], rows, partitions, offsets, time, self._mu[chosen],
            self._sigma[chosen], self._rounds[chosen],
        )  # fmt: skip


class BulkReplay(BeliefTable):
    """The beliefs of the players of all ladders, in the rows of a PlayerTable."""

    def __init__(self) -> None:
        super().__init__(newcomers(0, 1, 0.0, 1.0, coded=True))
        self._latest = np.zeros(0, np.int64)
        self._rules: dict[tuple[int, tuple[Season, ...]], tuple[RatingConfig, RatingRule]] = {}

    def waves(
        self, due: Sequence[LoggedRounds | DueSeed], rows: Ints
    ) -> Iterator[BulkWave | SeedWave]:
        """Yield the rounds, and the rows of the seeds and resets, in waves. `due` is in the order
        of the log. The caller must rate or apply each wave before it takes the next one.

        `rows`: (P,) the rows of the players, in the same order.
        """
        if len(self._latest) < len(self._beliefs):
            self._latest = np.zeros(len(self._beliefs), np.int64)
        rounds = [each for each in due if isinstance(each, LoggedRounds)]
        seeds = [each for each in due if isinstance(each, DueSeed)]
        logged = LoggedRounds.concat(rounds) if rounds else NO_LOGGED
        items = _items_of(due, logged)
        seed_rows = _SeedRows(seeds) if seeds else None
        starts = bounds(items.sizes)
        depth = depths(starts, rows, self._latest)
        order = np.lexsort((items.kind, depth))
        changes = np.flatnonzero(np.diff(depth[order]) | np.diff(items.kind[order])) + 1
        for places in np.split(order, changes) if len(order) else ():
            own, of_wave = items.place[places], rows[spread(starts[places], items.sizes[places])]
            if seed_rows is not None and items.kind[places[0]] < 0:
                yield seed_rows.wave(own, of_wave)
            else:
                yield BulkWave(logged.take(own), of_wave)

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

    def seed(self, wave: SeedWave) -> None:
        """Apply rows of seeds, or of resets: update the beliefs of those players whom they
        change."""
        seed, started = wave.first
        _, rule = self._rule_of(seed.rating, started)
        header, rows = self._beliefs.header, wave.rows
        chosen = np.flatnonzero((header["rounds"][rows] > 0) == seed.is_reset)
        own, mu, sigma = rows[chosen], wave.mu[chosen], wave.sigma[chosen]
        offset = wave.offsets[chosen]
        if not seed.is_reset:
            given = mu, sigma, wave.rounds[chosen], wave.time[chosen], offset
            header[own] = seeding.seeded(rule, *given)
            return
        for i, at in enumerate(offset.tolist()):
            one = slice(i, i + 1)
            seeding.reset(rule, self._beliefs, own[one], mu[one], sigma[one], at)

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


class _Items(NamedTuple):
    """Rounds and rows of seeds in the order of the log. Each is an item."""

    sizes: Ints
    """(n,) the number of players."""
    kind: Ints
    """(n,) for a round, the index of its parameters. For a row of a seed or a reset, a negative
    number, which is the same for all rows that can be applied together."""
    place: Ints
    """(n,) the place of each round among the rounds, and of each row among the rows of seeds."""


def _items_of(due: Sequence[LoggedRounds | DueSeed], logged: LoggedRounds) -> _Items:
    """The items of rounds and seeds. `logged` has all of the rounds."""
    if all(isinstance(each, LoggedRounds) for each in due):
        sizes, kind = logged.rounds.sizes, logged.rounds.config_index
        return _Items(sizes, kind, np.arange(len(logged)))
    columns, kinds = list[tuple[Ints, Ints, Ints]](), dict[tuple[object, ...], int]()
    rounds = rows = 0
    for each in due:
        count = len(each.seed) if isinstance(each, DueSeed) else len(each)
        if isinstance(each, DueSeed):
            common = id(each.seed.rating), each.started, each.seed.is_reset
            kind = np.full(count, -1 - kinds.setdefault(common, len(kinds)))
            columns.append((np.ones(count, np.int64), kind, np.arange(rows, rows + count)))
            rows += count
        else:
            index = np.arange(rounds, rounds + count)
            columns.append((each.rounds.sizes, each.rounds.config_index, index))
            rounds += count
    return _Items(*(np.concatenate(each) for each in zip(*columns, strict=True)))
