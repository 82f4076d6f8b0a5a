"""A backlog of rounds, and how long it takes until all of it is rated."""

import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import msgspec

from stream_rater.adapters.topics import Admin
from stream_rater.config import Settings
from stream_rater.pipeline.ports import LogTrouble
from stream_rater.service import ESTIMATORS, UPDATERS
from tests.benchmarks.stream.ground import Ground, processor_s, published, send
from tests.benchmarks.stream.null import SAMPLE, Sample
from tests.benchmarks.stream.rounds import Round, Workload
from tests.integration.processes import THIS_RELEASE, WorkerProcess, wait_until, workers
from tests.integration.topics import Finished

NULL = "tests.benchmarks.stream.null"
"""What runs in the service's place."""
WARM_UP = 20
"""The first of so many parts of the rounds is rated before the time counts."""
START_S, RUN_S = 60.0, 600.0
LOOK_EVERY_S = 0.25


@dataclass(frozen=True)
class Run:
    """What was measured."""

    updates: int
    seconds: float
    processor_us: dict[str, float]
    """Per update: of all workers together, of Redis, of the broker."""
    memory: float
    """Bytes of Redis a player."""
    players: int
    sample: Sample
    """What its events look like."""

    @property
    def rate(self) -> float:
        """Updates a second."""
        return self.updates / self.seconds


def null(sample: Sample, folder: Path) -> Callable[..., Run]:
    """As `measured`, of the null pipeline."""
    path = folder / "sample.json"
    path.write_bytes(msgspec.json.encode(sample))
    return partial(measured, module=NULL, **{SAMPLE: str(path)})


def measured(
    ground: Ground, workload: Workload, rounds: Sequence[Round], count: int,
    module: str = THIS_RELEASE, **variables: str,
) -> Run:  # fmt: skip
    """Rate these rounds by so many processes."""
    settings = ground.settings()
    settings = msgspec.structs.replace(settings, buckets=workload.buckets(settings.shards))
    Admin(settings).create_topics()
    ground.empty()
    empty = ground.memory()
    with workers(ground.new_folder()) as start:
        crew = [
            start(_named(settings, f"worker-{i}"), ready=False, module=module, **variables)
            for i in range(count)
        ]
        warm = max(1, len(rounds) // WARM_UP)
        await_joined(settings, crew)
        send(settings, rounds[:warm])
        await_finished(settings, crew)
        seconds, used_s = _timed(ground, settings, crew, rounds[warm:])
    due = Counter(key for each in rounds for key in each.due())
    found = published(settings)
    if wrong := found.wrong(due):
        raise AssertionError(f"{workload.name}: {wrong}")
    updates = sum(len(each.players) for each in rounds[warm:])
    per_update = {who: used / updates * 1e6 for who, used in used_s.items()}
    memory = (ground.memory() - empty) / len(due)
    return Run(updates, found.last_s - seconds, per_update, memory, len(due), found.sample)


def _timed(
    ground: Ground, settings: Settings, crew: Sequence[WorkerProcess], rounds: Sequence[Round]
) -> tuple[float, dict[str, float]]:
    """When it began (Unix seconds), and the seconds of processor time that it took."""
    for worker in crew:
        worker.pause()
    send(settings, rounds)
    before = _used_s(ground, crew)
    began_s = time.time()
    for worker in crew:
        worker.go_on()
    await_finished(settings, crew)
    after = _used_s(ground, crew)
    return began_s, {who: after[who] - before[who] for who in after}


def _named(settings: Settings, name: str) -> Settings:
    return msgspec.structs.replace(settings, instance_id=name)


def _used_s(ground: Ground, crew: Sequence[WorkerProcess]) -> dict[str, float]:
    return {"workers": sum(processor_s(each.pid) for each in crew), **ground.servers_s()}


def await_joined(settings: Settings, crew: Sequence[WorkerProcess]) -> None:
    """Return once every worker owns its share of both topics."""
    admin = Admin(settings)
    partitions = admin.partitions()
    topics = ((ESTIMATORS, admin.topics.rounds), (UPDATERS, admin.topics.parts))

    def joined() -> bool:
        _check(crew)
        owners = [admin.owners(group, topic) for group, topic in topics]
        return all(
            len(owned) == partitions[topic]
            and len(set(owned.values())) == min(len(crew), partitions[topic])
            for owned, (_, topic) in zip(owners, topics, strict=True)
        )

    wait_until(joined, "all workers have joined", START_S, LOOK_EVERY_S)


def await_finished(settings: Settings, crew: Sequence[WorkerProcess]) -> None:
    """Return once all that was sent is rated and published."""
    finished = Finished(settings)

    def rated() -> bool:
        _check(crew)
        return finished()

    wait_until(rated, "all is rated", RUN_S, LOOK_EVERY_S)


def _check(crew: Sequence[WorkerProcess]) -> None:
    for worker in crew:
        if not worker.running:
            raise LogTrouble(f"a worker ended:\n{worker.log()[-2000:]}")
