"""Names: the same ones, as texts and as bytes, alone and together."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stream_rater.columns import strings as names_module
from stream_rater.columns.strings import LaidOut, Names, distinct, lay_out, together

ids = st.text(st.characters(exclude_categories=["Cs"]), max_size=4)


def told(names: LaidOut) -> list[str]:
    """Each one, read from where it is said to be."""
    spans = zip(names.starts.tolist(), names.ends.tolist(), strict=True)
    return [names.data[start:end].tobytes().decode() for start, end in spans]


@given(st.lists(st.tuples(st.lists(ids, max_size=3), st.integers(0, 3), st.booleans()), min_size=1))
def test_names_together(crowds: list[tuple[list[str], int, bool]]) -> None:
    """Texts, and some of those that share a place, in any order and more than once."""
    shared = [lay_out(["x", *(name for own, _, _ in crowds for name in own), "y"]), lay_out(["z"])]
    some, wanted, start = list[Names](), list[str](), 1
    for own, source, alone in crowds:
        end = start + len(own)
        if source == 0:
            some.append(Names(list(own)))
        elif alone:
            some.append(Names(lay_out(own)) if own else Names(shared[1], 0, 0))
        else:
            some.append(Names(shared[0], start, end))
        start, wanted = end, wanted + own
    assert told(together(some)) == wanted
    assert [each.texts for each in some if len(each)] == [own for own, _, _ in crowds if own]
    assert together(some).texts() == wanted


@given(st.lists(ids, min_size=1, max_size=6), st.integers(0, 5), st.integers(0, 7), st.booleans())
def test_some_names(names: list[str], first: int, last: int, are_texts: bool) -> None:
    """A run of them, or these rows, whatever they are."""
    last = max(first, last)
    all_ = Names(names) if are_texts else Names(lay_out(["x", *names]), 1)
    assert len(all_) == len(names)
    some = all_.some(min(first, len(names)), last)
    assert len(some) == len(names[first:last])
    assert told(some.laid_out) == names[first:last] if len(some) else True
    rows = np.arange(len(names))[::-2].copy()
    assert all_.rows(rows).texts == [names[i] for i in rows.tolist()]


@given(st.lists(ids, max_size=40))
def test_distinct_names(names: list[str]) -> None:
    """Each once, as they come, and which of these each is."""
    found, which = distinct(lay_out(names))
    assert told(found) == list(dict.fromkeys(names))
    assert [told(found)[i] for i in which.tolist()] == names


def test_names_of_one_hash_are_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """By their bytes: the table is for speed alone."""
    monkeypatch.setattr(names_module, "hashed", lambda *_: np.uint64(7))
    monkeypatch.setattr(names_module, "_are_same", names_module._are_same.py_func)
    laid_out = lay_out(["a", "b", "ab", "a", "", "b"])
    firsts, which = names_module._distinct.py_func(
        laid_out.data, laid_out.starts, laid_out.ends, names_module.SECRET_KEY
    )
    assert firsts.tolist() == [0, 1, 2, 4]
    assert which.tolist() == [0, 1, 2, 0, 3, 1]
