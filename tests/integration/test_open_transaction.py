"""Commands after a worker died in the middle of a transaction."""

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from stream_rater.adapters.access import CLIENT_LOGGER, client_options
from stream_rater.adapters.kafka.topics import Admin
from stream_rater.config.settings import Settings
from stream_rater.contract.errors import LogTrouble
from stream_rater.contract.groups import UPDATERS
from tests import real
from tests.integration.processes import stream_rater

LONG_S = 180.0


def leave_open(at: Settings) -> None:
    """Leave a transaction open that holds the offset of shard 0, until it times out."""
    options = client_options(at)
    group = Consumer(options | {"group.id": at.topic_prefix + UPDATERS}, logger=CLIENT_LOGGER)
    timeout = {"transaction.timeout.ms": at.transaction_timeout_ms}
    producer = Producer(options | timeout | {"transactional.id": "dead"}, logger=CLIENT_LOGGER)
    producer.init_transactions(LONG_S)
    producer.begin_transaction()
    ends = [TopicPartition(Admin(at).topics.parts, 0, 7)]
    producer.send_offsets_to_transaction(ends, group.consumer_group_metadata(), LONG_S)


def test_a_dead_workers_transaction_is_waited_for(settings: real.SettingsFactory) -> None:
    """No command says that Kafka did not answer. The broker aborts the transaction soon, and the
    former offsets hold."""
    at = settings(transaction_timeout_ms=8000)
    Admin(at).create_topics()
    leave_open(at)
    verified = stream_rater("verify", "--wait", "0", settings=at)
    assert verified.returncode == 0, verified.stderr
    assert "0 rounds replayed" in verified.stdout


def test_offsets_are_not_published_while_a_transaction_is_open(
    settings: real.SettingsFactory,
) -> None:
    """The former offsets may not be the last ones, which a rebuild needs."""
    at = settings(transaction_timeout_ms=60_000)
    admin = Admin(at)
    admin.create_topics()
    assert admin.committed(UPDATERS, admin.topics.parts, 4) == dict.fromkeys(range(4))
    leave_open(at)
    hasty = Admin(at, request_timeout_s=0.6)
    with pytest.raises(LogTrouble):
        hasty._stable(UPDATERS, admin.topics.parts, 4)
