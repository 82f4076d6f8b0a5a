"""Scenarios with an estimator's belief cache, and with several rounds of a player in a call."""

from stream_rater.pipeline.ports import Publish, Scatter

from .registry import catches
from .stage import A0, A1, A2, B2, Stage


@catches("earlier-rows-unnoted")
def updater_dies_after_a_call_with_a_player_thrice(stage: Stage) -> None:
    """Three rounds of the same players are applied in one call, and the updater dies before their
    events are published."""
    for _ in range(3):
        stage.round(A0, A1)
    estimator = stage.estimator()
    for _ in range(3):
        stage.through(estimator, Scatter)
    first = stage.updater()
    stage.until(first, Publish)
    stage.crash(first)
    stage.updater()


@catches("fresh-by-the-first")
def part_that_is_replayed_with_its_repetition(stage: Stage) -> None:
    """An estimator dies while it sends parts, and its successor sends the round again. Both parts
    of one player are applied, lost, and applied again in one call."""
    updater = stage.half_sent(A0, A1)
    successor = stage.estimator()
    stage.turns(successor)
    stage.through(updater, Publish)
    stage.store.roll_back(0, 2)


@catches("cached-after-loss")
def partition_that_comes_back(stage: Stage) -> None:
    """An estimator loses a partition while it caches beliefs. Another rates a round. Then the first
    has the partition again."""
    for _ in range(2):
        stage.round(A0, A1)
    first, _ = stage.estimator(), stage.updater()
    stage.through(first, Scatter)
    second = stage.estimator()
    stage.turns(stage.actors[1])
    stage.turns(first)
    stage.turns(second)
    stage.turns(stage.actors[1])
    stage.turns(second)
    stage.log.estimators.assign([first.driver])
    stage.turns(second)
    stage.round(A0, A1)
    stage.turns(first)


@catches("cached-from-before")
def player_whose_next_round_blocks_nobody(stage: Stage) -> None:
    """A belief is cached for the second round, and not after it; then a third comes."""
    for _ in range(2):
        stage.round(A0, A1)
    estimator, _ = stage.estimator(), stage.updater()
    stage.turns(estimator)
    stage.round(A0, A1)


@catches("cached-without-the-round")
def rounds_in_a_row(stage: Stage) -> None:
    """Each round is rated by the beliefs after the rounds before it."""
    estimator, _ = stage.rated(A0, A1)
    for _ in range(3):
        stage.round(A0, A1)
    for _ in range(3):
        stage.through(estimator, Scatter)


@catches("no-cap-a-shard")
def shard_that_stands_still(stage: Stage) -> None:
    """A shard has no updater, and its players go on playing. The rounds of other shards are rated
    all the same."""
    stage.rows_in_flight = 4
    for _ in range(6):
        stage.round(A2, B2)
    estimator, updater = stage.estimator(), stage.updater(0, 1)
    stage.turns(estimator)
    stage.round(A0, A1)
    stage.turns(estimator)
    stage.turns(updater)
    stage.must_have_rated(A0, A1)
    stage.updater(2)
