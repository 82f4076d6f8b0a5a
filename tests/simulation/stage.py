"""A stage for directed scenarios: they call every piece of every worker, and nothing is random.
Ladder `a` is in partition 0. Players are named by their shard: A0, B0 are in shard 0, A1 in 1."""

import copy
import math
import random
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from typing import Any, TypeVar
from unittest.mock import patch

import msgspec

from stream_rater.adapters.local_driver import Group
from stream_rater.adapters.memory import Log, Records
from stream_rater.columns.sharding import shards_of
from stream_rater.config.ladders import Ladders
from stream_rater.contract.corrections import EVENT_TYPE
from stream_rater.contract.errors import LogTrouble
from stream_rater.pipeline.ladder_history import LadderContradiction
from stream_rater.pipeline.ports import CommitSource, Effect, Publish, Scatter
from tests.builders.lines import a_round

from . import oracle, recovery
from .actors import Actor, Machines, Straggler, Watch
from .game import CHANGED, LADDERS, PARTITIONS, SHARDS, announced, traced
from .world import StoreWithPast, Unkindness

T = TypeVar("T")

WINDOW = 100
WAVE = 2  # the most players of a wave
MOST_EFFECTS, STILL_EFFECTS = 2000, 100  # To be finished in so many, and stay so for so many.
CACHE_BYTES = 100_000
NEVER_HEARS = Unkindness(deaf=1.0)


class InOrder(random.Random):
    """A generator without chance: it takes first choices, keeps order, avoids the unlikely."""

    def choice(self, seq: Sequence[T]) -> T:  # type: ignore[override]
        return seq[0]

    def sample(self, population: Sequence[T], k: int) -> list[T]:  # type: ignore[override]
        return list(population[:k])

    def random(self) -> float:
        return 0.999


def named(letter: str, shard: int) -> str:
    """The first of letter-0, letter-1, ... that is in the shard."""
    return next(
        name for i in range(1000) if shards_of([name := f"{letter}-{i}"], SHARDS)[0] == shard
    )


A0, B0, C0, D0 = (named(letter, 0) for letter in "abcd")
A1, B1, C1 = (named(letter, 1) for letter in "abc")
A2, B2, C2 = (named(letter, 2) for letter in "abc")


class Stage:
    def __init__(self, machines: Machines) -> None:
        self.machines = machines
        self.begin_with(SHARDS)
        self.store = StoreWithPast(InOrder())
        self.actors: list[Actor] = []
        self.watch = Watch()
        self.ladders = LADDERS  # the newest ladders file
        self.rebuilt = False
        self.log_restored = False
        self.torn = False  # Whether a partition lost records; events are not compared then.
        self._rounds = 0
        self.now_s = 0.0
        self.window = WINDOW
        self.cache_bytes = CACHE_BYTES  # the memory of the cache of updaters that start from now on
        self.patches = ExitStack()  # what `instead` has changed
        self.estimator_cache = 2**20  # the memory of an estimator's cache
        self.rows_in_flight = 0  # the most of a shard in flight; 0: as in production
        self._unrated: list[str] = []  # the violations of `must_have_rated`

    # --- who is there ---

    def _join(self, role: str, group: Group, machine: Any, source: Any) -> Actor:
        driver = self.machines.driver(self.log, self.store, group, source, InOrder(), Unkindness())
        effect = next(machine)
        actor = Actor(role, driver, machine, effect, driver.steps(effect))
        self.actors.append(actor)
        return actor

    def estimator(self) -> Actor:
        machine = self.machines.estimator(
            self.ladders, len(self.log.parts), PARTITIONS, window=self.window, wave_players=WAVE,
            checkpoint_every=1, cache_bytes=self.estimator_cache,
            rows_in_flight=self.rows_in_flight,
        ).run()  # fmt: skip
        actor = self._join("estimator", self.log.estimators, machine, self.log.rounds)
        self.log.estimators.assign([actor.driver])
        return actor

    def updater(self, *shards: int) -> Actor:
        """Start an updater that owns these shards, or else all shards, from now on."""
        machine = self.machines.updater(
            len(self.log.parts), rows_per_call=20_000, cache_bytes=self.cache_bytes,
            observer=self.watch,
        ).run()  # fmt: skip
        actor = self._join("updater", self.log.updaters, machine, self.log.parts)
        self.assign(actor, *shards)
        return actor

    def workers(self) -> tuple[Actor, Actor]:
        return self.estimator(), self.updater()

    def assign(self, updater: Actor, *shards: int) -> None:
        """Assign these (or all) shards to an updater. Workers learn of it at their next polls."""
        group = self.log.updaters
        group.generation += 1
        group.owners |= dict.fromkeys(shards or range(len(self.log.parts)), updater.driver)

    def crash(self, actor: Actor) -> None:
        self.actors.remove(actor)

    def replace(self, actor: Actor) -> Actor:
        """Kill an actor, and start another in its place, which is returned."""
        self.crash(actor)
        return self.estimator() if actor.role == "estimator" else self.updater()

    def instead(self, owner: object, name: str, value: object) -> None:
        """Let a module or class have another value under this name until the end."""
        self.patches.enter_context(patch.object(owner, name, value))

    def announce(self, ladders: Ladders = CHANGED) -> None:
        """Start a worker with a new ladders file. If it starts, later workers have the file."""
        with suppress(LadderContradiction):
            announced(self.log, ladders)
            self.ladders = ladders

    # --- what happens ---

    def expire(self) -> None:
        """Delete parts that are applied and published from the log."""
        for shard, committed in self.log.updaters.committed.items():
            self.log.parts[shard].start = committed

    def copy_of_the_log(self) -> Log:
        """A copy of the log with both groups' offsets, as a backup keeps it."""
        return copy.deepcopy(self.log)

    def restore_log(self, log: Log) -> None:
        """Stop all workers; the log comes back from a copy, and the store does not."""
        self.actors.clear()
        for group in (log.estimators, log.updaters):
            group.owners.clear()
        self.log = log
        self.log_restored = True

    def tear(self, records: Records, count: int) -> None:
        """Elect a replica that has only so many records of a partition. Committed offsets stay."""
        del records[count:]
        self.torn = True

    def rebuild_if_asked(self) -> None:
        """Let an operator do what the workers ask for, then start workers again."""
        if self.watch.to_rebuild or any(each.ended for each in self.actors):
            self.rebuild_and_start()

    def begin_with(self, shards: int) -> None:
        """Begin with this many shards until the first rebuild, as if workers had run before."""
        self.once = shards
        self.log = Log(PARTITIONS, shards)
        self.log.estimators.committed = dict.fromkeys(range(PARTITIONS), 0)
        self.log.updaters.committed = dict.fromkeys(range(shards), 0)

    def rebuild(self, steps: float = math.inf, *, store_lost: bool = True) -> None:
        """Stop all workers, lose the store, and rebuild it, for more shards if there were fewer."""
        self.log.add_shards(SHARDS - len(self.log.parts))
        self.actors.clear()
        for group in (self.log.estimators, self.log.updaters):
            for producer in sorted(group.transactions):
                self.log.fence(group, producer)
        if store_lost:
            self.store.wipe()
        self.rebuilt = True
        self.watch.to_rebuild.clear()
        with suppress(recovery.GivenUp):
            recovery.rebuild(self.log, self.store, self.ladders, self.window, self.machines, steps)

    def rebuild_and_start(self) -> tuple[Actor, Actor]:
        self.rebuild()
        return self.workers()

    def round(
        self, *players: str, round_id: str = "", partition: int = 0, ladder: str = "a",
        **fields: Any,
    ) -> int:  # fmt: skip
        """Report a round of a ladder with the players in this order. Returns its offset."""
        self._rounds += 1
        own_id = round_id or f"round-{self._rounds}"
        line = a_round(self._rounds, *players, ladder=ladder, round_id=own_id, **fields)
        return self.report(msgspec.json.encode(line), partition)

    def report(self, value: bytes, partition: int = 0) -> int:
        """Append a record to round-completed. Returns its offset."""
        return self.log.submit(partition, value, traced(self._rounds), received_s=1.8e9)

    def correct(self, kind: str, ladder: str = "a", **about: Any) -> int:
        """Append a correction, a seed or a reset of a ladder. Returns its offset."""
        headers = [(EVENT_TYPE, kind.encode())]
        value = msgspec.json.encode({"ladder": ladder, **about})
        return self.log.submit(0, value, headers, received_s=1.8e9)

    def seed(self, *players: str, mu: float = 1800.0, round_id: str = "", ladder: str = "a") -> int:
        """Append a seed of these players to a ladder. Returns its offset."""
        rows = [{"player": each, "mu": mu, "sigma": 90.0, "rounds": 5} for each in players]
        return self._give("players-seeded", round_id, ladder=ladder, players=rows)

    def reset(self, player: str, **about: Any) -> int:
        """Append a reset of a player of ladder `a`. Returns its offset."""
        return self._give("player-reset", "", player=player, sigma=200.0, **about)

    def _give(self, kind: str, round_id: str, ladder: str = "a", **about: Any) -> int:
        self._rounds += 1
        own = {"round_id": round_id or f"round-{self._rounds}"}
        at = f"2026-01-{self._rounds:02}T00:00:00Z"
        return self.correct(kind, ladder, **own, at=at, **about)

    def perform(self, actor: Actor) -> None:
        self.now_s += 0.1
        actor.driver.now_s = self.now_s
        actor.perform()

    def until(self, actor: Actor, kind: type[Effect[Any]], **having: Any) -> None:
        """Perform effects until the next one is of this kind with these attributes."""
        for _ in range(MOST_EFFECTS):
            if isinstance(actor.effect, kind) and all(
                bool(getattr(actor.effect, name)) == value for name, value in having.items()
            ):
                return
            self.perform(actor)
        raise AssertionError(f"{actor.role} never comes to {kind.__name__}")

    def through(self, actor: Actor, kind: type[Effect[Any]], **having: Any) -> None:
        """Perform effects up to and including the next one of this kind."""
        self.until(actor, kind, **having)
        self.perform(actor)

    def sends(self, estimator: Actor, *players: str) -> None:
        """Report a round, which this estimator sends and commits."""
        self.round(*players)
        self.through(estimator, CommitSource)

    def rates(self, estimator: Actor, updater: Actor, *players: str) -> None:
        """Rate a round from its report to its events."""
        self.sends(estimator, *players)
        self.through(updater, Publish)

    def sent(self, *players: str) -> tuple[Actor, Actor]:
        """Report a round, which a new estimator sends and commits. Returns it and a new updater."""
        self.round(*players)
        estimator, updater = self.workers()
        self.through(estimator, CommitSource)
        return estimator, updater

    def rated(self, *players: str, times: int = 1) -> tuple[Actor, Actor]:
        """Rate rounds, each by a new estimator and a new updater. Returns the last ones."""
        for _ in range(times):
            estimator, updater = self.sent(*players)
            self.through(updater, Publish)
        return estimator, updater

    def half_sent(self, *players: str) -> Actor:
        """An estimator dies after a round's first part. Returns the updater that applies it."""
        self.round(*players)
        first, updater = self.workers()
        self.until(first, Scatter)
        first.advance(2)
        self.crash(first)
        self.through(updater, Publish)
        return updater

    def turns(self, *actors: Actor, effects: int = 40) -> None:
        """Let these actors, or else all, perform so many effects, one actor after the other."""
        for actor in actors or tuple(self.actors):
            for _ in range(effects):
                self.perform(actor)

    def fail(self, actor: Actor) -> Straggler:
        """Let the current effect fail. Its remaining requests may still arrive."""
        left = Straggler(actor, actor.steps, actor.driver.group)
        actor.fail(LogTrouble("in doubt"))
        return left

    def must_have_rated(self, *players: str) -> None:
        """Count it as a violation if one of these players of ladder `a` has no belief yet."""
        for player in players:
            shard = int(shards_of([player], SHARDS)[0])
            if ("a", player) not in self.store.beliefs.get(shard, {}):
                self._unrated.append(f"stuck: {player} is not rated, though shard {shard} works")

    # --- the end ---

    def finish(self) -> list[str]:
        """Let all actors continue until all is finished. Returns the violations."""
        for actor in self.actors:
            actor.driver.unkindness = Unkindness()
        still = 0
        for _ in range(MOST_EFFECTS):
            for actor in self.actors:
                self.perform(actor)
            still = still + 1 if oracle.is_done(self.log, self.store) else 0
            if still == STILL_EFFECTS:
                break
        if not oracle.is_done(self.log, self.store):
            return ["stuck: " + oracle.where(self.log, self.store)]
        if self._unrated:
            return self._unrated
        found = oracle.violations(
            self.log, self.store, self.ladders, self.window, self.once, rebuilt=self.rebuilt,
            torn=self.torn,
        )  # fmt: skip
        return found if self.log_restored or self.torn else found + self.watch.false_refusals
