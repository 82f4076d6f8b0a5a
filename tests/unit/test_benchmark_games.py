"""`make bench-games`: what a report of games becomes in the documents."""

import gzip
from collections import Counter
from pathlib import Path
from typing import Any

import msgspec
import pytest

from stream_rater.evaluation import peers
from stream_rater.evaluation.bootstrap import Difference
from stream_rater.evaluation.calibrating import Calibration
from stream_rater.evaluation.fits import DEFAULT, LOG_LOSS
from stream_rater.evaluation.forward import ORDER_OF_ALL, Fitted, Gain, Variant
from stream_rater.evaluation.research import games_tables
from stream_rater.evaluation.research.games import (
    ANOTHER,
    CHOSE,
    REFERENCE,
    REPORTED,
    VERDICTS,
    Result,
    Verdict,
    role_of,
)
from stream_rater.evaluation.spaces import SPACES
from tests.benchmarks import games as bench
from tests.benchmarks.document import lines as lines_of
from tests.benchmarks.document.origins import ROOT
from tests.benchmarks.document.rows import Origin, Row, load, made
from tests.benchmarks.document.tables import BY_SECTION
from tests.benchmarks.document.writing import ROWS

VERDICT_KEYS = {each.replace(" ", "_") for each in VERDICTS}

THEN = Origin("2026-11-25 09:12", "abcdef1", "make bench-games", "one machine")


def fitted(system: str, log_loss: float) -> Fitted:
    variants = [
        Variant(
            tuned_for=aim, config={}, variance_factor=1.0, last=Calibration(), first_log_loss=0.6,
            order=70.0, order_all=None, log_loss=log_loss, brier=0.2,
            calibration_error=0.01,
            us_update=2.0, failed_rounds=7 * (system == "bar" and aim == LOG_LOSS),
        )
        for aim in (DEFAULT, LOG_LOSS)
    ]  # fmt: skip
    gain = Gain(default=0.7, calibrated=0.69, tuned=0.68, validated=0.67, followed=log_loss)
    return Fitted(system=system, variants=variants, gain=gain)


def report(path: Path) -> Path:
    """A game with two of ours and two peers: the chosen one is worse in log loss than one."""
    worse, better, same = (
        Difference(0.02, 0.01, 0.03),
        Difference(1, 0.5, 1.5),
        Difference(1, -1, 3),
    )
    verdicts = [
        Verdict(ours=ours, peer=peer, measure=measure, difference=gap, verdict=said)
        for ours in ("bar", "elo-mmr")
        for peer, measure, gap, said in (
            ("trueskill-package", LOG_LOSS, worse, "worse"),
            ("trueskill-package", ORDER_OF_ALL, better, "better"),
            ("plain-elo", LOG_LOSS, same, "no difference"),
        )
    ]
    systems = [fitted("elo-mmr", 0.65), fitted("bar", 0.64), fitted("trueskill-package", 0.63)]
    game = Result(game="codeforces, 5 against 5", rounds=90, scored_rounds=81, sides=2.0,
                  systems=systems, ours="elo-mmr", least_at_first="bar",
                  verdicts=verdicts)  # fmt: skip
    path.write_bytes(games_tables.as_json([game], ["6 configurations were tried."]))
    return path


def game_row(path: Path, capsys: pytest.CaptureFixture[str]) -> Row:
    assert bench.main([str(path)]) == 0
    (line,) = capsys.readouterr().out.splitlines()
    found: dict[str, Any] = msgspec.json.decode(line)
    (row,) = made([found], THEN)
    return row


def test_a_game_is_a_row(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Named by its file and its cut, with the figures of all systems."""
    row = game_row(report(tmp_path / "games.json"), capsys)
    assert row.name == "games/codeforces/5-against-5"
    assert (row.figures["value"], row.figures["unit"]) == (0.65, "nats")
    assert row.figures["note"] == "ours: elo-mmr; 6 configurations were tried."
    assert row.figures["ratio"]["bar log_loss"] == 0.64
    assert row.figures["ratio"]["trueskill-package log_loss log_loss low"] == 0.01


def test_the_tables_show_verdicts_and_systems(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A line a game, with the differences to each peer, worse ones in bold; all systems, ours
    first, the chosen one in bold."""
    row = game_row(report(tmp_path / "games.json"), capsys)
    (line,) = lines_of.verdicts(row)
    assert line.figures["game"] == "`codeforces`, 5 against 5"
    assert (line.figures["part"], line.figures["counts"]) == ("chose", "+1 =1 -1")
    assert line.figures["best"] == "trueskill-package, by 0.0200"
    assert line.figures["log_loss"] == 0.65 and line.figures["calibration_error"] == 0.01
    gaps = {key: text for key, text in line.figures.items() if "[" in str(text)}
    assert gaps == {
        "log_loss trueskill-package": "**+0.02 [+0.01, +0.03]**",
        "order trueskill-package": "+1 [+0.5, +1.5]",
        "log_loss plain-elo": "*+1 [-1, +3]*",
    }
    (shown,) = [
        line for line in BY_SECTION["games"].markdown([row]).splitlines() if "| `codef" in line
    ]
    for text in ("chose", "0.6500", "0.0100", "+1 =1 -1", "*+1 [-1, +3]*"):
        assert f"| {text} |" in shown
    assert "| +1 [+0.5, +1.5] |" in BY_SECTION["games-order"].markdown([row])
    systems = BY_SECTION["games-systems"].markdown([row])
    lines = [line for line in systems.splitlines() if "| `codef" in line]
    assert [line.split(" | ")[1] for line in lines] == ["**elo-mmr**", "bar", "trueskill-package"]
    assert "0.6300 | 0.2000 | 0.0100 | 70.00 | – | – | 0.6000 | 2 | 0.7000" in lines[2]
    assert "| +1 =1 -1 | 7 |" in lines[1]


def test_every_game_in_the_plans_says_who_chose() -> None:
    """The shared files either chose or report; other files did neither."""
    roles = {file: role_of(str(file)) for plan in bench.PLANS for file in plan.files}
    assert roles == {
        "cwl": CHOSE, "map-rando": CHOSE, "codeforces": CHOSE, "formula-one": REPORTED,
        "clubs": REPORTED, "frc": REPORTED,
    }  # fmt: skip


def test_no_game_is_in_two_plans() -> None:
    """The row of the second one would replace that of the first."""
    whole = [file for plan in bench.PLANS if plan.whole for file in plan.files]
    cut = [(file, size) for plan in bench.PLANS for file in plan.files for size in plan.cut]
    assert len(set(whole)) == len(whole) and len(set(cut)) == len(cut)
    assert not any(plan.whole and plan.cut for plan in bench.PLANS)


def test_other_files_are_played_by_the_same_command(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each within the same bounds, and says that it had no part in choosing."""
    asked: list[Any] = []

    def played(data: Path, out: Path, *_: Any, **options: Any) -> None:
        asked.append(([each.name for each in data.iterdir()], options))
        out.mkdir()
        report(out / "games.json")

    monkeypatch.setattr(bench, "evidence_report", played)
    files = [tmp_path / name for name in ("tennis.jsonl", "darts.csv")]
    for each in files:
        each.write_text("{}\n")
    assert bench.main(["--file", *map(str, files)]) == 0
    assert [names for names, _ in asked] == [["tennis.jsonl"], ["darts.csv"]]
    assert all(options["rounds"] == bench.OTHER.rounds for _, options in asked)
    assert len(capsys.readouterr().out.splitlines()) == 2
    assert role_of("tennis") == ANOTHER


def test_the_first_lines_of_a_file_are_skipped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the first rounds had a part in choosing and the later ones report."""
    path, kept = tmp_path / "a.jsonl.gz", list[bytes]()
    path.write_bytes(gzip.compress(b"".join(b"%d\n" % i for i in range(9))))

    def played(data: Path, out: Path, *_: Any, **__: Any) -> None:
        kept.extend(gzip.decompress((data / "a.jsonl.gz").read_bytes()).split())
        out.mkdir()
        report(out / "games.json")

    monkeypatch.setattr(bench, "evidence_report", played)
    bench.play(bench.Plan((path,), skip=6))
    assert kept == [b"6", b"7", b"8"]


def test_the_reference_is_the_one_that_peers_beat_least_often() -> None:
    """By the games in the documents in which all of ours were played."""
    worse: Counter[str] = Counter()
    for row in load(ROOT / ROWS):
        if row.name.startswith("games/"):
            found: Counter[str] = Counter()
            for key, count in row.figures["ratio"].items():
                system, _, what = key.partition(" ")
                if system in SPACES and what in VERDICT_KEYS:
                    found[system] += int(count) if what == "worse" else 0
            if len(found) > 1:
                worse.update(found)
    assert len(worse) > 1
    assert min(worse, key=lambda system: worse[system]) == REFERENCE


def test_without_the_shared_files_nothing_is_played(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """One line says why, and the exit code is 1."""
    monkeypatch.setenv("STREAM_RATER_SHARED", str(tmp_path))
    assert bench.main(["--quick"]) == 1
    out, error = capsys.readouterr()
    assert out == "" and error.count("\n") == 1 and "map-rando" in error


def test_every_peer_has_its_column() -> None:
    """In the table of each measure."""
    for section, measure in (("games", "log_loss"), ("games-order", "order")):
        cells = [each.cell for each in BY_SECTION[section].columns]
        assert [cell for cell in cells if cell.startswith(f"{measure} ")] == [
            f"{measure} {peer}" for peer in peers.SPACES
        ]
