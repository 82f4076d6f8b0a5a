"""adapters.producers: whatever ends a transaction is trouble, never a traceback."""

import threading
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from stream_rater.adapters.access import trouble_of
from stream_rater.adapters.kafka import deadlines, producers
from stream_rater.adapters.kafka.consumer import Input
from stream_rater.adapters.kafka.producers import Transactions
from stream_rater.config.settings import Settings
from stream_rater.contract.errors import Denied, LogTrouble

AT = Settings(kafka="127.0.0.1:1")


class Fenced:
    """A producer whose flush says that another one has its name."""

    def __getattr__(self, name: str) -> Any:
        return lambda *_: None

    def flush(self, _: float) -> int:
        """As librdkafka does when the partitions cannot be added."""
        raise KafkaException(KafkaError(KafkaError._FENCED, "fenced", fatal=True))


@pytest.fixture
def input_() -> Iterator[Input]:
    """Of a broker that is not there, as a member all the same."""
    found = Input(AT, "parts", "updaters")
    found._metadata = found.consumer.consumer_group_metadata()
    yield found
    found.consumer.close()


def test_an_exception_set_before_a_callback() -> None:
    """Is what the trouble is about."""
    error = SystemError("returned a result with an exception set")
    error.__cause__ = KafkaException(KafkaError(KafkaError._FENCED, "fenced"))
    assert str(trouble_of(error)) == "kafka: fenced"


def test_a_producer_that_is_fenced_while_it_flushes(input_: Input) -> None:
    """The machine begins again with another producer."""
    transactions = Transactions(AT, "updater", input_)
    fenced: Any = Fenced()
    transactions._producer = fenced
    with pytest.raises(LogTrouble, match="fenced"):
        transactions.run(lambda _: None, {})


def test_a_call_that_never_returns_is_left_behind(
    input_: Input, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The machine begins again with another producer (librdkafka's issue 5456)."""
    ended = threading.Event()

    class Hanging(Fenced):
        """A producer whose offsets are never acknowledged."""

        def flush(self, _: float) -> int:
            return 0

        def send_offsets_to_transaction(self, *_: Any) -> None:
            ended.wait()

    monkeypatch.setattr(deadlines, "ABANDON_S", 0.1)
    transactions = Transactions(AT, "updater", input_)
    hanging: Any = Hanging()
    transactions._producer = hanging
    with pytest.raises(LogTrouble, match="a call did not return"):
        transactions.run(lambda _: None, {})
    ended.set()


def test_a_producer_whose_successor_failed_is_not_gone_on_with(
    input_: Input, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Kafka did not take the new one in: there is none until it does."""

    class Refused:
        def init_transactions(self, _: float) -> None:
            raise KafkaException(KafkaError(KafkaError.COORDINATOR_LOAD_IN_PROGRESS, "loading"))

        def poll(self, _: float) -> None:
            """Report nothing else."""

    transactions = Transactions(AT, "updater", input_)
    fenced: Any = Fenced()
    transactions._producer = fenced
    monkeypatch.setattr(producers, "new_producer", lambda *_, **__: Refused())
    for attempt in (transactions.renew, transactions.ready):
        with pytest.raises(LogTrouble, match="loading"):
            attempt()


REFUSED = KafkaError(KafkaError._AUTHENTICATION, "SASL authentication error: wrong password")


def test_a_refused_password_puts_a_transaction_in_doubt(input_: Input) -> None:
    """A request may have been on its way when the connection was closed."""
    transactions = Transactions(AT, "updater", input_)
    quiet: Any = Quiet()
    transactions._producer = quiet
    transactions.run(lambda _: None, {})
    transactions.begin(lambda _: None)
    transactions._on_error(REFUSED)
    with pytest.raises(LogTrouble, match=r"in doubt: SASL .*: wrong password") as trouble:
        transactions.end({})
    assert trouble.value.cause == "denied"


def test_a_connection_that_breaks_puts_a_transaction_in_doubt(input_: Input) -> None:
    """Whether it is ended or undone."""
    for undone in (False, True):
        transactions = Transactions(AT, "updater", input_)
        quiet: Any = Quiet()
        transactions._producer = quiet
        transactions.begin(lambda _: None)
        transactions._on_disconnect("Disconnected")
        with pytest.raises(LogTrouble, match=r"in doubt: .*Disconnected"):
            transactions.abort() if undone else transactions.end({})


class Quiet:
    """A producer that does all it is asked for."""

    def __getattr__(self, name: str) -> Any:
        return lambda *_: None

    def flush(self, _: float) -> int:
        return 0


def test_a_new_producer_with_a_refused_password(
    input_: Input, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The call itself only times out. A password that cannot change ends the worker."""
    transactions = Transactions(AT, "updater", input_)

    class Refused(Quiet):
        def init_transactions(self, _: float) -> None:
            raise KafkaException(KafkaError(KafkaError.COORDINATOR_LOAD_IN_PROGRESS, "loading"))

        def poll(self, _: float) -> None:
            transactions._on_error(REFUSED)

    monkeypatch.setattr(producers, "new_producer", lambda *_, **__: Refused())
    with pytest.raises(Denied, match="wrong password"):
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
