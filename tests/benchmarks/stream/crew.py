"""Worker processes that share the work of one run."""

import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import msgspec

from stream_rater.adapters.kafka.topics import Admin
from stream_rater.config.settings import Settings
from stream_rater.contract.events import ESTIMATORS, UPDATERS
from tests.benchmarks.stream.ground import Ground, processor_s, send
from tests.benchmarks.stream.rounds import Round, Workload, up_to, updates_of
from tests.integration.processes import THIS_RELEASE, WorkerProcess, samples, wait_until
from tests.integration.processes import workers as started_workers
from tests.integration.topics import Finished

LOOK_EVERY_S = 0.25
STEP = 200_000  # So many updates are sent and rated at a time.


class Program(NamedTuple):
    """What the workers run: the service, or something in its place."""

    module: str = THIS_RELEASE
    variables: Mapping[str, str] = MappingProxyType({})
    groups: Sequence[str] = (ESTIMATORS, UPDATERS)  # Consumer groups that its processes join.
    roles: bool = True  # Whether a process with a role joins the group of that role only.


@dataclass
class Crew:
    settings: Settings
    program: Program
    start: Callable[..., WorkerProcess]
    workers: list[WorkerProcess] = field(default_factory=list)

    def hire(self, name: str) -> WorkerProcess:
        """Start one more worker. With a name, it is a static member; a role may begin the name."""
        settings = msgspec.structs.replace(self.settings, instance_id=name)
        worker = self.start(
            settings, _role(name), ready=False, module=self.program.module,
            **self.program.variables,
        )  # fmt: skip
        self.workers.append(worker)
        return worker

    def replace(self, worker: WorkerProcess, name: str) -> None:
        """Start a worker in the place of one that has ended, and wait until it is ready."""
        self.workers.remove(worker)
        self.hire(name).wait_ready()

    def dismiss(self) -> None:
        """Stop all workers by SIGTERM."""
        for worker in self.workers:
            worker.terminate()
        for worker in self.workers:
            worker.wait()

    def used_s(self) -> float:
        return sum(processor_s(each.pid) for each in self.workers)

    def effects(self) -> Counter[str]:
        """By effect, how many all workers have performed so far. Only the service counts them."""
        counts: Counter[str] = Counter()
        for worker in self.workers if self.program.module == THIS_RELEASE else ():
            for name, labels, count in samples(worker.get("/metrics")[1]):
                if name == "stream_rater_stage_seconds_count":
                    counts[labels["stage"]] += int(count)
        return counts

    def wait_until_joined(self) -> None:
        """Return once every worker, each of another name, owns its share."""
        admin = Admin(self.settings)
        partitions = admin.partitions()
        topics = {ESTIMATORS: admin.topics.rounds, UPDATERS: admin.topics.parts}
        names = [each.settings.instance_id for each in self.workers]

        def joined() -> bool:
            self.check()
            for group in self.program.groups:
                topic = topics[group]
                owners = admin.owners(group, topic)
                members = [name for name in names if self._joins(name, group)]
                apart = min(len(members), partitions[topic])
                if len(owners) < partitions[topic] or len(set(owners.values())) < apart:
                    return False
            return True

        wait_until(joined, "all workers have joined", every_s=LOOK_EVERY_S)

    def _joins(self, name: str, group: str) -> bool:
        return not self.program.roles or _role(name) in ("all", ROLE_OF[group])

    def rate(self, rounds: Iterable[Round]) -> None:
        """Send these rounds, and return once all are rated."""
        send(self.settings, rounds)
        self.wait_until_finished()

    def in_steps(self, updates: int, rounds: Iterator[Round]) -> Iterator[list[Round]]:
        """Rate the first rounds, until so many ratings change. Each step, once it is rated."""
        left = updates
        while left > 0 and (some := up_to(min(STEP, left), rounds)):
            self.rate(some)
            left -= updates_of(some)
            yield some

    def wait_until_finished(self) -> None:
        """Return once all that was sent is rated and published."""
        finished = Finished(self.settings)

        def rated() -> bool:
            self.check()
            return finished()

        wait_until(rated, "all is rated", moves=finished.moves, every_s=LOOK_EVERY_S)

    @contextmanager
    def paused(self) -> Iterator[None]:
        """All workers are stopped in this block: what is sent in it is a backlog."""
        for worker in self.workers:
            worker.pause()
        try:
            yield
        finally:
            for worker in self.workers:
                worker.go_on()

    def check(self) -> None:
        """AssertionError where a worker ended."""
        for worker in self.workers:
            assert worker.running, f"a worker ended:\n{worker.log()[-2000:]}"


@contextmanager
def a_crew(
    ground: Ground, workload: Workload, names: Sequence[str], program: Program, **settings: Any
) -> Iterator[Crew]:
    """Workers of these names, on topics of their own and an empty Redis; all end with the block."""
    at = ground.settings(**settings)
    at = msgspec.structs.replace(at, buckets=workload.buckets(at.shards))
    ground.empty()
    Admin(at).create_topics()
    with started_workers(ground.new_folder()) as start:
        crew = Crew(at, program, start)
        for name in names:
            crew.hire(name)
        yield crew


def a_program(words: Sequence[str], settings: Settings, log: Path) -> WorkerProcess:
    """A program in place of a worker: a module and its arguments."""
    return WorkerProcess(settings, log, command=[sys.executable, "-m", *words])


ROLE_OF = {ESTIMATORS: "estimator", UPDATERS: "updater"}


def _role(name: str) -> str:
    role = name.partition("-")[0]
    return role if role in ROLE_OF.values() else "all"


def names_of(size: str) -> list[str]:
    """Of so many workers; `1+2` are so many estimators and updaters."""
    counts = [int(each) for each in size.split("+")]
    roles = ["worker"] if len(counts) == 1 else list(ROLE_OF.values())
    return [f"{role}-{i}" for role, count in zip(roles, counts, strict=True) for i in range(count)]
