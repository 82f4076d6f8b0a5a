"""Workers on one simulated log and store, a random one taking the next atomic step, with faults.

Everything random comes from the seed. A step is one atomic piece of one effect: the append of one
part, the compare-and-set on one shard, the send or the end of a transaction. Between any two, others
may run, and this worker may die, sleep through a rebalance and go on as a zombie, or be told that
the call failed although it happened, or that it failed and did not.
"""

import random
from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Any

from stream_rater.adapters.memory import Group, Log, Store, Worker, estimator_worker, updater_worker
from stream_rater.pipeline.estimator import Estimator
from stream_rater.pipeline.ports import Effect, LogTrouble, Position, StoreTrouble, Trouble
from stream_rater.pipeline.updater import Updater

from . import oracle
from .scenario import LADDERS, PARTITIONS, SHARDS, submissions

WINDOW = 12
"""Small, so that duplicates beyond it happen too."""

QUIET_STEPS = 60_000
"""After the last fault everything must be done within so many steps; else something is stuck."""


@dataclass(frozen=True)
class Faults:
    """Chances per step."""

    crash: float = 0.004
    sleep: float = 0.003
    rebalance: float = 0.003
    roll_back: float = 0.002
    fail: float = 0.004


@dataclass(eq=False)
class Actor:
    """One machine of one worker."""

    role: str
    worker: Worker
    machine: Generator[Effect[Any], Any, Any]
    steps: Generator[None, None, Any]
    asleep: bool = False


class StoreWithPast(Store):
    """Remembers each shard's past states, so that writes can be taken back."""

    def __init__(self) -> None:
        super().__init__()
        self.past: dict[int, list[tuple[Position | None, dict[Any, bytes]]]] = {}

    def apply(self, shard: int, position: Position, beliefs: Any) -> bool:
        before = (self.positions.get(shard), dict(self.beliefs.get(shard, {})))
        done = super().apply(shard, position, beliefs)
        if done:
            self.past.setdefault(shard, []).append(before)
        return done

    def roll_back(self, shard: int, calls: int) -> None:
        """Take the last calls on a shard back, as a failover to a lagging replica does."""
        past = self.past.get(shard, [])
        for _ in range(min(calls, len(past))):
            position, beliefs = past.pop()
            self.positions.pop(shard, None)
            if position is not None:
                self.positions[shard] = position
            self.beliefs[shard] = beliefs


class Simulation:
    """One seed's world."""

    def __init__(
        self,
        seed: int,
        *,
        faults: Faults = Faults(),
        rounds: int = 30,
        estimator: Callable[[], Estimator] | None = None,
        updater: Callable[[], Updater] | None = None,
    ) -> None:
        self.rng = random.Random(seed)
        self.faults = faults
        self.log = Log(PARTITIONS, SHARDS)
        self.store = StoreWithPast()
        self.to_submit = submissions(self.rng, rounds)[::-1]
        self.now_s = 0.0
        self.actors: list[Actor] = []
        self._new_estimator = estimator or (
            lambda: Estimator(LADDERS, SHARDS, window=WINDOW, wave_players=self.rng.choice([4, 50]))
        )
        self._new_updater = updater or Updater
        for _ in range(2):
            self._start("estimator")
            self._start("updater")
        self._rebalance()

    def _group(self, role: str) -> Group:
        return self.log.estimators if role == "estimator" else self.log.updaters

    def _start(self, role: str) -> None:
        if role == "estimator":
            worker = estimator_worker(self.log, self.store)
            machine = self._new_estimator().run()
        else:
            worker = updater_worker(self.log, self.store)
            machine = self._new_updater().run()
        self.actors.append(Actor(role, worker, machine, worker.steps(next(machine))))

    def _rebalance(self) -> None:
        for role in ("estimator", "updater"):
            members = [a.worker for a in self.actors if a.role == role and not a.asleep]
            self.rng.shuffle(members)
            self._group(role).assign(members)

    def run(self) -> list[str]:
        """Rounds and faults, then quiet until all is done; returns the violations."""
        while self.to_submit:
            self._maybe_fault()
            if self.rng.random() < 0.04:
                sent = self.to_submit.pop()
                self.log.submit(sent.partition, sent.value, received_s=1.8e9)
            self._step()
        for _ in range(self.rng.randint(0, 600)):
            self._maybe_fault()
            self._step()
        self._calm_down()
        for _ in range(QUIET_STEPS):
            if self.rng.random() < 0.02 and self._done():
                return oracle.violations(self.log, self.store, WINDOW)
            self._step()
        return ["stuck: " + self._where()]

    def _step(self) -> None:
        self.now_s += 0.02
        awake = [actor for actor in self.actors if not actor.asleep]
        if awake:
            self._advance(self.rng.choice(awake))

    def _advance(self, actor: Actor) -> None:
        actor.worker.now_s = self.now_s
        try:
            next(actor.steps)
        except StopIteration as done:
            actor.steps = actor.worker.steps(actor.machine.send(done.value))
        except Trouble as trouble:
            actor.steps = actor.worker.steps(actor.machine.throw(trouble))

    # --- faults ---

    def _maybe_fault(self) -> None:
        rng, faults = self.rng, self.faults
        if rng.random() < faults.crash:
            self._crash(rng.choice(self.actors))
        if rng.random() < faults.sleep:
            actor = rng.choice(self.actors)
            actor.asleep = not actor.asleep
        if rng.random() < faults.rebalance:
            self._rebalance()
        if rng.random() < faults.roll_back:
            self.store.roll_back(rng.randrange(SHARDS), rng.randint(1, 4))
        if rng.random() < faults.fail:
            self._fail(rng.choice(self.actors))
        if rng.random() < 0.02:
            self._end_orphans()

    def _crash(self, actor: Actor) -> None:
        """Gone, with whatever it was doing half done; another starts in its place."""
        self.actors.remove(actor)
        self._start(actor.role)
        self._rebalance()

    def _fail(self, actor: Actor) -> None:
        """The call in hand fails where it stands: some of it happened, and the worker lives on.

        A transaction whose end is in doubt may be committed all the same, before the next producer
        of this worker fences it.
        """
        if self.rng.random() < 0.5:
            self.log.end(self._group(actor.role), actor.worker.producer, commit=True)
        trouble = self.rng.choice([LogTrouble("simulated"), StoreTrouble("simulated")])
        actor.steps = actor.worker.steps(actor.machine.throw(trouble))

    def _end_orphans(self) -> None:
        """Transactions of producers that are gone end: as sent, late, or by time-out."""
        alive = {actor.worker.producer for actor in self.actors}
        for group in (self.log.estimators, self.log.updaters):
            for producer in [p for p in group.pending if p not in alive]:
                self.log.end(group, producer, commit=self.rng.random() < 0.5)

    def _calm_down(self) -> None:
        self._end_orphans()
        for actor in self.actors:
            actor.asleep = False
        self._rebalance()

    # --- the end ---

    def _done(self) -> bool:
        log, store = self.log, self.store
        return (
            all(log.estimators.committed.get(p, 0) == len(r) for p, r in enumerate(log.rounds))
            and all(log.updaters.committed.get(s, 0) == len(p) for s, p in enumerate(log.parts))
            and all(
                store.positions.get(s, Position()).applied == len(p)
                for s, p in enumerate(log.parts)
            )
        )

    def _where(self) -> str:
        return (
            f"source {self.log.estimators.committed} of {[len(r) for r in self.log.rounds]}, parts"
            f" {self.log.updaters.committed} of {[len(p) for p in self.log.parts]}, applied"
            f" { {s: p.applied for s, p in self.store.positions.items()} }"
        )
