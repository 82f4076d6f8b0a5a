"""One round of very many players, and what the rounds of other ladders feel of it.

Lobbies are due at a steady rate all the time. After a third of it the large round is sent, as one
message. Its time is from handing it to Kafka's client to its last event at the subscriber. That of
a lobby is from when it was due to its event.
"""

import time
from collections import Counter
from dataclasses import dataclass

import numpy as np

from stream_rater.adapters.kafka.topics import Topics
from tests.benchmarks.stream.crew import LOOK_EVERY_S, Crew, a_crew, names_of
from tests.benchmarks.stream.ground import Ground, a_producer, most_memory, published, send
from tests.benchmarks.stream.latency import Phase, Seen, watched
from tests.benchmarks.stream.rounds import WORKLOADS, Round, Workload, up_to
from tests.benchmarks.stream.throughput import SERVICE, used
from tests.integration.processes import wait_until

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
    """Lobbies due while it was on its way."""
    message: int
    """Its bytes."""
    memory: int
    """The most that a worker had, in bytes."""
    processor_s: dict[str, float]
    """Until its last event: of all workers together, of Redis, of the broker."""


def crowd(ground: Ground, workload: Workload, count: str, feed_s: float) -> Crowd:
    """Measured with so many workers; AssertionError where an event is lost or doubled."""
    large = next(workload.rounds())
    lobbies = WORKLOADS[workload.beside].rounds()
    ladders = ground.folder / "crowd.toml"
    ladders.write_text(LADDERS)
    with a_crew(ground, workload, names_of(count), SERVICE, ladders=str(ladders)) as crew:
        crew.wait_until_joined()
        warm = up_to(WARM, lobbies)
        send(crew.settings, warm)
        crew.wait_until_finished()
        fed = up_to(int(RATE * feed_s), lobbies)
        sent_s: list[float] = []
        used_s: list[dict[str, float]] = []

        def send_large() -> None:
            rated = _rated(crew) + len(large.players)
            used_s.append(used(ground, crew))
            options = {"message.max.bytes": 2 * LARGEST_BYTES, "compression.type": "lz4"}
            with a_producer(crew.settings.kafka, 0, **options) as producer:
                sent_s.append(time.time())
                topic = Topics.of(crew.settings).rounds
                producer.produce(topic, large.value, large.ladder.encode())
            wait_until(
                lambda: _rated(crew) >= rated, "it is rated", moves=lambda: _rated(crew),
                every_s=LOOK_EVERY_S,
            )  # fmt: skip
            used_s.append(used(ground, crew))

        due_s, _, seen = watched(crew.settings, fed, RATE, send_large, others=len(large.players))
        memory = max(most_memory(worker.pid) for worker in crew.workers)
        due = Counter(key for each in (*warm, *fed, large) for key in each.due())
        wrong = published(crew.settings).wrong(due)
        assert not wrong, f"{workload.name}: {wrong}"
    took_s = {who: after - used_s[0][who] for who, after in used_s[1].items()}
    return report(large, sent_s[0], due_s, seen, memory, took_s)


def _rated(crew: Crew) -> float:
    """Players whose new rating was published."""
    return sum(worker.metric("stream_rater_events_total") for worker in crew.workers)


def report(
    large: Round, sent_s: float, due_s: dict[str, float], seen: Seen, memory: int,
    processor_s: dict[str, float],
) -> Crowd:  # fmt: skip
    """From when the large round was sent, when each of the lobbies was due, and the events seen."""
    at = np.array(seen.at_s)
    due = np.array([due_s.get(each, sent_s) for each in seen.round_ids])
    is_large = np.array([each == large.round_id for each in seen.round_ids])
    end_s = float(at[is_large].max())
    beside = ~is_large & (due >= sent_s) & (due < end_s)
    quiet = ~is_large & (at < sent_s)
    return Crowd(
        seconds=end_s - sent_s,
        quiet=Phase((at - due)[quiet], RATE, 0),
        beside=Phase((at - due)[beside], RATE, 0),
        message=len(large.value),
        memory=memory,
        processor_s=processor_s,
    )
