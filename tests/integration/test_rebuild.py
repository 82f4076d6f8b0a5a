"""`rebuild` on real servers: a lost store comes back from the log; and from a snapshot."""

import subprocess
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewPartitions

from stream_rater.adapters.access import CLIENT_LOGGER
from stream_rater.adapters.kafka.topics import Admin
from stream_rater.adapters.redis.client import connect
from stream_rater.config.settings import Settings
from stream_rater.contract.groups import ESTIMATORS, UPDATERS
from tests import real
from tests.builders.kills import halting, short
from tests.integration.processes import (
    PATIENTLY,
    WorkerProcess,
    environment_of,
    stream_rater,
    wait_until,
)
from tests.integration.test_service import a_round, assert_all_rated_once
from tests.integration.topics import Finished, produce
from tests.restore import Rehearsal
from tests.waits import STILL_S

Start = Callable[..., WorkerProcess]

EFFECTS = [
    "stream_rater.adapters.kafka.producers.PartsProducer.scatter",
    "stream_rater.adapters.kafka.topics.Admin.commit",
    "stream_rater.adapters.redis.metadata.StoreMetadata.begin_rebuild",
    "stream_rater.adapters.redis.store.RedisStore.apply",
]
"""What `rebuild` writes by, up to the beliefs, in the order of the first calls."""

PLAYERS, EACH = 200, 8
"""The players of the restore, and its rounds before the snapshot, and again after it."""


def rebuild(settings: Settings, *options: str) -> "subprocess.CompletedProcess[str]":
    return stream_rater("rebuild", *options, settings=settings)


def gone(settings: Settings) -> Callable[[], bool]:
    admin = Admin(settings)
    return lambda: not any(admin.members(group) for group in (ESTIMATORS, UPDATERS))


def flush(settings: Settings) -> None:
    with connect(settings) as client:
        client.flushdb()


def delete_parts(settings: Settings) -> None:
    """Delete parts, as retention does after some days."""
    admin = Admin(settings)
    topic = admin.topics.parts
    client = AdminClient({"bootstrap.servers": settings.kafka}, logger=CLIENT_LOGGER)
    ends = admin.ends(topic, settings.shards)
    for future in client.delete_records(
        [TopicPartition(topic, shard, end) for shard, end in enumerate(ends)]
    ).values():
        future.result(STILL_S)


def rated_on(settings: Settings, start: Start, first: int, count: int) -> WorkerProcess:
    """Let another worker rate this many more rounds, and check that each round was rated once."""
    worker = start(settings)
    produce(settings, [a_round(number) for number in range(first, first + count)])
    wait_until(Finished(settings), "all is rated")
    assert_all_rated_once(settings, first + count)
    assert worker.metric("stream_rater_updates_total", outcome="replayed") == 0
    return worker


def test_the_store_is_lost_in_mid_season(
    settings: real.SettingsFactory, worker_process: Start, tmp_path: Path
) -> None:
    """A worker is killed during work, and Redis is emptied; then a rebuild is killed, after which
    workers refuse the store. After another one, another worker continues, and nothing is lost or
    doubled. No rebuild begins while a worker runs."""
    at = settings()
    worker = worker_process(at)
    produce(at, [a_round(number) for number in range(400)])
    wait_until(lambda: worker.metric("stream_rater_events_total") > 100, "it is at work")
    refused = rebuild(at)
    assert refused.returncode == 1
    assert "workers are in the group" in refused.stderr
    assert refused.stderr.count("\n") == 1
    worker.kill()
    flush(at)
    wait_until(gone(at), "its session is over")
    made = list[str]()
    with halting(["rebuild"], environment_of(at), EFFECTS, tmp_path / "log") as halts:
        for name in halts:
            made.append(name)
            if made.count("RedisStore.apply") == 2:
                break
    assert {*made} == {*map(short, EFFECTS)}, (tmp_path / "log").read_text()
    ended = stream_rater("run", settings=at)
    assert ended.returncode == 2 and "a rebuild of the store is unfinished" in ended.stderr
    done = rebuild(at, "--replace")
    assert done.returncode == 0, done.stderr
    rated_on(at, worker_process, 400, 100)


def test_the_store_is_lost_when_parts_are_gone(
    settings: real.SettingsFactory, worker_process: Start
) -> None:
    """Workers refuse the shards and name the remedy. After it they continue, with any number of
    buckets. The contents of the store are deleted only on request."""
    at = settings()
    worker = worker_process(at)
    produce(at, [a_round(number) for number in range(100)])
    wait_until(Finished(at), "all is rated")
    delete_parts(at)
    flush(at)
    wait_until(lambda: worker.metric("stream_rater_refused_shards") == 4, "shards are refused")
    assert "stream-rater rebuild" in worker.get("/readyz")[1]
    worker.terminate()
    worker.wait()
    done = rebuild(at)
    assert done.returncode == 0, done.stderr
    assert "100 rounds replayed" in done.stdout

    again = rebuild(at)
    assert again.returncode == 2
    assert "--replace" in again.stderr
    wider = msgspec.structs.replace(at, buckets=2 * at.buckets)
    done = rebuild(wider, "--replace")
    assert done.returncode == 0, done.stderr
    rated_on(wider, worker_process, 100, 50)


@pytest.mark.slow  # by hand: `unit/test_rebuild.py`, `unit/test_forgotten_offsets.py`
def test_more_shards(settings: real.SettingsFactory, worker_process: Start) -> None:
    """Workers refuse the store after the topics by player got more partitions, and accept it after
    a rebuild.

    If the store is lost afterwards, the older log is not replayed into the wrong shards, nor are
    the new shards' logs replayed as if nothing had been before them.
    """
    at = settings()
    worker = worker_process(at)
    produce(at, [a_round(number) for number in range(50)])
    wait_until(Finished(at), "all is rated")
    worker.terminate()
    worker.wait()
    add_shards(at, 7)
    refused = stream_rater("run", settings=at)
    assert refused.returncode == 2
    assert "shards = 4, this service has 7" in refused.stderr
    done = rebuild(at, "--replace")
    assert done.returncode == 0, done.stderr
    worker = rated_on(at, worker_process, 50, 50)

    flush(at)
    produce(at, [a_round(number) for number in range(100, 110)])
    wait_until(lambda: worker.metric("stream_rater_refused_shards") == 7, "it refuses all")
    said = worker.get("/readyz")[1]
    assert said.count("the store was rebuilt here for 7 shards") == 7
    assert all(f"shard {new}: offset 0: the store was rebuilt here" in said for new in (4, 5, 6))


def add_shards(at: Settings, count: int) -> None:
    topics = Admin(at).topics
    client = AdminClient({"bootstrap.servers": at.kafka}, logger=CLIENT_LOGGER)
    more = [NewPartitions(topic, count) for topic in (topics.parts, topics.changed)]
    for future in client.create_partitions(more).values():
        future.result(STILL_S)
    wait_until(lambda: Admin(at).partitions()[topics.parts] == count, "there are more")


def test_a_snapshot_and_the_log_bring_every_belief_back(
    settings: real.SettingsFactory, tmp_path: Path
) -> None:
    """Backup and restore as in docs/operations/backup.md, on a Redis of its own, under workers.
    Every belief comes back byte for byte, although half of the rounds are rated after the snapshot.
    Nothing is published twice, and `verify` finds all equal. (A million players: `python -m
    tests.restore`.)"""

    def verified(at: Settings) -> None:
        done = stream_rater("verify", "--wait", PATIENTLY, settings=at)
        assert done.returncode == 0, done.stderr
        assert f"{PLAYERS} beliefs compared: all equal" in done.stdout, done.stdout

    print(Rehearsal(settings(), tmp_path, PLAYERS, made=False, each=EACH).run(verified))
