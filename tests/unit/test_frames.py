"""Tables as Arrow, pandas and Polars: results as columns; input of `rate_table` and `rate_file`."""

import copy
import pickle
import subprocess
import sys
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

from local.tools import ROOT
from stream_rater import Ladder, MissingExtra, OtherLadder
from stream_rater.library.tables import Columns
from tests.builders.cases import cases

AT = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


def ladder() -> Ladder:
    """On which ann has won, and bob and cy did not finish."""
    found = Ladder()
    found.rate(["ann", ("bob", "cy"), "dee"], [1, None, 2], completed_at=AT, round_id="r")
    found.rate(["dee", "ann"], completed_at=AT)
    return found


TABLES: dict[str, Callable[[Ladder], Columns]] = {
    "result": lambda of: of.what_if(["ann", "eve", ("bob", "cy")], [None, 1, 1]),
    "uninformative": lambda of: of.what_if(["ann", "bob"], [None, None]),
    "players": lambda of: of.players, "leaderboard": lambda of: of.leaderboard(),
    "nobody": lambda _: Ladder().leaderboard(),
    "prediction": lambda of: of.predict(["ann", ("bob", "cy")]),
    "history": lambda of: of.history("cy"), "calibration": lambda of: of.calibration(0.0),
    "no-calibration": lambda _: Ladder().calibration(),
}  # fmt: skip


KINDS: dict[str, tuple[Any, str, Any]] = {
    "player": (pa.string(), "str", pl.String), "round_id": (pa.string(), "str", pl.String),
    "code": (pa.string(), "str", pl.String),
    "players": (pa.list_(pa.string()), "object", pl.List(pl.String)),
    "completed_at": (pa.timestamp("s", "UTC"), "datetime64[s, UTC]", pl.Datetime("ms", "UTC")),
    "mu": (pa.float64(), "float64", pl.Float64), "rounds": (pa.int64(), "int64", pl.Int64),
    "side": (pa.int64(), "int64", pl.Int64), "sides": (pa.int64(), "int64", pl.Int64),
    "line": (pa.int64(), "int64", pl.Int64), "provisional": (pa.bool_(), "bool", pl.Boolean),
}  # fmt: skip
"""By column, its type in Arrow, pandas and Polars."""
KINDS["last_completed_at"] = KINDS["completed_at"]


@cases("table", TABLES)
def test_frames_have_the_rows_of_the_table(table: str) -> None:
    """Columns have their order and type, also without rows: ids are texts, times are in UTC."""
    found = TABLES[table](ladder())
    rows = [
        {
            name: datetime.fromisoformat(value) if name.endswith("completed_at") else value
            for name, value in row.items()
        }
        for row in found.to_dicts()
    ]
    arrow, pandas, polars = found.to_arrow(), found.to_pandas(), found.to_polars()
    names = list(found.columns())
    assert arrow.column_names == list(pandas.columns) == polars.columns == names
    assert _listed(arrow.to_pylist()) == rows
    assert _listed(polars.to_dicts()) == rows
    assert _listed(pandas.astype(object).where(pandas.notna(), None).to_dict("records")) == rows
    assert len(arrow) == len(pandas) == len(polars) == len(found)
    _check_types(found)


def _listed(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Rows with lists of ids as tuples, as they are in the table."""
    return [
        {name: tuple(value) if isinstance(value, list) else value for name, value in row.items()}
        for row in rows
    ]


def _check_types(found: Columns) -> None:
    arrow, pandas, polars = found.to_arrow(), found.to_pandas(), found.to_polars()
    for name in found.columns():
        if name in KINDS:
            types = arrow.schema.field(name).type, str(pandas.dtypes[name]), polars.schema[name]
            assert types == KINDS[name], name


def test_a_rank_is_null_where_the_side_did_not_finish() -> None:
    """A number of places above 0 stays a whole number in pandas, too."""
    found = ladder().what_if(["ann", "eve", ("bob", "cy")], [None, 1, 1])
    assert found.rank.tolist() == [0, 1, 1, 1]
    assert found.to_arrow()["rank"].null_count == 1
    assert found.to_arrow().schema.field("rank").type == pa.int64()
    assert found.to_polars()["rank"].to_list() == [None, 1, 1, 1]
    rank = found.to_pandas()["rank"]
    assert str(rank.dtype) == "Int64" and rank.isna().tolist() == [True, False, False, False]
    assert ladder().history("cy").to_polars()["rank"].to_list() == [None]
    assert [row["rank"] for row in ladder().history("cy").to_dicts()] == [None]


def test_refused_lines_are_a_table(tmp_path: Path) -> None:
    """With the rows of `refusals`."""
    (tmp_path / "bad.jsonl").write_bytes(b'{"round_id": "r"\n')
    found = Ladder().rate_file(tmp_path / "bad.jsonl").refused_lines
    assert found.to_polars().rows() == [tuple(row.values()) for row in found.to_dicts()]
    assert found.to_pandas()["code"].tolist() == ["malformed"]
    _check_types(found)


def test_a_frame_is_a_copy() -> None:
    """To change a frame of pandas does not change the table."""
    found = ladder().what_if(["ann", "bob"], [1, None])
    before = found.to_dicts()
    frame: Any = found.to_pandas()
    frame["mu"] = 0.0
    frame.loc[:, "rank"] = 7
    assert found.to_dicts() == before


PACKAGES = {
    "pyarrow": ("to_arrow", "stream-rater[arrow] brings it"),
    "pandas": ("to_pandas", "`pip install pandas` brings it"),
    "polars": ("to_polars", "`pip install polars` brings it"),
}


@cases("package", PACKAGES)
def test_without_the_package_one_line_says_so(package: str) -> None:
    """And how to install it. The other two do without it."""
    call, cure = PACKAGES[package]
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, package, None)
        found = ladder().players
        with pytest.raises(MissingExtra) as error:
            getattr(found, call)()
        assert str(error.value) == f"{package} is not installed: {cure}"
        for name in {name for name, _ in PACKAGES.values()} - {call}:
            assert len(getattr(found, name)()) == 4


CALLER = """
from stream_rater import Ladder

def best(ladder: Ladder) -> list[str]:
    frame = ladder.leaderboard(3).to_pandas()
    ladder.players.to_arrow()
    ladder.players.to_polars()
    ladder.plot("ann").figure
    names: list[str] = list(frame["player"])
    return names

def mistake(ladder: Ladder) -> None:
    ladder.players.to_frame()
"""


@pytest.mark.slow
def test_types_hold_without_the_packages(tmp_path: Path) -> None:
    """`mypy --strict` finds a caller's own mistake, and no other, where nothing is installed."""
    (tmp_path / "caller.py").write_text(CALLER)
    words = ["--strict", "--no-site-packages", "--follow-imports", "silent", "--config-file", "",
             "--cache-dir", str(tmp_path / "cache"), "--no-error-summary"]  # fmt: skip
    done = subprocess.run(
        [sys.executable, "-m", "mypy", *words, "caller.py"], cwd=tmp_path,
        env={"MYPYPATH": str(ROOT)}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.stdout == (
        'caller.py:13: error: "Players" has no attribute "to_frame"  [attr-defined]\n'
    )


# --- tables in: frames of several packages --------------------------------------------------------

COLUMNS: dict[str, list[Any]] = {
    "match_id": [11, 12, 13], "date": [datetime(2026, 1, day, 12) for day in (1, 3, 2)],
    "player1": ["ann", "bob", "ann"], "player2": ["bob", "cy", "cy"], "score1": [3, 0, 1],
    "score2": [1, 0, 2],
}  # fmt: skip
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


FRAMES: dict[str, Callable[[], Any]] = {
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


@cases("kind", FRAMES)
def test_all_frames_are_the_same(kind: str) -> None:
    one, other = Ladder(), Ladder()
    assert one.rate_table(FRAMES[kind]()).rounds == 3
    for at in (0, 2, 1):  # in order of time
        score1, score2 = COLUMNS["score1"][at], COLUMNS["score2"][at]
        ranks = [1 + (score1 < score2), 1 + (score2 < score1)]
        sides = [COLUMNS["player1"][at], COLUMNS["player2"][at]]
        when = f"{COLUMNS['date'][at]:%Y-%m-%dT%H:%M:%SZ}"
        other.rate(sides, ranks, completed_at=when, round_id=str(COLUMNS["match_id"][at]))
    assert state(one) == state(other)


def test_start_gg() -> None:
    """Flattened sets: which of two columns has the player is asked in the terms of Python."""
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


@cases("table, expected", [
    (17, "int is no table: give a dict of columns, or a frame with __arrow_c_stream__"),
    ({"winner": ["a"], "loser": []}, "table: its columns differ in length: winner 1, loser 0"),
])  # fmt: skip
def test_what_is_no_table(table: Any, expected: str) -> None:
    """Is named in one line, and the ladder has not changed."""
    ladder = Ladder()
    with pytest.raises(OSError, match=expected):
        ladder.rate_table(table)
    assert len(ladder) == 0


def test_tables_in_without_pyarrow(monkeypatch: pytest.MonkeyPatch) -> None:
    """Frames of pandas and Polars need none; for others the extra is named."""
    tables = [pd.DataFrame(COLUMNS), pl.DataFrame(COLUMNS), COLUMNS]
    other = OnlyInterchange()
    monkeypatch.setitem(__import__("sys").modules, "pyarrow", None)
    for each in tables:
        assert Ladder().rate_table(each).rounds == 3
    with pytest.raises(OSError, match=r"OnlyInterchange: pyarrow is not installed: .*\[arrow\]"):
        Ladder().rate_table(other)


def test_arguments() -> None:
    with pytest.raises(ValueError, match="score: 'hi': give one of high, low"):
        Ladder().rate_table(COLUMNS, score="hi")
    with pytest.raises(ValueError, match="'gamer' is no role"):
        Ladder().rate_table(COLUMNS, columns={"gamer": "player1"})


def files(folder: Path) -> tuple[Path, Path]:
    pd.DataFrame(COLUMNS).to_csv(folder / "duel.csv", index=False)
    parquet.write_table(pa.table(COLUMNS), folder / "duel.parquet")
    return folder / "duel.csv", folder / "duel.parquet"


def test_files_of_tables(tmp_path: Path) -> None:
    """CSV and Parquet give what a frame gives. The ladder has the file's name, or its own id."""
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


def test_a_table_is_read_again_if_a_column_decides_late() -> None:
    """By its columns, or by a stream that can be opened again; a stream that cannot is refused."""
    columns = {
        "date": ["03/04/2020", "12/31/2019"], "winner": ["ann", "bob"], "loser": ["bob", "ann"],
    }  # fmt: skip
    table = pa.table(columns)
    for each in (columns, table, pd.DataFrame(columns), duckdb.arrow(table)):
        ladder = Ladder()
        found = ladder.rate_table(each)
        assert ladder.history("ann").round_id.tolist() == ["table-2", "table-1"]
        assert found.readings[1:] == ("table: date: '03/04/2020' is 2020-03-04 by mdy",)
    with pytest.raises(OSError, match="other rows at a second reading"):
        Ladder().rate_table(table.to_reader())
    with pytest.raises(ValueError, match='say dates="dmy" or dates="mdy"'):
        Ladder().rate_table({key: each[:1] for key, each in columns.items()})
