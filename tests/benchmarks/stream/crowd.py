"""One round of very many players, and what the rounds of other ladders feel of it.

Lobbies come at a steady rate all the time. After a third of it the large round is sent, as one
message. The time is from handing it to Kafka's client to its last event at the subscriber.
"""

import time
from collections import Counter
from dataclasses import dataclass

import numpy as np

from stream_rater.adapters.topics import Topics
from tests.benchmarks.stream.crew import a_crew, names_of
from tests.benchmarks.stream.ground import Ground, a_producer, most_memory, published, send
from tests.benchmarks.stream.latency import Phase, Seen, watched
from tests.benchmarks.stream.rounds import WORKLOADS, Round, Workload, up_to
from tests.benchmarks.stream.throughput import SERVICE

RATE = 500.0
"""Updates a second of lobbies."""
WARM = 5000
LARGEST_BYTES = 64 * 2**20
LADDERS = f"""
[limits]
max_bytes = {LARGEST_BYTES}

[ladders."*"]
rating = {{ system = "elo-mmr", weight_limit = 0.2, sigma_limit = 80 }}
"""


@dataclass(frozen=True)
class Crowd:
    """What was measured."""

    seconds: float
    quiet: Phase
    """Lobbies before the large round."""
    beside: Phase
    """Lobbies sent while it was on its way."""
    message: int
    """Its bytes."""
    memory: int
    """The most that a worker had, in bytes."""


def crowd(ground: Ground, workload: Workload, count: int, feed_s: float) -> Crowd:
    """Measured with so many workers; AssertionError where an event is lost or doubled."""
    large = next(workload.rounds())
    lobbies = WORKLOADS[workload.beside].rounds()
    ladders = ground.folder / "crowd.toml"
    ladders.write_text(LADDERS)
    with a_crew(ground, workload, names_of(count), SERVICE, ladders=str(ladders)) as crew:
        crew.await_joined()
        warm = up_to(WARM, lobbies)
        send(crew.settings, warm)
        crew.await_finished()
        fed = up_to(int(RATE * feed_s), lobbies)
        sent_s: list[float] = []

        def meanwhile() -> None:
            options = {"message.max.bytes": 2 * LARGEST_BYTES, "compression.type": "lz4"}
            with a_producer(crew.settings.kafka, 0, **options) as producer:
                sent_s.append(time.time())
                topic = Topics.of(crew.settings).rounds
                producer.produce(topic, large.value, large.ladder.encode())

        reported_s, _, seen = watched(
            crew.settings, fed, RATE, meanwhile, others=len(large.players)
        )
        memory = max(most_memory(worker.pid) for worker in crew.workers)
        due = Counter(key for each in (*warm, *fed, large) for key in each.due())
        wrong = published(crew.settings).wrong(due)
        assert not wrong, f"{workload.name}: {wrong}"
    return told(large, sent_s[0], reported_s, seen, memory)


def told(
    large: Round, sent_s: float, reported_s: dict[str, float], seen: Seen, memory: int
) -> Crowd:
    """From when each round was sent, and its events seen."""
    at = np.array(seen.at_s)
    sent = np.array([reported_s.get(each, sent_s) for each in seen.round_ids])
    is_large = np.array([each == large.round_id for each in seen.round_ids])
    end_s = float(at[is_large].max())
    beside = ~is_large & (sent >= sent_s) & (sent < end_s)
    quiet = ~is_large & (at < sent_s)
    return Crowd(
        seconds=end_s - sent_s,
        quiet=Phase((at - sent)[quiet], RATE, 0),
        beside=Phase((at - sent)[beside], RATE, 0),
        message=len(large.value),
        memory=memory,
    )
