"""What Redis is sent is what plain loops would send; Kafka's own hash; keys that no two share."""

import itertools
from collections.abc import Sequence
from itertools import groupby

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from redis.connection import Connection

from stream_rater.adapters.redis.encoding import MOST_TOGETHER, encode_reads, encode_writes
from stream_rater.adapters.redis.keys import belief_key
from stream_rater.columns import sharding
from stream_rater.columns.player_column import BeliefColumn, PlayerColumn
from stream_rater.contract.record import Player
from tests.builders.cases import cases

ids = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
players = st.tuples(st.sampled_from(["ranked", "a:b", "ß"]), ids)
shards = st.integers(0, 999)
buckets = st.integers(1, 3) | st.integers(1, 2**31 - 1)


def key_of(shard: int, player: Player, hashes: int) -> str:
    """Of the hash that a player is in."""
    ladder, name = player
    return belief_key(shard, ladder, name.encode(), hashes)


def groups(
    shard: int, rows: Sequence[Player], hashes: int, order: Sequence[int]
) -> list[list[int]]:
    """Players in this order, those of a hash together, but not too many."""
    found = []
    for _, some in groupby(order, lambda i: key_of(shard, rows[i], hashes)):
        these = list(some)
        found += [these[i : i + MOST_TOGETHER] for i in range(0, len(these), MOST_TOGETHER)]
    return found


@given(st.lists(players, max_size=30), shards, buckets)
def test_reads(rows: list[Player], shard: int, hashes: int) -> None:
    """Everybody is asked for once, hash by hash, as the client would pack it."""
    for some, found in (
        (rows, encode_reads(shard, PlayerColumn.of(rows), hashes)),
        (rows[1:], encode_reads(shard, PlayerColumn.of(rows)[1:], hashes)),
    ):
        order = found.order.tolist()
        assert sorted(order) == list(range(len(some)))
        together = groups(shard, some, hashes, order)
        keys = [key_of(shard, some[group[0]], hashes) for group in together]
        assert len(set(keys)) == len(keys) == found.commands
        packed = Connection().pack_commands(
            ("HMGET", key, *(some[i][1].encode() for i in group))
            for key, group in zip(keys, together, strict=True)
        )
        assert found.data == b"".join(packed)


@given(st.lists(st.tuples(players, st.binary(max_size=300)), max_size=30), shards, buckets)
def test_writes(beliefs: list[tuple[Player, bytes]], shard: int, hashes: int) -> None:
    """Each hash is declared as a key, and what is written to it stands at the key's place."""
    rows = [player for player, _ in beliefs]
    order = encode_reads(shard, PlayerColumn.of(rows), hashes).order.tolist()
    together = groups(shard, rows, hashes, order)
    words = list[bytes]()
    keys = [key_of(shard, rows[some[0]], hashes) for some in together]
    for i in itertools.chain(*together):
        words += [rows[i][1].encode(), beliefs[i][1]]
    found = encode_writes(shard, BeliefColumn.of(beliefs), hashes)
    assert found.hashes == len(keys)
    assert found.counts == bytes(map(len, together))
    assert as_sent(*keys) == found.keys
    assert as_sent(*words) == found.beliefs


def as_sent(*words: str | bytes) -> bytes:
    """Words as the client would send them behind a command's name."""
    whole = b"".join(Connection().pack_command("FCALL", *words))
    return whole.partition(b"$5\r\nFCALL\r\n")[2]


def test_not_too_many_at_once() -> None:
    """Where one hash has far more than it should."""
    rows = [("ranked", f"p{i}") for i in range(2 * MOST_TOGETHER + 1)]
    assert encode_reads(0, PlayerColumn.of(rows), 1).commands == 3


# --- sharding -------------------------------------------------------------------------------------


KAFKA_UTILS_TEST = {
    "21": -973932308,
    "foobar": -790332482,
    "a-little-bit-long-string": -985981536,
    "a-little-bit-longer-string": -1486304829,
    "lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
    "abc": 479470107,
}
"""From Apache Kafka, clients' UtilsTest.testMurmur2."""

some_ids = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=12)


@cases(("text", "signed"), KAFKA_UTILS_TEST.items())
def test_murmur2_is_kafkas(text: str, signed: int) -> None:
    """The shard is Kafka's toPositive(murmur2(key)) % partitions."""
    positive = signed & 0x7FFFFFFF
    for shards in (1, 3, 8, 1000):
        assert sharding.shards_of([text], shards).tolist() == [positive % shards]


@given(st.lists(some_ids, max_size=20), st.integers(1, 50))
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
