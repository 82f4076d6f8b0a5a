"""adapters.packing: what Redis reads is what a plain loop would write."""

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from stream_rater.adapters.packing import NO_VALUES, packed
from stream_rater.pipeline.roster import Entries, Roster
from stream_rater.pipeline.sharding import belief_key

ids = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)


def written(strings: Sequence[bytes]) -> bytes:
    """Each behind its length."""
    return b"".join(len(each).to_bytes(4, "little") + each for each in strings)


@given(
    st.lists(st.tuples(st.sampled_from(["ranked", "a:b", "ß"]), ids, st.binary(max_size=300))),
    st.integers(0, 999),
    st.integers(1, 2**31 - 1),
    st.booleans(),
)
def test_packed(
    rows: list[tuple[str, str, bytes]], shard: int, buckets: int, with_values: bool
) -> None:
    """With values and without, whatever the ids."""
    strings = []
    for ladder, player, value in rows:
        name = player.encode()
        strings += [belief_key(shard, ladder, name, buckets).encode(), name]
        strings += [value] if with_values else []
    players = [(ladder, player) for ladder, player, _ in rows]
    entries = Entries.of([((ladder, player), value) for ladder, player, value in rows])
    values = entries.records if with_values else NO_VALUES
    assert packed(shard, players, buckets, values) == written(strings)
    assert packed(shard, Roster.of(players)[1:], buckets) == packed(shard, players[1:], buckets)
