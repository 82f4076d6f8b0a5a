"""Scenarios with corrections."""

from stream_rater.pipeline.corrections.correction_ports import NoteCorrections
from stream_rater.pipeline.ports import CommitSource, Publish, Scatter

from . import correction_mutants as corrections
from . import estimator_mutants as stage_1
from . import rebuild_mutants as rebuild
from .actors import Actor
from .registry import catches
from .stage import A0, A1, A2, B0, B2, NEVER_HEARS, Stage


def _corrected(stage: Stage, kind: str, **about: object) -> tuple[Actor, Actor]:
    """Three rounds are rated, and a correction is applied. Returns an estimator and an
    updater."""
    stage.round(A0, B0)
    stage.round(A1, B0)
    estimator, updater = stage.rated(A0, A2)
    stage.correct(kind, **about)
    stage.turns(estimator, updater)
    return estimator, updater


@catches("edits-forgotten", "notes of corrections read at take-over", corrections.EditsForgotten)
def successor_rates_a_round_of_a_removed_player(stage: Stage) -> None:
    """A player is removed. Then another estimator takes over, and the player plays on."""
    estimator, _ = _corrected(stage, "player-removed", player=A0)
    stage.crash(estimator)
    stage.round(A0, A1, B0)
    stage.turns(stage.estimator())


@catches("edits-unnoted", "corrections recorded before they finish", corrections.EditsUnrecorded)
def successor_of_one_who_recorded_nothing(stage: Stage) -> None:
    """The same, with a merged player."""
    estimator, _ = _corrected(stage, "player-merged", player=A1, into=A0)
    stage.crash(estimator)
    stage.round(A1, B0)
    stage.turns(stage.estimator())


@catches("corrected-twice", "corrections that are fresh only", corrections.CorrectedTwice)
def estimator_dies_before_a_correction_is_committed(stage: Stage) -> None:
    """The correction's parts are applied and published, and its offset is not committed. The
    successor applies it again, while a later round waits."""
    estimator, updater = stage.rated(A0, A1, times=2)
    stage.correct("round-voided", round_id="round-2")
    stage.until(estimator, Scatter)
    stage.perform(estimator)
    stage.through(updater, Publish)
    successor = stage.replace(estimator)
    stage.turns(successor, updater)


@catches("later-round-passes", "later rounds after the correction", corrections.LaterRoundPasses)
def round_right_after_a_correction(stage: Stage) -> None:
    """A correction and the next round of its players come in one poll."""
    stage.rated(A0, A1, times=2)
    stage.correct("round-voided", round_id="round-1")
    stage.round(A0, A1)


@catches("corrects-too-early", "corrections after all earlier rounds", corrections.CorrectsTooEarly)
def earlier_round_waits_while_a_correction_comes(stage: Stage) -> None:
    """A round waits for a shard without an updater when a correction of one of its players comes.
    No belief is cached."""
    stage.estimator_cache = 0
    stage.round(A2, B2)
    stage.round(A0, A1)
    estimator, _ = stage.estimator(), stage.updater(0, 1)
    stage.turns(estimator)
    stage.round(A0, A2)
    stage.turns(estimator)
    stage.correct("round-voided", round_id="round-2")
    stage.turns(estimator)
    stage.turns(stage.actors[1])
    stage.turns(estimator)
    stage.updater(2)


@catches(
    "removed-player-rated", "removed players out of later rounds", corrections.RemovedPlayerRated
)
def removed_player_plays_on(stage: Stage) -> None:
    """A player is removed for ever, and plays on."""
    _corrected(stage, "player-removed", player=A0)
    stage.round(A0, A1, B0)


@catches("old-name-kept", "merged players under one name", corrections.OldNameKept)
def merged_player_plays_on(stage: Stage) -> None:
    """A player is merged into another, and plays on under the old name."""
    _corrected(stage, "player-merged", player=A1, into=A0)
    stage.round(A1, B0)


@catches("batch-forgotten", "a batch whose parts are sent", corrections.BatchForgotten)
def estimator_dies_after_a_batch_is_recorded(stage: Stage) -> None:
    """Two corrections wait for `corrections-applied`, one of them for a round that does not
    exist. The estimator dies when it has recorded what it accepts, and has sent nothing."""
    estimator, updater = stage.rated(A0, A1, times=2)
    stage.correct("round-voided", round_id="round-2", batched=True)
    stage.correct("round-voided", round_id="nowhere", batched=True)
    stage.through(estimator, NoteCorrections)  # both at once
    stage.through(estimator, CommitSource)
    stage.correct("corrections-applied")
    stage.through(estimator, NoteCorrections)
    stage.crash(estimator)
    stage.turns(updater)
    stage.estimator()


@catches("found-by-the-record", "offsets by what came with rejections", stage_1.FoundByTheRecord)
def offsets_expire_after_a_batch(stage: Stage) -> None:
    """A batched correction is rejected when it is to be applied. Then all workers are gone for so
    long that Kafka deletes the estimators' offsets."""
    estimator, updater = stage.rated(A0, A1)
    stage.correct("round-voided", round_id="nowhere", batched=True)
    stage.through(estimator, CommitSource)
    stage.rates(estimator, updater, A0, A1)
    stage.correct("corrections-applied")
    stage.through(estimator, CommitSource, rejections=True)
    stage.crash(estimator)
    stage.log.estimators.committed.clear()
    stage.estimator()


@catches(
    "corrected-not-pending", "pending parts of corrected players", corrections.CorrectedNotPending
)
def next_round_before_the_correction_is_applied(stage: Stage) -> None:
    """The next round of corrected players is rated before an updater has seen the correction."""
    estimator, updater = stage.rated(A0, A1, times=2)
    stage.correct("round-voided", round_id="round-1")
    stage.round(A0, A1)
    stage.turns(estimator, updater)


@catches("unannounced-unrecorded", "notes of what was published", corrections.UnannouncedUnrecorded)
def updater_dies_before_it_publishes_the_unannounced(stage: Stage) -> None:
    """A correction moves players by less than is published. The updater dies after it has applied
    their next round, before its events are published."""
    estimator, updater = stage.rated(A0, A1, times=2)
    amended = [{"player": A0, "rank": 1}, {"player": A1, "rank": 2}]
    stage.correct("round-amended", round_id="round-1", standings=amended, weight=0.9995)
    stage.turns(estimator, updater)
    stage.round(A0, A1)
    stage.turns(estimator)
    stage.until(updater, Publish)
    stage.replace(updater)


@catches("season-twice", "the season of the remembered prior", corrections.SeasonTwice)
def estimator_dies_in_the_first_round_of_a_season(stage: Stage) -> None:
    """One part of the first round after a season's start was sent and applied, the other was
    not."""
    estimator, updater = stage.rated(A0, A1)
    stage.correct("season-started", season=1, keep=0.5, sigma=200.0)
    stage.turns(estimator)
    stage.crash(estimator)
    stage.crash(updater)
    stage.half_sent(A0, A1)
    stage.estimator()


@catches("rebuilt-without-published", "rebuild with what was published", rebuild.CutoffByBeliefs)
def store_is_rebuilt_after_an_unannounced_change(stage: Stage) -> None:
    """A correction moves players by less than is published, and the store is rebuilt before their
    next round."""
    estimator, updater = stage.rated(A0, A1, times=2)
    amended = [{"player": A0, "rank": 1}, {"player": A1, "rank": 2}]
    stage.correct("round-amended", round_id="round-1", standings=amended, weight=0.9995)
    stage.through(estimator, CommitSource)
    stage.turns(estimator, updater)
    stage.rebuild_and_start()
    stage.round(A0, A1)


@catches("rebuilt-without-notes", "rebuild that notes the corrections", rebuild.RestatesNothing)
def ladder_events_are_lost_and_the_store_is_rebuilt(stage: Stage) -> None:
    """A player is removed, another merged, and a correction waits. The topic of the notes is
    deleted, and the store is rebuilt. The players play on, and the correction is applied."""
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


@catches("rebuilt-beside-other-notes", "no notes of another log", rebuild.RestatesNothing)
def ladder_events_newer_than_the_log(stage: Stage) -> None:
    """A player is removed. Then the log comes back from an older copy, and the notes do not. An
    operator rebuilds the store, and the player plays on."""
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


@catches(
    "checkpoint-after-an-edit", "checkpoints before all edited rounds",
    corrections.CheckpointAfterAnEdit,
)  # fmt: skip
def store_goes_back_to_an_older_checkpoint(stage: Stage) -> None:
    """A checkpoint does not know that an earlier round was voided: Redis lost what had replaced
    it."""
    estimator, updater = stage.rated(A0, A1, times=2)
    stage.correct("round-voided", round_id="round-2")
    stage.through(estimator, CommitSource)
    saved = {each: {**heads} for each, heads in stage.store.checkpoints.items()}, stage.store.pieces
    stage.store.pieces = {**stage.store.pieces}
    stage.correct("round-voided", round_id="round-1")
    stage.through(estimator, CommitSource)
    stage.turns(updater)
    stage.store.checkpoints, stage.store.pieces = saved
    estimator, updater = stage.rated(A0, A1)
    stage.correct("round-voided", round_id="round-3")
    stage.turns(estimator, updater)


@catches(
    "checkpoint-must-be-kept", "corrections without checkpoints",
    corrections.CheckpointMustBeKept, stuck=True,
)  # fmt: skip
def store_takes_no_checkpoint(stage: Stage) -> None:
    """The store is full when a correction would keep a checkpoint, and a second one would read
    it."""
    stage.store.unkept = 1.0
    _corrected(stage, "round-voided", round_id="round-1")
    stage.correct("round-voided", round_id="round-3")
    stage.round(A0, A1)


@catches(
    "checkpoint-without-window", "round ids before a checkpoint",
    corrections.CheckpointWithoutWindow,
)  # fmt: skip
def round_comes_again_after_a_checkpoint(stage: Stage) -> None:
    """A round before a checkpoint is reported again behind it; then a later round is corrected."""
    estimator, _ = stage.rated(A0, A1, times=3)
    stage.correct("round-voided", round_id="round-1")
    stage.through(estimator, CommitSource)
    stage.round(A1, A0, round_id="round-1")
    stage.round(A0, A1, round_id="late")
    stage.turns(estimator)
    stage.correct("round-voided", round_id="late")
    stage.turns(estimator)


@catches("cutoff-with-waiting", "rebuild without corrections that wait", rebuild.CutoffWithWaiting)
def store_is_rebuilt_while_a_correction_waits_to_be_applied(stage: Stage) -> None:
    """A round was sent, then a correction of an earlier one. Nobody has applied either when the
    store is lost. The round's event shows it as it was before the correction."""
    estimator, _ = stage.rated(A0, A1, times=2)
    stage.round(A1, A0)
    stage.turns(estimator)
    stage.correct("round-voided", round_id="round-1")
    stage.turns(estimator)
    stage.rebuild_and_start()


@catches("cutoff-by-the-last-record", "rebuild by fresh parts", rebuild.CutoffByTheLastRecord)
def store_is_rebuilt_after_a_paused_estimator_sent_an_earlier_correction(stage: Stage) -> None:
    """A second correction is applied and not committed. Then an estimator wakes up that was paused
    before it sent the first one's parts, and the store is lost."""
    paused, updater = stage.rated(A0, A1, times=2)
    stage.correct("round-voided", round_id="round-1")
    stage.until(paused, Scatter)
    paused.driver.unkindness = NEVER_HEARS
    successor = stage.estimator()
    stage.through(successor, CommitSource)
    stage.turns(updater)
    stage.correct("round-voided", round_id="round-2")
    stage.until(successor, Scatter)
    stage.perform(successor)
    stage.turns(updater)
    stage.perform(paused)
    stage.turns(updater)
    stage.rebuild_and_start()
