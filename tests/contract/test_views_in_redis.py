"""Indexes of ladders with views on a real Redis: other views, lost keys, several processes, and a
cluster."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from typing import Any

import msgspec
import pytest
import redis

from stream_rater.adapters.redis.index_keys import VIEWS, keys_of
from stream_rater.config.ladders import Ladders
from stream_rater.config.settings import Settings
from stream_rater.config.views import DAY_S
from stream_rater.serve.index import writer as index_writer
from stream_rater.serve.index.reader import IndexReader, ReadPositions
from stream_rater.serve.index.writer import KEEP_S, KEPT_S, IndexLost, IndexWriter
from stream_rater.serve.questions import Incomplete
from tests import real
from tests.contract.test_serve_index import LADDER, TOPIC, an_event
from tests.contract.views_rigs import BOTH, START_S, Clock, RedisRig, a_ladder, at_time

pytestmark = pytest.mark.integration
Make = Callable[..., RedisRig]


@pytest.fixture
def at(settings: real.SettingsFactory) -> Settings:
    """Where the indexes of a test are."""
    return settings(serve_history=3)


@pytest.fixture
def make(at: Settings) -> Iterator[Make]:
    """Makes processes with an index, by these views and this clock."""
    with asyncio.Runner() as runner, ExitStack() as stack:

        def made(ladders: Ladders, clock: Clock, position: int = 0) -> RedisRig:
            return stack.enter_context(closing(RedisRig(at, ladders, clock, runner, position)))

        yield made


@pytest.fixture
def client(at: Settings) -> Iterator[Any]:
    with closing(redis.Redis.from_url(at.redis)) as found:
        yield found


def test_other_views_in_redis(make: Make, client: Any) -> None:
    """Processes with other views have another index, so both answer. One that nobody keeps for a
    day is deleted, also that of ladders without views; one that somebody keeps stays."""
    clock = Clock()
    events = [an_event("ann", 1, completed_at=at_time(START_S), rounds=2, sigma=80.0)]
    old, new = (make(each, clock) for each in (a_ladder(), BOTH))
    for rig in (old, new):
        assert rig.begun == [0]
        rig.apply(events)
        rig.writer.checkpoint([1])
        rig.writer.checkpoint([1])
    assert old.ask("player", LADDER, "ann").rank == 1
    assert new.ask("player", LADDER, "ann").unlisted.rule == "min_rounds"
    assert make(BOTH, clock, 1).begun == [1]
    views = BOTH.views(LADDER).id

    def kept_after(*rigs: RedisRig) -> set[str]:
        """Which indexes are there, after these processes alone have kept theirs."""
        for _ in range(int(KEPT_S / KEEP_S) + 2):
            clock.now_s += KEEP_S
            for rig in rigs:
                rig.writer.checkpoint([1])
        both = {"": keys_of(LADDER), views: keys_of(LADDER, views)}
        return {name for name, keys in both.items() if client.exists(*keys)}

    assert kept_after(old, new) == {"", views}
    assert kept_after(new) == {views}
    with pytest.raises(IndexLost):
        old.writer.checkpoint([1])
    assert f":{LADDER}".encode() in client.zrange(VIEWS, 0, -1)


def test_a_lost_key_of_views(make: Make, client: Any) -> None:
    """Whatever key is lost, no answer is given from the rest, and a sweep finds it, too. Without
    views the keys are those of earlier releases."""
    for gone in keys_of(LADDER)._fields:
        clock = Clock()
        client.flushdb()
        rig = make(BOTH, clock)
        rig.apply([an_event("ann", 1, completed_at=at_time(START_S), sigma=80.0)])
        rig._reader._positions = ReadPositions()
        rig._reader._positions.all_read([1])
        assert rig.ask("player", LADDER, "ann").rank == 1
        assert client.delete(getattr(keys_of(LADDER, BOTH.views(LADDER).id), gone)) == 1, gone
        with pytest.raises(Incomplete):
            rig.ask("player", LADDER, "ann")
        clock.now_s += 30 * DAY_S
        with pytest.raises(IndexLost):
            if not rig.writer.sweep():
                rig.writer.checkpoint([2])
    client.flushdb()
    rig = make(a_ladder(), Clock())
    rig.apply([an_event("ann", 1)])
    rig.writer.checkpoint([1])
    assert client.exists(VIEWS, keys_of(LADDER).dues) == 0
    assert client.hget(keys_of(LADDER).state, "sizes") == b"1 1 1 1"


def test_two_processes_sweep_at_once(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """While one reads who must leave, a player comes back by the other one: the player stays."""
    clock = Clock()
    first, second = (make(BOTH, clock) for _ in range(2))
    some = [an_event(n, 1, completed_at=at_time(START_S), sigma=80.0) for n in ("ann", "bob")]
    first.apply(some)
    second.apply(some)
    clock.now_s += 21 * DAY_S
    original, done = index_writer._read, list[int]()

    def interrupted(*given: Any) -> Any:
        found = original(*given)
        if not done:
            done.append(1)
            second.apply([an_event("ann", 2, completed_at=at_time(clock.now_s), sigma=80.0)])
        return found

    monkeypatch.setattr(index_writer, "_read", interrupted)
    first.sweep()
    assert done
    found = second.ask("leaderboard", LADDER, 9, None, None)
    assert [row.player for row in found.rows] == ["ann"] and found.listed == 1


def test_ladders_of_a_cluster(cluster_settings: Settings) -> None:
    """Their keys lie in several slots, and each ladder lets its own players go."""
    clock = Clock()
    writer = IndexWriter(cluster_settings, BOTH, clock)
    writer.begin(TOPIC, 1)
    ladders = [f"ladder-{i}" for i in range(6)]
    names = [f"p{i}" for i in range(3)]
    for place, ladder in enumerate(ladders, 1):
        events = [
            an_event(name, at, completed_at=at_time(START_S + at * DAY_S), sigma=80.0)
            for at, name in enumerate(names)
        ]
        writer.apply([msgspec.structs.replace(e, ladder=ladder) for e in events], [place])
    writer.checkpoint([len(ladders)])
    clock.now_s += 21 * DAY_S
    while writer.sweep():
        pass
    with asyncio.Runner() as runner:

        async def left() -> list[list[str]]:
            reader = IndexReader(cluster_settings, None, BOTH)
            pages = [await reader.page(ladder, None, 9) for ladder in ladders]
            await reader.close()
            return [[row.player for row in page.rows] for page in pages]

        assert runner.run(left()) == [["p2"]] * len(ladders)


def test_tiers_of_events_that_another_process_applied(make: Make) -> None:
    """The second process knows the tier of each player's newest event, and of no older one."""
    some = [
        an_event(name, offset, rating, completed_at=at_time(START_S), sigma=80.0)
        for name, offset, rating in (("ann", 1, 1100.0), ("ann", 2, 1300.0), ("bob", 3, 1600.0))
    ]
    first, second = (make(BOTH, Clock()) for _ in range(2))
    assert sorted(offset for _, _, offset in first.apply(some)) == [1, 2, 3]
    found = second.apply(some)
    tiers = {offset: player.placement.tier for (_, _, offset), player in found.items()}
    assert tiers == {2: "silver", 3: "gold"}
