"""How long a rating takes: from the moment a round is handed to Kafka's client to the moment a
subscriber, who reads what is committed, has the player's event. Both by the same clock.

Rounds come at a steady rate whatever the workers do. The subscriber is a process of its own.
"""

import multiprocessing
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import NamedTuple

import msgspec
import numpy as np
from confluent_kafka import Consumer, TopicPartition

from stream_rater.adapters.access import QUIET
from stream_rater.adapters.topics import Admin
from stream_rater.config import Settings
from stream_rater.rating.model import Floats
from tests.benchmarks.stream.ground import AT_ONCE, TIMEOUT_S, a_producer
from tests.benchmarks.stream.rounds import Round

STEADY = 0.2
"""Rounds of this first part of the time are not counted."""
PAUSE_S = 0.001
"""The feeder sends what is due so often."""


class _RoundId(msgspec.Struct, frozen=True):
    round_id: str


_round_id = msgspec.json.Decoder(_RoundId).decode


class Seen(NamedTuple):
    """The round of each event, and when it came."""

    round_ids: list[str]
    at_s: list[float]


@dataclass(frozen=True)
class Phase:
    """A time of steady feeding."""

    latency_s: Floats
    """(n,) of each event that counts."""
    rate: float
    """Updates a second that were fed."""
    behind: int
    """Updates that had not come when the feeding ended."""

    def quantile_ms(self, share: float) -> float:
        """The latency in ms that this share of the events does not exceed."""
        return 1000.0 * float(np.quantile(self.latency_s, share, method="inverted_cdf"))

    @property
    def behind_ms(self) -> float:
        """How much feeding that was."""
        return 1000.0 * self.behind / self.rate


def phase(
    settings: Settings, rounds: Sequence[Round], rate: float,
    meanwhile: Callable[[], None] = lambda: None,
) -> Phase:  # fmt: skip
    """Feed these rounds, so many updates a second; `meanwhile` begins after a third of them."""
    return found(*watched(settings, rounds, rate, meanwhile))


def watched(
    settings: Settings, rounds: Sequence[Round], rate: float, meanwhile: Callable[[], None],
    others: int = 0,
) -> tuple[dict[str, float], float, Seen]:  # fmt: skip
    """When each round was sent, when feeding ended, and the events, so many others among them that
    `meanwhile` leads to."""
    admin = Admin(settings)
    topic = admin.topics.changed
    starts = admin.ends(topic, admin.partitions()[topic])
    expected = others + sum(len(each.players) for each in rounds)
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    watcher = context.Process(
        target=_watch, args=(settings.kafka, topic, starts, expected, theirs), daemon=True
    )
    watcher.start()
    ours.recv()  # it reads
    sent_s, ended_s = _feed(settings, rounds, rate, meanwhile)
    assert ours.poll(2 * TIMEOUT_S), "the subscriber does not answer"
    seen: Seen = ours.recv()
    watcher.join()
    assert len(seen.at_s) == expected, f"{len(seen.at_s)} events came of {expected}"
    return sent_s, ended_s, seen


def found(sent_s: dict[str, float], ended_s: float, seen: Seen) -> Phase:
    """From when each round was sent, and its events seen."""
    sent = np.array([sent_s[each] for each in seen.round_ids])
    at = np.array(seen.at_s)
    began_s = min(sent_s.values())
    fed_s = ended_s - began_s
    counts = sent >= began_s + STEADY * fed_s
    behind = int((at > ended_s).sum())
    return Phase((at - sent)[counts], len(at) / fed_s, behind)


def _feed(
    settings: Settings, rounds: Sequence[Round], rate: float, meanwhile: Callable[[], None]
) -> tuple[dict[str, float], float]:
    """When each round was sent, and when the last one's time was over."""
    sizes = [len(each.players) for each in rounds]
    due_s = (np.cumsum(sizes) - sizes) / rate
    topic = Admin(settings).topics.rounds
    sent_s: dict[str, float] = {}
    other = threading.Thread(target=meanwhile)
    with a_producer(settings.kafka, linger_ms=1) as producer:
        began_s = time.time()
        for i, each in enumerate(rounds):
            while (early_s := began_s + due_s[i] - time.time()) > 0.0:
                producer.poll(0)
                time.sleep(min(early_s, PAUSE_S))  # the client's poll would spin below 1 ms
            if i == len(rounds) // 3:
                other.start()
            sent_s[each.round_id] = time.time()
            producer.produce(topic, each.value, each.ladder.encode())
        end_s = began_s + sum(sizes) / rate
        while time.time() < end_s:
            producer.poll(PAUSE_S)
        ended_s = time.time()
    other.join()
    return sent_s, ended_s


def _watch(
    kafka: str, topic: str, starts: Sequence[int], expected: int, pipe: "Connection[Seen, None]"
) -> None:
    """The subscriber: ends with the last event, or after a long silence."""
    consumer = Consumer(
        {
            "bootstrap.servers": kafka,
            "group.id": "bench-subscriber",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
        },
        logger=QUIET,
    )
    seen = Seen([], [])
    with closing(consumer):
        consumer.assign([TopicPartition(topic, p, start) for p, start in enumerate(starts)])
        consumer.poll(1.0)  # nothing can be there yet; it connects
        pipe.send(None)
        while len(seen.at_s) < expected:
            first = consumer.poll(TIMEOUT_S)
            if first is None:
                break
            messages = [first, *consumer.consume(AT_ONCE, 0.0)]
            now_s = time.time()
            told = [each for each in messages if each.error() is None]
            seen.round_ids.extend(_round_id(each.value() or b"").round_id for each in told)
            seen.at_s.extend([now_s] * len(told))
    pipe.send(seen)
