"""Corrections that wait for others: scenarios, and mutants with one rule left out."""

from collections.abc import Sequence

from stream_rater.contract.record import Record
from stream_rater.pipeline.corrections.correction_job import CorrectionJob
from stream_rater.pipeline.corrections.correction_validator import Rejections, Steps
from stream_rater.pipeline.corrections.log_context import QueuedCorrection
from stream_rater.pipeline.corrections.lookahead import QueueLookahead
from stream_rater.pipeline.ports import CommitSource
from stream_rater.replay.id_filter import IdFilter

from .registry import catches
from .stage import A0, A1, Stage


class ValidatedByALaterRecord(QueueLookahead):
    """Validates waiting corrections in the wrong order: the last one first."""

    def reach(self, record: Record) -> Steps[None]:
        self.remember(record)
        yield from self._validator.reach(record)
        if record.offset == max(self._polled):
            for each in reversed(self._polled.values()):
                yield from self._validate_polled(each)


class BatchRejectedWhole(QueueLookahead):
    """Rejects a batch as a whole if one of its corrections is rejected."""

    def _rejections_of(
        self, validated: Sequence[QueuedCorrection], rejected: Rejections
    ) -> Rejections | None:
        return rejected or super()._rejections_of(validated, rejected)


class IdsLost(CorrectionJob):
    """Assumes that no id is from before a checkpoint."""

    def _ids_before(self) -> IdFilter:
        return IdFilter()


class AmendedIdsLost(CorrectionJob):
    """Stores the ids of the rounds before a checkpoint only as they were reported."""

    def _add_amended(self, ids: IdFilter) -> None:
        pass


@catches("validated-by-a-later-record", "verdicts by the log before", ValidatedByALaterRecord)
def same_round_is_voided_twice_in_a_queue(stage: Stage) -> None:
    """Three corrections come in one poll. The second one counts, and the last one does not, since
    the same was done before."""
    stage.rated(A0, A1, times=2)
    stage.correct("round-voided", round_id="nowhere")
    stage.correct("round-voided", round_id="round-1")
    stage.correct("round-voided", round_id="round-1")
    stage.round(A0, A1)


@catches("batch-rejected-whole", "accepted corrections of a batch applied", BatchRejectedWhole)
def batch_waits_in_a_queue(stage: Stage) -> None:
    """A batch is half good. It waits behind a correction that is refused."""
    stage.rated(A0, A1, times=2)
    stage.correct("round-voided", round_id="nowhere")
    stage.correct("round-voided", round_id="round-2", batched=True)
    stage.correct("round-voided", round_id="not-here", batched=True)
    stage.correct("corrections-applied")
    stage.round(A1, A0)


@catches("ids-lost", "ids before a checkpoint", IdsLost)
def round_before_a_checkpoint_is_voided(stage: Stage) -> None:
    """A round is voided, which makes a checkpoint; then one before the checkpoint is."""
    estimator, _ = stage.rated(A0, A1, times=2)
    stage.correct("round-voided", round_id="round-2")
    stage.through(estimator, CommitSource)
    stage.correct("round-voided", round_id="round-1")
    stage.correct("round-voided", round_id="nowhere")
    stage.turns(estimator)


@catches("amended-ids-lost", "amended names before a checkpoint", AmendedIdsLost)
def player_of_an_amended_round_is_removed(stage: Stage) -> None:
    """The only round of a player is one that a correction has put the player into. Then a
    checkpoint is made, and the player is removed."""
    estimator, _ = stage.rated(A0, A1, times=2)
    amended = [{"player": A0, "rank": 1}, {"player": "late", "rank": 2}]
    stage.correct("round-amended", round_id="round-1", standings=amended)
    stage.through(estimator, CommitSource)
    stage.correct("player-removed", player="late")
    stage.turns(estimator)
