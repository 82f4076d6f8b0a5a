"""The store is lost and rebuilt, or lost again: mutants with one rule left out, and scenarios."""

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from msgspec import structs

from stream_rater.adapters.local_driver import Steps
from stream_rater.columns.sharding import shards_of
from stream_rater.config.ladders import Change, Ladder, Ladders
from stream_rater.contract.record import Record
from stream_rater.contract.seeds import SEEDS
from stream_rater.operations.cutoff import Cutoff, Offsets
from stream_rater.pipeline import ports
from stream_rater.pipeline.estimator.estimator import Estimator
from stream_rater.pipeline.estimator.progress import Progress
from stream_rater.pipeline.parts.decoder import PartView
from stream_rater.pipeline.parts.schema import Mark, OfOlderStore
from stream_rater.pipeline.updater.shard import Shard
from stream_rater.pipeline.updater.updater import Updater
from stream_rater.rating.parameters import EloMMR

from .actors import Actor
from .estimating import finding, with_progress
from .game import LADDERS
from .registry import altered, catches, nothing
from .stage import A0, A1, A2, B0, B1, B2, C0, C1, D0, NEVER_HEARS, SHARDS, Stage
from .world import UnkindDriver, Unkindness


def with_shards(**members: object) -> type[Updater]:
    """An updater whose shards have these members."""
    careless = altered(Shard, __slots__=(), **members)

    def start(self: Updater, shard_count: int, **options: Any) -> None:
        Updater.__init__(self, shard_count, **options, open_shard=careless.from_stored)

    return altered(Updater, __init__=start)


def _epoch_alone(self: Shard, part: PartView, _: int) -> None:
    if part.epoch not in (None, self.position.epoch):
        raise OfOlderStore


@catches(
    "cutoff-at-the-end", "rebuild up to what was applied",
    altered(Cutoff, of=lambda _self, rows, _partitions: np.full(len(rows), 2**60)),
)  # fmt: skip
@catches(
    "pending-of-older-store", "parts before the mark, whatever their epoch",
    with_shards(_check_epoch=_epoch_alone),
)  # fmt: skip
def rebuilt_while_a_part_waits(stage: Stage) -> None:
    """The store is lost after a round was sent and committed, and before it is applied."""
    estimator, _ = stage.rated(A0, A1)
    stage.sends(estimator, A0, B0)
    stage.rebuild_and_start()


@catches(
    "cutoff-at-the-commit", "rebuild by parts first",
    altered(Cutoff, of=lambda self, _rows, partitions: self._sent[partitions] - 1),
)  # fmt: skip
def rebuilt_before_the_source_is_committed(stage: Stage) -> None:
    """The store is lost after a round was published, but not committed: its estimator died."""
    stage.round(A0, A1)
    estimator, updater = stage.workers()
    stage.through(estimator, ports.Scatter)
    stage.through(updater, ports.Publish)
    stage.rebuild_and_start()


def _add_corrections_only(self: Cutoff, record: Record, part: PartView) -> None:
    if part.cause not in SEEDS:
        Cutoff._add_given(self, record, part)


@catches(
    "cutoff-without-seeds", "rebuild by parts of seeds, too",
    altered(Cutoff, _add_given=_add_corrections_only),
)  # fmt: skip
def rebuilt_while_a_seed_waits(stage: Stage) -> None:
    """The store is lost when a seed and a reset are sent and committed, but not applied."""
    estimator, _ = stage.rated(A0, A1)
    stage.seed(B0, A0)
    stage.reset(A1)
    stage.turns(estimator)
    stage.rebuild_and_start()


@catches(
    "cutoff-of-applied", "rebuild of players whose parts are gone",
    altered(Cutoff, of=lambda self, rows, _partitions: self._before.of(rows)),
)  # fmt: skip
def rebuilt_after_parts_were_deleted(stage: Stage) -> None:
    """The store is lost long after a round, when all its parts are deleted."""
    stage.rated(A0, A1)
    stage.expire()
    stage.rebuild()
    stage.round(A0, B0)
    stage.workers()


class MarksOverlooked(Updater):
    """Step 9 without the marks: a store that lost a rebuild is refilled from parts before it."""

    def _read(self, record: Record, part: PartView | None) -> None:
        if record.partition in self._shards:
            self._shards[record.partition].marks_before = 2**60
        super()._read(record, part)


@catches("marks-overlooked", "the marks of rebuilds", MarksOverlooked)
def lost_after_shards_were_added(stage: Stage) -> None:
    """Players move to a new shard, and the store is lost during work. The new shard's log does not
    have their past. A round is reported before the rebuild."""
    stage.begin_with(2)
    estimator, updater = stage.sent(A2, B2)
    stage.turns(updater)
    estimator, updater = stage.rebuild_and_start()
    stage.rates(estimator, updater, A2, B2)
    stage.store.wipe()
    stage.turns(updater)
    stage.round(A2, B2)
    stage.turns(estimator, updater)
    stage.rebuild_and_start()


class EpochNotCompared(UnkindDriver):
    """Step 13 that compares `applied` alone: what was read before a rebuild is written after it."""

    def apply(
        self, applications: Mapping[int, ports.Application], events: Collection[ports.Event]
    ) -> Steps:
        now = {
            shard: replace(call, position=self._of_now(shard, call.position))
            for shard, call in applications.items()
        }
        return (yield from super().apply(now, events))

    def _of_now(self, shard: int, position: ports.Position) -> ports.Position:
        stored, _ = self.store.state(shard)
        return replace(position, epoch=stored.epoch)


@catches("epoch-not-compared", "compare-and-set on the epoch", EpochNotCompared)
def updater_stopped_over_a_rebuild(stage: Stage) -> None:
    """An updater stops before it applies a part, which is still pending in a rebuild. By then, A0
    has fewer factors, which no event and no part shows. Then the updater goes on."""
    for first, last in ((B0, C0), (B1, C1)):
        stage.rated(first, A0, last)
        stage.actors.clear()
    _, stopped = stage.sent(A0, D0)
    stage.until(stopped, ports.Apply)
    stage.ladders = fewer_factors_before(2)
    stage.rebuild()
    stage.perform(stopped)
    stage.workers()


# --- an estimator sleeps through a rebuild --------------------------------------------------------


def stopped_before_it_sends(stage: Stage) -> Actor:
    """An estimator is stopped when it has estimated a round of A0 and B0."""
    stage.rated(A0, A1)
    stage.round(A0, B0)
    stopped = stage.estimator()
    stage.until(stopped, ports.Scatter)
    return stopped


@catches("older-store-applied", "no parts of an older store", with_shards(_check_epoch=nothing))
def estimator_stopped_over_a_rebuild(stage: Stage) -> None:
    """The rebuild goes by another ladders file. Then the estimator goes on."""
    stopped = stopped_before_it_sends(stage)
    stage.ladders = fewer_factors_before(2)
    stage.rebuild()
    stage.perform(stopped)
    stage.workers()


def _newest_epoch(self: Progress, shard: int, epoch: bytes) -> None:
    self.epochs[shard] = epoch


@catches(
    "epoch-of-the-newest-read", "start over at another epoch",
    with_progress(check_epoch=_newest_epoch),
)  # fmt: skip
def cached_beliefs_over_a_rebuild(stage: Stage) -> None:
    """An estimator is stopped before it reads the shards' positions; the beliefs are cached. The
    rebuild goes by another ladders file. Then the estimator goes on."""
    stopped, _ = stage.rated(A0, A1)
    stage.round(A0, A1)
    stage.until(stopped, ports.ReadBeliefs)
    stage.ladders = fewer_factors_before(2)
    stage.rebuild()
    stage.turns(stopped, effects=5)
    stage.workers()


@catches(
    "cutoff-of-older-stores", "rebuild without parts of an older store",
    altered(Cutoff, _is_of_older_store=lambda *_: False),
)  # fmt: skip
def rebuilt_after_a_part_was_ignored(stage: Stage) -> None:
    """The part of a stopped estimator lies behind the mark of a rebuild, and before the next."""
    stopped = stopped_before_it_sends(stage)
    stage.rebuild()
    stage.perform(stopped)
    stage.turns(stage.updater())
    stage.rebuild_and_start()


class CutoffByTheMarkBefore(Cutoff):
    """Counts no part of an older store, though it was pending in the next rebuild."""

    def _pass_mark(self, shard: int, mark: Mark) -> None:
        self._of_older_stores.pop(shard, None)
        super()._pass_mark(shard, mark)


@catches("cutoff-by-the-mark-before", "rebuild with what was pending", CutoffByTheMarkBefore)
def rebuilt_after_a_late_part_was_applied(stage: Stage) -> None:
    """A rebuild finds the part of a stopped estimator pending. It is applied after that."""
    stopped = stopped_before_it_sends(stage)
    stage.rebuild()
    stage.perform(stopped)
    stage.rebuild()
    stage.turns(stage.updater())
    stage.rebuild_and_start()


class AbsencesNotCompared(UnkindDriver):
    """Step 13 without the count of new beliefs: players whose beliefs vanished seem to be new."""

    def apply(
        self, applications: Mapping[int, ports.Application], events: Collection[ports.Event]
    ) -> Steps:
        uncounted = {s: replace(call, absent=None) for s, call in applications.items()}
        return (yield from super().apply(uncounted, events))


@catches("absences-not-compared", "as many new beliefs as were absent", AbsencesNotCompared)
def beliefs_vanish_within_a_call(stage: Stage) -> None:
    """A hash of two beliefs is deleted while a call that writes one is on its way. An operator
    rebuilds if asked to. Then the other player has a round. Nothing is cached."""
    stage.estimator_cache = 0
    stage.rated(A0, B0)
    stage.round(A0, C0)
    estimator, updater = stage.actors
    stage.through(estimator, ports.CommitSource)
    stage.until(updater, ports.Apply)
    del stage.store.beliefs[0]["a", A0], stage.store.beliefs[0]["a", B0]
    stage.turns(updater)
    stage.rebuild_if_asked()
    stage.round(B0, C0)


class FloorsAtTheEnds(Estimator):
    """Step 1 without the comparison of store and log, and of the numbers of shards."""

    def _raise_floors(self) -> ports.Step[None]:
        self._progress.take_over((yield from ports.ask(ports.ShardEnds()))[: self._shards])


@catches("foreign-priors", "no priors of another history", FloorsAtTheEnds)
def log_that_is_shorter_than_the_store(stage: Stage) -> None:
    """An older copy of the log returns. Rounds are reported. An operator does what is asked."""
    stage.rated(A0, B0)
    older = stage.copy_of_the_log()
    stage.round(B0, A0)
    stage.turns()
    stage.restore_log(older)
    stage.round(C0, D0, round_id="other")
    stage.round(A0, C1, round_id="another")
    estimator, updater = stage.workers()
    stage.turns(estimator, updater)
    stage.rebuild_if_asked()


class TailsNotCompared(UnkindDriver):
    """Step 9 without the record before `applied`: any log that is long enough will do."""

    def part_sums(self, offsets: Mapping[int, int]) -> Steps:
        yield
        return dict.fromkeys(offsets)


@catches("tails-not-compared", "the last record that was applied", TailsNotCompared)
def shorter_log_that_grew(stage: Stage) -> None:
    """The log comes back older, the store does not; it does, from a later copy, when other rounds
    are rated and the log is as long as it was."""
    stage.rated(A0, B0)
    older = stage.copy_of_the_log()
    stage.round(B0, A0)
    stage.turns()
    later = stage.store.state(0)
    stage.restore_log(older)
    stage.store.roll_back(0, 1)
    estimator, updater = stage.workers()
    stage.round(A0, C0, round_id="other")
    stage.through(estimator, ports.CommitSource)
    stage.through(updater, ports.Publish)
    stage.crash(updater)
    stage.store.put(0, later)
    updater = stage.updater()
    stage.turns(updater)
    stage.rebuild_if_asked()
    stage.round(A0, B0)


@catches(
    "source-not-compared", "the last record that was finished",
    altered(Estimator, _check_source=nothing),
)  # fmt: skip
def rounds_vanish_and_others_take_their_offsets(stage: Stage) -> None:
    """An unclean election loses only rated rounds. Others are reported, until the log is as long as
    it was. An operator rebuilds if a worker asks for it."""
    stage.rated(A0, B0)
    stage.round(B0, A0)
    stage.turns()
    stage.tear(stage.log.rounds[0], 1)
    stage.round(C0, D0, round_id="other")
    stage.round(A0, C1, round_id="another")
    stage.turns(*stage.workers())
    stage.rebuild_if_asked()
    stage.round(B0, D0)


class CutoffOfParts(Cutoff):
    """Believes the parts, although a log lost records."""

    def __init__(self, applied: Offsets, sent: Offsets, shards: int, kernel: int, **_: Any) -> None:
        super().__init__(applied, sent, shards, kernel)


@catches("cutoff-of-parts", "rebuild of a torn log", CutoffOfParts)
def parts_vanish(stage: Stage) -> None:
    """An unclean election loses applied parts. Rounds, store and committed offsets stay."""
    stage.rated(A0, B0)
    stage.round(B0, A0)
    stage.turns()
    shard = int(shards_of([A0], SHARDS)[0])
    stage.tear(stage.log.parts[shard], 1)
    stage.turns(*stage.workers())
    stage.rebuild_if_asked()
    stage.round(A0, C0)


def fewer_factors_before(offset: int) -> Ladders:
    """The ladders file, with ladder `a` keeping one factor up to this offset."""
    rating = LADDERS.ladders["a"].rating
    assert isinstance(rating, EloMMR)
    first = structs.replace(rating, history=1)
    ladder = Ladder(rating=first, changes=(Change(from_offset=offset, rating=rating),))
    return Ladders(ladders=LADDERS.ladders | {"a": ladder})


by_parts_left = altered(Cutoff, add_published=nothing)  # without what was published


@catches(
    "reads-deleted-again", "no guess after parts were deleted, and rebuild by what was published",
    finding(parts_deleted=False), by_parts_left,
)  # fmt: skip
def lost_while_forgotten_rounds_are_read_again(stage: Stage) -> None:
    """Kafka deletes offsets, and parts. A new worker ends, and an operator commits the offset. Else
    it would send a round again. Then the store is lost."""
    stage.rated(A0, B0)
    estimator, updater = stage.actors
    stage.rates(estimator, updater, A0, B0)
    stage.expire()
    committed = dict(stage.log.estimators.committed)
    stage.log.estimators.committed.clear()
    successor = stage.replace(estimator)
    stage.turns(successor)
    if successor.ended:
        stage.log.estimators.committed |= committed
    stage.rebuild_and_start()


def paused_with_two_shards(stage: Stage) -> Actor:
    """An estimator is paused before it sends a round's parts, made for two shards. Parts name no
    epoch, as those of the last release."""
    stage.instead(Progress, "check_epoch", lambda *_: None)
    stage.begin_with(2)
    stage.round(A2, B2)
    paused = stage.estimator()
    stage.until(paused, ports.Scatter)
    return paused


def shards_added_beside_a_paused_estimator(stage: Stage) -> Actor:
    """Others rate a paused estimator's round, and shards are added. Returns that estimator."""
    paused = paused_with_two_shards(stage)
    paused.driver.unkindness = NEVER_HEARS
    successor, updater = stage.workers()
    stage.through(successor, ports.CommitSource)
    stage.turns(updater)
    stage.rebuild()
    return paused


@catches("cut-unchecked", "parts of as many shards only", with_shards(_check_shard=nothing))
def paused_while_shards_were_added(stage: Stage) -> None:
    """The paused estimator wakes up and sends its parts."""
    paused = shards_added_beside_a_paused_estimator(stage)
    stage.perform(paused)
    stage.workers()


@catches("shards-uncounted", "as many shards as at the start", FloorsAtTheEnds)
def paused_while_shards_were_added_and_owner_again(stage: Stage) -> None:
    """The paused estimator wakes up, learns that it is no longer a member, and joins again."""
    paused = shards_added_beside_a_paused_estimator(stage)
    stage.updater()
    stage.actors.append(paused)
    stage.log.estimators.assign([paused.driver])
    paused.driver.unkindness = Unkindness()
    stage.round(A2, B2)
    stage.turns(paused)
    if paused.ended:
        stage.replace(paused)


@catches(
    "cutoff-with-ignored", "rebuild without what was cut for fewer",
    altered(Cutoff, _takes_effect=lambda *_: True),
)  # fmt: skip
def lost_again_after_shards_were_added(stage: Stage) -> None:
    """The paused estimator sends parts that nobody else has sent. Before they are sent for the new
    number of shards, the store is lost again."""
    paused = paused_with_two_shards(stage)
    stage.rebuild()
    stage.perform(paused)
    stage.turns(stage.updater())
    stage.rebuild_and_start()


@catches("cutoff-by-parts-left", "rebuild by what was published", by_parts_left)
def round_is_sent_again_after_its_parts_were_deleted(stage: Stage) -> None:
    """A round is sent again, after its parts were applied and deleted. Then the store is lost."""
    stage.rated(A0, A1)
    stage.round(A1, A0)
    estimator, updater = stage.workers()
    stage.through(estimator, ports.Scatter)
    stage.through(updater, ports.Publish)
    stage.crash(estimator)
    stage.expire()
    stage.through(stage.estimator(), ports.Scatter)
    stage.rebuild_and_start()
