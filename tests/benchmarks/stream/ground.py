"""The servers of a measurement, Kafka and Redis, and what any client sees of them."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
from confluent_kafka import OFFSET_BEGINNING, Consumer, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from prometheus_client import ProcessCollector
from redis import Redis, RedisCluster

from local.processes import LOOPBACK
from local.redis_node import ADVISED
from local.servers import Server, start_kafka, start_redis
from stream_rater.adapters.access import CLIENT_LOGGER
from stream_rater.adapters.kafka.topics import Admin, Topics
from stream_rater.config.settings import Settings
from tests.benchmarks.stream.null import Sample
from tests.benchmarks.stream.rounds import Round
from tests.brokers import brokers as started_brokers
from tests.integration.topics import headers_of
from tests.redis_cluster import a_redis_cluster

MIB = 2**20
TIMEOUT_S = 60.0
RUN = "run-"  # Topics of a run begin so.
AT_ONCE = 10_000
SESSION_MS = 60_000  # Workers are stopped while a backlog is sent: the group must not miss them.


PROPERTIES = {
    "log.message.timestamp.type": "LogAppendTime",
    "message.max.bytes": str(16 * 2**20),  # of topics that others than the service create
}
"""When an event came is for the broker to say: some clients pass on the time of their input."""
MOST_COPIES = 3  # Brokers that have a copy of each partition, where there are so many.


class Servers(NamedTuple):
    brokers: int = 1
    masters: int = 1  # Of Redis: more than one are a Redis Cluster.

    @property
    def copies(self) -> int:
        """How many brokers have a copy of each partition."""
        return min(self.brokers, MOST_COPIES)

    @property
    def label(self) -> str:
        """The part of rows' names that names the cluster; empty for one server of each kind."""
        return "" if self == ONE_EACH else f"{self.brokers}-brokers-{self.masters}-redis"


ONE_EACH = Servers()


@dataclass
class Ground:
    kafka: Sequence[Server]
    redis: Sequence[Server]
    folder: Path
    given: Mapping[str, Any] = field(default_factory=dict)  # Settings over those of the benchmark.
    _runs: int = 0

    @property
    def servers(self) -> Servers:
        return Servers(len(self.kafka), len(self.redis))

    def settings(self, **settings: Any) -> Settings:
        """Settings of a run of its own, on topics of its own."""
        self._runs += 1
        at = {
            "kafka": ",".join(each.address for each in self.kafka),
            "redis": ",".join(each.address for each in self.redis),
            "redis_cluster": len(self.redis) > 1, "replication": self.servers.copies,
            "http": "127.0.0.1:0", "topic_prefix": f"{RUN}{self._runs}.",
            "session_timeout_ms": SESSION_MS, "ready_lag": 0,
        }  # fmt: skip
        return msgspec.convert({**at, **settings, **self.given}, Settings, strict=False)

    def new_folder(self) -> Path:
        folder = self.folder / f"{RUN}{self._runs}"
        folder.mkdir()
        return folder

    def memory(self) -> int:
        """Bytes that Redis uses, all masters together."""
        return sum(_client_of(each).info("memory")["used_memory"] for each in self.redis)

    def empty(self) -> None:
        """Empty Redis, and delete the topics of former runs."""
        self.lose()
        admin = AdminClient({"bootstrap.servers": self.kafka[0].address}, logger=CLIENT_LOGGER)
        old = [name for name in admin.list_topics(timeout=TIMEOUT_S).topics if name.startswith(RUN)]
        for done in admin.delete_topics(old, operation_timeout=TIMEOUT_S).values() if old else ():
            done.result(TIMEOUT_S)

    def lose(self) -> None:
        for each in self.redis:
            _client_of(each).flushall()

    def beliefs(self) -> dict[bytes, dict[bytes, bytes]]:
        """All beliefs as Redis holds them: each hash, by key."""
        client: Any = self._client()
        keys = list(client.scan_iter(match="{*}:belief:*", count=AT_ONCE))
        pipeline = client.pipeline(transaction=False)
        for key in keys:
            pipeline.hgetall(key)
        return dict(zip(keys, pipeline.execute(), strict=True))

    def _client(self) -> Any:
        first = self.redis[0]
        if len(self.redis) == 1:
            return _client_of(first)
        return RedisCluster(host=LOOPBACK, port=first.port)

    def servers_s(self) -> dict[str, float]:
        """Seconds of processor time that the servers of each kind have used together."""
        brokers_s = sum(processor_s(each.pid) for each in self.kafka)
        return {"redis": sum(self.each_redis_s()), "broker": brokers_s}

    def each_redis_s(self) -> list[float]:
        return [processor_s(each.pid) for each in self.redis]


def _client_of(redis: Server) -> Any:
    return Redis(host=LOOPBACK, port=redis.port)


@contextmanager
def a_ground(
    folder: Path, given: Mapping[str, Any], servers: Servers = ONE_EACH
) -> Iterator[Ground]:
    """New servers, gone at the end of the block."""
    with ExitStack() as stack:
        if servers.masters == 1:
            redis = [stack.enter_context(start_redis(folder / "redis", settings=ADVISED))]
        else:
            cluster = a_redis_cluster(folder / "redis", servers.masters, settings=ADVISED)
            redis = list(stack.enter_context(cluster).servers)
        if servers.brokers == 1:
            kafka = [stack.enter_context(start_kafka(folder / "kafka", properties=PROPERTIES))]
        else:
            nodes = started_brokers(folder / "kafka", servers.brokers, copied(servers))
            kafka = stack.enter_context(nodes)
        yield Ground(kafka, redis, folder, given)


def copied(servers: Servers) -> dict[str, str]:
    """Properties of brokers that keep so many copies of the topics of their own, too."""
    copies, least = str(servers.copies), str(max(servers.copies - 1, 1))
    return PROPERTIES | {
        "default.replication.factor": copies, "min.insync.replicas": least,
        "offsets.topic.replication.factor": copies,
        "transaction.state.log.replication.factor": copies, "transaction.state.log.min.isr": least,
    }  # fmt: skip


def processor_s(pid: int) -> float:
    """Seconds of processor time that a process has used, all its threads together."""
    return _of_process(pid, "process_cpu_seconds_total")


def resident_bytes(pid: int) -> int:
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
            "bootstrap.servers": kafka, "enable.idempotence": True, "partitioner": "murmur2_random",
            "message.max.bytes": 16 * 2**20, "linger.ms": linger_ms,
            "queue.buffering.max.kbytes": 1_000_000, "queue.buffering.max.messages": 1_000_000,
            "delivery.report.only.error": True,
            "on_delivery": lambda error, _: failures.append(error.str()), **options,
        },
        logger=CLIENT_LOGGER,
    )  # fmt: skip
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
    """A summary of rating-changed after a run."""

    keys: Counter[bytes]
    last_s: float  # When the broker took the last event, Unix seconds.
    sample: Sample
    messages: Mapping[str, int] = field(default_factory=dict)
    """Parts, and the ends of transactions in the partitions of events."""

    def wrong(self, due: Counter[bytes]) -> str:
        """A text on events that are lost or doubled; empty if there are none."""
        lost, doubled = (due - self.keys).total(), (self.keys - due).total()
        return f"{lost} events lost, {doubled} doubled" if lost or doubled else ""


def published(settings: Settings) -> Published:
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


def a_consumer(kafka: str, **options: Any) -> Consumer:
    """A consumer that reads committed records of assigned partitions and commits no offsets."""
    usual = {
        "bootstrap.servers": kafka, "group.id": "bench-reader", "isolation.level": "read_committed",
        "enable.auto.commit": False,
    }  # fmt: skip
    return Consumer({**usual, **options}, logger=CLIENT_LOGGER)


def _read(settings: Settings, topic: str) -> Iterator[Sequence[Message]]:
    with closing(a_consumer(settings.kafka, **{"enable.partition.eof": True})) as consumer:
        reading = set(consumer.list_topics(topic, timeout=TIMEOUT_S).topics[topic].partitions)
        consumer.assign([TopicPartition(topic, p, OFFSET_BEGINNING) for p in reading])
        while reading:
            messages = consumer.consume(AT_ONCE, 0.2)
            reading -= {each.partition() for each in messages if each.error() is not None}
            if found := [each for each in messages if each.error() is None]:
                yield found
