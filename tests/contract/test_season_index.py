"""Past seasons in the index: on Redis as in a file, the pages equal a table; what Redis loses is
noticed, refused and written again."""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from functools import cached_property
from pathlib import Path
from typing import Any

import msgspec
import pytest
import redis

from stream_rater.adapters.kafka.producers import Copier
from stream_rater.adapters.kafka.season_topic import topic_of
from stream_rater.adapters.kafka.topics import Admin, delete_topics
from stream_rater.adapters.redis.index_keys import season_keys, summaries_key
from stream_rater.adapters.sqlite.names import seasons_path
from stream_rater.adapters.sqlite.season_file import SeasonFile
from stream_rater.config.settings import Settings
from stream_rater.contract.record import ANY_OFFSET, Record
from stream_rater.contract.season_ended import Message, SeasonKept, Standing, message_of
from stream_rater.serve.bodies import SeasonRow
from stream_rater.serve.cursors import AfterRow
from stream_rater.serve.index import seasons as module
from stream_rater.serve.index.file_seasons import FileSeasons, row_of
from stream_rater.serve.index.reader import IndexReader
from stream_rater.serve.index.seasons import SeasonFollower
from stream_rater.serve.questions import Incomplete
from stream_rater.serve.seasons import SeasonIndex
from tests import real
from tests.builders.cases import cases

LADDER = "eu:{1}"
LISTED = 23
RATINGS = [1600.0, 1600.0, 1500.0, 1500.0, 1500.0, 0.0, -0.0, -20.5]
Ask = Callable[[Callable[[SeasonIndex], Any]], Any]


def standings_of(season: int) -> list[Standing]:
    """In order, with ties."""
    rated = sorted(
        ((RATINGS[i % len(RATINGS)] - season, f"p{i * 7 % LISTED:02}é") for i in range(LISTED)),
        key=lambda each: (-each[0], each[1].encode()),
    )
    ratings = [rating for rating, _ in rated]
    return [
        Standing(
            ladder=LADDER, season=season, player=player,
            rank=1 + sum(other > rating for other in ratings), listed=LISTED, percentile=50.0,
            tier=None if season else "gold", rating=rating, mu=rating, sigma=80.0, rounds=i,
        )
        for i, (rating, player) in enumerate(rated)
    ]  # fmt: skip


def summary_of(season: int) -> SeasonKept:
    return SeasonKept(
        ladder=LADDER, season=season, started_at=None, ended_at="2026-11-01T00:00:00Z",
        offset=season, players=LISTED + 1, listed=LISTED, pages=1,
    )  # fmt: skip


def messages_of(season: int) -> list[Message]:
    return [*map(message_of, standings_of(season)), message_of(summary_of(season))]


def publish(at: Settings, given: Sequence[Message]) -> None:
    """Write records to the topic, as a job does."""
    admin = Admin(at)
    topic = topic_of(at)
    if admin.partitions_if_any(topic) is None:
        admin.create_season_topic(topic)
    Copier(at, topic).write(Record(0, ANY_OFFSET, e.value, (), key=e.key) for e in given)


class Place:
    def __init__(self, at: Settings) -> None:
        self.at, self.troubles, self.now_s = at, list[str](), 0.0
        self.follower = SeasonFollower(at, Admin(at), self.troubles.append, lambda: self.now_s)

    def follow(self) -> None:
        self.now_s += 100.0
        for _ in range(100):
            self.follower.poll()
            if self.follower.caught_up and self.follower._whole:
                break
        self.follower.poll()

    def ask(self, question: Callable[[SeasonIndex], Any]) -> Any:

        async def answer() -> Any:
            reader = IndexReader(self.at)
            try:
                return await question(reader.seasons)
            finally:
                await reader.close()

        return asyncio.run(answer())

    @cached_property
    def client(self) -> Any:
        return redis.Redis.from_url(self.at.redis)


@pytest.fixture
def place(settings: real.SettingsFactory) -> Iterator[Place]:
    """A place whose topic has two seasons."""
    at = settings()
    for season in (0, 2):
        publish(at, messages_of(season))
    found = Place(at)
    yield found
    found.follower.close()


@pytest.fixture(params=["file", pytest.param("redis", marks=pytest.mark.integration)])
def ask(request: pytest.FixtureRequest, tmp_path: Path) -> Ask:
    """Asks an index with two seasons: in a file, and in Redis."""
    if request.param == "redis":
        found: Place = request.getfixturevalue("place")
        found.follow()
        assert found.troubles == []
        return found.ask
    data = tmp_path / "ratings.db"
    for season in (0, 2):
        with closing(SeasonFile(seasons_path(data), "id", LADDER, season)) as file:
            file.write(messages_of(season), "")
    return lambda question: asyncio.run(question(FileSeasons(data)))


def page_of(season: int, after: AfterRow | None, limit: int) -> Callable[[SeasonIndex], Any]:
    return lambda index: index.page(summary_of(season), after, limit)


def around(season: int, player: str) -> Callable[[SeasonIndex], Any]:
    return lambda index: index.around(summary_of(season), player, 5)


def test_pages_equal_the_table(ask: Ask) -> None:
    """Of each season: by cursors, from any place, and around each player."""
    assert ask(lambda index: index.kept(LADDER)) == [summary_of(0), summary_of(2)]
    assert list(ask(lambda index: index.kept("eu"))) == []
    for season in (0, 2):
        rows = [row_of(each) for each in standings_of(season)]
        for limit in (1, 5, LISTED, LISTED + 1):
            seen: list[SeasonRow] = []
            after: AfterRow | None = None
            while True:
                page = ask(page_of(season, after, limit))
                seen += page.rows
                assert page.more == (len(seen) < LISTED)
                if not page.more:
                    break
                after = AfterRow(page.rows[-1].rating, page.rows[-1].player)
            assert seen == rows
        for i, row in enumerate(rows):
            page = ask(around(season, row.player))
            first = min(max(0, i - 2), LISTED)
            assert page.rows == rows[first : first + 5]
        assert ask(around(season, "nobody")) is None
    page = ask(lambda index: index.page(summary_of(0), AfterRow(1550.0, "x"), 3))
    below = [each for each in map(row_of, standings_of(0)) if each.rating < 1550.0]
    assert page.rows == below[:3], "a cursor of nobody who is listed is a place, too"


@pytest.mark.integration
@cases("lost", ["players", "ranks", "summaries", "everything"])
def test_what_redis_loses_is_written_again(place: Place, lost: str) -> None:
    """A page of the season is refused until then."""
    place.troubles.clear()
    place.follow()
    client, keys = place.client, season_keys(LADDER, 2)
    if lost == "everything":
        client.flushdb()
    else:
        client.delete({"players": keys.players, "ranks": keys.ranks,
                       "summaries": summaries_key(LADDER)}[lost])  # fmt: skip
    if lost in ("players", "ranks"):
        with pytest.raises(Incomplete):
            place.ask(lambda index: index.page(summary_of(2), None, 5))
    place.now_s += module.CHECK_S
    place.follower.poll()
    assert place.troubles == ["past seasons: Redis lost some of them: they are written again"]
    place.follow()
    page = place.ask(lambda index: index.page(summary_of(2), None, LISTED))
    assert page.rows == [row_of(each) for each in standings_of(2)]
    assert place.ask(lambda index: index.kept(LADDER)) == [summary_of(0), summary_of(2)]


@pytest.mark.integration
def test_a_reader_knows_that_a_season_does_not_disappear(place: Place) -> None:
    """It refuses to say that there are fewer."""
    place.follow()

    async def asked() -> None:
        reader = IndexReader(place.at)
        index = reader.seasons
        assert len(await index.kept(LADDER)) == 2
        place.client.delete(summaries_key(LADDER))
        with pytest.raises(Incomplete):
            await index.kept(LADDER)
        await reader.close()

    asyncio.run(asked())


@pytest.mark.integration
def test_another_topic_replaces_them(place: Place) -> None:
    """The standings of the old topic are gone."""
    place.follow()
    other = msgspec.structs.replace(place.at, topic_prefix=f"{place.at.topic_prefix}v2.")
    for season in (4, 6, 8):  # longer than the old topic
        publish(other, messages_of(season))
    after = Place(other)
    after.follow()
    expected = [summary_of(4), summary_of(6), summary_of(8)]
    assert after.ask(lambda index: index.kept(LADDER)) == expected
    keys = season_keys(LADDER, 2)
    assert not place.client.exists(keys.players, keys.ranks)
    after.follower.close()
    delete_topics(other, [topic_of(other)])


@pytest.mark.integration
def test_without_a_topic_there_are_none(settings: real.SettingsFactory) -> None:
    """And nothing waits for it. Once it exists, it is read, and a season is seen once it is whole:
    nothing of it is shown before its summary comes."""
    at = settings()
    place = Place(at)
    place.follower.poll()
    assert place.follower.caught_up
    *standings, summary = messages_of(0)
    publish(at, standings)
    place.follow()
    assert list(place.ask(lambda index: index.kept(LADDER))) == []
    publish(at, [summary])
    place.now_s += 100.0
    for _ in range(200):
        place.follower.poll()
        if place.ask(lambda index: index.kept(LADDER)):
            break
    assert place.ask(lambda index: index.kept(LADDER)) == [summary_of(0)]
    place.follower.close()


@pytest.mark.integration
def test_on_a_cluster(settings: real.SettingsFactory, cluster_settings: Settings) -> None:
    """The keys of a season lie in one slot; it is written, checked and read as on one server."""
    at = settings(redis=cluster_settings.redis, redis_cluster=True)
    publish(at, messages_of(2))
    place = Place(at)
    place.follow()
    place.now_s += module.CHECK_S
    place.follower.poll()
    assert place.troubles == []
    assert place.ask(lambda index: index.kept(LADDER)) == [summary_of(2)]
    rows = [row_of(each) for each in standings_of(2)]
    assert place.ask(page_of(2, None, LISTED)).rows == rows
    after = AfterRow(rows[3].rating, rows[3].player)
    assert place.ask(page_of(2, after, 4)).rows == rows[4:8]
    assert place.ask(around(2, rows[10].player)).rows == rows[8:13]
    place.follower.close()
