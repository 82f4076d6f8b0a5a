"""What ListOffsets says while a partition has no leader is no offset, and is waited for."""

from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest

from stream_rater.adapters.kafka.topics import Admin, offset_of
from stream_rater.config.settings import Settings
from stream_rater.contract.errors import Denied, LogTrouble
from tests.builders.cases import cases

AT = Settings(kafka="127.0.0.1:1")


def delivered(offset: int) -> "Future[Any]":
    future: Future[Any] = Future()
    future.set_result(SimpleNamespace(offset=offset))
    return future


def test_an_offset_is_one() -> None:
    """Zero, too: an empty partition begins and ends there."""
    assert [offset_of(delivered(offset)) for offset in (0, 7)] == [0, 7]


@cases("offset", [-1, -1001])
def test_no_offset_is_trouble(offset: int) -> None:
    """Seen with three brokers of which one was killed (`make chaos`): taken for the end of the log,
    it made a worker refuse its shard."""
    with pytest.raises(LogTrouble, match="leader"):
        offset_of(delivered(offset))


def test_topics_of_another_process_have_leaders_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker that finds all topics waits, too: another may have created them just now."""
    admin = Admin(AT)
    asked = list[str]()

    def ends(topic: str, partitions: int) -> list[int]:
        asked.append(topic)
        if len(asked) == 3:
            raise LogTrouble("kafka: Broker: Not leader for partition")
        return [0] * partitions

    monkeypatch.setattr(admin, "partitions", lambda: dict.fromkeys(admin.topics.names, 2))
    monkeypatch.setattr(admin, "ends", ends)
    admin.create_topics()
    assert asked == [*admin.topics.names[:3], *admin.topics.names]


def test_who_may_not_read_offsets_does_not_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever needs the right says so."""
    admin = Admin(AT)

    def denied(topic: str, partitions: int) -> list[int]:
        raise Denied(topic)

    monkeypatch.setattr(admin, "partitions", lambda: dict.fromkeys(admin.topics.names, 2))
    monkeypatch.setattr(admin, "ends", denied)
    admin.create_topics()
