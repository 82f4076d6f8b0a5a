"""The index equals the newest events in whatever order they come; its pages equal those of a plain
table while ratings move; and the standings of past seasons."""

import asyncio
import random
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec
import pytest

from stream_rater.adapters.kafka.producers import Copier
from stream_rater.adapters.kafka.round_log import KafkaLog
from stream_rater.adapters.kafka.season_topic import topic_of
from stream_rater.adapters.kafka.topics import Admin
from stream_rater.adapters.redis.client import connect
from stream_rater.adapters.redis.metadata import drop_index
from stream_rater.config.settings import Settings
from stream_rater.contract import season_ended
from stream_rater.contract.events import MAX_ID_BYTES, CorrectionCause, RatingChanged
from stream_rater.contract.record import Record
from stream_rater.index.entries import PlayerErased, player_of
from stream_rater.index.follower import LOOK_S, SeasonFollower
from stream_rater.index.reader import (
    MOST_IN_ROUND,
    AbsentLadder,
    Incomplete,
    PageView,
    RowPlace,
)
from stream_rater.index.writer import IndexWriter
from stream_rater.serve import routes
from tests import real
from tests.builders.cases import cases
from tests.builders.indexes import KEPT, LADDER, Index, an_event, bin_of, some_events


@cases("seed", range(6))
def test_any_order_and_any_repetition(tmp_path: Path, seed: int) -> None:
    """Old events, repeated ones and other batches of the same events lead to the same index."""
    rng, events = random.Random(seed), some_events(seed)
    given = [*events, *rng.sample(events, 20)]
    rng.shuffle(given)
    newest = {each.player: each for each in sorted(events, key=lambda each: each.offset)}
    with closing(Index(tmp_path / str(seed))) as index:
        for first in range(0, len(given), 7):
            index.apply(given[first : first + 7])
        names = sorted(newest)
        assert index.ask("players", LADDER, names) == [player_of(newest[name]) for name in names]
        view = index.ask("ladder", LADDER)
        listed = [each for each in newest.values() if each.rounds and not each.provisional]
        bins = [bin_of(each.rating) for each in listed]
        assert view.bins == {at: bins.count(at) for at in sorted(set(bins))}
        assert view.listed == len(listed)
        last = max(newest.values(), key=lambda each: each.offset)
        counting = sum(each.rounds > 0 for each in newest.values())
        assert (view.summary.players, view.summary.offset) == (counting, last.offset)
        for name in names:
            own = [each.offset for each in events if each.player == name][-KEPT:]
            assert [change.offset for change in index.ask("history", LADDER, name)] == own
        kept = sum(min(KEPT, sum(each.player == name for each in events)) for name in names)
        assert len(index.contents()["changes"]) == kept


def test_what_the_index_has_is_not_applied_again(tmp_path: Path) -> None:
    """Events before the position of their partition are left out."""
    with closing(Index(tmp_path / "index")) as index:
        index.apply([an_event("ann", 1), an_event("ann", 2)])
        before = index.contents()
        index.writer.apply([((0, 0), an_event("ann", 1, 7.0))], [1])
        assert index.contents() == before
        assert index.writer.positions(3) == [2, 0, 0]


def test_an_erased_player_leaves_no_trace(tmp_path: Path) -> None:
    """The index is as without the player's events; a later event of the id is a newcomer's."""
    events: list[RatingChanged] = some_events(2)
    gone, last = events[0].player, an_event("somebody", 40)
    erased = [PlayerErased(LADDER, gone), PlayerErased(LADDER, "stranger"), last]
    back = an_event(gone, 41, rounds=1)
    stories: list[list[list[Any]]] = [
        [events, erased, [back]], [[*events, *erased], [back]], [[*events, *erased, back]],
        [[*(event for event in events if event.player != gone), last], [back]],
    ]  # fmt: skip
    found = list[Any]()
    for number, story in enumerate(stories):
        with closing(Index(tmp_path / str(number))) as index:
            for some in story:
                index.apply(some)
            found.append(index.contents())
    assert found[:-1] == found[1:]


def test_rounds_are_read_by_their_offset(tmp_path: Path) -> None:
    """An event does not name the opponents. All rounds, or a player's, come newest first, in pages;
    a correction is none, and other ladders are not seen. A large round has the player asked for."""
    with closing(Index(tmp_path / "index")) as index:
        for ladder in ("a", LADDER, "z"):
            for offset in (255, 256, 65_536):
                names = ("cy", "ann", "bob") if ladder == LADDER else ("eve",)
                index.apply([an_event(name, offset, ladder=ladder) for name in names])
        cause = CorrectionCause(cause="round-voided", offset=65_540)
        index.apply([an_event("bob", 65_540, correction=cause)])
        index.apply([an_event(f"{i:03}", 70_000) for i in range(MOST_IN_ROUND + 5)])

        def seen(*asked: Any) -> Any:
            found, more = index.ask("rounds", LADDER, *asked)
            return [(each.offset, [name for name, _ in each.changes]) for each in found], more

        three = ["ann", "bob", "cy"]
        large = [f"{i:03}" for i in range(MOST_IN_ROUND)]
        assert seen(1, None, None) == ([(70_000, large)], 70_000)
        assert seen(2, 70_000, None) == ([(65_536, three)], 65_536)
        assert seen(9, 65_536, None) == ([(256, three), (255, ["ann", "cy"])], None)
        assert seen(2, None, "bob") == ([(65_536, three)], 65_536)
        assert seen(9, 65_536, "bob") == ([(256, three)], None)  # a history keeps three
        last = f"{MOST_IN_ROUND + 4:03}"
        assert seen(9, None, last) == ([(70_000, [*large, last])], None)
        assert seen(9, None, "007") == ([(70_000, sorted(large, key=lambda e: e == "007"))], None)
        assert seen(9, None, "eve") == ([], None)


def test_players_are_found_by_the_beginning_of_the_id(tmp_path: Path) -> None:
    """In order, in the letters that are given and in small and capital ones; without those who have
    no round that counts."""
    with closing(Index(tmp_path / "index")) as index:
        names = ["ann", "anna", "Ann-2", "ANNE", "bob", "x" * MAX_ID_BYTES]
        index.apply([an_event(name, i) for i, name in enumerate(names)])
        index.apply([an_event(f"an{i}", 9 + i, rounds=0) for i in range(9)])
        index.apply([an_event("and", 1, ladder="z")])

        def found(start: str, limit: int = 9) -> list[str]:
            return [name for name, _ in index.ask("begun_by", LADDER, start, limit)]

        assert found("an") == found("AN") == ["ANNE", "Ann-2", "ann", "anna"]
        assert found("aN") == ["ANNE", "Ann-2", "ann", "anna"]
        assert found("an", 3) == ["ANNE", "Ann-2", "ann"] and found("anna") == ["anna"]
        assert found("", 2) == ["ANNE", "Ann-2"] and found("zoe") == found("y" * 999) == []


def test_what_is_missing(tmp_path: Path) -> None:
    """No ladder, no player, ids that nobody has: nothing is found. An unfinished index raises."""
    with closing(Index(tmp_path / "index")) as index:
        index.apply([PlayerErased(LADDER, "ann")])
        assert index.ask("ladder", LADDER) is None
        assert index.ask("ladders") == []
        with pytest.raises(AbsentLadder):
            index.ask("players", LADDER, ["ann"])
        index.apply([an_event("ann", 1), an_event("x" * MAX_ID_BYTES, 1)])
        assert index.ask("ladders") == [LADDER]
        for name in ("bob", "", "x" * 1000):
            assert index.ask("player", LADDER, name) is None
            assert index.ask("history", LADDER, name) == ()
            assert index.ask("around", LADDER, name, 3) is None
            assert index.ask("ladder", name) is None
            assert list(index.ask("kept", name)) == []
        index.reader.close()
        with pytest.raises(Incomplete, match="still being made"):
            index.ask("ladders")


def test_an_index_that_lacks_events_does_not_answer(tmp_path: Path) -> None:
    """Not where a later position is needed, nor after a start before it has read to the ends."""
    with closing(Index(tmp_path / "index")) as index:
        index.apply([an_event("ann", 1)])
        at_1, at_2 = index.reader.after({0: 1}), index.reader.after({0: 2})
        assert asyncio.run(at_1.ladders()) == [LADDER]
        for question in (at_2.ladders(), index.reader.after({1: 1}).ladder(LADDER)):
            with pytest.raises(Incomplete):
                asyncio.run(question)
        writer = IndexWriter(index.store, KEPT)  # as at a start
        writer.reached([1])
        with pytest.raises(Incomplete):
            index.ask("players", LADDER, ["ann"])
        writer.reached([1], current=True)
        assert index.ask("ladders") == [LADDER]


def test_a_transaction_that_fails_changes_nothing(tmp_path: Path) -> None:
    """Neither what is stored nor what the writer remembers has changed."""
    with closing(Index(tmp_path / "index")) as index:
        index.apply([an_event("ann", 1)])
        before = index.contents()
        bad: Any = msgspec.structs.replace(an_event("bob", 2), ladder="new", rating=None)
        with pytest.raises(TypeError):
            index.writer.apply([((0, 1), an_event("ann", 2, 7.0)), ((0, 2), bad)], [3])
        assert index.contents() == before and index.writer.positions(1) == [1]
        index.writer.apply([((0, 1), an_event("ann", 2, 7.0))], [2])
        assert index.ask("player", LADDER, "ann").rank == 1
        assert index.ask("ladder", LADDER).bins == {0: 1}


# --- the leaderboard -----------------------------------------------------------------------------


def brute(table: dict[str, float]) -> list[tuple[int, str, float]]:
    """Rank, player and rating of everybody, best first."""
    order = sorted(table.items(), key=lambda item: (-item[1], item[0].encode()))
    return [(1 + sum(r > rating for r in table.values()), name, rating) for name, rating in order]


@cases("seed", range(4))
def test_pages_equal_a_plain_table(tmp_path: Path, seed: int) -> None:
    """Ranks, ties, the pages behind each cursor (its row may have moved or left) and those around
    each player are a plain table's, while ratings move."""
    rng, names = random.Random(seed), [f"{i:02}é" for i in range(25)]
    ratings = [-0.0, 1.5, 2.5, 2.5, 99.0, -49.99, 50.0, 1e9]
    table: dict[str, float] = {}
    places: list[RowPlace | None] = [None]
    with closing(Index(tmp_path / str(seed))) as index:
        if seed % 2:
            index.apply([an_event("before", 1, ladder="a"), an_event("behind", 1, ladder="z")])
        for offset in range(1, 30):
            events = [
                an_event(name, offset, rng.choice([*ratings, rng.random()]),
                         rounds=rng.choice([0, 7, 7, 7]))
                for name in rng.sample(names, rng.choice([1, 3, 20]))
            ]  # fmt: skip
            index.apply(events)
            for each in events:
                table.pop(each.player, None)
                if each.rounds:
                    table[each.player] = each.rating
            assert_pages(index, table, places, rng.randint(1, 9))
            away = rng.choice(names)
            if away not in table:
                assert index.ask("around", LADDER, away, 3) is None
            if table:
                name = rng.choice(sorted(table))
                cursor = routes.encode_cursor(RowPlace(table[name], name))
                places.append(routes.decode_cursor(cursor))


def assert_pages(
    index: Index, table: dict[str, float], places: Sequence[RowPlace | None], limit: int
) -> None:
    whole = brute(table)
    for behind in places:
        page = index.ask("page", LADDER, behind, limit)
        after = [
            row
            for row in whole
            if behind is None
            or (-row[2], row[1].encode()) > (-behind.rating, behind.player.encode())
        ]
        assert [tuple(row) for row in page.rows] == after[:limit]
        assert (page.more, page.listed) == (len(after) > limit, len(whole))
    for i, (rank, name, rating) in enumerate(whole):
        view, near = index.ask("player", LADDER, name), index.ask("around", LADDER, name, limit)
        assert (view.rank, view.player.rating) == (rank, rating)
        start = max(0, i - limit // 2)
        assert [tuple(row) for row in near.rows] == whole[start : start + limit]
        assert near.more == (start + limit < len(whole))


# --- past seasons --------------------------------------------------------------------------------

LISTED = 23
RATINGS = [1600.0, 1600.0, 1500.0, 1500.0, 1500.0, 0.0, -0.0, -20.5]


def standings_of(season: int) -> list[season_ended.Standing]:
    """The standings of a season, in order, with ties."""
    rated = sorted(
        ((RATINGS[i % len(RATINGS)] - season, f"p{i * 7 % LISTED:02}é") for i in range(LISTED)),
        key=lambda each: (-each[0], each[1].encode()),
    )
    ratings = [rating for rating, _ in rated]
    return [
        season_ended.Standing(
            ladder=LADDER, season=season, player=player,
            rank=1 + sum(other > rating for other in ratings), listed=LISTED, percentile=50.0,
            tier=None if season else "gold", rating=rating, mu=rating, sigma=80.0, rounds=i,
        )
        for i, (rating, player) in enumerate(rated)
    ]  # fmt: skip


def summary_of(season: int) -> season_ended.SeasonKept:
    return season_ended.SeasonKept(
        ladder=LADDER, season=season, started_at=None, ended_at="2026-11-01T00:00:00Z",
        offset=season, players=LISTED + 1, listed=LISTED, pages=1,
    )  # fmt: skip


def records_of(season: int) -> list[Any]:
    page = season_ended.PageWritten(ladder=LADDER, season=season, page=0, pages=1, digest="-")
    return [*standings_of(season), page, None, summary_of(season)]


Row = tuple[int, str, float, str | None, int]  # Rank, player, rating, tier and rounds.


def row_of(each: season_ended.Standing) -> Row:
    return each.rank, each.player, each.rating, each.tier, each.rounds


def rows_of(page: PageView) -> list[Row]:
    found = list[Row]()
    for row, known in zip(page.rows, page.players, strict=True):
        assert known is not None and known.placement is not None and row.rating == known.rating
        found.append((row.rank, row.player, known.rating, known.placement.tier, known.rounds))
    return found


def test_pages_of_a_season_equal_its_table(tmp_path: Path) -> None:
    """Pages come by cursors, behind any place, and around each player, once it has a summary."""
    with closing(Index(tmp_path / "index")) as index:
        assert index.writer.begin_seasons("seasons", [9]) == [0]
        index.writer.apply_seasons(records_of(0)[:-1], [3])
        assert list(index.ask("kept", LADDER)) == []
        index.writer.apply_seasons([*records_of(0), *records_of(2)], [9])
        assert index.ask("kept", LADDER) == [summary_of(0), summary_of(2)]
        assert list(index.ask("kept", "eu")) == []
        for season in (0, 2):
            rows = [row_of(each) for each in standings_of(season)]
            for limit in (1, 5, LISTED, LISTED + 1):
                seen: list[Row] = []
                after: RowPlace | None = None
                while True:
                    page = index.ask("page", LADDER, after, limit, season)
                    seen += rows_of(page)
                    assert page.more == (len(seen) < LISTED) and page.listed == LISTED
                    if not page.more:
                        break
                    after = RowPlace(page.rows[-1].rating, page.rows[-1].player)
                assert seen == rows
            for i, row in enumerate(rows):
                page = index.ask("around", LADDER, row[1], 5, season)
                assert rows_of(page) == rows[max(0, i - 2) :][:5]
            assert index.ask("around", LADDER, "nobody", 5, season) is None
        page = index.ask("page", LADDER, RowPlace(1550.0, "x"), 3, 0)
        below = [row_of(each) for each in standings_of(0) if each.rating < 1550.0]
        assert rows_of(page) == below[:3], "a cursor of nobody who is listed is a place, too"


def test_leaderboards_of_ladders_and_of_seasons_do_not_meet(tmp_path: Path) -> None:
    """In whatever order they begin, record by record, over a restart, and when they come again."""
    seasons, where = (0, 2), tmp_path / "index"
    with closing(Index(where)) as index:
        index.writer.begin_seasons("seasons", [9])
        for each in records_of(0):
            index.writer.apply_seasons([each], [3])
        index.apply([an_event("p00é", 1, 7.0)])
        index.writer.apply_seasons(records_of(2), [6])
    with closing(Index(where)) as index:
        index.apply([an_event("p00é", 2, 9.0, ladder="eu"), an_event("p01é", 3, 8.0)])
        index.writer.apply_seasons(records_of(0)[:-1], [7])
        assert index.ask("kept", LADDER) == [summary_of(season) for season in seasons]
        for season in seasons:
            page = index.ask("page", LADDER, None, LISTED, season)
            assert rows_of(page) == [row_of(each) for each in standings_of(season)]
        assert [row.player for row in index.ask("page", LADDER, None, 9).rows] == ["p01é", "p00é"]
        assert [row.player for row in index.ask("page", "eu", None, 9).rows] == ["p00é"]
        assert index.writer.begin_seasons("others", [9]) == [0]
        assert index.ask("ladder", LADDER).listed == 2 and index.ask("ladder", "eu").listed == 1
        assert len(index.contents()["players"]) == len(index.contents()["ranks"]) == 3


def test_another_topic_of_seasons_replaces_them(tmp_path: Path) -> None:
    """So does the same topic if it is shorter than what was read; a longer one does not."""
    with closing(Index(tmp_path / "index")) as index:
        index.writer.begin_seasons("seasons", [9, 9])
        index.writer.apply_seasons(records_of(2), [9, 4])
        assert index.writer.begin_seasons("seasons", [9, 4, 7]) == [9, 4, 0]
        assert index.ask("kept", LADDER) == [summary_of(2)]
        for log, ends in (("seasons", [9, 3]), ("others", [99, 99])):
            index.writer.apply_seasons(records_of(2), [9, 4])
            assert index.writer.begin_seasons(log, ends) == [0, 0]
            assert not any(index.contents().values())


# --- from real topics -----------------------------------------------------------------------------


def messages_of(season: int) -> list[Record]:
    found: list[season_ended.SeasonRecord] = [*standings_of(season), summary_of(season)]
    return [season_ended.encoded(each, "") for each in found]


def publish(at: Settings, given: Sequence[Record]) -> None:
    """Write records to the topic, as a job does."""
    admin = Admin(at)
    topic = topic_of(at)
    if admin.partitions_if_any(topic) is None:
        admin.create_season_topic(topic)
    Copier(at, topic).write(given)


@pytest.mark.integration
def test_seasons_are_followed(settings: real.SettingsFactory, tmp_path: Path) -> None:
    """Without a topic there is no season. A season appears once its summary does."""
    at, now, troubles = settings(), [0.0], list[str]()
    with closing(Index(tmp_path / "index")) as index:

        def follow(at: Settings, wanted: list[int]) -> None:
            with closing(KafkaLog(at)) as log:
                follower = SeasonFollower(log, index.writer, troubles.append, lambda: now[0])
                with closing(follower):
                    for _ in range(100):
                        now[0] += LOOK_S
                        follower.poll()
                        found = [each.season for each in index.ask("kept", LADDER)]
                        if follower.caught_up and found == wanted:
                            break
            assert [each.season for each in index.ask("kept", LADDER)] == wanted
            assert follower.caught_up and troubles == []

        follow(at, [])
        *standings, summary = messages_of(0)
        publish(at, standings)
        follow(at, [])
        publish(at, [summary, *messages_of(2)])
        follow(at, [0, 2])
        other = msgspec.structs.replace(at, topic_prefix=f"{at.topic_prefix}v2.")
        publish(other, messages_of(4))
        follow(other, [4])


@pytest.mark.integration
def test_the_old_index_in_redis_is_deleted(settings: real.SettingsFactory) -> None:
    """Nothing else is deleted."""
    at = settings()
    with connect(at) as client:
        client.hset("stream-rater:index:{eu}:players", "ann", "-")
        client.hset("{0}:position", "applied", 1)
        before = {*client.scan_iter("*")}
        drop_index(at)
        assert before - {*client.scan_iter("*")} == {b"stream-rater:index:{eu}:players"}
