"""A command's requests wait longer for a busy broker than those of a service, which asks again."""

from concurrent.futures import Future
from typing import Any, cast

import pytest
from confluent_kafka import KafkaError, KafkaException

from stream_rater.adapters.kafka.topics import COMMAND_TIMEOUT_S, REQUEST_TIMEOUT_S, Admin
from stream_rater.config.settings import Settings
from stream_rater.contract.errors import LogTrouble
from tests.builders.cases import cases

NOWHERE = Settings(kafka="127.0.0.1:1")


class BusyBroker:
    """A client whose requests all time out. It notes how long each would have waited."""

    def __init__(self) -> None:
        self.waits_s: list[float] = []

    def _timed_out(self, keys: Any, request_timeout: float) -> dict[Any, "Future[Any]"]:
        self.waits_s.append(request_timeout)
        future: Future[Any] = Future()
        future.set_exception(KafkaException(KafkaError(KafkaError._TIMED_OUT)))
        return dict.fromkeys(keys, future)

    describe_consumer_groups = list_offsets = _timed_out

    def list_topics(self, topic: str, timeout: float) -> None:
        raise KafkaException(KafkaError(KafkaError._TIMED_OUT))


@cases(
    ("options", "longest_s"),
    [({}, COMMAND_TIMEOUT_S), ({"request_timeout_s": REQUEST_TIMEOUT_S}, REQUEST_TIMEOUT_S)],
)
def test_the_longest_wait(options: dict[str, float], longest_s: float) -> None:
    """The first request for offsets is short in both: its leader may be a former one."""
    admin, broker = Admin(NOWHERE, **options), BusyBroker()
    admin._client = cast(Any, broker)
    with pytest.raises(LogTrouble):
        admin.ends("topic", 2)
    with pytest.raises(LogTrouble):
        admin.members("group")
    assert broker.waits_s == [REQUEST_TIMEOUT_S, longest_s, longest_s]
