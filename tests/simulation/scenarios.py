"""One scenario for each rule: the steps that end in a violation if the rule is left out.
`test_directed` plays each scenario with the rule and without it."""

from stream_rater.pipeline.ports import (
    Apply,
    CommitSource,
    Poll,
    Publish,
    ReadPriors,
    Scatter,
    Seek,
)

from . import estimator_mutants as stage_1
from . import updater_mutants as stage_2
from .id_mutants import IdsInMemory, IdsInStore
from .registry import catches
from .stage import A0, A1, A2, B0, B1, B2, NEVER_HEARS, Stage


@catches("misplaced-taken", "rounds in their ladder's partition only", stage_1.MisplacedTaken)
def round_in_another_ladders_partition(stage: Stage) -> None:
    """Its offset there is lower than those of its players' rounds: it seems to be sent already."""
    estimator, updater = stage.rated(A0, B0, times=3)
    stage.round(A0, B0, A1, partition=1)
    stage.turns(estimator, updater)


@catches("no-floor", "step 1's floor", stage_1.NoFloor)
def successor_before_the_parts_are_applied(stage: Stage) -> None:
    """An estimator commits a round and dies. Its successor sees the players' next round before the
    updater has seen the first."""
    stage.round(A0, A1)
    first = stage.estimator()
    stage.through(first, CommitSource)
    stage.crash(first)
    stage.round(A0, A1)
    stage.turns(stage.estimator())
    stage.updater()


@catches("floor-that-stays", "the floor's later raise", stage_1.FloorThatStays)
def store_goes_back_after_it_was_believed(stage: Stage) -> None:
    """The store loses a round after its position was seen and before the priors are read."""
    stage.estimator_cache = 0
    estimator, _ = stage.rated(A0, A1)
    stage.round(A0, A1)
    stage.until(estimator, ReadPriors)
    stage.perform(estimator)
    stage.until(estimator, ReadPriors)
    stage.store.roll_back(0, 1)
    stage.turns(estimator)


@catches("priors-read-apart", "prior and applied in one call", stage_1.PriorsReadApart)
def store_catches_up_within_a_read(stage: Stage) -> None:
    """The store has lost a round when the priors are read, and has it again a moment later."""
    stage.estimator_cache = 0
    estimator, _ = stage.rated(A0, B0)
    stage.round(A0, B0)
    stage.through(estimator, ReadPriors)
    stage.until(estimator, ReadPriors)
    caught_up = stage.store.state(0)
    stage.store.roll_back(0, 1)
    estimator.advance(2)
    stage.store.put(0, caught_up)
    stage.turns(estimator)


@catches("current-prior", "the remembered prior", stage_1.CurrentPrior)
def estimator_dies_while_it_sends(stage: Stage) -> None:
    """Of two who have played, one's part was sent and applied, the other's was not. The successor
    rates the round again."""
    for each in stage.rated(A0, A1):
        stage.crash(each)
    stage.half_sent(A0, A1)
    stage.estimator()


@catches("unacknowledged", "all parts acknowledged first", stage_1.Unacknowledged)
def part_overtaken_by_the_next_wave(stage: Stage) -> None:
    """A part of one wave is unsent when a later round of the other player in its round is sent."""
    _after_a_round_that_waits(stage)
    estimator, updater = stage.actors
    stage.round(A0, A1)
    stage.through(estimator, Scatter)
    stage.through(updater, Publish)
    stage.round(A0, B0)
    stage.through(estimator, Scatter)
    stage.through(updater, Publish)
    stage.crash(estimator)
    stage.workers()


def _after_a_round_that_waits(stage: Stage) -> None:
    """An estimator without a cache, and an updater of shards 0 and 1. Nothing can be committed,
    because the next round waits for shard 2, which has no updater yet."""
    stage.estimator_cache = 0
    stage.round(A2, B2)
    estimator = stage.estimator()
    stage.updater(0, 1)
    stage.through(estimator, CommitSource)
    stage.round(A2, B2)


@catches("resumed-not-pending", "pending parts of a resumed round", stage_1.ResumedNotPending)
def zombie_sends_on(stage: Stage) -> None:
    """While its successor sets its floors, a zombie sends two rounds of one player. Only one part
    of the first round is applied when the successor finds that it was sent."""
    _after_a_round_that_waits(stage)
    zombie, updater = stage.actors
    stage.turns(updater)
    stage.log.updaters.generation += 1
    stage.log.updaters.owners = {0: updater.driver}
    zombie.driver.unkindness = NEVER_HEARS
    successor = stage.estimator()
    stage.round(A0, A1)
    stage.round(A0, B0)
    stage.round(A1, B1)
    stage.through(successor, Seek)
    stage.through(zombie, Scatter)
    stage.through(updater, Publish)
    stage.through(zombie, Scatter)
    stage.through(updater, Publish)
    stage.turns(successor)
    stage.crash(zombie)
    stage.updater()


@catches("first-piece", "all pieces of a large round first", stage_1.FirstPart)
def next_round_between_the_parts_of_a_large_one(stage: Stage) -> None:
    """A round of three players in two pieces; a player of the second piece has another round right
    after it."""
    stage.round(A0, A1, A2)
    stage.round(A2, B2)
    stage.turns(stage.estimator())
    stage.updater()


@catches("commits-maximum", "the contiguous prefix", stage_1.CommitsMaximum)
def round_still_waiting_at_a_crash(stage: Stage) -> None:
    """A later round is finished while an earlier one waits; then the estimator dies."""
    _after_a_round_that_waits(stage)
    estimator, _ = stage.actors
    stage.round(A0, A1)
    stage.through(estimator, Scatter)
    stage.turns(estimator)
    stage.crash(estimator)
    stage.workers()


@catches("plain-commits", "offsets in a transaction, too", stage_1.PlainCommits)
def commit_that_comes_late(stage: Stage) -> None:
    """A commit times out. Its sender continues and commits a rejection after it. Then the first
    commit arrives."""
    stage.round(A0, B0)
    estimator, updater = stage.workers()
    stage.until(estimator, CommitSource)
    estimator.advance()
    late = stage.fail(estimator)
    stage.turns(updater)
    stage.report(b'{"broken')
    stage.through(estimator, CommitSource, rejections=True)
    late.arrive()
    stage.replace(estimator)


@catches("rejections-outside", "rejections in the transaction", stage_1.RejectionsOutside)
def crash_between_rejection_and_commit(stage: Stage) -> None:
    """A record is rejected, and the estimator dies within the commit."""
    first, _ = stage.rated(A0, B0)
    stage.report(b"no round")
    stage.until(first, CommitSource)
    first.advance(2)
    stage.replace(first)


@catches("offsets-forgotten", "offsets found again by rejections", stage_1.OffsetsForgotten)
def offsets_expire(stage: Stage) -> None:
    """All workers are gone for so long that Kafka deletes the estimators' offsets."""
    estimator, updater = stage.rated(A0, B0)
    stage.report(b"no round")
    stage.through(estimator, CommitSource)
    stage.rates(estimator, updater, A0, B0)
    stage.crash(estimator)
    stage.log.estimators.committed.clear()
    stage.estimator()


@catches("rejects-deleted-again", "no guess after rejections are gone", stage_1.RejectsDeletedAgain)
def offsets_and_rejections_expire(stage: Stage) -> None:
    """Kafka deletes the estimators' offsets and the rejections. A worker that starts then ends by
    itself, and an operator commits the offset."""
    estimator, _ = stage.rated(A0, B0)
    stage.report(b"no round")
    stage.through(estimator, CommitSource)
    stage.crash(estimator)
    committed = dict(stage.log.estimators.committed)
    stage.log.rejections_deleted = len(stage.log.rejected)
    stage.log.estimators.committed.clear()
    successor = stage.estimator()
    stage.turns(successor)
    if successor.ended:
        stage.log.estimators.committed |= committed
        stage.replace(successor)


@catches("ids-in-memory", "duplicates by the W offsets before", IdsInMemory)
def duplicate_after_a_crash(stage: Stage) -> None:
    """A round is reported again after the estimator that rated it has died."""
    stage.round(A0, A1, round_id="once")
    first = stage.estimator()
    stage.updater()
    stage.through(first, CommitSource)
    stage.crash(first)
    stage.round(A0, A1, round_id="once")
    stage.estimator()


@catches("ids-in-store", "no round ids in the store", IdsInStore)
def estimator_dies_before_it_sends(stage: Stage) -> None:
    """A round is read and not yet rated when the estimator dies; its successor reads it again."""
    stage.round(A0, A1)
    first = stage.estimator()
    stage.until(first, Scatter)
    stage.crash(first)
    stage.workers()


@catches("notes-read-once", "notes read after each poll", stage_1.LadderEventsReadOnce)
def ladder_is_changed_and_the_store_is_lost(stage: Stage) -> None:
    """A worker with the old file continues after one with a new file notes a change. The store
    loses everything and gets it back from the log."""
    old, updater = stage.rated(A0, B0)
    stage.announce()
    stage.store.roll_back(0, 1000)
    for _ in range(7):
        stage.round(A0, B0)
        stage.turns(updater, old)
    stage.replace(old)


@catches("files-not-compared", "ladders files compared", stage_1.FilesNotCompared)
def worker_that_was_forgotten(stage: Stage) -> None:
    """A ladder's parameters change at offset 5, but the estimator still has the old file."""
    forgotten, _ = stage.workers()
    stage.round(A0, A1)
    stage.turns(forgotten)
    stage.announce()
    for _ in range(6):
        stage.round(A0, A1)
        stage.turns()
    stage.replace(forgotten)


@catches("applies-before-settling", "settling [c, a) first", stage_2.AppliesBeforeSettling)
def updater_dies_between_store_and_log(stage: Stage) -> None:
    """A round is applied, and the updater dies before its events are published."""
    stage.round(A0, A1)
    stage.estimator()
    first = stage.updater()
    stage.through(stage.actors[0], CommitSource)
    stage.until(first, Publish)
    stage.crash(first)
    stage.round(A0, A1)
    stage.updater()


@catches("publishes-refills", "[a, c) without events", stage_2.PublishesRefills)
def store_loses_what_was_published(stage: Stage) -> None:
    """A round is applied and published, and then the store loses it."""
    stage.rated(A0, A1)
    stage.store.roll_back(0, 1)
    stage.store.roll_back(1, 1)


@catches("publishes-what-was-lost", "events of owned shards only", stage_2.PublishesWhatWasLost)
def shards_go_to_another_before_the_commit(stage: Stage) -> None:
    """A round is applied. The new owner of the shards settles it before the first owner
    publishes."""
    _, first = stage.sent(A0, A1)
    stage.until(first, Publish)
    stage.through(stage.updater(), Publish)
    stage.turns(first)


@catches("publishes-what-went-ahead", "events of applied parts", stage_2.PublishesWhatWentAhead)
def one_shard_goes_back_while_events_go_ahead(stage: Stage) -> None:
    """The events of two shards are sent while the store of one shard refuses its call."""
    estimator, updater = stage.rated(A0, A1)
    stage.sends(estimator, A0, A1)
    stage.until(updater, Apply)
    stage.store.roll_back(0, 1)
    stage.through(updater, Publish)


@catches("remembered-offset", "the group's offset, fetched", stage_2.RememberedOffset)
def commit_that_succeeded_in_doubt(stage: Stage) -> None:
    """A transaction is committed, but the updater's call fails."""
    _, updater = stage.sent(A0, A1)
    stage.until(updater, Publish)
    updater.advance(5)
    stage.fail(updater)


@catches("committed-read-first", "a before c", stage_2.CommittedReadFirst)
def another_worker_commits_between_two_reads(stage: Stage) -> None:
    """An updater gets the shards, performs the first of its reads, and loses them. The former owner
    goes on. A c of before that and an a of after look as if the group's offset had been reset."""
    estimator, first = stage.rated(A0, A1)
    second = stage.updater()
    stage.through(second, Poll)
    stage.perform(second)
    stage.assign(first)
    for _ in range(2):
        stage.rates(estimator, first, A0, A1)
    stage.turns(second)


@catches("events-by-offset", "events by fresh rows", stage_2.EventsByOffset)
def part_sent_twice_and_applied_unpublished(stage: Stage) -> None:
    """A successor sends a round again. The updater has published the first copy, and dies after
    it applied the second copy, which changed nothing."""
    stage.round(A0, B0)
    first, updater = stage.workers()
    stage.through(first, Scatter)
    stage.crash(first)
    stage.through(updater, Publish)
    stage.through(stage.estimator(), Scatter)
    stage.through(updater, Apply)
    stage.replace(updater)


@catches("unstable-offset", "stable offsets only", stage_2.UnstableOffset)
def takeover_while_a_transaction_is_pending(stage: Stage) -> None:
    """An updater dies while its transaction is being committed. Its successor starts before the
    commit."""
    _, first = stage.sent(A0, A1)
    stage.until(first, Publish)
    first.advance(4)
    end = stage.fail(first)
    successor = stage.replace(first)
    stage.turns(successor, effects=10)
    end.arrive()
    assert stage.log.updaters.committed


@catches("no-compare-and-set", "compare-and-set on applied", stage_2.NoCompareAndSet)
def late_call_of_a_dead_updater(stage: Stage) -> None:
    """A dead updater's call arrives after its successor has made the same call and the next one,
    whose events are unpublished when the successor dies in turn."""
    estimator, first = stage.sent(A0, A1)
    stage.until(first, Apply)
    first.advance()
    call = stage.fail(first)
    second = stage.replace(first)
    stage.through(second, Publish)
    stage.sends(estimator, A0, B0)
    stage.until(second, Publish)
    stage.crash(second)
    call.arrive()
    stage.updater()


@catches("kept-producer", "a new producer after a doubt", stage_2.KeptProducer)
def late_end_within_the_next_transaction(stage: Stage) -> None:
    """The end of a transaction is in doubt. It arrives when half of the next transaction is sent;
    then the updater dies."""
    _, first = stage.sent(A0, A1)
    stage.until(first, Publish)
    first.advance(4)
    end = stage.fail(first)
    stage.until(first, Publish)
    first.advance(3)
    end.arrive()
    stage.crash(first)
    stage.log.fence(stage.log.updaters, first.driver.producer)
    stage.updater()
