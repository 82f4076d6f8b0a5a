"""The five topics: their names, making them, and asking Kafka about them."""

import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import astuple, dataclass
from typing import Any

import confluent_kafka.admin as admin_api
from confluent_kafka import (
    Consumer,
    IsolationLevel,
    KafkaError,
    KafkaException,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.cimpl import NewTopic

from stream_rater.adapters.access import (
    DENIALS,
    LARGEST_RESPONSE_BYTES,
    QUIET,
    client_options,
    trouble_of,
)
from stream_rater.adapters.topic_rules import (
    ENVELOPE_BYTES,
    MESSAGE_BYTES,
    Found,
    judged,
    size_of,
    wanted,
)
from stream_rater.config import BadConfiguration, Settings
from stream_rater.contract import events
from stream_rater.pipeline.ports import Denied, LogTrouble

TIMEOUT_S = 10.0
REQUEST_TIMEOUT_S = 5.0
"""Of what the state machines wait for."""
NEWS_S = 0.05
"""How long after its question a broker that does not know of a new topic is asked again."""
ABANDONED_S = 15.0
"""How long after its time-out a transaction may stay open: brokers look for such every 10 s."""

_SPEC: Any = admin_api.OffsetSpec
LATEST: Any = _SPEC.latest()
EARLIEST: Any = _SPEC.earliest()
READ_COMMITTED: Any = IsolationLevel.READ_COMMITTED
UNKNOWN_TOPIC = KafkaError.UNKNOWN_TOPIC_OR_PART


class TopicMismatch(Exception):
    """A topic exists and cannot serve: one line with its name and the way out."""


@dataclass(frozen=True, slots=True)
class Topics:
    """Names, with the configured prefix."""

    rounds: str
    parts: str
    changed: str
    rejected: str
    notes: str
    """About ladders."""

    @classmethod
    def of(cls, settings: Settings) -> "Topics":
        """The names for these settings."""
        prefix = settings.topic_prefix
        return cls(
            rounds=prefix + events.ROUND_COMPLETED,
            parts=prefix + events.PERFORMANCE_ESTIMATED,
            changed=prefix + events.RATING_CHANGED,
            rejected=prefix + events.ROUND_REJECTED,
            notes=prefix + events.LADDERS_NOTED,
        )

    @property
    def names(self) -> tuple[str, ...]:
        """All of them."""
        return astuple(self)


def _offset(future: Any) -> int:
    """What ListOffsets found. Where a leader has just gone, there is no error and no offset."""
    offset: int = _result(future).offset
    if offset < 0:
        raise LogTrouble("kafka: a partition's leader does not tell its offsets")
    return offset


def _result(future: "Future[Any]") -> Any:
    try:
        return future.result(TIMEOUT_S)
    except KafkaException as error:
        raise trouble_of(error) from None
    except TimeoutError:
        raise LogTrouble(f"kafka: no answer within {TIMEOUT_S:g} s") from None


def _knows_no_topic(asked: "Future[Any]") -> bool:
    """Whether a broker has answered that there is no such topic."""
    error = asked.exception() if asked.done() else None
    return isinstance(error, KafkaException) and error.args[0].code() == UNKNOWN_TOPIC


def _copies(known: Any) -> list[tuple[int, int]]:
    """Of each partition of a topic: copies in sync, and all of them."""
    found = known.partitions
    return [(len(found[p].isrs), len(found[p].replicas)) for p in sorted(found)]


class Admin:
    """What the service asks of Kafka besides reading and writing."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._heard: KafkaError | None = None
        """Why the client could not connect, where it told more than that."""
        options = client_options(settings) | {"error_cb": self._hear}
        try:
            self._client = admin_api.AdminClient(options, logger=QUIET)
        except KafkaException as error:
            raise BadConfiguration(f"kafka: {error.args[0].str()}") from None
        self.topics = Topics.of(settings)
        self._created: set[str] = set()
        """Topics that are there since `create_topics`: not every broker may know of them yet."""
        self._readers: dict[str, Consumer] = {}
        """Of committed offsets, by group."""
        self.largest_rejection = MESSAGE_BYTES
        """Bytes of key and value that round-rejected takes, as it was found to be configured."""
        self.warnings: list[str] = []
        """A line each, after `check_topics`."""

    def _hear(self, error: KafkaError) -> None:
        if error.code() in DENIALS or error.code() == KafkaError._SSL:
            self._heard = error

    def create_topics(self) -> None:
        """Create what is missing; who may not create topics only needs them to be there."""
        there = self.partitions()
        new = [
            NewTopic(
                name, num_partitions=count, replication_factor=self._settings.replication,
                config=config,
            )
            for name, (count, config) in wanted(self._settings).items()
            if name not in there
        ]  # fmt: skip
        if not new:
            return
        futures = self._client.create_topics(new, operation_timeout=TIMEOUT_S)
        for name, future in futures.items():
            self._await_creation(name, future)
        self._created |= futures.keys()
        self._await_leaders()

    def _await_creation(self, name: str, future: "Future[Any]") -> None:
        error = future.exception(TIMEOUT_S)
        code = error.args[0].code() if isinstance(error, KafkaException) else None
        if code in DENIALS:
            raise Denied(f"kafka: {name} is not there, or not to be seen, and not to be created")
        if code != KafkaError.TOPIC_ALREADY_EXISTS:
            _result(future)

    def _await_leaders(self) -> None:
        """A broker may say for a moment that it does not lead what was just made."""
        deadline_s = time.monotonic() + TIMEOUT_S
        while not self._are_led() and time.monotonic() < deadline_s:
            time.sleep(NEWS_S)

    def _are_led(self) -> bool:
        with suppress(LogTrouble):
            return bool([self.ends(*each) for each in self.partitions().items()])
        return False

    def partitions(self) -> dict[str, int]:
        """Number of partitions of each of our topics."""
        return {name: len(known.partitions) for name, known in self._known().items()}

    def _known(self) -> dict[str, Any]:
        """What Kafka tells of our topics; of those that we created once a broker knows of all."""
        deadline_s = time.monotonic() + TIMEOUT_S
        while not self._created <= (known := self._listed()).keys():
            if time.monotonic() > deadline_s:
                break
            time.sleep(NEWS_S)
        return known

    def _listed(self) -> dict[str, Any]:
        """What some broker tells of our topics."""
        try:
            known = self._client.list_topics(timeout=TIMEOUT_S).topics
        except KafkaException as error:
            raise self._unreachable(error.args[0]) from None
        return {name: known[name] for name in self.topics.names if name in known}

    def _described(self, topic: str, ask: "Callable[[], Future[Any]]") -> Any:
        """What some broker tells of a topic; of one that we created once it knows of it."""
        deadline_s = time.monotonic() + TIMEOUT_S
        while True:
            asked = ask()
            try:
                return _result(asked)
            except LogTrouble:
                over = topic not in self._created or time.monotonic() > deadline_s
                if over or not _knows_no_topic(asked):
                    raise
            time.sleep(NEWS_S)

    def _unreachable(self, error: KafkaError) -> LogTrouble | Denied:
        """With the reason, where the client told one beside the outcome."""
        self._client.poll(0)  # tells `_hear`
        reason = self._heard or error
        kind = Denied if reason.code() in DENIALS else LogTrouble
        return kind(f"kafka at {self._settings.kafka}: {reason.str()}")

    def partitions_of(self, *names: str) -> list[int]:
        """Number of partitions of these topics of ours; TopicMismatch where one is missing."""
        known = self._known()
        return [len(known[name].partitions) for name in self._all_of(known, names)]

    def _all_of(self, known: Mapping[str, Any], names: Sequence[str]) -> Sequence[str]:
        """These names; TopicMismatch where Kafka does not know one of them."""
        for name in names:
            if name not in known:
                raise TopicMismatch(f"topic {name} does not exist, or is not to be seen by us")
        return names

    def check_topics(self) -> dict[str, int]:
        """Partitions by topic; raises TopicMismatch where a topic cannot serve. `warnings` say what
        is not as it should be."""
        known = self._known()
        found = {
            name: Found(
                len(known[name].partitions), min(of for _, of in _copies(known[name])),
                self.configuration(name),
            )
            for name in self._all_of(known, self.topics.names)
        }  # fmt: skip
        refusals, self.warnings = judged(self._settings, found)
        if refusals:
            first, *others = refusals
            more = f" ({len(others)} more refusals follow)" if others else ""
            raise TopicMismatch(f"{first}{more}")
        largest = min(size_of(found[self.topics.rejected].configuration), LARGEST_RESPONSE_BYTES)
        self.largest_rejection = max(largest - ENVELOPE_BYTES, 0)
        return {name: each.partitions for name, each in found.items()}

    def configuration(self, topic: str) -> Mapping[str, str]:
        """A topic's configuration by Kafka's names, what it has from the brokers among it."""
        resource = admin_api.ConfigResource(admin_api.ResourceType.TOPIC, topic)
        try:
            entries = self._described(
                topic, lambda: self._client.describe_configs([resource])[resource]
            )
        except Denied:
            raise Denied(f"kafka: {topic}: its configuration is not to be read by us") from None
        return {name: entry.value for name, entry in entries.items()}

    def copies(self, topic: str) -> list[tuple[int, int]]:
        """Of each partition of a topic of ours that is there: copies in sync, and all of them."""
        return _copies(self._known()[topic])

    def topic_id(self, topic: str) -> str:
        """What tells a topic from another of the same name that was there before."""
        asked = TopicCollection([topic])
        described = self._described(topic, lambda: self._client.describe_topics(asked)[topic])
        return str(described.topic_id)

    def ends(self, topic: str, partitions: int) -> list[int]:
        """The end offset of each partition, transactions pending or not."""
        return self._offsets(topic, partitions, LATEST)

    def all_ends(self, topic: str) -> list[int]:
        """The same, of as many partitions as the topic has now."""
        try:
            known = self._client.list_topics(topic, timeout=REQUEST_TIMEOUT_S).topics[topic]
        except KafkaException as error:
            raise self._unreachable(error.args[0]) from None
        if known.error is not None:
            raise trouble_of(known.error)
        return self.ends(topic, len(known.partitions))

    def stable_ends(self, topic: str, partitions: int) -> list[int]:
        """How far each partition is read by who reads committed: to the first open transaction."""
        return self._offsets(topic, partitions, LATEST, isolation_level=READ_COMMITTED)

    def starts(self, topic: str, partitions: int) -> list[int]:
        """The first offset of each partition."""
        return self._offsets(topic, partitions, EARLIEST)

    def members(self, group: str) -> int:
        """How many workers a group has."""
        return len(self._members(group))

    def owners(self, group: str, topic: str) -> dict[int, str]:
        """By partition of a topic which worker of a group has it: its name and its machine."""
        return {
            tp.partition: f"{each.group_instance_id or each.client_id} at {each.host}"
            for each in self._members(group)
            for tp in each.assignment.topic_partitions
            if tp.topic == topic
        }

    def _members(self, group: str) -> Sequence[Any]:
        name = self._settings.topic_prefix + group
        described = self._client.describe_consumer_groups(
            [name], request_timeout=REQUEST_TIMEOUT_S
        )[name]
        error = described.exception(TIMEOUT_S)
        if isinstance(error, KafkaException) and (
            error.args[0].code() == KafkaError.GROUP_ID_NOT_FOUND
        ):
            return ()
        members: Sequence[Any] = _result(described).members
        return members

    def committed(self, group: str, topic: str, partitions: int) -> dict[int, int | None]:
        """A group's stable offsets, None: never committed. A transaction that a dead worker left
        open is waited for; LogTrouble where it stays open."""
        deadline_s = time.monotonic() + self._settings.transaction_timeout_ms / 1000.0 + ABANDONED_S
        while True:
            try:
                return self._stable(group, topic, partitions)
            except LogTrouble as trouble:
                if time.monotonic() > deadline_s:
                    raise LogTrouble(f"{trouble}: is a transaction of {group} open?") from None
            time.sleep(0.1)  # if it came back at once

    def _stable(self, group: str, topic: str, partitions: int) -> dict[int, int | None]:
        """The same, LogTrouble while a transaction is open.

        Asks as a consumer that joins nothing: librdkafka's admin client ends the process with an
        assertion when a broker goes while it asks for a group's offsets (its issues 4605, 5397).
        """
        asked, reader = [TopicPartition(topic, p) for p in range(partitions)], self._reader(group)
        try:
            found = reader.committed(asked, timeout=REQUEST_TIMEOUT_S)
        except KafkaException as error:
            refusal = reader.poll(0.0)  # the coordinator's; to us it only did not answer
            raise trouble_of(refusal.error() if refusal is not None else error) from None
        for each in found:
            if each.error is not None:
                raise trouble_of(each.error)
        return {tp.partition: tp.offset if tp.offset >= 0 else None for tp in found}

    def commit(self, group: str, topic: str, offsets: Mapping[int, int]) -> None:
        """Commit offsets for a group that nobody is in."""
        ends = [TopicPartition(topic, p, offset) for p, offset in offsets.items()]
        if not ends:
            return
        try:
            done = self._reader(group).commit(offsets=ends, asynchronous=False)
        except KafkaException as error:
            raise trouble_of(error) from None
        for each in done or ():
            if each.error is not None:
                raise trouble_of(each.error)

    def _reader(self, group: str) -> Consumer:
        if group not in self._readers:
            name = self._settings.topic_prefix + group
            options = client_options(self._settings)
            options |= {"group.id": name, "isolation.level": "read_committed"}
            self._readers[group] = Consumer(options, logger=QUIET)
        return self._readers[group]

    def behind(self, group: str, topic: str, partitions: int) -> int:
        """Records of a topic that a group has not committed; open transactions are waited for."""
        committed = self.committed(group, topic, partitions)
        ends = self.ends(topic, partitions)
        starts_ = self.starts(topic, partitions)
        return sum(
            max(0, end - max(committed[p] or 0, start))
            for p, (start, end) in enumerate(zip(starts_, ends, strict=True))
        )

    def _offsets(self, topic: str, partitions: int, spec: Any, **options: Any) -> list[int]:
        """Asked once more where the client knows of another leader than there is now."""
        with suppress(LogTrouble):
            return self._listed_offsets(topic, partitions, spec, **options)
        self._forget_leaders(topic)
        return self._listed_offsets(topic, partitions, spec, **options)

    def _listed_offsets(self, topic: str, partitions: int, spec: Any, **options: Any) -> list[int]:
        asked = {TopicPartition(topic, p): spec for p in range(partitions)}
        found = self._client.list_offsets(asked, request_timeout=REQUEST_TIMEOUT_S, **options)
        by_partition = {tp.partition: _offset(future) for tp, future in found.items()}
        return [by_partition[p] for p in range(partitions)]

    def _forget_leaders(self, topic: str) -> None:
        with suppress(KafkaException):  # else the client asks the leader it knew, for minutes
            self._client.list_topics(topic, timeout=REQUEST_TIMEOUT_S)
