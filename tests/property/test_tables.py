"""Tables and JSON lines with the same rounds are the same: events, ratings, records."""

import csv
import io
import json
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pandas as pd
import polars as pl
import pyarrow as pa
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import parquet

from stream_rater import Ladder
from stream_rater.cli import app

IDS = st.text(
    st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1, max_size=8
).filter(str.strip)
TIMES = st.integers(0, 4_000_000_000)
ORDER = ["player", "team", "rank", "dnf", "shares", "score", "seat"]


def entries(players: Sequence[str], draw: Any) -> list[dict[str, Any]]:
    """Of players alone and in teams."""
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
            each |= {"score": draw(st.integers(-9, 9) | st.just(0.25)), "seat": draw(IDS)}
        found.append({name: each[name] for name in ORDER if name in each})
    return found


@st.composite
def seasons(draw: Any) -> list[dict[str, Any]]:
    """Rounds in order of time, of one ladder."""
    count, ladder = draw(st.integers(1, 6)), draw(IDS)
    found = []
    for number, at in enumerate(sorted(draw(st.lists(TIMES, min_size=count, max_size=count)))):
        players = draw(st.lists(IDS, min_size=2, max_size=5, unique=True))
        time = f"{datetime.fromtimestamp(at, UTC):%Y-%m-%dT%H:%M:%SZ}"
        one = {"round_id": f"{number}-{draw(IDS)}", "ladder": ladder, "completed_at": time,
               "standings": entries(players, draw)}  # fmt: skip
        weight = draw(st.sampled_from([1, 2, 0.5]))
        found.append(one if weight == 1 else {**one, "weight": weight})
    return found


NAMES = ["ladder", "round_id", "completed_at", "weight", "team", "player", "rank", "dnf", "share",
         "score", "seat"]  # fmt: skip


def rows_of(season: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The long form."""
    found = []
    for one in season:
        for number, each in enumerate(one["standings"]):
            for k, player in enumerate(each.get("team") or [each["player"]]):
                team = f"team {number}" if "team" in each else None
                shares = each.get("shares")
                found.append({
                    **{name: one.get(name, 1) for name in NAMES[:4]}, "team": team,
                    "player": player, "rank": each.get("rank"), "dnf": each.get("dnf", False),
                    "share": shares[k] if shares else 1.0, "score": each.get("score"),
                    "seat": each.get("seat"),
                })  # fmt: skip
    return found


def run(*words: str) -> str:
    found = CliRunner().invoke(app.main, words)
    assert found.exit_code == 0, found.stderr
    return found.stdout


@settings(max_examples=40, deadline=None)
@given(season=seasons())
def test_a_table_gives_the_events_that_it_was_made_of(season: Any) -> None:
    """From CSV, also with the rows of different rounds mixed, and from Parquet. `rate` gives the
    same bytes for all of them, and `rate_table` the same records."""
    rows = rows_of(season)
    with TemporaryDirectory() as folder:
        path = Path(folder)
        text = io.StringIO()
        writer = csv.DictWriter(text, NAMES)
        writer.writeheader()
        writer.writerows(_interleaved(rows))
        (path / "a.csv").write_text(text.getvalue(), newline="")
        columns = {name: [row[name] for row in rows] for name in NAMES}
        parquet.write_table(arrow(columns), path / "a.parquet")
        lines = [
            json.loads(line) for line in run("convert", str(path / "a.csv"), "-").split("\n")[:-1]
        ]
        assert lines == season
        run("convert", str(path / "a.csv"), str(path / "a.jsonl"))
        rated = [
            run("rate", str(path / f"a.{kind}"), "--records")
            for kind in ("csv", "parquet", "jsonl")
        ]
        assert rated[0] == rated[1] == rated[2]
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
    """With times as times."""
    times = [datetime.fromisoformat(each) for each in columns["completed_at"]]
    made = {**columns, "completed_at": pa.array(times, pa.timestamp("ms", "UTC"))}
    return pa.table(
        {
            **made,
            "weight": pa.array(columns["weight"], pa.float64()),
            "score": pa.array(columns["score"], pa.float64()),
            "rank": pa.array(columns["rank"], pa.int64()),
            **{name: pa.array(columns[name], pa.string()) for name in ("team", "seat")},
        }
    )


def _interleaved(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The first rows of all rounds, then their second rows, and so on."""
    by_round: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        by_round.setdefault(row["round_id"], []).append(row)
    longest = max(map(len, by_round.values()))
    return [own[k] for k in range(longest) for own in by_round.values() if k < len(own)]
