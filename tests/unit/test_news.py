"""Brokers learn of a new topic one after the other: who asks one of them may have to ask again."""

from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from stream_rater.adapters.kafka.topic_rules import topic_settings
from stream_rater.adapters.kafka.topics import Admin, TopicMismatch
from stream_rater.config.settings import Settings
from stream_rater.contract.errors import LogTrouble

AT = Settings(kafka="127.0.0.1:1", partitions=2, shards=3)
UNKNOWN = KafkaException(KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART))
KNOWN = {name: count for name, (count, _) in topic_settings(AT).items()}
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
        _, made = topic_settings(AT)[resource.name]
        configs = {name: SimpleNamespace(value=value) for name, value in made.items()}
        return {resource: answered(configs if self.knows() else UNKNOWN)}

    def describe_topics(self, asked: Any, **options: Any) -> Any:
        reported = SimpleNamespace(topic_id="id") if self.knows() else UNKNOWN
        return {name: answered(reported) for name in KNOWN}


@pytest.fixture
def admin(monkeypatch: pytest.MonkeyPatch) -> Admin:
    """Of such brokers."""
    found, brokers = Admin(AT), Brokers()
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
