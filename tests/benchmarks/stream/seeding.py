"""What it costs to bring players along: how long until millions of seeded players have a belief in
the store, and an event."""

import time
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from stream_rater.adapters.kafka.topics import Topics
from stream_rater.contract.corrections import EVENT_TYPE
from stream_rater.contract.events import to_json
from stream_rater.contract.seeds import MOST_PLAYERS, SEEDED
from tests.benchmarks.stream.crew import a_crew, names_of
from tests.benchmarks.stream.ground import Ground, a_producer, most_memory
from tests.benchmarks.stream.rounds import Workload
from tests.benchmarks.stream.throughput import SERVICE, used

LADDER = "the-ladder-that-moves-in"
AT_ONCE = 50
"""Records that are sent together."""


@dataclass(frozen=True)
class Seeding:
    """What was measured."""

    players: int
    seconds: float
    """From the first record until all events are committed."""
    sending_s: float
    """Until the last record was acknowledged."""
    processor_s: dict[str, float]
    """Of all workers together, of Redis, of the broker."""
    store: int
    """Bytes of Redis for each player."""
    memory: int
    """The most that a worker had, in bytes."""


def seeding(ground: Ground, workload: Workload, players: int, count: str) -> Seeding:
    """Seed so many players with so many workers. AssertionError where an event is lost or
    doubled."""
    with a_crew(
        ground, replace(workload, players=players, ladders=1), names_of(count), SERVICE
    ) as crew:
        crew.wait_until_joined()
        empty, before, began_s = ground.memory(), used(ground, crew), time.monotonic()
        topic = Topics.of(crew.settings).rounds
        values = records(players)
        while some := [value for _, value in zip(range(AT_ONCE), values, strict=False)]:
            with a_producer(crew.settings.kafka, linger_ms=20) as producer:
                for value in some:
                    producer.produce(topic, value, LADDER.encode(), headers={EVENT_TYPE: SEEDED})
        sending_s = time.monotonic() - began_s
        crew.wait_until_finished()
        seconds = time.monotonic() - began_s
        after = used(ground, crew)
        events = sum(worker.metric("stream_rater_events_total") for worker in crew.workers)
        assert events == players, f"{events:.0f} events of {players} players"
        return Seeding(
            players, seconds, sending_s, {who: after[who] - before[who] for who in after},
            (ground.memory() - empty) // players,
            max(most_memory(worker.pid) for worker in crew.workers),
        )  # fmt: skip


def records(players: int) -> Iterator[bytes]:
    """Seeds of so many players in all."""
    random = np.random.default_rng(1)
    for first in range(0, players, MOST_PLAYERS):
        numbers = range(first, min(players, first + MOST_PLAYERS))
        mu = random.normal(1500.0, 250.0, len(numbers)).round(2).tolist()
        sigma = random.uniform(60.0, 200.0, len(numbers)).round(2).tolist()
        rounds = random.integers(1, 500, len(numbers)).tolist()
        rows = [
            {"player": f"player-{number}", "mu": m, "sigma": s, "rounds": r}
            for number, m, s, r in zip(numbers, mu, sigma, rounds, strict=True)
        ]
        yield to_json(
            {
                "ladder": LADDER,
                "round_id": f"seed-{first}",
                "at": "2026-01-01T00:00:00Z",
                "players": rows,
            }
        )
