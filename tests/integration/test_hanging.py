"""The decision about a transaction, as an operator reads it from the coordinator's topic
(`tests.chaos.hanging`)."""

import pytest
from confluent_kafka import Producer

from stream_rater.adapters.access import CLIENT_LOGGER
from stream_rater.adapters.kafka.topics import Admin, Topics
from stream_rater.config.settings import Settings
from tests import real
from tests.chaos.hanging import Hanging, find_open, is_to_be_committed

TIMEOUT_S = 60.0


def opened(producer: Producer, at: Settings, partitions: set[int]) -> list[Hanging]:
    """A transaction that has just begun, in each of its partitions."""
    topic = Topics.of(at).changed
    producer.begin_transaction()
    for partition in partitions:
        producer.produce(topic, b"value", b"key", partition)
    producer.flush(TIMEOUT_S)
    found = [each for each, _ in find_open(at.kafka) if each.topic == topic]
    assert {each.partition for each in found} == partitions
    return found


@pytest.mark.slow  # a tool of chaos
@pytest.mark.parametrize("commit", [True, False], ids=["committed", "aborted"])
def test_decision(settings: real.SettingsFactory, commit: bool) -> None:
    """It is that of this transaction in this partition: the next one may be decided otherwise. None
    while it goes on, and None for another epoch of the producer."""
    at = settings()
    Admin(at).create_topics()
    name = f"{Topics.of(at).changed}-decision-{commit}"
    options = {"bootstrap.servers": at.kafka, "transactional.id": name}
    producer = Producer(options, logger=CLIENT_LOGGER)
    producer.init_transactions(TIMEOUT_S)
    ends = [producer.abort_transaction, producer.commit_transaction]
    first = opened(producer, at, {0, 1})
    assert [is_to_be_committed(at.kafka, each) for each in first] == [None, None]
    ends[commit](TIMEOUT_S)
    second = opened(producer, at, {2})
    ends[not commit](TIMEOUT_S)
    assert [is_to_be_committed(at.kafka, each) for each in first] == [commit, commit]
    assert [is_to_be_committed(at.kafka, each) for each in second] == [not commit]
    unknown = first[0]._replace(epoch=first[0].epoch + 1)
    assert is_to_be_committed(at.kafka, unknown) is None
