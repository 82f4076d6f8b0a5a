"""Kafka comes back with less than it had acknowledged, and Redis does not: no round is rated from
ratings of another history, and one rebuild mends it."""

import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from local.kafka_node import FORMATTED
from local.servers import Addresses, Server, start_kafka, start_redis
from local.tools import KAFKA_VARIABLE, REDIS_VARIABLE, find_redis_server, given_address
from stream_rater.adapters.kafka.topics import Topics
from stream_rater.config.settings import Settings
from tests import real
from tests.integration.erasing import Start, stopped
from tests.integration.processes import WorkerProcess, stream_rater, wait_until
from tests.integration.test_corrections import rated, verified
from tests.integration.test_service import a_round
from tests.integration.topics import Bytes, other_producers, produce

pytestmark = [
    pytest.mark.slow,  # a store of another history on shared servers: `test_other_history.py`
    pytest.mark.skipif(
        (given_address(KAFKA_VARIABLE) is not None and not FORMATTED.is_dir())
        or (given_address(REDIS_VARIABLE) is not None and find_redis_server() is None),
        reason="servers are given, and none are installed here to be stopped",
    ),
]

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
    """So many rounds of one ladder."""
    return [a_round(number, LADDER) for number in range(first, first + count)]


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
    """Rebuild the store. Returns the warnings."""
    done = stream_rater("rebuild", "--replace", settings=at)
    assert done.returncode == 0, done.stderr
    return done.stderr


def test_all_of_it(at: Settings, kafka: Server, worker_process: Start, tmp_path: Path) -> None:
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


def test_rounds_alone(at: Settings, kafka: Server, worker_process: Start, tmp_path: Path) -> None:
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
