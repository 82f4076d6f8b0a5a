"""An estimator's belief cache, and several rounds of a player in a call: mutants, scenarios."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any
from unittest.mock import patch

import numpy as np

from stream_rater.columns import player_map
from stream_rater.columns.arrays import Flags, Ints
from stream_rater.columns.player_map import Fingerprints
from stream_rater.columns.strings import StringColumn
from stream_rater.pipeline.estimator.estimation import PendingRounds
from stream_rater.pipeline.estimator.estimator import Estimator
from stream_rater.pipeline.estimator.priors import CACHE_BYTES, BeliefCache, PriorsRead
from stream_rater.pipeline.estimator.progress import LONGEST_IN_FLIGHT_S, InFlightWindow, Progress
from stream_rater.pipeline.parts.schema import Part
from stream_rater.pipeline.ports import CommitSource, Publish, Scatter, Seek, Step, StoredShard
from stream_rater.pipeline.updater import changes
from stream_rater.pipeline.updater.rating_events import Events
from stream_rater.pipeline.updater.shard import ShardBatch
from stream_rater.pipeline.updater.updater import Updater
from stream_rater.rating import record
from stream_rater.rating.model import NEVER, Beliefs

from .actors import Actor
from .estimating import Unacknowledged
from .game import ONE_SET
from .registry import altered, catches, nothing, within
from .stage import A0, A1, A2, B0, B1, B2, C0, C1, C2, NEVER_HEARS, Stage


class EarlierRowsUnnoted(Updater):
    """Step 12 without notes of a player's earlier rows: step 11 has one prior for each player."""

    def _build_events_again(
        self, number: int, call: ShardBatch, stored: StoredShard
    ) -> Events | None:
        shard = self._shards[number]
        if stored.position == shard.position:
            fresh, size = shard.position.fresh, (len(call.rows) + 7) // 8
            shard.position = replace(shard.position, fresh=fresh[:size] + bytes(len(fresh) - size))
            stored = StoredShard(shard.position, stored.records)
        return super()._build_events_again(number, call, stored)


@catches("earlier-rows-unnoted", "notes of a call's earlier rows", EarlierRowsUnnoted)
def updater_dies_after_a_call_with_a_player_thrice(stage: Stage) -> None:
    """Three rounds of the same players are applied in a call; its updater dies before events."""
    for _ in range(3):
        stage.round(A0, A1)
    estimator = stage.estimator()
    for _ in range(3):
        stage.through(estimator, Scatter)
    first = stage.updater()
    stage.until(first, Publish)
    stage.replace(first)


def _all_by_the_belief(which: Ints, offset: Ints, last: Ints) -> tuple[Flags, Ints]:
    """Compares all rows of a call with the belief before it."""
    fresh = offset > last[which]
    turn = [np.count_nonzero(which[:i][fresh[:i]] == who) for i, who in enumerate(which)]
    return fresh, np.array(turn, np.int64)


@catches(
    "fresh-by-the-first", "fresh by the rows before",
    within(Updater, "_compute", changes, "fresh_rows", _all_by_the_belief),
)  # fmt: skip
def part_that_is_replayed_with_its_repetition(stage: Stage) -> None:
    """An estimator dies while it sends parts, and its successor sends the round again. Both parts
    of one player are applied, lost, and applied again in one call."""
    updater = stage.half_sent(A0, A1)
    successor = stage.estimator()
    stage.turns(successor)
    stage.through(updater, Publish)
    stage.store.roll_back(0, 2)


@catches(
    "cached-after-loss", "cached beliefs dropped with a partition",
    within(Estimator, "_drop", BeliefCache, "clear", nothing),
)  # fmt: skip
def partition_that_comes_back(stage: Stage) -> None:
    """An estimator loses a partition, another one rates a round, and the first has it again."""
    first, updater = stage.rated(A0, A1)
    second = stage.estimator()
    stage.turns(first)
    stage.round(A0, A1)
    stage.turns(second, updater)
    stage.log.estimators.assign([first.driver])
    stage.turns(second)
    stage.round(A0, A1)
    stage.turns(first)


@catches(
    "cached-from-before", "cached beliefs of the last round only",
    within(Estimator, "_done_with", BeliefCache, "drop", nothing),
)  # fmt: skip
def large_round_between_two_small_ones(stage: Stage) -> None:
    """No belief is cached after the large round; then a small one comes."""
    estimator, updater = stage.rated(A0, A1)
    stage.round(A0, A1, A2)
    stage.turns(estimator, updater)
    stage.round(A0, A1)


class CachedWithoutTheRound(Estimator):
    def _cache_beliefs(self, sent: PendingRounds, part: Part, beliefs: Beliefs | None) -> None:
        if beliefs is not None:
            data, starts = record.encode_all(beliefs)
            self._belief_cache.put(sent, StringColumn(data, starts[:-1], starts[1:]))


@catches("cached-without-the-round", "cached beliefs with the round", CachedWithoutTheRound)
def rounds_in_a_row(stage: Stage) -> None:
    """Each round is rated by the beliefs after the rounds before it."""
    estimator, _ = stage.rated(A0, A1)
    for _ in range(3):
        stage.round(A0, A1)
    for _ in range(3):
        stage.through(estimator, Scatter)


class NoCapAShard(Estimator):
    """Step 6 that bounds the rows in flight of all shards together, and not those of each."""

    def _forget_everything(self) -> None:
        super()._forget_everything()
        self._progress = Progress(self._shards, most_rows=2**60)
        self._in_flight = InFlightWindow(self._progress, LONGEST_IN_FLIGHT_S)

    def _is_sending_paused(self) -> bool:
        return self._progress.rows > self._rows_in_flight or super()._is_sending_paused()


@catches("no-cap-a-shard", "a bound on rows in flight by shard", NoCapAShard, stuck=True)
def shard_that_stands_still(stage: Stage) -> None:
    """A shard without an updater has rounds all the time. Rounds of other shards are rated."""
    stage.rows_in_flight = 4
    for _ in range(6):
        stage.round(A2, B2)
    estimator, updater = stage.estimator(), stage.updater(0, 1)
    stage.turns(estimator)
    stage.round(A0, A1)
    stage.turns(estimator, updater)
    stage.must_have_rated(A0, A1)
    stage.updater(2)


def keeping_cached(is_kept: Callable[[Fingerprints | None], bool]) -> type[Estimator]:
    """Step 6 that keeps beliefs that it should drop. `is_kept`: of which players (None: of all)."""

    def drop_cached(self: Estimator, ladder: str, players: Fingerprints | None) -> None:
        if not is_kept(players):
            Estimator._drop_cached(self, ladder, players)

    return altered(Estimator, _drop_cached=drop_cached)


@catches(
    "cached-through-correction", "no cache over corrections",
    keeping_cached(lambda players: players is None),
)  # fmt: skip
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


@catches(
    "cached-through-seed", "no cache over a seed",
    keeping_cached(lambda players: players is not None),
)  # fmt: skip
def player_is_reset_while_the_belief_is_cached(stage: Stage) -> None:
    """The next round begins with the belief after the reset."""
    estimator, _ = stage.rated(A0, A1)
    stage.reset(A0, mu=1200.0)
    stage.turns(estimator)
    stage.round(A0, A1)
    stage.turns(estimator)


class CachedThroughResume(Estimator):
    def _resume(self, resumed: PendingRounds) -> Step[None]:
        with patch.object(self._belief_cache, "drop"):
            yield from super()._resume(resumed)


@catches("cached-through-resume", "no cache over a resumed round", CachedThroughResume)
def zombie_sends_on_beside_a_cache(stage: Stage) -> None:
    """An estimator has cached one of two players. A zombie sends a round of both, and another round
    of the other. The estimator finds these, and then the cached player has a round."""
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
    """An estimator that cannot commit, since a round waits for shard 2; an updater of 0 and 1."""
    stage.round(A2, B2)
    estimator, updater = stage.estimator(), stage.updater(0, 1)
    stage.through(estimator, CommitSource)
    stage.round(A2, B2, C2)
    stage.turns(estimator)
    return estimator, updater


class CachedBeforeAcknowledged(Unacknowledged):
    """Step 6 that caches beliefs once the parts of the first shard are acknowledged."""

    def _send(self, ready: PendingRounds, rows: Ints | slice, read: PriorsRead) -> Step[None]:
        yield from super()._send(ready, rows, read)
        part = self._estimate(ready, read.headers[rows])
        self._cache_beliefs(ready, part, read.beliefs_at(rows))


@catches("cached-before-acknowledged", "cached once acknowledged", CachedBeforeAcknowledged)
def part_overtaken_by_a_round_of_a_cached_player(stage: Stage) -> None:
    """One part of a round is unsent when the other player's next is sent; the estimator dies."""
    estimator, updater = _behind_a_large_round(stage)
    stage.round(A0, A1)
    stage.through(estimator, Scatter)
    stage.round(A0, B0)
    stage.through(estimator, Scatter)
    stage.turns(updater)
    stage.crash(estimator)
    stage.workers()


class EvictedNotPending(Estimator):
    """Step 6 that forgets the pending part of a player together with the cached belief."""

    def _cache_beliefs(self, sent: PendingRounds, part: Part, beliefs: Beliefs | None) -> None:
        super()._cache_beliefs(sent, part, beliefs)
        for parts in self._progress._in_flight:
            for end, players in parts:
                gone = players[~self._belief_cache.may_contain(players)]
                self._progress._pending.forget(gone, np.full(len(gone), end))


@catches("evicted-not-pending", "pending parts of evicted beliefs", EvictedNotPending)
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


class DrawnInPlace(Estimator):
    """Step 6 whose stage 1 draws the beliefs that stage 2 begins with."""

    def _read_wave(self, wave: PendingRounds) -> Step[PriorsRead]:
        read = yield from super()._read_wave(wave)
        return read if read.beliefs is None else read._replace(headers=read.beliefs.header)


@catches("drawn-in-place", "cached beliefs copied for the draw", DrawnInPlace)
def season_begins_while_beliefs_are_cached(stage: Stage) -> None:
    """The next rounds begin with drawn beliefs, and with their factors drawn, too."""
    estimator, updater = stage.rated(A0, A1)
    stage.correct("season-started", season=1, keep=0.5, sigma=150.0)
    stage.turns(estimator, updater)
    for _ in range(3):
        stage.round(A0, A1)
        stage.turns(estimator)


class UpdatedTwice(Estimator):
    def _cache_beliefs(self, sent: PendingRounds, part: Part, beliefs: Beliefs | None) -> None:
        if beliefs is not None:
            beliefs.header["last"] = NEVER
        super()._cache_beliefs(sent, part, beliefs)


@catches("updated-twice", "a cached belief with the round once in it", UpdatedTwice)
def round_is_sent_again_and_cached(stage: Stage) -> None:
    """One part of a round is applied when the successor sends the round again and caches the
    beliefs. Then the same players have another round."""
    stage.half_sent(A0, A1)
    stage.round(A0, A1)
    stage.turns(stage.estimator())


class CachedByFingerprint(Estimator):
    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._belief_cache._names = _without_ids  # type: ignore[method-assign]


def _without_ids(pending: PendingRounds) -> StringColumn:
    return StringColumn.of_bytes([b""] * pending.count)


@catches("cached-by-fingerprint", "ids behind cached fingerprints", CachedByFingerprint)
def two_players_with_one_fingerprint(stage: Stage) -> None:
    """Of two players of a shard, one has played. Then the other plays."""
    whole = player_map.fingerprints
    kept = player_map.IN_SHARD | player_map.TAKEN
    with patch.object(player_map, "fingerprints", lambda *given: whole(*given) & kept):
        estimator, updater = stage.rated(A0, A1)
        stage.round(B0, B1)
        stage.turns(estimator, updater, estimator)


class TableTakenOver(Estimator):
    shared: BeliefCache | None = None

    def _forget_everything(self) -> None:
        kind = type(self)
        if kind.shared is None:
            kind.shared = altered(BeliefCache, clear=nothing)(CACHE_BYTES)
        self._belief_cache = kind.shared
        super()._forget_everything()


@catches("table-taken-over", "a cache of its own for each estimator", TableTakenOver)
def zombie_caches_on(stage: Stage) -> None:
    """A zombie's parts are acknowledged after its successor has rated the next round."""
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
