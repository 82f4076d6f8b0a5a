"""Columns of belief records, and of strings that share their bytes."""

from random import Random

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from stream_rater.columns.player_column import RecordColumn
from stream_rater.columns.strings import StringColumn

a_record = st.none() | st.binary(max_size=4)
records = st.lists(a_record, max_size=6)


@given(records)
def test_a_column_is_its_records(each: list[bytes | None]) -> None:
    """An empty record is not an absent one."""
    column = RecordColumn.of(each)
    assert list(column) == each and column == each
    assert [column[i] for i in range(len(each))] == each
    assert column.absent == each.count(None)
    assert RecordColumn.of(column) is column
    assert list(RecordColumn.nothing(len(each))) == [None] * len(each)


@given(st.lists(records, min_size=1, max_size=4), st.randoms())
def test_columns_are_joined(each: list[list[bytes | None]], random: Random) -> None:
    """Also if they are slices of one column, or taken from it in another order."""
    columns = [RecordColumn.of(one) for one in each]
    whole = [record for one in each for record in one]
    joined = RecordColumn.joined(columns)
    assert list(joined) == whole
    cut = random.randint(0, len(whole))
    assert list(RecordColumn.joined([joined[cut:], joined[:cut]])) == whole[cut:] + whole[:cut]
    order = random.sample(range(len(whole)), len(whole))
    assert list(joined.take(np.array(order, np.int64))) == [whole[i] for i in order]


@given(records, st.data())
def test_records_are_replaced(each: list[bytes | None], data: st.DataObject) -> None:
    """In these rows, by others in that order."""
    rows = sorted(data.draw(st.sets(st.integers(0, len(each) - 1)))) if each else []
    others = data.draw(
        st.lists(st.none() | st.binary(max_size=4), min_size=len(rows), max_size=len(rows))
    )
    expected = list(each)
    for row, other in zip(rows, others, strict=True):
        expected[row] = other
    found = RecordColumn.of(each).replaced(np.array(rows, np.int64), RecordColumn.of(others))
    assert list(found) == expected


def test_shared_bytes_stay_shared() -> None:
    """Slices of one column are joined without a copy."""
    column = StringColumn.of(["ann", "bob", "cid"])
    again = StringColumn.joined([column.slice(2, 3), column.slice(0, 2)])
    assert again.texts() == ["cid", "ann", "bob"]
    assert again.data is column.data
    assert len(StringColumn.joined([])) == 0
