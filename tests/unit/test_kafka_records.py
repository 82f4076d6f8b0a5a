"""What becomes of the messages of a consumer."""

from typing import Any

from stream_rater.adapters.kafka.records import Messages
from stream_rater.rounds.lines import PlainRecords
from tests.builders.cases import cases

HOLES = "a list with holes: who reads it ends the process"


class FakeMessage:
    """A message. Like the client's, it reports headers that it cannot represent only once."""

    def __init__(self, offset: int, value: bytes | None, headers: Any) -> None:
        self._offset, self._value, self._headers = offset, value, headers

    def error(self) -> None:
        return None

    def partition(self) -> int:
        return 3

    def offset(self) -> int:
        return self._offset

    def value(self) -> bytes | None:
        return self._value

    def key(self) -> bytes:
        return b"key"

    def timestamp(self) -> tuple[int, int]:
        return 1, 5000

    def headers(self) -> Any:
        if isinstance(self._headers, Exception):
            error, self._headers = self._headers, HOLES
            raise error
        if self._headers == HOLES:
            raise AssertionError("asked twice")
        return self._headers


def unreadable() -> Any:
    """The error of a header whose name is not UTF-8."""
    return UnicodeDecodeError("utf-8", b"\xff", 0, 1, "invalid start byte")


@cases("value", [b"{}", None])
@cases("others", [None, [("event-type", b"season-started")]])
def test_headers_are_asked_for_once(value: bytes | None, others: Any) -> None:
    """A record whose headers the client cannot represent has none, whatever comes with it."""
    messages: Any = [FakeMessage(7, value, unreadable()), FakeMessage(8, b"{}", others)]
    first, second = Messages(frozenset()).rounds(messages)
    assert (first.partition, first.offset, first.value, first.headers) == (3, 7, value, ())
    assert second.headers == (others or ())


def test_records_without_headers_are_columns() -> None:
    """Each of them is the record that it would be alone."""
    plain: Any = [FakeMessage(each, b"{}", None) for each in range(3)]
    found = Messages(frozenset()).rounds(plain)
    assert isinstance(found, PlainRecords)
    assert [(each.offset, each.value, each.received_s) for each in found] == [
        (each, b"{}", 5.0) for each in range(3)
    ]
