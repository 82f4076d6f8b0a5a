"""Finds hanging transactions, and ends each as its coordinator had decided.

    python -m tests.chaos.hanging HOST:PORT [--end]

A partition may hold an open transaction that the coordinator does not know, or that it knows to
have ended. Nothing will ever end it there, and readers of committed records stop before it.

Kafka's own tool, `kafka-transactions.sh`, can find such a transaction, and can only abort it. But a
coordinator writes the decision to `__transaction_state` and answers the producer before it writes
the end to the partitions. If the decision was to commit, the producer has gone on. To abort the
transaction then takes back what was confirmed. So this looks for the decision, and writes the end
that it asks for.

It sends the requests of Kafka's tool (DescribeProducers, ListTransactions, WriteTxnMarkers)
directly, because confluent_kafka's admin client has none of them, and the tool's jar is not among
those of a broker. It knows neither TLS nor SASL.
"""

import argparse
import socket
import struct
import time
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, TopicPartition
from confluent_kafka.admin import AdminClient

from stream_rater.adapters.access import CLIENT_LOGGER

WRITE_TXN_MARKERS, DESCRIBE_PRODUCERS, LIST_TRANSACTIONS = 27, 61, 66
TIMEOUT_S = 60.0
UNDER_WAY = frozenset({"Ongoing", "PrepareCommit", "PrepareAbort"})
STATES = "__transaction_state"  # The coordinators' topic. It has each state of each transaction.
PREPARE_COMMIT, PREPARE_ABORT = 2, 3  # the states that are decisions
OLDER_S = 1.0  # a transaction that is open for less time is not looked at
GOES_ON = 47  # INVALID_PRODUCER_EPOCH: the producer's next end ends this transaction, too.
LOADING = 14  # the coordinator has just started and reads its log: COORDINATOR_LOAD_IN_PROGRESS


class Hanging(NamedTuple):
    """An open transaction in a partition that nothing will end, and its coordinator's state."""

    topic: str
    partition: int
    start: int
    producer_id: int
    epoch: int
    coordinator_epoch: int
    coordinated: str  # The coordinator's `name: state` of the transactional id, or "".


def find_hanging(kafka: str, older_s: float) -> list[Hanging]:
    """The transactions of a broker that are open for longer than this and not in progress."""
    old_ms = 1000 * (time.time() - older_s)
    opened = [
        (each, coordinator)
        for each, last_ms in find_open(kafka)
        for coordinator in [_coordinated(kafka, each.producer_id)]
        if last_ms < old_ms
    ]
    return [
        each._replace(
            coordinated=", ".join(f"{name}: {state}" for name, state in coordinator.items())
        )
        for each, coordinator in opened
        if not UNDER_WAY.intersection(coordinator.values())
    ]


def find_open(kafka: str) -> Iterator[tuple[Hanging, int]]:
    """All open transactions of a broker, with the time of the producer's last record, Unix ms."""
    topics = AdminClient({"bootstrap.servers": kafka}, logger=CLIENT_LOGGER).list_topics(
        timeout=TIMEOUT_S
    )
    asked = b"".join(
        text(name) + array(struct.pack(">i", p) for p in known.partitions) + b"\0"
        for name, known in topics.topics.items()
    )
    return _opened(ask(kafka, DESCRIBE_PRODUCERS, 0, _length(len(topics.topics)) + asked + b"\0"))


def is_to_be_committed(kafka: str, hanging: Hanging) -> bool | None:
    """Whether the coordinator decided to commit it. None: no decision, so no commit confirmed."""
    found = None
    for message in _records(kafka, STATES):
        value = message.value()
        if value is None:
            continue
        version, producer_id, epoch, _, state = struct.unpack_from(">hqhib", value)
        at = struct.calcsize(">hqhib")
        if (producer_id, epoch) == (hanging.producer_id, hanging.epoch) and state in (
            PREPARE_COMMIT, PREPARE_ABORT,
        ):  # fmt: skip
            partitions = _flexible(value, at) if version else _fixed(value, at)
            if (hanging.topic, hanging.partition) in partitions:
                found = state == PREPARE_COMMIT
    return found


def end(kafka: str, hanging: Hanging, *, commit: bool) -> None:
    """Write the end of a transaction to its partition. Records are only read if it commits."""
    markers = (
        struct.pack(">qhb", hanging.producer_id, hanging.epoch, commit)
        + array([text(hanging.topic) + array([struct.pack(">i", hanging.partition)]) + b"\0"])
        + struct.pack(">i", max(0, hanging.coordinator_epoch)) + b"\0"
    )  # fmt: skip
    answer = ask(kafka, WRITE_TXN_MARKERS, 1, array([markers]) + b"\0")
    for _ in answer.items():
        answer.take("q")
        for _ in answer.items():
            answer.text()
            for _ in answer.items():
                partition, error = answer.take("ih")
                assert error in (0, GOES_ON), (
                    f"{hanging}: Kafka answered with error {error} for {partition}"
                )
                answer.tags()
            answer.tags()
        answer.tags()


class _Answer:
    """A response or a record of Kafka, read from a place in it."""

    def __init__(self, data: bytes, at: int = 0) -> None:
        self._data = data
        self._at = at

    def take(self, fields: str) -> tuple[Any, ...]:
        found = struct.unpack_from(f">{fields}", self._data, self._at)
        self._at += struct.calcsize(f">{fields}")
        return found

    def length(self) -> int:
        """The length of a string or an array; -1 for null."""
        number = shift = 0
        while True:
            (byte,) = self.take("B")
            number |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return number - 1

    def text(self) -> str:
        size = max(0, self.length())
        (found,) = self.take(f"{size}s")
        return str(found.decode())

    def items(self) -> range:
        """The number of items that follow, as a range."""
        return range(max(0, self.length()))

    def tags(self) -> None:
        for _ in range(self.length() + 1):
            self.length()  # its number
            self.take(f"{self.length() + 1}s")


def _records(kafka: str, topic: str) -> Iterator[Any]:
    """All records that a topic has now, in the order of each partition."""
    consumer = Consumer(
        {
            "bootstrap.servers": kafka, "group.id": "stream-rater-hanging",
            "enable.partition.eof": True, "enable.auto.commit": False,
        },
        logger=CLIENT_LOGGER,
    )  # fmt: skip
    try:
        known = consumer.list_topics(topic, timeout=TIMEOUT_S).topics[topic].partitions
        consumer.assign([TopicPartition(topic, p, OFFSET_BEGINNING) for p in known])
        reading = set(known)
        while reading:
            message = consumer.poll(TIMEOUT_S)
            assert message is not None, f"{topic}: nothing came for {TIMEOUT_S:g} s"
            if (error := message.error()) is None:
                yield message
            else:
                assert error.code() == KafkaError._PARTITION_EOF, error
                reading.discard(message.partition())
    finally:
        consumer.close()


def _flexible(value: bytes, at: int) -> set[tuple[str, int]]:
    """The partitions of a transaction, in the present form of its record."""
    answer, found = _Answer(value, at), set[tuple[str, int]]()
    for _ in answer.items():
        topic = answer.text()
        found.update((topic, *answer.take("i")) for _ in answer.items())
        answer.tags()
    return found


def _fixed(value: bytes, at: int) -> set[tuple[str, int]]:
    """The partitions of a transaction, in the form that Kafka 3 writes."""
    answer, found = _Answer(value, at), set[tuple[str, int]]()
    for _ in range(max(0, *answer.take("i"))):
        (size,) = answer.take("h")
        (topic,) = answer.take(f"{size}s")
        (count,) = answer.take("i")
        found.update((topic.decode(), *answer.take("i")) for _ in range(count))
    return found


def _opened(answer: _Answer) -> Iterator[tuple[Hanging, int]]:
    """The open transactions, with the time of the producer's last record in each, Unix ms."""
    answer.take("i")
    for _ in answer.items():
        topic = answer.text()
        for _ in answer.items():
            partition, _ = answer.take("ih")
            answer.text()
            for _ in answer.items():
                producer_id, epoch, _, last_ms, coordinator_epoch, start = answer.take("qiiqiq")
                answer.tags()
                if start >= 0:
                    found = (topic, partition, start, producer_id, epoch, coordinator_epoch)
                    yield Hanging(*found, ""), last_ms
            answer.tags()
        answer.tags()


def _coordinated(kafka: str, producer_id: int) -> dict[str, str]:
    """The state of each transactional id of this producer."""
    body = array([]) + array([struct.pack(">q", producer_id)]) + b"\0"
    answer = ask(kafka, LIST_TRANSACTIONS, 0, body)
    _, error = answer.take("ih")
    if error == LOADING:
        return {"": "Ongoing"}  # for all that is known so far
    assert error == 0, f"ListTransactions: Kafka answered with error {error}"
    for _ in answer.items():
        answer.text()
    found = {}
    for _ in answer.items():
        name = answer.text()
        answer.take("q")
        found[name] = answer.text()
        answer.tags()
    return found


def ask(kafka: str, key: int, version: int, body: bytes) -> _Answer:
    """The answer of a broker to a request of Kafka's protocol, after its header."""
    request = struct.pack(">hhih", key, version, 0, -1) + b"\0" + body
    host, _, port = kafka.rpartition(":")
    with socket.create_connection((host, int(port)), timeout=TIMEOUT_S) as broker:
        broker.sendall(struct.pack(">i", len(request)) + request)
        stream = broker.makefile("rb")
        answer = _Answer(stream.read(struct.unpack(">i", stream.read(4))[0]))
    answer.take("i")
    answer.tags()
    return answer


def _length(count: int) -> bytes:
    """An unsigned varint of the length plus one."""
    count += 1
    out = bytearray()
    while count > 0x7F:
        out.append(count & 0x7F | 0x80)
        count >>= 7
    return bytes([*out, count])


def text(value: str) -> bytes:
    return _length(len(value.encode())) + value.encode()


def array(items: Iterable[bytes]) -> bytes:
    found = list(items)
    return _length(len(found)) + b"".join(found)


def parser() -> argparse.ArgumentParser:
    found = argparse.ArgumentParser(prog="python -m tests.chaos.hanging", description=main.__doc__)
    found.add_argument("kafka", help="the only broker, as HOST:PORT")
    found.add_argument("--end", action="store_true", help="end each as it was decided")
    return found


def main() -> None:
    """Print the hanging transactions of a broker, and end them if asked to."""
    options = parser().parse_args()
    for each in find_hanging(options.kafka, OLDER_S):
        commit = is_to_be_committed(options.kafka, each)
        print(each, {True: "to be committed", False: "to be aborted", None: "undecided"}[commit])
        if options.end:
            end(options.kafka, each, commit=bool(commit))


if __name__ == "__main__":
    main()
