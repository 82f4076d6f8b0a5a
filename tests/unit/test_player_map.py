"""Marks: a number by player, as a dict would keep it. A roster reads like the players it is of,
entries like what is written of them."""

from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from stream_rater.columns import player_map
from stream_rater.columns.player_column import BeliefColumn, PlayerColumn
from stream_rater.columns.player_map import (
    NOTHING,
    TAKEN,
    Fingerprints,
    PlayerMap,
    by_shard,
    shards_in,
)
from stream_rater.columns.sharding import shards_of
from stream_rater.columns.strings import StringColumn


def crowd(*numbers: int) -> Fingerprints:
    """Players by number."""
    return np.array(numbers, np.uint64) | TAKEN


@given(
    st.lists(
        st.tuples(
            st.booleans(), st.lists(st.tuples(st.integers(0, 40), st.integers(0, 3)), max_size=12)
        ),
        max_size=30,
    )
)
def test_marks_are_a_dict(calls: list[tuple[bool, list[tuple[int, int]]]]) -> None:
    """Players are put and forgotten in any order, and many of them look for the same place."""
    marks, wanted = PlayerMap(), dict[int, int]()
    everybody = crowd(*range(41))
    for is_put, pairs in calls:
        players, numbers = crowd(*(p for p, _ in pairs)), np.array([n for _, n in pairs], np.int64)
        if is_put:
            before = marks.put(players, numbers).tolist()
            for (player, number), previous in zip(pairs, before, strict=True):
                assert previous == wanted.get(player, NOTHING)
                wanted[player] = number
        else:
            marks.forget(players, numbers)
            for player, number in pairs:
                if wanted.get(player) == number:
                    del wanted[player]
        assert len(marks) == len(wanted)
        assert marks.find(everybody).tolist() == [wanted.get(p, NOTHING) for p in range(41)]


def test_marks_grow_and_shrink() -> None:
    """Far more than there is room for at first; all of it forgotten again, but for one."""
    marks = PlayerMap()
    players = crowd(*range(100_000))
    numbers = np.arange(100_000)
    for start in range(0, 100_000, 7000):
        marks.put(players[start : start + 7000], numbers[start : start + 7000])
    assert len(marks) == 100_000
    assert (marks.find(players) == numbers).all()
    marks.forget(players[::-1], np.where(numbers == 5, 6, numbers)[::-1])
    assert len(marks) == 1
    assert np.flatnonzero(marks.find(players) != NOTHING).tolist() == [5]


ids = st.text(max_size=9)


def fingerprints(players: list[tuple[str, str]], shards: int) -> Fingerprints:
    """Each alone on its ladder."""
    names = StringColumn.of([name for _, name in players])
    return player_map.fingerprints(
        names, [ladder for ladder, _ in players], [1] * len(players), shards
    )


@given(st.lists(st.tuples(ids, ids), min_size=1, max_size=20, unique=True), st.integers(1, 2000))
def test_fingerprints_hold_the_shard(players: list[tuple[str, str]], shards: int) -> None:
    """The players' own, whoever else is asked for; and those of different ones differ."""
    found = fingerprints(players, shards)
    assert shards_in(found).tolist() == shards_of([name for _, name in players], shards).tolist()
    assert len(set(found.tolist())) == len(players)
    for player, fingerprint in zip(players, found.tolist(), strict=True):
        assert fingerprints([player], shards).tolist() == [fingerprint]


@given(st.lists(st.lists(ids, max_size=4), min_size=1, max_size=5))
def test_fingerprints_of_ladders_together(ladders: list[list[str]]) -> None:
    """They are those of each player alone. Each ladder has its own number of them, perhaps none.
    None is 0, which stands for a free place."""
    names = list(map(str, range(len(ladders))))
    players = [(name, each) for name, own in zip(names, ladders, strict=True) for each in own]
    if players:
        laid_out = StringColumn.of([each for _, each in players])
        found = player_map.fingerprints(laid_out, names, list(map(len, ladders)), 7)
        assert found.tolist() == fingerprints(players, 7).tolist()
    assert (fingerprints([("", "")] * 3, 1) != 0).all()


@given(st.lists(st.integers(0, 9), min_size=1, max_size=50))
def test_players_by_shard(shards: list[int]) -> None:
    """As a stable sort would put them, and each shard that has any with its own."""
    order, cuts = by_shard(np.array(shards, np.uint64) | TAKEN)
    assert order.tolist() == sorted(range(len(shards)), key=shards.__getitem__)
    found = {shard: [shards[i] for i in order[where].tolist()] for shard, where in cuts}
    assert found == {shard: [shard] * shards.count(shard) for shard in sorted(set(shards))}


# --- columns --------------------------------------------------------------------------------------

NAMES = st.text(st.characters(exclude_categories=["Cs"]), max_size=4)
WRITTEN = st.lists(st.tuples(st.tuples(NAMES, NAMES), st.binary(max_size=3)), max_size=6)


@given(WRITTEN, st.integers(-7, 7), st.integers(-7, 7))
def test_a_column_is_its_players_or_entries(written: list[Any], first: int, last: int) -> None:
    """All of them, some, and each alone."""
    other = ("ladder", "another")
    for column, given_ones, more in (
        (PlayerColumn.of([player for player, _ in written]), [p for p, _ in written], other),
        (BeliefColumn.of(written), written, (other, b"")),
    ):
        assert list(column) == given_ones and len(column) == len(given_ones)
        assert (column, repr(column)) == (given_ones, repr(given_ones))
        assert column != [*given_ones, more]
        assert list(column[first:last]) == given_ones[first:last]
        each_alone = [column[i] for i in range(-len(given_ones), len(given_ones))]
        assert each_alone == given_ones + given_ones
