"""adapters.kafka: the client reports once what ends it, and that must not be missed."""

from collections.abc import Iterator

import pytest
from confluent_kafka import KafkaError, Message

from stream_rater.adapters.kafka.consumer import Fenced, Input
from stream_rater.config.settings import Settings
from stream_rater.contract.errors import LogTrouble
from tests.builders.cases import cases

DOWN = KafkaError(KafkaError._ALL_BROKERS_DOWN, "1/1 brokers are down")
FENCED = KafkaError(KafkaError.FENCED_INSTANCE_ID, "fenced")


@pytest.fixture
def input_() -> Iterator[Input]:
    """The input of a broker that is not there."""
    found = Input(Settings(kafka="127.0.0.1:1"), "parts", "updaters")
    yield found
    found.consumer.close()


def test_all_brokers_down_is_trouble_once(input_: Input) -> None:
    """It is raised once, until the client reports it again."""
    input_._on_error(DOWN)
    with pytest.raises(LogTrouble, match="brokers are down"):
        input_._raise_reported([])
    input_._raise_reported([])


def test_and_says_why(input_: Input) -> None:
    """It says why the last broker's connection failed, once: by the next time it may be mended."""
    input_._on_error(KafkaError(KafkaError._SSL, "certificate verify failed"))
    input_._raise_reported([])  # one of several: the client goes on with the others
    input_._on_error(DOWN)
    with pytest.raises(LogTrouble, match=r"brokers are down: certificate verify failed") as caught:
        input_._raise_reported([])
    assert caught.value.cause == "tls"
    input_._on_error(DOWN)
    with pytest.raises(LogTrouble, match=r"are down$"):
        input_._raise_reported([])


@cases("order", [(DOWN, FENCED), (FENCED, DOWN)])
def test_what_ends_the_client_outweighs_the_rest(
    input_: Input, order: tuple[KafkaError, ...]
) -> None:
    """The callback may report it before the rest or after."""
    for error in order:
        input_._on_error(error)
    with pytest.raises(Fenced):
        input_._raise_reported([])


def test_nor_is_it_missed_among_the_records(input_: Input) -> None:
    """It is reported in place of a record, in a poll that has another report, too."""
    input_._on_error(DOWN)
    with pytest.raises(Fenced):
        input_._raise_reported([Message(topic="parts", error=FENCED)])
