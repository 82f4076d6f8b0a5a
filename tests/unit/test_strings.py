"""Columns of strings, and SipHash-1-3 with a key per process, on which no stored byte depends."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from local.tools import ROOT
from stream_rater.columns import player_map
from stream_rater.columns import strings as names_module
from stream_rater.columns.arrays import Hashes
from stream_rater.columns.player_map import PlayerMap
from stream_rater.columns.siphash import Key, hashed
from stream_rater.columns.strings import StringColumn, are_distinct, distinct, hash_each
from stream_rater.pipeline.parts import decoder, schema
from stream_rater.replay.player_index import PlayerIndex
from stream_rater.rounds.fastjson import scan
from tests.builders.machines import part
from tests.rounds import as_json, ranked

short_ids = st.text(st.characters(exclude_categories=["Cs"]), max_size=4)


def texts_of(names: StringColumn) -> list[str]:
    spans = zip(names.starts.tolist(), names.ends.tolist(), strict=True)
    return [names.data[start:end].tobytes().decode() for start, end in spans]


@given(st.lists(st.lists(short_ids, max_size=3), min_size=1), st.booleans())
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


@given(
    st.lists(short_ids, min_size=1, max_size=6), st.integers(0, 5), st.integers(0, 7), st.booleans()
)
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


@given(st.lists(short_ids, max_size=40))
def test_distinct_names(names: list[str]) -> None:
    """Each once, as they come, and which of these each is."""
    found, which = distinct(StringColumn.of(names))
    assert texts_of(found) == list(dict.fromkeys(names))
    assert [texts_of(found)[i] for i in which.tolist()] == names


PUBLISHED = {
    0: "dcc40f055801acab", 1: "93ca577df39bf4c9", 2: "4dd4c74d029bcb82", 3: "fbf7dde7b80af88b",
    4: "2883d388605775cf", 5: "673b53492fd5f9de", 6: "a7229fc5502b0dc5", 7: "4011b19b987d92d3",
    8: "8e9a298d11959036", 9: "e43d066cb38ea425", 15: "5699512a6dd820d3", 63: "a8b3bbb76290199d",
}  # fmt: skip
"""By length, of the bytes 0, 1, 2... under the key 00 01 02... 0f, little-endian: from the test of
Rust's standard library."""


def test_the_published_hashes() -> None:
    """Texts of no, some and many whole words, with rests of all kinds, in the midst of others."""
    start, key = np.array([6]), Key(*np.frombuffer(bytes(range(16)), np.uint64))
    for n, due in PUBLISHED.items():
        data = np.frombuffer(b"before" + bytes(range(n)) + b"behind", np.uint8)
        assert hash_each(data, start, start + n, key).tobytes().hex() == due, n


def outputs(folder: Path) -> list[str]:
    folder.mkdir()
    done = subprocess.run(
        [sys.executable, "-m", "tests.outputs", str(folder)],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_two_processes_have_the_same_outputs_under_different_keys(tmp_path: Path) -> None:
    """Parts, events, rejections, beliefs and `rate --records`, although a name has another hash."""
    (one_hash, *some), (other_hash, *others) = (outputs(tmp_path / each) for each in "ab")
    assert one_hash.startswith("hash ") and one_hash != other_hash
    assert some == others


# --- ids that were made to share a slot -----------------------------------------------------------

FNV_START, FNV_PRIME = 0xCBF29CE484222325, 0x100000001B3
SLOTS, COUNT = 1024, 500  # A table for so many ids has so many slots: of random ones they take 396.
TRIED = [f"{i:06x}" for i in range(2**20)]


def fnv(start: int, texts: list[str]) -> Hashes:
    """FNV-1a of texts of one length, from this state on."""
    states = np.full(len(texts), start, np.uint64)
    for column in (
        np.frombuffer("".join(texts).encode("latin1"), np.uint8).reshape(len(texts), -1).T
    ):
        states = (states ^ column) * np.uint64(FNV_PRIME)
    return states


def colliding(start: int = FNV_START, *, folded: bool = False) -> list[str]:
    """Ids whose FNV-1a hashes, or those of both their halves together, are of one slot."""
    hashes = fnv(start, TRIED)
    same = np.flatnonzero((hashes ^ hashes >> np.uint64(32) if folded else hashes) % SLOTS == 0)
    assert len(same) >= COUNT
    return [TRIED[i] for i in same[:COUNT].tolist()]


def longest_run(table: Hashes) -> int:
    """Of places that are taken, one behind the other: no look-up passes more."""
    return int(np.diff(np.flatnonzero(table == 0), prepend=-1, append=len(table)).max()) - 1


def test_the_table_of_who_stands_in_a_round() -> None:
    """By the low bits of hashes, as the scanner finds names and an updater marks them."""
    ids: Any = colliding()
    rounds, _ = scan([as_json(*ranked(range(1, COUNT + 1), ids))], 16)
    behind_the_ladder: Any = colliding(int(fnv(FNV_START, ["a\xff"])[0]))
    (piece,) = decoder.read_all([schema.encode(part((7, behind_the_ladder), ladder="a"))])
    assert piece is not None
    for hashes in (StringColumn.of(ids).hashes, rounds.names.hashes, piece.decoded.fingerprints):
        assert are_distinct(hashes)
        assert len(np.unique(hashes % SLOTS)) > 350


def test_the_table_of_different_names(monkeypatch: pytest.MonkeyPatch) -> None:
    """Less than one comparison per name. Equal hashes are distinguished by the names' bytes."""
    compared = 0
    are_same: Any = names_module._are_same
    to_distinct: Any = names_module._distinct

    def counting(*arguments: Any) -> bool:
        nonlocal compared
        compared += 1
        return bool(are_same.py_func(*arguments))

    monkeypatch.setattr(names_module, "_are_same", counting)
    monkeypatch.setattr(names_module, "hashed", lambda *of: np.uint64(hashed(*of)))
    monkeypatch.setattr(names_module, "_distinct", to_distinct.py_func)
    ids = colliding()
    assert distinct(StringColumn.of(ids))[0].texts() == ids
    assert compared < COUNT
    monkeypatch.setattr(names_module, "hashed", lambda *_: np.uint64(7))
    names, which = distinct(StringColumn.of(["a", "b", "ab", "a", "", "b"]))
    assert (names.texts(), which.tolist()) == (["a", "b", "ab", ""], [0, 1, 2, 0, 3, 1])


def test_the_tables_of_marks_and_of_the_roll() -> None:
    """They have no run of 200 among ids whose FNV-1a collides, whatever their ladder."""
    ids, numbers = StringColumn.of(colliding(start=0)), [f"{i:04}\xff" for i in range(10_000)]
    for i in np.flatnonzero(fnv(FNV_START, numbers) % SLOTS == 0).tolist():
        table = PlayerMap()
        players = player_map.fingerprints(ids, [numbers[i][:-1]], [COUNT], 1)
        table.put(players, np.zeros(COUNT, np.int64))
        assert longest_run(table._table) < 200
    index = PlayerIndex()
    index.rows(StringColumn.of(colliding(folded=True)))
    assert longest_run(index._slots) < 200
