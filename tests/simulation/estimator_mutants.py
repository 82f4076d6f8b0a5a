"""Mutants of steps 1 to 7, each with one rule left out."""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any
from unittest.mock import patch

import numpy as np

from stream_rater.adapters.local_driver import Steps
from stream_rater.columns.arrays import Ints
from stream_rater.columns.player_column import PlayerColumn
from stream_rater.columns.player_map import Fingerprints
from stream_rater.columns.sharding import ANYWHERE
from stream_rater.columns.strings import StringColumn
from stream_rater.config.ladders import Ladders
from stream_rater.pipeline.estimator import estimation
from stream_rater.pipeline.estimator.admission import Agreement
from stream_rater.pipeline.estimator.belief_cache import CACHE_BYTES, BeliefCache
from stream_rater.pipeline.estimator.estimation import PendingRounds
from stream_rater.pipeline.estimator.estimator import Estimator
from stream_rater.pipeline.estimator.priors import PriorsRead
from stream_rater.pipeline.estimator.progress import LONGEST_IN_FLIGHT_S, InFlightWindow, Progress
from stream_rater.pipeline.observer import Observer
from stream_rater.pipeline.parts.schema import Part
from stream_rater.pipeline.ports import (
    NO_PLAYERS,
    CommitSource,
    Priors,
    Rejection,
    Scatter,
    ShardEnds,
    Step,
    Tails,
    ask,
)
from stream_rater.rating import record
from stream_rater.rating.model import NEVER, Beliefs

from .world import UnkindDriver


class MisplacedTaken(Estimator):
    """Step 2 without the check of a round's partition."""

    def __init__(self, ladders: Ladders, shards: int, partitions: int, **options: Any) -> None:
        super().__init__(ladders, shards, ANYWHERE, **options)


class NoFloor(Estimator):
    """Step 1 without the floor: priors count before a predecessor's parts are applied."""

    def _raise_floors(self) -> Step[None]:
        yield from ()


class ForeignPriors(Estimator):
    """Step 1 without the comparison of store and log."""

    def _raise_floors(self) -> Step[None]:
        self._progress.take_over((yield from ask(ShardEnds())))


class SourceNotCompared(Estimator):
    """Step 1 without the comparison of the records before c."""

    def _check_source(self, *_: object) -> Step[None]:
        yield from ()


class ShardsUncounted(Estimator):
    """Step 1 without the check of the number of shards."""

    def _raise_floors(self) -> Step[None]:
        self._progress.take_over((yield from ask(ShardEnds()))[: self._shards])


class FloorThatStays(Estimator):
    """Step 4 without raising the floor: a store that went back is trusted again."""

    class Progress(Progress):
        """Progress whose floors stay as step 1 set them."""

        def accept(self, shard: int, applied: int) -> bool:
            floor = self._floor[shard]
            accepted = super().accept(shard, applied)
            self._floor[shard] = floor
            return accepted

    def _forget_everything(self) -> None:
        super()._forget_everything()
        self._progress = self.Progress(self._shards)
        self._in_flight = InFlightWindow(self._progress)


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
            read[shard] = Priors(self.store.read_priors(shard, NO_PLAYERS).applied, each)
        return read


class CurrentPrior(Estimator):
    """Step 5 without the remembered prior: a round that is partly applied is estimated from
    itself."""

    def _read_wave(self, wave: PendingRounds) -> Step[PriorsRead]:
        read = yield from super()._read_wave(wave)
        for name in ("mu", "sigma", "time", "season"):
            read.headers[f"previous_{name}"] = read.headers[name]
        return read


class ResumedNotPending(Estimator):
    """Step 5 without pending parts: players of a round that was sent before do not wait.

    It fails only under two conditions. A zombie sends two rounds of one player after its successor
    has set its floors, and commits nothing in between, since a failed commit would end it. And the
    first round is half applied when the successor comes to it. None of 6,000 seeds does this: see
    `scenarios`.
    """

    def _resume(self, resumed: PendingRounds) -> Step[None]:
        self._was_sent(resumed, dict.fromkeys(range(self._shards), 0))
        yield from ()


class Unacknowledged(Estimator):
    """Step 6 without the acknowledgements: only the parts of a wave's first shard are waited for.
    The others are sent after the next commit."""

    def _forget_everything(self) -> None:
        super()._forget_everything()
        self._late: list[tuple[int, bytes]] = []
        self._late_players: dict[int, Fingerprints] = {}

    def _send(self, ready: PendingRounds, rows: Ints | slice, read: PriorsRead) -> Step[None]:
        part = self._estimate(ready, read.headers[rows])
        messages = estimation.messages(part, ready, self._rows_per_part)
        first = messages[0][0]
        offsets = yield from ask(Scatter([each for each in messages if each[0] == first]))
        self._late += [each for each in messages if each[0] != first]
        no_seasons = dict.fromkeys(range(self._shards), 2**60)
        self._was_sent(ready, no_seasons | {first: max(offsets) + 1})
        for shard, players in estimation.fingerprints_by_shard(ready).items():
            if shard != first:
                self._progress._in_flight[shard].pop()
                late = self._late_players.get(shard, players[:0])
                self._late_players[shard] = np.concatenate([late, players])

    def _commit(self) -> Step[None]:
        due = any(each._unfinished[0] in each._finished for each in self._inputs.values() if each)
        yield from super()._commit()
        if due and self._late:
            offsets = yield from ask(Scatter(self._late))
            ends = {shard: at + 1 for (shard, _), at in zip(self._late, offsets, strict=True)}
            self._progress.sent(ends, self._late_players)
            self._late, self._late_players = [], {}


class NoCapAShard(Estimator):
    """Step 6 that bounds the rows in flight of all shards together, and not those of each."""

    def _forget_everything(self) -> None:
        super()._forget_everything()
        self._progress = Progress(self._shards, most_rows=2**60)
        self._in_flight = InFlightWindow(self._progress, LONGEST_IN_FLIGHT_S)

    def _is_sending_paused(self) -> bool:
        return self._progress.rows > self._rows_in_flight or super()._is_sending_paused()


class CachedAfterLoss(Estimator):
    """Step 6 that keeps cached beliefs when partitions are lost or gained."""

    def _drop(self, partitions: frozenset[int]) -> None:
        with patch.object(self._belief_cache, "clear"):
            super()._drop(partitions)


class CachedThroughCorrection(Estimator):
    """Step 6 that keeps cached beliefs from before a correction."""

    def _drop_cached(self, ladder: str, players: Fingerprints | None) -> None:
        if players is not None:
            super()._drop_cached(ladder, players)


class CachedThroughSeed(Estimator):
    """Step 6 that keeps cached beliefs from before a seed or a reset."""

    def _drop_cached(self, ladder: str, players: Fingerprints | None) -> None:
        if players is None:
            super()._drop_cached(ladder, players)


class CachedThroughResume(Estimator):
    """Step 6 that keeps cached beliefs from before a round that was found to be sent."""

    def _resume(self, resumed: PendingRounds) -> Step[None]:
        with patch.object(self._belief_cache, "drop"):
            yield from super()._resume(resumed)


class CachedBeforeAcknowledged(Unacknowledged):
    """Step 6 that caches beliefs once the parts of the first shard are acknowledged."""

    def _send(self, ready: PendingRounds, rows: Ints | slice, read: PriorsRead) -> Step[None]:
        yield from super()._send(ready, rows, read)
        part = self._estimate(ready, read.headers[rows])
        self._cache_beliefs(ready, part, read.beliefs_at(rows))


class EvictedNotPending(Estimator):
    """Step 6 that forgets the pending part of a player together with the cached belief."""

    def _cache_beliefs(self, sent: PendingRounds, part: Part, beliefs: Beliefs | None) -> None:
        super()._cache_beliefs(sent, part, beliefs)
        for parts in self._progress._in_flight:
            for end, players in parts:
                gone = players[~self._belief_cache.may_contain(players)]
                self._progress._pending.forget(gone, np.full(len(gone), end))


class DrawnInPlace(Estimator):
    """Step 6 whose stage 1 draws the beliefs that stage 2 begins with."""

    def _read_wave(self, wave: PendingRounds) -> Step[PriorsRead]:
        read = yield from super()._read_wave(wave)
        return read if read.beliefs is None else read._replace(headers=read.beliefs.header)


class UpdatedTwice(Estimator):
    """Step 6 that applies a round to a belief that already includes it."""

    def _cache_beliefs(self, sent: PendingRounds, part: Part, beliefs: Beliefs | None) -> None:
        if beliefs is not None:
            beliefs.header["last"] = NEVER
        super()._cache_beliefs(sent, part, beliefs)


class CachedByFingerprint(Estimator):
    """Step 6 that takes a fingerprint for the player."""

    class BeliefCache(BeliefCache):
        """A cache that does not know ids."""

        def _names(self, pending: PendingRounds) -> StringColumn:
            return StringColumn.of_bytes([b""] * pending.count)

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._belief_cache = self.BeliefCache(options.get("cache_bytes", CACHE_BYTES))


class TableTakenOver(Estimator):
    """Step 6 with one cache for all estimators, which a successor takes over."""

    class BeliefCache(BeliefCache):
        """A cache that is not dropped as a whole."""

        def clear(self) -> None:
            pass

    shared: BeliefCache | None = None

    def _forget_everything(self) -> None:
        kind = type(self)
        if kind.shared is None:
            kind.shared = self.BeliefCache(CACHE_BYTES)
        self._belief_cache = kind.shared
        super()._forget_everything()


class CachedFromBefore(Estimator):
    """Step 6 that keeps a cached belief from before a round after which none is cached."""

    def _done_with(self, pending: PendingRounds) -> None:
        with patch.object(self._belief_cache, "drop"):
            super()._done_with(pending)


class CachedWithoutTheRound(Estimator):
    """Step 6 that caches beliefs as they were read."""

    def _cache_beliefs(self, sent: PendingRounds, part: Part, beliefs: Beliefs | None) -> None:
        if beliefs is not None:
            data, starts = record.encode_all(beliefs)
            self._belief_cache.put(sent, StringColumn(data, starts[:-1], starts[1:]))


class FirstPart(Estimator):
    """Step 6 that counts an oversize round as sent once its first piece is acknowledged."""

    def _rate_oversize(self) -> Step[None]:
        oversize = self._oversize
        yield from super()._rate_oversize()
        if oversize is not None and oversize is self._oversize and oversize._sent == 1:
            super()._done_with(oversize.whole)

    def _done_with(self, pending: PendingRounds) -> None:
        if left := pending.take(np.flatnonzero(self._backlog.contains(pending.tickets))):
            super()._done_with(left)


class CommitsMaximum(Estimator):
    """Step 7 with the largest finished offset instead of the contiguous prefix."""

    def _commit(self) -> Step[None]:
        offsets: dict[int, int] = {}
        rejections: list[Rejection] = []
        for partition, source in self._inputs.items():
            if source._finished:
                offsets[partition] = max(source._finished) + 1
                rejections += itertools.chain.from_iterable(source._rejections.values())
                source._unfinished.clear()
                source._finished.clear()
                source._rejections.clear()
        if offsets:
            yield from ask(CommitSource(offsets, rejections))


class OffsetsForgotten(UnkindDriver):
    """Step 1 that starts at the log's start if the group has no offset."""

    def look_for_offsets(self, partitions: frozenset[int]) -> Steps:
        remains = yield from super().look_for_offsets(partitions)
        return replace(remains, after_rejected={})


class FoundByTheRecord(UnkindDriver):
    """Step 1 that starts after the last rejected record, though a later one was committed with
    it."""

    def look_for_offsets(self, partitions: frozenset[int]) -> Steps:
        remains = yield from super().look_for_offsets(partitions)
        places = sorted((each.record.partition, each.record.offset) for each in self.log.rejected)
        after = {partition: offset + 1 for partition, offset in places if partition in partitions}
        return replace(remains, after_rejected=after)


class RejectsDeletedAgain(UnkindDriver):
    """Step 1 that uses the last rejections that are left."""

    def look_for_offsets(self, partitions: frozenset[int]) -> Steps:
        remains = yield from super().look_for_offsets(partitions)
        return replace(remains, rejections_deleted=False)


class ReadsDeletedAgain(UnkindDriver):
    """Step 1 that uses the last rejections even if parts were deleted."""

    def look_for_offsets(self, partitions: frozenset[int]) -> Steps:
        remains = yield from super().look_for_offsets(partitions)
        return replace(remains, parts_deleted=False)


class PlainCommits(UnkindDriver):
    """Step 7 that commits without a transaction if nothing is rejected. Kafka checks only the
    member and the generation of such a commit, which may arrive late."""

    commits_plainly = True

    def commit_source(
        self, offsets: Mapping[int, int], rejections: Sequence[Rejection], tails: Tails
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


class RejectionsOutside(UnkindDriver):
    """Step 7 that sends rejections before the offsets are committed, outside the transaction."""

    def commit_source(
        self, offsets: Mapping[int, int], rejections: Sequence[Rejection], tails: Tails
    ) -> Steps:
        if rejections:
            yield
            self.log.rejected.extend(rejections)
        yield from super().commit_source(offsets, (), tails)


class LadderEventsReadOnce(UnkindDriver):
    """Step 3 with the ladders' notes as the worker first read them."""

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self._keep_agreed: dict[str, Any] = {}

    def agree(self, histories: Mapping[str, Sequence[str]]) -> Steps:
        new = {each: own for each, own in histories.items() if each not in self._keep_agreed}
        self._keep_agreed |= yield from super().agree(new)
        return {ladder: self._keep_agreed[ladder] for ladder in histories}


class FilesNotCompared(Estimator):
    """Step 3 without a comparison with the notes: each worker rates by its own ladders file."""

    class Agreement(Agreement):
        """An agreement that finds nothing to compare."""

        def agreed(
            self, wave: PendingRounds, until_s: float, observer: Observer
        ) -> Step[PendingRounds]:
            yield from ()
            return wave

    def __init__(self, ladders: Ladders, *arguments: Any, **options: Any) -> None:
        super().__init__(ladders, *arguments, **options)
        self._agreement = self.Agreement(ladders)
