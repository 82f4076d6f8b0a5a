"""Who is listed and in which tier, in both indexes, beside a plain table, while ratings move and
time passes."""

import asyncio
import math
import random
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec import UNSET

from stream_rater.config.ladders import Ladders
from stream_rater.config.settings import Settings
from stream_rater.config.views import DAY_S, Listing
from stream_rater.contract.events import CorrectionCause, RatingChanged
from stream_rater.serve.bodies import MOST_ROWS
from stream_rater.serve.entries import PlayerErased
from stream_rater.serve.index import file_index
from stream_rater.serve.index import writer as index_writer
from stream_rater.serve.problems import Refused
from tests import real
from tests.contract.test_serve_index import LADDER, an_event, brute
from tests.contract.views_rigs import (
    BOTH,
    DRIFT,
    LISTING,
    NAMES,
    START_S,
    TIERS,
    Clock,
    FileRig,
    RedisRig,
    a_ladder,
    at_time,
)

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


def assert_equal(rig: Any, table: Table, at_s: float, limit: int) -> None:
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


@pytest.mark.parametrize("seed", range(3))
def test_a_plain_table_says_the_same(make: Make, seed: int) -> None:
    """Random events, corrections and erasures, while the clock moves by hours or weeks."""
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
            event = an_event(
                name, offset, rng.choice([900.0, 1150.0, 1230.0, 1490.0, 1500.0, 1600.0]),
                completed_at=at_time(clock.now_s), rounds=rng.choice([0, 2, 3, 5, 8, 20]),
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
    """Nor put back by a clock that is behind. Around somebody who is not listed there is no page;
    the error says why."""
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
    rig.apply([an_event("bob", 2, completed_at=at_time(START_S), rounds=2)])
    with pytest.raises(Refused, match=r"not listed: 2 of 3 rounds \(min_rounds\)"):
        rig.ask("leaderboard", LADDER, 5, None, "bob")


def test_times_of_last_rounds(make: Make) -> None:
    """Who has left long ago is never listed, also while an index is made again, before the first
    sweep. An event without a time stops nothing: a player whose last round has none counts as
    idle, and a time that is known stays."""
    clock = Clock()
    clock.now_s += 20 * DAY_S
    rig = make(BOTH, clock)
    times = {"idle": at_time(START_S - 1), "active": at_time(START_S + 1), "nobody": "soon"}
    for at, (name, time) in enumerate(times.items()):
        rig.apply([an_event(name, at, completed_at=time, sigma=80.0)])
    found = rig.ask("leaderboard", LADDER, 9, None, None)
    assert [row.player for row in found.rows] == ["active"] and found.listed == 1
    rig.apply([an_event("active", 3, completed_at="soon", sigma=80.0)])
    rig.sweep()
    assert rig.ask("player", LADDER, "active").rank == 1
    assert rig.ask("player", LADDER, "nobody").unlisted.rule == "idle_days"


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


def test_tiers_of_events(make: Make) -> None:
    """The player after each event, with the tier before: also if a batch has several events of the
    player. Without tiers there are none, and the answers of a ladder without views leave such
    fields out: they are not null."""
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
    assert make(a_ladder(LISTING), clock, "plain").apply(some) == {}
    rig = make(a_ladder(), clock, "without")
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
