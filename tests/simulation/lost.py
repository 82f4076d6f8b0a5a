"""`round-completed` loses records, and a rebuild repairs that: mutants and scenarios."""

from collections.abc import Mapping
from typing import Any
from unittest.mock import patch

from stream_rater.contract.record import Player
from stream_rater.operations.cutoff import Cutoff, Offsets
from stream_rater.operations.lost_rounds import Closing
from stream_rater.pipeline.ports import CommitSource, Publish, Scatter

from . import oracle
from .game import PARTITION_OF
from .registry import altered, catches
from .stage import A0, B0, C0, D0, Stage

STEPS = 20  # More steps than a rebuild has.
TURNS = 50


def do_nothing(*_: object) -> None:
    """Replaces a step of a rebuild that a mutant leaves out."""


def rate(stage: Stage, *rounds: tuple[str, str]) -> None:
    """Report rounds, and let the workers finish all that was reported."""
    for players in rounds:
        stage.round(*players)
    for _ in range(TURNS):
        stage.turns()
        if oracle.is_done(stage.log, stage.store):
            return
    raise AssertionError(oracle.where(stage.log, stage.store))


def lose(stage: Stage, kept: int) -> None:
    """Lose all rounds but the first ones. Their parts and events stay, and so do the offsets."""
    stage.tear(stage.log.rounds[0], kept)


def refilled(stage: Stage) -> None:
    """Three rounds are lost, and two others take their offsets."""
    stage.rated(A0, B0)
    rate(stage, (A0, B0), (C0, D0), (C0, D0))
    lose(stage, 1)
    stage.round(D0, C0)
    stage.round(B0, A0)


def corrected(stage: Stage) -> None:
    """A ladder with a correction loses a correction, and the rounds around it."""
    stage.rated(A0, B0)
    rate(stage, (A0, B0), (C0, D0))
    stage.correct("round-voided", round_id="round-2")
    rate(stage, (A0, D0))
    kept = len(stage.log.rounds[0])
    rate(stage, (B0, C0))
    stage.correct("round-voided", round_id="round-3")
    rate(stage, (A0, C0))
    lose(stage, kept)


class LastOfLost(Cutoff):
    """Takes the last offset of a belief from lost parts and events."""

    def replay_to(self, ends: Offsets) -> None:
        super().replay_to(ends)
        self._since[:] = 0


@catches("last-of-lost", "beliefs of what the log has", LastOfLost)
def correction_is_lost(stage: Stage) -> None:
    """A correction is lost. Then the store is rebuilt, and a round is reported."""
    corrected(stage)
    stage.turns(*stage.workers())
    stage.rebuild_if_asked()
    stage.round(A0, B0)


class PublishedAndUnannounced(Cutoff):
    """Marks a belief as unannounced, although an event announces it."""

    def replay_to(self, ends: Offsets) -> None:
        super().replay_to(ends)
        self.closes = False


@catches("published-and-unannounced", "what is published is announced", PublishedAndUnannounced)
def plays_on_after_a_correction_was_lost(stage: Stage) -> None:
    """Each player has a round after the rebuild."""
    correction_is_lost(stage)
    stage.round(C0, D0)


@catches("lost-unfilled", "no offset twice", altered(Closing, _fill=do_nothing))
def rounds_are_lost(stage: Stage) -> None:
    """Rounds are lost, and nothing takes their offsets before the rebuild."""
    stage.rated(A0, B0)
    rate(stage, (A0, B0), (C0, D0), (C0, D0))
    lose(stage, 1)
    stage.turns(*stage.workers())
    stage.rebuild_if_asked()
    stage.round(A0, B0)


@catches("lost-unpublished", "events of what was lost", altered(Closing, publish=do_nothing))
def lost_rounds_are_replaced(stage: Stage) -> None:
    """Other rounds replace lost ones. Some players have no round after the rebuild."""
    refilled(stage)
    stage.turns(*stage.workers())
    stage.rebuild_if_asked()
    stage.round(A0, B0)


class PublishedForLost(Closing):
    """Publishes only for players of the partitions that lost records."""

    def publish(self, *given: Any) -> None:
        found = [[e for e in some if self._is_lost(e[0])] for some in self._place.beliefs()]
        self._newest = {who: each for who, each in self._newest.items() if self._is_lost(who)}
        with patch.object(self._place, "beliefs", lambda: found):
            super().publish(*given)

    def _is_lost(self, who: Player) -> bool:
        return PARTITION_OF[who[0]] in self._lost


@catches("published-for-lost", "events of what waited elsewhere", PublishedForLost)
def parts_of_another_partition_wait(stage: Stage) -> None:
    """They are not applied yet when rounds are lost."""
    stage.rated(A0, B0)
    estimator, _ = stage.workers()
    stage.round(C0, D0, ladder="f", partition=1)
    stage.through(estimator, CommitSource)
    lose(stage, 0)
    stage.rebuild_and_start()


class FilledToTheCommit(Closing):
    """Fills the log only up to the committed offset."""

    def __init__(self, lost: Any, place: Any, ladders: Any, newest: Any, _: object) -> None:
        super().__init__(lost, place, ladders, newest, dict(place.log.estimators.committed))


@catches("filled-to-the-commit", "filled up to all that is named", FilledToTheCommit)
def event_is_ahead_of_the_commit(stage: Stage) -> None:
    """A round is published, its estimator dies before it commits it, and then the round is lost."""
    stage.rated(A0, B0)
    stage.rates(stage.actors[0], stage.actors[1], A0, B0)
    stage.round(B0, A0)
    estimator, updater = stage.actors
    stage.through(estimator, Scatter)
    stage.through(updater, Publish)
    lose(stage, 1)
    stage.crash(estimator)
    stage.turns(*stage.workers())
    stage.rebuild_if_asked()


class FilledBeforeDisowned(Closing):
    def _disown(self) -> None:
        super()._fill()

    def _fill(self) -> None:
        super()._disown()


@catches("filled-before-disowned", "torn for all until the end", FilledBeforeDisowned)
def killed_while_the_log_is_filled(stage: Stage) -> None:
    """The committed offset has no checksum, and a rebuild is killed when the log is filled."""
    refilled(stage)
    stage.log.estimators.tails.clear()
    stage.rebuild(steps=3)
    stage.rebuild_and_start()


class FilledBeforeUnfinished(Closing):
    def close(self) -> dict[int, int]:
        with patch.object(self._place, "begin_rebuild"):
            found = super().close()
        self._place.begin_rebuild(b"late")
        return found


@catches("filled-before-unfinished", "unfinished before anything", FilledBeforeUnfinished)
def offset_is_committed_by_hand(stage: Stage) -> None:
    """Events of lost rounds are lost, too. A rebuild is killed when the log is filled. Instead of
    another one, an operator commits the end of the log, and starts workers."""
    stage.rated(A0, B0)
    stage.rates(stage.actors[0], stage.actors[1], A0, B0)
    lose(stage, 1)
    del stage.log.changed[0][2:]
    stage.rebuild(steps=3, store_lost=False)
    stage.log.estimators.committed[0] = len(stage.log.rounds[0])
    stage.log.estimators.tails.clear()
    stage.turns(*stage.workers())
    stage.rebuild_if_asked()


@catches("last-filler-empty", "a word in the last record", altered(Closing, _last_value=do_nothing))
def lost_again_within_the_fill(stage: Stage) -> None:
    """The records that a rebuild appended are lost, too. Others take their offsets."""
    stage.rated(A0, B0)
    rate(stage, (A0, B0))
    lose(stage, 1)
    stage.rebuild_and_start()
    stage.turns()
    lose(stage, 1)
    stage.round(C0, D0)
    stage.log.submit(0, None)
    stage.turns(*stage.workers())
    stage.rebuild_if_asked()


class ReadOnce(Closing):
    """Compares beliefs with what was published before the first rebuild."""

    def __init__(
        self, lost: Any, place: Any, ladders: Any, newest: Mapping[Any, Any], reach: Any
    ) -> None:
        first = vars(place.log).setdefault("first", newest)
        super().__init__(lost, place, ladders, first, reach)


@catches("published-twice", "what was published is read again", ReadOnce)
def killed_at_each_step(stage: Stage) -> None:
    """A rebuild is killed after each of its steps, and run again."""
    refilled(stage)
    for steps in range(STEPS):
        stage.rebuild(steps=steps)
    stage.rebuild_and_start()
    stage.round(A0, C0)


class ReplayedForgotten(Cutoff):
    """Believes all parts, although an earlier rebuild could not."""

    def __init__(self, *given: Any, **options: Any) -> None:
        super().__init__(*given, **options | {"replayed": {}})


@catches("replayed-forgotten", "rebuild once more after a loss", ReplayedForgotten)
def store_is_lost_after_the_log_was(stage: Stage) -> None:
    """A rebuild closes the log, and the store is lost before anybody plays."""
    refilled(stage)
    stage.rebuild_and_start()
    stage.turns()
    stage.rebuild_and_start()
    stage.round(C0, A0)
