"""Seeds and resets, with a crash after each effect of a machine."""

from collections.abc import Callable

import msgspec
import pytest

from stream_rater.pipeline.estimator.progress import READ_AHEAD
from stream_rater.pipeline.ports import CommitSource
from tests.builders.lines import a_round

from .actors import PRODUCTION
from .game import CHANGED
from .stage import A0, A1, A2, B0, B1, B2, C0, C1, WAVE, Stage

EFFECTS = {"estimator": 28, "updater": 28}  # of each machine, after which it crashes


def woken(stage: Stage) -> None:
    """A seed changes nothing, because its player has a round. Then this round is voided."""
    stage.seed(A0, B0)
    stage.correct("round-voided", round_id="round-1")
    stage.round(A0, B1)


def adjacent(stage: Stage) -> None:
    """Two seeds, one player in both; then resets."""
    stage.seed(B0, B1, mu=1700.0)
    stage.seed(A0, B0, mu=1900.0)
    stage.reset(A0, mu=1300.0)
    stage.reset(A1)
    stage.round(A0, B0)


def resent(stage: Stage) -> None:
    """A seed and a reset change nothing. Then their players have rounds."""
    stage.seed(A0)
    stage.reset(B0)
    stage.round(A0, B0)
    stage.round(B0, A1)


def merged(stage: Stage) -> None:
    """Of two players who stand in one seed, one becomes the other, and plays on."""
    stage.seed(B0, B1, C0, mu=1700.0)
    stage.correct("player-merged", player=B1, into=B0)
    stage.round(B1, A0)
    stage.seed(B1, C1)


def removed(stage: Stage) -> None:
    """A player is removed from rounds, and the next seed counts; then from seeds, too."""
    stage.correct("player-removed", player=A0, until="2026-01-02T00:00:00Z")
    stage.seed(A0, mu=1900.0)
    stage.correct("player-removed", player=A0, until="2026-01-03T00:00:00Z", seed=True)
    stage.seed(A0, mu=1200.0)
    stage.round(A0, A1)


STORIES: dict[Callable[[Stage], None], int] = {
    woken: 1, adjacent: 1, resent: 3, merged: 3, removed: 3,
}  # fmt: skip
"""By story, the step between the numbers of effects after which the machine crashes."""


@pytest.mark.parametrize("role", EFFECTS)
def test_crash_after_each_effect(role: str) -> None:
    """Another machine goes on, in each story."""
    wrong = [
        f"{story.__name__} after {effects}: {found[0]}"
        for story, every in STORIES.items()
        for effects in range(0, EFFECTS[role], every)
        if (found := crashed(story, role, effects))
    ]
    assert wrong == []


def crashed(story: Callable[[Stage], None], role: str, effects: int) -> list[str]:
    """The violations after a machine crashed in a story after so many effects."""
    stage = Stage(PRODUCTION)
    estimator, updater = stage.rated(A0, A1)
    story(stage)
    victim = estimator if role == "estimator" else updater
    if role == "updater":
        stage.through(estimator, CommitSource)
    for _ in range(effects):
        stage.perform(victim)
        if role == "estimator" and effects % 2:
            stage.perform(updater)
    stage.replace(victim)
    return stage.finish()


def test_seed_behind_a_round_of_its_player() -> None:
    """Two seeds wait. A round between them has the second one's player: it must come first."""
    stage = Stage(PRODUCTION)
    stage.seed(A0)
    stage.round(B0, B1)
    stage.seed(B0)
    stage.workers()
    assert stage.finish() == []


def test_seeds_on_both_sides_of_a_change_of_parameters() -> None:
    """The second of two seeds is at the offset of new parameters. Each is rated by its own."""
    stage = Stage(PRODUCTION)
    stage.announce()
    for _ in range(CHANGED.ladders["a"].changes[0].from_offset - 1):
        stage.round(A0, A1)
    stage.seed(B0)
    stage.seed(C0, C1)
    stage.workers()
    stage.round(B0, C0, C1)
    assert stage.finish() == []


def test_queue_goes_on_when_the_store_has_applied_enough() -> None:
    """More rows are sent than may be in flight. No round makes the estimator read the store."""
    stage = Stage(PRODUCTION)
    stage.rows_in_flight = 4
    stage.seed(A0, *(f"p{number}" for number in range(40)))
    stage.reset(A0)
    stage.correct("round-voided", round_id="round-1")
    stage.workers()
    assert stage.finish() == []


def test_other_partitions_go_on_while_seeds_wait() -> None:
    """Seeds wait behind a round for a shard without an updater. Only their partition stops."""
    stage = Stage(PRODUCTION)
    stage.estimator_cache = 0
    stage.round(A2, B2)
    estimator, updater = stage.estimator(), stage.updater(0, 1)
    stage.turns(estimator)
    stage.round(A2, B2)
    for number in range(2):
        stage.seed(*(f"p{number}-{each}" for each in range(2 * READ_AHEAD * WAVE)))
    stage.turns(estimator)
    unread = stage.round(A0, B0)
    for number in range(3):
        stage.turns(updater)
        stage.report(msgspec.json.encode(a_round(number, A0, A1, ladder="d")), partition=1)
        stage.turns(estimator)
    committed = stage.log.estimators.committed
    assert (committed[0], committed[1]) == (1, 3)
    assert estimator.driver._reading[0] == unread
    stage.updater(2)
    assert stage.finish() == []
