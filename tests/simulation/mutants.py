"""The protocol with one rule left out at a time: the simulator must find each of these wrong."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from stream_rater.adapters.memory import Steps
from stream_rater.lab.reach import Reach
from stream_rater.pipeline import estimation
from stream_rater.pipeline.changes import Change
from stream_rater.pipeline.estimation import Cohort
from stream_rater.pipeline.estimator import Estimator
from stream_rater.pipeline.marks import Fingerprints, Flags
from stream_rater.pipeline.ports import (
    REGROUPING_S,
    Apply,
    CommitSource,
    Committed,
    Held,
    NewProducer,
    Priors,
    Publish,
    ReadPriors,
    Record,
    Rejection,
    Scatter,
    Step,
    ask,
)
from stream_rater.pipeline.progress import Ahead, Progress
from stream_rater.pipeline.rows import rows_of
from stream_rater.pipeline.shard import Batch, Item, Shard
from stream_rater.pipeline.slab import Piece
from stream_rater.pipeline.updater import Updater
from stream_rater.rating.model import Ints, Table
from stream_rater.rating.record import HEADER_SIZE, read_headers

from .actors import Machines
from .ids import IdsInMemory, IdsInStore
from .world import UnkindWorker

# --- the estimator's rules ------------------------------------------------------------------------


class NoFloor(Estimator):
    """Step 1 without the floor: priors count before a predecessor's parts are applied."""

    def _raise_floors(self) -> Step[None]:
        yield from ()


class FloorThatStays(Estimator):
    """Step 4 without the raise: a store that went back is believed again."""

    class Progress(Progress):
        """Progress whose floors are those of step 1."""

        def accept(self, shard: int, applied: int) -> bool:
            floor = self._floor[shard]
            accepted = super().accept(shard, applied)
            self._floor[shard] = floor
            return accepted

    def _forget_everything(self) -> None:
        super()._forget_everything()
        self._progress = self.Progress(self._shards)
        self._ahead = Ahead(self._progress)


class PriorsReadApart(UnkindWorker):
    """Step 4 in two calls: the priors first, then `applied`."""

    def _read_priors(self, effect: ReadPriors) -> Steps:
        headers = {}
        for shard, players in effect.players.items():
            yield
            headers[shard] = self.store.read_priors(shard, players).headers
        read = {}
        for shard in effect.players:
            yield
            read[shard] = Priors(self.store.read_priors(shard, ()).applied, headers[shard])
        return read


class CurrentPrior(Estimator):
    """Step 5 without the remembered prior: a round half applied is estimated from itself."""

    def _read_priors(self, cohort: Cohort) -> Step[tuple[Table, Flags]]:
        headers, accepted = yield from super()._read_priors(cohort)
        for name in ("mu", "sigma", "time"):
            headers[f"previous_{name}"] = headers[name]
        return headers, accepted


class ResumedNotAwaited(Estimator):
    """Step 5 without the await: a round found scattered holds nobody up.

    It takes a zombie that scatters two rounds of one player after its successor has set its floors,
    and commits nothing in between, or it would hear that it is one; half of the first must be
    applied when the successor comes to it. None in 6,000 seeds does this: see `scenarios`.
    """

    def _resume(self, resumed: Cohort) -> Step[None]:
        self._finish(resumed, dict.fromkeys(range(self._shards), 0))
        yield from ()


class Unacknowledged(Estimator):
    """Step 6 without waiting: only the parts of a wave's first shard are waited for; the others are
    sent after the next commit."""

    def _forget_everything(self) -> None:
        super()._forget_everything()
        self._late: list[tuple[int, bytes]] = []
        self._late_players: dict[int, Fingerprints] = {}

    def _scatter(self, ready: Cohort, priors: Table) -> Step[None]:
        part = estimation.estimate(ready, priors, self._intake.ratings)
        messages = estimation.messages(part, ready, self._rows_per_part)
        first = messages[0][0]
        offsets = yield from ask(Scatter([each for each in messages if each[0] == first]))
        self._late += [each for each in messages if each[0] != first]
        never = dict.fromkeys(range(self._shards), 2**60)
        self._finish(ready, never | {first: max(offsets) + 1})
        for shard, players in estimation.by_shard(ready).items():
            if shard != first:
                self._progress._in_flight[shard].pop()
                late = self._late_players.get(shard, players[:0])
                self._late_players[shard] = np.concatenate([late, players])

    def _commit(self) -> Step[None]:
        due = any(each._unfinished[0] in each._finished for each in self._sources.values() if each)
        yield from super()._commit()
        if due and self._late:
            offsets = yield from ask(Scatter(self._late))
            ends = {shard: at + 1 for (shard, _), at in zip(self._late, offsets, strict=True)}
            self._progress.sent(ends, self._late_players)
            self._late, self._late_players = [], {}


class FirstPiece(Estimator):
    """Step 6 for a round larger than a wave: it counts as scattered once its first piece is
    acknowledged; the others follow."""

    def _rate_large(self) -> Step[None]:
        large = self._large
        yield from super()._rate_large()
        if large is not None and large is self._large and large._sent == 1:
            super()._close(large.whole)

    def _close(self, cohort: Cohort) -> None:
        if left := cohort.those(self._backlog.have(cohort.tickets)):
            super()._close(left)


class CommitsMaximum(Estimator):
    """Step 7 with the largest finished offset instead of the contiguous prefix."""

    def _commit(self) -> Step[None]:
        offsets: dict[int, int] = {}
        rejections: list[Rejection] = []
        for partition, source in self._sources.items():
            if source._finished:
                offsets[partition] = max(source._finished) + 1
                rejections += source._rejections.values()
                source._unfinished.clear()
                source._finished.clear()
                source._rejections.clear()
        if offsets:
            yield from ask(CommitSource(offsets, rejections))


class RejectionsOutside(UnkindWorker):
    """Step 7 with rejections sent on their own, before the offsets are committed."""

    def _commit_source(self, effect: CommitSource) -> Steps:
        if effect.rejections:
            yield
            self.log.rejected.extend(effect.rejections)
        yield from super()._commit_source(CommitSource(effect.offsets))


class FilesNotCompared(Estimator):
    """Step 3 without a look at what was noted: each worker rates by its own ladders file."""

    def _agreed(self, wave: Cohort) -> Step[Cohort]:
        yield from ()
        return wave


# --- the updater's rules --------------------------------------------------------------------------


class NoCut(Updater):
    """Step 12 without the cut: a batch may hold a player twice."""

    def _cut(self, shard: Shard) -> Batch | None:
        limit = shard.committed if shard.replaying else shard.next_offset
        items: list[Item] = []
        while not shard.unsettled and shard.queue and shard.queue[0].offset < limit:
            items.append(shard.queue.popleft())
        return Batch(items[-1].offset + 1, items) if items else None


class AppliesBeforeSettling(Updater):
    """Step 11 left out: what follows [c, a) is applied and committed first."""

    def _settle(self) -> Step[None]:
        for shard in self._shards.values():
            if shard.last_call() is not None:
                shard.committed = shard.applied
        yield from ()


class PublishesReplays(Updater):
    """Step 10 left out: what the store lost is applied and published like anything new."""

    def _settle(self) -> Step[None]:
        for shard in self._shards.values():
            if shard.replaying:
                shard.committed = shard.applied
        yield from super()._settle()


class RememberedOffset(Updater):
    """Step 8 with the offset last known to be committed, instead of the group's."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._known: dict[int, int] = {}

    def _start_over(self, troubles: int) -> Step[None]:
        self._known |= {number: shard.committed for number, shard in self._shards.items()}
        yield from super()._start_over(troubles)

    def _committed(self, shards: frozenset[int]) -> Step[Mapping[int, int | None]]:
        fetched = yield from super()._committed(shards)
        return {s: self._known.pop(s, fetched[s]) for s in shards}


class RecallsByOffset(Updater):
    """Step 11 with events for rows whose offset is the belief's last, instead of fresh rows."""

    def _recall(self, number: int, call: Batch, held: Held) -> Change | None:
        shard = self._shards[number]
        if held.position == shard.position:
            last = read_headers(b"".join(r[:HEADER_SIZE] for r in held.records if r))["last"]
            fresh = np.packbits(rows_of(call.parts).offset == last).tobytes()
            shard.position = replace(shard.position, fresh=fresh)
            held = Held(shard.position, held.records)
        return super()._recall(number, call, held)


class MarksOverlooked(Updater):
    """Step 9 without the marks: what was lost after a rebuild is replayed from before it."""

    def _read(self, record: Record, piece: Piece | None) -> None:
        if record.partition in self._shards:
            self._shards[record.partition].rebuilt = 2**60
        super()._read(record, piece)


class PublishesWhatWasLost(Updater):
    """Step 14 without a look at what is still ours, where the group changed before the commit."""

    def _poll(self, timeout_s: float, *, full: bool, gather_s: float = 0.0) -> Step[None]:
        before = dict(self._shards)
        yield from super()._poll(timeout_s, full=full, gather_s=gather_s)
        if timeout_s == REGROUPING_S:
            self._shards = before


class UnstableOffset(UnkindWorker):
    """Step 8 with offsets fetched while a transaction is pending on them."""

    def _committed(self, effect: Committed) -> Steps:
        yield
        return {p: self.group.committed.get(p) for p in effect.partitions}


class NoCompareAndSet(UnkindWorker):
    """Step 13 without the comparison: any writer's call is carried out, however late."""

    def _apply(self, effect: Apply) -> Steps:
        done = {}
        for shard, application in effect.applications.items():
            yield
            _, beliefs = self.store.state(shard)
            self.store.put(shard, (application.position, beliefs | dict(application.beliefs)))
            done[shard] = True
        return done


class PublishesWhatWentAhead(UnkindWorker):
    """Step 14 with all that the log took in during step 13, of shards that refused it, too."""

    def _publish(self, effect: Publish) -> Steps:
        if self._ahead is not None:
            self._ahead = effect.events
        yield from super()._publish(effect)


class KeptProducer(UnkindWorker):
    """Step 14 with the same producer after an end in doubt: a late end hits what follows."""

    def _new_producer(self, effect: NewProducer) -> Steps:
        if self.producer in self.log._fenced:
            yield from super()._new_producer(effect)
        else:
            yield
            self.log.abort(self.group, self.producer)


# --- rebuild's rules ------------------------------------------------------------------------------


class ReachesTheEnd(Reach):
    """Rounds count though their parts are not applied, or not sent."""

    def of(self, rows: Ints, partitions: Ints) -> Ints:
        return np.full(len(rows), 2**60)


class ReachesTheCommit(Reach):
    """Rounds count up to the estimators' committed offset, whatever parts there are."""

    def of(self, rows: Ints, partitions: Ints) -> Ints:
        return self._scattered[partitions] - 1


class ReachesWhatWasApplied(Reach):
    """Players without parts that are kept count as new."""

    def of(self, rows: Ints, partitions: Ints) -> Ints:
        return self._before.of(rows)


@dataclass(frozen=True)
class Mutant:
    """A rule left out."""

    rule: str
    machines: Machines


MUTANTS = {
    # the thirteen of the design's model, in its order
    "no-floor": Mutant("step 1's floor", Machines(estimator=NoFloor)),
    "floor-that-stays": Mutant("the floor's later raise", Machines(estimator=FloorThatStays)),
    "priors-read-apart": Mutant("prior and applied in one call", Machines(worker=PriorsReadApart)),
    "unacknowledged": Mutant("all parts acknowledged first", Machines(estimator=Unacknowledged)),
    "no-cut": Mutant("the cut before a repeated player", Machines(updater=NoCut)),
    "applies-before-settling": Mutant(
        "settling [c, a) first", Machines(updater=AppliesBeforeSettling)
    ),
    "remembered-offset": Mutant("the group's offset, fetched", Machines(updater=RememberedOffset)),
    "kept-producer": Mutant("a new producer after a doubt", Machines(worker=KeptProducer)),
    "unstable-offset": Mutant("stable offsets only", Machines(worker=UnstableOffset)),
    "rejections-outside": Mutant(
        "rejections in the transaction", Machines(worker=RejectionsOutside)
    ),
    "ids-in-store": Mutant("no round ids in the store", Machines(estimator=IdsInStore)),
    "recalls-by-offset": Mutant("events by fresh rows", Machines(updater=RecallsByOffset)),
    "commits-maximum": Mutant("the contiguous prefix", Machines(estimator=CommitsMaximum)),
    # and more
    "first-piece": Mutant("all pieces of a large round first", Machines(estimator=FirstPiece)),
    "ids-in-memory": Mutant("duplicates by the W offsets before", Machines(estimator=IdsInMemory)),
    "current-prior": Mutant("the remembered prior", Machines(estimator=CurrentPrior)),
    "resumed-not-awaited": Mutant("a resumed round awaited", Machines(estimator=ResumedNotAwaited)),
    "files-not-compared": Mutant("ladders files compared", Machines(estimator=FilesNotCompared)),
    "publishes-replays": Mutant("[a, c) without events", Machines(updater=PublishesReplays)),
    "publishes-what-was-lost": Mutant(
        "only of shards still owned", Machines(updater=PublishesWhatWasLost)
    ),
    "publishes-what-went-ahead": Mutant(
        "only what was applied", Machines(worker=PublishesWhatWentAhead)
    ),
    "marks-overlooked": Mutant("the marks of rebuilds", Machines(updater=MarksOverlooked)),
    "no-compare-and-set": Mutant("compare-and-set on applied", Machines(worker=NoCompareAndSet)),
    "reaches-the-end": Mutant("rebuild up to what was applied", Machines(reach=ReachesTheEnd)),
    "reaches-the-commit": Mutant("rebuild by parts first", Machines(reach=ReachesTheCommit)),
    "reaches-what-was-applied": Mutant(
        "rebuild of whose parts are gone", Machines(reach=ReachesWhatWasApplied)
    ),
}
