"""Steps 1 to 7: mutants with one rule left out, each before the scenario that needs the rule.
`test_directed` plays each scenario with the rule and without it."""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from stream_rater.adapters.local_driver import Steps
from stream_rater.columns.arrays import Ints
from stream_rater.columns.player_column import PlayerColumn
from stream_rater.columns.player_map import Fingerprints
from stream_rater.columns.sharding import ANYWHERE
from stream_rater.config.ladders import Ladders
from stream_rater.contract.events import Round
from stream_rater.contract.record import Record
from stream_rater.pipeline import ports
from stream_rater.pipeline.estimator import estimation
from stream_rater.pipeline.estimator.admission import Admission
from stream_rater.pipeline.estimator.estimation import PendingRounds
from stream_rater.pipeline.estimator.estimator import Estimator
from stream_rater.pipeline.estimator.priors import PriorsRead
from stream_rater.pipeline.estimator.progress import InFlightWindow, Progress
from stream_rater.pipeline.parts import schema
from stream_rater.rounds.validation import Invalid

from .registry import altered, catches, nothing
from .stage import A0, A1, A2, B0, B1, B2, NEVER_HEARS, Stage
from .world import UnkindDriver


class MisplacedTaken(Estimator):
    def __init__(self, ladders: Ladders, shards: int, partitions: int, **options: Any) -> None:
        super().__init__(ladders, shards, ANYWHERE, **options)


@catches("misplaced-taken", "rounds in their ladder's partition only", MisplacedTaken)
def round_in_another_ladders_partition(stage: Stage) -> None:
    """Its offset there is lower than its players' last ones, so it seems to be sent already."""
    estimator, updater = stage.rated(A0, B0, times=3)
    stage.round(A0, B0, A1, partition=1)
    stage.turns(estimator, updater)


@catches("no-floor", "step 1's floor", altered(Estimator, _raise_floors=nothing))
def successor_before_the_parts_are_applied(stage: Stage) -> None:
    """An estimator commits a round and dies. Its successor is ahead of the updater."""
    stage.round(A0, A1)
    first = stage.estimator()
    stage.through(first, ports.CommitSource)
    stage.crash(first)
    stage.round(A0, A1)
    stage.turns(stage.estimator())
    stage.updater()


def with_progress(**members: object) -> type[Estimator]:
    """An estimator whose Progress has these members."""
    kind = altered(Progress, **members)

    def forget(self: Estimator) -> None:
        Estimator._forget_everything(self)
        self._progress = kind(self._shards)
        self._in_flight = InFlightWindow(self._progress)

    return altered(Estimator, _forget_everything=forget)


def _accept(self: Progress, shard: int, applied: int, epoch: bytes = b"") -> bool:
    floor = self._floor[shard]
    accepted = Progress.accept(self, shard, applied, epoch)
    self._floor[shard] = floor
    return accepted


@catches("floor-that-stays", "the floor's later raise", with_progress(accept=_accept))
def store_goes_back_after_it_was_believed(stage: Stage) -> None:
    """The store loses a round after its position was seen and before the priors are read."""
    stage.estimator_cache = 0
    estimator, _ = stage.rated(A0, A1)
    stage.round(A0, A1)
    stage.until(estimator, ports.ReadPriors)
    stage.perform(estimator)
    stage.until(estimator, ports.ReadPriors)
    stage.store.roll_back(0, 1)
    stage.turns(estimator)


class PriorsReadApart(UnkindDriver):
    """Step 4 in two calls: the priors first, then `applied`."""

    def read_priors(self, players: Mapping[int, PlayerColumn]) -> Steps:
        headers = {}
        for shard, of_shard in players.items():
            yield
            headers[shard] = self.store.read_priors(shard, of_shard).headers
        read = {}
        for shard, each in headers.items():
            yield
            read[shard] = ports.Priors(
                self.store.read_priors(shard, ports.NO_PLAYERS).applied, each
            )
        return read


@catches("priors-read-apart", "prior and applied in one call", PriorsReadApart)
def store_catches_up_within_a_read(stage: Stage) -> None:
    """The store has lost a round when the priors are read, and has it again a moment later."""
    stage.estimator_cache = 0
    estimator, _ = stage.rated(A0, B0)
    stage.round(A0, B0)
    stage.through(estimator, ports.ReadPriors)
    stage.until(estimator, ports.ReadPriors)
    caught_up = stage.store.state(0)
    stage.store.roll_back(0, 1)
    estimator.advance(2)
    stage.store.put(0, caught_up)
    stage.turns(estimator)


def with_present(*names: str) -> type[Estimator]:
    """Step 5 with these values of the present belief, instead of those of the remembered prior."""

    def read_wave(self: Estimator, wave: PendingRounds) -> ports.Step[PriorsRead]:
        read = yield from Estimator._read_wave(self, wave)
        for name in names:
            read.headers[f"previous_{name}"] = read.headers[name]
        return read

    return altered(Estimator, _read_wave=read_wave)


@catches("current-prior", "the remembered prior", with_present("mu", "sigma", "time", "season"))
def estimator_dies_while_it_sends(stage: Stage) -> None:
    """One part of a round is applied, the other was not sent. The successor rates it again."""
    for each in stage.rated(A0, A1):
        stage.crash(each)
    stage.half_sent(A0, A1)
    stage.estimator()


class Unacknowledged(Estimator):
    """Step 6 that waits only for a wave's parts to one shard. The rest is sent after a commit."""

    def _forget_everything(self) -> None:
        super()._forget_everything()
        self._late: list[tuple[int, bytes]] = []
        self._late_players: dict[int, Fingerprints] = {}

    def _send(self, ready: PendingRounds, rows: Ints | slice, read: PriorsRead) -> ports.Step[None]:
        part = self._estimate(ready, read.headers[rows])
        epochs = self._progress.epochs
        messages = schema.messages(part, *ready.by_shard, self._rows_per_part, epochs)
        first = messages[0][0]
        offsets = yield from ports.ask(
            ports.Scatter([each for each in messages if each[0] == first])
        )
        self._late += [each for each in messages if each[0] != first]
        no_seasons = dict.fromkeys(range(self._shards), 2**60)
        self._was_sent(ready, no_seasons | {first: max(offsets) + 1})
        for shard, players in estimation.fingerprints_by_shard(ready).items():
            if shard != first:
                self._progress._in_flight[shard].pop()
                late = self._late_players.get(shard, players[:0])
                self._late_players[shard] = np.concatenate([late, players])

    def _commit(self) -> ports.Step[None]:
        due = any(each._unfinished[0] in each._finished for each in self._inputs.values() if each)
        yield from super()._commit()
        if due and self._late:
            offsets = yield from ports.ask(ports.Scatter(self._late))
            ends = {shard: at + 1 for (shard, _), at in zip(self._late, offsets, strict=True)}
            self._progress.sent(ends, self._late_players)
            self._late, self._late_players = [], {}


@catches("unacknowledged", "all parts acknowledged first", Unacknowledged)
def part_overtaken_by_the_next_wave(stage: Stage) -> None:
    """A part of one wave is unsent when a later round of the other player in its round is sent."""
    _after_a_round_that_waits(stage)
    estimator, updater = stage.actors
    stage.round(A0, A1)
    stage.through(estimator, ports.Scatter)
    stage.through(updater, ports.Publish)
    stage.round(A0, B0)
    stage.through(estimator, ports.Scatter)
    stage.through(updater, ports.Publish)
    stage.crash(estimator)
    stage.workers()


def _after_a_round_that_waits(stage: Stage) -> None:
    """An estimator without a cache, and an updater of shards 0 and 1. Nothing can be committed,
    because the next round waits for shard 2, which has no updater yet."""
    stage.estimator_cache = 0
    stage.round(A2, B2)
    estimator = stage.estimator()
    stage.updater(0, 1)
    stage.through(estimator, ports.CommitSource)
    stage.round(A2, B2)


class ResumedNotPending(Estimator):
    """Step 5 without pending parts: players of a round that was sent before do not wait. This only
    fails if a zombie sends two rounds of one player after its successor has set its floors, without
    a commit, which would end it, between them, and the first round is half applied when the
    successor comes to it. None of 6,000 seeds does this."""

    def _resume(self, resumed: PendingRounds) -> ports.Step[None]:
        self._was_sent(resumed, dict.fromkeys(range(self._shards), 0))
        yield from ()


@catches("resumed-not-pending", "pending parts of a resumed round", ResumedNotPending)
def zombie_sends_on(stage: Stage) -> None:
    """While its successor sets floors, a zombie sends two rounds of one player. Only one part of
    the first round is applied when the successor finds that it was sent."""
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
    stage.through(successor, ports.Seek)
    stage.through(zombie, ports.Scatter)
    stage.through(updater, ports.Publish)
    stage.through(zombie, ports.Scatter)
    stage.through(updater, ports.Publish)
    stage.turns(successor)
    stage.crash(zombie)
    stage.updater()


class FirstPart(Estimator):
    """Step 6 that counts an oversize round as sent once its first piece is acknowledged."""

    def _rate_oversize(self) -> ports.Step[None]:
        oversize = self._oversize
        yield from super()._rate_oversize()
        if oversize is not None and oversize is self._oversize and oversize._sent == 1:
            super()._done_with(oversize.whole)

    def _done_with(self, pending: PendingRounds) -> None:
        if left := pending.take(np.flatnonzero(self._backlog.contains(pending.tickets))):
            super()._done_with(left)


@catches("first-piece", "all pieces of a large round first", FirstPart)
def next_round_between_the_parts_of_a_large_one(stage: Stage) -> None:
    """A round of three is sent in two pieces. A player of the second one has the next round."""
    stage.round(A0, A1, A2)
    stage.round(A2, B2)
    stage.turns(stage.estimator())
    stage.updater()


class CommitsMaximum(Estimator):
    """Step 7 with the largest finished offset instead of the contiguous prefix."""

    def _commit(self) -> ports.Step[None]:
        offsets: dict[int, int] = {}
        rejections: list[ports.Rejection] = []
        for partition, source in self._inputs.items():
            if source._finished:
                offsets[partition] = max(source._finished) + 1
                rejections += itertools.chain.from_iterable(source._rejections.values())
                source._unfinished.clear()
                source._finished.clear()
                source._rejections.clear()
        if offsets:
            yield from ports.ask(ports.CommitSource(offsets, rejections))


@catches("commits-maximum", "the contiguous prefix", CommitsMaximum)
def round_still_waiting_at_a_crash(stage: Stage) -> None:
    """A later round is finished while an earlier one waits; then the estimator dies."""
    _after_a_round_that_waits(stage)
    estimator, _ = stage.actors
    stage.round(A0, A1)
    stage.through(estimator, ports.Scatter)
    stage.turns(estimator)
    stage.crash(estimator)
    stage.workers()


class PlainCommits(UnkindDriver):
    """Step 7 that commits without a transaction if nothing is rejected, and so perhaps late."""

    commits_plainly = True

    def commit_source(
        self, offsets: Mapping[int, int], rejections: Sequence[ports.Rejection], tails: ports.Tails
    ) -> Steps:
        if rejections:
            yield from super().commit_source(offsets, rejections, tails)
            return
        generation = self._generation
        yield
        self._check(generation)
        self.group.committed.update(offsets)
        self.group.tails.update(tails)
        yield


@catches("plain-commits", "offsets in a transaction, too", PlainCommits)
def commit_that_comes_late(stage: Stage) -> None:
    """A commit times out, its sender commits a rejection, and then the first commit arrives."""
    stage.round(A0, B0)
    estimator, updater = stage.workers()
    stage.until(estimator, ports.CommitSource)
    estimator.advance()
    late = stage.fail(estimator)
    stage.turns(updater)
    stage.report(b'{"broken')
    stage.through(estimator, ports.CommitSource, rejections=True)
    late.arrive()
    stage.replace(estimator)


class RejectionsOutside(UnkindDriver):
    def commit_source(
        self, offsets: Mapping[int, int], rejections: Sequence[ports.Rejection], tails: ports.Tails
    ) -> Steps:
        if rejections:
            yield
            self.log.rejected.extend(rejections)
        yield from super().commit_source(offsets, (), tails)


@catches("rejections-outside", "rejections in the transaction", RejectionsOutside)
def crash_between_rejection_and_commit(stage: Stage) -> None:
    """A record is rejected, and the estimator dies within the commit."""
    first, _ = stage.rated(A0, B0)
    stage.report(b"no round")
    stage.until(first, ports.CommitSource)
    first.advance(2)
    stage.replace(first)


def finding(**values: object) -> type[UnkindDriver]:
    """A driver that finds these values when it looks for lost offsets."""

    def look_for_offsets(self: UnkindDriver, partitions: frozenset[int]) -> Steps:
        remains = yield from UnkindDriver.look_for_offsets(self, partitions)
        return replace(remains, **values)

    return altered(UnkindDriver, look_for_offsets=look_for_offsets)


@catches("offsets-forgotten", "offsets found again by rejections", finding(after_rejected={}))
def offsets_expire(stage: Stage) -> None:
    """All workers are gone for so long that Kafka deletes the estimators' offsets."""
    estimator, updater = stage.rated(A0, B0)
    stage.report(b"no round")
    stage.through(estimator, ports.CommitSource)
    stage.rates(estimator, updater, A0, B0)
    stage.crash(estimator)
    stage.log.estimators.committed.clear()
    stage.estimator()


@catches(
    "rejects-deleted-again", "no guess after rejections are gone", finding(rejections_deleted=False)
)  # fmt: skip
def offsets_and_rejections_expire(stage: Stage) -> None:
    """Kafka deletes offsets and rejections. A new worker ends; an operator commits the offset."""
    estimator, _ = stage.rated(A0, B0)
    stage.report(b"no round")
    stage.through(estimator, ports.CommitSource)
    stage.crash(estimator)
    committed = dict(stage.log.estimators.committed)
    stage.log.rejections_deleted = len(stage.log.rejected)
    stage.log.estimators.committed.clear()
    successor = stage.estimator()
    stage.turns(successor)
    if successor.ended:
        stage.log.estimators.committed |= committed
        stage.replace(successor)


@catches(
    "ids-in-memory", "duplicates by the W offsets before",
    altered(Estimator, _window_start=lambda _self, c, _log_start: c),
)  # fmt: skip
def duplicate_after_a_crash(stage: Stage) -> None:
    """A round is reported again after the estimator that rated it has died."""
    stage.round(A0, A1, round_id="once")
    first = stage.estimator()
    stage.updater()
    stage.through(first, ports.CommitSource)
    stage.crash(first)
    stage.round(A0, A1, round_id="once")
    stage.estimator()


class IdsInStore(Estimator):
    """Step 2 that records round ids in the store when it reads them, and keeps the first writer, as
    SET NX does: the second reader of an id finds a duplicate."""

    _readings = itertools.count()

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._admission._is_to_be_rated = self._is_to_be_rated  # type: ignore[method-assign]

    def _window_start(self, c: int, log_start: int) -> int:
        return c

    def _poll(self, timeout_s: float, *, no_fetch: bool) -> ports.Step[None]:
        polling = super()._poll(timeout_s, no_fetch=no_fetch)
        polled = yield from ports.ask(next(polling))
        self._second = set[tuple[int, int]]()
        for record in polled.records:
            source = self._inputs.get(record.partition)
            if source is not None and record.offset >= source._next_offset:
                yield from self._confirm(record)
        try:
            polling.send(polled)
        except StopIteration:
            return
        raise AssertionError("a poll is one effect")

    def _confirm(self, record: Record) -> ports.Step[None]:
        try:
            found = self._admission.decoder.read(record)
        except Invalid:
            return
        name, reading = f"{found.ladder}:{found.round_id}", (f"0:{next(self._readings)}",)
        confirmed = yield from ports.ask(ports.Agree({name: reading}))
        if confirmed[name] != reading:
            self._second.add((record.partition, record.offset))

    def _is_to_be_rated(self, record: Record, found: Round | Invalid, now_s: float) -> bool:
        counts = Admission._is_to_be_rated(self._admission, record, found, now_s)
        if not counts or (record.partition, record.offset) not in self._second:
            return counts
        twice = Invalid("duplicate-round", "recorded in the store")
        source = self._inputs[record.partition]
        source.reject(record, twice, record.offset)
        source.finish([record.offset])
        return False


@catches("ids-in-store", "no round ids in the store", IdsInStore)
def estimator_dies_before_it_sends(stage: Stage) -> None:
    """A round is read and not yet rated when the estimator dies; its successor reads it again."""
    stage.round(A0, A1)
    first = stage.estimator()
    stage.until(first, ports.Scatter)
    stage.crash(first)
    stage.workers()
