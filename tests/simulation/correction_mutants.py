"""Mutants of corrections, each with one rule left out."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from stream_rater.adapters.local_driver import Steps
from stream_rater.contract.errors import StoreTrouble
from stream_rater.pipeline.corrections.correction_job import CorrectionJob
from stream_rater.pipeline.corrections.correction_ports import (
    CorrectionsByLadder,
    RecordedCorrection,
)
from stream_rater.pipeline.corrections.corrections import Corrections, Queued
from stream_rater.pipeline.corrections.edits_in_force import LadderEdits
from stream_rater.pipeline.estimator.estimation import PendingRounds
from stream_rater.pipeline.estimator.estimator import Estimator
from stream_rater.pipeline.estimator.input_partition import InputPartition
from stream_rater.pipeline.estimator.priors import PriorsRead
from stream_rater.pipeline.estimator.progress import InFlightWindow
from stream_rater.pipeline.observer import Observer
from stream_rater.pipeline.ports import Step, StoredShard
from stream_rater.pipeline.updater.changes import Change
from stream_rater.pipeline.updater.shard import ShardBatch
from stream_rater.pipeline.updater.updater import Updater
from stream_rater.replay.checkpoint import Head, RecordPlace
from stream_rater.replay.edits import NO_EDITS, Edits
from stream_rater.replay.entry_edits import EntryEdits

from .world import UnkindDriver


class EditsForgotten(UnkindDriver):
    """Takes over a partition without the notes of its corrections."""

    def noted_corrections(self) -> Steps:
        yield
        return {}


class EditsUnrecorded(UnkindDriver):
    """Applies corrections and does not note them."""

    def note_corrections(self, _: CorrectionsByLadder) -> Steps:
        yield


class CorrectedTwice(Updater):
    """Applies each correction part, fresh or not."""

    def _compute(self, batch: ShardBatch, stored: Mapping[int, StoredShard]) -> dict[int, Change]:
        if batch.correction is not None:
            stored = {s: _blind(each) for s, each in stored.items() if s in batch.parts}
        return super()._compute(batch, stored)


def _blind(stored: StoredShard) -> StoredShard:
    records = [None if each is None else _never_rated(each) for each in stored.records]
    return StoredShard(stored.position, records)


def _never_rated(record: bytes) -> bytes:
    """The belief, with a last round before any correction."""
    return record[:6] + bytes(5) + record[11:]


class LaterRoundPasses(Corrections):
    """Rates rounds of a ladder while a correction before them waits."""

    def admit(self, pending: PendingRounds) -> tuple[PendingRounds, PendingRounds]:
        deferred, self._deferred = self._deferred, {}
        found = super().admit(pending)
        self._deferred = deferred
        return found


class CorrectsTooEarly(Corrections):
    """Applies a correction while earlier rounds wait."""

    def due(self, inputs: Mapping[int, InputPartition]) -> list[Queued]:
        return [queue[0] for queue in self._queues.values() if queue]


class RemovedPlayerRated(Corrections):
    """Rates later rounds as they were reported."""

    def edits_of(self, ladder: str, offset: int) -> Edits:
        return NO_EDITS


class OldNameKept(Corrections):
    """Rates a merged player's later rounds under the old name."""

    def edits_of(self, ladder: str, offset: int) -> Edits:
        edits, found = super().edits_of(ladder, offset), EntryEdits()
        for name, edit in edits.entries.items():
            for span in edit.removed if edit.player == name else ():
                found.remove(name, span)
        return Edits(found.now(), edits.voided, edits.amended, edits.seasons)


class BatchForgotten(Corrections):
    """Counts a batch as applied as soon as it is recorded."""

    def load(self, recorded: CorrectionsByLadder) -> None:
        self._edits = {ladder: _Forgetful(some) for ladder, some in recorded.items()}


class _Forgetful(LadderEdits):
    """Edits without the corrections that have waited."""

    def waiting(self, before: int) -> list[RecordedCorrection]:
        gone = [each for some in self._applied.values() for each in some]
        return [each for each in super().waiting(before) if each not in gone]


class CorrectedNotPending(Corrections):
    """Does not record the correction's parts as pending."""

    def work_on(
        self,
        queued: Queued,
        in_flight: InFlightWindow,
        now_s: float,
        observer: Observer,
    ) -> Step[bool]:
        return (yield from super().work_on(queued, _Nowhere(), now_s, observer))


class _Nowhere(InFlightWindow):
    """Notes nothing."""

    def __init__(self) -> None:
        pass

    def sent(self, *_: Any) -> None:
        pass


class UnannouncedUnrecorded(Updater):
    """Step 13 without the last published values of unannounced beliefs."""

    def _compute(self, batch: ShardBatch, stored: Mapping[int, StoredShard]) -> dict[int, Change]:
        found = super()._compute(batch, stored)
        return {shard: _without_notes(change) for shard, change in found.items()}


def _without_notes(change: Change) -> Change:
    bits = change.position.fresh[: (change.rows + 7) // 8]
    return replace(change, position=replace(change.position, fresh=bits))


class SeasonTwice(Estimator):
    """Step 5 without the season before: the seasons are not applied to a remembered prior."""

    def _read_wave(self, wave: PendingRounds) -> Step[PriorsRead]:
        read = yield from super()._read_wave(wave)
        read.headers["previous_season"] = read.headers["season"]
        return read


class CheckpointAfterAnEdit(CorrectionJob):
    """Begins at a checkpoint although a correction that it lacks changes an earlier round."""

    def _places_in(self, head: Head) -> set[RecordPlace]:
        return {each.place for each in self._accepted_before}


class CheckpointMustBeKept(UnkindDriver):
    """Starts the work on a correction again if its checkpoint is not stored."""

    def _unkept(self, outcome: object) -> Steps:
        yield from super()._unkept(outcome)
        raise StoreTrouble("OOM command not allowed when used memory > 'maxmemory'")


class CheckpointWithoutWindow(CorrectionJob):
    """Does not read the round ids before a checkpoint again."""

    @property
    def _rounds_from(self) -> int:
        head = self._starting_point.head
        return 0 if head is None else head.last[0]
