"""Writes bytes into topics and reads records from them, as any client would."""

from collections.abc import Container, Mapping, Sequence
from functools import lru_cache
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic, OffsetSpec

from stream_rater.adapters.access import CLIENT_LOGGER
from stream_rater.adapters.kafka.reader import source_tails
from stream_rater.adapters.kafka.topic_rules import topic_settings
from stream_rater.adapters.kafka.topics import Admin, Topics, delete_topics
from stream_rater.config.settings import Settings
from stream_rater.contract import events
from stream_rater.contract.errors import LogTrouble
from tests.builders.lines import Bytes
from tests.waits import wait_until

LARGEST = 16 * 2**20
TIMEOUT_S = 180.0  # A broker that answers nothing for so long hangs.


@lru_cache
def _client(kafka: str) -> AdminClient:
    return AdminClient({"bootstrap.servers": kafka}, logger=CLIENT_LOGGER)


def client_of(settings: Settings) -> AdminClient:
    """The client of this Kafka. It is kept, because requests are lost when it is deleted."""
    return _client(settings.kafka)


def carried_out(futures: Mapping[Any, Any]) -> None:
    """Wait until Kafka has done what a client asked for, or raise its error."""
    for future in futures.values():
        future.result(TIMEOUT_S)


def delete_records(settings: Settings, topic: str, before: Mapping[int, int]) -> None:
    """Delete the records of a topic before these offsets, by partition."""
    ends = [TopicPartition(topic, partition, offset) for partition, offset in before.items()]
    carried_out(client_of(settings).delete_records(ends))


def add_shards(settings: Settings, count: int) -> None:
    """Let the topics by player have this many partitions."""
    admin = Admin(settings)
    both = admin.topics.parts, admin.topics.changed
    carried_out(client_of(settings).create_partitions([NewPartitions(e, count) for e in both]))
    wait_until(lambda: {admin.partitions()[each] for each in both} == {count}, "there are more")


def make_topics(
    settings: Settings, *names: str, partitions: int = 0, config: Mapping[str, str] = {}
) -> None:
    """Create topics as the service does, with these changes. Wait until leaders are known."""
    new = [
        NewTopic(name, partitions or count, 1, config={**made, **config})
        for name, (count, made) in topic_settings(settings).items()
        if name in names
    ]
    assert len(new) == len(names)
    create_topics(client_of(settings), new)


def create_topics(client: AdminClient, new: Sequence[NewTopic]) -> None:
    """Create topics, and wait until each partition's leader knows that it leads. The client lists
    topics before each look, else librdkafka never learns of those that it asked for too early."""
    carried_out(client.create_topics(list(new)))
    latest = {
        TopicPartition(each.topic, p): OffsetSpec.latest()
        for each in new
        for p in range(each.num_partitions)
    }

    def are_led() -> bool:
        client.list_topics(timeout=TIMEOUT_S)
        futures = client.list_offsets(latest, request_timeout=TIMEOUT_S).values()
        return all(each.exception(TIMEOUT_S) is None for each in futures)

    wait_until(are_led, "the new topics have leaders")


def remove_topic(settings: Settings, topic: str) -> None:
    """Delete this topic, and wait until the broker does not list it any more."""
    delete_topics(settings, [topic])
    admin = Admin(settings)
    wait_until(lambda: admin.partitions_if_any(topic) is None, f"{topic} is deleted")


@lru_cache
def _producer(kafka: str) -> Producer:
    options: Any = {
        "bootstrap.servers": kafka, "enable.idempotence": True, "partitioner": "murmur2_random",
        "message.max.bytes": LARGEST, "queue.buffering.max.kbytes": 1_000_000,
        "queue.buffering.max.messages": 1_000_000,
    }  # fmt: skip
    return Producer(options, logger=CLIENT_LOGGER)


def other_producers() -> None:
    """Let the next records come from other producers."""
    _producer.cache_clear()


def produce(settings: Settings, records: Sequence[Bytes], topic: str = "") -> list[Message]:
    """Append to round-completed (or another topic). Returns the acknowledged places, in order."""
    producer = _producer(settings.kafka)
    done: list[Message | None] = [None] * len(records)
    failures: list[str] = []

    def delivered(index: int) -> Any:
        def callback(error: Any, message: Message) -> None:
            if error is not None:
                failures.append(error.str())
            done[index] = message

        return callback

    for index, record in enumerate(records):
        where: dict[str, Any] = {} if record.partition < 0 else {"partition": record.partition}
        producer.produce(
            topic or Topics.of(settings).rounds, value=record.value, key=record.key,
            headers=list(record.headers), on_delivery=delivered(index), **where,
        )  # fmt: skip
        producer.poll(0)
    assert producer.flush(TIMEOUT_S) == 0
    assert not failures, failures
    return [message for message in done if message is not None]


def in_transactions(at: Settings, *groups: list[Bytes], abort: Container[int] = ()) -> None:
    """Append rounds in transactions, whose ends take offsets, too. `abort`: indexes of some."""
    options = {"bootstrap.servers": at.kafka, "transactional.id": f"{at.topic_prefix}backend"}
    options["partitioner"] = "murmur2_random"
    producer, admin = Producer(options, logger=CLIENT_LOGGER), Admin(at)
    topic, count = admin.topics.rounds, at.partitions
    producer.init_transactions()
    for number, group in enumerate(groups):
        producer.begin_transaction()
        for each in group:
            producer.produce(topic, each.value, each.key, each.partition)
        producer.flush()
        if number in abort:
            producer.abort_transaction()
        else:
            producer.commit_transaction()
    wait_until(
        lambda: admin.stable_ends(topic, count) == admin.ends(topic, count),
        "the ends of the transactions are in the log",
    )


def headers_of(message: Message) -> list[tuple[str, bytes]]:
    """The headers of a read message. (The client's types name all forms in which it takes them.)"""
    headers: Any = message.headers()
    return list(headers or ())


def read_topic(settings: Settings, topic: str) -> list[Message]:
    """All messages of a topic that are committed now, each partition's in order."""
    options: Any = {
        "bootstrap.servers": settings.kafka, "group.id": settings.topic_prefix + "reader",
        "isolation.level": "read_committed", "enable.auto.commit": False,
        "enable.partition.eof": True, "fetch.message.max.bytes": LARGEST,
        "receive.message.max.bytes": 1_000_000_000,
    }  # fmt: skip
    consumer = Consumer(options, logger=CLIENT_LOGGER)
    try:
        partitions = consumer.list_topics(topic, timeout=TIMEOUT_S).topics[topic].partitions
        consumer.assign([TopicPartition(topic, p, OFFSET_BEGINNING) for p in partitions])
        reading = set(partitions)
        messages: list[Message] = []
        while reading:
            message = consumer.poll(TIMEOUT_S)
            assert message is not None, f"{topic}: nothing to read within {TIMEOUT_S:g} s"
            if message.error() is None:
                messages.append(message)
            else:
                reading.discard(message.partition() or 0)
        return messages
    finally:
        consumer.close()


def published(settings: Settings) -> list[events.RatingChanged]:
    """All events that can be read, each partition's in order."""
    messages = read_topic(settings, Topics.of(settings).changed)
    return [events.rating_changed_from_json(message.value() or b"") for message in messages]


def newest_events(settings: Settings) -> dict[tuple[str, str], events.RatingChanged]:
    """By ladder and player the event with the greatest offset, whatever partition it is in."""
    found = dict[tuple[str, str], events.RatingChanged]()
    for event in published(settings):
        who = event.ladder, event.player
        if who not in found or event.offset >= found[who].offset:
            found[who] = event
    return found


def not_compared(settings: Settings) -> list[int]:
    """Partitions whose committed offset lacks the checksum by which lost records are noticed."""
    admin, topic = Admin(settings), Topics.of(settings).rounds
    found = admin.source_commits(events.ESTIMATORS, topic, *admin.partitions_of(topic))
    known = {p: each for p, each in found.items() if each is not None and each.offset}
    tails = source_tails(settings, admin, {p: each.offset for p, each in known.items()})
    return [p for p, each in known.items() if each.tail is None or each.tail != tails[p].tail]


class Finished:
    """Whether the workers have rated and published everything, so that subscribers can read it."""

    def __init__(self, settings: Settings) -> None:
        self._admin = Admin(settings)
        self._left: dict[str, int] = {}

    def moves(self) -> object:
        """What moves on the way: the records left of each topic, and the ends of the events."""
        return dict(self._left)

    def __call__(self) -> bool:
        try:
            return self._all_done() and self._all_visible()
        except LogTrouble:  # nobody answers, or a transaction is pending
            return False

    def _all_done(self) -> bool:
        topics, partitions = self._admin.topics, self._admin.partitions()
        groups = ((events.ESTIMATORS, topics.rounds), (events.UPDATERS, topics.parts))
        if not partitions.keys() >= {topics.rounds, topics.parts, topics.changed}:
            return False  # they are being created, one after the other
        for group, topic in groups:
            ends = dict(enumerate(self._admin.ends(topic, partitions[topic])))
            self._left[topic] = sum(map(len, self._admin.left(group, topic, ends).values()))
        self._left[topics.changed] = sum(
            self._admin.ends(topics.changed, partitions[topics.changed])
        )
        return not any(self._left[topic] for _, topic in groups)

    def _all_visible(self) -> bool:
        """Whether no open transaction hides what was published after it."""
        changed = self._admin.topics.changed
        count = self._admin.partitions()[changed]
        return self._admin.stable_ends(changed, count) == self._admin.ends(changed, count)


def rated(at: Settings, *records: Bytes) -> None:
    """Report these rounds and corrections, and wait until workers have rated all."""
    produce(at, records)
    wait_until(Finished(at), "all is rated")
