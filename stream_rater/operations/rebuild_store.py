"""Rebuilds the store from the log, so that workers can continue as if nothing had been lost.

The state of a shard is the result of its parts before `applied`. Let g be the updaters' committed
offset: all events before g are published, and no later event is. A rebuild sets `applied` to g, so
the code of the rebuild calls both `applied`. The store at g must hold, for each player, the
sequential replay of the player's rounds up to the last one that has a part before g (`cutoff`).

So a round whose parts were sent only in part, or not at all, is left to the workers, as after a
crash. Its other players are replayed with it, because their ratings count in it. The same holds for
a seed or a reset, each row of which is like a round of one player.

The rebuilt store is not the result of the old parts, which may have been cut for another number of
shards, or computed by another kernel or ladders file. So each shard's log gets a mark. If no part
is pending in a shard, `applied` and g move past it, and a worker that reads it later knows that the
store was lost since then. Pending parts are applied first: the store records that the mark after
them is its own.
"""

import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain, pairwise
from typing import NamedTuple

import numpy as np
from msgspec.structs import replace

from stream_rater.columns.arrays import Flags, Ints
from stream_rater.columns.player_column import NO_FLAGS, BeliefColumn
from stream_rater.columns.sharding import shards_of_names
from stream_rater.columns.strings import StringColumn
from stream_rater.config.ladders import Ladders
from stream_rater.contract.record import Record
from stream_rater.contract.seeds import RESET
from stream_rater.operations.corrected_rebuild import CorrectionTraces
from stream_rater.operations.cutoff import Cutoff, Offsets
from stream_rater.pipeline.ports import REBUILT, UNFINISHED, Application, Position
from stream_rater.rating import stages
from stream_rater.rating.model import NO_FIXED, newcomers
from stream_rater.rating.parameters import RatingConfig, Season
from stream_rater.replay import edited_log
from stream_rater.replay.cores import ONE_CORE, Cores
from stream_rater.replay.log_reading import LogReader
from stream_rater.replay.player_index import grown
from stream_rater.replay.pool import BeliefTable
from stream_rater.replay.waves import DueRounds, DueWaves, arranged
from stream_rater.rounds.batch import RoundBatch, is_among
from stream_rater.rounds.correction_records import Seed

BATCH = 10_000  # The number of beliefs written in one call.
AT_ONCE = 50_000  # About the number of players whose rounds are rated together.
Write = Callable[[Mapping[int, Application]], Mapping[int, bool]]
"""Writes by compare-and-set for each shard, as `RedisStore.apply` does."""


EPOCH_BYTES = 8  # The length of the random word that each rebuild gives all shards.


def new_epoch() -> bytes:
    """Draw the epoch of a rebuild."""
    return secrets.token_bytes(EPOCH_BYTES)


class StoreInUse(Exception):
    """Another process writes to the store."""


class Kind(NamedTuple):
    """What rounds, or seeds, or resets have in common if they are rated or applied together."""

    rating: RatingConfig
    started: tuple[Season, ...]  # The seasons that had started before them.
    seed: str = ""  # The kind of the seeds; empty for rounds.


class Rebuild:
    """A replay that saves each player's belief as of the player's cut-off."""

    def __init__(
        self, ladders: Ladders, window: int, partitions: int, cutoff: Cutoff,
        verdicts: edited_log.Verdicts | None = None, traces: CorrectionTraces | None = None,
        cores: Cores = ONE_CORE,
    ) -> None:  # fmt: skip
        """`verdicts`: those on applied corrections; without them a log with corrections raises
        MissingVerdicts. `traces`: restores the values that these corrections left in beliefs."""
        self._log = edited_log.EditedLog(ladders, window, partitions, verdicts)
        self._traces = traces
        self._kinds: dict[Kind, int] = {}
        """The number of each kind."""
        self._cutoff = cutoff
        self._least = cutoff.least()
        self._cores, self._table = cores, BeliefTable(newcomers(0, 1, 0.0, 1.0, coded=True))
        self._waiting: list[DueRounds] = []
        """The rounds that are not rated yet, and the seeds that are not applied yet."""
        self._players = 0  # The number of players in them.
        self._latest = np.zeros(0, np.int64)
        """(row,) zeros, to arrange them with."""
        self._is_past = np.zeros(0, np.bool_)
        """(row,) whether the player's later rounds do not count."""
        self._saved: list[tuple[Ints, StringColumn]] = []
        """The rows of these players who had a belief at the cut-off, and the encoded beliefs."""
        self._ladders: set[int] = set()  # The numbers of the ladders that have rounds or seeds.
        self.unproven = cutoff.proof.unproven
        self.rounds = self.updates = 0
        self.written = 0  # The number of beliefs that were yielded so far.

    def run(self, log: LogReader, advance: Callable[[int], None] = lambda _: None) -> None:
        """Rate all records of a log. `advance` gets each batch's size. Raises MissingVerdicts."""
        with log.validated(self._log.validator, self._cores) as batches:
            for each in batches:
                self.feed(each)
                advance(each.count)

    def feed(self, records: Sequence[Record] | edited_log.ValidRecords) -> None:
        """Rate the rounds in records of the log, and apply the seeds and resets, now or together
        with those fed later. Raises MissingVerdicts."""
        for each in self._log.accepted(records, []):
            if isinstance(each, Seed):
                self._add_seed(each)
            elif isinstance(each, edited_log.LoggedRounds):
                self._add_rounds(each)
            if self._players >= AT_ONCE:
                self._rate()

    def _add_rounds(self, reported: edited_log.LoggedRounds) -> None:
        self.rounds += len(reported)
        self.updates += len(reported.rounds.share)
        players, ladders = self._cutoff.players, [head.ladder for head in reported.rounds.heads]
        numbers, kinds = players.ladder_numbers(ladders), self._kinds_of(ladders, reported)
        self._ladders |= set(numbers.tolist())
        rounds, informative = self._log.informative(reported)
        logged, chosen = replace(reported, rounds=rounds), np.flatnonzero(informative)
        if len(chosen) < len(logged):
            logged, numbers, kinds = logged.take(chosen), numbers[chosen], kinds[chosen]
        own, offset = logged.rounds, logged.offset
        rows = players.rows_of(own.names, np.repeat(numbers, own.sizes))
        late = self._late(rows, *(np.repeat(x, own.sizes) for x in (logged.partition, offset)))
        self._add(DueRounds.of(own, kinds, numbers, offset, rows, self._fixed(own), late))

    def _add(self, due: DueRounds) -> None:
        """Let rounds, or rows of a seed, wait until they are rated or applied."""
        self._waiting.append(due)
        self._players += len(due.rows)

    def _fixed(self, rounds: RoundBatch) -> Flags:
        """(P,) whether the configuration of each player's round fixes the player's rating; (0,) if
        none fixes any."""
        ratings = self._log.validator.round_decoder.ratings
        if not any(rating.fixed_players for rating in ratings):
            return NO_FIXED
        found = np.zeros(len(rounds.share), np.bool_)
        for number, rating in enumerate(ratings):
            if rating.fixed_players:
                own = np.repeat(rounds.config_index == number, rounds.sizes)
                found[own] = is_among(rounds.names.take(np.flatnonzero(own)), rating.fixed_players)
        return found

    def _add_seed(self, reported: Seed) -> None:
        self.updates += len(reported)
        players = self._cutoff.players
        (ladder,) = players.ladder_numbers([reported.ladder]).tolist()
        self._ladders.add(ladder)
        seed = self._log.seed(reported)
        if seed is not None:
            n, started = len(seed), self._log.verdicts.of(seed.ladder).started_before(seed.offset)
            rows = players.rows_of(seed.names, np.full(n, ladder))
            late = self._late(rows, np.full(n, seed.partition), np.full(n, seed.offset))
            kind = self._number_of(Kind(seed.rating, started, seed.kind))
            self._add(DueRounds.of_seed(seed, kind, ladder, rows, late))

    def _late(self, rows: Ints, partitions: Ints, offsets: Ints) -> Flags:
        """(P,) whether records at these places are after the cut-offs of the players in `rows`;
        (0,) if none is."""
        if int(offsets.max(initial=-1)) <= self._least:
            return NO_FLAGS
        found: Flags = offsets > self._cutoff.of(rows, partitions)
        return found

    def _kinds_of(self, ladders: Sequence[str], logged: edited_log.LoggedRounds) -> Ints:
        """(R,) the number of the kind of each round."""
        ratings, verdicts = self._log.validator.round_decoder.ratings, self._log.verdicts
        index = logged.rounds.config_index
        if not verdicts.starts:
            used = np.unique(index)
            kinds = [self._number_of(Kind(ratings[i], ())) for i in used.tolist()]
            return np.array(kinds, np.int64)[np.searchsorted(used, index)]
        heads = zip(ladders, index.tolist(), logged.offset.tolist(), strict=True)
        kinds = [
            self._number_of(Kind(ratings[i], verdicts.of(ladder).started_before(at)))
            for ladder, i, at in heads
        ]
        return np.array(kinds, np.int64)

    def _number_of(self, kind: Kind) -> int:
        return self._kinds.setdefault(kind, len(self._kinds))

    def _rate(self) -> None:
        """Rate all rounds that are not rated yet, and apply the seeds among them."""
        if not self._players:
            return
        known = len(self._cutoff.players)
        self._table.make_room(known)
        self._is_past, self._latest = grown(self._is_past, known), grown(self._latest, known)
        has_late, kinds = any(each.late.any() for each in self._waiting), list(self._kinds)
        for wave in arranged(self._waiting, self._latest, together=not has_late):
            if has_late:
                self._save(wave.rounds)
            self._apply(wave, kinds[wave.rounds.kind[0]])
        self._waiting, self._players = [], 0

    def _apply(self, wave: DueWaves, kind: Kind) -> None:
        """Rate the rounds of some waves, or apply the seeds or the resets of one."""
        rounds, rule = wave.rounds, stages.rule_of(kind.rating, kind.started)
        assert rule.kept, "no record holds a full history"
        self._table.begin(rule, rounds.rows)
        if kind.seed:
            self._table.give(rule, rounds.rows, rounds.given, is_reset=kind.seed == RESET)
            return
        found = self._table.rate_waves(
            kind.rating, rule, rounds, rounds.rows, wave.waves, rounds.offset, self._cores
        )
        if self._traces is None:  # a correction may edit a round after its parts were sent
            offsets = np.repeat(rounds.offset, rounds.sizes)
            self._cutoff.proof.compare(rounds.rows, offsets, found.evidence)

    def _save(self, rounds: DueRounds) -> None:
        """Save the beliefs of players whose round or seed here is after their cut-off."""
        rows = rounds.rows[rounds.late & ~self._is_past[rounds.rows]]
        self._is_past[rows] = True
        if len(rated := self._table.rated(rows)):
            self._saved.append((rated, self._table.encoded(rated)))

    @property
    def ladders(self) -> list[str]:
        """The ladders that have rounds."""
        names = self._cutoff.players.ladders
        return [names[number] for number in sorted(self._ladders)]

    def beliefs(self) -> Iterator[BeliefColumn]:
        """Yield every belief that the store must hold, in batches. Ends the use of `feed`."""
        self._rate()
        players, traces = self._cutoff.players, self._traces
        batches: Iterable[BeliefColumn] = (
            BeliefColumn(players.at(rows), data) for rows, data in self._batches_of_beliefs()
        )
        if traces is not None:
            batches = chain(map(traces.restored, batches), traces.without_rounds())
        for found in batches:
            self.written += len(found)
            yield found

    def _batches_of_beliefs(self) -> Iterator[tuple[Ints, StringColumn]]:
        """Yield rows with their encoded beliefs, in batches."""
        if self._saved:
            saved = np.concatenate([rows for rows, _ in self._saved])
            records = StringColumn.concat([each for _, each in self._saved])
            for batch in _batches(len(saved)):
                yield saved[batch], records.slice(batch.start, batch.stop)
        left = ~self._is_past[: len(self._cutoff.players)]
        rows = self._table.rated(np.flatnonzero(left))
        for batch in _batches(len(rows)):
            yield rows[batch], self._table.encoded(rows[batch])


class Rebuilds:
    """Replays of the same log by several editions, each with the beliefs of other players."""

    def __init__(
        self, rebuilds: Sequence[Rebuild], verdicts: edited_log.Verdicts = edited_log.NO_VERDICTS
    ) -> None:
        """`verdicts`: the verdicts on all applied corrections."""
        first, self._rebuilds, self.verdicts = rebuilds[0], rebuilds, verdicts
        self.rounds, self.updates, self.ladders = first.rounds, first.updates, first.ladders
        self.unproven = first.unproven  # all editions have the same cut-off, and so the same proof

    @property
    def written(self) -> int:
        """The number of beliefs that were yielded so far."""
        return sum(each.written for each in self._rebuilds)

    def beliefs(self) -> Iterator[BeliefColumn]:
        """Yield every belief that the store must hold, in batches."""
        for each in self._rebuilds:
            yield from each.beliefs()


def _batches(count: int) -> Iterator[slice]:
    for start in range(0, count, BATCH):
        yield slice(start, start + BATCH)


def past_marks(applied: Offsets, marks: Offsets) -> dict[int, int]:
    """By shard, the offset after its mark, for each shard in which no part is pending."""
    return {shard: mark + 1 for shard, mark in marks.items() if mark == applied.get(shard, 0)}


def fill_store(
    beliefs: Iterable[BeliefColumn], applied: Offsets, marks: Offsets, tails: Mapping[int, int],
    epoch: bytes, write: Write,
) -> None:  # fmt: skip
    """Write beliefs to a store whose shards are all marked, empty and UNFINISHED, and have this
    epoch. `tails`: by shard, the checksum of the last record before `applied`. Raises StoreInUse.

    No intermediate state can be mistaken for a complete one. If the store goes back to an earlier
    one, the next call to that shard finds another `applied`.
    """
    shards, before = len(marks), dict.fromkeys(marks, UNFINISHED)
    for number, batch in enumerate(beliefs, 1):
        after = UNFINISHED - 1 - number  # below VANISHED
        calls = _by_shard(batch, before, after, epoch)
        _write(calls, write)
        before |= dict.fromkeys(calls, after)
    ends = {shard: applied.get(shard, 0) for shard in range(shards)}
    behind = {s: BeliefColumn.of([(REBUILT, b"%d" % (at + 1))]) for s, at in marks.items()}
    for starts in (before, ends):  # so that the last call changes nothing
        last = {
            s: Application(Position(end, starts[s], b"", epoch, tails.get(s)), behind[s])
            for s, end in ends.items()
        }
        _write(last, write)


def _by_shard(
    beliefs: BeliefColumn, before: Offsets, after: int, epoch: bytes
) -> dict[int, Application]:
    owners = shards_of_names(beliefs.players.names, len(before))
    ordered = beliefs.take(np.argsort(owners, kind="stable"))
    ends = np.cumsum(np.bincount(owners, minlength=len(before)))
    return {
        shard: Application(Position(after, before[shard], epoch=epoch), ordered[start:end])
        for shard, (start, end) in enumerate(pairwise([0, *ends.tolist()]))
        if end > start
    }


def _write(applications: Mapping[int, Application], write: Write) -> None:
    if applications and not all(write(applications).values()):
        raise StoreInUse(
            "the store changed while it was being rebuilt: is a worker running, or did Redis lose "
            "writes? Run it again"
        )
