"""The secured servers, on which many places and users are made at once."""

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
from confluent_kafka import KafkaError, Message, Producer
from confluent_kafka.admin import NewTopic

from stream_rater.adapters.access import CLIENT_LOGGER
from stream_rater.adapters.kafka.topic_rules import topic_settings
from stream_rater.config.settings import Settings
from tests.builders.lines import Bytes, a_message, a_round
from tests.integration import secured
from tests.integration.rights import Rights, least
from tests.integration.topics import create_topics
from tests.waits import STILL_S

NOWHERE = Settings(topic_prefix="")
LONG_AGO = "2020-05-01T20:15:05Z"
Given = tuple[Settings, Rights]  # A place, and the rights of a user there.


@dataclass
class Castle:
    """The secured servers, and users that are not used yet."""

    kafka: secured.SecuredKafka
    redis: secured.SecuredRedis
    certificates: secured.Certificates
    users: Iterator[str] = field(default_factory=lambda: iter(secured.USERS))
    callers: Iterator[str] = field(default_factory=lambda: iter(secured.CALLERS))
    databases: Iterator[int] = field(default_factory=lambda: iter(range(1, secured.DATABASES)))
    prefixes: Iterator[str] = field(default_factory=lambda: map("p{}.".format, itertools.count(1)))

    def places(self, count: int, **changes: int) -> list[Settings]:
        """`count` places with topics and databases, and no users. `changes`: other settings."""
        made = [
            msgspec.structs.replace(
                self.settings("nobody", next(self.prefixes), next(self.databases)), **changes
            )
            for _ in range(count)
        ]
        self.make_topics(made)
        return made

    def place(self, **changes: int) -> Settings:
        return self.places(1, **changes)[0]

    def make_topics(self, places: Iterable[Settings]) -> None:
        """Create the topics of these places, and wait until each leader knows that it leads."""
        new = [
            NewTopic(name, partitions, 1, config=config)
            for at in places
            for name, (partitions, config) in topic_settings(at).items()
        ]
        if new:
            create_topics(self.kafka.admin, new)

    def fill(self, contents: Mapping[str, Sequence[Bytes]]) -> None:
        """Append records to topics of one partition, by name, all at once."""
        given = {"bootstrap.servers": self.kafka.open, "enable.idempotence": True}
        producer, failures = Producer(given, logger=CLIENT_LOGGER), list[str]()

        def delivered(error: KafkaError | None, _: Message) -> None:
            if error is not None:
                failures.append(error.str())

        for topic, records in contents.items():
            for each in records:
                producer.produce(
                    topic, each.value, each.key, 0, delivered, headers=list(each.headers)
                )
        assert producer.flush(STILL_S) == 0
        assert not failures

    def settings(self, user: str, prefix: str, database: int) -> Settings:
        return secured.settings_of(
            user, self.kafka, self.redis, self.certificates, prefix, database
        )

    def opened(self, settings: Settings) -> Settings:
        """The same place through Kafka's other listener, where everything is allowed."""
        plain = Settings(kafka=self.kafka.open)
        names = [n for n in Settings.__struct_fields__ if n.startswith("kafka")]
        return msgspec.structs.replace(settings, **{name: getattr(plain, name) for name in names})

    def owner(self, at: Settings) -> Settings:
        """The place with the settings of a user who may do everything there."""
        name = next(self.callers)
        self.redis.allow(name, "~*", "&*", "+@all")
        return self.opened(self._as(name, at))

    def user(self, at: Settings, role: str, less: secured.Acl | str | None = None) -> Settings:
        """The settings of a new user with a role's rights there, or with all but one of them."""
        return self._with_rights(self.users, [(at, least(role, at).without(less))])[0]

    def given(self, rights: Sequence[Given]) -> list[Settings]:
        """The settings of a new user for each of these, who logs in by PLAIN."""
        return self._with_rights(self.callers, rights)

    def _with_rights(self, names: Iterator[str], rights: Sequence[Given]) -> list[Settings]:
        named = [(next(names), at, each) for at, each in rights]
        self.kafka.allow({name: each.kafka for name, _, each in named})
        for name, _, each in named:
            self.redis.allow(name, *each.redis)
        return [self._as(name, at) for name, at, _ in named]

    def _as(self, name: str, at: Settings) -> Settings:
        there = self.settings(name, at.topic_prefix, database_of(at))
        return msgspec.structs.replace(there, partitions=at.partitions, shards=at.shards)


def database_of(at: Settings) -> int:
    return int(at.redis.rpartition("/")[2])


@contextmanager
def a_castle(folder: Path) -> Iterator[Castle]:
    certificates = secured.make_certificates(folder)
    with ExitStack() as stack:
        redis = stack.enter_context(secured.secured_redis(folder / "redis", certificates))
        (folder / "kafka").mkdir()
        kafka = stack.enter_context(secured.secured_kafka(folder / "kafka", certificates))
        yield Castle(kafka, redis, certificates)


def rounds_from(first: int, count: int, ladders: int = 8) -> list[Bytes]:
    numbers = range(first, first + count)
    return [
        a_message(a_round(each, ladder=f"l{each % ladders}", completed_at=LONG_AGO))
        for each in numbers
    ]


def some_rounds() -> list[Bytes]:
    """Two valid rounds of ann and bob on `eu`, and one that is not."""
    first, second = (
        a_message(a_round(number, ladder="eu", completed_at=LONG_AGO)) for number in range(2)
    )
    return [first, Bytes(b"no round", b"eu"), second]
