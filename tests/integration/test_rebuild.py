"""`rebuild` on real servers: from the log and from a snapshot; offsets that Kafka deleted."""

from pathlib import Path

import msgspec

from stream_rater.adapters.kafka.topics import Admin, Topics
from stream_rater.adapters.redis.client import connect
from stream_rater.adapters.redis.store import RedisStore
from stream_rater.config.settings import Settings
from stream_rater.contract.events import ESTIMATORS, UPDATERS
from stream_rater.operations import verify
from stream_rater.pipeline.ports import NO_PLAYERS
from tests.builders.kills import halting, short
from tests.builders.lines import Bytes
from tests.integration import processes, topics
from tests.integration.processes import PATIENTLY, Start, WorkerProcess, done, refused, stopped
from tests.integration.test_service import a_round, assert_all_rated_once, events_of
from tests.integration.topics import produce, read_topic
from tests.real import SettingsFactory
from tests.restore import Rehearsal
from tests.waits import STILL_S, wait_until

EFFECTS = [  # What `rebuild` writes by, up to the beliefs, in the order of the first calls.
    "stream_rater.adapters.kafka.producers.PartsProducer.scatter",
    "stream_rater.adapters.kafka.topics.Admin.commit",
    "stream_rater.adapters.redis.metadata.StoreMetadata.begin_rebuild",
    "stream_rater.adapters.redis.store.RedisStore.apply",
]

PLAYERS, EACH = 200, 8  # Of the restore: players, and rounds before and after the snapshot.


def flush(settings: Settings) -> None:
    with connect(settings) as client:
        client.flushdb()


def delete_parts(settings: Settings) -> None:
    """Delete parts, as retention does after some days."""
    topic = Topics.of(settings).parts
    ends = Admin(settings).ends(topic, settings.shards)
    topics.delete_records(settings, topic, dict(enumerate(ends)))


def rated_on(settings: Settings, start: Start, first: int, count: int) -> WorkerProcess:
    """Let another worker rate this many more rounds, and check that each round was rated once."""
    worker = start(settings)
    topics.rated(settings, *map(a_round, range(first, first + count)))
    assert_all_rated_once(settings, first + count)
    assert worker.metric("stream_rater_updates_total", outcome="replayed") == 0
    return worker


def test_the_store_is_lost_in_mid_season(
    settings: SettingsFactory, worker_process: Start, tmp_path: Path
) -> None:
    """A worker is killed, Redis is emptied, and a rebuild is killed, after which workers refuse the
    store. Another rebuild repairs it. None begins while a worker runs."""
    at = settings()
    worker = worker_process(at)
    produce(at, [a_round(number) for number in range(400)])
    wait_until(lambda: worker.metric("stream_rater_events_total") > 100, "it is at work")
    assert "workers are in the group" in refused(at, "rebuild", code=1)
    worker.kill()
    flush(at)
    wait_until(processes.gone(at), "its session is over")
    made = list[str]()
    with halting(["rebuild"], processes.environment_of(at), EFFECTS, tmp_path / "log") as halts:
        for name in halts:
            made.append(name)
            if made.count("RedisStore.apply") == 2:
                break
    assert {*made} == {*map(short, EFFECTS)}, (tmp_path / "log").read_text()
    assert "a rebuild of the store is unfinished" in refused(at, "run", code=2)
    done(at, "rebuild", "--replace")
    rated_on(at, worker_process, 400, 100)


def test_the_store_is_lost_with_its_parts(settings: SettingsFactory, worker_process: Start) -> None:
    """Workers refuse, and name `rebuild`. It allows other buckets, and deletes on request."""
    at = settings()
    worker = worker_process(at)
    topics.rated(at, *map(a_round, range(100)))
    delete_parts(at)
    flush(at)
    wait_until(lambda: worker.metric("stream_rater_refused_shards") == 4, "shards are refused")
    assert "stream-rater rebuild" in worker.get("/readyz")[1]
    stopped(worker)
    assert "100 rounds replayed" in done(at, "rebuild")

    assert "--replace" in refused(at, "rebuild", code=2)
    wider = msgspec.structs.replace(at, buckets=2 * at.buckets)
    done(wider, "rebuild", "--replace")
    rated_on(wider, worker_process, 100, 50)


def test_a_snapshot_and_the_log_bring_all_back(settings: SettingsFactory, tmp_path: Path) -> None:
    """As docs/operations/backup.md says, under workers: beliefs return byte for byte, although half
    of the rounds come after the snapshot. Nothing is published twice. (Also: `tests.restore`.)"""

    def verified(at: Settings) -> None:
        printed = done(at, "verify", "--wait", PATIENTLY)
        assert f"{PLAYERS} beliefs compared: all equal" in printed, printed

    print(Rehearsal(settings(), tmp_path, PLAYERS, EACH).run(verified))


# --- what Kafka deleted while no worker ran ---


def rated(settings: Settings, start: Start) -> None:
    """Send rounds and a message that is none, and rate them by a worker that leaves."""
    worker = start(settings)
    junk = Bytes(b"no round", b"ladder", partition=1)
    topics.rated(settings, *map(a_round, range(50)), junk)
    stopped(worker)


def forget_offsets(settings: Settings, *groups: str) -> dict[str, dict[int, int | None]]:
    """Delete committed offsets, as Kafka does days after the last member left. Returns them."""
    admin, names = Admin(settings), Topics.of(settings)
    read = {ESTIMATORS: names.rounds, UPDATERS: names.parts}
    found = {group: admin.committed(group, read[group], 4) for group in groups}
    deleted = [settings.topic_prefix + group for group in groups]
    topics.carried_out(topics.client_of(settings).delete_consumer_groups(deleted))
    return found


def resumes(at: Settings, start: Start, first: int) -> None:
    """Let another worker rate ten rounds. None is rated or rejected twice, and none is lost."""
    worker = start(at)
    topics.rated(at, *map(a_round, range(first, first + 10)))
    stopped(worker)
    found = events_of(at)
    assert len(found) == 2 * (first + 10) and set(found.values()) == {1}
    assert len(read_topic(at, Topics.of(at).rejected)) == 1


def test_nobody_guesses_where_they_were(settings: SettingsFactory, worker_process: Start) -> None:
    """Estimators find their offsets as long as no part was deleted; later they end, and shards with
    beliefs wait. Messages say what to commit. Until then, and where rounds were deleted, a rebuild
    refuses and changes nothing."""
    at = settings()
    rated(at, worker_process)
    forget_offsets(at, ESTIMATORS)
    resumes(at, worker_process, 50)

    known = forget_offsets(at, UPDATERS)[UPDATERS]
    assert "has no committed offset any more" in refused(at, "rebuild", "--replace", code=1)
    worker = worker_process(at, ready=False)
    used = {shard: offset for shard, offset in known.items() if offset}

    def all_refused() -> bool:
        return worker.metric("stream_rater_refused_shards") == len(used)

    wait_until(all_refused, "it refuses the shards")
    _, page = worker.get("/readyz")
    assert all(f"Commit {offset} for this partition" in page for offset in used.values())
    stopped(worker)
    Admin(at).commit(UPDATERS, Topics.of(at).parts, used)
    resumes(at, worker_process, 60)

    delete_parts(at)
    known = forget_offsets(at, ESTIMATORS)[ESTIMATORS]
    worker = worker_process(at, ready=False)
    assert worker.wait() == 1
    assert "partition 1 (not below 1)" in worker.log().splitlines()[-1]
    assert "has no committed offset any more" in refused(at, "rebuild", "--replace", code=1)
    offsets = {partition: offset or 0 for partition, offset in known.items()}
    Admin(at).commit(ESTIMATORS, Topics.of(at).rounds, offsets)
    resumes(at, worker_process, 70)
    verify.verify(at, wait_s=STILL_S)
    deleted_rounds(at)


def deleted_rounds(at: Settings) -> None:
    """Delete rounds. Commands do not replay the rest, and do not call beliefs wrong."""
    store = RedisStore(at)
    before = [*store.beliefs()], store.read(dict.fromkeys(range(4), NO_PLAYERS))
    rounds = Topics.of(at).rounds
    ends = Admin(at).ends(rounds, 4)
    partition = max(range(4), key=ends.__getitem__)
    topics.delete_records(at, rounds, {partition: 3})
    for words in (("verify",), ("rebuild", "--replace")):
        said = refused(at, *words, code=1)
        assert f"partition {partition} of the rounds starts at 3" in said
    assert ([*store.beliefs()], store.read(dict.fromkeys(range(4), NO_PLAYERS))) == before
    store.close()
