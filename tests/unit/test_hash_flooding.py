"""Ids that were made to share a slot are spread over a hash table like any other ids.

They were made against FNV-1a, a hash without a secret, from which tables took their slots once.
"""

import string
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
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
from tests.builders.machines import part
from tests.rounds import as_json, ranked

FNV_START, FNV_PRIME = 0xCBF29CE484222325, 0x100000001B3
LETTERS = np.frombuffer((string.ascii_letters + string.digits + "-_.+*=~!@#$^&()").encode(), "u1")
PREFIXES, TAIL = 2**17, 3
"""How many beginnings are tried, and how many letters are put behind each."""

LADDER = "a"
LADDERS = 2000


def fnv(states: Hashes, texts: npt.NDArray[np.uint8]) -> Hashes:
    """FNV-1a of each row of bytes, from these states on."""
    for column in texts.T:
        states = (states ^ column) * np.uint64(FNV_PRIME)
    return states


def bytes_of(ids: list[str]) -> npt.NDArray[np.uint8]:
    """Ids of one length, a row each."""
    return np.frombuffer("".join(ids).encode(), np.uint8).reshape(len(ids), -1)


def colliding(count: int, bits: int, start: int = FNV_START) -> list[str]:
    """Ids of one length whose FNV-1a hashes, from this start on, agree in so many low bits.

    Of each beginning the hash is known, and so is the one that leads over any last letters, which
    are counted back from the end, to a hash whose low bits are 0. Beginnings whose hash is among
    those get these letters.
    """
    mask, inverse = np.uint64(2**bits - 1), np.uint64(pow(FNV_PRIME, -1, 2**bits))
    wanted = np.zeros(1, np.uint64)
    for _ in range(TAIL):
        wanted = (((wanted * inverse) & mask)[:, np.newaxis] ^ LETTERS).ravel()
    order = np.argsort(wanted)
    prefixes = [f"{i:06x}" for i in range(PREFIXES)]
    states = fnv(np.full(PREFIXES, start, np.uint64), bytes_of(prefixes)) & mask
    at = np.searchsorted(wanted[order], states).clip(max=len(order) - 1)
    found = np.flatnonzero(wanted[order[at]] == states)[:count]
    tails = np.unravel_index(order[at[found]], (len(LETTERS),) * TAIL)
    letters = LETTERS[np.stack(tails[::-1], axis=1)].tobytes().decode()
    ids = [prefixes[p] + letters[TAIL * i : TAIL * (i + 1)] for i, p in enumerate(found.tolist())]
    assert len(set(ids)) == count
    assert not (fnv(np.full(count, start, np.uint64), bytes_of(ids)) & mask).any()
    return ids


def of_texts(ids: list[str]) -> Hashes:
    """As the hashes of texts that are laid out."""
    return StringColumn.of(ids).hashes


def of_a_round(ids: list[str]) -> Hashes:
    """As the scanner finds them in a round."""
    rounds, _ = scan([as_json(*ranked(range(1, len(ids) + 1), ids))], 16)
    return rounds.names.hashes


def of_a_part(ids: list[str]) -> Hashes:
    """As an updater marks them in a part."""
    players: Any = ids
    (piece,) = decoder.read_all([schema.encode(part((7, players), ladder=LADDER))])
    assert piece is not None
    return piece.decoded.fingerprints


BEHIND_THE_LADDER = int(
    fnv(np.array([FNV_START], np.uint64), np.array([[ord(LADDER), 0xFF]], np.uint8))[0]
)
"""The state from which the players in a part were hashed."""


Hashing = Callable[[list[str]], Hashes]


@pytest.mark.parametrize(
    ("hashes", "start"),
    [(of_texts, FNV_START), (of_a_round, FNV_START), (of_a_part, BEHIND_THE_LADDER)],
)
def test_the_table_of_who_stands_in_a_round(hashes: Hashing, start: int) -> None:
    """`are_distinct` takes the low bits: 5000 ids have over 4000 slots of its 16,384, where random
    ones have 4309."""
    found = hashes(colliding(5000, 19, start))
    assert are_distinct(found)
    assert len(np.unique(found & np.uint64(16_383))) > 4000


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
    ids = colliding(1000, 19)
    assert distinct(StringColumn.of(ids))[0].texts() == ids
    assert compared < 1000


def longest_run(table: Hashes) -> int:
    """Of places that are taken, one behind the other: no look-up passes more."""
    free = np.flatnonzero(table == 0)
    return int(np.diff(free, prepend=-1, append=len(table)).max()) - 1


def test_the_table_of_marks() -> None:
    """512 players in 1024 places stand together by less than 200, whatever their ladder: FNV-1a of
    such ids collides from each start that has the low byte 0, as one ladder in 256 has it."""
    ids = StringColumn.of(colliding(512, 23, start=0))
    for ladder in map(str, range(LADDERS)):
        table = PlayerMap()
        players = player_map.fingerprints(ids, [ladder], [512], 1)
        table.put(players, np.zeros(512, np.int64))
        assert longest_run(table._table) < 200


def test_the_table_of_the_roll() -> None:
    """500 players in 1024 places stand together by less than 200. The laboratory's roll takes the
    low bits of both halves of a hash, together: who tries 2^19 ids finds enough of one place."""
    tried = [f"{i:06x}" for i in range(2**19)]
    hashes = fnv(np.full(len(tried), FNV_START, np.uint64), bytes_of(tried))
    same = np.flatnonzero((hashes ^ hashes >> np.uint64(32)) & np.uint64(1023) == 0)[:500]
    assert len(same) == 500
    index = PlayerIndex()
    index.rows(StringColumn.of([tried[i] for i in same.tolist()]))
    assert longest_run(index._slots) < 200
