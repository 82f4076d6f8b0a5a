"""A roster reads like the players it is of, entries like what is written of them."""

from hypothesis import given
from hypothesis import strategies as st

from stream_rater.columns.player_column import BeliefColumn, PlayerColumn

ids = st.text(st.characters(exclude_categories=["Cs"]), max_size=4)


@given(st.lists(st.tuples(ids, ids), max_size=6), st.integers(-7, 7), st.integers(-7, 7))
def test_a_roster_is_its_players(players: list[tuple[str, str]], first: int, last: int) -> None:
    """All of them, some, and each alone."""
    roster = PlayerColumn.of(players)
    assert list(roster) == players
    assert len(roster) == len(players)
    assert (roster, repr(roster)) == (players, repr(players))
    assert roster != [*players, ("ladder", "another")]
    assert list(roster[first:last]) == players[first:last]
    assert [roster[i] for i in range(-len(players), len(players))] == players + players


@given(
    st.lists(st.tuples(st.tuples(ids, ids), st.binary(max_size=3)), max_size=6),
    st.integers(-7, 7),
    st.integers(-7, 7),
)
def test_entries_are_what_is_written(
    written: list[tuple[tuple[str, str], bytes]], first: int, last: int
) -> None:
    """All of it, some, and each alone."""
    entries = BeliefColumn.of(written)
    assert list(entries) == written
    assert len(entries) == len(written)
    assert (entries, repr(entries)) == (written, repr(written))
    assert entries != [*written, (("ladder", "another"), b"")]
    assert list(entries[first:last]) == written[first:last]
    assert [entries[i] for i in range(-len(written), len(written))] == written + written
