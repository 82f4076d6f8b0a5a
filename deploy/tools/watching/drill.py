"""Breaks something under a real Prometheus, and writes down which alert says so, and when.

Kafka, Redis, two workers and `serve` run on this machine, and rounds are reported all the time. The
table in the runbook has a row for each fault.
"""

import json
import os
import random
import re
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from typing import Final, NamedTuple

from confluent_kafka import Consumer, Producer

from demonstration.programs import start_serve, start_service
from local.background import LISTPACKS
from local.kafka_node import start_kafka
from local.processes import Server
from local.prometheus_node import start_prometheus
from local.redis_node import start_redis
from local.servers import signals_as_exit
from local.steps import in_a_thread
from local.tools import KAFKA_VARIABLE, REDIS_VARIABLE, ROOT
from stream_rater.config.settings import PREFIX
from stream_rater.contract.events import ESTIMATORS
from watching.ask import Prometheus

RUNBOOK: Final = ROOT / "docs" / "operations" / "runbook.md"
TABLE: Final = re.compile(
    r"(<!-- written by `make figure ARGS=--drill` -->\n).*?(<!-- end -->)", re.S
)
EVERY_S: Final = 5
SETTLED_S: Final = 60.0
CURED_S: Final = 900.0
"""The longest time after the cure until no alert is left."""
LADDERS: Final = (
    '[ladders."*".rating]\nsystem = "elo-mmr"\nweight_limit = 0.2\nsigma_limit = {sigma}\n'
)
ROUNDS_PER_S: Final = 4.0
STOPPED_S, RUNS_S = 1.5, 0.05


@dataclass(frozen=True)
class World:
    """What runs. Each worker has a ladders file of its own."""

    kafka: Server
    redis: Server
    workers: Sequence[Server]
    serve: Server
    prometheus: Server


@contextmanager
def a_world(folder: Path) -> Iterator[World]:
    """All servers, and rounds that are reported until the end of the block."""
    with ExitStack() as stack:
        kafka = stack.enter_context(start_kafka(folder / "kafka"))
        redis = stack.enter_context(start_redis(folder / "redis", settings=LISTPACKS))
        at = {**os.environ, KAFKA_VARIABLE: kafka.address, REDIS_VARIABLE: redis.address}
        workers = []
        for name in ("a", "b"):
            (folder / name).mkdir()
            ladders = folder / name / "ladders.toml"
            ladders.write_text(LADDERS.format(sigma=80))
            environment = at | {f"{PREFIX}LADDERS": str(ladders)}
            workers.append(stack.enter_context(start_service(folder / name, environment)))
        serve = stack.enter_context(start_serve(folder, at))
        prometheus = stack.enter_context(
            start_prometheus(
                folder / "prometheus", workers=[each.address for each in workers],
                apis=[serve.address], every=f"{EVERY_S}s",
            )
        )  # fmt: skip
        stack.enter_context(in_a_thread(lambda over: report(kafka.address, over)))
        yield World(kafka, redis, workers, serve, prometheus)


def report(kafka: str, over: threading.Event) -> None:
    """Report rounds of four players on 16 ladders, in even steps."""
    options = {"bootstrap.servers": kafka, "log_level": 2, "linger.ms": 1}
    producer = Producer({**options, "partitioner": "murmur2_random"})
    for number in count():
        ladder = f"drill-{number % 16}"
        players = random.sample(range(100), 4)
        finished = {
            "round_id": f"{os.getpid()}-{number}", "ladder": ladder,
            "completed_at": datetime.now(UTC).isoformat(),
            "standings": [{"player": f"p{p}", "rank": 1 + i} for i, p in enumerate(players)],
        }  # fmt: skip
        producer.produce("round-completed", json.dumps(finished).encode(), ladder.encode())
        producer.poll(0)
        if over.wait(1 / ROUNDS_PER_S):
            break


# --- faults: each lasts until the end of its block ---


@contextmanager
def stopped(server: Server) -> Iterator[None]:
    server.stop()
    try:
        yield
    finally:
        server.start()


@contextmanager
def all_stopped(servers: Sequence[Server]) -> Iterator[None]:
    with ExitStack() as stack:
        for each in servers:
            stack.enter_context(stopped(each))
        yield


@contextmanager
def hung(server: Server) -> Iterator[None]:
    os.kill(server.pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(server.pid, signal.SIGCONT)


@contextmanager
def slow(server: Server) -> Iterator[None]:
    def halt(over: threading.Event) -> None:
        while not over.wait(RUNS_S):
            with hung(server):
                over.wait(STOPPED_S)

    with in_a_thread(halt):
        yield


@contextmanager
def unowned(world: World) -> Iterator[None]:
    """A member of the group that reads its partitions and rates nothing."""

    def read(over: threading.Event) -> None:
        options = {"group.id": ESTIMATORS, "enable.auto.commit": False, "log_level": 2}
        options |= {"partition.assignment.strategy": "cooperative-sticky"}
        consumer = Consumer({"bootstrap.servers": world.kafka.address, **options})
        consumer.subscribe(["round-completed"])
        while not over.is_set():
            consumer.poll(0.1)
        consumer.close()

    with in_a_thread(read):
        yield


@contextmanager
def disagreeing(world: World) -> Iterator[None]:
    worker = world.workers[1]
    ladders = worker.directory / "ladders.toml"
    try:
        ladders.write_text(LADDERS.format(sigma=90))
        worker.restart()
        yield
    finally:
        ladders.write_text(LADDERS.format(sigma=80))
        worker.restart()


class Fault(NamedTuple):
    """A row of the table."""

    text: str
    begun: Callable[[World], AbstractContextManager[object]]


FAULTS: Final[Mapping[str, Fault]] = {
    "nothing": Fault("nothing, for {minutes} minutes", lambda _: nullcontext()),
    "redis-stopped": Fault("Redis is stopped", lambda world: stopped(world.redis)),
    "kafka-stopped": Fault("Kafka is stopped", lambda world: stopped(world.kafka)),
    "worker-hung": Fault(
        "one of two workers hangs (`SIGSTOP`)", lambda world: hung(world.workers[1])
    ),
    "worker-stopped": Fault("no worker runs", lambda world: all_stopped(world.workers)),
    "partition-unowned": Fault("a member of the estimators' group rates nothing", unowned),
    "disk-slow": Fault(
        f"Kafka is slow (it runs {RUNS_S:g} s of {RUNS_S + STOPPED_S:g} s, by `SIGSTOP`)",
        lambda world: slow(world.kafka),
    ),
    "ladder-disagrees": Fault("one of two workers has another ladders file", disagreeing),
}


# --- what Prometheus says of it ---


def drill(fault: Fault, minutes: float) -> str:
    """Break it for so long, and repair it. Returns the row of the table."""
    with tempfile.TemporaryDirectory(prefix="stream-rater-") as folder, a_world(Path(folder)) as on:
        asked = Prometheus(on.prometheus.address)
        time.sleep(SETTLED_S)
        began_s = time.time()
        with fault.begun(on):
            time.sleep(60 * minutes)
            cured_s = time.time()
        while time.time() < cured_s + CURED_S and asked.now("ALERTS"):
            time.sleep(EVERY_S)
        over_s, first, later = time.time(), dict[str, float](), dict[str, float]()
        pending = asked.between('ALERTS{alertstate="pending"}', began_s, over_s, EVERY_S)
        for each in asked.between('ALERTS{alertstate="firing"}', began_s, over_s, EVERY_S):
            at_s = each.points[0][0]
            seen = first if at_s < cured_s else later
            name = f"{each.labels['alertname']} ({each.labels['severity']})"
            seen[name] = min(at_s, seen.get(name, at_s))
        never = {each.labels["alertname"] for each in pending}
        print(f"pending at some time: {sorted(never)}", file=sys.stderr)
    cells = (
        fault.text.format(minutes=f"{minutes:g}"), listed(first, began_s), listed(later, cured_s),
        f"{over_s - cured_s:.0f} s",
    )  # fmt: skip
    return f"| {' | '.join(cells)} |"


def listed(alerts: Mapping[str, float], since_s: float) -> str:
    """Alerts in the order of time, with their sections and seconds."""
    texts = [
        f"[{name.removeprefix('StreamRater')}](#{name.split()[0].lower()}) {s - since_s:.0f} s"
        for name, s in sorted(alerts.items(), key=lambda each: each[1])
    ]
    return "; ".join(texts) or "none"


def write(text: str, row: str) -> str:
    """The page with this row in place of an earlier one of the same fault."""
    found = TABLE.search(text)
    assert found is not None, "the runbook has a table for this"
    rows = [each for each in found[0].splitlines() if each.startswith("| ")][2:]
    by_text = {each.split(" | ")[0].split(",")[0]: each for each in [*rows, row]}
    order = [f"| {each.text}".split(",")[0] for each in FAULTS.values()]
    head = (
        "| broken | fires | fires after the repair | none left after |\n| --- | --- | --- | --- |\n"
    )
    body = "\n".join(by_text[each] for each in order if each in by_text)
    return TABLE.sub(lambda _: f"{found[1]}\n{head}{body}\n\n{found[2]}", text)


def run(faults: Sequence[str], minutes: float) -> None:
    """Drill these faults, or all, and write their rows into the runbook."""
    for name in faults or FAULTS:
        with signals_as_exit():
            row = drill(FAULTS[name], minutes)
        print(row, flush=True)
        RUNBOOK.write_text(write(RUNBOOK.read_text(encoding="utf-8"), row), encoding="utf-8")
