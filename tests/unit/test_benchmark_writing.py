"""What each benchmark writes into the documents, and what it leaves as it is."""

import re
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import msgspec
import pytest

import tests.benchmarks.__main__ as bench
import tests.benchmarks.document.__main__ as command
import tests.benchmarks.stream.__main__ as stream
import tests.chaos.__main__ as chaos
from local.tools import ROOT
from tests.benchmarks.document import origins, writing
from tests.benchmarks.document.rows import Origin, Row, dumped, load, made, name_of
from tests.benchmarks.document.writing import FIGURES, SECTION
from tests.benchmarks.measure import result
from tests.chaos.scene import Outcome
from tests.simulation import soak

KEPT = load(ROOT / writing.ROWS)
FULL = (ROOT / writing.FULL).read_text()
NOW = Origin("2026-02-02 02:02", "5d6e7f8", "make bench", "another machine")
PLAYED = Outcome(
    fault="rolling", injected=3, rebalances=0, updates=10, lost=0, doubled=0, wrong=0,
    ended_themselves={}, recoveries=1, recovery_s=1.5,
)  # fmt: skip


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with documents of its own, into which benchmarks write."""
    (tmp_path / writing.CAPACITY).parent.mkdir(parents=True)
    (tmp_path / writing.CAPACITY).write_text("<!-- brief: capacity -->\n<!-- end -->\n")
    (tmp_path / writing.ANALYSIS).parent.mkdir(parents=True)
    (tmp_path / writing.ANALYSIS).write_text("<!-- brief: ledger -->\n<!-- end -->\n")
    (tmp_path / writing.FULL).write_text(FULL)
    (tmp_path / writing.PAGE).write_text("<!-- brief: memory -->\n<!-- end -->\n")
    (tmp_path / writing.ROWS).write_text(dumped(KEPT))
    (tmp_path / writing.README).write_text(
        "before\n<!-- figures: begin -->\n<!-- figures: end -->\nafter\n"
    )
    monkeypatch.setattr(writing, "ROOT", tmp_path)
    return tmp_path


def rows_of(root: Path) -> dict[str, Row]:
    return {row.name: row for row in load(root / writing.ROWS)}


def sections_of(page: str) -> dict[str, str]:
    return {found[2]: found[0] for found in SECTION.finditer(page)}


# --- what benchmarks write ------------------------------------------------------------------------


def test_a_section_is_written_and_others_stay(root: Path) -> None:
    """So does the row of another fault in the same section."""
    before = rows_of(root)
    writing.write_run("chaos", [PLAYED], ["--write", "rolling"])
    after = rows_of(root)
    assert {name for name in after if after[name] != before.get(name)} == {"chaos/rolling"}
    assert after["chaos/rolling"].origin.command == 'make chaos ARGS="rolling"'
    old, new = sections_of(FULL), sections_of((root / writing.FULL).read_text())
    assert {name for name in new if new[name] != old[name]} == {"chaos", "rolling"}
    assert SECTION.sub("", (root / writing.FULL).read_text()) == SECTION.sub("", FULL)
    readme = (root / writing.README).read_text()
    assert FIGURES.sub("", readme) == "before\n\nafter\n" and "10" in readme
    assert "| `lobby5` | `1` |" in (root / writing.CAPACITY).read_text()


def test_two_that_end_at_once_are_both_written(root: Path) -> None:
    """Neither reads the rows before the other has written its own."""
    with ThreadPoolExecutor(8) as pool:
        made_up = [made([{"name": f"stage1/{n}", "value": 1.0}], NOW) for n in range(1000, 1032)]
        list(pool.map(writing.write, made_up))
    assert {f"stage1/{n}" for n in range(1000, 1032)} <= rows_of(root).keys()


def of_bench(patch: pytest.MonkeyPatch) -> int:
    measured = result("stage1/2", 0.05, "us/player", {"error_points": 1e-6})
    patch.setitem(bench.BENCHMARKS, "stage1/2", lambda _: measured)
    return bench.main(["stage1/2", "--repeat", "1", "--write"])


def of_stream(patch: pytest.MonkeyPatch) -> int:
    found = [result("stream/lobby5/1", 70000.0, "updates/s"), result("rebuild", 9.0, "updates/s")]
    patch.setattr(stream, "_run", lambda *_: (0, found))
    return stream.main(["lobby5", "--write"])


def of_chaos(patch: pytest.MonkeyPatch) -> int:
    patch.setattr(chaos, "FAULTS", {"rolling": lambda *_: PLAYED})
    patch.setattr(sys, "argv", ["chaos", "--write", "rolling"])
    return chaos.main()


def of_soak(patch: pytest.MonkeyPatch) -> int:
    fuzzed = {"inputs": soak.INPUTS, "wrong": 0}
    patch.setattr(soak, "fuzz", lambda *_: fuzzed)
    patch.setattr(soak, "soak", lambda *_: soak.Tally(seeds=soak.Counter({soak.PRODUCTION: 5})))
    patch.setattr(soak, "caught", lambda _: True)
    patch.setattr(sys, "argv", ["soak", "--seeds", "5", "--write"])
    return soak.main()


RUNS: dict[str, tuple[Callable[[pytest.MonkeyPatch], int], set[str], str]] = {
    "bench": (of_bench, {"stage1/2"}, 'make bench ARGS="stage1/2 --repeat 1"'),
    "bench-stream": (of_stream, {"stream/lobby5/1", "rebuild"}, 'make bench-stream ARGS="lobby5"'),
    "chaos": (of_chaos, {"chaos/rolling"}, 'make chaos ARGS="rolling"'),
    "soak": (of_soak, {"soak/decoder", "soak/simulation"}, 'make soak ARGS="--seeds 5"'),
}
"""Of each command: a run, the rows that it writes, and what they say of the command."""


@pytest.mark.parametrize("target", RUNS)
def test_each_command_writes_what_it_printed(
    target: str, root: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """With --write, and no other rows than those."""
    run, names, reported = RUNS[target]
    before = rows_of(root)
    assert run(monkeypatch) == 0
    printed = [msgspec.json.decode(line) for line in capsys.readouterr().out.splitlines()]
    after = rows_of(root)
    assert {name for name in after if after[name] != before.get(name)} == names
    assert {after[name].origin.command for name in names} == {reported}
    if target != "bench-stream":  # its run is made up, and prints nothing
        assert [after[str(name_of(each))].figures for each in printed] == printed


def test_a_fault_that_failed_writes_nothing(
    root: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """What was known of it stays, with its date."""

    def fails(*_: object) -> Outcome:
        raise RuntimeError("broken")

    before = rows_of(root)
    monkeypatch.setattr(chaos, "FAULTS", {"rolling": fails})
    monkeypatch.setattr(sys, "argv", ["chaos", "--write"])
    assert chaos.main() == 1
    assert "RuntimeError: broken" in capsys.readouterr().out
    assert rows_of(root) == before


@pytest.mark.parametrize(
    ("main", "option"),
    [
        (bench.main, ["--quick"]),
        (stream.main, ["--quick"]),
        (stream.main, ["--against", "shards=8"]),
        (stream.main, ["--set", "shards=8"]),
        (chaos.main, ["--quick"]),
    ],
)
def test_some_figures_are_not_written(
    main: Callable[..., int], option: Sequence[str], monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    """Those of a quick run, of another setting, of another release: wrong usage."""
    monkeypatch.setattr(sys, "argv", ["it", "--write", *option])
    for measures in ("tests.chaos.__main__.play", "tests.benchmarks.__main__._measure"):
        monkeypatch.setattr(measures, lambda *_: pytest.fail("it measures"))
    for measures in ("_run", "_compare"):
        monkeypatch.setattr(stream, measures, lambda *_: pytest.fail("it measures"))
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    assert f"--write and {option[0]}: such figures are not written" in capsys.readouterr().err


# --- saved runs -----------------------------------------------------------------------------------


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    path = tmp_path / "saved.jsonl"
    lines: list[dict[str, Any]] = [
        {"name": "lobby/5", "value": 0.5, "unit": "us/update", "ratio": {}, "note": ""},
        msgspec.to_builtins(PLAYED),
        {"fault": "upgrade", "failure": "not played"},
        {"inputs": 7, "wrong": 0},
        {"name": "rebuild", "value": 5.0, "unit": "updates/s", "ratio": {}, "note": ""},
    ]
    path.write_bytes(b"\n".join(map(msgspec.json.encode, lines)) + b"\n")
    return path


def test_saved_runs_are_written(root: Path, saved: Path) -> None:
    """Of any of the four commands; the date is that of the file unless it is given."""
    before = rows_of(root)
    assert command.main([str(saved), "--commit", "1a2b3c4", "--remark", "It rained."]) == 0
    after = rows_of(root)
    changed = {name: row.origin for name, row in after.items() if row != before.get(name)}
    assert {name: origin.command for name, origin in changed.items()} == {
        "lobby/5": "make bench", "chaos/rolling": "make chaos", "soak/decoder": "make soak",
        "rebuild": "make bench-stream",
    }  # fmt: skip
    reported = {(each.commit, each.date, each.machine, each.remark) for each in changed.values()}
    date = origins.dated(saved.stat().st_mtime)
    assert reported == {("1a2b3c4", date, origins.machine(), "It rained.")}
    given = ["--commit", "1a2b3c4", "--date", "2026-03-03", "--command", "make x", "--machine", "m"]
    assert command.main([str(saved), *given]) == 0
    assert rows_of(root)["rebuild"].origin == Origin("2026-03-03", "1a2b3c4", "make x", "m")


def test_a_saved_run_must_be_one(
    root: Path, saved: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """An error names the line, and nothing is written. The option for the commit is required."""
    saved.write_text(saved.read_text() + "no JSON\n")
    before = (root / writing.ROWS).read_text()
    assert command.main([str(saved), "--commit", "1a2b3c4"]) == 2
    assert f"tables: {saved}, line 6: " in capsys.readouterr().err
    with pytest.raises(SystemExit) as ended:
        command.main([str(saved)])
    assert ended.value.code == 2
    assert (root / writing.ROWS).read_text() == before


def test_the_origin_of_a_run() -> None:
    """Date, commit, command and machine: nothing is left out."""
    found = origins.origin_now("bench", ["lobby", "--write"])
    assert re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d", found.date)
    assert found.command == 'make bench ARGS="lobby"'
    assert re.search(r"\d+ cores, \d+ GiB, Linux [\d.]+, Python 3\.", found.machine)
    assert re.search(r"rating kernels \d+$", found.machine)
    assert found.commit
