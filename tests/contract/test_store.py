"""The store: what was applied is read back, atomically and unchanged."""

import threading
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as examples
from hypothesis import strategies as st

from local import stores
from stream_rater.adapters.local_driver import estimator_worker, updater_worker
from stream_rater.adapters.memory import Log
from stream_rater.adapters.memory import Store as MemoryStore
from stream_rater.adapters.redis.calls import LIBRARY
from stream_rater.adapters.redis.client import connect
from stream_rater.adapters.redis.store import RedisStore
from stream_rater.adapters.sqlite.database import Database
from stream_rater.adapters.sqlite.log import SqliteLog
from stream_rater.adapters.sqlite.store import SqliteStore
from stream_rater.columns.player_column import BeliefColumn, PlayerColumn
from stream_rater.config.errors import BadConfiguration
from stream_rater.contract.errors import LayoutMismatch, StoreTrouble
from stream_rater.contract.record import Player
from stream_rater.contract.seeds import RESET
from stream_rater.pipeline import ports
from stream_rater.pipeline.parts.schema import Part
from stream_rater.pipeline.updater.belief_changes import build_given_events_again, compute_given
from stream_rater.pipeline.updater.changes import Change
from stream_rater.rating.record import HEADER_SIZE
from tests import real
from tests.builders.seeding import seed_part
from tests.contract.conftest import NEEDS_FUNCTIONS, OTHERS
from tests.contract.rigs import Performer
from tests.unit.test_seeded_changes import batch_of

NOTHING = bytes(HEADER_SIZE)
BOB: Player = ("ranked-eu", "bob")
SHARDS = 5


class RedisPerformer:
    """Performs the store's effects, as a driver does."""

    def __init__(self, settings: real.Settings) -> None:
        self.store = RedisStore(settings)
        self.store.prepare()

    def perform(self, effect: object) -> object:
        match effect:
            case ports.ReadPriors():
                return self.store.read_priors(effect.players)
            case ports.ReadBeliefs():
                return self.store.read(effect.players)
            case ports.Apply():
                return self.store.apply(effect.applications)
        raise AssertionError(effect)


class SqlitePerformer:
    """Performs each effect in a turn of its own, as a process on a data file does."""

    def __init__(self, database: Database) -> None:
        self.turn = database.turn
        self.driver = updater_worker(SqliteLog(database), SqliteStore(database))

    def perform(self, effect: ports.Effect[Any]) -> Any:
        with self.turn():
            return self.driver.perform(effect)


REAL = [pytest.param(name, marks=pytest.mark.integration) for name in ("real", "cluster")]


@pytest.fixture
def sqlite_store(tmp_path: Path) -> Iterator[Performer]:
    with closing(Database.open(tmp_path / "ratings.db", partitions=1, shards=SHARDS)) as database:
        yield SqlitePerformer(database)


@pytest.fixture(params=["memory", "sqlite", *REAL, *OTHERS])
def store(request: pytest.FixtureRequest) -> Performer:
    if request.param in stores.ALL:
        address = request.getfixturevalue("other_store")(request.param)
        return RedisPerformer(real.Settings(redis=address, buckets=2))
    if request.param == "memory":
        return estimator_worker(Log(1, SHARDS), MemoryStore())
    if request.param == "sqlite":
        performer: Performer = request.getfixturevalue("sqlite_store")
        return performer
    return RedisPerformer(request.getfixturevalue(f"{request.param}_settings"))


def application(
    start: int, applied: int, beliefs: Mapping[Player, bytes], fresh: bytes = b"",
    epoch: bytes = b"",
) -> ports.Application:  # fmt: skip
    position = ports.Position(applied, start, fresh, epoch)
    return ports.Application(position, BeliefColumn.of(list(beliefs.items())))


def apply(store: Performer, shard: int, call: ports.Application) -> bool:
    done = store.perform(ports.Apply({shard: call}))
    assert done.keys() == {shard}
    return bool(done[shard])


def read(store: Performer, shard: int, *players: Player) -> ports.StoredShard:
    stored = store.perform(ports.ReadBeliefs({shard: PlayerColumn.of(players)}))[shard]
    return ports.StoredShard(stored.position, list(stored.records))


def priors(store: Performer, shard: int, *players: Player) -> ports.Priors:
    found: ports.Priors = store.perform(ports.ReadPriors({shard: PlayerColumn.of(players)}))[shard]
    return found


def test_addresses_that_make_no_sense() -> None:
    """Each raises an error before anything is sent."""
    for address, cluster, message in (
        ("redis://127.0.0.1:1/3", True, "only database 0"),
        ("127.0.0.1:1,127.0.0.1", True, "127.0.0.1"),
        ("127.0.0.1:1,127.0.0.1:2", False, "set redis_cluster"),
        ("redis://127.0.0.1:1/0?protocol=3", False, "must not set protocol"),
        ("redis://127.0.0.1:1?decode_responses=true", True, "must not set decode_responses"),
    ):
        with pytest.raises(BadConfiguration, match=message):
            connect(real.Settings(redis=address, redis_cluster=cluster))


def test_an_empty_store(store: Performer) -> None:
    """Nothing is applied and there is no belief: None as a record, zeros as a header."""
    assert read(store, 0, BOB) == ports.StoredShard(ports.Position(0, 0, b""), [None])
    assert priors(store, 0, BOB, BOB) == ports.Priors(0, 2 * NOTHING)
    assert read(store, 0) == ports.StoredShard(ports.Position(), [])
    assert priors(store, 0) == ports.Priors(0, b"")
    assert store.perform(ports.ReadBeliefs({})) == store.perform(ports.ReadPriors({})) == {}
    assert store.perform(ports.Apply({})) == {}


def test_what_was_applied_is_read(store: Performer) -> None:
    """Records come back as asked for, in order and with repeats; so does the position."""
    ann, cy = ("ranked-eu", "ann"), ("ranked-eu", "cy")
    records = {ann: bytes(range(256)) + b"factors", BOB: b"\x01" * HEADER_SIZE}
    assert apply(store, 3, application(0, 7, records, b"\xa0"))
    stored = read(store, 3, BOB, cy, ann, BOB)
    assert stored == ports.StoredShard(
        ports.Position(7, 0, b"\xa0"), [records[BOB], None, records[ann], records[BOB]]
    )
    assert priors(store, 3, cy, ann) == ports.Priors(7, NOTHING + records[ann][:HEADER_SIZE])
    for start, fresh in enumerate([b"", b"\x00", bytes(range(256)) * 20, b"}{:\r\n\x00'\""], 7):
        assert apply(store, 3, application(start, start + 1, {}, fresh))
        assert read(store, 3).position == ports.Position(start + 1, start, fresh), "bit for bit"


def test_shards_are_apart(store: Performer) -> None:
    """One effect on many shards compares and sets each shard by itself, in any order."""
    assert apply(store, 4, application(0, 1, {BOB: b"four"}))
    calls = {shard: application(0, shard + 10, {BOB: b"%d" % shard}) for shard in (4, 2, 0)}
    assert store.perform(ports.Apply(calls)) == {4: False, 2: True, 0: True}
    stored = store.perform(ports.ReadBeliefs(dict.fromkeys((3, 4, 0, 2), PlayerColumn.of([BOB]))))
    assert {s: (h.position.applied, list(h.records)) for s, h in stored.items()} == {
        3: (0, [None]), 4: (1, [b"four"]), 0: (10, [b"0"]), 2: (12, [b"2"]),
    }  # fmt: skip
    asked = ports.ReadPriors({2: PlayerColumn.of([BOB]), 3: ports.NO_PLAYERS})
    assert {s: p.applied for s, p in store.perform(asked).items()} == {2: 12, 3: 0}


def test_a_stale_call_writes_nothing(store: Performer) -> None:
    """A call writes nothing if its `applied` or epoch is not the store's. The first begins at 0."""
    assert not apply(store, 1, application(3, 4, {BOB: b"no"}))
    assert read(store, 1, BOB) == ports.StoredShard(ports.Position(), [None])
    assert apply(store, 1, application(0, 2**40, {}))
    assert read(store, 1).position == ports.Position(2**40, 0, b"")
    assert apply(store, 0, application(0, 5, {BOB: b"first"}, b"\x80"))
    for start in (0, 4, 6, 50):
        stale = application(start, 9, {BOB: b"stale", ("x", "y"): b"stale"}, b"\x40")
        assert not apply(store, 0, stale)
    assert not apply(store, 0, application(5, 9, {BOB: b"stale"}, epoch=b"rebuilt"))
    assert read(store, 0, BOB, ("x", "y")) == ports.StoredShard(
        ports.Position(5, 0, b"\x80"), [b"first", None]
    )
    assert apply(store, 0, application(5, 6, {BOB: b"second"}))
    assert read(store, 0, BOB) == ports.StoredShard(ports.Position(6, 5, b""), [b"second"])


def test_beliefs_that_vanish_are_noticed(store: Performer) -> None:
    """As many beliefs must be new as were absent when read, or no worker goes on from there."""
    ann = "ranked-eu", "ann"
    for shard, expected, right in ((0, 1, True), (1, 0, False), (2, 2, False), (3, None, True)):
        assert apply(store, shard, application(0, 5, {BOB: b"first"}, b"\x80"))
        call = replace(application(5, 6, {BOB: b"second", ann: b"first"}, b"\xc0"), absent=expected)
        assert apply(store, shard, call) == right
        stored = read(store, shard, BOB, ann)
        position = (
            ports.Position(6, 5, b"\xc0")
            if right
            else ports.Position(ports.VANISHED, ports.VANISHED)
        )
        assert stored == ports.StoredShard(position, [b"second", b"first"])
        assert apply(store, shard, application(6, 7, {})) == right
    many = {("l", f"p{number}"): b"x" for number in range(3000)}
    assert apply(store, 4, replace(application(0, 1, many), absent=3000))
    assert apply(store, 4, replace(application(1, 2, many), absent=0))


def test_no_two_players_meet(store: Performer) -> None:
    """Different players never share a belief, whatever their ids, of 20,000 in a call, too."""
    players = [(ladder, player) for ladder in NASTY for player in NASTY]
    records = {each: repr(each).encode() for each in players}
    assert len(records) == len(NASTY) ** 2
    assert apply(store, 2, application(0, 1, records))
    assert list(read(store, 2, *players).records) == list(records.values())
    assert list(read(store, 3, *players).records) == [None] * len(players)
    records = {("l", f"p{number}"): b"%05d" % number * 20 for number in range(20_000)}
    for number in range(0, 20_000, 2000):
        records["l", f"p{number}"] = b"%05d" % number * 20_000
    assert apply(store, 0, application(0, 1, records))
    assert read(store, 0, *records) == ports.StoredShard(
        ports.Position(1, 0, b""), list(records.values())
    )


NASTY = [
    "", "a", "A", "a:b", "b", "b:c", "c", "a:b:c", "%3A", ":", "%", "{0}", "{", "}",
    "{1}:position", "a\nb", "a\r\nb", "a\0", "a\0b", "\0", " ", "a ", "*", "?", "[a]",
    "Straße", "STRASSE", "\u00e9", "e\u0301",
    "\U0001f3c6", "ω" * 42, "x" * 128,
]  # fmt: skip
TEXT = st.one_of(
    st.sampled_from(NASTY), st.text(st.characters(exclude_categories=["Cs"]), max_size=32)
)


@examples(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(players=st.lists(st.tuples(TEXT, TEXT), max_size=30, unique=True), data=st.data())
def test_any_players_come_back(
    store: Performer, players: Sequence[Player], data: st.DataObject
) -> None:
    """A random call changes exactly the players that it names."""
    before = read(store, 2, *players)
    chosen = data.draw(st.sets(st.sampled_from(players))) if players else set()
    start = before.position.applied
    records = {each: data.draw(st.binary(min_size=1, max_size=40)) for each in chosen}
    assert apply(store, 2, application(start, start + 1, records))
    wanted = [records.get(p, old) for p, old in zip(players, before.records, strict=True)]
    assert list(read(store, 2, *players).records) == wanted


# --- what only Redis can show ---


@pytest.mark.integration
def test_position_and_beliefs_are_of_one_instant(redis_settings: real.Settings) -> None:
    """While another client writes, records read with `applied` are those of that `applied`."""
    writer, reader = RedisPerformer(redis_settings), RedisPerformer(redis_settings)
    players = [("l", f"p{number}") for number in range(20)]

    def state(applied: int) -> bytes:
        return applied.to_bytes(8, "little") + bytes(HEADER_SIZE)

    def write() -> None:
        for start in range(400):
            record = state(start + 1)
            assert apply(writer, 0, application(start, start + 1, dict.fromkeys(players, record)))

    with ThreadPoolExecutor() as pool:
        seen, writing = set(), pool.submit(write)
        while not writing.done():
            stored, found = read(reader, 0, *players), priors(reader, 0, *players)
            seen.add(stored.position.applied)
            if stored.position.applied:
                assert list(stored.records) == [state(stored.position.applied)] * len(players)
            if found.applied:
                assert found.headers == state(found.applied)[:HEADER_SIZE] * len(players)
    writing.result()
    assert len(seen) > 10


@NEEDS_FUNCTIONS
@pytest.mark.integration
def test_functions_are_loaded_and_not_replaced(redis_settings: real.Settings) -> None:
    """A server that lost them gets them again. Another build's functions of this release are
    neither called nor replaced. Several workers may load them at a time."""
    performer = RedisPerformer(redis_settings)
    with connect(redis_settings) as client:
        client.function_delete(LIBRARY)
        with pytest.raises(StoreTrouble):
            apply(performer, 0, application(0, 1, {BOB: b"1"}))
        assert apply(performer, 0, application(0, 1, {BOB: b"1"}))
    other = f"#!lua name={LIBRARY}\nredis.register_function('{LIBRARY}_apply', function() end)"
    with connect(redis_settings) as client:
        client.function_load(other, replace=True)
        try:
            with pytest.raises(
                LayoutMismatch, match=f"{LIBRARY} that differs .*`redis-cli FUNCTION DEL"
            ):
                RedisStore(redis_settings).prepare()
        finally:
            client.function_delete(LIBRARY)
    RedisStore(redis_settings).prepare()
    with connect(redis_settings) as client:
        client.function_delete(LIBRARY)
    barrier = threading.Barrier(6)

    def start(_: int) -> None:
        store = RedisStore(redis_settings)
        [*store.beliefs()]
        barrier.wait()
        store.prepare()

    with ThreadPoolExecutor(6) as pool:
        list(pool.map(start, range(6)))


@pytest.mark.integration
def test_an_unreachable_store_is_trouble(redis_settings: real.Settings) -> None:
    """Every failure of Redis is StoreTrouble. Its text does not contain the data of the call."""
    nowhere = msgspec.structs.replace(redis_settings, redis="redis://127.0.0.1:1/0")
    with pytest.raises(StoreTrouble, match="refused") as caught:
        RedisStore(nowhere).read({0: PlayerColumn.of([("l", "secret")])})
    assert "secret" not in str(caught.value)
    with connect(redis_settings) as client:
        client.set("{0}:position", "not a hash")
    with pytest.raises(StoreTrouble, match="WRONGTYPE") as caught:
        RedisPerformer(redis_settings).store.read({0: PlayerColumn.of([("l", "secret")])})
    assert "secret" not in str(caught.value)


@pytest.mark.integration
def test_beliefs_are_read(redis_settings: real.Settings) -> None:
    """Those of all shards and ladders count, whatever the ids; notes of a rebuild do not."""
    performer = RedisPerformer(redis_settings)
    performer.store.check_layout({"shards": "4"})
    assert not any(performer.store.beliefs())
    expected: dict[Player, bytes] = {}
    for shard in range(3):
        records = {(f"l:%{{{n % 3}é", f"{shard}:p{n}"): b"%d" % n for n in range(50)}
        expected |= records
        assert apply(performer, shard, application(0, 1, records | {ports.REBUILT: b"7"}))
    found = [belief for some in performer.store.beliefs() for belief in some]
    assert len(found) == 150 and dict(found) == expected
    assert read(performer, 0, ports.REBUILT).records == [b"7"]


# --- seeds and resets: the events of the last call can be built again ---


def stored(at: Performer, part: Part) -> ports.StoredShard:
    return read(at, 0, *((part.ladder[0], each) for each in part.players))


def applied(at: Performer, part: Part, offset: int) -> Change:
    """Apply the part in a record at this offset."""
    change = compute_given(batch_of(part, offset), {0: stored(at, part)})[0]
    assert apply(at, 0, change)
    return change


def again(at: Performer, part: Part, offset: int) -> Sequence[bytes]:
    """The events of the last call, which applied the part at this offset, built once more."""
    call = batch_of(part, offset)
    return [each.value for each in build_given_events_again(0, call, stored(at, part), offset)]


def test_seeds_and_resets_follow_each_other(store: Performer) -> None:
    """Three are seeded, two of them again with a fourth, two reset. Nobody else has a belief."""
    first, second = seed_part((3, "abc")), seed_part((5, "bcd"), mu=1200.0)
    reset = seed_part((8, "ade"), kind=RESET, mu=1600.0, sigma=200.0)
    for offset, part, players in ((0, first, "abc"), (1, second, "d"), (2, reset, "ad")):
        change = applied(store, part, offset)
        assert [player for (_, player), _ in change.beliefs] == list(players)
        assert stored(store, part).position == change.position
        assert again(store, part, offset) == [each.value for each in change.events]
    assert stored(store, reset).records[2] is None
    assert applied(store, seed_part((8, "bc")), 3).position.applied == 4
    assert again(store, seed_part((8, "bc")), 3) == [], "this one changed nothing"
