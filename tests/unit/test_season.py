"""Names to rows, rounds to sessions, and large rounds to small ones."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stream_rater.columns.strings import StringColumn
from stream_rater.evaluation.season import Session, before, sessions_of
from stream_rater.replay.edited_log import records_of
from stream_rater.replay.player_index import PlayerIndex, _same
from tests.benchmarks.lab.game import Kind, season, singly, split
from tests.rounds import as_json, ranked

NAMES = st.lists(st.lists(st.text(max_size=3), unique=True, min_size=1), max_size=6)


def sessions(*lines: bytes) -> tuple[list[Session], list[str]]:
    codes: list[str] = []
    found = sessions_of(records_of(lines), 100, lambda _, invalid: codes.append(invalid.code))
    return list(found), codes


@given(NAMES)
def test_rows_are_those_of_a_dict(rounds: list[list[str]]) -> None:
    """Names get rows in order of first appearance, by their bytes, whatever their hashes are."""
    roll, known = PlayerIndex(), dict[str, int]()
    for names in rounds:
        expected = [known.setdefault(name, len(known)) for name in names]
        assert roll.rows(StringColumn.of(names)).tolist() == expected
    assert len(roll) == len(known)
    assert [roll.find(name) for name in known] == list(known.values())
    for other in (b"ann", b"anna", b"bob"):
        data = np.frombuffer(b"xann" + other, np.uint8)
        assert _same(data, 1, 4, data, 4, 4 + len(other)) is (other == b"ann")


def test_a_roll_grows() -> None:
    """Asking adds nobody."""
    roll = PlayerIndex()
    names = [f"player-{i}" for i in range(20_000)]
    assert roll.rows(StringColumn.of(names[:3])).tolist() == [0, 1, 2]
    roll.rows(StringColumn.of(names))
    assert roll.find("stranger") is None and len(roll) == 20_000
    assert roll.rows(StringColumn.of(names[::-1])).tolist() == list(range(20_000))[::-1]
    assert roll.rows(StringColumn.of(["stranger"])).tolist() == [20_000]


def test_sessions_are_valid_rounds_with_rows_for_names() -> None:
    """Ladders have rows of their own. What is invalid, or comes twice, is reported."""
    found, codes = sessions(
        as_json(*ranked([2, 1, 0], ["ann", "bob", "cy"]), round_id="1"),
        as_json(*ranked([1, 2], ["bob", "dee"]), round_id="2"),
        as_json(*ranked([1, 2], ["bob", "ann"]), round_id="3", ladder="other"),
        as_json(*ranked([1, 2], ["bob", "dee"]), round_id="2"),
        b"{}",
        as_json(*ranked([1, 2, 3], ["eve", "bob", "eve"]), round_id="4"),
        as_json(*ranked([1, 2], ["flo", "ann"]), round_id="4"),
    )
    assert [(each.ladder, each.rows.tolist(), each.players) for each in found] == [
        ("ranked-eu", [0, 1, 2, 0, 3, 4, 1], 5), ("other", [0, 1], 2),
    ]  # fmt: skip
    assert codes == ["duplicate-round", "bad-id", "duplicate-player"]


def test_rounds_that_are_not_informative_are_left_out_of_rating() -> None:
    """Each session says which of its rounds can be rated, with their rows alone."""
    (both,), _ = sessions(
        as_json(*ranked([1, 1], ["ann", "bob"]), round_id="1"),
        as_json(*ranked([1, 2, 3], ["cy", "dee", "eve"]), round_id="2"),
    )
    all_of_it, indices = both.rating(skip_all_tied=False)
    assert all_of_it is both and indices.tolist() == [0, 1]
    rated, indices = both.rating(skip_all_tied=True)
    assert rated is not None and (rated.rows.tolist(), indices.tolist()) == ([2, 3, 4], [1])
    assert rated.waves.tolist() == [0, 1]
    assert both.take(np.array([0])).rating(skip_all_tied=True)[0] is None


CHAIN = [
    as_json(*ranked([1, 2], list(who)), round_id=f"{i}", ladder="xy"[i % 5 == 3])
    for i, who in enumerate(["ab", "cd", "bc", "ab", "ef", "ea"])
]
"""In ladder x: ab, cd, ef; then bc, ea."""


def test_rounds_come_in_waves() -> None:
    """As early as possible. Each round knows its number, by which a season is cut."""
    found, _ = sessions(*CHAIN)
    x, y = found
    assert [each.batch.heads[0].round_id for each in x.rounds] == ["0", "1", "4", "2", "5"]
    assert (x.waves.tolist(), x.numbers.tolist()) == ([0, 3, 5], [0, 1, 4, 2, 5])
    assert x.rows.tolist() == [0, 1, 2, 3, 4, 5, 1, 2, 4, 0]
    assert (y.waves.tolist(), y.numbers.tolist(), y.rows.tolist()) == ([0, 1], [3], [0, 1])
    some = x.take(np.array([1, 4]))
    assert (some.waves.tolist(), some.numbers.tolist()) == ([0, 1, 2], [1, 5])
    assert some.rows.tolist() == [2, 3, 4, 0]
    assert [each.numbers.tolist() for each in singly(found)] == [[i] for i in range(6)]
    assert [each.numbers.tolist() for each in before(found, 3)] == [[0, 1, 2]]
    assert [each.numbers.tolist() for each in before(found, 5)] == [[0, 1, 4, 2], [3]]
    assert before(found, 6) == found


def test_the_first_rounds_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """As many as wanted, wherever a block ends; what follows is not looked at."""
    for size in (1, 2**20):
        monkeypatch.setattr("stream_rater.evaluation.season.BLOCK_BYTES", size)
        lines = [*CHAIN[:3], b"{", *CHAIN[3:]]
        for count in (3, 4):
            found = sessions_of(records_of(lines), 100, lambda *_: None, rounds=count)
            assert sorted(n for each in found for n in each.numbers.tolist()) == list(range(count))


def test_a_round_is_dealt_into_small_ones() -> None:
    """Nobody twice, at most one left over, and the order among them is that of the round."""
    (whole,) = season(Kind(50, 1, 50), 3)
    place = dict(zip(whole.rows.tolist(), whole.rounds[0].place.tolist(), strict=True))
    for size in (2, 5, 7, 100):
        dealt = split(whole, size, np.random.default_rng(1))
        sizes = [len(each.place) for each in dealt.rounds]
        assert max(sizes) <= size and min(sizes) >= 2 and 49 <= sum(sizes) <= 50, sizes
        assert len(set(dealt.rows.tolist())) == sum(sizes)
        places = np.concatenate([each.place for each in dealt.rounds]).tolist()
        assert [place[row] for row in dealt.rows.tolist()] == places
        assert all((np.diff(each.place) > 0).all() for each in dealt.rounds)
        assert dealt.waves.tolist() == [0, len(sizes)]
        assert dealt.numbers.tolist() == [0] * len(sizes)
