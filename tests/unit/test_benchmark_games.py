"""`make bench-games`: what a report of games becomes in the documents."""

from collections import Counter
from pathlib import Path
from typing import Any

import msgspec
import pytest

from stream_rater.evaluation import peers
from stream_rater.evaluation.bootstrap import Difference
from stream_rater.evaluation.fits import DEFAULT, LOG_LOSS, ORDER, Fitted, Gain, Variant
from stream_rater.evaluation.research import games_tables
from stream_rater.evaluation.research.games import COMPARED, REFERENCE, VERDICTS, Result, Verdict
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
            tuned_for=aim, config={}, variance_factor=1.0, last_factor=1.0, first_log_loss=0.6,
            pair_inversion=70.0, pair_inversion_all=None, log_loss=log_loss, brier=0.2,
            calibration_error=0.01,
            us_update=2.0, failed_rounds=7 * (system == "bar" and aim == ORDER),
        )
        for aim in (DEFAULT, LOG_LOSS, ORDER)
    ]  # fmt: skip
    gain = Gain(default=0.7, default_with_factor=0.69, without_prior=None,
                with_factor=log_loss, refitted=log_loss)  # fmt: skip
    return Fitted(system=system, variants=variants, gain=gain)


def report(path: Path) -> Path:
    """A game with two of ours and a peer: the chosen one is worse in log loss."""
    gaps = (Difference(0.02, 0.01, 0.03), Difference(1.0, 0.5, 1.5), Difference(0.1, -0.5, 0.7))
    verdicts = [
        Verdict(ours=ours, peer="trueskill-package", measure=measure, tuned_for=aim,
                difference=gap, verdict=said)
        for ours in ("bar", "elo-mmr")
        for (measure, aim), gap, said in zip(
            COMPARED, gaps, ("worse", "better", "no difference"), strict=True)
    ]  # fmt: skip
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
    """Those of the chosen system, by their intervals; ours first, the chosen one in bold."""
    row = game_row(report(tmp_path / "games.json"), capsys)
    lines = [line for line in BY_SECTION["games"].markdown([row]).splitlines() if "`" in line]
    start = "| `codeforces`, 5 against 5 | elo-mmr | trueskill-package"
    assert lines[-3:] == [
        f"{start} | log loss | log loss | +0.02 [+0.01, +0.03] | worse |",
        f"{start} | order | log loss | +1 [+0.5, +1.5] | better |",
        f"{start} | order | order | +0.1 [-0.5, +0.7] | no difference |",
    ]
    systems = BY_SECTION["games-systems"].markdown([row])
    lines = [line for line in systems.splitlines() if "| `codef" in line]
    assert [line.split(" | ")[1] for line in lines] == ["**elo-mmr**", "bar", "trueskill-package"]
    assert "0.6300 | 0.2000 | 0.0100 | 70.00 | 70.00 | – | – | 0.6000 | 2 | 0.7000" in lines[2]
    assert "| +1 =1 -1 | 0, 7 |" in lines[1]


def test_the_reference_is_the_one_that_peers_beat_least_often() -> None:
    """By the games in the documents."""
    worse: Counter[str] = Counter()
    for row in load(ROOT / ROWS):
        if row.name.startswith("games/"):
            for key, count in row.figures["ratio"].items():
                system, _, what = key.partition(" ")
                if system in SPACES and what in VERDICT_KEYS:
                    worse[system] += int(count) if what == "worse" else 0
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


def test_every_peer_has_its_lines() -> None:
    """In the order in which they are tuned."""
    figures = {f"{peer} {aim} {measure} {edge}": 1.0 for peer in peers.SPACES
               for measure, aim in COMPARED for edge in ("mean", "low", "high")}  # fmt: skip
    row = Row("games/a", THEN, {"note": "ours: bar; x", "ratio": figures})
    found = [each.figures["peer"] for each in lines_of.verdicts(row)]
    assert found == [peer for peer in peers.SPACES for _ in COMPARED]
