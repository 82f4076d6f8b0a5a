"""A slot of a Redis Cluster moves to another master while the store works on its shard."""

from collections.abc import Iterator

import pytest
from redis.crc import key_slot

from stream_rater.adapters.redis.keys import position_key
from stream_rater.contract.errors import StoreTrouble
from stream_rater.contract.record import Player
from stream_rater.pipeline.ports import Position, StoredShard
from tests import real
from tests.contract.test_store import RedisPerformer, application, apply, read
from tests.redis_cluster import RedisCluster, SlotMove

pytestmark = pytest.mark.integration

SHARD, TRIES = 3, 10
PLAYERS: list[Player] = [("a", f"p{number}") for number in range(40)]


@pytest.fixture
def move(redis_cluster: RedisCluster, cluster_settings: real.Settings) -> Iterator[SlotMove]:
    """The move of the shard's slot. Afterwards it is completed, and every node knows it."""
    move = redis_cluster.move(key_slot(position_key(SHARD).encode()))
    yield move
    move.finish()
    redis_cluster.wait_for_owner(move.slot, move.target)


def beliefs(number: int, players: list[Player] = PLAYERS) -> dict[Player, bytes]:
    """The beliefs that the call with this number writes."""
    return {each: b"belief %d of %s" % (number, each[1].encode()) for each in players}


def wrote(store: RedisPerformer, number: int, players: list[Player] = PLAYERS) -> bool:
    """Whether a call that follows the one before was applied; it may be refused."""
    try:
        return apply(store, SHARD, application(number - 1, number, beliefs(number, players)))
    except StoreTrouble:
        return False


def stored(store: RedisPerformer) -> StoredShard:
    """The contents of the shard, after as many reads as it takes to find its node."""
    for _ in range(TRIES):
        try:
            return read(store, SHARD, *PLAYERS)
        except StoreTrouble:
            continue
    raise AssertionError("the shard is not found")


@pytest.mark.parametrize("first", ["belief", "position"])
def test_a_call_is_carried_out_whole_or_not_at_all(
    cluster_settings: real.Settings, move: SlotMove, first: str
) -> None:
    """Whichever keys of the shard have moved, no belief is written unless `applied` is."""
    store = RedisPerformer(cluster_settings)
    assert wrote(store, 1)
    move.begin()
    keys, applied = sorted(move.keys(), key=lambda key: first not in key), 1
    assert len(keys) > 2
    for key in keys[:-1]:
        move.send([key])
        applied += wrote(store, applied + 1)
    move.finish()
    expected = StoredShard(Position(applied, applied - 1, b""), list(beliefs(applied).values()))
    assert stored(store) == expected
    assert wrote(store, applied + 1)


def test_newcomers_wait_for_the_move(cluster_settings: real.Settings, move: SlotMove) -> None:
    """A hash that does not exist yet might be on the other master, so nobody's belief is written
    before the move is done."""
    store = RedisPerformer(cluster_settings)
    assert wrote(store, 1, PLAYERS[:1])
    move.begin()
    assert not wrote(store, 2)
    move.finish()
    assert stored(store).records == [beliefs(1)[PLAYERS[0]], *[None] * (len(PLAYERS) - 1)]
    assert wrote(store, 2)
