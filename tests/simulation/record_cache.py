"""The updater's cache of records: scenarios, and mutants with one rule left out."""

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from stream_rater.columns.arrays import Flags, Ints
from stream_rater.columns.player_column import RecordColumn
from stream_rater.columns.player_map import Fingerprints
from stream_rater.columns.record_table import RecordTable
from stream_rater.columns.strings import StringColumn
from stream_rater.contract.corrections import KINDS
from stream_rater.contract.seeds import SEEDS
from stream_rater.pipeline.ports import Apply, CommitSource, Poll, ReadBeliefs, Step, StoredShard
from stream_rater.pipeline.updater import record_cache
from stream_rater.pipeline.updater.changes import Change
from stream_rater.pipeline.updater.shard import ShardBatch
from stream_rater.pipeline.updater.updater import Updater

from .actors import Actor
from .game import ONE_SET
from .rebuilt import EpochNotCompared, fewer_factors_before
from .registry import altered, catches
from .stage import A0, B0, B1, C0, C1, D0, NEVER_HEARS, Stage, named


def _next_round(stage: Stage, estimator: Actor, updater: Actor, *players: str) -> None:
    """Rate a round by these workers."""
    stage.round(*players)
    stage.through(estimator, CommitSource)
    stage.turns(updater)


# --- what closes a shard drops its records --------------------------------------------------------


class _KeepsOpenings(Updater):
    """Gives the number of a shard's opening to the next one, after it was closed within a step."""

    def __init__(self, shard_count: int, **options: Any) -> None:
        super().__init__(shard_count, **options)
        self.kept: dict[int, int] = {}

    def _open(self) -> Step[None]:
        yield from super()._open()
        for number in self.kept.keys() & self._shards.keys():
            self._shards[number].opening = self.kept.pop(number)


def kept_through(method: str) -> type[Updater]:
    """A shard that is closed within this step drops nothing."""

    def step(self: Any, *given: Any, **options: Any) -> Step[None]:
        before = {number: shard.opening for number, shard in self._shards.items()}
        yield from getattr(Updater, method)(self, *given, **options)
        self.kept |= {s: opening for s, opening in before.items() if s not in self._shards}

    return altered(_KeepsOpenings, **{method: step})


@catches(
    "cache-kept-after-a-failure", "cached records dropped after a failure",
    kept_through("_start_over"),
)  # fmt: skip
def call_that_was_applied_and_failed(stage: Stage) -> None:
    """A call is applied and fails for its worker, which has cached what was before it."""
    estimator, updater = stage.rated(A0, B0)
    stage.sends(estimator, A0, C0)
    stage.until(updater, Apply)
    updater.advance(2)
    stage.fail(updater)
    stage.turns(updater)
    _next_round(stage, estimator, updater, A0, D0)


@catches("cache-kept-over-a-reassignment", "records dropped with a shard", kept_through("_poll"))
def shard_that_comes_back(stage: Stage) -> None:
    """Another worker has a shard for one round. Then the first one has it again."""
    estimator, first = stage.rated(A0, B0)
    second = stage.updater()
    stage.through(first, Poll)
    stage.rates(estimator, second, A0, C0)
    stage.assign(first)
    stage.turns(first)
    _next_round(stage, estimator, first, A0, D0)


@catches("cache-kept-after-a-mismatch", "records dropped after a mismatch", kept_through("_update"))
def store_goes_back_before_a_call(stage: Stage) -> None:
    """The store loses the last call, and refuses the next one, which lacks one of its players."""
    estimator, updater = stage.rated(A0, B0)
    _next_round(stage, estimator, updater, A0, C0)
    stage.sends(estimator, A0, D0)
    stage.until(updater, Apply)
    stage.store.roll_back(0, 1)
    stage.turns(updater)


@catches("cache-kept-over-a-rebuild", "records of the present epoch", EpochNotCompared)
def updater_with_a_cache_stopped_over_a_rebuild(stage: Stage) -> None:
    """As `updater_stopped_over_a_rebuild`, but the updater has its players' records cached."""
    estimator, stopped = stage.rated(B0, A0, C0)
    _next_round(stage, estimator, stopped, B1, A0, C1)
    stage.until(stopped, Poll)
    stage.sends(estimator, A0, B0)
    stopped.driver.unkindness = NEVER_HEARS
    stage.ladders = fewer_factors_before(2)
    stage.rebuild()
    stage.through(stopped, Apply)
    stage.workers()


# --- what is cached -------------------------------------------------------------------------------


def without_those_of(kinds: Collection[str]) -> type[Updater]:
    """What parts of these kinds write is not cached."""

    def compute(self: Any, batch: ShardBatch, stored: Any) -> dict[int, Change]:
        if batch.given is not None and batch.given.cause in kinds:
            self.others |= batch.parts.keys()
        return Updater._compute(self, batch, stored)

    def remember(self: Any, changes: Mapping[int, Change]) -> None:
        Updater._remember(self, {s: each for s, each in changes.items() if s not in self.others})
        self.others = frozenset()

    return altered(Updater, others=frozenset(), _compute=compute, _remember=remember)


@catches(
    "cache-of-a-stale-read", "records read at the expected position",
    altered(Updater, _is_as_expected=lambda *_: True),
)  # fmt: skip
def read_that_was_answered_by_a_replica(stage: Stage) -> None:
    """Nothing is cached. The read shows the state before the last round; the call, the present."""
    estimator, first = stage.rated(A0, B0)
    _next_round(stage, estimator, first, A0, C0)
    second = stage.replace(first)
    stage.turns(second)
    stage.sends(estimator, A0, D0)
    while not _reads(second, A0):
        stage.perform(second)
    present = stage.store.state(0)
    stage.store.roll_back(0, 1)
    stage.perform(second)
    stage.store.put(0, present)


def _reads(updater: Actor, player: str) -> bool:
    """Whether the updater is about to read a player's record."""
    effect = updater.effect
    return isinstance(effect, ReadBeliefs) and any(
        ("a", player) in players for players in effect.players.values()
    )


@catches(
    "cache-without-corrections", "cached records after corrections",
    without_those_of(KINDS),
)  # fmt: skip
def round_after_a_correction(stage: Stage) -> None:
    """A correction changes a player whose record is cached. Then the player has a round."""
    stage.round(A0, B0)
    estimator, updater = stage.rated(A0, C0)
    stage.correct("round-voided", round_id="round-1")
    stage.turns(estimator, updater, estimator)
    _next_round(stage, estimator, updater, A0, D0)


@catches("cache-without-seeds", "cached records after seeds and resets", without_those_of(SEEDS))
def round_after_a_reset(stage: Stage) -> None:
    """A reset changes a player whose record is cached. Then the player has a round."""
    estimator, updater = stage.rated(A0, B0)
    stage.reset(A0, mu=1200.0)
    stage.turns(estimator, updater, estimator)
    _next_round(stage, estimator, updater, A0, D0)


# --- whose record it is ---------------------------------------------------------------------------


def _without_letters(names: StringColumn) -> StringColumn:
    return StringColumn(names.data, names.starts, names.starts)


class _TwoTables(RecordTable):
    """A table in front of another, for new players only: an evicted record's older one is found."""

    def __init__(self, most_bytes: int) -> None:
        super().__init__(most_bytes)
        self._behind = RecordTable(100 * most_bytes)

    def find(
        self, owners: Ints, names: StringColumn, fingerprints: Fingerprints
    ) -> tuple[Flags, StringColumn]:
        in_front, newer = super().find(owners, names, fingerprints)
        behind, older = self._behind.find(owners, names, fingerprints)
        rows = np.flatnonzero(~in_front)
        others = RecordColumn(older, behind).take(rows)
        found = RecordColumn(newer, in_front).replaced(rows, others)
        return found.is_present, found.strings

    def put(
        self, owners: Ints, names: StringColumn, fingerprints: Fingerprints, records: StringColumn
    ) -> None:
        super().put(owners, names, fingerprints, records)
        behind, _ = self._behind.find(owners, names, fingerprints)
        new = np.flatnonzero(~behind)
        self._behind.put(owners[new], names.take(new), fingerprints[new], records.take(new))


def with_table(kind: type[RecordTable]) -> type[Updater]:
    """An updater whose cache has another table."""

    def init(self: Any, shard_count: int, *, cache_bytes: int = 0, **options: Any) -> None:
        Updater.__init__(self, shard_count, cache_bytes=cache_bytes, **options)
        self._cache._table = kind(cache_bytes)

    return altered(Updater, __init__=init)


_nameless = altered(  # a table that finds a record by its fingerprint alone
    RecordTable,
    find=lambda self, owners, names, *others: RecordTable.find(
        self, owners, _without_letters(names), *others
    ),
    put=lambda self, owners, names, *others: RecordTable.put(
        self, owners, _without_letters(names), *others
    ),
)


@catches("cache-by-fingerprint", "cached records by exact ids", with_table(_nameless))
def players_with_one_fingerprint(stage: Stage) -> None:
    """All players have the same fingerprint."""
    stage.instead(record_cache, "fingerprints_of", lambda players: np.ones(len(players), np.uint64))
    estimator, updater = stage.rated(A0, B0)
    _next_round(stage, estimator, updater, A0, B0)


@catches("cache-with-older-copies", "one cached record of a player", with_table(_TwoTables))
def player_who_was_evicted(stage: Stage) -> None:
    """A record was cached twice, and then evicted. Then its player has a round."""
    stage.cache_bytes = ONE_SET
    estimator, updater = stage.rated(A0, B0)
    _next_round(stage, estimator, updater, A0, C0)
    others = [named(letter, 0) for letter in "efghijklmnop"]
    for pair in zip(others[::2], others[1::2], strict=True):
        _next_round(stage, estimator, updater, *pair)
    stage.round(A0, D0)


class AbsencesUncounted(Updater):
    """A call before which nothing was read does not say that it creates no belief."""

    def _compute(self, batch: ShardBatch, stored: Mapping[int, StoredShard]) -> dict[int, Change]:
        changes = super()._compute(batch, stored)
        return {s: replace(each, absent=each.absent or None) for s, each in changes.items()}


@catches("cache-hides-what-vanished", "new beliefs counted without a read", AbsencesUncounted)
def cached_beliefs_vanish(stage: Stage) -> None:
    """As `beliefs_vanish_within_a_call`, but the updater has cached both beliefs."""
    stage.estimator_cache = 0
    estimator, updater = stage.rated(A0, B0)
    _next_round(stage, estimator, updater, A0, C0)
    stage.sends(estimator, A0, C0)
    stage.until(updater, Apply)
    del stage.store.beliefs[0]["a", A0], stage.store.beliefs[0]["a", B0]
    stage.turns(updater)
    stage.rebuild_if_asked()
    stage.round(B0, C0)
