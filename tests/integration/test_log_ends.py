"""Commands on a log whose last offsets have no readable record: those of aborted transactions, for
which nobody waits, and those of a dead worker's open transaction, for which all wait."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from stream_rater.adapters.access import CLIENT_LOGGER, client_options
from stream_rater.adapters.kafka.topics import Admin, Topics
from stream_rater.config.settings import Settings
from stream_rater.contract.errors import LogTrouble
from stream_rater.contract.events import ESTIMATORS, UPDATERS
from stream_rater.places.kafka_topics import UnfinishedRounds
from tests.integration.erasing import digests, season
from tests.integration.processes import Start, WorkerProcess, done, stopped
from tests.integration.test_corrections import RANKED, correct
from tests.integration.topics import in_transactions, produce, rated
from tests.real import SettingsFactory
from tests.waits import STILL_S, wait_until

Kept = tuple[Settings, WorkerProcess]
AT_ONCE = ("--wait", "0")  # Fails at once if offsets without records count as rounds.


@pytest.fixture
def kept(settings: SettingsFactory, worker_process: Start) -> Kept:
    """A season that is rated, and an aborted transaction after it, on each partition."""
    at = settings()
    worker = worker_process(at)
    rated(at, *season(0, 12))
    correct(at, "season", RANKED, "1")
    rated(at, *season(12, 8))
    in_transactions(at, [*season(20, 8)], abort={0})
    topic, admin = Topics.of(at).rounds, Admin(at)
    left = admin.left(ESTIMATORS, topic, dict(enumerate(admin.ends(topic, at.partitions))))
    count = sum(map(len, left.values()))
    assert count > 8, "the records and the ends of their transaction take offsets"
    return at, worker


@contextmanager
def an_open_transaction(at: Settings) -> Iterator[None]:
    """A game has sent a round in a transaction that is open in the block, and then aborted."""
    admin, topic = Admin(at), Topics.of(at).rounds

    def closed() -> bool:
        return admin.stable_ends(topic, at.partitions) == admin.ends(topic, at.partitions)

    options = {"bootstrap.servers": at.kafka, "transactional.id": f"{at.topic_prefix}other"}
    producer = Producer(options, logger=CLIENT_LOGGER)
    producer.init_transactions()
    producer.begin_transaction()
    (later,) = season(30, 1)
    producer.produce(topic, later.value, later.key)
    producer.flush()
    yield
    producer.abort_transaction()
    wait_until(closed, "the end of the transaction is in the log")


def test_commands_do_not_wait_for_what_no_worker_can_finish(kept: Kept) -> None:
    """The lag counts records, and offsets that an open transaction hides, with workers or without.
    Commands read to the log's end, and later rounds are rated. A record behind aborted ones counts
    as unfinished, and so does one that nobody can read yet."""
    at, worker = kept
    assert "all equal, bit for bit" in done(at, "verify", *AT_ONCE)
    assert "season 0" in done(at, "season-standings", RANKED, *AT_ONCE)
    lag = partial(worker.metric, "stream_rater_lag_records")
    wait_until(lambda: lag() == 0, "nobody lags")
    with an_open_transaction(at):
        wait_until(lambda: lag() > 0, "what may yet be committed is lag")
        stays = worker.metric("stream_rater_next_offset")
    wait_until(lambda: lag() == 0, "it was aborted")
    assert worker.metric("stream_rater_next_offset") == stays

    done(at, "checkpoint", RANKED)
    assert "p1" in done(at, "correct", "void", RANKED, "r11", "--dry-run")
    done(at, "inspect")
    done(at, "inspect", "--ladder", RANKED, "--player", "p1")
    assert done(at, "predict", "p1", "p2", "--ladder", RANKED)
    done(at, "correct", "void", RANKED, "r11")
    rated(at, *season(30, 4))
    in_transactions(at, [*season(40, 4)], abort={0})
    stopped(worker)

    assert "all equal, bit for bit" in done(at, "verify", *AT_ONCE)
    before = digests(at)
    done(at, "rebuild", "--replace")
    assert digests(at) == before
    assert left(at) == {}
    with an_open_transaction(at):
        assert left(at), "it may yet be committed"
    assert left(at) == {}
    (message,) = produce(at, [*season(50, 1)])
    assert (message.offset() or 0) in left(at)[message.partition() or 0]


def left(at: Settings) -> dict[int, range]:
    """By partition, the offsets that commands take for unfinished."""
    admin = Admin(at)
    ends = dict(enumerate(admin.ends(Topics.of(at).rounds, at.partitions)))
    return UnfinishedRounds(at, admin).look(ends)


# --- a worker died in the middle of a transaction ---


def leave_open(at: Settings) -> None:
    """Leave a transaction open that holds the offset of shard 0, until it times out."""
    options = client_options(at)
    group = Consumer(options | {"group.id": at.topic_prefix + UPDATERS}, logger=CLIENT_LOGGER)
    timeout = {"transaction.timeout.ms": at.transaction_timeout_ms}
    producer = Producer(options | timeout | {"transactional.id": "dead"}, logger=CLIENT_LOGGER)
    producer.init_transactions(STILL_S)
    producer.begin_transaction()
    ends = [TopicPartition(Admin(at).topics.parts, 0, 7)]
    producer.send_offsets_to_transaction(ends, group.consumer_group_metadata(), STILL_S)


def test_a_dead_workers_transaction_is_waited_for(settings: SettingsFactory) -> None:
    """The broker aborts the transaction after a while, and then the former offsets hold."""
    at = settings(transaction_timeout_ms=8000)
    Admin(at).create_topics()
    leave_open(at)
    assert "0 rounds replayed" in done(at, "verify", *AT_ONCE)


def test_offsets_are_not_published_while_a_transaction_is_open(settings: SettingsFactory) -> None:
    """The former offsets may not be the last ones, which a rebuild needs."""
    at = settings(transaction_timeout_ms=60_000)
    admin = Admin(at)
    admin.create_topics()
    assert admin.committed(UPDATERS, admin.topics.parts, 4) == dict.fromkeys(range(4))
    leave_open(at)
    hasty = Admin(at, request_timeout_s=0.6)
    with pytest.raises(LogTrouble):
        hasty._stable(UPDATERS, admin.topics.parts, 4)
