"""adapters.producers: whatever ends a transaction is trouble, never a traceback."""

import threading
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from stream_rater.adapters import access
from stream_rater.adapters.access import trouble_of
from stream_rater.adapters.kafka import producers
from stream_rater.adapters.kafka.consumer import Input
from stream_rater.adapters.kafka.producers import Transactions
from stream_rater.config.settings import Settings
from stream_rater.contract.errors import Denied, LogTrouble
from tests.builders.cases import cases
from tests.builders.consumers import input_of_nobody


class Quiet:
    """A producer that does all it is asked for."""

    def __getattr__(self, name: str) -> Any:
        return lambda *_: None

    def flush(self, _: float) -> int:
        return 0


class Fenced(Quiet):
    """A producer whose flush says that another one has its name."""

    def flush(self, _: float) -> int:
        """As librdkafka does when the partitions cannot be added."""
        raise KafkaException(KafkaError(KafkaError._FENCED, "fenced", fatal=True))


class Refused(Quiet):
    """A producer that Kafka does not take in."""

    def init_transactions(self, _: float) -> None:
        raise KafkaException(KafkaError(KafkaError.COORDINATOR_LOAD_IN_PROGRESS, "loading"))


@pytest.fixture
def input_() -> Iterator[Input]:
    """Of a broker that is not there, as a member all the same."""
    with input_of_nobody() as found:
        found._metadata = found.consumer.consumer_group_metadata()
        yield found


def transactions_of(producer: Any, input_: Input) -> Transactions:
    found = Transactions(Settings(kafka="127.0.0.1:1"), "updater", input_)
    found._producer = producer
    return found


def test_what_a_trouble_is_about(input_: Input) -> None:
    """An exception set before a callback. After a fence there must be another producer."""
    error = SystemError("returned a result with an exception set")
    error.__cause__ = KafkaException(KafkaError(KafkaError._FENCED, "fenced"))
    assert str(trouble_of(error)) == "kafka: fenced"
    with pytest.raises(LogTrouble, match="fenced"):
        transactions_of(Fenced(), input_).run(lambda _: None, {})


def test_a_call_that_never_returns_is_left_behind(
    input_: Input, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The machine begins again with another producer (librdkafka's issue 5456)."""
    ended = threading.Event()

    class Hanging(Quiet):
        """A producer whose offsets are never acknowledged."""

        def send_offsets_to_transaction(self, *_: Any) -> None:
            ended.wait()

    monkeypatch.setattr(access, "ABANDON_S", 0.1)
    with pytest.raises(LogTrouble, match="a call did not return"):
        transactions_of(Hanging(), input_).run(lambda _: None, {})
    ended.set()


def test_a_producer_whose_successor_failed_is_not_gone_on_with(
    input_: Input, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There is no producer until Kafka accepts one. A refused password ends the worker."""
    transactions = transactions_of(Fenced(), input_)
    monkeypatch.setattr(access, "new_producer", lambda *_, **__: Refused())
    for attempt in (transactions.renew, transactions.ready):
        with pytest.raises(LogTrouble, match="loading"):
            attempt()
    transactions = Transactions(Settings(kafka="127.0.0.1:1"), "updater", input_)

    class Denying(Refused):
        def poll(self, _: float) -> None:
            transactions._on_error(REFUSED)

    monkeypatch.setattr(access, "new_producer", lambda *_, **__: Denying())
    with pytest.raises(Denied, match="wrong password"):
        transactions.renew()


REFUSED = KafkaError(KafkaError._AUTHENTICATION, "SASL authentication error: wrong password")


def test_a_refused_password_puts_a_transaction_in_doubt(input_: Input) -> None:
    """A request may have been on its way when the connection was closed; also where it breaks, and
    where the client gives a request up and sends it again."""
    transactions = transactions_of(Quiet(), input_)
    transactions.run(lambda _: None, {})
    transactions.begin(lambda _: None)
    transactions._on_error(REFUSED)
    with pytest.raises(LogTrouble, match=r"in doubt: SASL .*: wrong password") as trouble:
        transactions.end({})
    assert trouble.value.cause == "denied"
    for kind, text in (("FAIL", "Disconnected"), ("REQTMOUT", "Timed out EndTxnRequest in flight")):
        transactions = transactions_of(Quiet(), input_)
        transactions.begin(lambda _: None)
        transactions._log.info("%s [%s] %s", kind, "producer-1", f"[thrd:TxnCoordinator]: {text}")
        with pytest.raises(LogTrouble, match=f"in doubt: {text}"):
            transactions.abort() if kind == "FAIL" else transactions.end({})


class Ended(Quiet):
    """A producer that has ended by an error, and raises it in every call."""

    def __init__(self, code: int) -> None:
        self._error = KafkaException(KafkaError(code, "the broker's reason", fatal=True))

    def poll(self, _: float) -> None:
        raise self._error

    def init_transactions(self, _: float) -> None:
        raise self._error


@cases("code, names", [
    (KafkaError.INVALID_TRANSACTION_TIMEOUT,
     ("STREAM_RATER_TRANSACTION_TIMEOUT_MS", "transaction.max.timeout.ms")),
    (KafkaError.INVALID_SESSION_TIMEOUT,
     ("STREAM_RATER_SESSION_TIMEOUT_MS", "group.max.session.timeout.ms")),
])  # fmt: skip
def test_a_setting_that_the_brokers_do_not_take(
    input_: Input, monkeypatch: pytest.MonkeyPatch, code: int, names: tuple[str, str]
) -> None:
    """The worker ends with one line that names both settings."""
    monkeypatch.setattr(access, "new_producer", lambda *_, **__: Ended(code))
    with pytest.raises(Denied) as ended:
        Transactions(Settings(kafka="127.0.0.1:1"), "updater", input_).ready()
    assert all(each in str(ended.value) for each in names) and "\n" not in str(ended.value)


def test_a_producer_that_has_ended_is_replaced(
    input_: Input, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is replaced whenever it reports this. A transaction that was ending is in doubt."""
    ended, made = Ended(KafkaError.INVALID_PRODUCER_EPOCH), Quiet()
    monkeypatch.setattr(access, "new_producer", lambda *_, **__: made)
    transactions = transactions_of(ended, input_)
    assert transactions.ready() is made
    transactions.begin(lambda _: None)
    transactions._producer = ended  # type: ignore[assignment]
    with pytest.raises(LogTrouble, match="in doubt: the broker's reason"):
        transactions.abort()
    monkeypatch.setattr(access, "new_producer", lambda *_, **__: ended)
    with pytest.raises(LogTrouble, match="the broker's reason"):
        transactions.renew()


class Full:
    """A client whose queue has room after so many polls."""

    def __init__(self, polls: int) -> None:
        self.polls, self.sent = polls, 0

    def poll(self, _: float) -> None:
        self.polls -= 1

    def produce(self, *_: Any) -> None:
        if self.polls > 0:
            raise BufferError("queue full")
        self.sent += 1


def test_a_message_waits_for_room_in_the_clients_queue() -> None:
    """It is sent once, or not at all if the queue stays full for as long as may be waited."""
    for polls in (0, 1, 3):
        client: Any = Full(polls)
        producers.produce(client, ("t", b"x"), [0.0] * 3)
        assert (client.polls, client.sent) == (0, 1)
    client = Full(4)
    with pytest.raises(LogTrouble, match="queue stays full"):
        producers.produce(client, ("t", b"x"), [0.0] * 3)
    assert client.sent == 0
