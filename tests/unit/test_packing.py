"""adapters.packing: what Redis reads is what a plain loop would write."""

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from stream_rater.adapters.packing import packed
from stream_rater.pipeline.roster import Roster
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
    values = [value for *_, value in rows] if with_values else []
    assert packed(shard, players, buckets, values) == written(strings)
    assert packed(shard, Roster.of(players)[1:], buckets) == packed(shard, players[1:], buckets)
