"""Tables of figures are made from the rows that were kept, and by nobody's hand."""

import re
from pathlib import Path

import pytest

import tests.benchmarks.__main__ as bench
import tests.chaos.__main__ as chaos
from local.tools import ROOT
from tests.benchmarks.document import summary as summary_table
from tests.benchmarks.document import writing
from tests.benchmarks.document.rows import (
    Origin,
    Row,
    Unreadable,
    dumped,
    load,
    made,
    name_of,
    natural,
    replaced,
)
from tests.benchmarks.document.summary import summary
from tests.benchmarks.document.tables import BY_SECTION, TABLES, Brief, Column, Table, cell_of
from tests.benchmarks.document.writing import (
    BRIEF,
    FIGURES,
    SECTION,
    replace_text,
    untabled,
    with_briefs,
    with_summary,
    with_tables,
)
from tests.benchmarks.stream.rounds import WORKLOADS

KEPT = load(ROOT / writing.ROWS)
PAGE, FULL = (ROOT / writing.PAGE).read_text(), (ROOT / writing.FULL).read_text()
THEN = Origin("2026-01-01", "1a2b3c4", "make bench", "a machine")
NOW = Origin("2026-02-02 02:02", "5d6e7f8", "make bench", "another machine")
FAULT = {"fault": "rolling", "injected": 3, "updates": 10, "lost": 0, "doubled": 0, "wrong": 0}


# --- what is committed ----------------------------------------------------------------------------


def test_the_documents_are_what_the_rows_make() -> None:
    """Nobody has changed a table by hand: `make tables` would change nothing."""
    assert (ROOT / writing.ROWS).read_text() == dumped(replaced(KEPT, []))
    for path, text in writing.documents(ROOT, KEPT):
        assert path.read_text() == text, f"{path.name}: make tables"


def test_every_row_is_in_a_table() -> None:
    """Else a figure would be measured and never shown."""
    assert untabled(TABLES, KEPT) == []
    measured = [Row(name, THEN, {}) for name in (*bench.BENCHMARKS, "memory/player", "rebuild")]
    assert untabled(TABLES, measured) == []
    assert untabled(TABLES, [Row("new/thing", THEN, {})]) == ["new/thing"]


def test_every_fault_is_described() -> None:
    """And so is the storm of either kind."""
    assert set(BY_SECTION["chaos"].labels) == {*chaos.FAULTS, "storm-codeforces", "storm-lobbies"}


def test_every_workload_is_described() -> None:
    """With its size, players and ladders."""
    for each in WORKLOADS.values():
        players = (f"{each.size:,}", f"{each.players:,}") if each.size else ("as they were",) * 2
        cells = f"| `{each.name}` | {' | '.join(players)} | {each.ladders} |"
        assert cells in FULL, each.name


def test_prose_has_no_figures() -> None:
    """A measured figure stands in a table, with the date on which it was taken."""
    prose = FIGURES.sub("", BRIEF.sub("", SECTION.sub("", PAGE + FULL)))
    units = r"ms|µs|us|ns|s|seconds|KB|MB|MiB|GiB|bytes|updates/s|times|points|%"
    assert re.findall(rf"\d[\d,.]* ?(?:{units})(?!\w)", prose) == []


def test_every_column_is_explained() -> None:
    """In a sentence, which its heading does not repeat."""
    for each in TABLES:
        headings = [column.heading for column in each.columns]
        assert len(set(headings)) == len(headings), each.section
        assert all(column.meaning.endswith(".") for column in each.columns), each.section


# --- rows -----------------------------------------------------------------------------------------


def test_names_of_rows() -> None:
    """By what a benchmark prints; what is no figure to be kept has none."""
    assert name_of({"name": "lobby/5", "value": 1.0}) == "lobby/5"
    assert name_of({"fault": "rolling", "injected": 3}) == "chaos/rolling"
    assert name_of({"inputs": 9, "wrong": 0}) == "soak/decoder"
    assert name_of({"seeds": 9, "mutants": 4}) == "soak/simulation"
    assert name_of({"fault": "rolling", "failure": "why"}) is None
    assert name_of({"name": "against/lobby5/5000/shards=8", "value": 1.0}) is None
    with pytest.raises(Unreadable, match="no benchmark prints"):
        name_of({"something": "else"})


def test_a_row_is_replaced_by_name() -> None:
    """The row of another name keeps its date; rows are in order of their numbers."""
    older = made([{"name": f"stage1/{n}", "value": 1.0} for n in (12, 5, 100)], THEN)
    found = replaced(older, made([{"name": "stage1/12", "value": 2.0}], NOW))
    assert [row.name for row in found] == ["stage1/5", "stage1/12", "stage1/100"]
    assert [row.origin for row in found] == [THEN, NOW, THEN]
    assert found[1].figures["value"] == 2.0
    assert natural("a/9") < natural("a/10") < natural("b/1")


def test_rows_come_back_as_they_were(tmp_path: Path) -> None:
    """From the file that keeps them, one a line."""
    path = tmp_path / "rows.jsonl"
    rows = made([{"name": "lobby/5", "value": 0.25, "ratio": {"openskill": 17}}], NOW)
    path.write_text(dumped(rows))
    assert load(path) == rows
    assert load(tmp_path / "none.jsonl") == []


# --- pages ----------------------------------------------------------------------------------------

TABLE = Table(
    section="things", command="make things", names=r"thing/\w+",
    columns=[
        Column("thing", "name", "which thing."),
        Column("value", "value", "how much."),
        Column("other", "ratio.other", "what nobody measured."),
        Column("taken", "date", "when."),
    ],
    order=["b", "a"], brief=Brief(["value", "thing"], ".*/b"),
)  # fmt: skip
MARKED = "one\n<!-- section: things -->\nold\n<!-- end -->\ntwo\n"


def test_a_table() -> None:
    """Its rows in order, where each was taken, what columns mean; none without a figure."""
    rows = [Row("thing/a", THEN, {"value": 12345.6}), Row("thing/b", NOW, {"value": 2})]
    page = with_tables(MARKED, [TABLE], [*rows, Row("another/c", THEN, {"value": 3})])
    assert page.startswith("one\n<!-- section: things -->\n\n- Taken 2026-02-02 02:02 (UTC) at")
    assert "| thing/b | 2 | 2026-02-02 02:02 |\n| thing/a | 12,300 | 2026-01-01 |\n" in page
    assert "- **value**: how much.\n" in page and "another/c" not in page
    assert "what nobody measured" not in page and "| other |" not in page
    assert page.endswith("\n<!-- end -->\ntwo\n")
    assert "Not measured yet: `make things`." in with_tables(MARKED, [TABLE], [])


def test_a_short_table() -> None:
    """It has the selected columns and rows, and no sentences."""
    rows = [Row("thing/a", THEN, {"value": 1}), Row("thing/b", NOW, {"value": 2})]
    page = with_briefs("<!-- brief: things -->\nold\n<!-- end -->", [TABLE], rows)
    table = "| thing | value |\n| --- | --- |\n| thing/b | 2 |"
    assert page == f"<!-- brief: things -->\n\n{table}\n\n<!-- end -->"
    assert "Not measured: `make things`." in TABLE.brief_markdown(rows[:1])


@pytest.mark.parametrize(
    ("cell", "shown"),
    [
        ("word:1", "`at500`"), ("count:2", "1,000"), ("load:1", "500/s"), ("load:2", "1000 %"),
        ("label:0", "a thing"), ("label:1", "`at500`"), (r"note:of (\d+)", "7,000"),
        (r"note:by (\d+)", "–"), ("ratio.x", "0.125"), ("ratio.x*1000", "125"),
        ("ratio.x/ratio.y", "0.25"), ("ratio.x:.1f", "0.1"), ("ratio.z*9", "–"),
        ("ratio.z:.1f", "–"), ("ended", "3"), ("text", "so"),
    ],
)  # fmt: skip
def test_a_cell(cell: str, shown: str) -> None:
    """Each form of a cell, as tables.py lists them."""
    figures = {
        "ratio": {"x": 0.125, "y": 0.5}, "note": "of 7000", "ended": {"a": 1, "b": 2}, "text": "so",
    }  # fmt: skip
    assert cell_of(cell, {"thing": "a thing"})(Row("thing/at500/1000", NOW, figures)) == shown


def test_markers_and_tables_belong_together() -> None:
    """Else a table would be lost, or old figures would stay."""
    with pytest.raises(ValueError, match="not those of the tables: things"):
        with_tables("no marker", [TABLE], [])
    with pytest.raises(ValueError, match="not those of the tables: things"):
        with_tables(MARKED, [], [])
    with pytest.raises(ValueError, match="twice"):
        with_tables(MARKED * 2, [TABLE], [])


def test_the_readmes_table() -> None:
    """At most six lines, only of what was measured; a page without markers stays as it is."""
    assert len(summary_table.FIGURES) <= 6
    lines = [line for line in summary(KEPT).splitlines() if line.startswith("| ")]
    assert len(lines) == 1 + len(summary_table.FIGURES)
    assert "| throughput of one worker" not in summary([])
    assert with_summary("nothing", KEPT) == "nothing"
    page = with_summary("a\n<!-- figures: begin -->\nold\n<!-- figures: end -->\nb\n", KEPT)
    assert "old" not in page and page.startswith("a\n") and page.endswith("\nb\n")
    assert summary(KEPT) in page and with_summary(page, KEPT) == page


def test_each_figure_names_its_machine() -> None:
    """By a letter, which is explained below the table."""
    peers = {"ratio": {"openskill": 2.0, "trueskill": 3.0}}
    rows = [Row("stage1/100", THEN, {"value": 0.1}), Row("lobby/5", NOW, peers)]
    printed = summary(rows).splitlines()
    assert [line[-18:] for line in printed if line.startswith("| ")][1:] == [
        "| 2026-01-01 | A |", "| 2026-02-02 | B |",
    ]  # fmt: skip
    assert printed[-1] == "Machine A: a machine; B: another machine."


def test_the_verdicts_of_all_games_are_added() -> None:
    """Those of the chosen system alone, apart for the files that chose it."""
    counts = {"a better": 2, "a no_difference": 1, "a worse": 3, "b better": 90}
    games = [Row(f"games/{name}", THEN, {"note": "ours: a; 6 configurations", "ratio": counts})
             for name in ("frc", "clubs", "clubs/5", "cwl")]  # fmt: skip
    (line,) = (each for each in summary(games).splitlines() if "predicting" in each)
    reported, chose = line.split("; ")[1:]
    assert "on 3 games of files that had little part in choosing it" in reported
    assert "better in 6 comparisons, no difference in 3, worse in 9" in reported
    assert "on 1 games of files that chose it, better in 2 comparisons" in chose


def test_the_sum_of_faults_has_the_oldest_date() -> None:
    """It is no newer than its oldest part."""
    older = made([FAULT], THEN)
    newer = made([FAULT | {"fault": "upgrade", "lost": 4}], NOW)
    (line,) = (each for each in summary([*older, *newer]).splitlines() if "faults," in each)
    assert "6 faults, 20 rating changes: 4 lost, 0 doubled, 0 wrong | 2026-01-01 |" in line


def test_a_file_is_replaced_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where that fails, it is what it was, and nothing else is left."""
    path = tmp_path / "page.md"
    replace_text(path, "one")
    replace_text(path, "two")
    assert path.read_text() == "two"

    def fails(*_: object) -> None:
        raise OSError("no")

    monkeypatch.setattr(Path, "replace", fails)
    with pytest.raises(OSError, match="no"):
        replace_text(path, "three")
    assert [each.name for each in tmp_path.iterdir()] == ["page.md"]
    assert path.read_text() == "two"
