"""Ids that were made to share a slot are spread over a hash table like any other ids.

They were made against FNV-1a, a hash without a secret, from which tables took their slots once.
"""

from typing import Any

import numpy as np
import pytest

from stream_rater.columns import player_map
from stream_rater.columns import strings as names_module
from stream_rater.columns.arrays import Hashes
from stream_rater.columns.player_map import PlayerMap
from stream_rater.columns.siphash import hashed
from stream_rater.columns.strings import StringColumn, are_distinct, distinct
from stream_rater.pipeline.parts import decoder, schema
from stream_rater.replay.player_index import PlayerIndex
from stream_rater.rounds.fastjson import scan
from tests.rounds import as_json, ranked
from tests.unit.machines import part

FNV_START, FNV_PRIME = 0xCBF29CE484222325, 0x100000001B3
SLOTS, COUNT = 1024, 500
"""A table for so many ids has so many slots: of random ones they take 396."""
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
    """Ids whose FNV-1a hashes, from this start on, are of one slot; or those of both their halves
    together."""
    hashes = fnv(start, TRIED)
    same = np.flatnonzero((hashes ^ hashes >> np.uint64(32) if folded else hashes) % SLOTS == 0)
    assert len(same) >= COUNT
    return [TRIED[i] for i in same[:COUNT].tolist()]


def longest_run(table: Hashes) -> int:
    """Of places that are taken, one behind the other: no look-up passes more."""
    free = np.flatnonzero(table == 0)
    return int(np.diff(free, prepend=-1, append=len(table)).max()) - 1


def test_the_table_of_who_stands_in_a_round() -> None:
    """`are_distinct` takes the low bits of texts as they are laid out, as the scanner finds them in
    a round, and as an updater marks them in a part."""
    ids: Any = colliding()
    rounds, _ = scan([as_json(*ranked(range(1, COUNT + 1), ids))], 16)
    behind_the_ladder: Any = colliding(int(fnv(FNV_START, ["a\xff"])[0]))
    (piece,) = decoder.read_all([schema.encode(part((7, behind_the_ladder), ladder="a"))])
    assert piece is not None
    for hashes in (StringColumn.of(ids).hashes, rounds.names.hashes, piece.decoded.fingerprints):
        assert are_distinct(hashes)
        assert len(np.unique(hashes % SLOTS)) > 350


def test_the_table_of_different_names(monkeypatch: pytest.MonkeyPatch) -> None:
    """`distinct` compares a new name with those that it meets: with less than one, on average."""
    compared = 0
    are_same: Any = names_module._are_same
    to_distinct: Any = names_module._distinct

    def counting(*arguments: Any) -> bool:
        nonlocal compared
        compared += 1
        return are_same(*arguments)

    monkeypatch.setattr(names_module, "_are_same", counting)
    monkeypatch.setattr(names_module, "hashed", lambda *of: np.uint64(hashed(*of)))
    monkeypatch.setattr(names_module, "_distinct", to_distinct.py_func)
    ids = colliding()
    assert distinct(StringColumn.of(ids))[0].texts() == ids
    assert compared < COUNT


def test_the_tables_of_marks_and_of_the_roll() -> None:
    """Players stand together by less than 200, whatever their ladder, among such from which FNV-1a
    of these ids collides. The laboratory's roll takes the low bits of both halves of a hash."""
    ids, numbers = StringColumn.of(colliding(start=0)), [f"{i:04}\xff" for i in range(10_000)]
    for i in np.flatnonzero(fnv(FNV_START, numbers) % SLOTS == 0).tolist():
        table = PlayerMap()
        players = player_map.fingerprints(ids, [numbers[i][:-1]], [COUNT], 1)
        table.put(players, np.zeros(COUNT, np.int64))
        assert longest_run(table._table) < 200
    index = PlayerIndex()
    index.rows(StringColumn.of(colliding(folded=True)))
    assert longest_run(index._slots) < 200
