"""Mutants of corrections, each with one rule left out."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from stream_rater.adapters.memory import Steps
from stream_rater.contract.errors import StoreTrouble
from stream_rater.pipeline.corrections.correction_job import CorrectionJob
from stream_rater.pipeline.corrections.correction_ports import (
    Noted,
    NotedCorrection,
)
from stream_rater.pipeline.corrections.correction_work import QueuedCorrection, Work
from stream_rater.pipeline.corrections.corrections import Corrections
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
from stream_rater.replay.checkpoint import Head, Place
from stream_rater.replay.edits import NO_EDITS, Edits
from stream_rater.replay.entry_edits import EntryEdits

from .world import UnkindWorker


class EditsForgotten(UnkindWorker):
    """Takes over a partition without the notes of its corrections."""

    def noted_corrections(self) -> Steps:
        yield
        return {}


class EditsUnnoted(UnkindWorker):
    """Works corrections in and does not note them."""

    def note_corrections(self, _: Noted) -> Steps:
        yield


class CorrectedTwice(Updater):
    """Applies each correction part, whatever the beliefs have seen."""

    def _compute(self, batch: ShardBatch, stored: Mapping[int, StoredShard]) -> dict[int, Change]:
        if batch.correction is not None:
            stored = {s: _blind(each) for s, each in stored.items() if s in batch.parts}
        return super()._compute(batch, stored)


def _blind(stored: StoredShard) -> StoredShard:
    records = [None if each is None else _never_rated(each) for each in stored.records]
    return StoredShard(stored.position, records)


def _never_rated(record: bytes) -> bytes:
    """The belief, as if its last round had been before any correction."""
    return record[:6] + bytes(5) + record[11:]


class _Kind(Estimator):
    """An estimator with other rules about corrections."""

    kind: type[Corrections]

    def _forget_everything(self) -> None:
        super()._forget_everything()
        of = self._admission
        of.corrections = self.kind(of._log, of._options)


class LaterRoundPasses(_Kind):
    """Rates rounds of a ladder while a correction before them waits."""

    class kind(Corrections):  # noqa: N801
        """Corrections for which nobody waits."""

        def admit(self, pending: PendingRounds) -> tuple[PendingRounds, PendingRounds]:
            deferred, self._deferred = self._deferred, {}
            found = super().admit(pending)
            self._deferred = deferred
            return found


class CorrectsTooEarly(_Kind):
    """Works a correction in while earlier rounds wait."""

    class kind(Corrections):  # noqa: N801
        """Corrections that are always due."""

        def due(self, inputs: Mapping[int, InputPartition]) -> list[QueuedCorrection]:
            return [queue[0] for queue in self._queues.values() if queue]


class RemovedPlayerRated(_Kind):
    """Rates later rounds as they were reported."""

    class kind(Corrections):  # noqa: N801
        """Corrections without edits of later rounds."""

        def edits_of(self, ladder: str, offset: int) -> Edits:
            return NO_EDITS


class OldNameKept(_Kind):
    """Rates a merged player's later rounds under the old name."""

    class kind(Corrections):  # noqa: N801
        """Corrections whose merged players keep their names."""

        def edits_of(self, ladder: str, offset: int) -> Edits:
            edits, found = super().edits_of(ladder, offset), EntryEdits()
            for name, edit in edits.entries.items():
                for span in edit.removed if edit.player == name else ():
                    found.remove(name, span)
            return Edits(found.now(), edits.voided, edits.amended, edits.seasons)


class BatchForgotten(_Kind):
    """Takes a batch for worked in as soon as that is noted."""

    class kind(Corrections):  # noqa: N801
        """Corrections that wait until `corrections-applied` is noted."""

        def noted(self, noted: Noted) -> None:
            self._edits = {ladder: _Forgetful(some) for ladder, some in noted.items()}


class _Forgetful(LadderEdits):
    """Edits without the corrections that have waited."""

    def waiting(self, before: int) -> list[NotedCorrection]:
        gone = [each for some in self._applied.values() for each in some]
        return [each for each in super().waiting(before) if each not in gone]


class CorrectedNotAwaited(_Kind):
    """Does not let corrected players await their parts."""

    class kind(Corrections):  # noqa: N801
        """Corrections whose parts are not in flight."""

        def work_on(
            self,
            queued: QueuedCorrection,
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


class UntoldUnnoted(Updater):
    """Step 13 without what was last told before rows of untold beliefs."""

    def _compute(self, batch: ShardBatch, stored: Mapping[int, StoredShard]) -> dict[int, Change]:
        found = super()._compute(batch, stored)
        return {shard: _without_notes(change) for shard, change in found.items()}


def _without_notes(change: Change) -> Change:
    bits = change.position.fresh[: (change.rows + 7) // 8]
    return replace(change, position=replace(change.position, fresh=bits))


class SeasonTwice(Estimator):
    """Step 5 without the season before: a remembered prior counts as drawn already."""

    def _read_wave(self, wave: PendingRounds) -> Step[PriorsRead]:
        read = yield from super()._read_wave(wave)
        read.headers["previous_season"] = read.headers["season"]
        return read


class CheckpointAfterAnEdit(_Kind):
    """Begins at a checkpoint though a correction that it does not know is of an earlier round."""

    class kind(Corrections):  # noqa: N801
        """Corrections with this work."""

        class work_kind(Work):  # noqa: N801
            """Work with this job."""

            class job_kind(CorrectionJob):  # noqa: N801
                """A job that takes every correction of before for one that the checkpoint knows."""

                def _known_at(self, head: Head) -> set[Place]:
                    return {each.place for each in self._before}


class CheckpointMustBeKept(UnkindWorker):
    """Lets the work on a correction begin anew if its checkpoint is not kept."""

    def _unkept(self, outcome: object) -> Steps:
        yield from super()._unkept(outcome)
        raise StoreTrouble("OOM command not allowed when used memory > 'maxmemory'")


class CheckpointWithoutWindow(_Kind):
    """Does not read the round ids before a checkpoint again."""

    class kind(Corrections):  # noqa: N801
        """Corrections with this work."""

        class work_kind(Work):  # noqa: N801
            """Work with this job."""

            class job_kind(CorrectionJob):  # noqa: N801
                """A job that begins to read at the last round of the checkpoint."""

                @property
                def _rounds_from(self) -> int:
                    head = self._beginning.head
                    return 0 if head is None else head.last[0]
