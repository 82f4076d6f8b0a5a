"""Who is listed and in which tier, in both indexes, beside a plain table, while ratings move and
time passes."""

import asyncio
import math
import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Protocol

import msgspec
import pytest
import redis
from msgspec import UNSET

from stream_rater.adapters.redis.index_keys import VIEWS, keys_of
from stream_rater.config.ladders import Ladder, Ladders
from stream_rater.config.settings import Settings
from stream_rater.config.views import DAY_S, Listing, Protection, Tier
from stream_rater.contract.events import CorrectionCause, RatingChanged
from stream_rater.rating.parameters import EloMMR
from stream_rater.serve.bodies import MOST_ROWS
from stream_rater.serve.entries import PlayerErased
from stream_rater.serve.index import file_index
from stream_rater.serve.index import writer as index_writer
from stream_rater.serve.index.file_index import FileIndexReader, FileIndexWriter
from stream_rater.serve.index.reader import IndexReader, ReadPositions
from stream_rater.serve.index.writer import KEEP_S, KEPT_S, IndexLost, IndexWriter
from stream_rater.serve.problems import Refused
from stream_rater.serve.questions import Incomplete, Questions
from tests import real
from tests.contract.test_serve_index import LADDER, TOPIC, an_event, brute

START_S = 1_780_000_000
DRIFT = 40.0
NAMES = [f"p{i}é" for i in range(12)]


def a_ladder(listing: Listing = Listing(), tiers: Sequence[Tier] = ()) -> Ladders:  # noqa: B008
    rating = EloMMR(weight_limit=0.2, sigma_limit=80.0, drift_per_day=DRIFT)
    return Ladders(ladders={"*": Ladder(rating=rating, listing=listing, tiers=tuple(tiers))})


TIERS = (
    Tier(name="bronze"), Tier(name="silver", from_rating=1200.0, hysteresis=60.0),
    Tier(name="gold", from_rating=1500.0, hysteresis=Protection(rounds=4)),
)  # fmt: skip
LISTING = Listing(min_rounds=3, max_sigma=120.0, idle_days=20.0)
BOTH = a_ladder(LISTING, TIERS)


class Clock:
    """A clock that is set by hand, Unix seconds."""

    def __init__(self) -> None:
        self.now_s = float(START_S)

    def __call__(self) -> float:
        return self.now_s


class Rig(Protocol):
    """An index: what writes it, and questions that are answered from it."""

    def apply(self, events: Sequence[Any]) -> Any:
        """Apply events, which then are in the index."""

    def sweep(self) -> None:
        """Take everybody off the lists whose moment has come."""

    def ask(self, question: str, *given: Any) -> Any:
        """The answer to a question."""


def questions(index: Any, ladders: Ladders, clock: Clock) -> Questions:
    async def computed(work: Callable[[], Any]) -> Any:
        return work()

    return Questions(index, ladders, lambda: True, lambda: clock.now_s, computed, clock)


class FileRig:
    """The index in a file."""

    def __init__(self, path: Path, ladders: Ladders, clock: Clock) -> None:
        self.writer = FileIndexWriter(path, 3, ladders, clock)
        self.next = self.writer.begin("one", 10**9)
        self._reader = FileIndexReader(path, 3, None, ladders)
        self._questions = questions(self._reader, ladders, clock)

    def apply(self, events: Sequence[Any]) -> Any:
        self.next += len(events)
        return self.writer.apply(events, self.next)

    def sweep(self) -> None:
        while self.writer.sweep():
            pass

    def ask(self, question: str, *given: Any) -> Any:
        return asyncio.run(getattr(self._questions, question)(*given))

    def close(self) -> None:
        """Close all connections."""
        asyncio.run(self._reader.close())
        self.writer.close()


class RedisRig:
    """The index in Redis."""

    def __init__(
        self, at: Settings, ladders: Ladders, clock: Clock, runner: asyncio.Runner,
        position: int = 0,
    ) -> None:  # fmt: skip
        self._runner, self.position = runner, position
        self.writer = IndexWriter(at, ladders, clock)
        self.begun = self.writer.begin(TOPIC, 1)
        positions = ReadPositions()
        positions.all_read([0])

        async def made() -> IndexReader:
            return IndexReader(at, positions, ladders)

        self._reader = runner.run(made())
        self._questions = questions(self._reader, ladders, clock)

    def apply(self, events: Sequence[Any]) -> Any:
        first, self.position = self.position, self.position + len(events)
        places = [(0, at) for at in range(first, self.position)]
        return self.writer.apply(events, [self.position], places)

    def sweep(self) -> None:
        while self.writer.sweep():
            pass

    def ask(self, question: str, *given: Any) -> Any:
        return self._runner.run(getattr(self._questions, question)(*given))

    def close(self) -> None:
        """Close the reader's connections."""
        self._runner.run(self._reader.close())


Make = Callable[..., Any]


@pytest.fixture(params=["file", pytest.param("redis", marks=pytest.mark.integration)])
def make(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Make]:
    """Makes an index of either kind with a clock, or opens it again. Few players leave at once."""
    monkeypatch.setattr(index_writer, "SWEPT_TOGETHER", 2)
    monkeypatch.setattr(file_index, "SWEPT_TOGETHER", 2)
    with ExitStack() as stack:
        if request.param == "file":

            def made(ladders: Ladders, clock: Clock, name: str = "x", **_: Any) -> Any:
                return stack.enter_context(closing(FileRig(tmp_path / name, ladders, clock)))

            yield made
            return
        settings: real.SettingsFactory = request.getfixturevalue("settings")
        places: dict[str, Settings] = {}
        runner = stack.enter_context(asyncio.Runner())

        def connected(ladders: Ladders, clock: Clock, name: str = "x", **more: Any) -> Any:
            if name not in places:
                places[name] = settings(serve_history=3)
            rig = RedisRig(places[name], ladders, clock, runner, **more)
            return stack.enter_context(closing(rig))

        yield connected


def at_time(at_s: float) -> str:
    return datetime.fromtimestamp(int(at_s), UTC).isoformat().replace("+00:00", "Z")


# --- a plain table --------------------------------------------------------------------------------


class Row(msgspec.Struct):
    """What a table without any cleverness knows of a player."""

    event: RatingChanged
    played_s: int
    tier: str
    promoted_at: int
    previous: str | None = None


class Table:
    """The rules as the reference states them, computed for all players at each question."""

    ORDER = ("bronze", "silver", "gold")

    def __init__(self) -> None:
        self.rows: dict[str, Row] = {}

    def apply(self, event: RatingChanged, at_s: int) -> None:
        """The next event, at a time."""
        old = self.rows.get(event.player)
        played_s = at_s
        if old is not None and event.correction is not None:
            played_s = old.played_s
        own = "gold" if event.rating >= 1500 else "silver" if event.rating >= 1200 else "bronze"
        tier, promoted_at, previous = own, -100, None
        if old is not None and old.event.rounds:  # nobody begins again as who was removed
            up = self.ORDER.index(own) - self.ORDER.index(old.tier)
            stays = (old.tier == "silver" and event.rating >= 1140) or (
                old.tier == "gold" and event.rounds <= old.promoted_at + 4
            )
            if up > 0:
                promoted_at = event.rounds
            elif up == 0 or stays:
                tier, promoted_at = old.tier, old.promoted_at
            previous = old.tier if self.is_listed(old, played_s) else None
        self.rows[event.player] = Row(event, played_s, tier, promoted_at, previous)

    @staticmethod
    def is_listed(row: Row, at_s: float) -> bool:
        """By all three rules."""
        days = (at_s - row.played_s) / DAY_S
        today = math.sqrt(row.event.sigma**2 + DRIFT * days)
        return row.event.rounds >= 3 and days < 20.0 and today <= 120.0

    def listed(self, at_s: float) -> dict[str, Row]:
        """Those who are listed."""
        return {name: row for name, row in self.rows.items() if self.is_listed(row, at_s)}


def assert_equal(rig: Rig, table: Table, at_s: float, limit: int) -> None:
    """Every answer is that of the table."""
    listed = table.listed(at_s)
    ranked = brute({name: row.event.rating for name, row in listed.items()})
    found = rig.ask("leaderboard", LADDER, MOST_ROWS, None, None)
    assert [(row.rank, row.player, row.rating) for row in found.rows] == ranked
    assert found.listed == len(listed)
    for row in found.rows:
        own = table.rows[row.player]
        assert (row.tier, row.previous_tier) == (own.tier, own.previous)
    answer = rig.ask("ladder", LADDER)
    assert answer.listed == len(listed) == sum(each.players for each in answer.distribution)
    for each in answer.distribution:
        within = [r for _, _, r in ranked if each.at_least <= r < each.below]
        assert each.players == len(within) > 0
    looked_up = rig.ask("lookup", LADDER, NAMES).players
    for name, known in zip(NAMES, looked_up, strict=True):
        row = table.rows.get(name)
        if row is None or row.event.rounds == 0:
            assert known.tier is None and known.rounds == 0
            continue
        one = rig.ask("player", LADDER, name)
        expected = (row.tier, row.previous) if name in listed else (None, None)
        assert (known.tier, known.previous_tier) == (one.tier, one.previous_tier) == expected
        assert (one.unlisted is None) == (one.rank is not None) == (name in listed)
        if name in listed:
            rank = next(rank for rank, other, _ in ranked if other == name)
            assert (one.rank, one.listed) == (rank, len(listed))
            around = rig.ask("leaderboard", LADDER, limit, None, name)
            assert name in [row.player for row in around.rows]
        else:
            days = (at_s - row.played_s) / DAY_S
            rule = (
                "min_rounds"
                if row.event.rounds < 3
                else ("idle_days" if days >= 20.0 else "max_sigma")
            )
            assert one.unlisted.rule == rule


@pytest.mark.parametrize("seed", range(8))
def test_a_plain_table_says_the_same(make: Make, seed: int) -> None:
    """Random events, corrections and erasures, while the clock moves by hours or weeks."""
    rng, clock, table = random.Random(seed), Clock(), Table()
    rig = make(BOTH, clock)
    offset = 0
    for _ in range(60):
        clock.now_s += rng.choice([3600.0, DAY_S, 5 * DAY_S, 15 * DAY_S])
        events: list[Any] = []
        for name in rng.sample(NAMES, rng.choice([1, 2, 5])):
            offset += 1
            if rng.random() < 0.05 and name in table.rows:
                events.append(PlayerErased(LADDER, name))
                del table.rows[name]
                continue
            event = an_event(
                name, offset, rng.choice([900.0, 1150.0, 1230.0, 1490.0, 1500.0, 1600.0]),
                completed_at=at_time(clock.now_s), sigma=rng.choice([85.0, 100.0, 119.0, 121.0]),
                rounds=rng.choice([0, 2, 3, 5, 8, 20]),
            )  # fmt: skip
            if rng.random() < 0.2:
                cause = CorrectionCause(cause="round-voided", offset=offset)
                event = msgspec.structs.replace(event, correction=cause)
            events.append(event)
            table.apply(event, int(clock.now_s))
        rig.apply(events)
        rig.sweep()
        if table.rows:
            assert_equal(rig, table, clock.now_s, rng.randint(1, 9))


def test_nobody_is_taken_out_before_the_moment(make: Make) -> None:
    """Nor put back by a clock that is behind."""
    clock = Clock()
    rig = make(BOTH, clock)
    rig.apply([an_event("ann", 1, completed_at=at_time(clock.now_s), sigma=119.0)])
    last_s = START_S + DAY_S * (120.0**2 - 119.0**2) / DRIFT
    clock.now_s = last_s - 1.0
    rig.sweep()
    assert rig.ask("player", LADDER, "ann").rank == 1
    clock.now_s = last_s
    rig.sweep()
    clock.now_s = last_s - 1.0
    rig.sweep()
    found = rig.ask("player", LADDER, "ann")
    assert found.rank is None and found.tier is None
    assert found.unlisted.rule == "max_sigma"
    assert found.unlisted.value == pytest.approx(120.0) and found.unlisted.bound == 120.0


def test_who_has_left_long_ago_is_never_listed(make: Make) -> None:
    """Also while an index is made again, before the first sweep."""
    clock = Clock()
    clock.now_s += 20 * DAY_S
    rig = make(BOTH, clock)
    times = {"idle": START_S - 1, "active": START_S + 1}
    rig.apply(
        [
            an_event(name, at, completed_at=at_time(at_s), sigma=80.0)
            for at, (name, at_s) in enumerate(times.items())
        ]
    )
    found = rig.ask("leaderboard", LADDER, 9, None, None)
    assert [row.player for row in found.rows] == ["active"] and found.listed == 1


def test_many_who_leave_at_the_same_moment(make: Make) -> None:
    """More than leave in one transaction: all of them leave, and those who played later stay."""
    clock = Clock()
    rig = make(BOTH, clock)
    names = [f"same{i}" for i in range(7)]
    rig.apply([an_event(n, 1, completed_at=at_time(START_S), sigma=80.0) for n in names])
    rig.apply([an_event("later", 2, completed_at=at_time(START_S + 1), sigma=80.0)])
    clock.now_s = START_S + 20.0 * DAY_S
    assert rig.writer.sweep()
    assert rig.ask("ladder", LADDER).listed == 6
    # One who plays before it is taken out stays; one who was taken out comes back.
    again = [an_event(n, 3, completed_at=at_time(clock.now_s), sigma=80.0) for n in
             ("same0", "same6")]  # fmt: skip
    rig.apply(again)
    rig.sweep()
    found = rig.ask("leaderboard", LADDER, 10, None, None)
    assert [row.player for row in found.rows] == ["later", "same0", "same6"]


def test_a_correction_does_not_make_a_player_active(make: Make) -> None:
    """Its time is that of another player's round."""
    clock = Clock()
    rig = make(BOTH, clock)
    rig.apply([an_event("ann", 1, completed_at=at_time(START_S), sigma=80.0)])
    cause = CorrectionCause(cause="round-voided", offset=2)
    later = at_time(START_S + 19 * DAY_S)
    rig.apply([an_event("ann", 2, completed_at=later, sigma=80.0, correction=cause)])
    clock.now_s = START_S + 20.0 * DAY_S
    rig.sweep()
    assert rig.ask("player", LADDER, "ann").unlisted.rule == "idle_days"


def test_around_somebody_who_is_not_listed(make: Make) -> None:
    """The error says why."""
    clock = Clock()
    rig = make(BOTH, clock)
    rig.apply([an_event("ann", 1, completed_at=at_time(START_S), rounds=2)])
    with pytest.raises(Refused, match=r"not listed: 2 of 3 rounds \(min_rounds\)"):
        rig.ask("leaderboard", LADDER, 5, None, "ann")


def test_tiers_of_events(make: Make) -> None:
    """The player after each event, with the tier before: also if a batch has several events of the
    player. Without tiers there are none."""
    clock = Clock()
    rig = make(BOTH, clock)
    time = at_time(START_S)
    some = [
        an_event("ann", at, rating, completed_at=time, rounds=at, sigma=80.0)
        for at, rating in ((3, 1100.0), (4, 1250.0), (5, 1150.0), (6, 1000.0))
    ]
    found = rig.apply(some)
    tiers = [found[LADDER, "ann", at].placement for at in (3, 4, 5, 6)]
    assert [(each.previous_tier, each.tier) for each in tiers] == [
        (None, "bronze"), ("bronze", "silver"), ("silver", "silver"), ("silver", "bronze"),
    ]  # fmt: skip
    plain = make(a_ladder(LISTING), clock, "plain")
    assert plain.apply(some) == {}


def test_a_ladder_without_tiers_has_no_such_fields(make: Make) -> None:
    """They are left out of the answers, not null."""
    clock = Clock()
    rig = make(a_ladder(), clock)
    rig.apply([an_event("ann", 1)])
    for answer in (
        rig.ask("player", LADDER, "ann"), rig.ask("lookup", LADDER, ["ann", "eve"]),
        rig.ask("leaderboard", LADDER, 5, None, None),
    ):  # fmt: skip
        assert b"tier" not in msgspec.json.encode(answer)


# --- other views ----------------------------------------------------------------------------------


def test_other_views_in_a_file(tmp_path: Path) -> None:
    """At the next start the placements are made again: the list, the histogram, and the tiers that
    are new. Histories stay, and so does the hysteresis of tiers that stay."""
    clock, path = Clock(), tmp_path / "index"

    def opened(ladders: Ladders) -> FileRig:
        rig = FileRig(path, ladders, clock)
        rig.sweep()
        return rig

    def board(rig: FileRig) -> list[tuple[str, Any]]:
        found = rig.ask("leaderboard", LADDER, 9, None, None)
        assert found.listed == len(found.rows) == rig.ask("ladder", LADDER).listed
        return [(row.player, row.tier) for row in found.rows]

    first = opened(BOTH)
    time = at_time(START_S)
    first.apply(
        [
            an_event("ann", 1, 1250.0, completed_at=time, sigma=80.0),
            an_event("ann", 2, 1150.0, completed_at=time, sigma=80.0),
            an_event("bob", 3, 1100.0, completed_at=time, sigma=80.0, rounds=2),
        ]
    )
    assert board(first) == [("ann", "silver")]
    first.close()
    looser = opened(a_ladder(Listing(min_rounds=1), TIERS))
    assert looser.next == 3 and board(looser) == [("ann", "silver"), ("bob", "bronze")]
    assert len(looser.ask("history", LADDER, "ann", 9, None).changes) == 2
    looser.close()
    clock.now_s += 21 * DAY_S
    idle = opened(a_ladder(LISTING, TIERS))
    assert board(idle) == []
    idle.close()
    none = opened(a_ladder())
    assert board(none) == [("ann", UNSET), ("bob", UNSET)]
    none.close()
    again = opened(a_ladder(Listing(min_rounds=1), TIERS))
    assert board(again) == [("ann", "bronze"), ("bob", "bronze")]
    again.close()


@pytest.mark.integration
def test_other_views_in_redis(
    settings: real.SettingsFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Processes with other views have another index, so both answer. One that nobody keeps for a
    day is deleted, also that of ladders without views; one that somebody keeps stays."""
    at, clock = settings(), Clock()
    events = [an_event("ann", 1, completed_at=at_time(START_S), rounds=2, sigma=80.0)]
    with asyncio.Runner() as runner:
        rigs = [RedisRig(at, each, clock, runner) for each in (a_ladder(), BOTH)]
        old, new = rigs
        for rig in rigs:
            assert rig.begun == [0]
            rig.apply(events)
            rig.writer.checkpoint([1])
            rig.writer.checkpoint([1])
        assert old.ask("player", LADDER, "ann").rank == 1
        assert new.ask("player", LADDER, "ann").unlisted.rule == "min_rounds"
        again = RedisRig(at, BOTH, clock, runner, 1)
        assert again.begun == [1]
        rigs.append(again)
        client: Any = redis.Redis.from_url(at.redis)
        views = BOTH.views(LADDER).id

        def kept() -> set[str]:
            both = {"": keys_of(LADDER), views: keys_of(LADDER, views)}
            return {name for name, keys in both.items() if client.exists(*keys)}

        for _ in range(int(KEPT_S / KEEP_S) + 2):
            clock.now_s += KEEP_S
            for rig in (old, new):
                rig.writer.checkpoint([1])
        assert kept() == {"", views}
        for _ in range(int(KEPT_S / KEEP_S) + 2):
            clock.now_s += KEEP_S
            new.writer.checkpoint([1])
        assert kept() == {views}
        with pytest.raises(IndexLost):
            old.writer.checkpoint([1])
        assert f":{LADDER}".encode() in client.zrange(VIEWS, 0, -1)
        client.close()
        for rig in rigs:
            rig.close()


@pytest.mark.integration
def test_without_views_nothing_is_recorded(settings: real.SettingsFactory) -> None:
    """The keys are those of earlier releases."""
    at, clock = settings(), Clock()
    with asyncio.Runner() as runner:
        rig = RedisRig(at, a_ladder(), clock, runner)
        rig.apply([an_event("ann", 1)])
        rig.writer.checkpoint([1])
        client: Any = redis.Redis.from_url(at.redis)
        keys = keys_of(LADDER)
        assert client.exists(VIEWS, keys.dues) == 0
        assert client.hget(keys.state, "sizes") == b"1 1 1 1"
        client.close()
        rig.close()


@pytest.mark.integration
@pytest.mark.parametrize("gone", keys_of(LADDER)._fields)
def test_a_lost_key_of_views(settings: real.SettingsFactory, gone: str) -> None:
    """Whatever key is lost, no answer is given from the rest, and a sweep finds it, too."""
    at, clock = settings(serve_history=3), Clock()
    with asyncio.Runner() as runner:
        rig = RedisRig(at, BOTH, clock, runner)
        rig.apply([an_event("ann", 1, completed_at=at_time(START_S), sigma=80.0)])
        rig._reader._positions = ReadPositions()
        rig._reader._positions.all_read([1])
        assert rig.ask("player", LADDER, "ann").rank == 1
        client: Any = redis.Redis.from_url(at.redis)
        assert client.delete(getattr(keys_of(LADDER, BOTH.views(LADDER).id), gone)) == 1
        client.close()
        with pytest.raises(Incomplete):
            rig.ask("player", LADDER, "ann")
        clock.now_s += 30 * DAY_S
        with pytest.raises(IndexLost):
            if not rig.writer.sweep():
                rig.writer.checkpoint([2])
        rig.close()


@pytest.mark.integration
def test_two_processes_sweep_at_once(
    settings: real.SettingsFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While one reads who must leave, a player comes back by the other one: the player stays."""
    at, clock = settings(), Clock()
    with asyncio.Runner() as runner:
        first, second = (RedisRig(at, BOTH, clock, runner) for _ in range(2))
        some = [an_event(n, 1, completed_at=at_time(START_S), sigma=80.0) for n in ("ann", "bob")]
        first.apply(some)
        second.apply(some)
        clock.now_s += 21 * DAY_S
        original, done = index_writer._read, list[int]()

        def interrupted(*given: Any) -> Any:
            found = original(*given)
            if not done:
                done.append(1)
                back = an_event("ann", 2, completed_at=at_time(clock.now_s), sigma=80.0)
                second.apply([back])
            return found

        monkeypatch.setattr(index_writer, "_read", interrupted)
        first.sweep()
        assert done
        found = second.ask("leaderboard", LADDER, 9, None, None)
        assert [row.player for row in found.rows] == ["ann"] and found.listed == 1
        for rig in (first, second):
            rig.close()


@pytest.mark.integration
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


@pytest.mark.integration
def test_tiers_of_events_that_another_process_applied(settings: real.SettingsFactory) -> None:
    """The second process knows the tier of each player's newest event, and of no older one."""
    at, clock = settings(), Clock()
    some = [
        an_event(name, offset, rating, completed_at=at_time(START_S), sigma=80.0)
        for name, offset, rating in (("ann", 1, 1100.0), ("ann", 2, 1300.0), ("bob", 3, 1600.0))
    ]
    with asyncio.Runner() as runner, ExitStack() as stack:
        first, second = (
            stack.enter_context(closing(RedisRig(at, BOTH, clock, runner))) for _ in range(2)
        )
        assert sorted(offset for _, _, offset in first.apply(some)) == [1, 2, 3]
        found = second.apply(some)
        assert {offset: player.placement.tier for (_, _, offset), player in found.items()} == {
            2: "silver", 3: "gold",
        }  # fmt: skip
