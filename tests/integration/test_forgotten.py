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
from stream_rater.operations import verify
from stream_rater.pipeline.ports import NO_PLAYERS
from tests import real
from tests.integration.processes import WorkerProcess, wait_until
from tests.integration.test_rebuild import delete_parts, gone, rebuild
from tests.integration.test_service import a_round, events_of
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


def resumes(at: Settings, start: Start, first: int) -> None:
    """Let another worker rate ten more rounds. Then no round is rated, published or rejected
    twice, and no round is lost."""
    worker = start(at)
    produce(at, [a_round(number) for number in range(first, first + 10)])
    wait_until(Finished(at), "all is finished", every_s=0.2)
    worker.terminate()
    assert worker.wait() == 0
    wait_until(gone(at), "it has left")
    found = events_of(at)
    assert len(found) == 2 * (first + 10) and set(found.values()) == {1}
    assert len(read_topic(at, Topics.of(at).rejected)) == 1


def test_nobody_guesses_where_they_were(
    settings: real.SettingsFactory, worker_process: Start
) -> None:
    """As long as no part was deleted, estimators find it. Once parts were, they end, and shards
    that hold something wait for an operator; the messages say what to commit, and then all
    continue. Until then a rebuild refuses, and where rounds were deleted, and leaves the store as
    it is."""
    at = settings()
    rated(at, worker_process)
    forget_offsets(at, ESTIMATORS)
    resumes(at, worker_process, 50)

    known = forget_offsets(at, UPDATERS)[UPDATERS]
    assert "has no committed offset any more" in refusal(at)
    worker = worker_process(at, ready=False)
    used = {shard: offset for shard, offset in known.items() if offset}

    def all_refused() -> bool:
        return worker.metric("stream_rater_refused_shards") == len(used)

    wait_until(all_refused, "it refuses the shards")
    _, page = worker.get("/readyz")
    assert all(f"Commit {offset} for this partition" in page for offset in used.values())
    worker.terminate()
    worker.wait()
    wait_until(gone(at), "it has left")
    Admin(at).commit(UPDATERS, Topics.of(at).parts, used)
    resumes(at, worker_process, 60)

    delete_parts(at)
    known = forget_offsets(at, ESTIMATORS)[ESTIMATORS]
    worker = worker_process(at, ready=False)
    assert worker.wait() == 1
    assert "partition 1 (not below 1)" in worker.log().splitlines()[-1]
    assert "has no committed offset any more" in refusal(at)
    offsets = {partition: offset or 0 for partition, offset in known.items()}
    Admin(at).commit(ESTIMATORS, Topics.of(at).rounds, offsets)
    resumes(at, worker_process, 70)
    verify.verify(at, wait_s=STILL_S)
    deleted_rounds(at)


def refusal(at: Settings) -> str:
    """What a rebuild says in one line."""
    refused = rebuild(at, "--replace")
    assert refused.returncode == 1
    assert refused.stderr.count("\n") == 1
    return refused.stderr


def deleted_rounds(at: Settings) -> None:
    """Delete rounds: they are not replayed without."""
    store = RedisStore(at)
    before = store.count_beliefs(), store.read(dict.fromkeys(range(4), NO_PLAYERS))
    rounds = Topics.of(at).rounds
    ends = Admin(at).ends(rounds, 4)
    partition = max(range(4), key=ends.__getitem__)
    client = client_of(at)
    for future in client.delete_records([TopicPartition(rounds, partition, 3)]).values():
        future.result(STILL_S)
    assert f"partition {partition} of the rounds starts at 3" in refusal(at)
    assert (store.count_beliefs(), store.read(dict.fromkeys(range(4), NO_PLAYERS))) == before
    store.close()
