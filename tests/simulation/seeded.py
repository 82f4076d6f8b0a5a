"""Seeds and resets: scenarios, and mutants with one rule left out."""

from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np

from stream_rater.columns import player_map
from stream_rater.columns.arrays import Flags
from stream_rater.columns.player_column import PlayerColumn
from stream_rater.pipeline.corrections.correction_work import QueuedSeed, SeedWork, Sent
from stream_rater.pipeline.corrections.corrections import Corrections
from stream_rater.pipeline.estimator.estimation import part_ends
from stream_rater.pipeline.estimator.estimator import Estimator
from stream_rater.pipeline.estimator.input_partition import InputPartition
from stream_rater.pipeline.parts.schema import Epochs
from stream_rater.pipeline.ports import CommitSource, Publish, ReadBeliefs, Scatter, Step, ask
from stream_rater.pipeline.updater import belief_changes
from stream_rater.pipeline.updater.updater import Updater
from stream_rater.rating.model import Table
from stream_rater.rating.record import headers_of
from stream_rater.replay.edits import Edits

from .actors import Actor
from .corrected import CorrectsTooEarly, LaterRoundPasses, SentNotPending, UnannouncedUnrecorded
from .registry import catches, within
from .stage import A0, A1, A2, B0, B2, C0, NEVER_HEARS, Stage
from .updating import EventsByOffset, applied_twice_and_unpublished

# --- the updater ----------------------------------------------------------------------------------


def _all(_: object, before: Table) -> Flags:
    return np.ones(len(before), np.bool_)


takes_any_row = within(Updater, "_compute", belief_changes, "_takes", _all)
"""A row is fresh by its offset alone: whether the player has a round is not asked."""
takes_late_rows = within(Updater, "_compute", belief_changes, "_is_later", _all)
"""A row is fresh by the belief's rounds alone: its offset is not compared."""


# --- the estimator --------------------------------------------------------------------------------


class DecidedByTheEstimator(SeedWork):
    """Sends the rows of players who have no round by what the store has now."""

    def step(self, sent: Sent, epochs: Epochs) -> Step[bool]:
        if self._whole is not None:
            ladder = self._whole.ladder[0]
            column = PlayerColumn.of([(ladder, each) for each in self._whole.players])
            shards = player_map.shards_in(self.players)
            rows = {int(s): np.flatnonzero(shards == s) for s in np.unique(shards)}
            read = yield from ask(ReadBeliefs({s: column.take(own) for s, own in rows.items()}))
            played = {s: headers_of(read[s].records)["rounds"] > 0 for s in rows}
            known = np.concatenate([own[played[s]] for s, own in rows.items()])
            left = np.setdiff1d(np.arange(len(self._whole)), known)
            self._whole = self._whole.take(left) if len(left) else None
            self.players = self._fingerprints()
        return (yield from super().step(sent, epochs))


class LastRecordFirst(SeedWork):
    def _messages(self, epochs: Epochs) -> Iterator[tuple[int, bytes]]:
        yield from reversed(list(super()._messages(epochs)))


class _OnePart(SeedWork):
    """Is finished when its first part is acknowledged. The others go to `late`."""

    def __init__(self, late: list[tuple[int, bytes]], *given: Any) -> None:
        super().__init__(*given)
        self._late = late

    def step(self, sent: Sent, epochs: Epochs) -> Step[bool]:
        first, *others = self._messages(epochs)
        self._late += others
        offsets = yield from ask(Scatter([first]))
        shards = player_map.shards_in(self.players)
        sent(part_ends([first], offsets), {first[0]: self.players[shards == first[0]]})
        return True


class SentAfterTheFirstPart(Estimator):
    """Counts seeds as sent once one part is acknowledged, and sends the others after a commit."""

    def __init__(self, *given: Any, **options: Any) -> None:
        self._late: list[tuple[int, bytes]] = []
        make_seed_work = partial(_OnePart, self._late)
        make_corrections = partial(Corrections, make_seed_work=make_seed_work)
        super().__init__(*given, **options, make_corrections=make_corrections)

    def _commit(self) -> Step[None]:
        due = any(each._unfinished[0] in each._finished for each in self._inputs.values() if each)
        yield from super()._commit()
        if due and self._late:
            yield from ask(Scatter(self._late))
            self._late.clear()


class SeedsTooEarly(CorrectsTooEarly):
    def _adjacent_seeds(self, queued: QueuedSeed, source: InputPartition) -> list[QueuedSeed]:
        return [queued]


# --- scenarios ------------------------------------------------------------------------------------


@catches("seed-over-rounds", "seeds of players without a round only", takes_any_row)
def seed_of_a_player_who_has_a_round(stage: Stage) -> None:
    """A player plays, and then a seed comes that names the player and a new one."""
    stage.rated(A0, A1)
    stage.seed(A0, B0)


@catches("reset-of-a-newcomer", "resets of players with a round only", takes_any_row)
def reset_of_a_player_without_a_round(stage: Stage) -> None:
    """A player is reset before the first round."""
    stage.rated(A0, A1)
    stage.reset(B0, mu=1200.0)
    stage.round(B0, A1)


@catches("late-seed", "seeds after the last row only", takes_late_rows)
def paused_estimator_sends_a_seed_that_was_voided(stage: Stage) -> None:
    """A paused estimator wakes up and sends a seed that its successor sent, voided since."""
    paused, successor, updater = _paused_before(stage, stage.seed(A0, round_id="given"))
    stage.turns(updater)
    stage.correct("round-voided", round_id="given")
    stage.turns(successor, updater)
    stage.perform(paused)


@catches("late-reset", "resets after the last row only", takes_late_rows)
def paused_estimator_sends_a_reset_after_the_next_round(stage: Stage) -> None:
    """The same with a reset, after which the player has another round."""
    for each in stage.rated(A0, A1):
        stage.crash(each)
    paused, successor, updater = _paused_before(stage, stage.reset(A0, mu=1200.0))
    stage.turns(updater)
    stage.round(A0, A1)
    stage.turns(successor, updater)
    stage.perform(paused)


def _paused_before(stage: Stage, _: int) -> tuple[Actor, Actor, Actor]:
    """Returns an estimator paused before it sends parts, one that has sent them, an updater."""
    paused, updater = stage.workers()
    stage.until(paused, Scatter)
    paused.driver.unkindness = NEVER_HEARS
    successor = stage.estimator()
    stage.through(successor, CommitSource)
    return paused, successor, updater


@catches("seed-decided-early", "seeds decided by the updater", DecidedByTheEstimator)
def seed_behind_a_correction_that_is_not_applied_yet(stage: Stage) -> None:
    """A player's only round is voided. A seed is sent while the store still has the round."""
    estimator, updater = stage.rated(A0, A1)
    stage.correct("round-voided", round_id="round-1")
    stage.seed(A0)
    stage.turns(estimator, updater)


@catches("seed-first-part", "all parts of a seed first", SentAfterTheFirstPart)
def estimator_dies_after_a_seed_is_committed(stage: Stage) -> None:
    """A seed has players of two shards. The estimator dies when its offset is committed."""
    stage.seed(A0, A1)
    first, _ = stage.workers()
    stage.through(first, CommitSource)
    stage.replace(first)


@catches("seed-not-pending", "pending parts of seeded players", SentNotPending)
def round_before_a_seed_is_applied(stage: Stage) -> None:
    """A seeded player's first round is rated before an updater has seen the seed."""
    stage.seed(A0)
    stage.round(A0, A1)
    stage.turns(stage.estimator())
    stage.updater()


@catches("round-passes-a-seed", "later rounds after a seed", LaterRoundPasses)
def round_right_after_a_seed(stage: Stage) -> None:
    """A seed and the first round of its player come in one poll."""
    stage.seed(A0)
    stage.round(A0, A1)
    stage.workers()


@catches("seeds-too-early", "seeds after all earlier rounds", SeedsTooEarly)
def earlier_round_waits_while_a_seed_comes(stage: Stage) -> None:
    """A player's first round waits, because another player's shard has no updater, and nothing is
    cached. Then a seed of the player comes."""
    stage.estimator_cache = 0
    stage.round(A2, B2)
    estimator, updater = stage.estimator(), stage.updater(0, 1)
    stage.turns(estimator)
    stage.round(A0, A2)
    stage.turns(estimator)
    stage.seed(A0)
    stage.turns(estimator, updater, estimator)
    stage.updater(2)


@catches(
    "seed-unedited", "seeds edited by the corrections before",
    within(Corrections, "_new_seed_work", Edits, "seed", lambda _, reported: reported),
)  # fmt: skip
def removed_player_is_seeded(stage: Stage) -> None:
    """A player is removed for ever, from seeds, too. Then a seed names the player."""
    estimator, updater = stage.rated(A0, A1)
    stage.correct("player-removed", player=A0, seed=True)
    stage.turns(estimator, updater)
    stage.seed(A0, B0)


@catches(
    "seed-without-seasons", "the season of a seed",
    within(Corrections, "_new_seed_work", Edits, "started", ()),
)  # fmt: skip
def player_is_seeded_in_a_season(stage: Stage) -> None:
    """A season starts. Then a player is seeded, and plays."""
    estimator, updater = stage.rated(A0, A1)
    stage.correct("season-started", season=1, keep=0.5, sigma=200.0)
    stage.seed(B0)
    stage.turns(estimator, updater)
    stage.round(B0, A0)


@catches("seeds-in-any-order", "a player's rows in their order", LastRecordFirst)
def player_stands_in_two_seeds(stage: Stage) -> None:
    """Two seeds come together, and one player stands in both. The first one counts."""
    stage.seed(A0, B0, mu=1700.0)
    stage.seed(A0, A1, mu=1900.0)
    stage.workers()


@catches("seed-events-by-offset", "events of fresh seeds", EventsByOffset)
def seed_sent_twice_and_applied_unpublished(stage: Stage) -> None:
    """A seed is sent twice. The updater publishes one copy, applies the other one, and dies."""
    stage.seed(A0)
    applied_twice_and_unpublished(stage)


@catches(
    "seed-unannounced-unrecorded", "notes of what was published before a seed",
    UnannouncedUnrecorded,
)  # fmt: skip
def updater_dies_before_it_publishes_the_seed_of_an_unannounced_player(stage: Stage) -> None:
    """A player's only round, of almost no weight, is voided. The event of the next seed begins with
    what was published before that. The updater dies before it publishes the event."""
    stage.round(A0, A1, weight=1e-7)
    estimator, updater = stage.workers()
    stage.through(estimator, CommitSource)
    stage.through(updater, Publish)
    stage.correct("round-voided", round_id="round-1")
    stage.turns(estimator, updater)
    stage.seed(A0, C0)
    stage.turns(estimator)
    stage.until(updater, Publish)
    stage.replace(updater)
