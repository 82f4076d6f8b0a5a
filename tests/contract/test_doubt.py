"""A broken connection puts a transaction in doubt, whatever the client reports about its end. Of
two brokers, as a client of one reports that all are down. Only the tested producer is proxied.
The last tests are on kfake, which loses the answer to an end, or does it later, at a signal."""

import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from signal import SIGUSR1, SIGUSR2, Signals
from typing import Any, NamedTuple

import msgspec
import pytest
from confluent_kafka import KafkaError, Producer

from local.go_tools import TOXIPROXY, find_go
from local.kafka_node import FORMATTED
from local.servers import Server
from stream_rater.adapters.kafka import producers
from stream_rater.adapters.kafka.producers import PartsProducer, Transactions
from stream_rater.adapters.kafka.topics import Admin
from stream_rater.contract.errors import LogTrouble
from stream_rater.pipeline.ports import Event, NewProducer, Publish
from tests import real
from tests.brokers import behind_a_proxy, kfake
from tests.contract.rigs import UPDATER, KafkaRig, event, read_from_start, seen
from tests.integration.processes import wait_until, workers
from tests.integration.test_service import a_round, assert_all_rated_once
from tests.integration.topics import rated
from tests.proxy import ANSWERS, Proxy, Toxic, a_proxy
from tests.tools import needed

pytestmark = [pytest.mark.integration, pytest.mark.slow]

ROUTES = ("first", "second")
ONE_COORDINATOR = {"transaction.state.log.num.partitions": "1"}
NO_ANSWERS: Toxic = {"type": "reset_peer", "attributes": {"timeout": 0}}
"""The first response closes its connection instead, and so does that of the next connection."""
LONG_MS = 600_000


class Ground(NamedTuple):
    """The brokers, and the routes of the proxy to each of them."""

    proxy: Proxy
    nodes: list[Server]


@pytest.fixture(scope="module")
def ground(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ground]:
    needed(TOXIPROXY.path if TOXIPROXY.path.exists() else None, "toxiproxy", ": it takes Go")
    needed(FORMATTED if FORMATTED.is_dir() else None, "Kafka")
    folder = tmp_path_factory.mktemp("doubt")
    with (
        a_proxy(folder) as proxy,
        behind_a_proxy(folder / "kafka", proxy, ROUTES, ONE_COORDINATOR) as nodes,
    ):
        yield Ground(proxy, nodes)


class Rig:
    """A member of the updaters' group, whose transactions alone pass through the proxy."""

    def __init__(self, ground: Ground, settings: real.Settings) -> None:
        self.proxy = ground.proxy
        self.log = KafkaRig(settings)
        self.member = read_from_start(self.log, UPDATER)
        worker: Any = self.member.performer
        ways = ",".join(map(ground.proxy.address, ROUTES))
        through = msgspec.structs.replace(settings, kafka=ways, transaction_timeout_ms=LONG_MS)
        self.transactions = Transactions(through, UPDATER, worker.input)
        self.stop = threading.Event()
        self.parts = PartsProducer(through, self.log._admin.topics.parts, self.stop)
        self.admin = Admin(settings)
        self.topic = self.admin.topics.changed

    def sends(self, *events: Event) -> Callable[[Producer], None]:
        """Produce the messages of a transaction."""

        def send(producer: Producer) -> None:
            messages: Any = [(each.shard, each.key, each.value, []) for each in events]
            self.transactions.produce_all(producer, self.topic, messages)

        return send

    def leader(self, topic: str) -> str:
        """The route to the leader of the topic's first partition."""
        client: Any = self.admin._client
        return ROUTES[client.list_topics(topic).topics[topic].partitions[0].leader - 1]

    def open(self) -> bool:
        """Whether an open transaction hides records from readers."""
        count = self.admin.partitions()[self.topic]
        ends = self.admin.ends(self.topic, count)
        return self.admin.stable_ends(self.topic, count) != ends


@pytest.fixture
def rig(ground: Ground, settings: real.SettingsFactory) -> Iterator[Rig]:
    """A rig whose routes are repaired afterwards."""
    found = Rig(ground, settings(kafka=",".join(node.address for node in ground.nodes)))
    yield found
    ground.proxy.mend()
    found.log.close()


FIRST, SECOND = event(0, "first"), event(0, "second")


@pytest.mark.parametrize("how", ["end", "undo"])
def test_an_end_whose_answer_was_lost_is_in_doubt(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    """The broker ended the transaction, and the client sent the request again on another
    connection: one in flight may end the next transaction, so another producer must begin that."""
    monkeypatch.setattr(producers, "SLOW_COMMIT_S", LONG_MS)
    transactions = rig.transactions
    transactions.begin(rig.sends(FIRST))
    producer = transactions._producer
    conclude = transactions._conclude

    def conclude_unheard(*given: Any) -> None:
        assert rig.open()
        rig.proxy.spoil(rig.leader("__transaction_state"), NO_ANSWERS, [ANSWERS])
        with ThreadPoolExecutor(1) as pool:
            answered = pool.submit(answer_once_it_has_ended)
            conclude(*given)
        answered.result()

    def answer_once_it_has_ended() -> None:
        wait_until(lambda: not rig.open(), "the broker has ended it")
        rig.proxy.mend()

    monkeypatch.setattr(transactions, "_conclude", conclude_unheard)
    with pytest.raises(LogTrouble, match=r"end of a transaction is in doubt: .*Disconnected"):
        transactions.end({0: 1}) if how == "end" else transactions.abort()
    monkeypatch.undo()
    transactions.run(rig.sends(SECOND), {0: 2})
    assert transactions._producer is not producer
    assert rig.log.events() == seen([FIRST, SECOND] if how == "end" else [SECOND])


def test_a_producer_whose_connection_broke_is_replaced(rig: Rig) -> None:
    """It is replaced before the next transaction, even though none was open when it broke."""
    transactions = rig.transactions
    transactions.run(rig.sends(FIRST), {0: 1})
    producer = transactions._producer
    assert transactions.ready() is producer
    rig.proxy.cut(rig.leader("__transaction_state"))
    rig.proxy.mend()
    wait_until(
        lambda: transactions.ready() is not producer, "the client reports the broken connection"
    )
    transactions.run(rig.sends(SECOND), {0: 2})
    assert rig.log.events() == seen([FIRST, SECOND])


def test_a_connection_that_breaks_ends_the_wait_for_acknowledgements(rig: Rig) -> None:
    """The wait ends with the connection's own error, and not with the transaction's time-out."""
    transactions = rig.transactions
    transactions.run(rig.sends(FIRST), {0: 1})
    transactions.begin(lambda _: None)
    rig.proxy.cut(rig.leader(rig.topic))
    assert transactions._producer is not None
    rig.sends(SECOND)(transactions._producer)
    with pytest.raises(LogTrouble, match=r"kafka: .*(refused|Disconnected)"):
        transactions.end({0: 2})
    rig.proxy.mend()
    transactions.run(rig.sends(SECOND), {0: 2})
    assert rig.log.events() == seen([FIRST, SECOND])


def test_parts_that_are_not_acknowledged_are_trouble(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They have not failed either. A worker that is asked to stop does not wait for them."""
    monkeypatch.setattr("stream_rater.adapters.access.STOP_GRACE_S", 0.1)
    assert rig.parts.scatter([(0, b"a")]) == [0]
    rig.proxy.cut(rig.leader(rig.admin.topics.parts))
    rig.stop.set()
    with pytest.raises(LogTrouble, match="parts were not acknowledged in time"):
        rig.parts.scatter([(0, b"b")])


def test_who_begins_again_has_other_producers(rig: Rig) -> None:
    """Both producers are replaced: a client that failed for good never recovers."""
    worker: Any = rig.member.performer
    before = worker._parts.ready(), worker._transactions.ready()
    rig.member.do(NewProducer())
    after = worker._parts.ready(), worker._transactions.ready()
    assert not set(before) & set(after)


# --- an end that nobody answers -------------------------------------------------------------------
# librdkafka has no KIP-890: a request to end a transaction that it gave up, and that the broker
# hears later, would end the producer's next transaction. A new producer has another epoch.

LOST, LATE = SIGUSR1, SIGUSR2  # The broker ends it and does not say so, or ends it later.
FENCED = KafkaError.PRODUCER_FENCED
THIRD = event(0, "third")


@pytest.fixture(scope="module")
def fake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    needed(find_go(), "go", ": kfake takes Go")
    with kfake(tmp_path_factory.mktemp("kfake")) as server:
        yield server


@pytest.fixture
def at(fake: Server) -> Iterator[real.Settings]:
    """Settings of a place on kfake."""
    with real.a_pair(fake.address) as found, real.a_place(found) as place:
        yield place


def said(fake: Server, place: real.Settings, how: str) -> list[int]:
    """The codes with which ends were answered that nobody, or only the broker, has seen."""
    lines = [line.split() for line in fake.log.read_text().splitlines()]
    mine = [each for each in lines if each[0] == how and each[1].startswith(place.topic_prefix)]
    return [int(each[-1]) for each in mine]


@pytest.mark.parametrize(("how", "gives_up_ms", "ended"), [
    (LOST, None, [FIRST]),  # The worker stops waiting, while the client still waits.
    (LATE, None, []),  # The next producer has the transaction aborted.
    (LATE, "1000", [FIRST]),  # The client asks again, and is answered.
])  # fmt: skip
def test_an_end_without_an_answer_ends_no_other_transaction(
    fake: Server, at: real.Settings, how: Signals, gives_up_ms: str | None, ended: list[Event]
) -> None:
    """The next transaction has a new producer, so the broker refuses the old one's late end."""
    options = {"socket.timeout.ms": gives_up_ms} if gives_up_ms else {}
    with closing(KafkaRig(msgspec.structs.replace(at, kafka_options=options))) as log:
        member = read_from_start(log, UPDATER)
        worker: Any = member.performer
        os.kill(fake.pid, how)
        with pytest.raises(LogTrouble, match=r"imed out|in doubt"):
            member.do(Publish([FIRST], {0: 1}))
        member.do(NewProducer())
        worker._begin([SECOND])
        worker._transactions.abort()
        assert said(fake, at, "late") == [FENCED] * (how is LATE)
        assert said(fake, at, "lost") == [0] * (how is LOST)
        assert log.committed(UPDATER, 0) == (1 if ended else None)
        member.do(Publish([THIRD], {0: 2}))
        assert log.events() == seen([*ended, THIRD])


def test_a_worker_goes_on_from_ends_without_answers(
    fake: Server, at: real.Settings, tmp_path: Path
) -> None:
    """Of both roles, four times each. Each change is published once, and ratings equal a replay."""
    with workers(tmp_path) as start:
        start(at, forked=True)
        for turn, how in enumerate((LOST, LATE) * 2):
            os.kill(fake.pid, how)
            rated(at, *(a_round(number) for number in range(20 * turn, 20 * turn + 20)))
        rated(at, a_round(80))
        assert_all_rated_once(at, 81)
    late = said(fake, at, "late")
    assert {*late} == {FENCED}
    assert min(len(late), len(said(fake, at, "lost"))) >= 4, "more if a worker began again"
