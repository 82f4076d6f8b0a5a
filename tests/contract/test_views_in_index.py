"""Who is listed and in which tier, as in a plain table, while ratings change and time passes."""

import asyncio
import math
import random
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest

from stream_rater.config.ladders import Ladder, Ladders
from stream_rater.config.views import DAY_S, Listing, Protection, Tier
from stream_rater.contract.events import CorrectionCause, RatingChanged
from stream_rater.index import folder
from stream_rater.index import writer as index_writer
from stream_rater.index.entries import LadderIndex, LadderSummary, PlayerErased, apply_events
from stream_rater.index.writer import IndexWriter
from stream_rater.rating.parameters import EloMMR
from stream_rater.serve.bodies import MOST_ROWS
from stream_rater.serve.problems import Refused
from stream_rater.serve.questions import Questions
from tests.builders.indexes import LADDER, Index, an_event
from tests.contract.test_index import brute

START_S = 1_780_000_000
DRIFT = 40.0
NAMES = [*(f"p{i}é" for i in range(11)), "bot-1"]


def a_ladder(listing: Listing = Listing(), tiers: Sequence[Tier] = ()) -> Ladders:  # noqa: B008
    rating = EloMMR(weight_limit=0.2, sigma_limit=80.0, drift_per_day=DRIFT)
    return Ladders(ladders={"*": Ladder(rating=rating, listing=listing, tiers=tuple(tiers))})


TIERS = (
    Tier(name="bronze"), Tier(name="silver", from_rating=1200.0, hysteresis=60.0),
    Tier(name="gold", from_rating=1500.0, hysteresis=Protection(rounds=4)),
)  # fmt: skip
LISTING = Listing(min_rounds=3, max_sigma=120.0, idle_days=20.0, unlisted=("bot-*",))
BOTH = a_ladder(LISTING, TIERS)


class Clock:
    """A clock that is set by hand, Unix seconds."""

    def __init__(self) -> None:
        self.now_s = float(START_S)

    def __call__(self) -> float:
        return self.now_s


class Rig(Index):
    """An index, and questions that are answered from it."""

    def __init__(self, where: Path, ladders: Ladders, clock: Clock) -> None:
        super().__init__(where, ladders, clock)
        self._runner = asyncio.Runner()

        async def computed(work: Callable[[], Any]) -> Any:
            return work()

        self._questions = Questions(
            self.reader, ladders, lambda: True, lambda: clock.now_s, computed, clock
        )

    def ask(self, question: str, *given: Any) -> Any:
        return self._runner.run(getattr(self._questions, question)(*given))

    def board(self, ladder: str = LADDER) -> list[str]:
        """The players of the leaderboard, best first."""
        found = self.ask("leaderboard", ladder, MOST_ROWS, None, None)
        assert found.listed == len(found.rows) == self.ask("ladder", ladder).listed
        return [row.player for row in found.rows]

    def sweep(self) -> None:
        """Take everybody whose moment has come off the lists."""
        while self.writer.sweep():
            pass

    def close(self, *, killed: bool = False) -> None:
        self._runner.close()
        super().close(killed=killed)


def at_time(at_s: float) -> str:
    return datetime.fromtimestamp(int(at_s), UTC).isoformat().replace("+00:00", "Z")


def played(
    player: str, offset: int, rating: float = 1500.0, *, at_s: float = START_S, **more: Any
) -> RatingChanged:
    """The event of a round at that time. The player is certain enough to be listed."""
    return an_event(player, offset, rating, **{"completed_at": at_time(at_s), **more})


Make = Callable[..., Rig]


@pytest.fixture
def make(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Make]:
    """Makes an index with a clock, or opens the last one. A transaction removes or places few."""
    monkeypatch.setattr(index_writer, "SWEPT_TOGETHER", 2)
    monkeypatch.setattr(index_writer, "AT_ONCE", 2)
    open_ones: list[Rig] = []

    def close() -> None:
        while open_ones:
            open_ones.pop().close()

    def made(ladders: Ladders, clock: Clock, name: str = "index") -> Rig:
        close()
        open_ones.append(Rig(tmp_path / name, ladders, clock))
        return open_ones[-1]

    yield made
    close()


# --- a plain table --------------------------------------------------------------------------------


class Row(msgspec.Struct):
    """What a plain table knows of a player."""

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
        """Whether all rules list the player."""
        if row.event.player.startswith("bot-"):
            return False
        days = (at_s - row.played_s) / DAY_S
        today = math.sqrt(row.event.sigma**2 + DRIFT * days)
        return row.event.rounds >= 3 and days < 20.0 and today <= 120.0

    def listed(self, at_s: float) -> dict[str, Row]:
        return {name: row for name, row in self.rows.items() if self.is_listed(row, at_s)}


def assert_equal(rig: Any, table: Table, at_s: float, limit: int) -> None:
    """Every answer of the index is that of the table."""
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
            by = [name == "bot-1", row.event.rounds < 3, days >= 20.0, True]
            rules = ("unlisted", "min_rounds", "idle_days", "max_sigma")
            assert one.unlisted.rule == rules[by.index(True)]


@pytest.mark.parametrize("seed", range(3))
def test_a_plain_table_says_the_same(make: Make, seed: int) -> None:
    """Events, corrections and erasures are random, while the clock advances by hours or weeks."""
    rng, clock, table = random.Random(seed), Clock(), Table()
    rig = make(BOTH, clock)
    offset = 0
    for _ in range(50):
        clock.now_s += rng.choice([3600.0, DAY_S, 5 * DAY_S, 15 * DAY_S])
        events: list[Any] = []
        for name in rng.sample(NAMES, rng.choice([1, 2, 5])):
            offset += 1
            if rng.random() < 0.05 and name in table.rows:
                events.append(PlayerErased(LADDER, name))
                del table.rows[name]
                continue
            event = played(
                name, offset, rng.choice([900.0, 1150.0, 1230.0, 1490.0, 1500.0, 1600.0]),
                at_s=clock.now_s, rounds=rng.choice([0, 2, 3, 5, 8, 20]),
                sigma=rng.choice([85.0, 100.0, 119.0, 121.0]),
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
    """Nor does a clock that goes back list anybody again. An unlisted player is shown the rule."""
    clock = Clock()
    rig = make(BOTH, clock)
    rig.apply([played("ann", 1, sigma=119.0)])
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
    rig.apply([played("bob", 2, rounds=2)])
    with pytest.raises(Refused, match=r"not listed: 2 of 3 rounds \(min_rounds\)"):
        rig.ask("leaderboard", LADDER, 5, None, "bob")


@pytest.mark.parametrize("begun_days", [0, 40])
def test_a_wrong_clock_takes_nobody_out_for_good(make: Make, begun_days: int) -> None:
    """A clock weeks ahead sweeps, or begins the index. By the right one all are listed in time."""
    clock = Clock()
    events = [played(name, at, at_s=START_S - at * 5 * DAY_S) for at, name in enumerate("abcdef")]
    clock.now_s += begun_days * DAY_S
    rig = make(BOTH, clock)
    rig.apply(events)
    clock.now_s = START_S + 40 * DAY_S
    rig.sweep()
    assert rig.board() == []
    clock.now_s = START_S
    rig.sweep()
    assert rig.board() == ["a", "b", "c", "d"]
    rig.apply([played("e", 9)])
    rig.sweep()
    assert rig.board() == ["a", "b", "c", "d", "e"]


def test_times_of_last_rounds(make: Make) -> None:
    """Who left long ago is never listed, also before the first sweep. A player without a valid time
    is idle; a known time stays if a later event has none."""
    clock = Clock()
    clock.now_s += 20 * DAY_S
    rig = make(BOTH, clock)
    times = {"idle": at_time(START_S - 1), "active": at_time(START_S + 1), "nobody": "soon"}
    for at, (name, time) in enumerate(times.items()):
        rig.apply([an_event(name, at, completed_at=time)])
    assert rig.board() == ["active"]
    rig.apply([an_event("active", 3, completed_at="soon")])
    rig.sweep()
    assert rig.ask("player", LADDER, "active").rank == 1
    assert rig.ask("player", LADDER, "nobody").unlisted.rule == "idle_days"


def test_many_who_leave_at_the_same_moment(make: Make) -> None:
    """More leave than in one transaction: all of them do, and those who played later stay."""
    clock = Clock()
    rig = make(BOTH, clock)
    rig.apply([played(f"same{i}", 1) for i in range(7)])
    rig.apply([played("later", 2, at_s=START_S + 1)])
    clock.now_s = START_S + 20.0 * DAY_S
    assert rig.writer.sweep()
    assert rig.ask("ladder", LADDER).listed == 6
    # One who plays before it is taken out stays; one who was taken out comes back.
    rig.apply([played(name, 3, at_s=clock.now_s) for name in ("same0", "same6")])
    rig.sweep()
    assert rig.board() == ["later", "same0", "same6"]


def test_players_of_many_ladders_leave(make: Make) -> None:
    """All of them leave, although one sweep removes few, of whatever ladders."""
    clock = Clock()
    rig = make(BOTH, clock)
    some = [msgspec.structs.replace(played("ann", i), ladder=f"l{i}") for i in range(5)]
    rig.apply(some)
    assert not rig.writer.sweep()
    clock.now_s = START_S + 20.0 * DAY_S
    for left in (3, 1, 0):
        rig.writer.sweep()
        assert sum(len(rig.board(each.ladder)) for each in some) == left


def test_tiers_of_events(make: Make) -> None:
    """Each event has its tier and the one before. Without tiers or views, answers have no tier."""
    clock = Clock()
    rig = make(BOTH, clock)
    ratings = {3: 1100.0, 4: 1250.0, 5: 1150.0, 6: 1000.0}
    some = [played("ann", at, rating, rounds=at) for at, rating in ratings.items()]
    found = rig.apply(some)
    tiers = [found[LADDER, "ann", at].placement for at in ratings]
    assert [(each.previous_tier, each.tier) for each in tiers] == [
        (None, "bronze"), ("bronze", "silver"), ("silver", "silver"), ("silver", "bronze"),
    ]  # fmt: skip
    assert make(a_ladder(LISTING), clock, "other").apply(some) == {}
    views = BOTH.views(LADDER)
    once = apply_events(LadderIndex({}, LadderSummary()), some, views)
    assert apply_events(once, some[-1:], views).players == once.players, "read once more"
    rig = make(a_ladder(), clock, "none")
    rig.apply([an_event("ann", 1)])
    for answer in (
        rig.ask("player", LADDER, "ann"), rig.ask("lookup", LADDER, ["ann", "eve"]),
        rig.ask("leaderboard", LADDER, 5, None, None),
    ):  # fmt: skip
        assert b"tier" not in msgspec.json.encode(answer)


# --- other views ----------------------------------------------------------------------------------


def test_a_kill_while_players_are_placed_again(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """The next start places all of them, and none twice."""
    clock, rows = Clock(), [played(f"p{i}", i, 1000.0 + i) for i in range(7)]
    make(BOTH, clock).apply(rows)
    looser, some_again = a_ladder(Listing(min_rounds=1)), IndexWriter._place_some_again
    calls: list[Any] = []

    def killed(*given: Any) -> Any:
        calls.append(given)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return some_again(*given)

    with monkeypatch.context() as patched:
        patched.setattr(IndexWriter, "_place_some_again", killed)
        with pytest.raises(KeyboardInterrupt):
            make(looser, clock)
    for each in folder._stores.copy().values():
        folder.closed(each)
    assert make(looser, clock).board() == [each.player for each in reversed(rows)]


def test_tiers_of_events_that_are_read_again(make: Make) -> None:
    """After a start only the newest event of each player has a known tier."""
    some = [played("ann", 1, 1100.0), played("ann", 2, 1300.0), played("bob", 3, 1600.0)]
    rig = make(BOTH, Clock())
    assert sorted(offset for _, _, offset in rig.apply(some)) == [1, 2, 3]
    rig = make(BOTH, Clock())
    found = rig.writer.apply([((0, i), event) for i, event in enumerate(some)], [3])
    tiers = {at: each.placement and each.placement.tier for (_, _, at), each in found.items()}
    assert tiers == {2: "silver", 3: "gold"}
