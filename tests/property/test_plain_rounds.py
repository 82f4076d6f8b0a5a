"""The quick way through a round of single players ends where the long way does."""

import json

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stream_rater.contract.events import Entry, PlainEntry
from stream_rater.rounds.validation import (
    MAX_ID_BYTES,
    MAX_RANK,
    Invalid,
    _any_columns,
    _check_players,
    _checked_lines,
    _plain_columns,
)

RANKS = [None, -1, 0, 1, 2, 3, MAX_RANK, MAX_RANK + 1, 2**70]
GOOD = st.builds(Entry, player=st.text(max_size=2), rank=st.integers(1, 5), dnf=st.booleans())
ODD = st.builds(
    Entry, player=st.none() | st.just("p"), rank=st.sampled_from(RANKS), dnf=st.booleans(),
    team=st.sampled_from([None, (), ("a", "b")]), shares=st.sampled_from([None, (), (1.0,)]),
)  # fmt: skip


@given(st.lists(GOOD, min_size=2, max_size=8), st.lists(ODD, max_size=1), st.integers(0, 8))
def test_plain_columns_are_the_columns_or_none(
    entries: list[Entry], odd: list[Entry], at: int
) -> None:
    """All arrays equal; whatever is invalid, or has a team, is left to the long way."""
    entries[at:at] = odd
    check(entries)


@pytest.mark.parametrize("dnf", [False, True])
@pytest.mark.parametrize("rank", RANKS)
def test_every_rank_is_judged_alike(rank: int | None, dnf: bool) -> None:
    """Missing, below one, the greatest, and greater."""
    check([Entry(player="a", rank=1), Entry(player="b", rank=rank, dnf=dnf)])


def check(entries: list[Entry]) -> None:
    """Both ways on these entries."""
    quick = _plain_columns(entries)
    try:
        place, players, starts, share = _any_columns(entries)
    except Invalid:
        assert quick is None
        return
    if quick is None:
        assert any(e.team is not None or e.shares is not None for e in entries)
        return
    assert (quick[0].tolist(), quick[1]) == (place.tolist(), players)
    assert (quick[2].tolist(), quick[3].tolist()) == (starts.tolist(), share.tolist())
    assert (quick[0].dtype, quick[2].dtype) == (place.dtype, starts.dtype)


LONGEST = "p" * MAX_ID_BYTES
NAMES = ["a", "", "\U0001f600" * 32, "\U0001f600" * 33, LONGEST, LONGEST + "p"]
LINES = st.fixed_dictionaries(
    {"player": st.sampled_from(NAMES), "rank": st.sampled_from(RANKS[:-1])},
    optional={"dnf": st.booleans(), "x": st.none()},
)


@given(st.lists(LINES, min_size=2, max_size=6))
def test_what_a_decoder_has_checked_is_valid(lines: list[dict[str, object]]) -> None:
    """Plain entries are those whose every line passes the long way, and give the same columns."""
    check_lines(lines)


@pytest.mark.parametrize("rank", RANKS)
@pytest.mark.parametrize("name", NAMES)
def test_every_name_and_rank_are_judged_alike(name: str, rank: int | None) -> None:
    """Behind a line that is in order."""
    check_lines([{"player": "b", "rank": 3}, {"player": name, "rank": rank}])


def check_lines(lines: list[dict[str, object]]) -> None:
    """What the decoder takes as plain, the long way takes too, and gives the same columns."""
    data = json.dumps(lines).encode()
    try:
        quick = _checked_lines(msgspec.json.decode(data, type=list[PlainEntry]))
    except msgspec.ValidationError:
        return
    place, players, *_ = _any_columns(msgspec.json.decode(data, type=list[Entry]))
    _check_players(players)
    assert (quick.place.tolist(), quick.names.texts) == (place.tolist(), players)
    assert quick.place.dtype == place.dtype


def test_lines_as_they_usually_are_take_the_quick_way() -> None:
    """Longest names and the greatest rank included."""
    lines = [{"player": "\U0001f600" * 32, "rank": MAX_RANK}, {"player": "a", "rank": 1}]
    entries = msgspec.json.decode(msgspec.json.encode(lines), type=list[PlainEntry])
    assert _checked_lines(entries).names.texts == ["a", "\U0001f600" * 32]
