"""A store that the log does not lead to, on real servers: nobody rates by it, and the way out that
is said works."""

import shutil
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

import pytest

from local.kafka_node import FORMATTED
from local.servers import Addresses, Server, start_kafka, start_redis
from local.tools import KAFKA_VARIABLE, REDIS_VARIABLE, find_redis_server, given_address
from stream_rater.adapters.kafka.topics import Admin, Topics
from stream_rater.adapters.redis.client import connect
from stream_rater.config.settings import Settings
from tests import real
from tests.builders.lines import Bytes
from tests.integration.erasing import Start, season, stopped
from tests.integration.processes import WorkerProcess, stream_rater, wait_until
from tests.integration.test_corrections import rated, verified
from tests.integration.test_rebuild import rebuild
from tests.integration.test_service import a_round as of_service
from tests.integration.topics import other_producers, produce

MU = 21
"""Where mu begins in a record."""


def make_foreign(at: Settings, *, ahead: bool) -> set[int]:
    """Let each belief be another one, and each position that of a later call, or of another record
    at the same place. Returns the shards that have any."""
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
            if ahead:
                client.hset(key, mapping={"applied": applied + 1, "start": applied})
            else:
                of, _, checksum = client.hget(key, "tail").partition(b":")
                assert int(of) == applied
                client.hset(key, "tail", b"%d:%d" % (applied, int(checksum) ^ 1))
    return shards


def all_are_refused(worker: WorkerProcess, role: str, shards: set[int]) -> bool:
    return refusing(worker, role) == shards


def refusing(worker: WorkerProcess, role: str) -> set[int]:
    """The shards that a role has refused, with the one advice."""
    found = [each for each in worker.events("shard refused") if each["role"] == role]
    assert all("rebuild --replace" in each["reason"] for each in found)
    assert not any("ommit" in each["reason"] for each in found)
    return {each["shard"] for each in found}


@pytest.mark.parametrize("ahead", [pytest.param(True, marks=pytest.mark.slow), False])
def test_a_store_of_another_history_is_not_rated_by(
    settings: real.SettingsFactory, worker_process: Start, ahead: bool
) -> None:
    """No part is computed from its beliefs, though rounds wait. After the rebuild that each line
    asks for, all is equal the first time."""
    at = settings()
    worker = worker_process(at)
    rated(at, *season(0, 24))
    stopped(worker)
    shards = make_foreign(at, ahead=ahead)
    admin, parts = Admin(at), Topics.of(at).parts
    ends = admin.all_ends(parts)
    produce(at, [*season(100, 8)])
    worker = worker_process(at, ready=False)
    for role in ("estimator", "updater"):
        wait_until(
            partial(all_are_refused, worker, role, shards), f"{role}: refused",
            moves=worker.moves,
        )  # fmt: skip
    stopped(worker)
    assert [admin.all_ends(parts)[shard] for shard in shards] == [ends[shard] for shard in shards]
    done = rebuild(at, "--replace")
    assert done.returncode == 0, done.stderr
    worker = worker_process(at)
    rated(at, *season(200, 4))
    verified(at)
    stopped(worker)


# --- Kafka comes back with less than it had acknowledged, and Redis does not ---

OWN_SERVERS = pytest.mark.skipif(
    (given_address(KAFKA_VARIABLE) is not None and not FORMATTED.is_dir())
    or (given_address(REDIS_VARIABLE) is not None and find_redis_server() is None),
    reason="servers are given, and none are installed here to be stopped",
)

LADDER = "ladder-0"
"""All rounds are of this ladder, and so in one partition."""
ADVICE = "run `stream-rater rebuild --replace`"


@pytest.fixture
def kafka(tmp_path: Path) -> Iterator[Server]:
    """A broker that a test may stop."""
    with start_kafka(tmp_path / "kafka") as found:
        yield found


@pytest.fixture
def at(tmp_path: Path, kafka: Server) -> Iterator[Settings]:
    """Settings for this broker, and for a Redis."""
    with (
        start_redis(tmp_path / "redis") as redis,
        real.a_place(Addresses(kafka.address, redis.address), ours=True) as place,
    ):
        yield place


def rounds(first: int, count: int) -> Sequence[Bytes]:
    return [of_service(number, LADDER) for number in range(first, first + count)]


OTHERS = rounds(40, 12)
"""Other rounds of the same players."""


def partition_folder(at: Settings, kafka: Server) -> Path:
    """The only folder of rounds that has any."""
    name = Topics.of(at).rounds
    found = [p for p in (kafka.directory / "data").glob(f"{name}-*") if _size(p)]
    assert len(found) == 1, found
    return found[0]


def _size(folder: Path) -> int:
    return sum(each.stat().st_size for each in folder.glob("*.log"))


def refused(worker: WorkerProcess, *, why: str) -> None:
    """Wait until a worker says that it cannot go on, and what an operator must do; and end it."""

    def said() -> bool:
        return ADVICE in worker.log() or not worker.running

    wait_until(said, "it refuses the log")
    worker.terminate()
    worker.wait()
    line = next(each for each in worker.log().splitlines() if ADVICE in each)
    assert why in line, worker.log()


def rebuilt(at: Settings) -> str:
    done = stream_rater("rebuild", "--replace", settings=at)
    assert done.returncode == 0, done.stderr
    return done.stderr


@OWN_SERVERS
@pytest.mark.slow
def test_an_older_kafka(at: Settings, kafka: Server, worker_process: Start, tmp_path: Path) -> None:
    """The whole broker is an older copy, with its committed offsets: nothing before the copy is
    asked about. Other rounds were reported by the time a worker starts."""
    worker = worker_process(at)
    rated(at, *rounds(0, 8))
    stopped(worker)
    copied = real_copy(kafka, kafka.directory / "data", tmp_path / "kept")
    worker = worker_process(at)
    rated(at, *rounds(8, 8))
    stopped(worker)
    real_copy(kafka, copied, kafka.directory / "data")
    produce(at, OTHERS)
    refused(worker_process(at, ready=False), why="was reached and the log ends at")
    assert "lost records" not in rebuilt(at)
    worker_process(at)
    rated(at, *rounds(8, 8))
    verified(at)


@OWN_SERVERS
@pytest.mark.slow
def test_older_rounds(at: Settings, kafka: Server, worker_process: Start, tmp_path: Path) -> None:
    """As after an unclean leader election. Parts and committed offsets know rounds that the log
    does not have, and others take their offsets."""
    worker = worker_process(at)
    rated(at, *rounds(0, 8))
    stopped(worker)
    folder = partition_folder(at, kafka)
    kept = real_copy(kafka, folder, tmp_path / "kept")
    worker = worker_process(at)
    rated(at, *rounds(8, 8))
    stopped(worker)
    real_copy(kafka, kept, folder)
    refused(worker_process(at, ready=False), why="was finished up to offset 16 and ends at 8")
    produce(at, OTHERS)
    refused(worker_process(at, ready=False), why="has another record at offset 15")
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
