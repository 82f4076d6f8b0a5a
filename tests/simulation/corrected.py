"""Corrections, also those that wait for others: mutants with one rule left out, and scenarios."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any
from unittest.mock import patch

from stream_rater.adapters.local_driver import Steps
from stream_rater.contract.corrections import KINDS
from stream_rater.contract.errors import StoreTrouble
from stream_rater.contract.record import Player, Record
from stream_rater.operations.cutoff import Cutoff
from stream_rater.pipeline import ports
from stream_rater.pipeline.corrections import correction_validator
from stream_rater.pipeline.corrections.correction_job import CorrectionJob
from stream_rater.pipeline.corrections.correction_validator import (
    QueuedCorrection,
    QueueLookahead,
    Rejections,
)
from stream_rater.pipeline.corrections.corrections import Corrections, Queued
from stream_rater.pipeline.corrections.edits_in_force import LadderEdits
from stream_rater.pipeline.estimator.estimation import PendingRounds
from stream_rater.pipeline.estimator.input_partition import InputPartition
from stream_rater.pipeline.estimator.progress import InFlightWindow
from stream_rater.pipeline.updater.changes import Change
from stream_rater.pipeline.updater.shard import ShardBatch
from stream_rater.pipeline.updater.updater import Updater
from stream_rater.replay.checkpoint import CheckpointHead, IdFilter, RecordPlace
from stream_rater.replay.edits import NO_EDITS, Edits, EntryEdits

from .actors import Actor
from .estimating import with_present
from .registry import altered, catches, nothing
from .stage import A0, A1, A2, B0, B2, NEVER_HEARS, Stage
from .world import UnkindDriver


def _corrected(stage: Stage, kind: str, **about: Any) -> tuple[Actor, Actor]:
    """Rate three rounds, and apply a correction. Returns an estimator and an updater."""
    stage.round(A0, B0)
    stage.round(A1, B0)
    estimator, updater = stage.rated(A0, A2)
    stage.correct(kind, **about)
    stage.turns(estimator, updater)
    return estimator, updater


class EditsForgotten(UnkindDriver):
    def noted_corrections(self) -> Steps:
        yield
        return {}


@catches("edits-forgotten", "notes of corrections read at take-over", EditsForgotten)
def successor_rates_a_round_of_a_removed_player(stage: Stage) -> None:
    """A player is removed. Then another estimator takes over, and the player plays on."""
    estimator, _ = _corrected(stage, "player-removed", player=A0)
    stage.crash(estimator)
    stage.round(A0, A1, B0)
    stage.turns(stage.estimator())


@catches(
    "edits-unnoted", "corrections recorded before they finish",
    altered(UnkindDriver, note_corrections=nothing),
)  # fmt: skip
def successor_of_one_who_recorded_nothing(stage: Stage) -> None:
    """The same, with a merged player."""
    estimator, _ = _corrected(stage, "player-merged", player=A1, into=A0)
    stage.crash(estimator)
    stage.round(A1, B0)
    stage.turns(stage.estimator())


class CorrectedTwice(Updater):
    def _compute(
        self, batch: ShardBatch, stored: Mapping[int, ports.StoredShard]
    ) -> dict[int, Change]:
        if batch.given is not None and batch.given.cause in KINDS:
            blind = {  # the beliefs, with a last round before any correction
                shard: [each and each[:6] + bytes(5) + each[11:] for each in of.records]
                for shard, of in stored.items()
                if shard in batch.parts
            }
            stored = {s: ports.StoredShard(stored[s].position, each) for s, each in blind.items()}
        return super()._compute(batch, stored)


@catches("corrected-twice", "corrections that are fresh only", CorrectedTwice)
def estimator_dies_before_a_correction_is_committed(stage: Stage) -> None:
    """A correction's parts are applied and published, but its offset is not committed. The
    successor applies it again, while a later round waits."""
    estimator, updater = stage.rated(A0, A1, times=2)
    stage.correct("round-voided", round_id="round-2")
    stage.until(estimator, ports.Scatter)
    stage.perform(estimator)
    stage.through(updater, ports.Publish)
    successor = stage.replace(estimator)
    stage.turns(successor, updater)


class LaterRoundPasses(Corrections):
    def admit(self, pending: PendingRounds) -> tuple[PendingRounds, PendingRounds]:
        deferred, self._deferred = self._deferred, {}
        found = super().admit(pending)
        self._deferred = deferred
        return found


@catches("later-round-passes", "later rounds after the correction", LaterRoundPasses)
def round_right_after_a_correction(stage: Stage) -> None:
    """A correction and the next round of its players come in one poll."""
    stage.rated(A0, A1, times=2)
    stage.correct("round-voided", round_id="round-1")
    stage.round(A0, A1)


class CorrectsTooEarly(Corrections):
    def due(self, inputs: Mapping[int, InputPartition]) -> list[Queued]:
        return [queue[0] for queue in self._queues.values() if queue]


@catches("corrects-too-early", "corrections after all earlier rounds", CorrectsTooEarly)
def earlier_round_waits_while_a_correction_comes(stage: Stage) -> None:
    """A round waits for a shard without an updater. Then a correction of its player comes."""
    stage.estimator_cache = 0
    stage.round(A2, B2)
    stage.round(A0, A1)
    estimator, updater = stage.estimator(), stage.updater(0, 1)
    stage.turns(estimator)
    stage.round(A0, A2)
    stage.turns(estimator)
    stage.correct("round-voided", round_id="round-2")
    stage.turns(estimator, updater, estimator)
    stage.updater(2)


@catches(
    "removed-player-rated", "removed players out of later rounds",
    altered(Corrections, edits_of=lambda *_: NO_EDITS),
)  # fmt: skip
def removed_player_plays_on(stage: Stage) -> None:
    """A player is removed for ever, and plays on."""
    _corrected(stage, "player-removed", player=A0)
    stage.round(A0, A1, B0)


class OldNameKept(Corrections):
    def edits_of(self, ladder: str, offset: int) -> Edits:
        edits, found = super().edits_of(ladder, offset), EntryEdits()
        for name, edit in edits.entries.items():
            for span in edit.removed if edit.player == name else ():
                found.add(name, span)
        return Edits(found.now(), edits.voided, edits.amended, edits.seasons)


@catches("old-name-kept", "merged players under one name", OldNameKept)
def merged_player_plays_on(stage: Stage) -> None:
    """A player is merged into another, and plays on under the old name."""
    _corrected(stage, "player-merged", player=A1, into=A0)
    stage.round(A1, B0)


class BatchForgotten(Corrections):
    """Counts a batch as applied as soon as it is recorded."""

    def load(self, recorded: ports.CorrectionsByLadder) -> None:
        self._edits = {ladder: _Forgetful(some) for ladder, some in recorded.items()}


class _Forgetful(LadderEdits):
    def waiting(self, before: int) -> list[ports.RecordedCorrection]:
        gone = [each for some in self._applied.values() for each in some]
        return [each for each in super().waiting(before) if each not in gone]


@catches("batch-forgotten", "a batch whose parts are sent", BatchForgotten)
def estimator_dies_after_a_batch_is_recorded(stage: Stage) -> None:
    """Two corrections wait for `corrections-applied`, one of a round that does not exist. The
    estimator dies when it has recorded what it accepts, and sent nothing."""
    estimator, updater = stage.rated(A0, A1, times=2)
    stage.correct("round-voided", round_id="round-2", batched=True)
    stage.correct("round-voided", round_id="nowhere", batched=True)
    stage.through(estimator, ports.NoteCorrections)  # both at once
    stage.through(estimator, ports.CommitSource)
    stage.correct("corrections-applied")
    stage.through(estimator, ports.NoteCorrections)
    stage.crash(estimator)
    stage.turns(updater)
    stage.estimator()


class FoundByTheRecord(UnkindDriver):
    """Step 1 that starts after the last rejected record, although later ones are committed."""

    def look_for_offsets(self, partitions: frozenset[int]) -> Steps:
        remains = yield from super().look_for_offsets(partitions)
        places = sorted((each.record.partition, each.record.offset) for each in self.log.rejected)
        after = {partition: offset + 1 for partition, offset in places if partition in partitions}
        return replace(remains, after_rejected=after)


@catches("found-by-the-record", "offsets by what came with rejections", FoundByTheRecord)
def offsets_expire_after_a_batch(stage: Stage) -> None:
    """A batched correction is rejected when it is to be applied. Then there are no workers for so
    long that Kafka deletes the estimators' offsets."""
    estimator, updater = stage.rated(A0, A1)
    stage.correct("round-voided", round_id="nowhere", batched=True)
    stage.through(estimator, ports.CommitSource)
    stage.rates(estimator, updater, A0, A1)
    stage.correct("corrections-applied")
    stage.through(estimator, ports.CommitSource, rejections=True)
    stage.crash(estimator)
    stage.log.estimators.committed.clear()
    stage.estimator()


class SentNotPending(Corrections):
    """Does not record the parts of corrections and seeds as pending."""

    def work_on(self, queued: Any, in_flight: InFlightWindow, *given: Any) -> ports.Step[bool]:
        with patch.object(in_flight, "sent"):
            return (yield from super().work_on(queued, in_flight, *given))


@catches("corrected-not-pending", "pending parts of corrected players", SentNotPending)
def next_round_before_the_correction_is_applied(stage: Stage) -> None:
    """The next round of corrected players is rated before an updater has seen the correction."""
    estimator, updater = stage.rated(A0, A1, times=2)
    stage.correct("round-voided", round_id="round-1")
    stage.round(A0, A1)
    stage.turns(estimator, updater)


class UnannouncedUnrecorded(Updater):
    """Step 13 without the last published values of unannounced beliefs."""

    def _compute(
        self, batch: ShardBatch, stored: Mapping[int, ports.StoredShard]
    ) -> dict[int, Change]:
        found = super()._compute(batch, stored)
        for shard, change in found.items():
            bits = change.position.fresh[: (change.rows + 7) // 8]
            found[shard] = replace(change, position=replace(change.position, fresh=bits))
        return found


@catches("unannounced-unrecorded", "notes of what was published", UnannouncedUnrecorded)
def updater_dies_before_it_publishes_the_unannounced(stage: Stage) -> None:
    """A correction moves players by less than is published. The updater dies after it has applied
    their next round, before its events are published."""
    estimator, updater = stage.rated(A0, A1, times=2)
    amended = [{"player": A0, "rank": 1}, {"player": A1, "rank": 2}]
    stage.correct("round-amended", round_id="round-1", standings=amended, weight=0.9995)
    stage.turns(estimator, updater)
    stage.round(A0, A1)
    stage.turns(estimator)
    stage.until(updater, ports.Publish)
    stage.replace(updater)


@catches("season-twice", "the season of the remembered prior", with_present("season"))
def estimator_dies_in_the_first_round_of_a_season(stage: Stage) -> None:
    """Of the first round after a season's start, one part is applied, the other was not sent."""
    estimator, updater = stage.rated(A0, A1)
    stage.correct("season-started", season=1, keep=0.5, sigma=200.0)
    stage.turns(estimator)
    stage.crash(estimator)
    stage.crash(updater)
    stage.half_sent(A0, A1)
    stage.estimator()


@catches(
    "rebuilt-without-published", "rebuild with what was published",
    altered(Cutoff, knows_published=False),
)  # fmt: skip
def store_is_rebuilt_after_an_unannounced_change(stage: Stage) -> None:
    """A correction moves players by less than is published. A rebuild follows, then a round."""
    estimator, updater = stage.rated(A0, A1, times=2)
    amended = [{"player": A0, "rank": 1}, {"player": A1, "rank": 2}]
    stage.correct("round-amended", round_id="round-1", standings=amended, weight=0.9995)
    stage.through(estimator, ports.CommitSource)
    stage.turns(estimator, updater)
    stage.rebuild_and_start()
    stage.round(A0, A1)


restates_nothing = altered(Cutoff, restates=False)  # a cut-off that does not note corrections again


@catches("rebuilt-without-notes", "rebuild that notes the corrections", restates_nothing)
def ladder_events_are_lost_and_the_store_is_rebuilt(stage: Stage) -> None:
    """A player is removed, another is merged, and a correction waits. The topic of ladder events is
    deleted and the store rebuilt. The players play on, and the correction is applied."""
    estimator, updater = _corrected(stage, "player-removed", player=A0)
    stage.correct("player-merged", player=A2, into=A1)
    stage.correct("round-voided", round_id="round-2", batched=True)
    stage.turns(estimator, updater)
    stage.log.ladder_events.clear()
    estimator, _ = stage.rebuild_and_start()
    stage.round(A0, A1, B0)
    stage.round(A2, B0)
    stage.turns(estimator)
    stage.correct("corrections-applied")


@catches("rebuilt-beside-other-notes", "no notes of another log", restates_nothing)
def ladder_events_newer_than_the_log(stage: Stage) -> None:
    """A player is removed. Then an older log, without that, comes back, and the player plays on."""
    stage.round(A0, B0)
    stage.rated(A0, A1)
    older = stage.copy_of_the_log()
    stage.correct("player-removed", player=A0)
    stage.turns(stage.actors[0])
    older.ladder_events[:] = stage.log.ladder_events
    stage.restore_log(older)
    stage.rebuild()
    stage.round(A1, B0)
    stage.workers()
    stage.round(A0, A1, B0)


class CheckpointAfterAnEdit(CorrectionJob):
    """Begins at a checkpoint although a correction that it lacks changes an earlier round."""

    def _places_in(self, head: CheckpointHead) -> set[RecordPlace]:
        return {each.place for each in self._accepted_before}


@catches("checkpoint-after-an-edit", "checkpoints before all edited rounds", CheckpointAfterAnEdit)
def store_goes_back_to_an_older_checkpoint(stage: Stage) -> None:
    """Redis loses a new checkpoint. The old one does not know that an earlier round is void."""
    estimator, updater = stage.rated(A0, A1, times=2)
    stage.correct("round-voided", round_id="round-2")
    stage.through(estimator, ports.CommitSource)
    saved = {each: {**heads} for each, heads in stage.store.checkpoints.items()}, stage.store.pieces
    stage.store.pieces = {**stage.store.pieces}
    stage.correct("round-voided", round_id="round-1")
    stage.through(estimator, ports.CommitSource)
    stage.turns(updater)
    stage.store.checkpoints, stage.store.pieces = saved
    estimator, updater = stage.rated(A0, A1)
    stage.correct("round-voided", round_id="round-3")
    stage.turns(estimator, updater)


class CheckpointMustBeKept(UnkindDriver):
    """Starts the work on a correction again if its checkpoint is not stored."""

    def _unkept(self, outcome: object) -> Steps:
        yield from super()._unkept(outcome)
        raise StoreTrouble("OOM command not allowed when used memory > 'maxmemory'")


@catches(
    "checkpoint-must-be-kept", "corrections without checkpoints", CheckpointMustBeKept, stuck=True
)  # fmt: skip
def store_takes_no_checkpoint(stage: Stage) -> None:
    """The store is full when a correction keeps a checkpoint, which a second one would read."""
    stage.store.unkept = 1.0
    _corrected(stage, "round-voided", round_id="round-1")
    stage.correct("round-voided", round_id="round-3")
    stage.round(A0, A1)


class CheckpointWithoutWindow(CorrectionJob):
    @property
    def _rounds_from(self) -> int:
        head = self._starting_point.head
        return 0 if head is None else head.last[0]


@catches("checkpoint-without-window", "round ids before a checkpoint", CheckpointWithoutWindow)
def round_comes_again_after_a_checkpoint(stage: Stage) -> None:
    """A round before a checkpoint is reported again behind it; then a later round is corrected."""
    estimator, _ = stage.rated(A0, A1, times=3)
    stage.correct("round-voided", round_id="round-1")
    stage.through(estimator, ports.CommitSource)
    stage.round(A1, A0, round_id="round-1")
    stage.round(A0, A1, round_id="late")
    stage.turns(estimator)
    stage.correct("round-voided", round_id="late")
    stage.turns(estimator)


@catches(
    "cutoff-with-waiting", "rebuild without corrections that wait",
    altered(Cutoff, pending_corrections=lambda _: {}),
)  # fmt: skip
def store_is_rebuilt_while_a_correction_waits_to_be_applied(stage: Stage) -> None:
    """A round is sent, and then a correction of an earlier one. Neither is applied when the store
    is lost. The round's event shows ratings from before the correction."""
    estimator, _ = stage.rated(A0, A1, times=2)
    stage.round(A1, A0)
    stage.turns(estimator)
    stage.correct("round-voided", round_id="round-1")
    stage.turns(estimator)
    stage.rebuild_and_start()


class CutoffByTheLastRecord(Cutoff):
    """Takes the last record that correction parts have of a player, fresh or not."""

    def _add_corrected(self, player: Player, offset: int, data: bytes) -> None:
        self.corrected[player] = offset, data


@catches("cutoff-by-the-last-record", "rebuild by fresh parts", CutoffByTheLastRecord)
def store_is_rebuilt_after_a_paused_estimator_sent_an_earlier_correction(stage: Stage) -> None:
    """A second correction is applied and not committed. Then an estimator wakes up that was paused
    before it sent the first one's parts, and the store is lost."""
    paused, updater = stage.rated(A0, A1, times=2)
    stage.correct("round-voided", round_id="round-1")
    stage.until(paused, ports.Scatter)
    paused.driver.unkindness = NEVER_HEARS
    successor = stage.estimator()
    stage.through(successor, ports.CommitSource)
    stage.turns(updater)
    stage.correct("round-voided", round_id="round-2")
    stage.until(successor, ports.Scatter)
    stage.perform(successor)
    stage.turns(updater)
    stage.perform(paused)
    stage.turns(updater)
    stage.rebuild_and_start()


class ValidatedByALaterRecord(QueueLookahead):
    """Validates waiting corrections in the wrong order: the last one first."""

    def reach(self, record: Record) -> correction_validator.Steps[None]:
        self.remember(record)
        yield from self.validator.reach(record)
        if record.offset == max(self._polled):
            for each in reversed(self._polled.values()):
                yield from self._validate_polled(each)


@catches("validated-by-a-later-record", "verdicts by the log before", ValidatedByALaterRecord)
def same_round_is_voided_twice_in_a_queue(stage: Stage) -> None:
    """Three corrections come in one poll. The second one counts; the third repeats it in vain."""
    stage.rated(A0, A1, times=2)
    stage.correct("round-voided", round_id="nowhere")
    stage.correct("round-voided", round_id="round-1")
    stage.correct("round-voided", round_id="round-1")
    stage.round(A0, A1)


class BatchRejectedWhole(QueueLookahead):
    def _rejections_of(
        self, validated: Sequence[QueuedCorrection], rejected: Rejections
    ) -> Rejections | None:
        return rejected or super()._rejections_of(validated, rejected)


@catches("batch-rejected-whole", "accepted corrections of a batch applied", BatchRejectedWhole)
def batch_waits_in_a_queue(stage: Stage) -> None:
    """A batch is half good. It waits behind a correction that is refused."""
    stage.rated(A0, A1, times=2)
    stage.correct("round-voided", round_id="nowhere")
    stage.correct("round-voided", round_id="round-2", batched=True)
    stage.correct("round-voided", round_id="not-here", batched=True)
    stage.correct("corrections-applied")
    stage.round(A1, A0)


@catches(
    "ids-lost", "ids before a checkpoint",
    altered(CorrectionJob, _ids_before=lambda _: IdFilter()),
)  # fmt: skip
def round_before_a_checkpoint_is_voided(stage: Stage) -> None:
    """A round is voided, which makes a checkpoint. Then a round before that is voided."""
    estimator, _ = stage.rated(A0, A1, times=2)
    stage.correct("round-voided", round_id="round-2")
    stage.through(estimator, ports.CommitSource)
    stage.correct("round-voided", round_id="round-1")
    stage.correct("round-voided", round_id="nowhere")
    stage.turns(estimator)


@catches(
    "amended-ids-lost", "amended names before a checkpoint",
    altered(CorrectionJob, _add_amended=nothing),
)  # fmt: skip
def player_of_an_amended_round_is_removed(stage: Stage) -> None:
    """A player, whom only a correction put into a round, is removed after a checkpoint."""
    estimator, _ = stage.rated(A0, A1, times=2)
    amended = [{"player": A0, "rank": 1}, {"player": "late", "rank": 2}]
    stage.correct("round-amended", round_id="round-1", standings=amended)
    stage.through(estimator, ports.CommitSource)
    stage.correct("player-removed", player="late")
    stage.turns(estimator)
