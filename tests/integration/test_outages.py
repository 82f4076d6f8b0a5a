"""Kafka and Redis fail during work and come back, perhaps with less than they had, and workers
hang. Nothing is lost or doubled, no worker rates by a store that does not fit the log, and the way
out that it names works."""

import shutil
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest
from confluent_kafka import Consumer

from local.kafka_node import FORMATTED
from local.servers import Addresses, Server, start_kafka, start_redis
from local.tools import KAFKA_VARIABLE, REDIS_VARIABLE, find_redis_server, given_address
from stream_rater.adapters.access import CLIENT_LOGGER
from stream_rater.adapters.kafka.topics import Admin, Topics
from stream_rater.adapters.redis.client import connect
from stream_rater.config.settings import Settings
from stream_rater.contract.events import ESTIMATORS, UPDATERS
from tests import real
from tests.builders.lines import Bytes
from tests.builders.serves import ServeHere
from tests.chaos.below import frozen
from tests.integration.erasing import season
from tests.integration.processes import Start, WorkerProcess, done, gone, stopped, stream_rater
from tests.integration.test_corrections import verified
from tests.integration.test_door import DUEL, ended, post, send, serve
from tests.integration.test_door import a_round as a_posted_round
from tests.integration.test_service import a_round, assert_all_rated_once
from tests.integration.topics import Finished, other_producers, produce, rated
from tests.real import SettingsFactory
from tests.waits import wait_until

__all__ = ["serve"]

OWN_SERVERS = pytest.mark.skipif(
    (given_address(KAFKA_VARIABLE) is not None and not FORMATTED.is_dir())
    or (given_address(REDIS_VARIABLE) is not None and find_redis_server() is None),
    reason="servers are given, and none are installed here to be stopped",
)


class Pair(NamedTuple):
    kafka: Server
    redis: Server


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    folder = tmp_path_factory.mktemp("outages")
    with start_redis(folder / "redis") as redis, start_kafka(folder / "kafka") as kafka:
        yield Pair(kafka, redis)


@pytest.fixture
def at(pair: Pair) -> Iterator[Settings]:
    """Settings for these servers, which are running whatever an earlier test did to them."""
    pair.kafka.start()
    pair.redis.start()
    with real.a_place(Addresses(pair.kafka.address, pair.redis.address), ours=True) as place:
        yield place


def at_work(settings: Settings, start: Start, count: int) -> WorkerProcess:
    """A worker that has rated some of this many rounds."""
    worker = start(settings)
    produce(settings, [a_round(number) for number in range(count)])
    wait_until(lambda: worker.metric("stream_rater_events_total") > 20, "it is at work")
    return worker


def lag(worker: WorkerProcess) -> float:
    return worker.metric("stream_rater_lag_records")


def is_said(worker: WorkerProcess, server: str, *, up: bool) -> bool:
    """Whether the worker says that Kafka or Redis answers."""
    return worker.metric("stream_rater_dependency_up", dependency=server) == up


def report_while_redis_is_away(worker: WorkerProcess, at: Settings, numbers: Sequence[int]) -> None:
    """Rounds that are sent now count as lag, though the worker cannot read them."""
    first, *others = (a_round(each) for each in numbers)
    produce(at, [first])
    wait_until(lambda: "estimator: redis" in worker.get("/readyz")[1], "it cannot go on")
    before = lag(worker)
    produce(at, others)
    wait_until(lambda: lag(worker) >= before + len(others), "the lag rises")


@OWN_SERVERS
def test_servers_are_killed_and_come_back(
    pair: Pair, at: Settings, worker_process: Start, serve: ServeHere
) -> None:
    """Without a server, a worker is healthy but not ready, and posts get 503 with `Retry-After`.
    Acknowledged rounds are rated, a round sent again counts once, and what Redis has lost since its
    snapshot is replayed without events. Kafka is killed when all is committed: a single broker that
    is killed at a transaction's end may write it to only some partitions (seen with 4.4)."""
    worker, api = at_work(at, worker_process, 200), serve(at)
    for number, server in enumerate((pair.redis, pair.kafka), start=1):
        if server is pair.kafka:
            send(api, DUEL, a_posted_round("before"))
            wait_until(Finished(at), "all is committed")
        server.kill()
        wait_until(lambda: worker.get("/readyz")[0] == 503, "it is not ready")
        assert worker.get("/healthz")[0] == 200
        name = "kafka" if server is pair.kafka else "redis"
        wait_until(partial(is_said, worker, name, up=False), "the metric says so")
        more = range(200 * number, 200 * (number + 1))
        if server is pair.redis:
            report_while_redis_is_away(worker, at, more)
        if server is pair.kafka:
            refused = post(api, DUEL, a_posted_round("during"))
            assert (refused.status, refused.json["code"]) == (503, "not-acknowledged"), refused
            assert refused.headers["retry-after"]
        server.restart()
        wait_until(lambda: worker.get("/readyz")[0] == 200, "it is ready again")
        wait_until(partial(is_said, worker, name, up=True), "the metric says so")
        if server is pair.kafka:
            produce(at, [a_round(each) for each in more])
        # A new client: one that saw the broker die may keep its old coordinator for minutes.
        wait_until(Finished(at), "all is rated")
    posted = ("during", "before", "after")
    for name in posted:
        assert send(api, DUEL, a_posted_round(name)).status == 202
        assert ended(api, f"{DUEL}/{name}")["state"] == "rated"
    assert api.metric("stream_rater_serve_rounds_total", outcome="unavailable") >= 1
    assert_all_rated_once(at, 600 + len(posted))


@OWN_SERVERS
@pytest.mark.parametrize("which", ["kafka", "redis"])
def test_sigterm_during_a_hang(pair: Pair, at: Settings, worker_process: Start, which: str) -> None:
    """The worker ends all the same while the server still hangs, without a traceback."""
    worker = at_work(at, worker_process, 300)
    with frozen((pair.kafka if which == "kafka" else pair.redis).pid):
        worker.terminate()
        assert worker.wait() in (0, 1)
    assert "Traceback" not in worker.log()


# --- workers hang ---


def test_a_hung_worker_does_no_harm(settings: SettingsFactory, worker_process: Start) -> None:
    """A worker that wakes up after others took its shards joins again, and nothing is doubled."""
    at = settings()
    worker = at_work(at, worker_process, 300)
    worker.pause()
    produce(at, [a_round(number) for number in range(300, 600)])
    successor = worker_process(at)
    wait_until(lambda: successor.metric("stream_rater_events_total") > 100, "it takes over")
    worker.go_on()
    wait_until(Finished(at), "all is rated")
    assert_all_rated_once(at, 600)
    assert worker.running


def test_a_named_worker_joins_again_if_nobody_shares_its_name(
    settings: SettingsFactory, worker_process: Start
) -> None:
    """Another member takes its name, which fences it, and is gone: as if a broker forgot it."""
    at = msgspec.structs.replace(settings(), instance_id="w-1")
    worker = at_work(at, worker_process, 300)
    wait_until(Finished(at), "all is rated")
    topics = Topics.of(at)
    for group, topic in ((ESTIMATORS, topics.rounds), (UPDATERS, topics.parts)):
        before = len(worker.events("started over"))
        fence(at, group, topic)
        wait_until(partial(started_over, worker, before), "it is fenced", moves=worker.moves)
    rated(at, *(a_round(number) for number in range(300, 600)))
    assert worker.running
    assert_all_rated_once(at, 600)
    assert any("w-1" in str(each) for each in worker.events("started over"))


def started_over(worker: WorkerProcess, before: int) -> bool:
    """Whether a worker has started over once more than before."""
    return len(worker.events("started over")) > before


def fence(at: Settings, group: str, topic: str) -> None:
    """Join a group by the name of a worker, and go without leaving the group."""
    options: dict[str, Any] = {
        "bootstrap.servers": at.kafka, "group.id": at.topic_prefix + group,
        "group.instance.id": at.instance_id, "session.timeout.ms": at.session_timeout_ms,
        "partition.assignment.strategy": "cooperative-sticky", "enable.auto.commit": False,
    }  # fmt: skip
    member, joined = Consumer(options, logger=CLIENT_LOGGER), list[Any]()
    member.subscribe([topic], on_assign=lambda _, partitions: joined.append(partitions))
    wait_until(lambda: bool(member.poll(0.1) or joined), "it has joined")
    member.close()


def test_a_call_that_hangs_ends_the_worker(addresses: Addresses, worker_process: Start) -> None:
    """The worker ends with one line, also if one role fails and the library hangs while the other
    role leaves. A worker that is started in its place rates everything."""
    with real.a_place(addresses) as one, real.a_place(addresses) as other:
        hanging = "tests.integration.hanging"
        never = worker_process(one, module=hanging, HANGS="end")
        failed = worker_process(other, module=hanging, HANGS="close")
        for at in (one, other):
            produce(at, [a_round(number) for number in range(20)])
        # Not by its time on a processor: the client's own threads go on.
        wait_until(lambda: not failed.running, "it ends", moves=lambda: len(failed.log()))
        assert failed.wait() == never.wait() == 1
        # On a busy machine, which ends processes slowly, the watchdog's dump may follow.
        said = [line for line in never.log().splitlines() if line.startswith("stream-rater")]
        assert said == ["stream-rater: updater: in a call that does not return"]
        (why,) = failed.events("role failed")
        assert (why["failed"], why["reason"]) == ("updater", "fenced")
        assert "hanging.py" in failed.log()
        for at in (one, other):
            worker_process(at, ready=False)
        for at in (one, other):
            wait_until(Finished(at), "all is rated")
            assert_all_rated_once(at, 20)


# --- a store that the log does not lead to ---

MU = 21  # Where mu begins in a record.


def make_foreign(at: Settings) -> set[int]:
    """Change each belief, and make each position that of another log. Returns the shards."""
    shards = set()
    with connect(at) as client:
        for key in [*client.scan_iter(match="{*}:belief:?*:*")]:
            for player, data in client.hgetall(key).items():
                other = data[:MU] + bytes([data[MU] ^ 1]) + data[MU + 1 :]
                client.hset(key, player, other)
        for key in [*client.scan_iter(match="{*}:position")]:
            applied = int(client.hget(key, "applied"))
            if not applied:
                continue
            shards.add(int(key[1 : key.index(b"}")]))
            of, _, checksum = client.hget(key, "tail").partition(b":")
            assert int(of) == applied
            client.hset(key, "tail", b"%d:%d" % (applied, int(checksum) ^ 1))
    return shards


def rated_by(worker: WorkerProcess, *records: Bytes) -> None:
    """Let a worker rate these rounds and leave."""
    rated(worker.settings, *records)
    stopped(worker)


def refusing(worker: WorkerProcess, role: str) -> set[int]:
    """The shards that a role has refused, with the one advice."""
    found = [each for each in worker.events("shard refused") if each["role"] == role]
    assert all("rebuild --replace" in each["reason"] for each in found)
    assert not any("ommit" in each["reason"] for each in found)
    return {each["shard"] for each in found}


def test_a_store_of_another_history_is_not_rated_by(
    settings: SettingsFactory, worker_process: Start
) -> None:
    """No part is computed from its beliefs, though rounds wait. The advised rebuild helps."""
    at = settings()
    rated_by(worker_process(at), *season(0, 24))
    shards = make_foreign(at)
    admin, parts = Admin(at), Topics.of(at).parts
    ends = admin.all_ends(parts)
    produce(at, [*season(100, 8)])
    worker = worker_process(at, ready=False)

    def all_are_refused() -> bool:
        return refusing(worker, "estimator") == refusing(worker, "updater") == shards

    wait_until(all_are_refused, "both roles refuse them", moves=worker.moves)
    stopped(worker)
    assert [admin.all_ends(parts)[shard] for shard in shards] == [ends[shard] for shard in shards]
    done(at, "rebuild", "--replace")
    worker = worker_process(at)
    rated(at, *season(200, 4))
    verified(at)
    stopped(worker)


# --- Kafka comes back with less than it had acknowledged, and Redis does not ---

LADDER = "ladder-0"  # All rounds are of this ladder, and so in one partition.
ADVICE = "run `stream-rater rebuild --replace`"


def rounds(first: int, count: int) -> Sequence[Bytes]:
    return [a_round(number, LADDER) for number in range(first, first + count)]


OTHERS = rounds(40, 12)  # Other rounds of the same players.


def partition_folder(at: Settings, kafka: Server) -> Path:
    """The folder of the only partition that has rounds."""
    name = Topics.of(at).rounds
    (found,) = (
        folder
        for folder in (kafka.directory / "data").glob(f"{name}-*")
        if any(each.stat().st_size for each in folder.glob("*.log"))
    )
    return found


def ends_with_advice(worker: WorkerProcess, *, why: str) -> None:
    """Wait until a worker says that it cannot go on, and what an operator must do; and end it. One
    of its roles may just have joined its group, which a worker that ends then leaves only when its
    session is over."""

    def said() -> bool:
        return ADVICE in worker.log() or not worker.running

    wait_until(said, "it refuses the log")
    worker.terminate()
    worker.wait()
    wait_until(gone(worker.settings), "it has left its groups")
    lines = [each for each in worker.log().splitlines() if ADVICE in each]
    assert lines and why in lines[0], worker.log()


def rebuilt(at: Settings) -> str:
    """Rebuild the store. Returns the warnings."""
    ended = stream_rater("rebuild", "--replace", settings=at)
    assert ended.returncode == 0, ended.stderr
    return ended.stderr


@OWN_SERVERS
@pytest.mark.slow
def test_an_older_kafka(pair: Pair, at: Settings, worker_process: Start, tmp_path: Path) -> None:
    """The broker and its committed offsets are an older copy, to which others have sent rounds."""
    kafka = pair.kafka
    rated_by(worker_process(at), *rounds(0, 8))
    copied = real_copy(kafka, kafka.directory / "data", tmp_path / "kept")
    rated_by(worker_process(at), *rounds(8, 8))
    real_copy(kafka, copied, kafka.directory / "data")
    produce(at, OTHERS)
    ends_with_advice(worker_process(at, ready=False), why="was reached and the log ends at")
    assert "lost records" not in rebuilt(at)
    worker_process(at)
    rated(at, *rounds(8, 8))
    verified(at)


@OWN_SERVERS
@pytest.mark.slow
def test_older_rounds(pair: Pair, at: Settings, worker_process: Start, tmp_path: Path) -> None:
    """As after an unclean election: other rounds have the offsets of rounds that parts know."""
    kafka = pair.kafka
    rated_by(worker_process(at), *rounds(0, 8))
    folder = partition_folder(at, kafka)
    kept = real_copy(kafka, folder, tmp_path / "kept")
    rated_by(worker_process(at), *rounds(8, 8))
    real_copy(kafka, kept, folder)
    ends_with_advice(
        worker_process(at, ready=False), why="was finished up to offset 16 and ends at 8"
    )
    produce(at, OTHERS)
    ends_with_advice(worker_process(at, ready=False), why="has another record at offset 15")
    assert "has another record at offset 15. All rounds that the log has now count" in rebuilt(at)
    worker = worker_process(at)
    rated(at, *rounds(8, 8))
    verified(at)
    stopped(worker)
    assert "lost records" not in rebuilt(at)


def real_copy(kafka: Server, source: Path, target: Path) -> Path:
    """Copy a folder of the broker, which is stopped for it."""
    kafka.stop()
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(source, target)
    kafka.start()
    other_producers()
    return target
