"""`Ladder.rate_table` and `rate_file` of tables: frames of several packages, and their mistakes."""

import copy
import pickle
from collections.abc import Callable
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from pyarrow import parquet

from stream_rater import Ladder, OtherLadder
from tests.builders.sweeps import sweep

COLUMNS: dict[str, list[Any]] = {
    "match_id": [11, 12, 13],
    "date": [datetime(2026, 1, day, 12) for day in (1, 3, 2)],
    "player1": ["ann", "bob", "ann"],
    "player2": ["bob", "cy", "cy"],
    "score1": [3, 0, 1],
    "score2": [1, 0, 2],
}
SETS = [
    {"id": 1000 + i, "completedAt": 1588885000 + i, "slots": [
        {"id": f"{i}-0", "entrant": {"id": 1 + i % 2, "name": "Ann"},
         "standing": {"placement": 1, "stats": {"score": {"value": 2}}}},
        {"id": f"{i}-1", "entrant": {"id": 50, "name": "Bob"},
         "standing": {"placement": 2, "stats": {"score": {"value": -1}}}},
    ]}
    for i in range(4)
]  # fmt: skip
"""As the API of start.gg gives them."""


def state(ladder: Ladder) -> dict[str, bytes]:
    return {player: ladder.record(player) for player in sorted(ladder)}


def in_nanoseconds() -> pa.Table:
    times = [int(each.replace(tzinfo=UTC).timestamp()) * 10**9 + 7 for each in COLUMNS["date"]]
    return pa.table({**COLUMNS, "date": pa.array(times, pa.timestamp("ns"))})


class OnlyInterchange:
    """A frame of an unknown package."""

    def __dataframe__(self, **words: Any) -> Any:
        return pa.table(COLUMNS).__dataframe__(**words)


KINDS: dict[str, Callable[[], Any]] = {
    "dict": lambda: COLUMNS,
    "numpy": lambda: {
        **COLUMNS, "date": np.array(COLUMNS["date"], "datetime64[ns]"),
        "score1": np.array(COLUMNS["score1"]),
    },
    "pandas": lambda: pd.DataFrame(COLUMNS),
    "polars": lambda: pl.DataFrame(COLUMNS),
    "lazy": lambda: pl.LazyFrame(COLUMNS),
    "arrow": lambda: pa.table(COLUMNS),
    "nanoseconds": in_nanoseconds,
    "reader": lambda: pa.table(COLUMNS).to_reader(1),
    "duckdb": lambda: duckdb.from_arrow(pa.table(COLUMNS)),
    "interchange": OnlyInterchange,
    "columns": lambda: dict(zip(COLUMNS, pa.table(COLUMNS).columns, strict=True)),
}  # fmt: skip


@sweep("kind", KINDS)
def test_all_frames_are_the_same(kind: str) -> None:
    """Whatever the package."""
    one, other = Ladder(), Ladder()
    assert one.rate_table(KINDS[kind]()).rounds == 3
    for at in (0, 2, 1):  # in order of time
        score1, score2 = COLUMNS["score1"][at], COLUMNS["score2"][at]
        ranks = [1 + (score1 < score2), 1 + (score2 < score1)]
        sides = [COLUMNS["player1"][at], COLUMNS["player2"][at]]
        when = f"{COLUMNS['date'][at]:%Y-%m-%dT%H:%M:%SZ}"
        other.rate(sides, ranks, completed_at=when, round_id=str(COLUMNS["match_id"][at]))
    assert state(one) == state(other)


def test_start_gg() -> None:
    """Sets as pandas flattens them: which of two columns is the player is asked in Python's
    words."""
    frame = pd.json_normalize(SETS, "slots", ["id", "completedAt"], meta_prefix="set.")
    with pytest.raises(ValueError, match=(
        r'^table: player may be entrant\.id or entrant\.name: say which, as '
        r'columns=\{"player": "entrant\.id"\}$'
    )):  # fmt: skip
        Ladder().rate_table(frame)
    ladder = Ladder()
    found = ladder.rate_table(frame, ladder="melee", columns={"player": "entrant.id"})
    assert (found.path, found.ladder, found.rounds, found.refused) == ("table", "melee", 4, 0)
    assert list(ladder) == ["1", "50", "2"]
    assert ladder["1"].last_completed_at == "2020-05-07T20:56:42Z"


def test_fractions_are_no_ids() -> None:
    """The cure for whole numbers that pandas made fractions is in the error of each row."""
    frame = pd.DataFrame({"round": ["r", "r"], "player": [17, None], "rank": [1, 2]})
    (found,) = Ladder().rate_table(frame).refusals
    assert (found.line, found.code) == (1, "bad-id")
    assert found.message.startswith("column player: 17.0 is a fraction, not an id: whole numbers")
    assert ".astype('Int64')" in found.message
    ladder = Ladder()
    frame = pd.DataFrame({"round": ["r", "r"], "player": [17, 18], "rank": [1, 2]})
    ladder.rate_table(frame.astype({"player": "Int64"}))
    assert list(ladder) == ["17", "18"]


def test_rows_that_are_no_round() -> None:
    """Are named by their rows, before and after they became events, across record batches."""
    table = pa.table({
        "match": ["a", "b", "a", "c"], "date": [date(2026, 1, 9 - i) for i in range(4)],
        "winner": ["x", None, "x", "z"], "loser": ["y", "y", "y", "z"],
    })  # fmt: skip
    found = Ladder().rate_table(table.to_reader(2), columns={"round": "match"})
    assert [(each.line, each.code, each.message) for each in found.refusals] == [
        (2, "bad-id", "column winner: empty"),
        (4, "duplicate-player", "player 'z' stands in the round twice"),
        (1, "duplicate-round", "round_id 'a' stands in row 3"),
    ]
    assert (found.rounds, found.refused) == (1, 3)


@sweep("table, expected", [
    (17, "int is no table: give a dict of columns, or a frame with __arrow_c_stream__"),
    ({"winner": ["a"], "loser": []}, "table: its columns differ in length: winner 1, loser 0"),
])  # fmt: skip
def test_what_is_no_table(table: Any, expected: str) -> None:
    """Is named in one line, and the ladder has not changed."""
    ladder = Ladder()
    with pytest.raises(OSError, match=expected):
        ladder.rate_table(table)
    assert len(ladder) == 0


def test_without_pyarrow(monkeypatch: pytest.MonkeyPatch) -> None:
    """Frames of pandas and Polars need none; for others the extra is named."""
    tables = [pd.DataFrame(COLUMNS), pl.DataFrame(COLUMNS), COLUMNS]
    other = OnlyInterchange()
    monkeypatch.setitem(__import__("sys").modules, "pyarrow", None)
    for each in tables:
        assert Ladder().rate_table(each).rounds == 3
    with pytest.raises(OSError, match=r"OnlyInterchange: pyarrow is not installed: .*\[arrow\]"):
        Ladder().rate_table(other)


def test_arguments() -> None:
    """A wrong one is an error of its own."""
    with pytest.raises(ValueError, match="score: 'hi': give one of high, low"):
        Ladder().rate_table(COLUMNS, score="hi")
    with pytest.raises(ValueError, match="'gamer' is no role"):
        Ladder().rate_table(COLUMNS, columns={"gamer": "player1"})


def files(folder: Path) -> tuple[Path, Path]:
    """The rounds as CSV and as Parquet."""
    pd.DataFrame(COLUMNS).to_csv(folder / "duel.csv", index=False)
    parquet.write_table(pa.table(COLUMNS), folder / "duel.parquet")
    return folder / "duel.csv", folder / "duel.parquet"


def test_files_of_tables(tmp_path: Path) -> None:
    """CSV and Parquet give what a frame gives; the ladder's id is the file's name, or that of the
    ladder."""
    expected = Ladder()
    expected.rate_table(COLUMNS)
    for path in files(tmp_path):
        ladder = Ladder()
        assert ladder.rate_file(path).ladder == "duel"
        assert state(ladder) == state(expected)
        named = Ladder()
        assert named.rate_file(path, ladder="x").ladder == "x"
        assert named.rate_table({**COLUMNS, "match_id": [1, 2, 3]}).ladder == "x"
        with pytest.raises(OtherLadder):
            named.rate_file(path, ladder="y")
    with pytest.raises(ValueError, match="columns and score are for tables"):
        Ladder().rate_file(__file__, columns={"player": "x"})


def test_a_correction_reads_tables_again(tmp_path: Path) -> None:
    """Files and frames that were rated before it; a copy has them, too."""
    path, _ = files(tmp_path)
    later = {**COLUMNS, "match_id": [21, 22, 23]}
    ladder, expected = Ladder(), Ladder()
    ladder.rate_file(path)
    ladder.rate_table(later)
    copies = [copy.deepcopy(ladder), pickle.loads(pickle.dumps(ladder))]
    removed = tmp_path / "removed.jsonl"
    removed.write_text('{"event_type": "player-removed", "ladder": "duel", "player": "cy"}\n')
    for each in (ladder, *copies):
        each.rate_file(removed)
        assert sorted(each) == ["ann", "bob"]
    expected.rate_file(path)
    expected.rate_table(later)
    expected.rate_file(removed)
    assert state(ladder) == state(copies[0]) == state(copies[1]) == state(expected)
    path.write_text(path.read_text() + "\n")
    with pytest.raises(OSError, match="has changed since it was rated"):
        ladder.rate_file(removed)
