"""Kafka and Redis fail during work and come back: nothing is lost, nothing is doubled."""

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from local.kafka_node import FORMATTED
from local.servers import Addresses, Server, start_kafka, start_redis
from local.tools import KAFKA_VARIABLE, REDIS_VARIABLE, find_redis_server, given_address
from stream_rater.config.settings import Settings
from tests import real
from tests.integration.processes import WorkerProcess, wait_until
from tests.integration.test_service import a_round, assert_all_rated_once
from tests.integration.topics import Finished, produce

pytestmark = pytest.mark.skipif(
    (given_address(KAFKA_VARIABLE) is not None and not FORMATTED.is_dir())
    or (given_address(REDIS_VARIABLE) is not None and find_redis_server() is None),
    reason="servers are given, and none are installed here to be stopped",
)

Start = Callable[..., WorkerProcess]


class Pair:
    """Servers that a test may stop."""

    def __init__(self, kafka: Server, redis: Server) -> None:
        self.kafka = kafka
        self.redis = redis


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    """The servers of this module."""
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


@contextmanager
def hanging(server: Server) -> Iterator[None]:
    """Make a server accept connections and answer nothing."""
    os.kill(server.pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(server.pid, signal.SIGCONT)


def at_work(settings: Settings, start: Start, count: int) -> WorkerProcess:
    """A worker that has rated some of this many rounds."""
    worker = start(settings)
    produce(settings, [a_round(number) for number in range(count)])
    wait_until(lambda: worker.metric("stream_rater_events_total") > 20, "it is at work")
    return worker


def test_servers_are_killed_and_come_back(pair: Pair, at: Settings, worker_process: Start) -> None:
    """The worker stays healthy, is not ready without a server, and continues when it is back.

    Redis has lost what came after its last snapshot, if it has one, which is replayed without an
    event. Kafka is killed
    when everything is committed: a single broker that is killed at the end of a transaction may
    start again with the end written to only some of its partitions (seen with 4.4), for which no
    client has a remedy.
    """
    worker = at_work(at, worker_process, 300)
    for number, server in enumerate((pair.redis, pair.kafka), start=1):
        if server is pair.kafka:
            wait_until(Finished(at), "all is committed")
        server.kill()
        wait_until(lambda: worker.get("/readyz")[0] == 503, "it is not ready")
        assert worker.get("/healthz")[0] == 200
        server.restart()
        wait_until(lambda: worker.get("/readyz")[0] == 200, "it is ready again")
        more = range(300 * number, 300 * (number + 1))
        produce(at, [a_round(each) for each in more])
        # A new client: one that saw the broker die may keep its old coordinator for minutes.
        wait_until(Finished(at), "all is rated")
    assert_all_rated_once(at, 900)


@pytest.mark.parametrize("which", ["kafka", "redis"])
def test_sigterm_while_a_server_hangs(
    pair: Pair, at: Settings, worker_process: Start, which: str
) -> None:
    """The worker ends all the same while the server still hangs, without a traceback."""
    worker = at_work(at, worker_process, 600)
    with hanging(pair.kafka if which == "kafka" else pair.redis):
        worker.terminate()
        assert worker.wait() in (0, 1)
    assert "Traceback" not in worker.log()


def test_a_hung_worker_does_no_harm(at: Settings, worker_process: Start) -> None:
    """A worker that wakes up after others took its shards continues as a member, and nothing is
    doubled."""
    worker = at_work(at, worker_process, 1000)
    worker.pause()
    successor = worker_process(at)
    wait_until(lambda: successor.metric("stream_rater_events_total") > 100, "it takes over")
    worker.go_on()
    wait_until(Finished(at), "all is rated")
    assert_all_rated_once(at, 1000)
    assert worker.running


def test_a_role_that_fails_ends_the_worker(at: Settings, worker_process: Start) -> None:
    """It ends although the client library hangs while the other role leaves, and says why."""
    hung = worker_process(at, module="tests.integration.hung_close")
    produce(at, [a_round(number) for number in range(20)])
    # Not by its time on a processor: the client's own threads go on.
    wait_until(lambda: not hung.running, "it ends", moves=lambda: len(hung.log()))
    assert hung.wait() == 1
    (failed,) = hung.events("role failed")
    assert (failed["failed"], failed["reason"]) == ("updater", "fenced")
    assert "hung_close.py" in hung.log()
    worker_process(at)
    wait_until(Finished(at), "all is rated")
    assert_all_rated_once(at, 20)


def test_a_call_that_never_returns_ends_the_worker(at: Settings, worker_process: Start) -> None:
    """It ends with one line. A worker that is started in its place rates everything."""
    hung = worker_process(at, module="tests.integration.hung_client")
    produce(at, [a_round(number) for number in range(20)])
    assert hung.wait() == 1
    assert hung.log().splitlines()[-1] == ("stream-rater: updater: in a call that does not return")
    worker_process(at)
    wait_until(Finished(at), "all is rated")
    assert_all_rated_once(at, 20)
