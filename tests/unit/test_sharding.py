"""Sharding: Kafka's own vectors, and keys that no two ids share."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from stream_rater.adapters.redis.keys import belief_key, position_key
from stream_rater.columns import sharding
from tests.builders.cases import cases

KAFKA_UTILS_TEST = {
    "21": -973932308,
    "foobar": -790332482,
    "a-little-bit-long-string": -985981536,
    "a-little-bit-longer-string": -1486304829,
    "lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
    "abc": 479470107,
}
"""From Apache Kafka, clients' UtilsTest.testMurmur2."""

ids = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=12)


@cases(("text", "signed"), KAFKA_UTILS_TEST.items())
def test_murmur2_is_kafkas(text: str, signed: int) -> None:
    """The shard is Kafka's toPositive(murmur2(key)) % partitions."""
    positive = signed & 0x7FFFFFFF
    for shards in (1, 3, 8, 1000):
        assert sharding.shards_of([text], shards).tolist() == [positive % shards]


@given(st.lists(ids, max_size=20), st.integers(1, 50))
def test_each_player_for_itself(players: list[str], shards: int) -> None:
    """Players are hashed one by one, whoever else is asked for."""
    together = sharding.shards_of(players, shards)
    alone = [int(sharding.shards_of([player], shards)[0]) for player in players]
    assert together.tolist() == alone
    assert together.dtype == np.int64


def test_every_shard_is_used() -> None:
    """Players spread evenly: no shard of 8 has over a fifth of 8,000."""
    counts = np.bincount(sharding.shards_of([f"player-{i}" for i in range(8000)], 8), minlength=8)
    assert counts.min() > 800
    assert counts.max() < 1600


@given(st.tuples(ids, ids), st.tuples(ids, ids))
def test_ladders_share_no_key(one: tuple[str, str], other: tuple[str, str]) -> None:
    """Beliefs of two ladders are never in one hash, whatever is in their names."""
    if one[0] != other[0]:
        keys = {belief_key(0, ladder, p.encode(), 1) for ladder, p in (one, other)}
        assert len(keys) == 2


def test_keys_of_a_shard_share_a_hash_tag() -> None:
    """Position and beliefs of a shard are in one slot of a Redis Cluster: one tag, and it first."""
    for key in (position_key(7), belief_key(7, "a{b}:c", b"p", 10)):
        assert key.startswith("{7}:")
        assert key.count("{") == key.count("}") == 1
