"""Servers, workers under a supervisor, and a season: where a fault is played."""

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import msgspec

from local.servers import Server, start_kafka, start_redis
from stream_rater.config import Settings
from tests.chaos.season import Season
from tests.integration.processes import THIS_RELEASE, WorkerProcess, stream_rater, wait_until
from tests.integration.processes import workers as started_workers

AT_ONCE = 400
"""Rounds of eight that wait when something breaks: a second's work or so."""
CATCH_UP_S = 300.0
VERIFY_S = 300.0


class Violation(Exception):
    """What was promised and does not hold."""


class Outcome(msgspec.Struct, frozen=True):
    """A line of the table."""

    fault: str
    injected: int
    updates: int
    lost: int
    doubled: int
    recovery_s: float
    """From the end of the fault until all rounds sent before were rated, the longest."""


@dataclass
class Crew:
    """Workers, each started again under its name when it is gone, as an orchestrator would."""

    settings: Settings
    start: Callable[..., WorkerProcess]
    named: bool = True
    """Without names nobody knows that one comes back: it is another member of the groups."""
    workers: list[WorkerProcess] = field(default_factory=list)
    ended: int = 0
    """How many ended by themselves; a worker may, with one line that says why."""
    module: str = THIS_RELEASE

    def hire(self, count: int) -> None:
        """So many more, all ready when this returns."""
        fresh = [self._one(f"worker-{number}" if self.named else "") for number in range(count)]
        for worker in fresh:
            worker.wait_ready()

    def _one(self, name: str) -> WorkerProcess:
        settings = msgspec.structs.replace(self.settings, instance_id=name)
        worker = self.start(settings, ready=False, module=self.module)
        self.workers.append(worker)
        return worker

    def replace(self, worker: WorkerProcess) -> WorkerProcess:
        """Another one in the place of one that is gone."""
        self.workers.remove(worker)
        return self._one(worker.settings.instance_id)

    def tend(self) -> None:
        """Start again who ended; Violation if one did so with a traceback."""
        for worker in [each for each in self.workers if not each.running]:
            if "Traceback" in worker.log():
                raise Violation(f"a worker ended with a traceback:\n{worker.log()[-2000:]}")
            self.ended += 1
            self.replace(worker)

    def dismiss(self) -> None:
        """All leave as asked."""
        for worker in self.workers:
            worker.terminate()
        for worker in self.workers:
            worker.wait()
        self.workers.clear()


@dataclass
class Scene:
    """Where a fault is played."""

    name: str
    kafka: list[Server]
    redis: Any
    """A Server, or a RedisCluster."""
    crew: Crew
    season: Season
    quick: bool = False
    random: Random = field(default_factory=lambda: Random(7))
    injected: int = 0
    recovery_s: float = 0.0

    @property
    def settings(self) -> Settings:
        """What the workers that are started now are told."""
        return self.crew.settings

    def faults(self, count: int) -> Iterator[int]:
        """So many faults, each the body of a loop, with workers at work when it begins."""
        for i in range(self.times(count)):
            self.season.play(AT_ONCE)
            self.at_work()
            with self.fault():
                yield i

    def times(self, count: int) -> int:
        """How often to do what is usually done `count` times."""
        return 1 if self.quick else count

    @contextmanager
    def fault(self) -> Iterator[None]:
        """A fault, and how long it takes from its end until what was sent before is rated."""
        self.injected += 1
        yield
        self.recover()

    def recover(self) -> None:
        """Wait until all that was sent is rated, and remember how long that took."""
        began_s = time.monotonic()
        self.await_rated()
        self.recovery_s = max(self.recovery_s, time.monotonic() - began_s)

    def await_rated(self) -> None:
        """Return once all that was sent is rated and published."""

        def rated() -> bool:
            self.crew.tend()
            return self.season.finished()

        wait_until(rated, f"{self.name}: all is rated", CATCH_UP_S, 0.1)

    def at_work(self) -> None:
        """Return once the workers have begun with what was sent last."""
        before = sum(worker.metric("stream_rater_events_total") for worker in self.crew.workers)

        def begun() -> bool:
            self.crew.tend()
            found = sum(worker.metric("stream_rater_events_total") for worker in self.crew.workers)
            return found > before or self.season.finished()

        wait_until(begun, f"{self.name}: they are at work", CATCH_UP_S, 0.02)

    def outcome(self) -> Outcome:
        """What came of it; Violation where `verify` finds a difference."""
        self.await_rated()
        verified = stream_rater(
            "verify", "--wait", "60", settings=self.settings, timeout_s=VERIFY_S,
            module=self.crew.module,
        )  # fmt: skip
        if verified.returncode:
            raise Violation(f"{self.name}: verify says {verified.stdout}{verified.stderr}")
        lost, doubled = self.season.lost_and_doubled()
        return Outcome(
            self.name, self.injected, self.season.updates, lost, doubled, round(self.recovery_s, 2)
        )


@contextmanager
def a_scene(
    name: str, folder: Path, rounds: Iterator[dict[str, Any]], *, workers: int = 1,
    kafka: Callable[[Path], Any] = start_kafka, redis: Callable[[Path], Any] = start_redis,
    quick: bool = False, named: bool = True, **settings: Any,
) -> Iterator[Scene]:  # fmt: skip
    """New servers and ready workers; all gone at the end of the block."""
    with ExitStack() as stack:
        store = stack.enter_context(redis(folder / "redis"))
        brokers = stack.enter_context(kafka(folder / "kafka"))
        brokers = brokers if isinstance(brokers, list) else [brokers]
        at = Settings(
            kafka=",".join(each.address for each in brokers),
            redis=store.address,
            http="127.0.0.1:0",
            shards=6,
            session_timeout_ms=2000,
        )
        at = msgspec.structs.replace(at, **settings)
        folder.mkdir(parents=True, exist_ok=True)
        crew = Crew(at, stack.enter_context(started_workers(folder)), named)
        crew.hire(workers)
        yield Scene(name, brokers, store, crew, Season(at, rounds), quick)
