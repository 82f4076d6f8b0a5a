"""Kafka and Redis fail during work and come back: nothing is lost, nothing is doubled. Workers that
hang are in `test_hung`."""

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
from tests.builders.serves import ServeHere
from tests.integration.processes import WorkerProcess, wait_until
from tests.integration.test_door import DUEL, ended, post, send, serve
from tests.integration.test_door import a_round as a_posted_round
from tests.integration.test_service import a_round, assert_all_rated_once
from tests.integration.topics import Finished, produce

__all__ = ["serve"]

pytestmark = pytest.mark.skipif(
    (given_address(KAFKA_VARIABLE) is not None and not FORMATTED.is_dir())
    or (given_address(REDIS_VARIABLE) is not None and find_redis_server() is None),
    reason="servers are given, and none are installed here to be stopped",
)

Start = Callable[..., WorkerProcess]


class Pair:
    def __init__(self, kafka: Server, redis: Server) -> None:
        self.kafka = kafka
        self.redis = redis


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


def test_servers_are_killed_and_come_back(
    pair: Pair, at: Settings, worker_process: Start, serve: ServeHere
) -> None:
    """The worker stays healthy, is not ready without a server, and continues when it is back.

    Posts are refused with 503 and `Retry-After` while Kafka is away, and taken afterwards. What was
    acknowledged is rated, and what is sent again counts once. Redis has lost what came after its
    last snapshot, if it has one, which is replayed without an event. Kafka is killed when
    everything is committed: a single broker that is killed at the end of a transaction may start
    again with the end written to only some of its partitions (seen with 4.4), for which no client
    has a remedy.
    """
    worker, api = at_work(at, worker_process, 200), serve(at)
    for number, server in enumerate((pair.redis, pair.kafka), start=1):
        if server is pair.kafka:
            send(api, DUEL, a_posted_round("before"))
            wait_until(Finished(at), "all is committed")
        server.kill()
        wait_until(lambda: worker.get("/readyz")[0] == 503, "it is not ready")
        assert worker.get("/healthz")[0] == 200
        if server is pair.kafka:
            refused = post(api, DUEL, a_posted_round("during"))
            assert (refused.status, refused.json["code"]) == (503, "not-acknowledged"), refused
            assert refused.headers["retry-after"]
        server.restart()
        wait_until(lambda: worker.get("/readyz")[0] == 200, "it is ready again")
        more = range(200 * number, 200 * (number + 1))
        produce(at, [a_round(each) for each in more])
        # A new client: one that saw the broker die may keep its old coordinator for minutes.
        wait_until(Finished(at), "all is rated")
    posted = ("during", "before", "after")
    for name in posted:
        assert send(api, DUEL, a_posted_round(name)).status == 202
        assert ended(api, f"{DUEL}/{name}")["status"] == "rated"
    assert api.metric("stream_rater_serve_rounds_total", outcome="unavailable") >= 1
    assert_all_rated_once(at, 600 + len(posted))


@pytest.mark.parametrize("which", ["kafka", "redis"])
def test_sigterm_while_a_server_hangs(
    pair: Pair, at: Settings, worker_process: Start, which: str
) -> None:
    """The worker ends all the same while the server still hangs, without a traceback."""
    worker = at_work(at, worker_process, 300)
    with hanging(pair.kafka if which == "kafka" else pair.redis):
        worker.terminate()
        assert worker.wait() in (0, 1)
    assert "Traceback" not in worker.log()
