"""Rounds and offsets that Kafka deleted while no worker ran."""

from collections.abc import Callable
from typing import Any

from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

from stream_rater.adapters.access import CLIENT_LOGGER
from stream_rater.adapters.kafka.topics import Admin, Topics
from stream_rater.adapters.redis.store import RedisStore
from stream_rater.config.settings import Settings
from stream_rater.contract.groups import ESTIMATORS, UPDATERS
from stream_rater.pipeline.ports import NO_PLAYERS
from tests import real
from tests.integration.processes import WorkerProcess, wait_until
from tests.integration.test_rebuild import delete_parts, gone, rebuild
from tests.integration.test_service import a_round, assert_all_rated_once
from tests.integration.topics import Bytes, Finished, produce, read_topic
from tests.waits import STILL_S

Start = Callable[..., WorkerProcess]


def client_of(settings: Settings) -> Any:
    return AdminClient({"bootstrap.servers": settings.kafka}, logger=CLIENT_LOGGER)


def rated(settings: Settings, start: Start) -> None:
    """Send rounds and a message that is none, and rate them by a worker that leaves."""
    worker = start(settings)
    junk = Bytes(b"no round", b"ladder", partition=1)
    produce(settings, [*(a_round(number) for number in range(50)), junk])
    wait_until(Finished(settings), "all is finished", every_s=0.2)
    worker.terminate()
    assert worker.wait() == 0
    wait_until(gone(settings), "it has left")


def forget_offsets(settings: Settings, *groups: str) -> dict[str, dict[int, int | None]]:
    """Delete offsets, as Kafka does some days after the last member left. Returns what they
    were."""
    admin, topics = Admin(settings), Topics.of(settings)
    read = {ESTIMATORS: topics.rounds, UPDATERS: topics.parts}
    found = {group: admin.committed(group, read[group], 4) for group in groups}
    names = [settings.topic_prefix + group for group in groups]
    client = client_of(settings)
    for future in client.delete_consumer_groups(names).values():
        future.result(STILL_S)
    return found


def test_rounds_that_were_deleted_are_not_replayed_without(
    settings: real.SettingsFactory, worker_process: Start
) -> None:
    """A rebuild refuses in one line, and leaves the store as it is."""
    at = settings()
    rated(at, worker_process)
    store = RedisStore(at)
    before = store.count_beliefs(), store.read(dict.fromkeys(range(4), NO_PLAYERS))
    rounds = Topics.of(at).rounds
    ends = Admin(at).ends(rounds, 4)
    partition = max(range(4), key=ends.__getitem__)
    where = TopicPartition(rounds, partition, 3)
    client = client_of(at)
    for future in client.delete_records([where]).values():
        future.result(STILL_S)
    refused = rebuild(at, "--replace")
    assert refused.returncode == 1
    assert f"partition {partition} of the rounds starts at 3" in refused.stderr
    assert refused.stderr.count("\n") == 1
    assert (store.count_beliefs(), store.read(dict.fromkeys(range(4), NO_PLAYERS))) == before


def assert_resumes(at: Settings, worker_process: Start) -> None:
    """Assert that ten more rounds are rated, and that no round is rated, published or rejected
    twice."""
    worker_process(at)
    produce(at, [a_round(number) for number in range(50, 60)])
    wait_until(Finished(at), "all is finished", every_s=0.2)
    assert_all_rated_once(at, 60)
    assert len(read_topic(at, Topics.of(at).rejected)) == 1


def test_estimators_find_where_they_were(
    settings: real.SettingsFactory, worker_process: Start
) -> None:
    """If no part was deleted, nothing is rated, published or rejected twice."""
    at = settings()
    rated(at, worker_process)
    forget_offsets(at, ESTIMATORS)
    assert_resumes(at, worker_process)


def test_estimators_do_not_guess_where_they_were(
    settings: real.SettingsFactory, worker_process: Start
) -> None:
    """If parts were deleted, a worker ends and says what to commit. Then it continues."""
    at = settings()
    rated(at, worker_process)
    delete_parts(at)
    known = forget_offsets(at, ESTIMATORS)[ESTIMATORS]
    worker = worker_process(at, ready=False)
    assert worker.wait() == 1
    assert "partition 1 (not below 1)" in worker.log().splitlines()[-1]
    refused = rebuild(at, "--replace")
    assert refused.returncode == 1
    assert "has no committed offset any more" in refused.stderr
    offsets = {partition: offset or 0 for partition, offset in known.items()}
    Admin(at).commit(ESTIMATORS, Topics.of(at).rounds, offsets)
    assert_resumes(at, worker_process)


def test_updaters_do_not_guess_where_they_were(
    settings: real.SettingsFactory, worker_process: Start
) -> None:
    """Shards that hold something wait for an operator. The message says what to commit."""
    at = settings()
    rated(at, worker_process)
    known = forget_offsets(at, UPDATERS)[UPDATERS]
    assert "has no committed offset any more" in rebuild(at, "--replace").stderr
    worker = worker_process(at, ready=False)
    used = {shard: offset for shard, offset in known.items() if offset}

    def all_refused() -> bool:
        return worker.metric("stream_rater_refused_shards") == len(used)

    wait_until(all_refused, "it refuses the shards")
    _, page = worker.get("/readyz")
    assert all(f"Commit {offset} for this partition" in page for offset in used.values())
    worker.kill()
    wait_until(gone(at), "its session is over")
    Admin(at).commit(UPDATERS, Topics.of(at).parts, used)
    worker_process(at)
    produce(at, [a_round(number) for number in range(50, 60)])
    wait_until(Finished(at), "all is finished", every_s=0.2)
    assert_all_rated_once(at, 60)
