"""`make chaos` in small, and what it reads as an operator does: the decision about a transaction,
from the coordinator's topic. (What it counts: `unit/test_chaos_tally.py`.)"""

import json
import os
import subprocess
import sys

import pytest
from confluent_kafka import Producer

from local.tools import KAFKA_VARIABLE, REDIS_VARIABLE, ROOT, given_address
from stream_rater.adapters.access import CLIENT_LOGGER
from stream_rater.adapters.kafka.topics import Admin, Topics
from stream_rater.adapters.redis.store import RedisStore
from stream_rater.config.settings import Settings
from tests import real
from tests.chaos.hanging import Hanging, find_open, is_to_be_committed
from tests.chaos.tally import differing
from tests.unit.test_chaos_tally import ALL
from tests.waits import HANGS_S


def test_what_was_published_last_is_what_the_store_has(settings: real.SettingsFactory) -> None:
    """A player whose belief in the store differs, or is missing, is named."""
    at = settings()
    store = RedisStore(at)
    store.prepare()
    store.close()
    assert [*differing({("l", "q"): ALL[3]}, at)] == ["l:r3:q: the store has None of ('l', 'q')"]


@pytest.mark.slow  # a snapshot under workers: `test_rebuild.py`
@pytest.mark.skipif(
    bool(given_address(KAFKA_VARIABLE) or given_address(REDIS_VARIABLE)),
    reason="servers are given, and chaos breaks its own",
)
def test_a_fault_and_its_line() -> None:
    """Redis returns to an old snapshot during work, which is when events might be published twice.
    Nothing is lost or doubled, and a JSON object says so."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.chaos", "--quick", "redis-restored"],
        cwd=ROOT, env=os.environ | {"PYTHONPATH": "deploy:deploy/tools"},
        capture_output=True, text=True, timeout=HANGS_S, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    (line,) = done.stdout.splitlines()
    found = json.loads(line)
    assert [found[name] for name in ("injected", "lost", "doubled", "wrong")] == [1, 0, 0, 0]
    assert (found["recoveries"], found["ended_themselves"]) == (1, {})
    assert found["updates"] > 1000


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
