"""Scenarios with an estimator's belief cache, and with several rounds of a player in a call."""

from unittest.mock import patch

from stream_rater.columns import player_map
from stream_rater.pipeline.ports import CommitSource, Publish, Scatter, Seek

from . import estimator_mutants as stage_1
from . import updater_mutants as stage_2
from .actors import Actor
from .registry import catches
from .simulator import ONE_SET
from .stage import A0, A1, A2, B0, B1, B2, C0, C1, C2, NEVER_HEARS, Stage


@catches("earlier-rows-unnoted", "notes of a call's earlier rows", stage_2.EarlierRowsUnnoted)
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
    stage.replace(first)


@catches("fresh-by-the-first", "fresh by the rows before", stage_2.FreshByTheFirst)
def part_that_is_replayed_with_its_repetition(stage: Stage) -> None:
    """An estimator dies while it sends parts, and its successor sends the round again. Both parts
    of one player are applied, lost, and applied again in one call."""
    updater = stage.half_sent(A0, A1)
    successor = stage.estimator()
    stage.turns(successor)
    stage.through(updater, Publish)
    stage.store.roll_back(0, 2)


@catches("cached-after-loss", "cached beliefs dropped with a partition", stage_1.CachedAfterLoss)
def partition_that_comes_back(stage: Stage) -> None:
    """An estimator loses a partition while it caches beliefs. Another rates a round. Then the first
    has the partition again."""
    first, updater = stage.rated(A0, A1)
    second = stage.estimator()
    stage.turns(first)
    stage.round(A0, A1)
    stage.turns(second, updater)
    stage.log.estimators.assign([first.driver])
    stage.turns(second)
    stage.round(A0, A1)
    stage.turns(first)


@catches("cached-from-before", "cached beliefs of the last round only", stage_1.CachedFromBefore)
def large_round_between_two_small_ones(stage: Stage) -> None:
    """No belief is cached after the large round; then a small one comes."""
    estimator, updater = stage.rated(A0, A1)
    stage.round(A0, A1, A2)
    stage.turns(estimator, updater)
    stage.round(A0, A1)


@catches("cached-without-the-round", "cached beliefs with the round", stage_1.CachedWithoutTheRound)
def rounds_in_a_row(stage: Stage) -> None:
    """Each round is rated by the beliefs after the rounds before it."""
    estimator, _ = stage.rated(A0, A1)
    for _ in range(3):
        stage.round(A0, A1)
    for _ in range(3):
        stage.through(estimator, Scatter)


@catches("no-cap-a-shard", "a bound on rows in flight by shard", stage_1.NoCapAShard, stuck=True)
def shard_that_stands_still(stage: Stage) -> None:
    """A shard has no updater, and its players go on playing. The rounds of other shards are rated
    all the same."""
    stage.rows_in_flight = 4
    for _ in range(6):
        stage.round(A2, B2)
    estimator, updater = stage.estimator(), stage.updater(0, 1)
    stage.turns(estimator)
    stage.round(A0, A1)
    stage.turns(estimator, updater)
    stage.must_have_rated(A0, A1)
    stage.updater(2)


@catches("cached-through-correction", "no cache over corrections", stage_1.CachedThroughCorrection)
def round_is_voided_while_beliefs_are_cached(stage: Stage) -> None:
    """The next round begins with the corrected beliefs."""
    stage.round(A0, A1, round_id="wrong")
    stage.round(A1, A0)
    estimator, updater = stage.workers()
    stage.turns(estimator, updater)
    stage.correct("round-voided", round_id="wrong")
    stage.turns(estimator)
    stage.round(A0, A1)
    stage.turns(estimator)


@catches("cached-through-seed", "no cache over a seed", stage_1.CachedThroughSeed)
def player_is_reset_while_the_belief_is_cached(stage: Stage) -> None:
    """The next round begins with the belief after the reset."""
    estimator, _ = stage.rated(A0, A1)
    stage.reset(A0, mu=1200.0)
    stage.turns(estimator)
    stage.round(A0, A1)
    stage.turns(estimator)


@catches("cached-through-resume", "no cache over a resumed round", stage_1.CachedThroughResume)
def zombie_sends_on_beside_a_cache(stage: Stage) -> None:
    """An estimator has cached one of two players. A zombie has sent the two's round and a later one
    of the other. The first finds that, and then the cached player has another round."""
    zombie, updater = _behind_a_large_round(stage)
    zombie.driver.unkindness = NEVER_HEARS
    successor = stage.estimator()
    stage.round(A0, C0)
    stage.through(successor, Seek)
    stage.through(successor, Scatter)
    stage.through(updater, Publish)
    stage.through(zombie, Scatter)
    stage.round(A0, A1)
    stage.round(A1, B1)
    stage.through(zombie, Scatter)
    stage.through(zombie, Scatter)
    stage.through(updater, Publish)
    stage.turns(successor, updater)
    stage.round(A0, C1)
    stage.turns(successor)
    stage.crash(zombie)
    stage.updater()


def _behind_a_large_round(stage: Stage) -> tuple[Actor, Actor]:
    """An estimator, and an updater of shards 0 and 1. Nothing can be committed, because a large
    round waits for shard 2, which has no updater yet."""
    stage.round(A2, B2)
    estimator, updater = stage.estimator(), stage.updater(0, 1)
    stage.through(estimator, CommitSource)
    stage.round(A2, B2, C2)
    stage.turns(estimator)
    return estimator, updater


@catches("cached-before-acknowledged", "cached once acknowledged", stage_1.CachedBeforeAcknowledged)
def part_overtaken_by_a_round_of_a_cached_player(stage: Stage) -> None:
    """A part of one round is unsent when the next round of the other player is sent. Then the
    estimator dies."""
    estimator, updater = _behind_a_large_round(stage)
    stage.round(A0, A1)
    stage.through(estimator, Scatter)
    stage.round(A0, B0)
    stage.through(estimator, Scatter)
    stage.turns(updater)
    stage.crash(estimator)
    stage.workers()


@catches("evicted-not-pending", "pending parts of evicted beliefs", stage_1.EvictedNotPending)
def belief_is_evicted_before_it_is_applied(stage: Stage) -> None:
    """More players are rated than the cache has room for. Then the first of them play again."""
    stage.estimator_cache = ONE_SET
    estimator = stage.estimator()
    for pair in ((A0, A1), (B0, B1), (C0, C1), (A2, B2), (f"{A0}x", f"{A1}x")):
        stage.round(*pair)
    stage.turns(estimator, effects=80)
    stage.round(A0, A1)
    stage.turns(estimator)
    stage.updater()


@catches("drawn-in-place", "cached beliefs copied for the draw", stage_1.DrawnInPlace)
def season_begins_while_beliefs_are_cached(stage: Stage) -> None:
    """The next rounds begin with drawn beliefs, and with their factors drawn, too."""
    estimator, updater = stage.rated(A0, A1)
    stage.correct("season-started", season=1, keep=0.5, sigma=150.0)
    stage.turns(estimator, updater)
    for _ in range(3):
        stage.round(A0, A1)
        stage.turns(estimator)


@catches("updated-twice", "a cached belief with the round once in it", stage_1.UpdatedTwice)
def round_is_sent_again_and_cached(stage: Stage) -> None:
    """One part of a round is applied when the successor sends the round again. It caches the
    beliefs, and then the same players have another round."""
    stage.half_sent(A0, A1)
    stage.round(A0, A1)
    stage.turns(stage.estimator())


@catches("cached-by-fingerprint", "ids behind cached fingerprints", stage_1.CachedByFingerprint)
def two_players_with_one_fingerprint(stage: Stage) -> None:
    """Of two players of a shard, one has played. Then the other plays."""
    whole = player_map.fingerprints
    kept = player_map.IN_SHARD | player_map.TAKEN
    with patch.object(player_map, "fingerprints", lambda *given: whole(*given) & kept):
        estimator, updater = stage.rated(A0, A1)
        stage.round(B0, B1)
        stage.turns(estimator, updater, estimator)


@catches("table-taken-over", "a cache of its own for each estimator", stage_1.TableTakenOver)
def zombie_caches_on(stage: Stage) -> None:
    """An estimator hears that its parts are acknowledged when its successor has already rated the
    next round."""
    zombie, updater = stage.rated(A0, A1)
    stage.round(A0, A1)
    stage.until(zombie, Scatter)
    while len(stage.log.parts[0]) < 2 or len(stage.log.parts[1]) < 2:
        zombie.advance()
    successor = stage.estimator()
    stage.turns(successor, updater, successor)
    stage.round(A0, A1)
    stage.turns(successor, updater)
    stage.perform(zombie)
    stage.round(A0, A1)
    stage.turns(successor)
    stage.crash(zombie)
