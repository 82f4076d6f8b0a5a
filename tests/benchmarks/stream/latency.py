"""The latency of ratings: from the time when a round is due until a subscriber, a process of its
own that reads committed records, has its event. Rounds are due at a steady rate; delays count."""

import multiprocessing
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any, NamedTuple

import numpy as np
from confluent_kafka import Consumer, Message, Producer, TopicPartition

from stream_rater.adapters.kafka.topics import Admin, Topics
from stream_rater.columns.arrays import Floats
from stream_rater.config.settings import Settings
from tests.benchmarks.measure import Result, result
from tests.benchmarks.stream.crew import LOOK_EVERY_S, Crew, a_crew, names_of
from tests.benchmarks.stream.ground import (
    AT_ONCE,
    TIMEOUT_S,
    Ground,
    a_consumer,
    a_producer,
    published,
)
from tests.benchmarks.stream.rounds import WORKLOADS, Round, Workload, up_to, updates_of
from tests.benchmarks.stream.throughput import SERVICE
from tests.integration.processes import most_memory, wait_until
from tests.integration.topics import headers_of

STEADY = 0.2  # Rounds of this first part of the time are not counted.
PAUSE_S = 0.001  # The feeder sends what is due so often.
QUIET_S = 3.0  # No event for so long, after as many as there were to be: they are all.


class Seen(NamedTuple):
    """The round of each event, and when it came."""

    round_ids: list[str]
    at_s: list[float]


@dataclass(frozen=True)
class Phase:
    """The measurements of a time of steady feeding."""

    latency_s: Floats  # (n,) of each event that counts.
    rate: float  # Updates a second that were due.
    lag: int  # Updates that had not come when the time of the last round was over.
    late_s: Floats  # (m,) how late each round was sent. It is a part of the latency of its events.

    def quantile_ms(self, share: float) -> float:
        """The latency in ms that this share of the events does not exceed."""
        return 1000.0 * _quantile(self.latency_s, share)

    def row(self, name: str, value: float, unit: str) -> Result:
        shares = {"p50": 0.5, "p99": 0.99, "p999": 0.999}
        ratio = {each: self.quantile_ms(share) for each, share in shares.items()}
        ratio |= {"behind": self.lag_ms, "late": 1000.0 * _quantile(self.late_s, 0.99)}
        return result(name, value, unit, ratio, f"at {self.rate:.0f} updates/s")

    @property
    def lag_ms(self) -> float:
        """The lag as milliseconds of feeding at the rate."""
        return 1000.0 * self.lag / self.rate


def _quantile(of: Floats, share: float) -> float:
    return float(np.quantile(of, share, method="inverted_cdf"))


class Fed(NamedTuple):
    """Rounds that were sent at a steady rate."""

    due_s: dict[str, float]  # When each was due.
    end_s: float  # When the time of the last one was over.
    late_s: Floats  # (m,) how late each was sent.


def phase(
    settings: Settings, rounds: Sequence[Round], rate: float,
    disturb: Callable[[], None] = lambda: None,
) -> Phase:  # fmt: skip
    """Feed these rounds, so many updates a second. `disturb` begins after a third of them."""
    return found(*watched(settings, rounds, rate, disturb))


def watched(
    settings: Settings, rounds: Sequence[Round], rate: float, disturb: Callable[[], None],
    others: int = 0,
) -> tuple[Fed, Seen]:  # fmt: skip
    """Feed these rounds. Returns what was sent, and all events seen."""
    admin = Admin(settings)
    topic = admin.topics.changed
    starts = admin.ends(topic, admin.partitions()[topic])
    expected = others + updates_of(rounds)
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    watcher = context.Process(
        target=_watch, args=(settings.kafka, topic, starts, expected, theirs), daemon=True
    )
    watcher.start()
    ours.recv()  # it reads
    other = threading.Thread(target=disturb)
    with a_producer(settings.kafka, linger_ms=1) as producer:
        fed = feed(producer, admin.topics.rounds, rounds, rate, other.start)
    other.join()
    assert ours.poll(2 * TIMEOUT_S), "the subscriber does not answer"
    seen: Seen = ours.recv()
    watcher.join()
    assert len(seen.at_s) == expected, f"{len(seen.at_s)} events came of {expected}"
    return fed, seen


def found(fed: Fed, seen: Seen) -> Phase:
    """The phase, from what was sent and the events seen."""
    due = np.array([fed.due_s[each] for each in seen.round_ids])
    at, all_due = np.array(seen.at_s), np.array(list(fed.due_s.values()))
    lasts_s = fed.end_s - all_due[0]
    first_s = all_due[0] + STEADY * lasts_s
    lag = int((at > fed.end_s).sum())
    late_s = fed.late_s[all_due >= first_s]
    return Phase((at - due)[due >= first_s], len(at) / lasts_s, lag, late_s)


def feed(
    producer: Producer, topic: str, rounds: Sequence[Round], rate: float,
    after_a_third: Callable[[], None], clock: Any = time,
) -> Fed:  # fmt: skip
    """Send each round when it is due."""
    sizes = np.array([len(each.players) for each in rounds])
    began_s = clock.time()
    over_s = (began_s + np.cumsum(sizes) / rate).tolist()
    due_s, late_s = [began_s, *over_s[:-1]], list[float]()
    for i, each in enumerate(rounds):
        while (early_s := due_s[i] - clock.time()) > 0.0:
            producer.poll(0)
            clock.sleep(min(early_s, PAUSE_S))  # the client's poll would spin below 1 ms
        if i == len(rounds) // 3:
            after_a_third()
        late_s.append(-early_s)
        producer.produce(topic, each.value, each.ladder.encode())
    while clock.time() < over_s[-1]:
        producer.poll(0)
        clock.sleep(PAUSE_S)
    due = {each.round_id: at_s for each, at_s in zip(rounds, due_s, strict=True)}
    return Fed(due, over_s[-1], np.array(late_s))


def _watch(
    kafka: str, topic: str, starts: Sequence[int], expected: int,
    pipe: "Connection[Seen | None, None]",
) -> None:  # fmt: skip
    """The subscriber. It reads events twice: first only when each comes, and then which round it is
    of, because to parse a message's headers takes more time than to receive it."""
    at_s = dict[tuple[int | None, int | None], float]()  # by partition and offset
    first = [TopicPartition(topic, p, start) for p, start in enumerate(starts)]
    with closing(a_consumer(kafka)) as consumer:
        consumer.assign(first)
        consumer.poll(1.0)  # nothing can be there yet; it connects
        pipe.send(None)
        for some in _polled(consumer, expected):
            now_s = time.time()
            at_s |= {(each.partition(), each.offset()): now_s for each in some}
    seen = Seen([], [])
    with closing(a_consumer(kafka)) as consumer:
        consumer.assign(first)
        for some in _polled(consumer, len(at_s), 0.0):
            # By ids: the null pipeline's values are no JSON. A correction's id has four parts.
            ids = [dict(headers_of(each))["ce_id"].split(b":") for each in some]
            seen.round_ids.extend(each[1].decode() for each in ids if len(each) <= 3)
            at = (at_s[each.partition(), each.offset()] for each in some)
            seen.at_s.extend(s for s, each in zip(at, ids, strict=True) if len(each) <= 3)
    pipe.send(seen)


def _polled(consumer: Consumer, expected: int, quiet_s: float = QUIET_S) -> Iterator[list[Message]]:
    """So many events, in the lists in which they come, and those of corrections until a silence;
    fewer after a long silence."""
    while first := consumer.poll(TIMEOUT_S if expected > 0 else quiet_s):
        some = [each for each in (first, *consumer.consume(AT_ONCE, 0.0)) if each.error() is None]
        expected -= len(some)
        yield some


# --- a round of very many players -----------------------------------------------------------------

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
    """Measure with so many workers. AssertionError if an event is lost or doubled."""
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

        sent, seen = watched(crew.settings, fed, RATE, send_large, others=len(large.players))
        memory = max(most_memory(worker.pid) for worker in crew.workers)
        due = Counter(key for each in (*warm, *fed, large) for key in each.due())
        wrong = published(crew.settings).wrong(due)
        assert not wrong, f"{workload.name}: {wrong}"
    found = report(large, sent_s[0], sent.due_s, seen)
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
    phases = (Phase((at - due)[lobbies], RATE, 0, np.empty(0)) for lobbies in (quiet, beside))
    return Crowd(end_s - sent_s, *phases)
