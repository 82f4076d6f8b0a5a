"""Rounds given as Python values or as tables are rated as the same rounds in a file: by every
system the numbers and the records are the same."""

import csv
import json
import pickle
from collections.abc import Sequence
from datetime import UTC, datetime
from itertools import chain, pairwise, zip_longest
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple
from unicodedata import normalize

import msgspec
import pandas as pd
import polars as pl
import pyarrow as pa
from hypothesis import example, given, settings
from hypothesis import strategies as st
from pyarrow import parquet

from stream_rater import Ladder
from stream_rater.config.ladders import any_ladder
from stream_rater.rating.parameters import EloMMR, RatingConfig, TwoMoment
from stream_rater.replay.edited_log import records_of
from stream_rater.replay.rating_changes import changes_of
from stream_rater.replay.sequential import Replay
from stream_rater.runtime.selfcheck import SYSTEMS
from stream_rater.tables.doubts import NOBODY
from tests.builders.cases import cases, tag
from tests.builders.commands import done
from tests.rounds import day

DRIFTING = EloMMR(
    weight_limit=0.1, sigma_limit=60.0, rho="inf", ties="split", newcomer_weights=(0.5, 0.7),
    drift_per_day=9.0, skip_all_tied=True, history=3,
)  # fmt: skip
PLAIN = TwoMoment(
    newcomer_offset=0.0, newcomer_field=0.0, inexperience=0.0, draw_width=90.0, upset=0.1,
    variance_factor=1.3, history=7,
)  # fmt: skip
NAMES = ["ann", "bob", "cy", "dee", "eve", "Straße", "a\nb", 'q"', "7", "ä" * 64]
LADDER = "notebook"
OF_AN_EVENT = (
    "player", "rank", "mu", "sigma", "previous_mu", "previous_sigma", "performance", "rating",
    "previous_rating", "rounds", "provisional",
)  # fmt: skip
"""The fields of `rating-changed` that are columns of a result as well."""


class Given(NamedTuple):
    """A round as `Ladder.rate` takes it."""

    sides: list[Any]
    ranks: list[int | None]
    shares: list[Any] | None
    weight: float
    ceiling: float | None
    day: int


def plain(random: Random) -> Given:
    """A round in its plainest form: players or teams of one size."""
    sides, members = random.choice([(2, 1), (2, 1), (4, 1), (2, 2), (2, 5), (3, 3)])
    ranks: list[int | None] = random.choices([1, 2, 3], k=sides)
    names, weight = random.sample(NAMES, sides * members), random.choice([1.0, 2, 0.1 + 0.2])
    teams: list[Any] = [names[i::sides] for i in range(sides)]
    return Given(names if members == 1 else teams, ranks, None, weight, None, random.randrange(30))


@st.composite
def rounds(draw: st.DrawFn) -> Given:
    """A round in any form: names alone or in tuples, teams, ties, shares, unfinished entries."""
    if draw(st.booleans()):
        return plain(draw(st.randoms(use_true_random=False)))
    names = draw(st.lists(st.sampled_from(NAMES), min_size=2, max_size=9, unique=True))
    edges = [0, *sorted(draw(st.sets(st.integers(1, len(names) - 1), min_size=1))), len(names)]
    sides: list[Any] = [tuple(names[a:b]) for a, b in pairwise(edges)]
    parts = st.sampled_from([1, 0.5, 0.1 + 0.2, 1e-6])
    shares = [
        draw(st.none() | st.lists(parts, min_size=len(side), max_size=len(side))) for side in sides
    ]
    sides = [side[0] if len(side) == 1 and draw(st.booleans()) else side for side in sides]
    ranks = [draw(st.sampled_from([None, 1, 2, 2, 3, 7])) for _ in sides]
    return Given(
        sides, ranks, draw(st.sampled_from([None, shares])),
        draw(st.sampled_from([1.0, 2, 0.1 + 0.2])), draw(st.sampled_from([None, 1400.0])),
        draw(st.integers(0, 30)),
    )  # fmt: skip


def line_of(number: int, given_: Given) -> bytes:
    """The same round as a line of a file."""
    shares = given_.shares or [None] * len(given_.sides)
    standings = []
    for side, rank, parts in zip(given_.sides, given_.ranks, shares, strict=True):
        entry: dict[str, Any] = {"player": side} if isinstance(side, str) else {"team": side}
        entry |= {"dnf": True} if rank is None else {"rank": rank}
        standings.append(entry | ({} if parts is None else {"shares": parts}))
    fields: dict[str, Any] = {"round_id": f"r{number}", "ladder": LADDER}
    fields["completed_at"] = day(given_.day)
    fields |= {} if given_.ceiling is None else {"performance_ceiling": given_.ceiling}
    return json.dumps({**fields, "weight": given_.weight, "standings": standings}).encode()


def ladder_of(rating: RatingConfig) -> Ladder:
    """A ladder with these parameters, given as keywords."""
    table = msgspec.to_builtins(rating)
    return Ladder(**{name: value for name, value in table.items() if value is not None})


@given(some=st.lists(rounds(), min_size=1, max_size=6))
@example(some=[Given([("ann",), ("bob", "cy"), "dee"], [1, 2, 2], None, 1.0, None, 0)])
@example(some=[Given(["ann", "bob"], [None, None], None, 1.0, None, 0)])
@example(some=[plain(Random(i)) for i in range(60)])
@settings(max_examples=8)
@cases("rating", [*SYSTEMS, DRIFTING, PLAIN], tag)
def test_as_from_a_file(rating: RatingConfig, some: list[Given]) -> None:
    """Each number of each result is equal, and each belief as the service stores it."""
    ladder, replay = ladder_of(rating), Replay(any_ladder(rating), 1000)
    assert ladder.parameters == rating
    for number, each in enumerate(some):
        result = ladder.rate(
            each.sides, each.ranks, shares=each.shares, weight=each.weight,
            performance_ceiling=each.ceiling, completed_at=day(each.day), round_id=f"r{number}",
        )  # fmt: skip
        (record,) = records_of([line_of(number, each)], number)
        events = {event.player: event for event in changes_of(replay.feed([record]))}
        reported = [{name: row[name] for name in OF_AN_EVENT} for row in result.to_dicts()]
        in_order = [
            (player, number)
            for number, side in enumerate(each.sides)
            for player in ([side] if isinstance(side, str) else side)
            if player in events
        ]
        assert list(zip(result.player, result.side, strict=True)) == in_order
        wanted = [events[player] for player, _ in in_order]
        assert reported == [{name: getattr(e, name) for name in OF_AN_EVENT} for e in wanted]
    random, pairs = Random(1), [[*pair] for pair in pairwise([*NAMES, "new"])]
    for sides in (*pairs, *(plain(random).sides for _ in range(10))):
        short, usual = (ladder.predict(sides, shares=by) for by in (None, [None] * len(sides)))
        assert short.win.tolist() == usual.win.tolist() and repr(short) == repr(usual)
        assert short.pairwise.tobytes() == usual.pairwise.tobytes()
        assert (short.draw, short.quality) == (usual.draw, usual.quality)
    again = pickle.loads(pickle.dumps(ladder))  # by its log
    assert again.players.to_dicts() == ladder.players.to_dicts()
    pool = replay.pools.get(LADDER)
    assert list(ladder) == ([] if pool is None else pool.players())
    for player in ladder:
        assert pool is not None and ladder.record(player) == pool.belief_bytes(player)


# --- tables ---------------------------------------------------------------------------------------

IDS = st.text(
    st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1, max_size=8
).filter(str.strip)
TABLE_IDS = IDS.filter(lambda each: each == normalize("NFC", each.strip()) and each not in NOBODY)
"""Ids that are unchanged when they are read from a table."""
TIMES = st.integers(0, 4_000_000_000)
ORDER = ["player", "team", "rank", "dnf", "shares", "score", "seat"]


def entries(players: Sequence[str], draw: Any) -> list[dict[str, Any]]:
    """Entries of players alone and in teams."""
    found: list[dict[str, Any]] = []
    left = list(players)
    while left:
        size = draw(st.integers(1, 2)) if len(left) > 2 else 1
        own, left = left[:size], left[size:]
        each: dict[str, Any] = {"player": own[0]} if size == 1 else {"team": own}
        rank = draw(st.none() | st.integers(1, 9))
        each |= {"dnf": True} if rank is None else {"rank": rank}
        if size > 1 and draw(st.booleans()):
            each["shares"] = [0.5, 1.0]
        if draw(st.booleans()):
            each |= {"score": draw(st.integers(-9, 9) | st.just(0.25)), "seat": draw(TABLE_IDS)}
        found.append({name: each[name] for name in ORDER if name in each})
    return found


@st.composite
def seasons(draw: Any) -> list[dict[str, Any]]:
    """Rounds of one ladder, in order of time."""
    count, ladder = draw(st.integers(1, 6)), draw(TABLE_IDS)
    found = []
    for number, at in enumerate(sorted(draw(st.lists(TIMES, min_size=count, max_size=count)))):
        players = draw(st.lists(TABLE_IDS, min_size=2, max_size=5, unique=True))
        time = f"{datetime.fromtimestamp(at, UTC):%Y-%m-%dT%H:%M:%SZ}"
        one = {"round_id": f"{number}-{draw(TABLE_IDS)}", "ladder": ladder, "completed_at": time,
               "standings": entries(players, draw)}  # fmt: skip
        weight = draw(st.sampled_from([1, 2, 0.5]))
        found.append(one if weight == 1 else {**one, "weight": weight})
    return found


COLUMNS = ["ladder", "round_id", "completed_at", "round_weight", "team", "player", "rank", "dnf",
           "share", "score", "seat"]  # fmt: skip


def rows_of(one: dict[str, Any]) -> list[dict[str, Any]]:
    """A round as rows of the long form of a table."""
    found = []
    for number, each in enumerate(one["standings"]):
        players = each.get("team") or [each["player"]]
        shares = each.get("shares") or [1.0] * len(players)
        for player, share in zip(players, shares, strict=True):
            found.append({
                **{name: one[name] for name in COLUMNS[:3]}, "round_weight": one.get("weight", 1),
                "team": f"team {number}" if "team" in each else None, "player": player,
                "rank": each.get("rank"), "dnf": each.get("dnf", False), "share": share,
                "score": each.get("score"), "seat": each.get("seat"),
            })  # fmt: skip
    return found


@settings(max_examples=15)
@given(season=seasons())
def test_a_table_gives_the_events_that_it_was_made_of(season: Any) -> None:
    """Records and `rate` give the same bytes from Parquet and from CSV, in any order of rows."""
    of_rounds = list(map(rows_of, season))
    mixed = [row for some in zip_longest(*of_rounds) for row in some if row is not None]
    columns = {name: [row[name] for row in chain(*of_rounds)] for name in COLUMNS}
    with TemporaryDirectory() as folder:
        path = Path(folder)
        with (path / "a.csv").open("w", newline="") as file:
            writer = csv.DictWriter(file, COLUMNS)
            writer.writeheader()
            writer.writerows(mixed)
        parquet.write_table(arrow(columns), path / "a.parquet")
        lines = done("convert", path / "a.csv", "-").split("\n")[:-1]
        assert list(map(json.loads, lines)) == season
        done("convert", path / "a.csv", path / "a.jsonl")
        files = [path / f"a.{kind}" for kind in ("csv", "parquet", "jsonl")]
        assert len({done("rate", file, "--records") for file in files}) == 1
        ladders = [Ladder() for _ in range(5)]
        ladders[0].rate_file(path / "a.jsonl")
        ladders[1].rate_table(columns)
        ladders[2].rate_table(arrow(columns))
        ladders[3].rate_table(pl.from_arrow(arrow(columns)))
        frame = pd.DataFrame(columns).astype({"rank": "Int64"})
        ladders[4].rate_table(frame.assign(completed_at=pd.to_datetime(frame["completed_at"])))
        expected = {player: ladders[0].record(player) for player in ladders[0]}
        for each in ladders:
            assert {player: each.record(player) for player in each} == expected


def arrow(columns: dict[str, list[Any]]) -> Any:
    """An Arrow table, whose times are of Arrow's type."""
    times = [datetime.fromisoformat(each) for each in columns["completed_at"]]
    types = {
        "completed_at": pa.timestamp("ms", "UTC"), "round_weight": pa.float64(),
        "score": pa.float64(), "rank": pa.int64(), "team": pa.string(), "seat": pa.string(),
    }  # fmt: skip
    named = {**columns, "completed_at": times}.items()
    return pa.table({name: pa.array(values, types.get(name)) for name, values in named})
