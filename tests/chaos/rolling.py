"""A rolling restart under load: three named workers in turn get SIGTERM, end, and are ready again
before the next one's turn. A latency is from a round's report until a reader has its event."""

import itertools
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from confluent_kafka import OFFSET_END, Consumer, TopicPartition

from stream_rater.adapters.access import CLIENT_LOGGER
from stream_rater.adapters.kafka.topics import Topics
from stream_rater.config.settings import Settings
from stream_rater.contract.events import rating_changed_from_json
from tests.chaos.crew import Violation, shares
from tests.chaos.scene import Outcome, Scene, a_scene
from tests.chaos.season import Season, lobbies
from tests.integration.processes import WorkerProcess, wait_until
from tests.waits import HANGS_S

WORKERS = 3
ROUNDS_A_SECOND = 40
TICK_S = 0.02
SESSION_TIMEOUT_MS = 30_000  # As in the chart: a worker that is back in time keeps its share.
WARM_UP_S, BEFORE_S, BETWEEN_S = 5.0, 30.0, 3.0
PROMPT_S = 0.3

Seen = list[tuple[float, float]]  # For each change, when its round was reported and it arrived.


class Rolled(Outcome, frozen=True, kw_only=True):
    """An outcome with the latencies of ratings in milliseconds, before and during the restarts."""

    p50_before_ms: float
    p99_before_ms: float
    p50_ms: float
    p99_ms: float
    longest_ms: float
    down_s: float  # the longest time from SIGTERM until a worker is ready again
    exit_s: float  # The longest time from SIGTERM to the end of a worker.


def rolling(name: str, folder: Path, quick: bool) -> Rolled:
    """Stop and start each of three workers in turn, under load."""
    with a_scene(
        name, folder, quick, stamped(lobbies()), workers=0, session_timeout_ms=SESSION_TIMEOUT_MS,
    ) as scene:  # fmt: skip
        scene.crew.hire(WORKERS)
        with under_load(scene) as seen:
            wait_until(lambda: prompt(seen), "all are warm")
            time.sleep(WARM_UP_S)
            first_s = time.time()
            time.sleep(BEFORE_S / (10 if quick else 1))  # before the restarts, to compare with
            began_s = time.time()
            moved = scene.crew.rebalances()
            turns = [restarted(scene, worker) for worker in list(scene.crew.workers)]
            ended_s = time.time()
            if moved := scene.crew.rebalances() - moved:
                raise Violation(f"{name}: {moved} shares of other workers changed")
        scene.recover()
        outcome = scene.outcome()
        before = latencies_ms(seen, first_s, began_s)
        during = latencies_ms(seen, began_s, ended_s)
        own = [each for each in Rolled.__struct_fields__ if each not in Outcome.__struct_fields__]
        slowest = [round(max(each), 2) for each in zip(*turns, strict=True)]
        figures = [*percentiles(before, 50, 99), *percentiles(during, 50, 99, 100), *slowest]
        latencies = dict(zip(own, figures, strict=True))
        return Rolled(**msgspec.structs.asdict(outcome), **latencies)


def prompt(seen: Seen) -> bool:
    """Whether the last changes arrived promptly: connections are made, and nothing waits."""
    return bool(seen) and seen[-1][1] - seen[-1][0] < PROMPT_S


def restarted(scene: Scene, worker: WorkerProcess) -> tuple[float, float]:
    """Restart a worker. Returns seconds from SIGTERM until it is ready, and until it had ended."""
    scene.inject()
    had, began_s = shares(worker), time.monotonic()
    worker.terminate()
    if code := worker.wait():
        raise Violation(f"asked to end, a worker ended with {code}:\n{worker.log()[-2000:]}")
    exit_s = time.monotonic() - began_s
    again = scene.crew.replace(worker)
    again.wait_ready()
    took_s = time.monotonic() - began_s
    time.sleep(BETWEEN_S)  # what waited is rated, as after a pod's minReadySeconds
    if had != shares(again):
        raise Violation(f"{scene.name}: a worker that had {had} has {shares(again)}")
    return took_s, exit_s


def stamped(rounds: Iterator[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Rounds whose time of completion is when they are generated."""
    for each in rounds:
        yield each | {"completed_at": datetime.now(UTC).isoformat()}


@contextmanager
def under_load(scene: Scene) -> Iterator[Seen]:
    """Report rounds steadily within the block, and read all rating changes."""
    reported, followed = threading.Event(), threading.Event()
    seen: Seen = []
    with ThreadPoolExecutor(2) as pool:
        following = threading.Event()
        follower = pool.submit(follow, scene.settings, seen, following, followed)
        following.wait(HANGS_S)
        reporter = pool.submit(report, scene.season, reported)
        try:
            yield seen
        finally:
            reported.set()
            reporter.result()
            try:
                wait_until(
                    lambda: len(seen) >= scene.season.updates, "all changes are read",
                    moves=lambda: len(seen), every_s=TICK_S,
                )  # fmt: skip
            finally:
                followed.set()
                follower.result()


def report(season: Season, stop: threading.Event) -> None:
    began_s, sent = time.monotonic(), 0
    for tick in itertools.count(1):
        due = int(ROUNDS_A_SECOND * (time.monotonic() - began_s))
        season.play(due - sent)
        sent = due
        if stop.wait(max(0.0, began_s + tick * TICK_S - time.monotonic())):
            return


def follow(
    settings: Settings, seen: Seen, following: threading.Event, stop: threading.Event
) -> None:
    topic = Topics.of(settings).changed
    consumer = Consumer(
        {
            "bootstrap.servers": settings.kafka, "group.id": "follower",
            "isolation.level": "read_committed", "enable.auto.commit": False,
        },
        logger=CLIENT_LOGGER,
    )  # fmt: skip
    with closing(consumer):
        partitions = consumer.list_topics(topic, timeout=HANGS_S).topics[topic].partitions
        consumer.assign([TopicPartition(topic, p, OFFSET_END) for p in partitions])
        consumer.poll(1.0)
        following.set()
        while not stop.is_set():
            messages = consumer.consume(500, TICK_S)
            now_s = time.time()
            for message in messages:
                if message.error() is None:
                    event = rating_changed_from_json(message.value() or b"")
                    seen.append((datetime.fromisoformat(event.completed_at).timestamp(), now_s))


def latencies_ms(seen: Seen, from_s: float, to_s: float) -> list[float]:
    return [1000.0 * (here - sent) for sent, here in seen if from_s <= sent < to_s]


def percentiles(latencies: list[float], *percents: float) -> list[float]:
    return [round(float(each), 1) for each in np.percentile(latencies, percents)]
