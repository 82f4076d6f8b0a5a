"""Whether offsets that the workers left have a record: what the reader finds decides it."""

from collections.abc import Sequence
from typing import Any

import pytest

from stream_rater.contract.record import Record
from stream_rater.operations import unfinished


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


@pytest.mark.parametrize(
    ("reader", "expected"),
    [
        (FakeReader(7), True),
        (FakeReader(None, None, 7), True),
        (FakeReader(9), False),  # it came later
        (FakeReader(None, end=9), False),
    ],
    ids=["first", "later", "after the end", "none"],
)
def test_a_record_is_looked_for(reader: Any, expected: bool) -> None:
    assert unfinished._may_have_record(reader, 0, range(5, 9)) == expected
    assert reader.begun == {0: 5}


@pytest.mark.parametrize("reader", [FakeReader(None), FakeReader(None, end=8)])
def test_what_could_not_be_read_may_have_one(reader: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The time is over, or a replica does not reach the end yet."""
    monkeypatch.setattr(unfinished, "READ_S", 0.05)
    assert unfinished._may_have_record(reader, 0, range(5, 9))
