"""Step 1 to 7 with one rule left out at a time."""

from dataclasses import replace
from typing import Any

import numpy as np

from stream_rater.adapters.memory import Steps
from stream_rater.columns.arrays import Flags
from stream_rater.columns.player_map import Fingerprints
from stream_rater.columns.sharding import ANYWHERE
from stream_rater.config import Ladders
from stream_rater.pipeline import estimation
from stream_rater.pipeline.estimation import Cohort
from stream_rater.pipeline.estimator import Estimator
from stream_rater.pipeline.ports import (
    Agree,
    CommitSource,
    LookForOffsets,
    Priors,
    ReadPriors,
    Rejection,
    Scatter,
    ShardEnds,
    Step,
    ask,
)
from stream_rater.pipeline.progress import Ahead, Progress
from stream_rater.rating.model import Table

from .world import UnkindWorker


class MisplacedTaken(Estimator):
    """Step 2 without a look at where a round lies."""

    def __init__(self, ladders: Ladders, shards: int, partitions: int, **options: Any) -> None:
        super().__init__(ladders, shards, ANYWHERE, **options)


class NoFloor(Estimator):
    """Step 1 without the floor: priors count before a predecessor's parts are applied."""

    def _raise_floors(self) -> Step[None]:
        yield from ()


class ShardsUncounted(Estimator):
    """Step 1 without a look at how many shards there are now."""

    def _raise_floors(self) -> Step[None]:
        self._progress.take_over((yield from ask(ShardEnds()))[: self._shards])


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
        part = self._estimate(ready, priors)
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


class OffsetsForgotten(UnkindWorker):
    """Step 1 from the log's start where the group has no offset."""

    def _look_for_offsets(self, effect: LookForOffsets) -> Steps:
        told = yield from super()._look_for_offsets(effect)
        return replace(told, after_rejected={})


class ReadsDeletedAgain(UnkindWorker):
    """Step 1 by the last rejections though parts were deleted."""

    def _look_for_offsets(self, effect: LookForOffsets) -> Steps:
        told = yield from super()._look_for_offsets(effect)
        return replace(told, parts_deleted=False)


class PlainCommits(UnkindWorker):
    """Step 7 without a transaction where nothing is rejected. Kafka checks such a commit, which may
    come late, for its member and generation alone."""

    commits_plainly = True

    def _commit_source(self, effect: CommitSource) -> Steps:
        if effect.rejections:
            yield from super()._commit_source(effect)
            return
        generation = self._generation
        yield
        self._check(generation)
        self.group.committed.update(effect.offsets)
        yield


class RejectionsOutside(UnkindWorker):
    """Step 7 with rejections sent on their own, before the offsets are committed."""

    def _commit_source(self, effect: CommitSource) -> Steps:
        if effect.rejections:
            yield
            self.log.rejected.extend(effect.rejections)
        yield from super()._commit_source(CommitSource(effect.offsets))


class NotesReadOnce(UnkindWorker):
    """Step 3 with the ladders' notes as they were when the worker read them first."""

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self._agreed: dict[str, Any] = {}

    def _agree(self, effect: Agree) -> Steps:
        new = {each: own for each, own in effect.histories.items() if each not in self._agreed}
        self._agreed |= yield from super()._agree(Agree(new))
        return {ladder: self._agreed[ladder] for ladder in effect.histories}


class FilesNotCompared(Estimator):
    """Step 3 without a look at what was noted: each worker rates by its own ladders file."""

    def _agreed(self, wave: Cohort) -> Step[Cohort]:
        yield from ()
        return wave
