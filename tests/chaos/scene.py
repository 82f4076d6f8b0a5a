"""The scene of a fault: servers, workers under a supervisor, and a season of rounds."""

import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import msgspec

from local.redis_node import ADVISED
from local.servers import Server, start_kafka, start_redis
from stream_rater.config.settings import Settings
from tests.brokers import QUICK_FAILOVER
from tests.chaos.crew import Crew, Violation
from tests.chaos.hanging import Hanging, end, find_hanging, is_to_be_committed
from tests.chaos.judging import Recording, asking, check, judge_twice, recording, words_of
from tests.chaos.season import Season, lobbies, seeded
from tests.integration.processes import THIS_RELEASE, stream_rater, wait_until
from tests.integration.processes import workers as started_workers
from tests.real import GROUP_PROTOCOL
from tests.waits import Watch

AT_ONCE = 400  # how many rounds of eight players wait when something breaks: about a second's work
LAST_LINES = 12  # the lines of each worker's log that are shown if a row fails
MOST_MISTAKES = 5  # how many of many mistakes are reported


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """A line of the table of outcomes."""

    fault: str
    injected: int
    rebalances: int = 0  # changes of assignment of workers that continued to run
    updates: int
    lost: int
    doubled: int
    wrong: int  # changes out of order, with another id, or with other numbers than expected
    ended_themselves: dict[str, int] = {}  # workers that ended by themselves, by logged reason
    recoveries: int  # the number of recoveries that were measured
    recovery_s: float  # the longest time from the end of a fault until what was sent is rated
    judged: int = 0  # the changes that the judge, which shares no code with the service, has judged


@dataclass
class Scene:
    name: str
    kafka: list[Server]
    redis: Any  # a Server, or a RedisCluster
    crew: Crew
    season: Season
    recorder: Recording  # what reads along from the first record on, for the judge
    quick: bool = False
    asked: bool = False  # whether the recorder asks an API
    random: Random = field(default_factory=lambda: Random(seeded(7)))
    injected: int = 0
    moved_before: int = 0  # assignments that changed when the workers joined
    recoveries_s: list[float] = field(default_factory=list)

    @property
    def settings(self) -> Settings:
        return self.crew.settings

    def faults(self, count: int) -> Iterator[int]:
        """Inject this many faults, each the body of a loop, with workers at work when it begins."""
        for i in range(self.times(count)):
            self.load()
            with self.fault():
                yield i

    def times(self, count: int) -> int:
        return 1 if self.quick else count

    @contextmanager
    def fault(self) -> Iterator[None]:
        """Inject a fault in the block. Measure from its end until what was sent before is rated."""
        self.inject()
        yield
        self.recover()

    def inject(self) -> None:
        if not self.injected:
            self.moved_before = self.crew.rebalances()
        self.injected += 1

    def recover(self, mend: Callable[[], None] = lambda: None) -> None:
        """Repair what does not recover alone, wait until all is rated, and record the times."""
        began_s = time.monotonic()
        mend()
        self.wait_until_rated()
        self.recoveries_s.append(time.monotonic() - began_s)

    def wait_until_rated(self) -> None:
        def rated() -> bool:
            self.crew.tend()
            return self.season.finished()

        wait_until(
            rated, f"{self.name}: all is rated", moves=self.season.finished.moves, every_s=0.1
        )

    def load(self) -> None:
        """Send rounds, and wait until the workers have begun with them."""
        self.season.play(AT_ONCE)
        self.at_work()

    def at_work(self) -> None:
        """Wait until the workers have begun with what was sent last."""
        before = sum(worker.metric("stream_rater_events_total") for worker in self.crew.workers)

        def begun() -> bool:
            self.crew.tend()
            found = sum(worker.metric("stream_rater_events_total") for worker in self.crew.workers)
            return found > before or self.season.finished()

        wait_until(begun, f"{self.name}: they are at work", every_s=0.02)

    def outcome(self) -> Outcome:
        """The outcome. Raises Violation if `verify` or the judge finds anything wrong."""
        self.wait_until_rated()
        verify(self.name, self.settings, self.crew.module)
        self.crew.check_ends(self.injected)
        found = self.season.tally()
        judged = check(self.name, judge_twice(self.recorder, self.settings), asked=self.asked)
        for mistake in found.mistakes[:MOST_MISTAKES]:
            sys.stderr.write(f"{self.name}: {mistake}\n")
        return Outcome(
            fault=self.name, injected=self.injected,
            rebalances=self.crew.rebalances() - self.moved_before,
            updates=self.season.updates, lost=found.lost, doubled=found.doubled,
            wrong=len(found.mistakes), ended_themselves=dict(self.crew.ended),
            recoveries=len(self.recoveries_s), recovery_s=round(max(self.recoveries_s), 2),
            judged=judged,
        )  # fmt: skip


def verify(name: str, settings: Settings, module: str = THIS_RELEASE) -> None:
    done = stream_rater("verify", "--wait", "60", settings=settings, module=module)
    if done.returncode:
        raise Violation(f"{name}: verify says {done.stdout}{done.stderr}")


def advised_redis(folder: Path) -> Server:
    """A Redis that is set up as the service advises, so that what it wrote outlives a kill."""
    return start_redis(folder, settings=ADVISED)


@contextmanager
def a_scene(
    name: str, folder: Path, quick: bool, rounds: Iterator[dict[str, Any]] | None = None, *,
    workers: int = 2, kafka: Callable[..., Any] = start_kafka,
    redis: Callable[[Path], Any] = advised_redis, named: bool = True,
    season: Callable[..., Season] = Season, redisplayed: Mapping[str, int] = {},
    apis: Sequence[str] = (), module: str = THIS_RELEASE, **settings: Any,
) -> Iterator[Scene]:  # fmt: skip
    """Servers and ready workers for the block. `apis`: addresses where the story starts `serve`.
    `module`: the release of the workers."""
    rounds = rounds or lobbies()
    with ExitStack() as stack:
        store = stack.enter_context(redis(folder / "redis"))
        brokers = stack.enter_context(kafka(folder / "kafka", properties=QUICK_FAILOVER))
        brokers = brokers if isinstance(brokers, list) else [brokers]
        at = Settings(
            kafka=",".join(each.address for each in brokers), redis=store.address,
            http="127.0.0.1:0", shards=6, session_timeout_ms=2000, group_protocol=GROUP_PROTOCOL,
        )  # fmt: skip
        at = msgspec.structs.replace(at, **settings)
        folder.mkdir(parents=True, exist_ok=True)
        crew = Crew(at, stack.enter_context(started_workers(folder)), named, module=module)
        live = folder / "observed.jsonl.gz"
        recorder = stack.enter_context(
            recording(live, "--name", "live", *words_of(at, redisplayed), *asking(apis))
        )
        crew.hire(workers)
        try:
            yield Scene(name, brokers, store, crew, season(at, rounds), recorder, quick, bool(apis))
        except Exception:
            for each in crew.everyone:
                last = each.log().splitlines()[-LAST_LINES:]
                sys.stderr.write("\n".join([f"{name}: worker {each.pid}", *last, ""]))
            raise


class Freed(Outcome, frozen=True, kw_only=True):
    """An outcome with what an operator had to do."""

    freed: int  # the number of hanging transactions that an operator ended


def freed(scene: Scene) -> Iterator[Hanging]:
    """Wait until all is rated. Ends transactions that hang, as was decided, and yields them."""
    kafka = scene.kafka[0].address
    older_s = 2.0 * scene.settings.transaction_timeout_ms / 1000.0
    finished = scene.season.finished
    watch = Watch(f"{scene.name}: all is rated, and no transaction hangs", finished.moves)
    while not finished():
        watch.look()
        scene.crew.tend()
        for each in find_hanging(kafka, older_s):
            commit = is_to_be_committed(kafka, each)
            sys.stderr.write(f"{scene.name}: {each}, to be committed: {commit}\n")
            end(kafka, each, commit=bool(commit))
            yield each
        time.sleep(0.5)
