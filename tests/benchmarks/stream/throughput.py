"""A backlog of rounds, and how long it takes until all of it is rated."""

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from stream_rater.config.settings import Settings
from stream_rater.contract.events import ESTIMATORS
from tests.benchmarks.lab.peers import PEERS
from tests.benchmarks.measure import ROOT, Result, Skipped, result
from tests.benchmarks.stream.crew import Crew, Program, a_crew, names_of
from tests.benchmarks.stream.ground import Ground, published, send
from tests.benchmarks.stream.null import MODEL, Cuts, Model, Sample
from tests.benchmarks.stream.rounds import Round, Workload, updates_of
from tests.benchmarks.stream.steps import FILE

WARM_UP = 20  # A part of the rounds, one in so many, is rated before time counts.
SERVICE = Program()


@dataclass(frozen=True)
class Run:
    rounds: int
    updates: int
    seconds: float
    processor_us: dict[str, float]  # An update's: of all workers, of Redis, of the broker.
    memory: float  # Bytes of Redis a player.
    players: int
    messages: Mapping[str, int]  # Parts, and ends of transactions in the partitions of events.
    redis_busy: float  # The part of the time that the busiest Redis was at work.
    shards: int
    sample: Sample  # What its events look like.
    cuts: Cuts | None  # Sizes of the service's groups; None for others.

    @property
    def note(self) -> str:
        return f"{self.updates} updates of {self.players} players in {self.seconds:.2f} s"

    @property
    def rate(self) -> float:
        return self.updates / self.seconds

    @property
    def all_us(self) -> float:
        """All CPU time per update: the figure that other work on the machine changes least."""
        return sum(self.processor_us.values())


def null(sample: Sample, cuts: Cuts | None, folder: Path) -> Program:
    """The null pipeline with such events. `cuts`: sizes of groups; None: as a poll returns them."""
    path = folder / "model.json"
    path.write_bytes(msgspec.json.encode(Model(sample, cuts)))
    return Program("tests.benchmarks.stream.null", {MODEL: str(path)})


def other(release: Path) -> dict[str, str]:
    """Variables by which programs use the service in another folder, and all else of this one."""
    alone = ROOT / "build" / f"release-{release.name}"
    alone.mkdir(parents=True, exist_ok=True)
    (alone / "stream_rater").unlink(missing_ok=True)
    (alone / "stream_rater").symlink_to((release / "stream_rater").resolve())
    tools = f"{ROOT / 'deploy'}:{ROOT / 'deploy' / 'tools'}"
    return {"PYTHONPATH": f"{alone}:{ROOT}:{tools}", "PYTHONSAFEPATH": "1"}


def by_step(
    ground: Ground, workload: Workload, rounds: Sequence[Round], release: Path | None
) -> Result:
    """CPU µs per update of a worker, by step. Raises Skipped if kernels were compiled."""
    path = ground.folder / "steps.json"
    variables = {} if release is None else other(release)
    program = Program("tests.benchmarks.stream.steps", {FILE: str(path), **variables})
    run = measured(ground, workload, rounds, "1", program)
    updates = updates_of(rounds)
    spent = msgspec.json.decode(path.read_bytes(), type=dict[str, float])
    steps = {step: used_s / updates * 1e6 for step, used_s in spent.items()}
    worker_us = run.processor_us["workers"]
    if sum(steps.values()) > worker_us:
        raise Skipped("kernels were compiled within the steps: measure again, they are kept now")
    name = f"steps/{workload.name}" + "/before" * (release is not None)
    return result(name, worker_us, "us/update", steps, f"{run.note}; stop watches included")


def quix(guarantee: str, folder: Path) -> Program:
    """Quix Streams with openskill; Skipped where it is not installed."""
    if not (PEERS / "quixstreams").is_dir():
        raise Skipped("quixstreams is not installed: `make bench-stream` does it")
    options = {"PEERS": PEERS, "GUARANTEE": guarantee, "STATE": folder, "GROUP": ESTIMATORS}
    variables = {f"QUIX_{name}": str(value) for name, value in options.items()}
    return Program("tests.benchmarks.stream.quix", variables, (ESTIMATORS,), roles=False)


def measured(
    ground: Ground, workload: Workload, rounds: Sequence[Round], count: str,
    program: Program = SERVICE, before: Callable[[Settings], None] = lambda _: None,
    **settings: Any,
) -> Run:  # fmt: skip
    """Rate these rounds, after `before`. AssertionError if an event is lost or doubled."""
    warm = max(1, len(rounds) // WARM_UP)
    with a_crew(ground, workload, names_of(count), program, **settings) as crew:
        crew.wait_until_joined()
        before(crew.settings)
        empty = ground.memory()
        crew.rate(rounds[:warm])
        before_s = ground.each_redis_s()
        began_s, used_s, effects = _timed(ground, crew, rounds[warm:])
        redis_s = max(b - a for a, b in zip(before_s, ground.each_redis_s(), strict=True))
    due = Counter(key for each in rounds for key in each.due())
    found = published(crew.settings)
    wrong = found.wrong(due)
    assert not wrong, f"{workload.name}: {wrong}"
    updates = updates_of(rounds[warm:])
    per_update = {who: used / updates * 1e6 for who, used in used_s.items()}
    memory = (ground.memory() - empty) / len(due)
    took_s = found.last_s - began_s
    timed = len(rounds) - warm
    cuts = Cuts(updates / effects["Scatter"], updates / effects["Publish"]) if effects else None
    return Run(
        timed, updates, took_s, per_update, memory, len(due), found.messages, redis_s / took_s,
        crew.settings.shards, found.sample, cuts,
    )  # fmt: skip


def _timed(
    ground: Ground, crew: Crew, rounds: Sequence[Round]
) -> tuple[float, dict[str, float], Counter[str]]:
    """When it began (Unix seconds), the seconds of processor time and the effects that it took."""
    effects = crew.effects()
    with crew.paused():
        send(crew.settings, rounds)
        before = used(ground, crew)
        began_s = time.time()
    crew.wait_until_finished()
    after = used(ground, crew)
    used_s = {who: after[who] - before[who] for who in after}
    return began_s, used_s, crew.effects() - effects


def used(ground: Ground, crew: Crew) -> dict[str, float]:
    """Seconds of processor time so far, of all workers together and of each server."""
    return {"workers": crew.used_s(), **ground.servers_s()}
