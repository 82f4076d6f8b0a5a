"""Where it is measured: one Kafka and one Redis, and what a stranger sees of them."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
from confluent_kafka import OFFSET_BEGINNING, Consumer, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from prometheus_client import ProcessCollector
from redis import Redis

from local.redis_node import ADVISED
from local.servers import Server, start_kafka, start_redis
from stream_rater.adapters.access import CLIENT_LOGGER
from stream_rater.adapters.kafka.topics import Admin, Topics
from stream_rater.config.settings import Settings
from tests.benchmarks.stream.null import Sample
from tests.benchmarks.stream.rounds import Round
from tests.integration.topics import headers_of

TIMEOUT_S = 60.0
RUN = "run-"
"""Topics of a run begin so."""
AT_ONCE = 10_000
SESSION_MS = 60_000
"""Workers are stopped while a backlog is sent: the group must not miss them."""


PROPERTIES = {
    "log.message.timestamp.type": "LogAppendTime",
    "message.max.bytes": str(16 * 2**20),  # of topics that others than the service create
}
"""When an event came is for the broker to say: some clients pass on the time of their input."""


@dataclass
class Ground:
    """Two servers."""

    kafka: Server
    redis: Server
    folder: Path
    given: Mapping[str, Any] = field(default_factory=dict)
    """Settings over those of the benchmark."""
    _runs: int = 0

    def settings(self, **settings: Any) -> Settings:
        """Settings of a run of its own, on topics of its own."""
        self._runs += 1
        at = {
            "kafka": self.kafka.address,
            "redis": self.redis.address,
            "http": "127.0.0.1:0",
            "topic_prefix": f"{RUN}{self._runs}.",
            "session_timeout_ms": SESSION_MS,
            "ready_lag": 0,
        }
        return msgspec.convert({**at, **settings, **self.given}, Settings, strict=False)

    def new_folder(self) -> Path:
        """For the logs of a run."""
        folder = self.folder / f"{RUN}{self._runs}"
        folder.mkdir()
        return folder

    def memory(self) -> int:
        """Bytes that Redis uses."""
        used: int = self._client().info("memory")["used_memory"]
        return used

    def empty(self) -> None:
        """Nothing in Redis, and no topics of former runs."""
        self.lose()
        admin = AdminClient({"bootstrap.servers": self.kafka.address}, logger=CLIENT_LOGGER)
        topics = admin.list_topics(timeout=TIMEOUT_S).topics
        old = [name for name in topics if name.startswith(RUN)]
        for done in admin.delete_topics(old, operation_timeout=TIMEOUT_S).values() if old else ():
            done.result(TIMEOUT_S)

    def lose(self) -> None:
        """All that Redis holds."""
        self._client().flushall()

    def beliefs(self) -> dict[bytes, dict[bytes, bytes]]:
        """All beliefs as Redis holds them: each hash, by key."""
        client = self._client()
        keys = list(client.scan_iter(match="{*}:belief:*", count=AT_ONCE))
        pipeline = client.pipeline(transaction=False)
        for key in keys:
            pipeline.hgetall(key)
        return dict(zip(keys, pipeline.execute(), strict=True))

    def _client(self) -> Any:
        return Redis(host="127.0.0.1", port=self.redis.port)

    def servers_s(self) -> dict[str, float]:
        """Seconds of processor time that each server has used."""
        return {"redis": processor_s(self.redis.pid), "broker": processor_s(self.kafka.pid)}


@contextmanager
def a_ground(folder: Path, given: Mapping[str, Any]) -> Iterator[Ground]:
    """New servers, gone at the end of the block."""
    with (
        start_redis(folder / "redis", settings=ADVISED) as redis,
        start_kafka(folder / "kafka", properties=PROPERTIES) as kafka,
    ):
        yield Ground(kafka, redis, folder, given)


def most_memory(pid: int) -> int:
    """The most bytes of memory that a process ever had."""
    found = re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    assert found is not None
    return 1024 * int(found[1])


def processor_s(pid: int) -> float:
    """Seconds of processor time that a process has used, all its threads together."""
    return _of_process(pid, "process_cpu_seconds_total")


def resident_bytes(pid: int) -> int:
    """Memory of a process that is not swapped out."""
    return int(_of_process(pid, "process_resident_memory_bytes"))


def _of_process(pid: int, name: str) -> float:
    for metric in ProcessCollector(pid=lambda: pid, registry=None).collect():
        for sample in metric.samples:
            if sample.name == name:
                return sample.value
    raise AssertionError(f"process {pid} is gone")


@contextmanager
def a_producer(kafka: str, linger_ms: int, **options: Any) -> Iterator[Producer]:
    """As a backend has it, but for these options; all is acknowledged at the end of the block."""
    failures: list[str] = []
    producer = Producer(
        {
            "bootstrap.servers": kafka,
            "enable.idempotence": True,
            "partitioner": "murmur2_random",
            "message.max.bytes": 16 * 2**20,
            "linger.ms": linger_ms,
            "queue.buffering.max.kbytes": 1_000_000,
            "queue.buffering.max.messages": 1_000_000,
            "delivery.report.only.error": True,
            "on_delivery": lambda error, _: failures.append(error.str()),
            **options,
        },
        logger=CLIENT_LOGGER,
    )
    yield producer
    assert producer.flush(TIMEOUT_S) == 0, "the broker does not take the rounds"
    assert not failures, failures[0]


def send(settings: Settings, rounds: Iterable[Round]) -> None:
    """Append to round-completed; all are acknowledged when this returns."""
    topic = Topics.of(settings).rounds
    with a_producer(settings.kafka, linger_ms=20) as producer:
        for each in rounds:
            producer.produce(topic, each.value, each.ladder.encode())


@dataclass(frozen=True)
class Published:
    """What is in rating-changed."""

    keys: Counter[bytes]
    last_s: float
    """When the broker took the last event, Unix seconds."""
    sample: Sample
    messages: Mapping[str, int] = field(default_factory=dict)
    """Parts, and the ends of transactions in the partitions of events."""

    def wrong(self, due: Counter[bytes]) -> str:
        """What is lost or doubled, empty for nothing."""
        lost, doubled = (due - self.keys).total(), (self.keys - due).total()
        return f"{lost} events lost, {doubled} doubled" if lost or doubled else ""


def published(settings: Settings) -> Published:
    """Read all that is committed now."""
    keys: Counter[bytes] = Counter()
    last_ms, sample = 0, Sample(0, [])
    for some in _read(settings, Topics.of(settings).changed):
        keys.update(message.key() or b"" for message in some)
        last_ms = max(last_ms, *(message.timestamp()[1] for message in some))
        sample = Sample(len(some[-1].value() or b""), headers_of(some[-1]))
    admin = Admin(settings)
    ends = {topic: sum(admin.ends(topic, count)) for topic, count in admin.partitions().items()}
    topics = admin.topics
    messages = {"parts": ends[topics.parts], "markers": ends[topics.changed] - keys.total()}
    return Published(keys, last_ms / 1000.0, sample, messages)


def _read(settings: Settings, topic: str) -> Iterator[Sequence[Message]]:
    consumer = Consumer(
        {
            "bootstrap.servers": settings.kafka,
            "group.id": "bench-reader",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
        },
        logger=CLIENT_LOGGER,
    )
    try:
        reading = set(consumer.list_topics(topic, timeout=TIMEOUT_S).topics[topic].partitions)
        consumer.assign([TopicPartition(topic, p, OFFSET_BEGINNING) for p in reading])
        while reading:
            messages = consumer.consume(AT_ONCE, 0.2)
            reading -= {each.partition() for each in messages if each.error() is not None}
            if found := [each for each in messages if each.error() is None]:
                yield found
    finally:
        consumer.close()
