"""Replays the edited log of all ladders together. The commands `rate` and `verify` use it."""

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np

from stream_rater.columns.arrays import Ints
from stream_rater.columns.sharding import ANYWHERE
from stream_rater.config.ladders import Ladders
from stream_rater.contract.record import Record
from stream_rater.rating import parameters, stages
from stream_rater.replay import edited_log, edits
from stream_rater.replay.cores import ONE_CORE, Cores
from stream_rater.replay.pool import Pool, RatingResult, SeedOutcome, in_waves
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
        """Rate accepted rounds after the corrections have edited them, ladder by ladder."""
        rounds, informative = self.log.informative(reported)
        places, rules = np.flatnonzero(informative), rounds.config_index
        ladders = [head.ladder for head in rounds.heads]
        ratings = self.log.validator.round_decoder.ratings
        groups = dict[str, list[tuple[int, Ints]]]()
        if len(places) and len(set(ladders)) == 1 and (rules == rules[0]).all():
            groups[ladders[0]] = [(int(rules[0]), places)]
        else:
            keys = ((ladders[i], int(rules[i])) for i in places.tolist())
            for (ladder, rule), group in edits.indices_by(keys).items():
                groups.setdefault(ladder, []).append((rule, places[group]))

        def rate(ladders: Sequence[str], cores: Cores) -> list[Rated]:
            found = list[Rated]()
            for ladder, (rule, chosen) in ((each, one) for each in ladders for one in groups[each]):
                own = rounds if len(chosen) == len(rounds) else rounds.take(chosen)
                pool = self._pool(ladder, ratings[rule])
                found.append(rate_together(pool, own, chosen, reported.offset[chosen], cores))
            return found

        named, count = list(groups), min(len(groups), 2 * self._cores.count)
        if self._cores.count == 1 or count < 2 or len(rounds.share) < LEAST_TOGETHER:
            return rate(named, self._cores)
        for ladder, ((first, _), *_) in groups.items():  # the pools stay in order of appearance
            self._pool(ladder, ratings[first])
        shares = [partial(rate, named[i::count], ONE_CORE) for i in range(count)]
        return [rated for share in self._cores.run(shares) for rated in share]

    def _pool(self, ladder: str, rating: parameters.RatingConfig) -> Pool:
        """The pool of a ladder, which uses these parameters from now on."""
        if ladder not in self.pools:
            self.pools[ladder] = Pool(rating, self._seasons.get(ladder, ()))
        self.pools[ladder].follow(rating)
        return self.pools[ladder]


def rate_together(
    pool: Pool, rounds: RoundBatch, numbers: Ints, offsets: Ints, cores: Cores = ONE_CORE
) -> Rated:
    """Rate R rounds of a pool's ladder, at these (R,) offsets. `numbers` (R,) become the `chosen`
    of the result."""
    rows = pool.rows(rounds.names)
    order, rounds, rows, waves = in_waves(rounds, rows, len(pool))
    rule = pool.rule
    result = pool.rate_waves(pool.rating, rule, rounds, rows, waves, offsets[order], cores)
    return Rated(numbers[order], rounds, pool, rule, rows, result)
