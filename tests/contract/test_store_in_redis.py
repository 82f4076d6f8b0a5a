"""Redis as the store: layout, reads and slots, on one server and on a cluster; servers that evict
keys are refused. A store that is full, gone or a replica takes no checkpoints; work goes on."""

import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
import pytest
import redis
from redis.crc import key_slot

from local.redis_node import ADVISED
from local.servers import Server, start_redis
from local.stores import chosen
from stream_rater.adapters.redis.calls import LIBRARY, CallBatch, Caller, bulk, encode_command
from stream_rater.adapters.redis.client import connect
from stream_rater.adapters.redis.encoding import belief_key, position_key
from stream_rater.adapters.redis.store import RedisStore
from stream_rater.columns.player_column import BeliefColumn, PlayerColumn
from stream_rater.config.settings import Settings
from stream_rater.contract.errors import LayoutMismatch, StoreMismatch, StoreTrouble
from stream_rater.contract.record import Player
from stream_rater.operations.rebuild_store import new_epoch
from stream_rater.pipeline.ports import UNFINISHED, Application, Position, StoredShard
from tests import real
from tests.contract.test_redis_connections import user
from tests.contract.test_store import BOB, SHARDS, RedisPerformer, application, apply, priors, read
from tests.redis_cluster import RedisCluster, SlotMove, client_of

pytestmark = pytest.mark.integration


def test_another_layout_is_refused(redis_settings: real.Settings) -> None:
    """The error names the layout and a way out. Notes of an older release are found."""
    store = RedisStore(redis_settings)
    store.check_layout({"shards": "4", "buckets": "2"})
    store.check_layout({"shards": "4", "buckets": "2", "topic": "abc"})
    for other in ({"shards": "8"}, {"buckets": "3"}):
        with pytest.raises(LayoutMismatch, match=r"with \w+ = \d, this service has \d: .*rebuild"):
            store.check_layout(other)
        store.layout.check_rebuildable(other)
    for check in (store.check_layout, store.layout.check_rebuildable):
        with pytest.raises(LayoutMismatch, match=r"topic = abc, .* abd: .*submit the rounds again"):
            check({"shards": "4", "topic": "abd"})


def test_a_rebuild_that_was_given_up(redis_settings: real.Settings) -> None:
    """Between the start and the end of a rebuild nobody may use the store. Foreign keys stay."""
    performer = RedisPerformer(redis_settings)
    store, layout = performer.store, {"shards": "4"}
    with connect(redis_settings) as client:
        for foreign in ("{x}:position", "other", "{1}:beliefs"):
            client.set(foreign, "1")
    store.check_layout(layout)
    assert store.layout.is_empty()
    assert store.layout.begun_by(1) == 1
    assert apply(performer, 1, application(0, 1, {("l", "p"): b"x"}))
    assert not store.layout.is_empty()
    store.layout.begin_rebuild(2, epoch := new_epoch())
    assert not any(store.beliefs())
    assert read(performer, 1).position.applied == UNFINISHED
    assert apply(performer, 1, application(UNFINISHED, 5, {}, epoch=epoch))
    with pytest.raises(LayoutMismatch, match="rebuild --replace"):
        store.check_layout(layout)
    store.layout.end_rebuild({"shards": "8"}, 2)
    store.check_layout({"shards": "8"})
    assert store.layout.begun_by(3) == 2
    with connect(redis_settings) as client:
        assert client.exists("{x}:position", "other", "{1}:beliefs") == 3


def test_a_failover_while_a_rebuild_deletes(
    redis_settings: real.Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The new master lacks the mark of the rebuild, and loses its beliefs: nobody may use it."""
    store = RedisPerformer(redis_settings).store
    with connect(redis_settings) as client:

        def scan(**_: object) -> Iterator[bytes]:
            client.delete("stream-rater:layout")
            return iter(())

        monkeypatch.setattr(store._client, "scan_iter", scan)
        store.layout.begin_rebuild(1, b"new")
    with pytest.raises(LayoutMismatch, match="a rebuild of the store is unfinished"):
        store.check_layout({"shards": "4"})


def test_a_call_from_before_a_rebuild_writes_nothing(redis_settings: real.Settings) -> None:
    """A rebuild may end at the `applied` of a stopped worker's call, which has another epoch."""
    performer = RedisPerformer(redis_settings)
    assert apply(performer, 0, application(0, 5, {BOB: b"before"}))
    stopped = application(5, 6, {BOB: b"stopped"})
    performer.store.layout.begin_rebuild(1, epoch := new_epoch())
    assert priors(performer, 0).epoch == read(performer, 0).position.epoch == epoch
    assert apply(performer, 0, application(UNFINISHED, 5, {BOB: b"rebuilt"}, epoch=epoch))
    assert not apply(performer, 0, stopped)
    position = Position(5, UNFINISHED, b"", epoch)
    assert read(performer, 0, BOB) == StoredShard(position, [b"rebuilt"])
    assert apply(performer, 0, application(5, 6, {BOB: b"next"}, epoch=epoch))


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
    """A late reply to a slow command is not taken for the reply to the next command."""

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
    """Make the client look for every slot on another node than the slot's."""
    client = performer.store._client
    slots = client.nodes_manager.slots_cache
    nodes = {node.name: [node] for node in client.get_primaries()}
    assert len(nodes) > 1
    for slot, (node, *_) in slots.items():
        slots[slot] = next(other for name, other in nodes.items() if name != node.name)


def test_a_slot_that_moved_is_found(cluster_settings: real.Settings) -> None:
    """The first read or write raises StoreTrouble and writes nothing; the next finds the slot."""
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


def test_a_cluster_is_to_be_configured(cluster_settings: real.Settings) -> None:
    """If a node of a cluster is used as a single server, the error names the setting."""
    node, *_ = cluster_settings.redis.split(",")
    store = RedisStore(msgspec.structs.replace(cluster_settings, redis=node, redis_cluster=False))
    with pytest.raises(StoreTrouble, match="STREAM_RATER_REDIS_CLUSTER"):
        for number in range(3):  # each of three masters has one of these slots
            store.check_layout({str(number): ""})
            store.read(dict.fromkeys(range(SHARDS), PlayerColumn.of([BOB])))


def test_no_cluster_where_one_is_configured(settings: real.SettingsFactory) -> None:
    """A single server configured as a cluster is an error, as is an address without a server."""
    with pytest.raises(StoreTrouble, match=r"[Cc]luster"):
        RedisStore(settings(redis_cluster=True, redis=settings().redis.rpartition("/")[0]))
    with pytest.raises(StoreTrouble):
        RedisStore(settings(redis_cluster=True, redis="127.0.0.1:1,127.0.0.1:2"))


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
    """A missing hash may be on the other master, so no newcomer is written before the move ends."""
    store = RedisPerformer(cluster_settings)
    assert wrote(store, 1, PLAYERS[:1])
    move.begin()
    assert not wrote(store, 2)
    move.finish()
    assert stored(store).records == [beliefs(1)[PLAYERS[0]], *[None] * (len(PLAYERS) - 1)]
    assert wrote(store, 2)


# --- servers that are not fit ---

LIMIT_BYTES = 2**30
LISTPACK = "hash-max-listpack-value"


@pytest.fixture(scope="module")
def server(redis_installed: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server with the advised settings, which these tests may change."""
    with start_redis(tmp_path_factory.mktemp("redis"), settings=ADVISED) as found:
        yield found


@pytest.fixture
def admin(server: Server) -> Iterator[Any]:
    """A client that may change the server's settings, which are restored afterwards."""
    with client_of(server) as client:
        yield client
        set_memory(client, "noeviction", 0)


def set_memory(client: Any, policy: str, limit_bytes: int) -> None:
    client.config_set("maxmemory-policy", policy)
    client.config_set("maxmemory", limit_bytes)


def test_a_server_that_evicts_is_refused(server: Server, admin: Any) -> None:
    """CONFIG or INFO shows it, whichever the user may run. The command in the error repairs it."""
    refusal = f"redis at {server.address}: .* {LIMIT_BYTES}, "
    for denied in ((), ("-config",), ("-info",)):
        at = user(server, admin, *denied)
        set_memory(admin, "allkeys-lru", LIMIT_BYTES)
        if chosen().functions:
            admin.function_flush()
        with pytest.raises(StoreMismatch, match=refusal) as no:
            RedisStore(at).prepare()
        assert not chosen().functions or admin.function_list(library=LIBRARY) == [], denied
        command = str(no.value).partition("run `")[2].partition("`")[0]
        admin.execute_command(*command.split())
        assert RedisStore(at).prepare() == [], denied


def test_a_server_that_evicts_what_expires_deletes_no_belief(server: Server, admin: Any) -> None:
    """Such a server refuses writes instead, as with `noeviction`, so it is accepted."""
    set_memory(admin, "volatile-lru", LIMIT_BYTES)
    at = user(server, admin)
    assert RedisStore(at).prepare() == []
    admin.hset("{0}:belief:l:0", "ann", "belief")
    admin.config_set("maxmemory", 1)
    with pytest.raises(redis.OutOfMemoryError):
        admin.hset("{0}:belief:l:0", "bob", "belief")
    assert admin.hgetall("{0}:belief:l:0") == {b"ann": b"belief"}


def test_each_server_of_a_cluster_is_asked(
    redis_cluster: RedisCluster, cluster_settings: Settings
) -> None:
    """One server that evicts is enough, and it is named. If none answers, one warning says so."""
    for each in redis_cluster.servers:
        with client_of(each) as client:
            set_memory(client, "allkeys-lru", LIMIT_BYTES)
            try:
                with pytest.raises(StoreMismatch, match=f"redis at {each.address}: "):
                    RedisStore(cluster_settings).prepare()
            finally:
                set_memory(client, "noeviction", 0)
                client.config_set(LISTPACK, ADVISED[LISTPACK])
    assert RedisStore(cluster_settings).prepare() == []
    for each in redis_cluster.servers:
        with client_of(each) as client:
            user(each, client, "-config", "-info")
    silent = msgspec.structs.replace(cluster_settings, redis_username="user", redis_password="p")
    (line,) = RedisStore(silent).prepare()
    assert "it is unknown" in line


BELIEFS = Application(Position(1, 0), BeliefColumn.of([(("duel", "ann"), b"belief")]))


REPLICA = "REPLICAOF 127.0.0.1 1"  # Makes it the replica of a master that does not exist.


@pytest.mark.parametrize(
    ("commands", "reads", "deletes", "why"),
    [
        (["CONFIG SET maxmemory 1"], True, True, "when used memory > 'maxmemory'"),
        ([REPLICA], True, False, "read only replica"),
        ([REPLICA, "CONFIG SET replica-serve-stale-data no"], False, False,
         "MASTER is down|read only replica"),
        (["SHUTDOWN NOSAVE"], False, False, "connecting to|Connection"),
    ],
)  # fmt: skip
def test_what_the_store_does_not_do_is_reported_and_not_raised(
    redis_installed: None, tmp_path: Path,
    commands: Sequence[str], reads: bool, deletes: bool, why: str,
) -> None:  # fmt: skip
    """Calls for checkpoints return whether they were done, and report why not. Others raise it."""
    with start_redis(tmp_path) as server, client_of(server) as client:
        store, reported = RedisStore(Settings(redis=server.address)), list[str]()
        store.prepare()
        kept = store.checkpoints
        kept.on_failure = reported.append
        assert kept.write("duel", "7-ab", 0, b"piece")
        assert kept.keep("duel", "7-ab", b"head")
        assert reported == []
        for command in commands:
            with suppress(redis.ConnectionError):  # the server ends the connection
                client.execute_command(*command.split())
        assert not kept.write("duel", "7-ab", 1, b"another")
        assert not kept.keep("duel", "9-cd", b"another")
        assert len(reported) == 2
        assert kept.heads("duel") == ({"7-ab": b"head"} if reads else {})
        assert kept.read("duel", "7-ab", 0) == (b"piece" if reads else None)
        assert kept.read("duel", "7-ab", 1) is None
        assert kept.drop("duel", "7-ab", 2) is deletes
        assert len(reported) == 2 + (0 if reads else 3) + (not deletes)
        assert all(re.search(why, each) and "\n" not in each for each in reported), reported
        with pytest.raises(StoreTrouble):
            store.apply({0: BELIEFS})
        if not deletes:
            with pytest.raises(StoreTrouble):
                kept.drop_all()
        store.close()
