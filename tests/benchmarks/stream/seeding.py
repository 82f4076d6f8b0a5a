"""What it costs to bring players along: how long until millions of seeded players have a belief in
the store, and an event."""

import time
from collections.abc import Iterator
from dataclasses import replace
from itertools import islice

import numpy as np

from stream_rater.adapters.kafka.topics import Topics
from stream_rater.contract.corrections import EVENT_TYPE
from stream_rater.contract.events import to_json
from stream_rater.contract.seeds import MOST_PLAYERS, SEEDED
from tests.benchmarks.measure import Result, result
from tests.benchmarks.stream.crew import a_crew, names_of
from tests.benchmarks.stream.ground import MIB, Ground, a_producer, most_memory
from tests.benchmarks.stream.rounds import Workload
from tests.benchmarks.stream.throughput import SERVICE, used

LADDER = "the-ladder-that-moves-in"
AT_ONCE = 50
"""Records that are sent together."""


def seeding(ground: Ground, workload: Workload, players: int, count: str) -> Result:
    """The seconds until all of so many players have a belief and an event, by so many workers.
    AssertionError where an event is lost or doubled."""
    alone = replace(workload, players=players, ladders=1)
    with a_crew(ground, alone, names_of(count), SERVICE) as crew:
        crew.wait_until_joined()
        empty, before, began_s = ground.memory(), used(ground, crew), time.monotonic()
        topic, values = Topics.of(crew.settings).rounds, records(players)
        while some := list(islice(values, AT_ONCE)):
            with a_producer(crew.settings.kafka, linger_ms=20) as producer:
                for value in some:
                    producer.produce(topic, value, LADDER.encode(), headers={EVENT_TYPE: SEEDED})
        sending_s = time.monotonic() - began_s
        crew.wait_until_finished()
        seconds, after = time.monotonic() - began_s, used(ground, crew)
        events = sum(worker.metric("stream_rater_events_total") for worker in crew.workers)
        assert events == players, f"{events:.0f} events of {players} players"
        ratio = {f"{who}_us": (after[who] - before[who]) / players * 1e6 for who in after}
        memory = max(most_memory(worker.pid) for worker in crew.workers)
        ratio |= {"bytes_a_player": (ground.memory() - empty) // players, "MiB_most": memory / MIB}
    ratio["sending_s"] = sending_s
    return result(f"seeds/{count}", seconds, "s", ratio, f"{players} players")


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
        event = {"ladder": LADDER, "round_id": f"seed-{first}", "at": "2026-01-01T00:00:00Z"}
        yield to_json({**event, "players": rows})
