"""Columns of strings: their three verbs, and their different ones."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stream_rater.columns import strings as names_module
from stream_rater.columns.strings import StringColumn, distinct

ids = st.text(st.characters(exclude_categories=["Cs"]), max_size=4)


def texts_of(names: StringColumn) -> list[str]:
    """Each one, read from where it is said to be."""
    spans = zip(names.starts.tolist(), names.ends.tolist(), strict=True)
    return [names.data[start:end].tobytes().decode() for start, end in spans]


@given(st.lists(st.lists(ids, max_size=3), min_size=1), st.booleans())
def test_concat(columns: list[list[str]], one_array: bool) -> None:
    """All strings in turn, of columns that share their bytes or do not, with nothing between."""
    wanted = [name for own in columns for name in own]
    shared, some, start = StringColumn.of(["x", *wanted, "y"]), list[StringColumn](), 1
    for own in columns:
        end = start + len(own)
        some.append(shared.slice(start, end) if one_array else StringColumn.of(own))
        start = end
    found = StringColumn.concat(some)
    assert texts_of(found) == found.texts() == wanted
    assert len(found) == len(wanted) and len(found.data) == len("".join(wanted).encode())


@given(st.lists(ids, min_size=1, max_size=6), st.integers(0, 5), st.integers(0, 7), st.booleans())
def test_slice_and_take(names: list[str], first: int, last: int, hashed_before: bool) -> None:
    """A view of some rows; others in any order, as a view or compact; hashes are of the bytes."""
    column = StringColumn.of(names)
    if hashed_before:
        assert column.hashes is column.hashes
    some = column.slice(first, last)
    assert texts_of(some) == some.texts() == names[first:last]
    assert some.hashes.tolist() == StringColumn.of(names[first:last]).hashes.tolist()
    rows = np.arange(len(names))[::-2].copy()
    for compact in (False, True):
        taken = column.take(rows, compact=compact)
        assert texts_of(taken) == [names[i] for i in rows.tolist()]
        assert taken.hashes.tolist() == column.hashes[rows].tolist()
        assert (taken.data is column.data) != compact
    assert texts_of(column) == names


@given(st.lists(st.binary(max_size=4), max_size=5))
def test_any_bytes(strings: list[bytes]) -> None:
    """Stored beliefs are such bytes."""
    assert StringColumn.of_bytes(strings).strings() == strings


@given(st.lists(ids, max_size=40))
def test_distinct_names(names: list[str]) -> None:
    """Each once, as they come, and which of these each is."""
    found, which = distinct(StringColumn.of(names))
    assert texts_of(found) == list(dict.fromkeys(names))
    assert [texts_of(found)[i] for i in which.tolist()] == names


def test_names_of_one_hash_are_distinguished(monkeypatch: pytest.MonkeyPatch) -> None:
    """By their bytes: the table is for speed alone."""
    monkeypatch.setattr(names_module, "hashed", lambda *_: np.uint64(7))
    are_same: Any = names_module._are_same
    to_distinct: Any = names_module._distinct
    monkeypatch.setattr(names_module, "_are_same", are_same.py_func)
    laid_out = StringColumn.of(["a", "b", "ab", "a", "", "b"])
    firsts, which = to_distinct.py_func(
        laid_out.data, laid_out.starts, laid_out.ends, names_module.SECRET_KEY
    )
    assert firsts.tolist() == [0, 1, 2, 4]
    assert which.tolist() == [0, 1, 2, 0, 3, 1]
