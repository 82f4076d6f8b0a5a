"""Simulates workers on one log and store with faults. Everything random comes from a seed.

A random worker takes the next atomic step: a piece of an effect, which is the append of one part,
the compare-and-set on one shard, or one request of a transaction. Between two steps, other workers
run. The worker may die, or sleep through a rebalance and continue as a zombie. Its call may fail
although the change happened, or will happen: requests of a failed call may arrive late."""

import math
import random
import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

from stream_rater.adapters.local_driver import Group
from stream_rater.adapters.memory import Log
from stream_rater.columns.kernels import KERNEL_VERSION
from stream_rater.config.ladders import Ladders
from stream_rater.contract.errors import LogTrouble, StoreTrouble
from stream_rater.pipeline.estimator.estimator import Estimator
from stream_rater.pipeline.observer import Observer
from stream_rater.pipeline.updater.updater import Updater

from . import game, oracle, recovery
from .actors import NEXT_KERNEL, PRODUCTION, Actor, Machines, Straggler, Watch, upgraded
from .faults import Faults, overtaken
from .transitions import PartitionWatch, ShardWatch, Taken
from .world import StoreWithPast, Unkindness

WINDOW = 12  # a small window, so that duplicates beyond it happen, too


class Fork(NamedTuple):
    """From this step on, another seed decides."""

    step: int
    seed: int


class Simulation:
    def __init__(
        self, seed: int, machines: Machines = PRODUCTION, *,
        trace: Callable[[str], None] | None = None, taken: set[Taken] | None = None,
        forks: Sequence[Fork] = (),
    ) -> None:  # fmt: skip
        """`taken` gets the transitions between states that the machines take."""
        self.rng = random.Random(seed)
        self.rejects_per_second, self.machines = 0.1 if seed % 4 == 0 else 0.0, machines
        self.cache_bytes = game.CACHE_BYTES[seed // 4 % len(game.CACHE_BYTES)]
        self._trace = trace
        self.weather = game.Weather(self.rng)
        self.once = game.SHARDS - (seed % 2 == 0)  # the number of shards at the start
        self.log = Log(game.PARTITIONS, self.once)
        self.store = StoreWithPast(self.rng, self.weather.stale)
        self.store.unkept, self.store.luck = 0.2 if seed % 3 == 0 else 0.0, random.Random(seed)
        self.faults: Faults = self.store.faults
        self.to_submit = game.submissions(self.rng, self.weather)[::-1]
        self.patience = game.Patience(self.rng, self.weather.patience)
        self.doubt, self.now_s = self.weather.doubt, 0.0
        bounds = random.Random(f"bounds of {seed}")
        self.estimator_cache: int = bounds.choice([0, *2 * [game.ONE_SET], *3 * [2**20]])
        """The memory of the estimators' caches."""
        self.rows_in_flight: int = bounds.choice([0, 0, 3])
        """The most rows of a shard that an estimator has in flight; 0: as in production."""
        self.watch = Watch()
        self.taken: set[Taken] = set() if taken is None else taken
        """The transitions between states that the machines have taken."""
        self._forks = {each.step: each.seed for each in forks}
        self.steps = 0  # the steps that were taken while there were faults
        self.upgrading = False  # whether workers now start with the next release and file
        self.actors: list[Actor] = []
        self.stragglers: list[Straggler] = []
        self.tears = random.Random(f"tears of {seed}") if seed % 3 == 2 else None
        """Decides whether the log loses rounds when the store does; the rest happens as without."""
        self.saved: dict[int, int] = {}  # offsets that Kafka forgot
        self._start_all()

    def _start_all(self) -> None:
        for _ in range(self.weather.workers):
            self._start("estimator")
            self._start("updater")
        self._rebalance()

    def _group(self, role: str) -> Group:
        return self.log.estimators if role == "estimator" else self.log.updaters

    def _start(self, role: str) -> None:
        estimating = role == "estimator"
        source = self.log.rounds if estimating else self.log.parts
        driver = self.machines.driver(
            self.log, self.store, self._group(role), source, self.rng,
            Unkindness(self.weather.small_bites, self.weather.deaf, self.weather.stutter),
        )  # fmt: skip
        states = PartitionWatch(self.taken) if estimating else ShardWatch(self.taken, self.watch)
        if isinstance(states, ShardWatch):
            states.updater = self._updater(states)
            machine: Any = states.updater.run()
        else:
            machine = self._estimator(states).run()
        effect = next(machine)
        steps = driver.steps(effect)
        actor = Actor(role, driver, machine, effect, steps, states, pace=self._pace())
        actor.old = not self.upgrading
        actor.skew_s = self.rng.uniform(0.0, 1e6)
        self.actors.append(actor)

    def _pace(self) -> float:
        pace = self.rng.choice(self.weather.paces)
        self.faults["slow"] += pace < 1.0
        return pace

    def _estimator(self, observer: Observer) -> Estimator:
        kind = self.machines.estimator
        return (upgraded(kind) if self.upgrading else kind)(
            self.ladders, len(self.log.parts), game.PARTITIONS, window=WINDOW,
            rejects_per_second=self.rejects_per_second,
            wave_players=self.weather.wave_players, rows_per_part=self.weather.rows_per_part,
            commit_every_s=self.weather.commit_every_s,
            checkpoint_every=self.weather.checkpoint_every, observer=observer,
            cache_bytes=self.estimator_cache, rows_in_flight=self.rows_in_flight,
        )  # fmt: skip

    def _updater(self, observer: Observer) -> Updater:
        return self.machines.updater(
            len(self.log.parts), rows_per_call=self.weather.rows_per_call,
            cache_bytes=self.cache_bytes, observer=observer,
            kernel=NEXT_KERNEL if self.upgrading else KERNEL_VERSION,
        )  # fmt: skip

    @property
    def ladders(self) -> Ladders:
        """The newest ladders file."""
        return game.CHANGED if self.upgrading else game.LADDERS

    def _rebalance(self) -> None:
        self.faults["rebalance"] += self.log.updaters.generation > 0
        for role in ("estimator", "updater"):
            members = [a.driver for a in self.actors if a.role == role and a.pace]
            self.rng.shuffle(members)
            self._group(role).assign(members)

    def run(self) -> list[str]:
        """Run rounds and faults, then no faults until all is finished. Returns the violations."""
        while self.to_submit:
            self._maybe_fault()
            if not self.patience.waits(self.log) and self.rng.random() < self.weather.submit:
                self._submit()
            self._step()
        for _ in range(self.rng.randint(0, 1500)):
            self._maybe_fault()
            self._step()
        self._end_faults()
        done = self._becomes_done()
        if self.watch.to_rebuild:
            self._recover()
            self._end_faults()
            done = self._becomes_done()
        self.faults["reordered"] += overtaken(self.log)
        if not done:
            return ["stuck: " + oracle.where(self.log, self.store)]
        outcome = self.log, self.store, self.ladders, WINDOW, self.once
        rebuilt = not {"wipe", "vanished"}.isdisjoint(self.faults)
        torn = self.faults["torn"] > 0
        found = oracle.violations(*outcome, rebuilt=rebuilt, torn=torn, traces=not torn)
        return found if torn else found + self.watch.false_refusals

    def _submit(self) -> None:
        number = self.weather.rounds - len(self.to_submit)
        sent, received_s = self.to_submit.pop(), game.arrival_s(self.rng, number)
        self._upgrade_in_time(sent.partition)
        self.log.submit(sent.partition, sent.value, sent.headers, received_s)
        if sent.fault:
            self.faults[sent.fault] += 1
        self.patience.after(sent)
        self.faults["early"] += received_s < game.START_S

    def _becomes_done(self) -> bool:
        """Whether all gets finished and stays so. It is not if a shard asks for a rebuild."""
        was_done, asked = False, 0
        for _ in range(game.QUIET_EFFECTS // game.STILL_EFFECTS):
            is_done = oracle.is_done(self.log, self.store)
            if is_done and was_done:
                return True
            was_done = is_done
            asked = asked + 1 if self.watch.to_rebuild else 0
            if asked == game.ASKED:
                return False
            for _ in range(game.STILL_EFFECTS):
                actor = self.rng.choice(self.actors)
                self._tick(actor)
                actor.perform()
                if actor.ended:
                    self._start_again(actor)
        return False

    def _tick(self, actor: Actor) -> None:
        self.now_s += 0.02
        actor.driver.now_s = self.now_s + actor.skew_s

    def _step(self) -> None:
        self.steps += 1
        if self.steps in self._forks:
            self.rng.seed(self._forks[self.steps])
        actor = self.actors[int(self.rng.random() * len(self.actors))]
        if actor.ended:
            self._start_again(actor)
            return
        self._tick(actor)
        if actor.pace == 1.0 or self.rng.random() < actor.pace:
            if self._trace:
                self._trace(f"{actor} {actor.parts_done} {actor.effect!s:.200}")
            actor.advance()
            self._let_end_in(actor)
            if self.doubt and actor.ending and self.rng.random() < self.doubt:
                self._fail(actor)

    # --- faults ---

    def _maybe_fault(self) -> None:
        chance = self.rng.random()
        for name, likely in self.weather.faults:
            chance -= likely
            if chance < 0.0:
                if self._trace:
                    self._trace(f"--- {name}")
                (getattr(self, f"_{name}", None) or getattr(self.store, name))()
                return

    def _victim(self) -> Actor:
        """A random actor: half of the time one that is writing, where a fault does most harm."""
        if self.rng.random() < 0.5:
            writing = [actor for actor in self.actors if actor.writing]
            if writing:
                return self.rng.choice(writing)
        return self.rng.choice(self.actors)

    def _crash(self) -> None:
        """Kill a worker in the middle of its effect, and start another in its place."""
        actor = self._victim()
        self.faults["crash"] += 1
        self._straggle(actor)
        self.actors.remove(actor)
        self._start(actor.role)
        self.faults["mixed"] += self.upgrading and any(each.old for each in self.actors)
        self._rebalance()

    def _start_again(self, actor: Actor) -> None:
        """Replace a worker whose process has ended by itself."""
        self.faults["ended"] += 1
        recovery.restore_offsets(self.log, self.saved)
        self.actors.remove(actor)
        self._start(actor.role)
        self._rebalance()

    def _sleep_or_wake(self) -> None:
        """Begin or end a worker's long pause. The others go on, and may or may not notice it."""
        actor = self.rng.choice(self.actors)
        self.faults["pause"] += actor.pace > 0.0
        self.faults["zombie"] += actor.pace == 0.0 and actor.unaware
        actor.pace = 0.0 if actor.pace else self._pace()

    def _jump(self) -> None:
        """Set a worker's clock forward, as no monotonic clock should be."""
        ahead_s = self.rng.choice([-10.0, -1.0, 1.0, 10.0, 1000.0])
        self.faults["jump-ahead" if ahead_s > 0.0 else "jump-back"] += 1
        self.rng.choice(self.actors).skew_s += ahead_s

    def _fail(self, actor: Actor | None = None) -> None:
        """Let the current call fail. Part of it happened, and the worker lives on."""
        actor = actor or self._victim()
        self.faults["doubt" if actor.ending else "fail"] += 1
        self._straggle(actor)
        trouble = self.rng.choice([LogTrouble("simulated"), StoreTrouble("simulated")])
        actor.fail(trouble)

    def _straggle(self, actor: Actor) -> None:
        if actor.sent and self.rng.random() < 0.5:
            self.stragglers.append(Straggler.of(actor))

    def _arrive(self) -> None:
        """Let one more request of a failed call arrive, or lose all that are left: most often while
        its sender is at its next write, or while a transaction is open that it may end."""
        if self.stragglers:
            straggler = self.rng.choice(self.stragglers)
            hurts = straggler.fault if straggler.ends is not None else straggler.sender.writing
            if hurts or self.rng.random() < 0.3:
                self._let_in(straggler)

    def _let_in(self, straggler: Straggler) -> None:
        if straggler.fault:
            self.faults[straggler.fault] += 1
        if not straggler.arrive() or self.rng.random() < 0.2:
            self.stragglers.remove(straggler)

    def _let_end_in(self, sender: Actor) -> None:
        """Let the late end of a transaction arrive during its worker's next transaction, often."""
        for straggler in tuple(self.stragglers):
            into_the_next = straggler.sender is sender and straggler.fault == "into-the-next"
            if into_the_next and self.rng.random() < 0.3:
                self._let_in(straggler)

    def _time_out(self) -> None:
        """Let the coordinator abort a transaction that takes too long, and fence its producer."""
        group = self.rng.choice([self.log.estimators, self.log.updaters])
        if group.transactions:
            self.faults["aborted"] += 1
            self.log.fence(group, self.rng.choice(sorted(group.transactions)))

    def _roll_back(self) -> None:
        self.store.roll_back_some(range(len(self.log.parts)))

    def _lose(self) -> None:
        """Let shards lose their store during work, or return to before a rebuild. Those that do
        not fit the log are refused, and no operator helps until the faults end."""
        self.store.lose_some(range(len(self.log.parts)))

    def _wipe(self) -> None:
        """Lose the store and rebuild it, and sometimes lose it again at once."""
        self.faults["wipe"] += 1
        self._recover()
        if self.rng.random() < 0.3:
            self._lose()

    def _recover(self) -> None:
        """Stop all workers but a paused one that is overlooked, perhaps delete old parts, rebuild
        the store (sometimes at the second attempt, or for more shards), and start workers."""
        many = 2 if len(self.log.parts) < game.SHARDS else self.rng.choice([0, 0, 1])
        overlooked = self.rng.sample(self.actors, min(len(self.actors), many))
        for actor in self.actors:
            if actor not in overlooked:
                self._straggle(actor)
        self.actors = overlooked
        for actor in self.actors:
            actor.pace = 0.0
        for group in (self.log.estimators, self.log.updaters):
            group.assign([])
            for producer in sorted(group.transactions):
                self.log.fence(group, producer)
        self.store.wipe()
        if days_passed := self.rng.random() < 0.25:
            self.stragglers, self.actors = [], []
            recovery.expire(self.log, self.rng)
        if self.rng.random() < 0.5:
            self._add_shards()
        if self.tears is not None and not overlooked:
            self._tear(self.tears)
        if self.rng.random() < 0.3:
            with suppress(recovery.GivenUp):
                self._rebuild(steps=self.rng.randrange(5))
        self._rebuild()
        self.watch.to_rebuild.clear()
        if days_passed:
            recovery.forget_offsets(self.log, self.faults, self.saved)
        self._start_all()

    def _tear(self, luck: random.Random) -> None:
        """Lose the last rounds of a partition, some of them finished. Others may take their
        offsets before anybody notices, and the lost ones are reported again."""
        recovery.restore_offsets(self.log, self.saved)
        p = luck.randrange(game.PARTITIONS)
        done, records = self.log.estimators.committed.get(p, 0), self.log.rounds[p]
        if not done or luck.random() < 0.3 or (p == 0 and not self.upgrading):
            return
        self.faults["torn"] += 1
        self.stragglers = []
        kept = done - luck.randint(1, done)
        lost = [game.Submission(p, each.value or b"", each.headers) for each in records[kept:]]
        del records[kept:]
        luck.shuffle(lost)
        again = [each for each in lost if each.value and luck.random() < 0.7]
        self.to_submit[:0] = again[::-1]
        self.weather.rounds += len(again)
        for _ in range(luck.choice([0, 0, 1, 3, 30])):
            if len(self.to_submit) > 1:
                self._submit()
        if not recovery.has_lost(self.log, p):  # what took the place of the last finished one is it
            del records[done - 1 :]

    def _add_shards(self) -> None:
        """Add shards, if they are not all there yet and nothing waits."""
        committed = self.log.updaters.committed
        if all(committed.get(s, 0) == len(parts) for s, parts in enumerate(self.log.parts)):
            self.faults["resharded"] += len(self.log.parts) < game.SHARDS
            self.log.add_shards(game.SHARDS - len(self.log.parts))

    def _rebuild(self, steps: float = math.inf) -> None:
        recovery.restore_offsets(self.log, self.saved)
        recovery.rebuild(self.log, self.store, self.ladders, WINDOW, self.machines, steps)

    def _upgrade(self) -> None:
        """Begin a rolling upgrade: start a worker with the new file."""
        game.announced(self.log)
        self.upgrading = True

    def _upgrade_in_time(self, partition: int) -> None:
        """Announce a change before the log reaches its offset, or not at all."""
        first = game.CHANGED.ladders["a"].changes[0].from_offset
        if not self.upgrading and partition == 0 and len(self.log.rounds[0]) >= first:
            self._upgrade()

    def _litter(self) -> None:
        """Write foreign messages into the parts' topic."""
        self.faults["litter"] += 1
        self.log.append_part(
            self.rng.randrange(len(self.log.parts)), self.rng.choice([b"", b"{}", b"litter"])
        )

    def _end_faults(self) -> None:
        self.store.stale = self.doubt = 0.0
        self.store.vanishing = False
        while self.stragglers:
            self._arrive()
        gone = [each for each in self.actors if each.ended or (self.upgrading and each.old)]
        for actor in gone:
            self.actors.remove(actor)
            self._start(actor.role)
        alive = {actor.driver.producer for actor in self.actors}
        for group in (self.log.estimators, self.log.updaters):
            for producer in [p for p in group.transactions if p not in alive]:
                self.log.fence(group, producer)
        for actor in self.actors:
            actor.pace = 1.0
            actor.driver.unkindness = Unkindness(self.weather.small_bites)
        self._rebalance()


class Outcome(NamedTuple):
    violations: list[str]  # the violations; or the exception, if the seed raised one
    faults: Faults  # the faults that happened
    taken: set[Taken]  # the transitions between states that the machines took


def outcome_of(
    seed: int, machines: Machines = PRODUCTION, *, trace: list[str] | None = None
) -> Outcome:
    simulation = Simulation(seed, machines, trace=None if trace is None else trace.append)
    try:
        found = simulation.run()
    except Exception as error:
        found = [f"raised {error!r}"]
    return Outcome(found, simulation.faults, simulation.taken)


def replay_command(seed: int) -> str:
    return f".venv/bin/python -m tests.simulation {seed}"


def without_addresses(line: str) -> str:
    """A line of the trace. Encoded corrections are shown by their addresses."""
    return re.sub(r"object at 0x[0-9a-f]+", "object", line)
