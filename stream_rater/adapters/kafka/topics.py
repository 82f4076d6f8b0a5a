"""The five topics: their names, creation and checks, and other requests about them."""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from typing import Any, NamedTuple, TypeVar

import confluent_kafka as kafka
import confluent_kafka.admin as admin_api
from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition
from confluent_kafka.cimpl import NewTopic

from stream_rater.adapters import access
from stream_rater.adapters.kafka import records, topic_rules
from stream_rater.config.settings import Settings, origin
from stream_rater.contract.errors import Denied, LogTrouble, TopicMismatch, Unled
from stream_rater.pipeline.ports import NO_TAILS, SourceCommit, Tails

T = TypeVar("T")

TIMEOUT_S = 10.0  # The time-out of requests for all topics, and of waits for new topics.
REQUEST_TIMEOUT_S = 5.0  # For requests that a state machine waits for; it asks again later.
COMMAND_TIMEOUT_S = 30.0  # For a command's requests. It ends if one fails, so it waits longer.
RESULT_S = 2 * COMMAND_TIMEOUT_S  # The longest wait if the client exceeds its time-out.
NEW_TOPIC_PAUSE_S = 0.05  # The pause before a broker that does not know a new topic is asked again.
ABANDONED_S = 15.0  # How long a transaction may outlive its time-out: brokers look every 10 s.
_SPEC: Any = admin_api.OffsetSpec
LATEST: Any = _SPEC.latest()
EARLIEST: Any = _SPEC.earliest()
READ_COMMITTED: Any = kafka.IsolationLevel.READ_COMMITTED


class Topics(NamedTuple):
    """The names of the topics, with the configured prefix."""

    rounds: str
    parts: str
    changed: str
    rejected: str
    ladder_events: str

    @classmethod
    def of(cls, settings: Settings) -> "Topics":
        """The names for these settings."""
        return cls(*[settings.topic_prefix + name for name in topic_rules.NAMES])

    @property
    def names(self) -> tuple[str, ...]:
        """The names of all five topics."""
        return tuple(self)


class Admin:
    """Requests to Kafka's admin API."""

    def __init__(self, settings: Settings, *, request_timeout_s: float = COMMAND_TIMEOUT_S) -> None:
        self._settings, self._timeout_s = settings, request_timeout_s
        self._connection_error: KafkaError | None = None
        """The reason why the client could not connect, if it reported one by callback."""
        options = access.client_options(settings) | {"error_cb": self._remember_connection_error}
        self._client = access.new_admin(settings, options)
        self.topics = Topics.of(settings)
        self._created: set[str] = set()
        """Topics that `create_topics` created. Not every broker may know them yet."""
        self._readers: dict[str, Consumer] = {}
        """Consumers that read committed offsets, by group."""
        self.largest_rejection = topic_rules.MESSAGE_BYTES
        """The most bytes of key and value that round-rejected accepts, by its configuration."""
        self.warnings: list[str] = []
        """The warnings of `check_topics`, one line each."""

    def _remember_connection_error(self, error: KafkaError) -> None:
        if error.code() in access.DENIALS or error.code() == KafkaError._SSL:
            self._connection_error = error

    def create_topics(self) -> None:
        """Create the topics that do not exist, which needs a right of its own."""
        existing, wanted = self.partitions(), topic_rules.topic_settings(self._settings)
        self._create({name: each for name, each in wanted.items() if name not in existing})
        with suppress(LogTrouble, Denied):  # whoever needs what is missing will say so
            for each in self.partitions().items():
                self.ends(*each)  # waits for leaders, also of topics that another process creates

    def _create(self, wanted: Mapping[str, tuple[int, dict[str, str]]]) -> None:
        """Create topics, each with its number of partitions and its configuration."""
        new = [
            NewTopic(
                name, num_partitions=count, replication_factor=self._settings.replication,
                config=config,
            )
            for name, (count, config) in wanted.items()
        ]  # fmt: skip
        if not new:
            return
        times = {"operation_timeout": TIMEOUT_S, "request_timeout": COMMAND_TIMEOUT_S}
        for name, future in self._client.create_topics(new, **times).items():
            code = access.code_of(future.exception(RESULT_S))
            if code in access.DENIALS:
                raise Denied(
                    f"kafka: {name} does not exist, or may not be seen by this service, and this "
                    "service may not create it"
                )
            if code != KafkaError.TOPIC_ALREADY_EXISTS:
                result_of(future)
        self._created |= wanted.keys()

    def partitions_if_any(self, topic: str) -> int | None:
        """The number of partitions of any topic; None if there is none, or none may be seen."""
        found = self._listed().get(topic)
        return None if found is None or found.error is not None else len(found.partitions) or None

    def create_season_topic(self, topic: str) -> int:
        """Create the topic of past seasons. Returns the number of its partitions."""
        self._create({topic: topic_rules.season_topic_settings(self._settings)})
        for _ in _looks():
            if found := self.partitions_if_any(topic):
                self.ends(topic, found)  # waits for leaders
                return found
        raise LogTrouble(f"kafka: {topic} was created, and no broker knows it yet")

    def check_season_topic(self, topic: str) -> None:
        """Check that the existing topic of past seasons keeps what is written. A service without
        the right to read its configuration checks nothing. Raises TopicMismatch."""
        with suppress(Denied):
            for refusal in topic_rules.season_refusals(
                self._settings, topic, self.configuration(topic)
            ):
                raise TopicMismatch(refusal)

    def partitions(self) -> dict[str, int]:
        """The number of partitions of each of our topics."""
        return {name: len(known.partitions) for name, known in self._our_topics().items()}

    def _our_topics(self) -> dict[str, Any]:
        """The metadata of our topics. Waits for topics that this service created."""
        created, known = self._created.intersection(self.topics.names), dict[str, Any]()
        for _ in _looks():
            known = self._listed()
            if created <= known.keys():
                break
        return {name: known[name] for name in self.topics.names if name in known}

    def _listed(self, timeout_s: float = TIMEOUT_S, **one: str) -> dict[str, Any]:
        """The metadata of all topics, or of `one`, from one broker. If a broker is connected, this
        waits as long as for any request: it is there and busy."""
        for wait_s in sorted({timeout_s, self._timeout_s}):
            try:
                known: dict[str, Any] = self._client.list_topics(timeout=wait_s, **one).topics
                return known
            except KafkaException as error:
                trouble = error.args[0]
            if trouble.code() != KafkaError._TIMED_OUT:
                break
        raise self._unreachable(trouble)

    def _unreachable(self, error: KafkaError) -> LogTrouble | Denied:
        """The exception for a client that cannot connect, with the reason, if it reported one."""
        self._client.poll(0)  # calls `_remember_connection_error`
        reason, self._connection_error = self._connection_error or error, None
        why = f"kafka at {self._settings.kafka}: {reason.str()}"
        if reason is error:  # the address did not answer
            why += f" {origin('kafka', self._settings.kafka)}"
        if reason.code() in access.UNAUTHENTICATED:
            return access.refused(why)
        return (Denied if reason.code() in access.DENIALS else LogTrouble)(why)

    def partitions_of(self, *names: str) -> list[int]:
        """The number of partitions of these topics. Raises TopicMismatch if one does not exist."""
        known = self._our_topics()
        return [len(known[name].partitions) for name in self._checked_names(known, names)]

    def _checked_names(self, known: Mapping[str, Any], names: Sequence[str]) -> Sequence[str]:
        """These names. Raises TopicMismatch if Kafka does not know one of them."""
        for name in names:
            if name not in known:
                raise TopicMismatch(
                    f"topic {name} does not exist, or may not be seen by this service"
                )
        return names

    def check_topics(self) -> dict[str, int]:
        """The number of partitions by topic. Sets `warnings`. Raises TopicMismatch at a refusal."""
        known = self._our_topics()
        found = {
            name: topic_rules.TopicDescription(
                len(known[name].partitions), min(of for _, of in copies_of(known[name])),
                self.configuration(name),
            )
            for name in self._checked_names(known, self.topics.names)
        }  # fmt: skip
        refusals, self.warnings = topic_rules.check_rules(self._settings, found)
        if refusals:
            first, *others = refusals
            more = f" ({len(others)} more refusals follow)" if others else ""
            raise TopicMismatch(f"{first}{more}")
        largest = min(
            topic_rules.size_of(found[self.topics.rejected].configuration),
            access.LARGEST_RESPONSE_BYTES,
        )
        self.largest_rejection = max(largest - topic_rules.ENVELOPE_BYTES, 0)
        return {name: each.partitions for name, each in found.items()}

    def configuration(self, topic: str) -> Mapping[str, str]:
        """A topic's configuration by Kafka's names, also what it has from the brokers."""
        resource = admin_api.ConfigResource(admin_api.ResourceType.TOPIC, topic)
        describe, timeout_s = self._client.describe_configs, self._timeout_s
        try:
            entries = once_led(
                lambda: result_of(describe([resource], request_timeout=timeout_s)[resource])
            )
        except Denied:
            raise Denied(f"kafka: this service may not read the configuration of {topic}") from None
        return {name: entry.value for name, entry in entries.items()}

    def copies(self, topic: str) -> list[tuple[int, int]]:
        """For each partition, the number of in-sync replicas and of all replicas."""
        return copies_of(self._our_topics()[topic])

    def topic_id(self, topic: str) -> str:
        """The id of a topic, which differs from that of a deleted topic of the same name."""
        asked = kafka.TopicCollection([topic])
        describe, timeout_s = self._client.describe_topics, self._timeout_s
        described = once_led(lambda: result_of(describe(asked, request_timeout=timeout_s)[topic]))
        return str(described.topic_id)

    def ends(self, topic: str, partitions: int) -> list[int]:
        """The end offset of each partition, whether transactions are pending or not."""
        return self._offsets(topic, partitions, LATEST)

    def all_ends(self, topic: str) -> list[int]:
        """The end of each partition that the topic has now, as `ends` returns it."""
        known = self._listed(self._timeout_s, topic=topic)[topic]
        if known.error is not None:
            raise access.trouble_of(known.error)
        return self.ends(topic, len(known.partitions))

    def stable_ends(self, topic: str, partitions: int) -> list[int]:
        """The last stable offset of each partition. Committed records before it can be read."""
        return self._offsets(topic, partitions, LATEST, isolation_level=READ_COMMITTED)

    def starts(self, topic: str, partitions: int) -> list[int]:
        """The first offset of each partition."""
        return self._offsets(topic, partitions, EARLIEST)

    def members(self, group: str) -> int:
        """The number of members of a group."""
        return len(self._members(group))

    def owners(self, group: str, topic: str) -> dict[int, str]:
        """The member that owns each partition of a topic: its name and its host."""
        return {
            tp.partition: f"{each.group_instance_id or each.client_id} at {each.host}"
            for each in self._members(group)
            for tp in each.assignment.topic_partitions
            if tp.topic == topic
        }

    def _members(self, group: str) -> Sequence[Any]:
        name = self._settings.topic_prefix + group
        describe = self._client.describe_consumer_groups
        described = describe([name], request_timeout=self._timeout_s)[name]
        if access.code_of(described.exception(RESULT_S)) == KafkaError.GROUP_ID_NOT_FOUND:
            return ()
        members: Sequence[Any] = result_of(described).members
        return members

    def committed(self, group: str, topic: str, partitions: int) -> dict[int, int | None]:
        """A group's stable committed offsets; None: never committed. Waits for a transaction that a
        dead worker left open, and raises LogTrouble if it stays open."""
        found = self.source_commits(group, topic, partitions)
        return {p: None if each is None else each.offset for p, each in found.items()}

    def source_commits(
        self, group: str, topic: str, partitions: int
    ) -> dict[int, SourceCommit | None]:
        """As `committed`, with the checksums that were committed with the offsets."""
        deadline_s = time.monotonic() + self._settings.transaction_timeout_ms / 1000.0 + ABANDONED_S
        while True:
            try:
                return self._stable(group, topic, partitions)
            except LogTrouble as trouble:
                if time.monotonic() > deadline_s:
                    why = f"{trouble}: is a transaction of {group} open?"
                    raise LogTrouble(why, trouble.cause) from None
            time.sleep(0.1)  # where the call returned early

    def _stable(self, group: str, topic: str, partitions: int) -> dict[int, SourceCommit | None]:
        """A group's stable committed offsets. Raises LogTrouble while a transaction is open. It
        asks as a consumer that joins no group: librdkafka's admin client ends the process with a
        failed assertion if a broker goes away while it asks for a group's offsets (its issues 4605
        and 5397)."""
        asked, reader = [TopicPartition(topic, p) for p in range(partitions)], self._reader(group)
        try:
            found = reader.committed(asked, timeout=self._timeout_s)
        except KafkaException as error:
            denial = reader.poll(0.0)  # from the coordinator; the call itself only timed out
            self._readers.pop(group, None)
            raise access.trouble_of(denial.error() if denial is not None else error) from None
        access.raise_first(found)
        return {tp.partition: records.source_commit(tp) for tp in found}

    def commit(
        self, group: str, topic: str, offsets: Mapping[int, int], tails: Tails = NO_TAILS
    ) -> None:
        """Commit offsets for a group that has no members. `tails`: the checksums of the records
        before them, for offsets of `round-completed`."""
        ends = records.committing(topic, offsets, tails)
        if not ends:
            return
        with access.translated_failures():
            try:
                done = self._reader(group).commit(offsets=ends, asynchronous=False)
            except KafkaException:
                self._readers.pop(group, None)
                raise
        access.raise_first(done or ())

    def _reader(self, group: str) -> Consumer:
        """The consumer for a group's offsets. One whose call failed is not used again: it may go on
        asking a coordinator that hangs. Another one asks which broker is the coordinator."""
        if group not in self._readers:
            name = self._settings.topic_prefix + group
            options = access.client_options(self._settings)
            options |= {"group.id": name, "isolation.level": "read_committed"}
            self._readers[group] = access.new_consumer(self._settings, options)
        return self._readers[group]

    def left(self, group: str, topic: str, ends: Mapping[int, int]) -> dict[int, range]:
        """By partition, the offsets before these ends that a group has not committed. Some of them
        may have no record. Waits for open transactions of the group."""
        partitions = max(ends, default=-1) + 1
        committed = self.committed(group, topic, partitions)
        starts = self.starts(topic, partitions)
        return {p: range(max(committed[p] or 0, starts[p]), end) for p, end in ends.items()}

    def _offsets(self, topic: str, partitions: int, spec: Any, **options: Any) -> list[int]:
        """The offsets of each partition. Asks twice: the client may know only a former leader."""

        def ask() -> list[int]:
            with suppress(LogTrouble):
                return self._listed_offsets(topic, partitions, spec, REQUEST_TIMEOUT_S, **options)
            with suppress(KafkaException):  # else the client asks the former leader for minutes
                self._client.list_topics(topic, timeout=self._timeout_s)
            return self._listed_offsets(topic, partitions, spec, self._timeout_s, **options)

        return once_led(ask)

    def _listed_offsets(
        self, topic: str, partitions: int, spec: Any, timeout_s: float, **options: Any
    ) -> list[int]:
        asked = {TopicPartition(topic, p): spec for p in range(partitions)}
        found = self._client.list_offsets(asked, request_timeout=timeout_s, **options)
        by_partition = {tp.partition: offset_of(future) for tp, future in found.items()}
        return [by_partition[p] for p in range(partitions)]


def _looks() -> Iterator[None]:
    """Yield at intervals for TIMEOUT_S, while a broker may not know a topic or its leaders."""
    deadline_s = time.monotonic() + TIMEOUT_S
    yield
    while time.monotonic() < deadline_s:
        time.sleep(NEW_TOPIC_PAUSE_S)
        yield


def once_led(ask: Callable[[], T]) -> T:
    """What `ask` returns, which is called again for TIMEOUT_S as long as it raises Unled."""
    for _ in _looks():
        try:
            return ask()
        except Unled as error:
            trouble = error
    raise trouble


def delete_topics(settings: Settings, names: Iterable[str]) -> None:
    """Delete these topics. Raises LogTrouble or Denied."""
    client = access.new_admin(settings, access.client_options(settings))
    for future in client.delete_topics(list(names), operation_timeout=TIMEOUT_S).values():
        result_of(future)


# --- the results of requests ---------------------------------------------------------------------


def offset_of(future: Any) -> int:
    """The offset from a ListOffsets response. Right after the loss of a leader, the response has
    neither an error nor an offset: this raises LogTrouble."""
    offset: int = result_of(future).offset
    if offset < 0:
        raise Unled("kafka: a partition's leader did not return its offset")
    return offset


def result_of(future: "Future[Any]") -> Any:
    """The result of a request. Raises LogTrouble or Denied."""
    try:
        return future.result(RESULT_S)
    except KafkaException as error:
        raise access.trouble_of(error) from None
    except TimeoutError:
        raise LogTrouble(f"kafka: no answer within {RESULT_S:g} s") from None


def copies_of(known: Any) -> list[tuple[int, int]]:
    """For each partition of a topic, the number of in-sync replicas and of all replicas."""
    found = known.partitions
    return [(len(found[p].isrs), len(found[p].replicas)) for p in sorted(found)]
