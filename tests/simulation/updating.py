"""Steps 8 to 14: mutants with one rule left out, each before the scenario that needs the rule."""

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from stream_rater.adapters.local_driver import Steps
from stream_rater.pipeline import ports
from stream_rater.pipeline.updater.rating_events import Events
from stream_rater.pipeline.updater.shard import ShardBatch
from stream_rater.pipeline.updater.updater import Updater
from stream_rater.rating.record import headers_of

from .registry import catches
from .stage import A0, A1, B0, Stage
from .world import UnkindDriver


class AppliesBeforeSettling(Updater):
    """Step 11 left out: what follows [c, a) is applied and committed first."""

    def _settle(self) -> ports.Step[None]:
        for shard in self._shards.values():
            if shard.last_call():
                shard.committed = shard.applied
        yield from ()


@catches("applies-before-settling", "settling [c, a) first", AppliesBeforeSettling)
def updater_dies_between_store_and_log(stage: Stage) -> None:
    """A round is applied, and the updater dies before its events are published."""
    stage.round(A0, A1)
    stage.estimator()
    first = stage.updater()
    stage.through(stage.actors[0], ports.CommitSource)
    stage.until(first, ports.Publish)
    stage.crash(first)
    stage.round(A0, A1)
    stage.updater()


class PublishesRefills(Updater):
    """Step 10 left out: parts that the store lost are applied and published like new ones."""

    def _settle(self) -> ports.Step[None]:
        for shard in self._shards.values():
            if shard.is_refilling:
                shard.committed = shard.applied
        yield from super()._settle()


@catches("publishes-refills", "[a, c) without events", PublishesRefills)
def store_loses_what_was_published(stage: Stage) -> None:
    """A round is applied and published, and then the store loses it."""
    stage.rated(A0, A1)
    stage.store.roll_back(0, 1)
    stage.store.roll_back(1, 1)


class PublishesWhatWasLost(Updater):
    """Step 14 that does not check, after the group changed, what the worker still owns."""

    def _poll(self, timeout_s: float, *, no_fetch: bool, gather_s: float = 0.0) -> ports.Step[None]:
        before = dict(self._shards)
        yield from super()._poll(timeout_s, no_fetch=no_fetch, gather_s=gather_s)
        if timeout_s == ports.REGROUPING_S:
            self._shards = before


@catches("publishes-what-was-lost", "events of owned shards only", PublishesWhatWasLost)
def shards_go_to_another_before_the_commit(stage: Stage) -> None:
    """A round is applied. The new owner of its shards settles it before the first one publishes."""
    _, first = stage.sent(A0, A1)
    stage.until(first, ports.Publish)
    stage.through(stage.updater(), ports.Publish)
    stage.turns(first)


class PublishesWhatWentAhead(UnkindDriver):
    """Step 14 with all events sent during step 13, even of shards that refused the call."""

    def publish(self, events: Collection[ports.Event], offsets: Mapping[int, int]) -> Steps:
        if self._open is not None:
            self._open = events
        yield from super().publish(events, offsets)


@catches("publishes-what-went-ahead", "events of applied parts", PublishesWhatWentAhead)
def one_shard_goes_back_while_events_go_ahead(stage: Stage) -> None:
    """The events of two shards are sent while the store of one shard refuses its call."""
    estimator, updater = stage.rated(A0, A1)
    stage.sends(estimator, A0, A1)
    stage.until(updater, ports.Apply)
    stage.store.roll_back(0, 1)
    stage.through(updater, ports.Publish)


class RememberedOffset(Updater):
    """Step 8 with the offset that was last known to be committed, instead of the group's."""

    def __init__(self, shard_count: int, **options: Any) -> None:
        super().__init__(shard_count, **options)
        self._known: dict[int, int] = {}

    def _start_over(self, troubles: int) -> ports.Step[None]:
        self._known |= {number: shard.committed for number, shard in self._shards.items()}
        yield from super()._start_over(troubles)

    def _committed(self, shards: frozenset[int]) -> ports.Step[Mapping[int, int | None]]:
        fetched = yield from super()._committed(shards)
        return {s: self._known.pop(s, fetched[s]) for s in shards}


@catches("remembered-offset", "the group's offset, fetched", RememberedOffset)
def commit_that_succeeded_in_doubt(stage: Stage) -> None:
    """A transaction is committed, but the updater's call fails."""
    _, updater = stage.sent(A0, A1)
    stage.until(updater, ports.Publish)
    updater.advance(5)
    stage.fail(updater)


class CommittedReadFirst(Updater):
    """Step 9 with c read before a: between the two reads, another worker may apply and commit."""

    def __init__(self, shard_count: int, **options: Any) -> None:
        super().__init__(shard_count, **options)
        self._read_first: Mapping[int, int | None] = {}

    def _open(self) -> ports.Step[None]:
        if self._owned - self._shards.keys():
            self._read_first = yield from super()._committed(self._owned)
        yield from super()._open()

    def _committed(self, shards: frozenset[int]) -> ports.Step[Mapping[int, int | None]]:
        yield from ()
        return self._read_first


@catches("committed-read-first", "a before c", CommittedReadFirst)
def another_worker_commits_between_two_reads(stage: Stage) -> None:
    """An updater reads c, loses the shards, and the former owner goes on. An old c and a new a look
    as if the group's offset had been reset."""
    estimator, first = stage.rated(A0, A1)
    second = stage.updater()
    stage.through(second, ports.Poll)
    stage.perform(second)
    stage.assign(first)
    for _ in range(2):
        stage.rates(estimator, first, A0, A1)
    stage.turns(second)


class EventsByOffset(Updater):
    """Step 11 with events for rows whose offset is the belief's last, instead of fresh rows."""

    def _build_events_again(
        self, number: int, call: ShardBatch, stored: ports.StoredShard
    ) -> Events | None:
        shard = self._shards[number]
        if stored.position == shard.position:
            last = headers_of(stored.records)["last"]
            fresh = np.packbits(call.rows.offset == last).tobytes()
            shard.position = replace(shard.position, fresh=fresh)
            stored = ports.StoredShard(shard.position, stored.records)
        return super()._build_events_again(number, call, stored)


@catches("events-by-offset", "events by fresh rows", EventsByOffset)
def part_sent_twice_and_applied_unpublished(stage: Stage) -> None:
    """A round is sent twice. The updater publishes one copy, applies the other one, and dies."""
    stage.round(A0, B0)
    applied_twice_and_unpublished(stage)


def applied_twice_and_unpublished(stage: Stage) -> None:
    """What was reported is sent twice. The first copy is published, the second one is not."""
    first, updater = stage.workers()
    stage.through(first, ports.Scatter)
    stage.crash(first)
    stage.through(updater, ports.Publish)
    stage.through(stage.estimator(), ports.Scatter)
    stage.through(updater, ports.Apply)
    stage.replace(updater)


class UnstableOffset(UnkindDriver):
    def committed(self, partitions: frozenset[int]) -> Steps:
        yield
        return {p: self.group.committed.get(p) for p in partitions}


@catches("unstable-offset", "stable offsets only", UnstableOffset)
def takeover_while_a_transaction_is_pending(stage: Stage) -> None:
    """An updater dies while its transaction commits. Its successor starts before it has."""
    _, first = stage.sent(A0, A1)
    stage.until(first, ports.Publish)
    first.advance(4)
    end = stage.fail(first)
    successor = stage.replace(first)
    stage.turns(successor, effects=10)
    end.arrive()
    assert stage.log.updaters.committed


class NoCompareAndSet(UnkindDriver):
    """Step 13 without the comparison: any writer's call is applied, however late."""

    def apply(
        self, applications: Mapping[int, ports.Application], events: Collection[ports.Event]
    ) -> Steps:
        done = {}
        for shard, application in applications.items():
            yield
            _, beliefs = self.store.state(shard)
            self.store.put(shard, (application.position, beliefs | dict(application.beliefs)))
            done[shard] = True
        return done


@catches("no-compare-and-set", "compare-and-set on applied", NoCompareAndSet)
def late_call_of_a_dead_updater(stage: Stage) -> None:
    """A dead updater's call arrives after its successor has made the same call and the next one.
    The events of the latter are unpublished when the successor dies in turn."""
    estimator, first = stage.sent(A0, A1)
    stage.until(first, ports.Apply)
    first.advance()
    call = stage.fail(first)
    second = stage.replace(first)
    stage.through(second, ports.Publish)
    stage.sends(estimator, A0, B0)
    stage.until(second, ports.Publish)
    stage.crash(second)
    call.arrive()
    stage.updater()


class KeptProducer(UnkindDriver):
    """Step 14 with the same producer after an end in doubt, which may hit the next transaction."""

    def new_producer(self) -> Steps:
        if self.producer in self.log._fenced:
            yield from super().new_producer()
        else:
            yield
            self.log.abort(self.group, self.producer)


@catches("kept-producer", "a new producer after a doubt", KeptProducer)
def late_end_within_the_next_transaction(stage: Stage) -> None:
    """An end in doubt arrives when half of the next transaction is sent. The updater dies."""
    _, first = stage.sent(A0, A1)
    stage.until(first, ports.Publish)
    first.advance(4)
    end = stage.fail(first)
    stage.until(first, ports.Publish)
    first.advance(3)
    end.arrive()
    stage.crash(first)
    stage.log.fence(stage.log.updaters, first.driver.producer)
    stage.updater()
