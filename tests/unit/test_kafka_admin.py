"""What Kafka says of its topics while brokers learn of them, have no leader, or are busy."""

from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any, cast

import pytest
from confluent_kafka import KafkaError, KafkaException

from stream_rater.adapters.kafka.topic_rules import topic_settings
from stream_rater.adapters.kafka.topics import (
    COMMAND_TIMEOUT_S,
    REQUEST_TIMEOUT_S,
    Admin,
    TopicMismatch,
    offset_of,
)
from stream_rater.config.settings import Settings
from stream_rater.contract.errors import Denied, LogTrouble
from tests.builders.cases import cases

AT = Settings(kafka="127.0.0.1:1")


def test_an_offset_is_one() -> None:
    """Zero, too: an empty partition begins and ends there. No offset is trouble: seen with three
    brokers of which one was killed (`make chaos`); taken for the end of the log, it made a worker
    refuse its shard."""
    assert [offset_of(answered(SimpleNamespace(offset=offset))) for offset in (0, 7)] == [0, 7]
    for offset in (-1, -1001):
        with pytest.raises(LogTrouble, match="leader"):
            offset_of(answered(SimpleNamespace(offset=offset)))


def test_topics_of_another_process_have_leaders_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker that finds all topics waits, too: another may have created them just now. Who may
    not read offsets does not: whoever needs the right says so."""
    admin = Admin(AT)
    asked = list[str]()

    def ends(topic: str, partitions: int) -> list[int]:
        asked.append(topic)
        if len(asked) == 3:
            raise LogTrouble("kafka: Broker: Not leader for partition")
        return [0] * partitions

    monkeypatch.setattr(admin, "partitions", lambda: dict.fromkeys(admin.topics.names, 2))
    monkeypatch.setattr(admin, "ends", ends)
    admin.create_topics()
    assert asked == [*admin.topics.names[:3], *admin.topics.names]

    def denied(topic: str, partitions: int) -> list[int]:
        raise Denied(topic)

    monkeypatch.setattr(admin, "ends", denied)
    admin.create_topics()


# --- brokers learn of a new topic one after the other ---------------------------------------------


SIZED = Settings(kafka="127.0.0.1:1", partitions=2, shards=3)
UNKNOWN = KafkaException(KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART))
KNOWN = {name: count for name, (count, _) in topic_settings(SIZED).items()}
COPY = SimpleNamespace(isrs=[1], replicas=[1])


def answered(result: Any) -> "Future[Any]":
    future: Future[Any] = Future()
    if isinstance(result, KafkaException):
        future.set_exception(result)
    else:
        future.set_result(result)
    return future


class Brokers:
    """A client whose every other answer, the first among them, comes from a broker without news."""

    def __init__(self) -> None:
        self.asked = 0
        self.leads = False
        """Not when asked the first time."""

    def knows(self) -> bool:
        self.asked += 1
        return self.asked % 2 == 0

    def list_topics(self, topic: str = "", *, timeout: float) -> Any:
        topics = {name: SimpleNamespace(partitions=dict.fromkeys(range(count), COPY))
                  for name, count in KNOWN.items()}  # fmt: skip
        return SimpleNamespace(topics=topics if self.knows() else {})

    def create_topics(self, new: Any, **_: Any) -> Any:
        return {each.topic: answered(None) for each in new}

    def list_offsets(self, asked: Any, **_: Any) -> Any:
        self.leads, led = True, self.leads
        return {each: answered(SimpleNamespace(offset=0) if led else UNKNOWN) for each in asked}

    def describe_configs(self, resources: Any, **options: Any) -> Any:
        (resource,) = resources
        _, made = topic_settings(SIZED)[resource.name]
        configs = {name: SimpleNamespace(value=value) for name, value in made.items()}
        return {resource: answered(configs if self.knows() else UNKNOWN)}

    def describe_topics(self, asked: Any, **options: Any) -> Any:
        reported = SimpleNamespace(topic_id="id") if self.knows() else UNKNOWN
        return {name: answered(reported) for name in KNOWN}


@pytest.fixture
def admin(monkeypatch: pytest.MonkeyPatch) -> Admin:
    found, brokers = Admin(SIZED), Brokers()
    monkeypatch.setattr(found, "_client", brokers)
    monkeypatch.setattr("stream_rater.adapters.kafka.topics.NEW_TOPIC_PAUSE_S", 0.0)
    return found


def test_topics_that_were_just_created_are_asked_for_until_a_broker_knows(admin: Admin) -> None:
    """Whatever is asked of them, and who leads their partitions before anybody reads them."""
    admin.create_topics()
    assert admin.check_topics() == admin.partitions() == KNOWN
    assert admin.copies("round-completed") == [(1, 1), (1, 1)]
    assert admin.topic_id("round-completed") == "id"


def test_topics_that_we_did_not_create_are_missing_at_once(admin: Admin) -> None:
    """As a named error."""
    with pytest.raises(TopicMismatch, match="topic round-completed does not exist"):
        admin.check_topics()
    admin.partitions()
    with pytest.raises(LogTrouble, match="Unknown topic"):
        admin.configuration("round-completed")


# --- a command's requests wait longer for a busy broker than a service's --------------------------


TIMED_OUT = KafkaException(KafkaError(KafkaError._TIMED_OUT))


class BusyBroker:
    """A client whose requests all time out. It notes how long each would have waited."""

    def __init__(self) -> None:
        self.waits_s: list[float] = []

    def _timed_out(self, keys: Any, request_timeout: float) -> dict[Any, "Future[Any]"]:
        self.waits_s.append(request_timeout)
        return dict.fromkeys(keys, answered(TIMED_OUT))

    describe_consumer_groups = list_offsets = _timed_out

    def list_topics(self, topic: str, timeout: float) -> None:
        raise TIMED_OUT


@cases(
    ("options", "longest_s"),
    [({}, COMMAND_TIMEOUT_S), ({"request_timeout_s": REQUEST_TIMEOUT_S}, REQUEST_TIMEOUT_S)],
)
def test_the_longest_wait(options: dict[str, float], longest_s: float) -> None:
    """The first request for offsets is short in both: its leader may be a former one."""
    admin, broker = Admin(AT, **options), BusyBroker()
    admin._client = cast(Any, broker)
    with pytest.raises(LogTrouble):
        admin.ends("topic", 2)
    with pytest.raises(LogTrouble):
        admin.members("group")
    assert broker.waits_s == [REQUEST_TIMEOUT_S, longest_s, longest_s]
