"""What benchmarks measure and print is what they say; how fast anything is, is not asserted here.
`test_bench_stream.py` has those of the service."""

import gzip
from collections import Counter
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from local.tools import ROOT
from stream_rater.evaluation import peers
from stream_rater.evaluation.bootstrap import Difference
from stream_rater.evaluation.calibrating import Calibration
from stream_rater.evaluation.contestants import OwnSystem
from stream_rater.evaluation.fits import DEFAULT, LOG_LOSS
from stream_rater.evaluation.forward import ORDER_OF_ALL, Fitted, Gain, Variant
from stream_rater.evaluation.game import games_of
from stream_rater.evaluation.measures import FIELDS, OF_PAIRS
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
from stream_rater.evaluation.research.synthetic import Kind, season
from stream_rater.evaluation.spaces import SPACES
from stream_rater.rating import stages as systems
from stream_rater.rating.model import PERFORMANCE
from tests.benchmarks import __main__ as benchmarks
from tests.benchmarks import ablation, stage1
from tests.benchmarks import games as bench
from tests.benchmarks.codeforces import widest_swap
from tests.benchmarks.document.lines import SPREADS, verdicts
from tests.benchmarks.document.rows import Origin, Row, load, made
from tests.benchmarks.document.tables import BY_SECTION
from tests.benchmarks.document.writing import ROWS

THEN = Origin("2026-11-25 09:12", "abcdef1", "make bench-games", "one machine")


# --- `make bench` ---------------------------------------------------------------------------------


def test_json_lines(capsys: pytest.CaptureFixture[str]) -> None:
    """Standard output is one JSON object a line, with the names asked for and these keys. A kind
    stands for all of it."""
    assert benchmarks.main(["--quick", "stage1/5", "lobby/5"]) == 0
    stage, lobby = map(msgspec.json.decode, capsys.readouterr().out.splitlines())
    for each, name, unit in ((stage, "stage1/5", "us/player"), (lobby, "lobby/5", "us/update")):
        assert each.keys() == {"name", "value", "unit", "ratio", "note"}
        assert (each["name"], each["unit"]) == (name, unit) and each["value"] > 0.0
    assert stage["ratio"]["error_points"] < 1e-4
    for peer in ("openskill", "trueskill"):
        assert (peer in lobby["ratio"]) != (f"{peer} is not installed" in lobby["note"])
    assert benchmarks._chosen(["lobby", "stage1/5"]) == ["lobby/5", "lobby/100", "stage1/5"]


def test_what_cannot_be_measured_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """An unknown name is wrong usage. Without the shared folder its benchmarks are skipped, with
    the reason, and exit code 1."""
    assert benchmarks.main(["stage1/7"]) == 2
    monkeypatch.setenv("STREAM_RATER_SHARED", str(tmp_path))
    assert benchmarks.main(["--quick", "update/codeforces"]) == bench.main(["--quick"]) == 1
    out, error = capsys.readouterr()
    unknown, *_, games = error.splitlines()
    assert unknown.startswith("bench: no benchmark 'stage1/7'; there are: stage1/2 ")
    assert "skipped update/codeforces: no data/codeforces.jsonl.gz" in error
    assert out == "" and "map-rando" in games


def test_brute_force_sees_an_error() -> None:
    """The error reported is that of the worst performance."""
    for size in (2, 60):
        for gaussian in (False, True):
            wave = stage1.wave_of_size(size, 4, seed=1)
            config = stage1.GAUSSIAN if gaussian else stage1.LOGISTIC
            found = systems.estimate(config, wave)[:, PERFORMANCE].copy()
            assert stage1.error_points(wave, size, found, gaussian=gaussian) < 1e-6
            found[size + 1] += 0.25
            error = stage1.error_points(wave, size, found, gaussian=gaussian)
            assert error == pytest.approx(0.25, rel=0, abs=1e-6)  # the other error's bound


def test_the_widest_swap() -> None:
    """Of pairs that changed places, the one farthest apart before; a tie found is none."""
    true = np.array([9.0, 8.5, 8.0, 1.0])
    assert widest_swap(true, true) == 0.0
    assert widest_swap(true, np.array([8.0, 8.5, 8.4, 8.0])) == 1.0


# --- `make bench-ablation` ------------------------------------------------------------------------


def test_a_part_that_is_switched_off_has_no_effect() -> None:
    """Its parameters are fixed and none of them is tuned; the others are."""
    for fixed in ablation.PARAMETERS.values():
        system, whole = ablation.Without(REFERENCE, fixed=fixed), OwnSystem(REFERENCE)
        names = {each.name for each in system.space}
        assert names == {each.name for each in whole.space} - {name for name, _ in fixed}
        config = system.config({each.name: each.at(0.7) for each in system.space})
        assert [getattr(config, name) for name, _ in fixed] == [value for _, value in fixed]


def test_a_gain_is_what_would_be_lost() -> None:
    """Positive where the rounds are predicted worse without the part. In the table it is bold where
    a part costs, slanted where it is not known."""
    (game,) = games_of("made up", list(season(Kind(players=30, rounds=120, per_round=6), 3)))
    on = np.zeros((50, OF_PAIRS))
    on[:, FIELDS.index("scored")] = 2.0
    off = on.copy()
    on[:, FIELDS.index("log_loss")], off[:, FIELDS.index("log_loss")] = 0.5, 0.6
    (row,) = ablation._row(game, "a part", on, off)
    assert (row.name, row.value) == ("ablation/made up/a-part", 0.1)
    for value, low, high, expected in (
        (0.01, 0.005, 0.015, "+0.01 [+0.005, +0.015]"),
        (-0.01, -0.015, -0.005, "**-0.01 [-0.015, -0.005]**"),
        (0.01, -0.005, 0.015, "*+0.01 [-0.005, +0.015]*"),
    ):
        figures = {"value": value, "ratio": {"low": low, "high": high}, "note": "a part"}
        (line,) = SPREADS["ablation"](Row("ablation/frc/a-part", THEN, figures))
        assert line.figures["ablation_gain"] == expected


# --- `make bench-games` ---------------------------------------------------------------------------


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
    worse, better, same = ((0.02, 0.01, 0.03), (1, 0.5, 1.5), (1, -1, 3))
    found = [
        Verdict(ours=ours, peer=peer, measure=measure, difference=Difference(*gap), verdict=said)
        for ours in ("bar", "elo-mmr")
        for peer, measure, gap, said in (
            ("trueskill-package", LOG_LOSS, worse, "worse"),
            ("trueskill-package", ORDER_OF_ALL, better, "better"),
            ("plain-elo", LOG_LOSS, same, "no difference"),
        )
    ]
    fits = [fitted("elo-mmr", 0.65), fitted("bar", 0.64), fitted("trueskill-package", 0.63)]
    game = Result(game="codeforces, 5 against 5", rounds=90, scored_rounds=81, sides=2.0,
                  systems=fits, ours="elo-mmr", least_at_first="bar", verdicts=found)  # fmt: skip
    path.write_bytes(games_tables.as_json([game], ["6 configurations were tried."]))
    return path


def test_a_game_is_a_row_of_each_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Named by its file and its cut. A line a game, with the differences to each peer, worse ones
    in bold; all systems, ours first, the chosen one in bold."""
    assert bench.main([str(report(tmp_path / "games.json"))]) == 0
    (line,) = capsys.readouterr().out.splitlines()
    (row,) = made([msgspec.json.decode(line)], THEN)
    assert row.name == "games/codeforces/5-against-5"
    assert (row.figures["value"], row.figures["unit"]) == (0.65, "nats")
    assert row.figures["note"] == "ours: elo-mmr; 6 configurations were tried."
    assert row.figures["ratio"]["bar log_loss"] == 0.64
    assert row.figures["ratio"]["trueskill-package log_loss log_loss low"] == 0.01
    (shown,) = verdicts(row)
    assert shown.figures["game"] == "`codeforces`, 5 against 5"
    assert (shown.figures["part"], shown.figures["counts"]) == ("chose", "+1 =1 -1")
    assert shown.figures["best"] == "trueskill-package, by 0.0200"
    assert shown.figures["log_loss"] == 0.65 and shown.figures["calibration_error"] == 0.01
    gaps = {key: text for key, text in shown.figures.items() if "[" in str(text)}
    assert gaps == {
        "log_loss trueskill-package": "**+0.02 [+0.01, +0.03]**",
        "order trueskill-package": "+1 [+0.5, +1.5]",
        "log_loss plain-elo": "*+1 [-1, +3]*",
    }
    lines = {
        section: [
            each for each in BY_SECTION[section].markdown([row]).splitlines() if "| `codef" in each
        ]
        for section in ("games", "games-order", "games-systems")
    }
    for text in ("chose", "0.6500", "0.0100", "+1 =1 -1", "*+1 [-1, +3]*"):
        assert f"| {text} |" in lines["games"][0]
    assert "| +1 [+0.5, +1.5] |" in lines["games-order"][0]
    first, second, third = lines["games-systems"]
    assert [each.split(" | ")[1] for each in (first, second, third)] == [
        "**elo-mmr**", "bar", "trueskill-package",
    ]  # fmt: skip
    assert "0.6300 | 0.2000 | 0.0100 | 70.00 | – | – | 0.6000 | 2 | 0.7000" in third
    assert "| +1 =1 -1 | 7 |" in second


def test_the_plans_of_games() -> None:
    """The shared files either chose or report; other files did neither. No game is in two plans,
    since the row of the second one would replace that of the first. Every peer has its column in
    the table of each measure."""
    roles = {file: role_of(str(file)) for plan in bench.PLANS for file in plan.files}
    assert roles == {
        "cwl": CHOSE, "map-rando": CHOSE, "codeforces": CHOSE, "formula-one": REPORTED,
        "clubs": REPORTED, "frc": REPORTED,
    }  # fmt: skip
    assert role_of("tennis") == ANOTHER
    whole = [file for plan in bench.PLANS if plan.whole for file in plan.files]
    cut = [(file, size) for plan in bench.PLANS for file in plan.files for size in plan.cut]
    assert len(set(whole)) == len(whole) and len(set(cut)) == len(cut)
    assert not any(plan.whole and plan.cut for plan in bench.PLANS)
    for section, measure in (("games", "log_loss"), ("games-order", "order")):
        cells = [each.cell for each in BY_SECTION[section].columns]
        assert [cell for cell in cells if cell.startswith(f"{measure} ")] == [
            f"{measure} {peer}" for peer in peers.SPACES
        ]


def test_what_of_a_file_is_played(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first lines are skipped where they had a part in choosing; other files are played within
    bounds."""
    path, kept = tmp_path / "a.jsonl.gz", list[Any]()
    path.write_bytes(gzip.compress(b"".join(b"%d\n" % i for i in range(9))))

    def played(data: Path, out: Path, *_: Any, **options: Any) -> None:
        lines = gzip.decompress((data / "a.jsonl.gz").read_bytes()).split()
        kept.append((lines, options["rounds"]))
        out.mkdir()
        report(out / "games.json")

    monkeypatch.setattr(bench, "evidence_report", played)
    bench.play(bench.Plan((path,), skip=6))
    assert kept.pop()[0] == [b"6", b"7", b"8"]
    assert bench.main(["--file", str(path)]) == 0
    assert kept == [([b"%d" % i for i in range(9)], bench.OTHER.rounds)]


def test_the_reference_is_the_one_that_peers_beat_least_often() -> None:
    """By the games in the documents in which all of ours were played."""
    worse: Counter[str] = Counter()
    known = {each.replace(" ", "_") for each in VERDICTS}
    for row in load(ROOT / ROWS):
        if row.name.startswith("games/"):
            found: Counter[str] = Counter()
            for key, count in row.figures["ratio"].items():
                system, _, what = key.partition(" ")
                if system in SPACES and what in known:
                    found[system] += int(count) if what == "worse" else 0
            if len(found) > 1:
                worse.update(found)
    assert len(worse) > 1
    assert min(worse, key=lambda system: worse[system]) == REFERENCE
