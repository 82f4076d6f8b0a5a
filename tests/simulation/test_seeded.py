"""Seeds and resets, with a crash after each effect of a machine."""

from collections.abc import Callable

import pytest

from stream_rater.pipeline.estimator.progress import PLAYERS_IN_FLIGHT
from stream_rater.pipeline.ports import CommitSource

from .actors import PRODUCTION
from .stage import A0, A1, B0, B1, Stage

EFFECTS = {"estimator": 28, "updater": 28}
"""The number of effects of each machine after which it crashes."""


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


@pytest.mark.parametrize("story", [woken, adjacent])
@pytest.mark.parametrize("role", EFFECTS)
def test_crash_after_each_effect(role: str, story: Callable[[Stage], None]) -> None:
    """Another machine goes on."""
    for effects in range(EFFECTS[role]):
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
        stage.crash(victim)
        stage.estimator() if role == "estimator" else stage.updater()
        assert stage.finish() == [], effects


def test_queue_goes_on_when_the_store_has_applied_enough() -> None:
    """More rows than may be in flight are sent, and nothing but the queue waits: no round makes the
    estimator look at the store."""
    stage = Stage(PRODUCTION)
    stage.seed(A0, *(f"p{number}" for number in range(2 * PLAYERS_IN_FLIGHT)))
    stage.reset(A0)
    stage.correct("round-voided", round_id="round-1")
    stage.estimator()
    stage.updater()
    assert stage.finish() == []
