"""One round of very many players, sent after a third of the time, and what lobbies at a steady rate
feel of it. Its time is from the client to its last event at the subscriber; a lobby's from when it
was due."""

import time
from collections import Counter
from typing import NamedTuple

import numpy as np

from stream_rater.adapters.kafka.topics import Topics
from tests.benchmarks.measure import Result, result
from tests.benchmarks.stream.crew import LOOK_EVERY_S, Crew, a_crew, names_of
from tests.benchmarks.stream.ground import Ground, a_producer, most_memory, published
from tests.benchmarks.stream.latency import Phase, Seen, watched
from tests.benchmarks.stream.rounds import WORKLOADS, Round, Workload, up_to
from tests.benchmarks.stream.throughput import SERVICE
from tests.integration.processes import wait_until

RATE = 500.0  # Updates a second of lobbies.
WARM = 5000
LARGEST_BYTES = 64 * 2**20
LADDERS = f"""
[limits]
max_bytes = {LARGEST_BYTES}

[ladders."*"]
rating = {{ system = "elo-mmr", weight_limit = 0.2, sigma_limit = 80 }}
"""


def crowd(ground: Ground, workload: Workload, count: str, feed_s: float) -> Result:
    """Measured with so many workers; AssertionError where an event is lost or doubled."""
    large = next(workload.rounds())
    lobbies = WORKLOADS[workload.beside].rounds()
    ladders = ground.folder / "crowd.toml"
    ladders.write_text(LADDERS)
    with a_crew(ground, workload, names_of(count), SERVICE, ladders=str(ladders)) as crew:
        crew.wait_until_joined()
        warm = up_to(WARM, lobbies)
        crew.rate(warm)
        fed = up_to(int(RATE * feed_s), lobbies)
        sent_s: list[float] = []

        def send_large() -> None:
            rated = _rated(crew) + len(large.players)
            options = {"message.max.bytes": 2 * LARGEST_BYTES, "compression.type": "lz4"}
            with a_producer(crew.settings.kafka, 0, **options) as producer:
                sent_s.append(time.time())
                topic = Topics.of(crew.settings).rounds
                producer.produce(topic, large.value, large.ladder.encode())
            wait_until(
                lambda: _rated(crew) >= rated, "it is rated", moves=lambda: _rated(crew),
                every_s=LOOK_EVERY_S,
            )  # fmt: skip

        due_s, _, seen = watched(crew.settings, fed, RATE, send_large, others=len(large.players))
        memory = max(most_memory(worker.pid) for worker in crew.workers)
        due = Counter(key for each in (*warm, *fed, large) for key in each.due())
        wrong = published(crew.settings).wrong(due)
        assert not wrong, f"{workload.name}: {wrong}"
    found = report(large, sent_s[0], due_s, seen)
    ratio = {
        f"{name}_p{per_cent}_ms": getattr(found, name).quantile_ms(per_cent / 100)
        for name in ("beside", "quiet")
        for per_cent in (50, 99)
    }
    ratio |= {"message_mb": len(large.value) / 1e6, "worker_mb": memory / 1e6}
    note = f"{len(large.players)} players, beside {RATE:.0f} updates/s of lobbies"
    return result(f"stream/{workload.name}/{count}", found.seconds, "s", ratio, note)


def _rated(crew: Crew) -> float:
    """Players whose new rating was published."""
    return sum(worker.metric("stream_rater_events_total") for worker in crew.workers)


class Crowd(NamedTuple):
    seconds: float
    quiet: Phase  # Lobbies before the large round.
    beside: Phase  # Lobbies due while it was on its way.


def report(large: Round, sent_s: float, due_s: dict[str, float], seen: Seen) -> Crowd:
    """From when the large round was sent, when each of the lobbies was due, and the events seen."""
    at = np.array(seen.at_s)
    due = np.array([due_s.get(each, sent_s) for each in seen.round_ids])
    is_large = np.array([each == large.round_id for each in seen.round_ids])
    end_s = float(at[is_large].max())
    beside = ~is_large & (due >= sent_s) & (due < end_s)
    quiet = ~is_large & (at < sent_s)
    phases = (Phase((at - due)[lobbies], RATE, 0) for lobbies in (quiet, beside))
    return Crowd(end_s - sent_s, *phases)
