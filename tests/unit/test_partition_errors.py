"""A call that succeeds may fail for one partition. Kafka reports that beside its offset."""

from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError

from stream_rater.adapters.kafka.consumer import Input
from stream_rater.adapters.kafka.topics import Admin
from stream_rater.config.settings import Settings
from stream_rater.contract.errors import Denied, LogTrouble
from stream_rater.pipeline.ports import SourceCommit
from tests.builders.cases import cases

AT = Settings(kafka="127.0.0.1:1")
NO_OFFSET = -1001
UNSTABLE = KafkaError(KafkaError.UNSTABLE_OFFSET_COMMIT, "unstable")
DENIED = KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED, "denied")


def of_one_partition(error: KafkaError | None) -> Any:
    """A client that answers well for partition 0, and for 1 with this error, or never committed."""
    answer = [
        SimpleNamespace(partition=0, offset=7, metadata="", error=None),
        SimpleNamespace(partition=1, offset=NO_OFFSET, metadata=None, error=error),
    ]
    return SimpleNamespace(committed=lambda *_, **__: answer, commit=lambda *_, **__: answer)


@pytest.fixture
def input_() -> Iterator[Input]:
    """Of a broker that is not there."""
    found = Input(AT, "t", "g")
    consumer = found.consumer
    yield found
    consumer.close()


@pytest.fixture
def asked(
    input_: Input, monkeypatch: pytest.MonkeyPatch
) -> Callable[[str, KafkaError | None], Any]:
    """What a worker or a command gets when it asks for a group's offsets."""

    def ask(who: str, error: KafkaError | None) -> Any:
        client = of_one_partition(error)
        if who == "worker":
            monkeypatch.setattr(input_, "consumer", client)
            return input_.committed(frozenset([0, 1]))
        admin = Admin(AT)
        monkeypatch.setattr(admin, "_reader", lambda group: client)
        return admin._stable("g", "t", 2) if who == "command" else admin.commit("g", "t", {0: 7})

    return ask


@cases("who", ["worker", "command", "who commits"])
@cases(("error", "kind"), [(UNSTABLE, LogTrouble), (DENIED, Denied)])
def test_an_error_of_one_partition_is_trouble(
    asked: Callable[[str, KafkaError | None], Any],
    who: str,
    error: KafkaError,
    kind: type[Exception],
) -> None:
    """Taken for "never committed" it would have all of the partition read again."""
    with pytest.raises(kind, match=error.str()):
        asked(who, error)


@cases("who", ["worker", "command"])
def test_a_partition_that_was_never_committed_is_none(
    asked: Callable[[str, KafkaError | None], Any], who: str
) -> None:
    """Beside one that was."""
    seven = 7 if who == "worker" else SourceCommit(7)
    assert asked(who, None) == {0: seven, 1: None}
