"""Whether offsets that the workers left have a record: what the reader finds decides it."""

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from stream_rater.adapters.kafka.topics import Topics
from stream_rater.config.settings import Settings
from stream_rater.contract.record import Record
from stream_rater.operations import unfinished
from stream_rater.operations.unfinished import UnfinishedRounds
from tests.builders.cases import cases


class FakeReader:
    """A reader whose calls return these: an offset of a record, or nothing; the last is repeated.
    `end`: the end of the log, which the last call reaches."""

    def __init__(self, *found: int | None, end: int = -1) -> None:
        self._found, self._end = [*found], end
        self.begun: dict[int, int] = {}
        self.ends: dict[int, int] = {}

    def start_at(self, offsets: dict[int, int]) -> None:
        self.begun = offsets

    def read(self, _: float, at_most: int) -> Sequence[Record]:
        assert at_most == 1
        offset = self._found.pop(0) if self._found else None
        if not self._found and self._end >= 0:
            self.ends = {0: self._end}
        return [] if offset is None else [Record(0, offset, b"")]


@cases(
    ("reader", "expected"),
    [
        (FakeReader(7), True),
        (FakeReader(None, None, 7), True),
        (FakeReader(9), False),  # it came later
        (FakeReader(None, end=9), False),
    ],
)
def test_a_record_is_looked_for(reader: Any, expected: bool) -> None:
    assert unfinished._may_have_record(reader, 0, range(5, 9)) == expected
    assert reader.begun == {0: 5}


@cases("reader", [FakeReader(None), FakeReader(None, end=8)])
def test_what_could_not_be_read_may_have_one(reader: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The time is over, or a replica does not reach the end yet."""
    monkeypatch.setattr(unfinished, "READ_S", 0.05)
    assert unfinished._may_have_record(reader, 0, range(5, 9))


def test_nothing_is_read_while_workers_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only at the first look, and where nothing has moved since the last one."""
    left = [range(5, 9), range(6, 9), range(7, 9), range(7, 9), range(9, 9)]
    offsets = iter(left)
    admin: Any = SimpleNamespace(
        topics=Topics.of(Settings()), left=lambda *_: {0: next(offsets), 1: range(4, 4)}
    )
    looks, read = UnfinishedRounds(Settings(), admin), list[dict[int, range]]()

    def with_records(found: dict[int, range]) -> dict[int, range]:
        read.append(found)
        return {}

    monkeypatch.setattr(looks, "_with_records", with_records)
    found = [looks.look({0: 9, 1: 4}) for _ in left]
    assert read == [{0: left[0]}, {0: left[3]}]
    assert found == [{}, {0: left[1]}, {0: left[2]}, {}, {}]
