"""Tables of figures are made of the kept rows alone; and what benchmarks write into documents."""

import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec
import pytest

import tests.benchmarks.__main__ as bench
import tests.benchmarks.document.__main__ as command
import tests.benchmarks.stream.__main__ as stream
import tests.chaos.__main__ as chaos
from local.tools import ROOT
from tests.benchmarks.document import rows, writing
from tests.benchmarks.document.tables import TABLES
from tests.benchmarks.document.writing import FIGURES, SECTION, summary, with_tables
from tests.benchmarks.stream.rounds import WORKLOADS
from tests.chaos.scene import Outcome

KEPT = rows.load(ROOT / writing.ROWS)
PAGE, TEMPLATE = (ROOT / writing.PAGE).read_text(), (ROOT / writing.TEMPLATE).read_text()
FULL = with_tables(TEMPLATE, TABLES, KEPT)
THEN = rows.Origin("2026-01-01", "1a2b3c4", "make bench", "a machine")
NOW = rows.Origin("2026-02-02 02:02", "5d6e7f8", "make bench", "another machine")
PLAYED = Outcome(
    fault="rolling", injected=3, rebalances=0, updates=10, lost=0, doubled=0, wrong=0,
    ended_themselves={}, recoveries=1, recovery_s=1.5,
)  # fmt: skip


def test_the_documents_are_what_the_rows_make() -> None:
    """`make tables` would change nothing, and each row is in a table."""
    assert (ROOT / writing.ROWS).read_text() == rows.dumped(rows.replaced(KEPT, []))
    made_of_rows = dict(writing.documents(ROOT, KEPT))
    assert made_of_rows.pop(ROOT / writing.FULL) == FULL
    for path, text in made_of_rows.items():
        assert path.read_text() == text, f"{path.name}: make tables"
    assert writing.untabled(TABLES, KEPT) == []


def test_workloads_are_described() -> None:
    """By their size, players and ladders."""
    for each in WORKLOADS.values():
        players = (f"{each.size:,}", f"{each.players:,}") if each.size else ("as they were",) * 2
        assert f"| `{each.name}` | {' | '.join(players)} | {each.ladders} |" in PAGE, each.name


def test_prose_has_no_figures() -> None:
    """A measured figure stands in a table, with the date on which it was taken."""
    prose = writing.BRIEF.sub("", SECTION.sub("", PAGE + TEMPLATE))
    units = r"ms|µs|us|ns|s|seconds|KB|MB|MiB|GiB|bytes|updates/s|times|points|%"
    assert re.findall(rf"\d[\d,.]* ?(?:{units})(?!\w)", prose) == []


def test_sums_in_the_readmes_table() -> None:
    """Only verdicts of the chosen system are added. A sum has the date of its oldest part."""
    counts = {"a better": 2, "a no_difference": 1, "a worse": 3, "b better": 90}
    games = [rows.Row(f"games/{name}", THEN, {"note": "ours: a; 6 configurations", "ratio": counts})
             for name in ("mine", "chess", "chess/5", "cwl")]  # fmt: skip
    (line,) = (each for each in summary(games).splitlines() if "predicting" in each)
    reported, chose = line.split("; ")[1:]
    assert "on 3 games of files that had no part in choosing it" in reported
    assert "better in 6 comparisons, no difference in 3, worse in 9" in reported
    assert "on 1 games of files that chose it, better in 2 comparisons" in chose
    fault = {"fault": "rolling", "injected": 3, "updates": 10, "lost": 0, "doubled": 0, "wrong": 0}
    older, newer = (
        rows.made([fault], THEN),
        rows.made([fault | {"fault": "upgrade", "lost": 4}], NOW),
    )
    (line,) = (each for each in summary([*older, *newer]).splitlines() if "faults," in each)
    assert "6 faults, 20 rating changes: 4 lost, 0 doubled, 0 wrong | 2026-01-01 |" in line


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with documents of its own, into which benchmarks write."""
    texts = {
        **dict.fromkeys(writing.OTHERS, "<!-- brief: capacity -->\n<!-- end -->\n"),
        writing.TEMPLATE: TEMPLATE,
        writing.PAGE: "<!-- brief: memory -->\n<!-- end -->\n", writing.ROWS: rows.dumped(KEPT),
        writing.README: "before\n<!-- figures: begin -->\n<!-- figures: end -->\nafter\n",
    }  # fmt: skip
    for path, text in texts.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
    monkeypatch.setattr(writing, "ROOT", tmp_path)
    return tmp_path


def rows_of(root: Path) -> dict[str, rows.Row]:
    return {row.name: row for row in rows.load(root / writing.ROWS)}


def changed(root: Path) -> dict[str, rows.Row]:
    """The rows that are not those of before."""
    before = {row.name: row for row in KEPT}
    return {name: row for name, row in rows_of(root).items() if row != before.get(name)}


def sections_of(page: str) -> dict[str, str]:
    return {found[2]: found[0] for found in SECTION.finditer(page)}


def test_a_section_is_written_and_others_stay(root: Path) -> None:
    """So does the row of another fault in the same section."""
    writing.write_run("chaos", [PLAYED], ["--write", "rolling"])
    (name,) = after = changed(root)
    assert name == "chaos/rolling"
    assert after[name].origin.command == 'make chaos ARGS="rolling"'
    old, new = sections_of(FULL), sections_of((root / writing.FULL).read_text())
    assert {name for name in new if new[name] != old[name]} == {"chaos", "rolling"}
    assert SECTION.sub("", (root / writing.FULL).read_text()) == SECTION.sub("", FULL)
    readme = (root / writing.README).read_text()
    assert FIGURES.sub("", readme) == "before\n\nafter\n" and "10" in readme
    assert "| `lobby5` | `1` |" in (root / writing.OTHERS[0]).read_text()


def test_some_figures_are_not_written(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Those of a quick run, of another setting, of another release: wrong usage."""
    for measures in ("chaos.__main__.play", "benchmarks.__main__._measure"):
        monkeypatch.setattr(f"tests.{measures}", lambda *_: pytest.fail("it measures"))
    for measures in ("_run", "_compare"):
        monkeypatch.setattr(stream, measures, lambda *_: pytest.fail("it measures"))
    given: list[tuple[Callable[..., int], Sequence[str]]] = [
        (bench.main, ["--quick"]), (stream.main, ["--quick"]),
        (stream.main, ["--against", "shards=8"]), (stream.main, ["--set", "shards=8"]),
        (chaos.main, ["--quick"]),
    ]  # fmt: skip
    for main, option in given:
        monkeypatch.setattr(sys, "argv", ["it", "--write", *option])
        with pytest.raises(SystemExit) as ended:
            main()
        assert ended.value.code == 2
        assert f"--write and {option[0]}: such figures are not written" in capsys.readouterr().err


def test_saved_runs_are_written(
    root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Rows get the file's date. A file with a bad line gives no rows."""
    saved, words = tmp_path / "saved.jsonl", ["--commit", "1a2b3c4"]
    row = {"name": "rebuild", "value": 5.0, "unit": "updates/s", "ratio": {}, "note": ""}
    lines = [msgspec.to_builtins(PLAYED), row]
    saved.write_bytes(b"\n".join(map(msgspec.json.encode, [*lines, "no figures"])) + b"\n")
    assert command.main([str(saved), *words]) == 2
    assert f"tables: {saved}, line 3: " in capsys.readouterr().err and changed(root) == {}
    saved.write_bytes(b"\n".join(map(msgspec.json.encode, lines)) + b"\n")
    assert command.main([str(saved), *words]) == 0
    after = {name: row.origin for name, row in changed(root).items()}
    assert (after["chaos/rolling"].command, len(after)) == ("make chaos", 2)
    reported = {(each.commit, each.date, each.machine) for each in after.values()}
    assert reported == {("1a2b3c4", rows.dated(saved.stat().st_mtime), rows.machine())}
