"""The null pipeline: what Kafka and Python cost when nothing is rated and nothing kept.

It runs in the service's place, told by the same settings: it reads the same rounds, decodes them,
regroups their players by shard, sends a message a shard through performance-estimated, and writes
an event a player to rating-changed, of the size and with the headers of the service's, in
transactions with the offsets. No mathematics, no Redis, no defence against a crash.
"""

import itertools
import os
import random
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from confluent_kafka import Consumer, Message, Producer

from stream_rater.adapters.access import QUIET
from stream_rater.adapters.topics import Admin, Topics
from stream_rater.config import Settings, read_settings
from stream_rater.events import plain_round_from_json, round_from_json
from stream_rater.pipeline.sharding import shards_of
from stream_rater.service import ESTIMATORS, UPDATERS

SAMPLE = "NULL_SAMPLE"
"""Variable that names the file with an event of the service's."""
NUMBERS = 120
"""Bytes of an event that no compression shortens: seven numbers of 17 digits."""
AT_ONCE = 10_000
POLL_S = 0.1
ANSWER_S = 30.0


class Sample(msgspec.Struct, frozen=True):
    """An event of the service's: what ours must look like."""

    size: int
    headers: list[tuple[str, bytes]]


class Part(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Players of one shard, and of which round each."""

    ladders: list[str]
    round_ids: list[str]
    index: list[int]
    place: list[int]
    players: list[str]


_encode = msgspec.msgpack.Encoder().encode
_decode_part = msgspec.msgpack.Decoder(Part).decode


def scatter(settings: Settings, shards: int) -> None:
    """Rounds to parts, for ever: once the parts are acknowledged, the rounds are committed."""
    topics = Topics.of(settings)
    consumer = _consumer(settings, topics.rounds, ESTIMATORS)
    producer = Producer(
        {"bootstrap.servers": settings.kafka, "enable.idempotence": True, "linger.ms": 0,
         "compression.type": "lz4", "message.max.bytes": 16 * 2**20}, logger=QUIET,
    )  # fmt: skip
    while True:
        messages = _taken(consumer)
        for batch in _batches(messages, settings.wave_players):
            for shard, part in regrouped(batch, shards):
                producer.produce(topics.parts, _encode(part), partition=shard)
            assert producer.flush(ANSWER_S) == 0
        if messages:
            consumer.commit(asynchronous=False)


def _taken(consumer: Consumer) -> list[Message]:
    """What is there: the first is waited for, the others only taken."""
    first = consumer.poll(POLL_S)
    return [] if first is None else [first, *consumer.consume(AT_ONCE, 0.0)]


def _batches(messages: Sequence[Message], players: int) -> Iterator[list[Any]]:
    """Decoded rounds, about so many players at a time."""
    batch, waiting = [], 0
    for message in messages:
        batch.append(_decoded(message.value() or b""))
        waiting += len(batch[-1].standings)
        if waiting >= players:
            yield batch
            batch, waiting = [], 0
    if batch:
        yield batch


def _decoded(value: bytes) -> Any:
    try:
        return plain_round_from_json(value)
    except msgspec.ValidationError:  # who did not finish, say
        return round_from_json(value)


def regrouped(rounds: Sequence[Any], shards: int) -> Iterator[tuple[int, Part]]:
    """Each shard's players of some rounds."""
    players = [entry.player for each in rounds for entry in each.standings]
    place = [entry.rank or 0 for each in rounds for entry in each.standings]
    sizes = [len(each.standings) for each in rounds]
    index = np.repeat(np.arange(len(rounds)), sizes)
    shard = shards_of(players, shards)
    order = np.argsort(shard, kind="stable")
    ladders, round_ids = [each.ladder for each in rounds], [each.round_id for each in rounds]
    bounds = np.searchsorted(shard[order], np.arange(shards + 1)).tolist()
    for number, (start, end) in enumerate(itertools.pairwise(bounds)):
        if start < end:
            rows = order[start:end].tolist()
            mine = index[rows].tolist()
            yield (
                number,
                Part(
                    ladders, round_ids, mine, [place[i] for i in rows], [players[i] for i in rows]
                ),
            )


def gather(settings: Settings, sample: Sample) -> None:
    """Parts to events, for ever, in transactions."""
    topics = Topics.of(settings)
    consumer = _consumer(settings, topics.parts, UPDATERS)
    producer = Producer(
        {"bootstrap.servers": settings.kafka, "linger.ms": 1, "compression.type": "lz4",
         "transactional.id": f"{settings.topic_prefix}{settings.instance_id}",
         "queue.buffering.max.messages": 1_000_000}, logger=QUIET,
    )  # fmt: skip
    producer.init_transactions(ANSWER_S)
    event = _event_maker(sample)
    while True:
        # As many parts as the service takes: what a poll brings.
        messages = _taken(consumer)
        if not messages:
            continue
        producer.begin_transaction()
        for message in messages:
            part, shard = _decode_part(message.value() or b""), message.partition()
            for index, player in zip(part.index, part.players, strict=True):
                key, value, headers = event(part.ladders[index], part.round_ids[index], player)
                producer.produce(topics.changed, value, key, shard, headers=headers)
        ends = consumer.position(consumer.assignment())
        group = consumer.consumer_group_metadata()
        producer.send_offsets_to_transaction(ends, group, ANSWER_S)
        producer.commit_transaction(ANSWER_S)


Event = tuple[str, bytes, list[tuple[str, bytes]]]


def _event_maker(sample: Sample) -> Callable[[str, str, str], Event]:
    """Makes the key, value and headers for a ladder, a round and a player."""
    digits = "".join(random.Random(1).choices("0123456789", k=2**16)).encode()
    starts = itertools.cycle(range(len(digits) - NUMBERS))
    pad = b"x" * sample.size
    common = [each for each in sample.headers if each[0] != "ce_id"]

    def event(ladder: str, round_id: str, player: str) -> Event:
        start = next(starts)
        event_id = f"{ladder}:{round_id}:{player}".encode()
        numbers = digits[start : start + NUMBERS]
        filling = pad[len(event_id) + NUMBERS :]
        headers = [*common, ("ce_id", event_id)] if common else common
        return f"{ladder}:{player}", event_id + numbers + filling, headers

    return event


def _consumer(settings: Settings, topic: str, group: str) -> Consumer:
    consumer = Consumer(
        {
            "bootstrap.servers": settings.kafka,
            "group.id": settings.topic_prefix + group,
            "group.instance.id": settings.instance_id,
            "session.timeout.ms": settings.session_timeout_ms,
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "fetch.wait.max.ms": 100,
            "fetch.queue.backoff.ms": 20,
        },
        logger=QUIET,
    )
    consumer.subscribe([topic])
    return consumer


def main() -> None:
    """Both stages, until the process is killed; a failure of either ends it."""
    settings = read_settings()
    sample = msgspec.json.decode(Path(os.environ[SAMPLE]).read_bytes(), type=Sample)
    shards = Admin(settings).check_topics()[Topics.of(settings).parts]
    shards_of(["a"], shards)  # loads its kernel, as the service does before it joins

    def scatter_or_end() -> None:
        try:
            scatter(settings, shards)
        except BaseException as error:
            print(f"scatter: {error!r}", flush=True)
            os._exit(1)

    threading.Thread(target=scatter_or_end, daemon=True).start()
    gather(settings, sample)


if __name__ == "__main__":
    main()
