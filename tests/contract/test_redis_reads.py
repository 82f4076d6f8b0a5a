"""Reads from Redis: plain commands in transactions, on one server and on a cluster."""

import msgspec
import pytest
import redis

from stream_rater.adapters.redis.calls import CallBatch, Caller, bulk, encode_command
from stream_rater.adapters.redis.client import connect
from stream_rater.adapters.redis.keys import belief_key
from stream_rater.columns.player_column import PlayerColumn
from stream_rater.contract.errors import StoreTrouble
from stream_rater.pipeline.ports import Position, StoredShard
from stream_rater.rating.record import HEADER_SIZE
from tests import real
from tests.contract.test_store import BOB, SHARDS, RedisPerformer, application, apply, read

pytestmark = pytest.mark.integration


def test_many_players_share_a_hash(redis_settings: real.Settings) -> None:
    """There are more players in a hash than one command reads, and one is read several times."""
    performer = RedisPerformer(msgspec.structs.replace(redis_settings, buckets=1))
    records = {("l", f"p{n}"): bytes([n % 256]) * HEADER_SIZE for n in range(1000)}
    assert apply(performer, 0, application(0, 1, records))
    players = [*reversed(records), BOB, ("l", "p7")]
    assert read(performer, 0, *players).records == [records.get(each) for each in players]


def test_a_read_that_failed_leaves_no_replies_behind(redis_settings: real.Settings) -> None:
    """The next read on this connection gets its own replies."""
    performer = RedisPerformer(redis_settings)
    key = belief_key(1, "l", b"ann", redis_settings.buckets)
    with connect(redis_settings) as client:
        client.set(key, "no hash")
        for _ in range(3):
            with pytest.raises(StoreTrouble, match="WRONGTYPE"):
                performer.store.read(dict.fromkeys((0, 1, 2), PlayerColumn.of([("l", "ann")])))
        client.delete(key)
    assert apply(performer, 1, application(0, 7, {("l", "ann"): b"x"}))
    assert read(performer, 1, ("l", "ann")) == StoredShard(Position(7, 0, b""), [b"x"])


def test_a_reply_that_comes_after_a_failure_is_nobodys(redis_settings: real.Settings) -> None:
    """The reply to a slow command, after an error, is not taken for the next command's."""

    def asked(*words: str) -> CallBatch:
        return CallBatch("{0}:x", (encode_command(len(words), bulk(*words)),), 1)

    with connect(redis_settings) as client:
        caller = Caller(client, redis_settings)
        for _ in range(3):
            with pytest.raises(redis.ResponseError, match="not an integer"):
                caller.call_batches(
                    [asked("INCRBY", "{0}:x", "x"), asked("BLPOP", "{0}:none", "0.2")]
                )
            assert caller.call_batches([asked("ECHO", "mine")]) == [[b"mine"]]
        caller.close()


def misled(performer: RedisPerformer) -> None:
    """Make the client take every slot for another node's."""
    client = performer.store._client
    slots = client.nodes_manager.slots_cache
    nodes = {node.name: [node] for node in client.get_primaries()}
    assert len(nodes) > 1
    for slot, (node, *_) in slots.items():
        slots[slot] = next(other for name, other in nodes.items() if name != node.name)


def test_a_slot_that_moved_is_found(cluster_settings: real.Settings) -> None:
    """The first read, or the first write, raises StoreTrouble and writes nothing; the next one goes
    where the cluster says."""
    performer = RedisPerformer(cluster_settings)
    shards = dict.fromkeys(range(SHARDS), PlayerColumn.of([BOB]))
    expected = performer.store.read(shards)
    misled(performer)
    with pytest.raises(StoreTrouble, match="a slot moved"):
        performer.store.read(shards)
    assert performer.store.read(shards) == expected
    performer = RedisPerformer(cluster_settings)
    calls = {shard: application(0, 1, {BOB: b"x"}) for shard in range(SHARDS)}
    misled(performer)
    with pytest.raises(StoreTrouble, match="a slot moved"):
        performer.store.apply(calls)
    assert performer.store.apply(calls) == dict.fromkeys(range(SHARDS), True)
