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

from stream_rater.adapters.redis.client import executed
from stream_rater.adapters.redis.index_keys import INDEX, SUMMARY, drop_index, keys_of
from stream_rater.config.settings import Settings
from stream_rater.contract.errors import Unrecoverable
from stream_rater.contract.events import RatingChanged
from stream_rater.index.entries import PlayerErased, bin_of, encode_entry, player_of
from stream_rater.serve import cursors
from stream_rater.serve.cursors import AfterRow
from stream_rater.serve.index import writer as index_writer
from stream_rater.serve.index.reader import IndexReader, ReadPositions
from stream_rater.serve.index.writer import IndexLost, IndexWriter
from tests.builders.cases import cases

pytestmark = pytest.mark.integration

LADDER = "eu:{1}"
Reader = Callable[..., Any]
TOPIC = "rating-changed"


class Blocking:
    """An index reader whose answers are waited for."""

    def __init__(self, reader: IndexReader, runner: asyncio.Runner) -> None:
        self._reader, self._runner = reader, runner

    def __getattr__(self, name: str) -> Callable[..., Any]:
        return lambda *given: self._runner.run(getattr(self._reader, name)(*given))


@pytest.fixture
def blocking() -> Iterator[Reader]:
    with ExitStack() as stack:

        def make(at: Settings, positions: ReadPositions | None = None) -> Any:
            async def reader() -> IndexReader:
                return IndexReader(at, positions)

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


def once_it_has_read(monkeypatch: pytest.MonkeyPatch, act: Callable[[], object]) -> None:
    """Act once between the next reading of a writer and what it writes then."""
    read = index_writer._read

    def interrupted(*given: Any) -> Any:
        found = read(*given)
        monkeypatch.setattr(index_writer, "_read", read)
        act()
        return found

    monkeypatch.setattr(index_writer, "_read", interrupted)


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


@cases("seed", range(3))
def test_any_order_and_any_repetition(blocking: Reader, at: Settings, seed: int) -> None:
    """Old partitions, replays and other batches lead to the same index; the histories too, as far
    as everything was read."""
    events = some_events(seed)
    rng = random.Random(seed)
    drop_index(at)
    writer = IndexWriter(at)
    writer.begin(TOPIC, 1)
    given = [*events, *rng.sample(events, 20)]
    rng.shuffle(given)
    for first in range(0, len(given), 7):
        writer.apply(given[first : first + 7], [first + 7])
    assert_equal_to_newest(at, events)
    reader = blocking(at)
    for player in {event.player for event in events}:
        own = [event.offset for event in events if event.player == player][-3:]
        assert [change.offset for change in reader.history(LADDER, player)] == own


def test_an_erased_player_leaves_no_trace(at: Settings) -> None:
    """The index is what it would be without the player's events, byte for byte, if others came
    after them; and a later event of the id is one of a newcomer."""
    last = an_event("somebody", 40)
    for seed in range(3):
        events = some_events(seed)
        gone = events[0].player
        back = an_event(gone, 41, rounds=1)
        found: list[list[Any]] = []
        stories: list[list[list[Any]]] = [
            [events, [PlayerErased(LADDER, gone), PlayerErased(LADDER, "stranger"), last], [back]],
            [[], [*(event for event in events if event.player != gone), last], [back]],
        ]
        for story in stories:
            drop_index(at)
            writer = IndexWriter(at)
            writer.begin(TOPIC, 1)
            found.append([])
            for position, some in enumerate(story, 1):
                writer.apply(some, [position])
                found[-1].append(contents(at))
        assert found[0][1:] == found[1][1:], seed
        assert found[0][0] != found[0][1] != found[0][2]


def test_where_reading_begins(at: Settings) -> None:
    """A ladder without news holds it back until the next checkpoint; of a partition that nobody has
    read, everything is read. The index is of one topic: another one is refused until the index is
    deleted."""
    writer = IndexWriter(at)
    assert writer.begin(TOPIC, 2) == [0, 0]
    writer.apply([an_event("ann", 1)], [5, 6])
    writer.apply([msgspec.structs.replace(an_event("ann", 1), ladder="other")], [7, 8])
    assert IndexWriter(at).begin(TOPIC, 2) == [0, 0]
    writer.checkpoint([7, 8])
    assert IndexWriter(at).begin(TOPIC, 2) == [7, 8]
    writer.apply([an_event("ann", 9)], [17, 18])
    assert IndexWriter(at).begin(TOPIC, 3) == [7, 8, 0]
    drop_index(at)
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


def test_two_processes_write_at_once(at: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both follow everything, one ahead, then the other: nothing counts twice, and what one writes
    after our look makes us look again."""
    events = some_events(1)
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
    drop_index(at)
    first, second = IndexWriter(at), IndexWriter(at)
    first.begin(TOPIC, 1), second.begin(TOPIC, 1)
    events = [an_event("ann", 1), an_event("bob", 2)]
    once_it_has_read(monkeypatch, lambda: second.apply(events, [2]))
    first.apply([*events, an_event("cy", 3)], [3])
    assert_equal_to_newest(at, [*events, an_event("cy", 3)])


@pytest.mark.parametrize("together", [1, 3])
def test_many_ladders_are_written_together(
    at: Settings, monkeypatch: pytest.MonkeyPatch, together: int
) -> None:
    """Some ladders take one transaction, of events as of positions. What another process wrote
    after our look counts once, and a lost key is noticed beside ladders that lost none."""
    monkeypatch.setattr(index_writer, "LADDERS_TOGETHER", together)
    transactions = [0]

    def counted(pipe: Any) -> bool:
        transactions[0] += 1
        return executed(pipe)

    monkeypatch.setattr(index_writer, "executed", counted)
    names = [f"{LADDER}{i}" for i in range(7)]
    events = [
        msgspec.structs.replace(an_event("ann", i), ladder=each) for i, each in enumerate(names)
    ]
    writer, other = IndexWriter(at), IndexWriter(at)
    writer.begin(TOPIC, 1), other.begin(TOPIC, 1)
    places = [(0, i) for i in range(7)]
    writer.apply(events, [7], places)
    writer.checkpoint([9])
    assert transactions == [2 * -(-7 // together) + 1]  # the last one is that of the root
    later = [msgspec.structs.replace(each, offset=9, rounds=9) for each in events[:2]]
    later_places = [(0, 9), (0, 10)]
    once_it_has_read(monkeypatch, lambda: other.apply(later[:1], [10], later_places[:1]))
    writer.apply(later, [11], later_places)
    with redis.Redis.from_url(at.redis) as client:
        states = [client.hgetall(keys_of(each).state) for each in names]
        assert [int(each[b"0"]) for each in states] == [11, 11, 9, 9, 9, 9, 9]
        assert {client.zcard(keys_of(each).ranks) for each in names} == {1}
        client.delete(keys_of(names[4]).ranks)
        with pytest.raises(IndexLost, match="index was lost"):
            writer.checkpoint([12])
        assert [client.exists(keys_of(each).players) for each in names] == [1, 1, 1, 1, 0, 1, 1]
    assert IndexWriter(at).begin(TOPIC, 1) == [0]


# --- the leaderboard -----------------------------------------------------------------------------


def brute(table: dict[str, float]) -> list[tuple[int, str, float]]:
    """Rank, player and rating of everybody, best first."""
    order = sorted(table.items(), key=lambda item: (-item[1], item[0].encode()))
    return [(1 + sum(r > rating for r in table.values()), name, rating) for name, rating in order]


def compare_pages(
    seed: int, apply: Callable[[list[RatingChanged], int], object], ask: Callable[..., Any]
) -> None:
    """Move ratings, and compare the index with a plain table between moves: ranks, ties, each page
    from each cursor, and around each player. A page begins right behind its cursor, though its row
    has moved or left. `apply`: of events, up to a position; `ask`: a question by its name."""
    rng, names = random.Random(seed), [f"{i:02}é" for i in range(25)]
    table: dict[str, float] = {}
    places: list[AfterRow | None] = [None]
    for offset in range(1, 30):
        events = [
            an_event(name, offset, rng.choice([-0.0, 1.5, 2.5, 2.5, 99.0, rng.random()]),
                     rounds=rng.choice([0, 7, 7, 7]))
            for name in rng.sample(names, rng.choice([1, 3, 20]))
        ]  # fmt: skip
        apply(events, offset)
        for each in events:
            table.pop(each.player, None)
            if each.rounds:
                table[each.player] = each.rating
        _assert_pages(ask, table, places, rng.randint(1, 9))
        away = rng.choice(names)
        if away not in table:
            assert ask("around", LADDER, away, 3) is None
        if table:
            name = rng.choice(sorted(table))
            cursor = cursors.encode_cursor(AfterRow(table[name], name))
            places.append(cursors.decode_cursor(cursor))


def _assert_pages(
    ask: Callable[..., Any], table: dict[str, float], places: Sequence[AfterRow | None], limit: int
) -> None:
    whole = brute(table)
    for behind in places:
        page = ask("page", LADDER, behind, limit)
        after = [
            row
            for row in whole
            if behind is None
            or (-row[2], row[1].encode()) > (-behind.rating, behind.player.encode())
        ]
        assert [tuple(row) for row in page.rows] == after[:limit]
        assert (page.more, page.listed) == (len(after) > limit, len(whole))
    for i, (rank, name, rating) in enumerate(whole):
        view, near = ask("player", LADDER, name), ask("around", LADDER, name, limit)
        assert (view.rank, view.player.rating) == (rank, rating)
        start = max(0, i - limit // 2)
        assert [tuple(row) for row in near.rows] == whole[start : start + limit]
        assert near.more == (start + limit < len(whole))


def test_pages_equal_a_plain_table(blocking: Reader, at: Settings) -> None:
    """Whatever moves between them."""
    writer, reader = IndexWriter(at), blocking(at)
    for seed in range(2):
        drop_index(at)
        writer.begin(TOPIC, 1)
        compare_pages(
            seed, lambda events, offset: writer.apply(events, [offset]),
            lambda question, *given: getattr(reader, question)(*given),
        )  # fmt: skip


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
