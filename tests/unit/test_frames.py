"""Tables as Arrow, pandas and Polars: equal to the columns, with types that each of them knows."""

import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from local.tools import ROOT
from stream_rater import Ladder, MissingExtra
from stream_rater.library.tables import Columns
from tests.builders.sweeps import sweep

AT = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
REFUSED = b'{"round_id": "r"\n'


def ladder() -> Ladder:
    """On which ann has won, and bob and cy did not finish."""
    found = Ladder()
    found.rate(["ann", ("bob", "cy"), "dee"], [1, None, 2], completed_at=AT, round_id="r")
    found.rate(["dee", "ann"], completed_at=AT)
    return found


def refused(folder: Path) -> Columns:
    """The lines of a file that was rejected."""
    (folder / "bad.jsonl").write_bytes(REFUSED)
    return Ladder().rate_file(folder / "bad.jsonl").refused_lines


TABLES: dict[str, Callable[[Ladder], Columns]] = {
    "result": lambda of: of.what_if(["ann", "eve", ("bob", "cy")], [None, 1, 1]),
    "uninformative": lambda of: of.what_if(["ann", "bob"], [None, None]),
    "players": lambda of: of.players,
    "leaderboard": lambda of: of.leaderboard(),
    "nobody": lambda _: Ladder().leaderboard(),
    "prediction": lambda of: of.predict(["ann", ("bob", "cy")]),
    "history": lambda of: of.history("cy"),
    "calibration": lambda of: of.calibration(0.0),
    "no-calibration": lambda _: Ladder().calibration(),
}


KINDS: dict[str, tuple[Any, str, Any]] = {
    "player": (pa.string(), "str", pl.String),
    "round_id": (pa.string(), "str", pl.String),
    "code": (pa.string(), "str", pl.String),
    "players": (pa.list_(pa.string()), "object", pl.List(pl.String)),
    "completed_at": (pa.timestamp("s", "UTC"), "datetime64[s, UTC]", pl.Datetime("ms", "UTC")),
    "mu": (pa.float64(), "float64", pl.Float64),
    "rounds": (pa.int64(), "int64", pl.Int64),
    "side": (pa.int64(), "int64", pl.Int64),
    "sides": (pa.int64(), "int64", pl.Int64),
    "line": (pa.int64(), "int64", pl.Int64),
    "provisional": (pa.bool_(), "bool", pl.Boolean),
}
"""By column, its type in Arrow, pandas and Polars."""
KINDS["last_completed_at"] = KINDS["completed_at"]


@sweep("table", TABLES)
def test_frames_have_the_rows_of_the_table(table: str) -> None:
    """In the order of the columns, with their types, with rows and without: ids are texts, and
    times are in UTC. Times are compared as times."""
    found = TABLES[table](ladder())
    rows = [
        {name: _as_value(name, value) for name, value in row.items()} for row in found.to_dicts()
    ]
    arrow, pandas, polars = found.to_arrow(), found.to_pandas(), found.to_polars()
    names = list(found.columns())
    assert arrow.column_names == list(pandas.columns) == polars.columns == names
    assert _listed(arrow.to_pylist()) == rows
    assert _listed(polars.to_dicts()) == rows
    assert _listed(pandas.astype(object).where(pandas.notna(), None).to_dict("records")) == rows
    assert len(arrow) == len(pandas) == len(polars) == len(found)
    _check_types(found)


def _as_value(name: str, value: Any) -> Any:
    """A value of `to_dicts`, with a time as a time."""
    is_time = name.endswith("completed_at")
    return datetime.fromisoformat(value) if is_time else value


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
    found = refused(tmp_path)
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


@sweep("package", PACKAGES)
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


def test_a_ladder_loads_none_of_them() -> None:
    """Nor Matplotlib, until it is asked for."""
    code = (
        "import sys; from stream_rater import Ladder\n"
        "print(Ladder().rate(['ann', 'bob'])._repr_html_()[:4])\n"
        "print({'pandas', 'polars', 'pyarrow', 'matplotlib', 'stream_rater.evaluation'}\n"
        "      & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True,
                          check=True)  # fmt: skip
    assert done.stdout == "<div\nset()\n"


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


def test_frames_of_all_kinds_agree() -> None:
    """pandas and Polars read Arrow's table as what `to_pandas` and `to_polars` give."""
    found = ladder().leaderboard()
    frame: Any = pl.from_arrow(found.to_arrow())
    times = {"last_completed_at": pl.Datetime("ms", "UTC")}
    assert frame.cast(times).equals(found.to_polars())
    pd.testing.assert_frame_equal(
        found.to_arrow().to_pandas(), found.to_pandas(), check_dtype=False
    )
