"""The index of `serve` on a real Redis: equal to the newest events, however they come; ranks, ties,
cursors and around-me beside a plain table, while ratings move."""

import asyncio
import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from typing import Any

import msgspec
import pytest
import redis

from stream_rater.adapters.redis.index_keys import INDEX, ROOT, SUMMARY, drop_index, keys_of
from stream_rater.config.settings import Settings
from stream_rater.contract.errors import Unrecoverable
from stream_rater.contract.events import RatingChanged
from stream_rater.serve import cursors
from stream_rater.serve.cursors import AfterRow
from stream_rater.serve.entries import PlayerErased, bin_of, encode_entry, player_of
from stream_rater.serve.index import writer as index_writer
from stream_rater.serve.index.reader import IndexReader
from stream_rater.serve.index.writer import IndexLost, IndexWriter
from tests import real

pytestmark = pytest.mark.integration

LADDER = "eu:{1}"
Reader = Callable[[Settings], Any]
TOPIC = "rating-changed"


class Blocking:
    """An index reader whose answers are waited for."""

    def __init__(self, reader: IndexReader, runner: asyncio.Runner) -> None:
        self._reader, self._runner = reader, runner

    def __getattr__(self, name: str) -> Callable[..., Any]:
        return lambda *given: self._runner.run(getattr(self._reader, name)(*given))


@pytest.fixture
def blocking() -> Iterator[Callable[[Settings], Any]]:
    """Makes readers whose answers are waited for."""
    with ExitStack() as stack:

        def make(at: Settings) -> Any:
            async def reader() -> IndexReader:
                return IndexReader(at)

            runner = stack.enter_context(asyncio.Runner())
            found = runner.run(reader())
            stack.callback(lambda: runner.run(found.close()))
            return Blocking(found, runner)

        yield make


def an_event(player: str, offset: int, rating: float = 1500.0, **more: Any) -> RatingChanged:
    """An event of a listed player."""
    given: dict[str, Any] = {
        "event_id": f"{player}:{offset}", "ladder": LADDER, "player": player,
        "round_id": f"r{offset}", "completed_at": f"2026-01-01T00:00:{offset % 60:02}Z", "rank": 1,
        "mu": rating + 1.0, "sigma": 80.0, "previous_mu": 0.0, "previous_sigma": 0.0,
        "performance": 1.0, "rating": rating, "previous_rating": 0.0, "rounds": 7,
        "provisional": False, "offset": offset,
    }  # fmt: skip
    return RatingChanged(**given | more)


def contents(at: Settings) -> dict[bytes, Any]:
    """Every key of the index with its value."""
    client: Any = redis.Redis.from_url(at.redis)
    read = {
        b"hash": client.hgetall, b"string": client.get, b"set": client.smembers,
        b"zset": lambda key: client.zrange(key, 0, -1, withscores=True),
    }  # fmt: skip
    found = {key: read[client.type(key)](key) for key in client.scan_iter(f"*{INDEX}*")}
    client.close()
    return found


def assert_equal_to_newest(
    at: Settings, events: Sequence[RatingChanged], ladder: str = LADDER
) -> None:
    """The index says what the newest event of each player says, byte for byte."""
    newest: dict[str, RatingChanged] = {}
    for event in sorted(events, key=lambda each: each.offset):
        newest[event.player] = event
    found, keys = contents(at), keys_of(ladder)
    players = {name.encode(): encode_entry(player_of(event)) for name, event in newest.items()}
    assert found[keys.players.encode()] == players
    listed = [e for e in newest.values() if e.rounds and not e.provisional]
    ranks = sorted((-e.rating, e.player.encode()) for e in listed)
    assert found.get(keys.ranks.encode(), []) == [(name, score) for score, name in ranks]
    bins: dict[bytes, int] = {}
    for each in listed:
        name = b"%d" % bin_of(each.rating)
        bins[name] = bins.get(name, 0) + 1
    assert found.get(keys.bins.encode(), {}) == {name: b"%d" % n for name, n in bins.items()}
    last = max(newest.values(), key=lambda each: each.offset)
    counting = sum(each.rounds > 0 for each in newest.values())
    summary = encode_entry((counting, last.offset, last.completed_at, last.season))
    assert found[keys.state.encode()][SUMMARY] == summary


def some_events(seed: int) -> list[RatingChanged]:
    """Events of a few players in order: provisional ones, removed ones, equal ratings."""
    rng = random.Random(seed)
    return [
        an_event(
            rng.choice("abcdefgh"), offset, float(rng.choice([-60, 0, 10, 10, 40, 1990])),
            provisional=rng.random() < 0.2, rounds=rng.choice([0, 1, 7, 7]),
            season=rng.choice([None, 3]),
        )
        for offset in range(40)
    ]  # fmt: skip


@pytest.mark.parametrize("seed", range(6))
def test_any_order_and_any_repetition(
    blocking: Reader, settings: real.SettingsFactory, seed: int
) -> None:
    """Old partitions, replays and other batches lead to the same index; the histories too, as far
    as everything was read."""
    at, events = settings(serve_history=3), some_events(seed)
    rng = random.Random(seed)
    writer = IndexWriter(at)
    writer.begin(TOPIC, 1)
    given = [*events, *rng.sample(events, 20)]
    rng.shuffle(given)
    for place, some in enumerate(_batches(given, 7), 1):
        writer.apply(some, [place])
    assert_equal_to_newest(at, events)
    reader = blocking(at)
    for player in {event.player for event in events}:
        own = [event.offset for event in events if event.player == player][-3:]
        assert [change.offset for change in reader.history(LADDER, player)] == own


def _batches(events: Sequence[RatingChanged], size: int) -> list[Sequence[RatingChanged]]:
    return [events[i : i + size] for i in range(0, len(events), size)]


@pytest.mark.parametrize("seed", range(3))
def test_an_erased_player_leaves_no_trace(settings: real.SettingsFactory, seed: int) -> None:
    """The index is what it would be without the player's events, byte for byte, if others came
    after them; and a later event of the id is one of a newcomer."""
    events = some_events(seed)
    last = an_event("somebody", 40)
    gone = events[0].player
    with_, without = settings(serve_history=3), settings(serve_history=3)
    erased, never = IndexWriter(with_), IndexWriter(without)
    for each in (erased, never):
        each.begin(TOPIC, 1)
    erased.apply(events, [1])
    erased.apply([PlayerErased(LADDER, gone), PlayerErased(LADDER, "stranger"), last], [2])
    never.apply([*(event for event in events if event.player != gone), last], [2])
    assert contents(with_) == contents(without)
    back = an_event(gone, 41, rounds=1)
    erased.apply([back], [3])
    never.apply([back], [3])
    assert contents(with_) == contents(without)


def test_the_index_is_of_one_topic(settings: real.SettingsFactory) -> None:
    """Another one is refused, until the index is deleted."""
    at = settings()
    writer = IndexWriter(at)
    writer.begin(TOPIC, 1)
    writer.apply(some_events(1), [1])
    with pytest.raises(
        Unrecoverable, match=r"from 'v2\.rating-changed' as it is now: .*: delete the keys"
    ):
        IndexWriter(at).begin(f"v2.{TOPIC}", 1)
    drop_index(at)
    assert contents(at) == {}
    assert IndexWriter(at).begin(f"v2.{TOPIC}", 1) == [0]


def test_two_processes_write_at_once(settings: real.SettingsFactory) -> None:
    """Both follow everything, one ahead, then the other: nothing counts twice."""
    at, events = settings(), some_events(1)
    writers = [IndexWriter(at), IndexWriter(at)]
    for each in writers:
        each.begin(TOPIC, 1)
    done, rng = [0, 0], random.Random(2)
    while min(done) < len(events):
        who = rng.randrange(2)
        upto = min(len(events), done[who] + rng.randint(1, 9))
        writers[who].apply(events[done[who] : upto], [upto])
        done[who] = upto
    assert_equal_to_newest(at, events)


def test_a_write_between_reading_and_writing_counts_once(
    settings: real.SettingsFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What another process writes after our look makes us look again."""
    at = settings()
    first, second = IndexWriter(at), IndexWriter(at)
    first.begin(TOPIC, 1), second.begin(TOPIC, 1)
    events = [an_event("ann", 1), an_event("bob", 2)]
    original = index_writer._read

    def interrupted(*given: Any) -> Any:
        found = original(*given)
        if not done:
            done.append(1)
            second.apply(events, [2])
        return found

    done: list[int] = []
    monkeypatch.setattr(index_writer, "_read", interrupted)
    first.apply([*events, an_event("cy", 3)], [3])
    assert_equal_to_newest(at, [*events, an_event("cy", 3)])


# --- the index is lost ---------------------------------------------------------------------------


@pytest.mark.parametrize("lost", ["all", "ladder", "root"])
@pytest.mark.parametrize("noticed", ["apply", "checkpoint"])
def test_a_loss_is_noticed(settings: real.SettingsFactory, lost: str, noticed: str) -> None:
    """Whatever part of the index is gone, reading begins where the rest stands: at the start."""
    at = settings()
    writer = IndexWriter(at)
    writer.begin(TOPIC, 2)
    writer.apply([an_event("ann", 1)], [5, 6])
    writer.checkpoint([5, 6])
    client = redis.Redis.from_url(at.redis)
    keys = keys_of(LADDER)
    lost_keys: dict[str, list[Any]] = {
        "all": list(contents(at)), "ladder": list(keys), "root": [ROOT],
    }  # fmt: skip
    client.delete(*lost_keys[lost])
    client.close()
    if noticed == "checkpoint" or lost != "root":
        with pytest.raises(IndexLost):
            if noticed == "checkpoint":
                writer.checkpoint([5, 7])
            else:
                writer.apply([an_event("bob", 2)], [5, 7])
    assert IndexWriter(at).begin(TOPIC, 2) == [0, 0]


def test_reading_begins_at_the_least_position(settings: real.SettingsFactory) -> None:
    """A ladder without news holds it back until the next checkpoint; of a partition that nobody
    has read, everything is read."""
    at = settings()
    writer = IndexWriter(at)
    assert writer.begin(TOPIC, 2) == [0, 0]
    writer.apply([an_event("ann", 1)], [5, 6])
    writer.apply([msgspec.structs.replace(an_event("ann", 1), ladder="other")], [7, 8])
    assert IndexWriter(at).begin(TOPIC, 2) == [0, 0]
    writer.checkpoint([7, 8])
    assert IndexWriter(at).begin(TOPIC, 2) == [7, 8]
    writer.apply([an_event("ann", 9)], [17, 18])
    assert IndexWriter(at).begin(TOPIC, 3) == [7, 8, 0]


# --- the leaderboard -----------------------------------------------------------------------------


def brute(table: dict[str, float]) -> list[tuple[int, str, float]]:
    """Rank, player and rating of everybody, best first."""
    order = sorted(table.items(), key=lambda item: (-item[1], item[0].encode()))
    return [(1 + sum(r > rating for r in table.values()), name, rating) for name, rating in order]


@pytest.mark.parametrize("seed", range(8))
def test_pages_equal_a_plain_table(
    blocking: Reader, settings: real.SettingsFactory, seed: int
) -> None:
    """Ranks, ties, each page from each cursor, and around each player, between moves. A page
    begins right behind its cursor, though its row has moved or left."""
    rng, at = random.Random(seed), settings()
    writer, reader = IndexWriter(at), blocking(at)
    writer.begin(TOPIC, 1)
    names = [f"{i:02}é" for i in range(25)]
    table: dict[str, float] = {}
    places: list[AfterRow | None] = [None]
    for offset in range(1, 30):
        moved = rng.sample(names, rng.choice([1, 3, 20]))
        events = [
            an_event(name, offset, rng.choice([-0.0, 1.5, 2.5, 2.5, rng.random()]),
                     rounds=rng.choice([0, 7, 7, 7]))
            for name in moved
        ]  # fmt: skip
        writer.apply(events, [offset])
        for each in events:
            table.pop(each.player, None)
            if each.rounds:
                table[each.player] = each.rating
        limit, whole = rng.randint(1, 9), brute(table)
        for behind in places:
            page = reader.page(LADDER, behind, limit)
            after = [
                row for row in whole
                if behind is None
                or (-row[2], row[1].encode()) > (-behind.rating, behind.player.encode())
            ]  # fmt: skip
            assert [tuple(row) for row in page.rows] == after[:limit]
            assert page.more == (len(after) > limit) and page.listed == len(whole)
        for i, (rank, name, rating) in enumerate(whole):
            view, near = reader.player(LADDER, name), reader.around(LADDER, name, limit)
            assert view is not None and (view.rank, view.player.rating) == (rank, rating)
            start = max(0, i - limit // 2)
            assert near is not None
            assert [tuple(row) for row in near.rows] == whole[start : start + limit]
        away = rng.choice(names)
        if away not in table:
            assert reader.around(LADDER, away, 3) is None
        if whole:
            _, name, rating = rng.choice(whole)
            places.append(cursors.decode_cursor(cursors.encode_cursor(AfterRow(rating, name))))


def test_all_pages_show_each_who_stays_once(
    blocking: Reader, settings: real.SettingsFactory
) -> None:
    """While others move across the pages, no player who stays is left out or shown twice."""
    at, rng = settings(), random.Random(5)
    writer, reader = IndexWriter(at), blocking(at)
    writer.begin(TOPIC, 1)
    writer.apply([an_event(f"s{i}", 1, float(i // 3)) for i in range(60)], [1])
    writer.apply([an_event(f"m{i}", 1, rng.uniform(0, 20)) for i in range(60)], [2])
    paged: list[str] = []
    place, more, offset = None, True, 2
    while more:
        page = reader.page(LADDER, place, 7)
        paged += [row.player for row in page.rows if row.player.startswith("s")]
        place, more = AfterRow(page.rows[-1].rating, page.rows[-1].player), page.more
        offset += 1
        moved = [an_event(f"m{i}", offset, rng.uniform(0, 20)) for i in rng.sample(range(60), 30)]
        writer.apply(moved, [offset])
    assert sorted(paged) == sorted(f"s{i}" for i in range(60))


def test_a_redis_cluster(blocking: Reader, cluster_settings: Settings) -> None:
    """Ladders in different slots: written, read in every way, and deleted."""
    writer, reader = IndexWriter(cluster_settings), blocking(cluster_settings)
    writer.check()
    reader.check()
    assert writer.begin(TOPIC, 1) == [0]
    ladders = [f"ladder-{i}" for i in range(6)]
    for offset, ladder in enumerate(ladders, 1):
        events = [
            msgspec.structs.replace(an_event(name, offset, 1500.0 + i), ladder=ladder)
            for i, name in enumerate("abcde")
        ]
        writer.apply(events, [offset])
    writer.checkpoint([len(ladders)])
    assert IndexWriter(cluster_settings).begin(TOPIC, 1) == [len(ladders)]
    assert reader.ladders() == ladders
    for ladder in ladders:
        best, view = reader.page(ladder, None, 2), reader.player(ladder, "c")
        assert [row.player for row in best.rows] == ["e", "d"]
        behind = reader.page(ladder, AfterRow(best.rows[-1].rating, "d"), 2)
        assert [row.player for row in behind.rows] == ["c", "b"]
        near = reader.around(ladder, "c", 3)
        assert near is not None and [row.player for row in near.rows] == ["d", "c", "b"]
        assert view is not None and view.rank == 3
    drop_index(cluster_settings)
    assert reader.ladders() == [] and reader.ladder(ladders[0]) is None
