"""Replays the edited log of all ladders together. The commands `rate` and `verify` use it."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np

from stream_rater.columns.arrays import Ints
from stream_rater.columns.ranges import bounds, spread
from stream_rater.columns.sharding import ANYWHERE
from stream_rater.config.ladders import Ladders
from stream_rater.contract.record import Record
from stream_rater.rating import parameters, stages
from stream_rater.replay import edited_log, edits
from stream_rater.replay.cores import ONE_CORE, Cores
from stream_rater.replay.pool import Pool, RatingResult, SeedOutcome, waves_of
from stream_rater.rounds.batch import RoundBatch
from stream_rater.rounds.correction_records import Seed

LEAST_TOGETHER = 8192  # The fewest players in rounds whose ladders are rated at the same time.


class Rated(NamedTuple):
    """R rounds of one ladder that were rated by the same parameters, with P players in all."""

    chosen: Ints  # (R,) the indices of the rounds among the batch's accepted ones, as rated.
    rounds: RoundBatch  # (R,) the rounds in this order.
    pool: Pool  # The ladder's pool.
    rule: stages.RatingRule  # The rule by which the pool rated them.
    rows: Ints  # (P,) the players' rows in the pool.
    result: RatingResult  # The beliefs of each player before and after each round.


class Seeded(NamedTuple):
    """A seed or a reset that was applied."""

    seed: Seed  # The seed after the corrections.
    pool: Pool  # The pool of the ladder.
    rule: stages.RatingRule  # The pool's rule at the seed.
    result: SeedOutcome  # The players whose beliefs it changed.


class RatedBatch(NamedTuple):
    """Some records of a log, and their effect on the pools."""

    log: edited_log.LogBatch
    rated: list[Rated]  # The rated rounds. Rounds that change no rating are left out.
    seeded: list[Seeded]  # The applied seeds and resets, which come before the rounds.


class Replay:
    """Replays an edited log in its order. The state of each ladder's pool afterwards is the
    reference that the service must match."""

    def __init__(
        self, ladders: Ladders, window: int, partitions: int = ANYWHERE,
        verdicts: edited_log.Verdicts | None = None,
        validator: edited_log.RecordValidator | None = None,
        cores: Cores = ONE_CORE,
    ) -> None:  # fmt: skip
        """The arguments are those of EditedLog. `cores` rate several ladders, and the rounds of
        large waves, at the same time."""
        self.log = edited_log.EditedLog(ladders, window, partitions, verdicts, validator)
        self._cores = cores
        self.pools: dict[str, Pool] = {}
        """The pool of each ladder."""
        self._seasons: dict[str, tuple[parameters.Season, ...]] = {}
        """For each ladder, the seasons that have started, in order."""

    def start_season(self, ladder: str, season: parameters.Season) -> None:
        """Start a season on a ladder. It holds for all rounds that are rated later."""
        self._seasons[ladder] = (*self._seasons.get(ladder, ()), season)
        if ladder in self.pools:
            self.pools[ladder].start_season(season)

    def start_season_at(self, record: Record) -> None:
        """Start a season if the correction in this record starts one."""
        place = record.partition, record.offset
        if (found := self.log.verdicts.starts.get(place)) is not None:
            self.start_season(*found)

    def resume(self, ladder: str, pool: Pool) -> None:
        """Begin with the pool that results from a ladder's earlier rounds."""
        self.pools[ladder] = pool
        self._seasons[ladder] = pool.rule.seasons

    def run(self, records: Iterable[Record]) -> Iterator[RatedBatch]:
        """Rate the rounds in all records of a log, and yield batches. Raises MissingVerdicts."""
        for group in edited_log.batches_of(records):
            yield self.feed(group)

    def feed(self, records: Sequence[Record]) -> RatedBatch:
        """Rate the rounds in the next records, edited by all corrections of the log. A record that
        starts a season must not follow a round here (`batches_of`). Raises MissingVerdicts."""
        batch = self.log.read(records)
        for each in batch.corrections:
            self.start_season_at(each)
        seeded = [found for each in batch.seeds if (found := self.seed(each)) is not None]
        return RatedBatch(batch, self.rate(batch.rounds), seeded)

    def seed(self, reported: Seed) -> Seeded | None:
        """Apply an accepted seed or reset as corrections edit it; None if they void or empty it."""
        seed = self.log.seed(reported)
        if seed is None:
            return None
        pool = self._pool(seed.ladder, seed.rating)
        return Seeded(seed, pool, pool.rule, pool.seed(seed))

    def rate(self, reported: edited_log.LoggedRounds) -> list[Rated]:
        """Rate accepted rounds after the corrections have edited them."""
        rounds, informative = self.log.informative(reported)
        places, rules = np.flatnonzero(informative), rounds.config_index
        ladders = [head.ladder for head in rounds.heads]
        if len(places) and len(set(ladders)) == 1 and (rules == rules[0]).all():
            return [self._rate(ladders[0], int(rules[0]), rounds, places, reported.offset)]
        keys = ((ladders[i], int(rules[i])) for i in places.tolist())
        groups = edits.indices_by(keys)
        if self._cores.count == 1 or len(rounds.share) < LEAST_TOGETHER:
            return [
                self._rate(ladder, rule, rounds, places[group], reported.offset)
                for (ladder, rule), group in groups.items()
            ]
        return self._rate_ladders(groups, rounds, places, reported.offset)

    def _rate_ladders(
        self, groups: Mapping[tuple[str, int], Ints], rounds: RoundBatch, places: Ints,
        offsets: Ints,
    ) -> list[Rated]:  # fmt: skip
        """Rate ladders at the same time; the groups of a ladder, each of another rule, in turn."""
        rules = dict[str, list[int]]()
        for ladder, rule in groups:
            rules.setdefault(ladder, []).append(rule)
        for ladder, (first, *_) in rules.items():  # the pools stay in order of appearance
            self._pool(ladder, self.log.validator.round_decoder.ratings[first])

        def rate(ladders: Sequence[str]) -> dict[tuple[str, int], Rated]:
            return {
                (ladder, rule): self._rate(ladder, rule, rounds, places[groups[ladder, rule]],
                                           offsets, ONE_CORE)
                for ladder in ladders for rule in rules[ladder]
            }  # fmt: skip

        named, count = list(rules), min(len(rules), 2 * self._cores.count)
        found = dict[tuple[str, int], Rated]()
        for some in self._cores.run([partial(rate, named[i::count]) for i in range(count)]):
            found |= some
        return [found[key] for key in groups]

    def _pool(self, ladder: str, rating: parameters.RatingConfig) -> Pool:
        """The pool of a ladder, which uses these parameters from now on."""
        if ladder not in self.pools:
            self.pools[ladder] = Pool(rating, self._seasons.get(ladder, ()))
        self.pools[ladder].follow(rating)
        return self.pools[ladder]

    def _rate(
        self, ladder: str, rule: int, rounds: RoundBatch, chosen: Ints, offsets: Ints,
        cores: Cores | None = None,
    ) -> Rated:  # fmt: skip
        """Rate the rounds with the indices `chosen`, which all have this ladder. `rule` is the
        index of their rating configuration."""
        rating = self.log.validator.round_decoder.ratings[rule]
        pool = self._pool(ladder, rating)
        own = rounds if len(chosen) == len(rounds) else rounds.take(chosen)
        rows = pool.rows(own.names)
        waves = waves_of(bounds(own.sizes), rows, len(pool))
        if len(waves.bounds) > 2:  # with a single wave the order stays
            rows = rows[spread(bounds(own.sizes)[waves.order], own.sizes[waves.order])]
            own, chosen = own.take(waves.order), chosen[waves.order]
        result = pool.rate_rows(own, rows, waves.bounds, offsets[chosen], cores or self._cores)
        return Rated(chosen, own, pool, pool.rule, rows, result)
