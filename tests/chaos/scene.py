"""Servers, workers under a supervisor, and a season: where a fault is played."""

import sys
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
from tests.chaos.crew import Crew, Violation
from tests.chaos.season import Season
from tests.integration.processes import stream_rater, wait_until
from tests.integration.processes import workers as started_workers

AT_ONCE = 400
"""Rounds of eight that wait when something breaks: a second's work or so."""
CATCH_UP_S = 300.0
VERIFY_S = 300.0
TOLD = 5
"""How many of many mistakes."""


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """A line of the table."""

    fault: str
    injected: int
    rebalances: int
    """Changes of what a worker that went on had a share in."""
    updates: int
    lost: int
    doubled: int
    wrong: int
    """Changes told out of order, under another id, or with other numbers than those due."""
    ended_themselves: dict[str, int]
    """How many workers did, by the reason they gave."""
    recoveries: int
    """How many were measured."""
    longest_s: float
    """From the end of a fault until all rounds sent before were rated, the longest of these."""


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
    moved_before: int = 0
    """Shares that moved before the first fault, when the workers came."""
    recoveries_s: list[float] = field(default_factory=list)

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
        self.inject()
        yield
        self.recover()

    def inject(self) -> None:
        """Count a fault."""
        if not self.injected:
            self.moved_before = self.crew.rebalances()
        self.injected += 1

    def recover(self, mend: Callable[[], None] = lambda: None) -> None:
        """Mend what does not mend itself, wait until all that was sent is rated, and remember how
        long both took."""
        began_s = time.monotonic()
        mend()
        self.await_rated()
        self.recoveries_s.append(time.monotonic() - began_s)

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
        self.crew.check_ends(self.injected)
        found = self.season.tally()
        for mistake in found.mistakes[:TOLD]:
            sys.stderr.write(f"{self.name}: {mistake}\n")
        return Outcome(
            fault=self.name, injected=self.injected,
            rebalances=self.crew.rebalances() - self.moved_before,
            updates=self.season.updates, lost=found.lost, doubled=found.doubled,
            wrong=len(found.mistakes), ended_themselves=dict(self.crew.ended),
            recoveries=len(self.recoveries_s), longest_s=round(max(self.recoveries_s), 2),
        )  # fmt: skip


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
