"""`evaluate` and `tune` as typed; who has `evidence`, and which rounds it reads."""

import gc
import json
import re
import subprocess
import sys
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from click.testing import CliRunner

import stream_rater
from stream_rater.cli.lab import short_run
from stream_rater.config.errors import Failed
from stream_rater.config.files import rating_by_name, read_rating
from stream_rater.evaluation import proposal
from stream_rater.evaluation.measures import MEASURES
from stream_rater.evaluation.spaces import SPACES, configuration, start
from stream_rater.evaluation.tuning import Validated
from stream_rater.library.parameters import rating_of
from stream_rater.operations.input_file import RoundsFile
from stream_rater.rating.parameters import SYSTEMS
from tests.benchmarks.lab import command
from tests.benchmarks.lab.game import Kind, season, singly
from tests.benchmarks.lab.report import PARTS, load
from tests.builders.commands import done, failed, piped, run
from tests.builders.lines import a_correction
from tests.rounds import event, ranked

MMR = {"system": "elo-mmr", "weight_limit": 0.2, "sigma_limit": 80}
Write = Callable[[str, Any], str]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Writes a value as JSON; a list as lines."""

    def written(name: str, value: Any) -> str:
        values = value if isinstance(value, list) else [value]
        path = tmp_path / name
        path.write_bytes(b"\n".join(map(msgspec.json.encode, values)) + b"\n")
        return str(path)

    return written


def rounds(count: int) -> list[dict[str, Any]]:
    """A made-up season as events."""
    sessions = season(Kind(20, count, 6), 4)
    players = ([f"p{row}" for row in session.rows.tolist()] for session in sessions)
    return [event(*ranked(range(1, 7), some), round_id=f"r{n}") for n, some in enumerate(players)]


def evaluated(*words: object) -> list[dict[str, Any]]:
    result = run("evaluate", *words, "--format", "json")
    assert (result.exit_code, result.stderr) == (0, "")
    found: list[dict[str, Any]] = json.loads(result.stdout)
    return found


def test_evaluate_gives_an_object_for_each_configuration(write: Write) -> None:
    """With the measures, times and speed; from the second on with differences to the first."""
    files = write("a.jsonl", rounds(40)), write("b.jsonl", rounds(50))
    configs = write("one.json", MMR), write("two.json", MMR | {"weight_limit": 0.5})
    rows = evaluated(*files, "--config", configs[0], "--config", configs[1])
    assert [(row["file"], row["config"]) for row in rows] == [
        *product(("a.jsonl", "b.jsonl"), ("one.json", "two.json"))
    ]
    counts = [(row["rounds"], row["scored_rounds"], row["results"]) for row in rows[1:3]]
    assert counts == [(40, 20, 240), (50, 25, 300)]
    assert all(row["players"] == row["results"] for row in rows), "its first name"
    for row in rows:
        assert all(isinstance(row[measure], float) for measure in MEASURES)
        assert row["rating_seconds"] < row["seconds"]
        assert row["players_per_second"] == pytest.approx(6.0 * row["rounds_per_second"])
    assert [row["differences"] is None for row in rows] == [True, False, True, False]
    gap = rows[1]["differences"]["brier"]
    assert gap["mean"] == pytest.approx(rows[1]["brier"] - rows[0]["brier"])
    assert gap["low"] <= gap["mean"] <= gap["high"]


def test_evaluate_trains_on_as_much_as_asked(write: Write) -> None:
    """One configuration alone, streamed, is scored as beside another one."""
    file, config = write("a.jsonl", rounds(40)), write("one.json", MMR)
    alone = evaluated(file, "--config", config, "--train", "0.1")[0]
    beside = evaluated(file, "--config", config, config, "--train", "0.1")[1]
    assert alone["scored_rounds"] == beside["scored_rounds"] == 36
    assert [alone[m] for m in MEASURES] == [beside[m] for m in MEASURES]


def test_evaluate_scores_what_is_shown(write: Write) -> None:
    """By `--by display`; by mu unless it is asked for. The table has the same option."""
    file = write("a.jsonl", rounds(60))
    config = write("one.json", MMR | {"display": {"minus_sigma": 3}})
    usual, mu, shown = (
        evaluated(file, "--config", config, "--train", "0.1", *by)[0]
        for by in ((), ("--by", "mu"), ("--by", "display"))
    )
    assert [usual[m] for m in MEASURES] == [mu[m] for m in MEASURES]
    assert shown["kendall_tau"] != mu["kendall_tau"] and shown["log_loss"] == mu["log_loss"]


def test_python_has_the_numbers_of_evaluate(write: Write) -> None:
    """Of a file, of a table, and of a ladder's own rounds; with what was left out."""
    season = rounds(40)
    file, other = write("a.jsonl", [*season, {"round_id": "x"}]), MMR | {"weight_limit": 0.5}
    configs = write("one.json", MMR), write("two.json", other)
    due = json.loads(run("evaluate", file, *configs, "--format", "json").stdout)
    ladder = stream_rater.Ladder("elo-mmr", weight_limit=0.5, sigma_limit=80)
    ladder.rate_file(file)
    found = stream_rater.compare(file, {"one.json": MMR, "two.json": ladder})
    assert (found.refused, found.config.tolist()) == (1, ["one.json", "two.json"])
    for mine, row, shown in zip(found.evaluations, due, found.to_dicts(), strict=True):
        assert [getattr(mine, each) for each in MEASURES] == [row[each] for each in MEASURES]
        assert (shown["log_loss"], shown["rounds_scored"]) == (row["log_loss"], 20)
    gap = (found.evaluations[1].differences or {})["log_loss"]
    assert gap is not None and np.isnan(found.difference[0])
    assert (found.difference[1], found.low[1], found.high[1]) == (gap.mean, gap.low, gap.high)
    assert repr(found.evaluations[0]).startswith("<Evaluation of one.json on ")
    gap = (found.evaluations[1].differences or {})["brier"]
    assert gap is not None and gap.mean == due[1]["differences"]["brier"]["mean"]
    alone = ladder.evaluate()
    assert [getattr(alone, each) for each in MEASURES] == [due[1][each] for each in MEASURES]
    entries = [(each["round_id"], entry) for each in season for entry in each["standings"]]
    table = {"round": [name for name, _ in entries],
             "player": [entry["player"] for _, entry in entries],
             "rank": [entry["rank"] for _, entry in entries]}  # fmt: skip
    by_table = stream_rater.compare(table, {"one": MMR}, by="display", train=0.25)
    assert by_table.rounds_scored.tolist() == [30] and by_table.refused == 0
    for given, why in (({}, "configs: give a dict"), ("elo-mmr", "configs: give a dict")):
        with pytest.raises(ValueError, match=why):
            stream_rater.compare(table, given)
    with pytest.raises(ValueError, match="by: 'rank' is neither"):
        ladder.evaluate(by="rank")  # type: ignore[arg-type]
    why = re.escape("configs['mine']: Object missing required field `beta`")
    with pytest.raises(stream_rater.BadParameters, match=why):
        stream_rater.compare(table, {"mine": {"system": "glicko"}})


@pytest.mark.parametrize("system", SYSTEMS)
def test_a_configuration_by_name(system: str) -> None:
    """It is the system's defaults, or the first guess of `tune` where it has none."""
    config = rating_by_name(system)
    assert config == read_rating(Path(system)) and config.__struct_config__.tag == system
    try:
        due = rating_of(system, {})
    except stream_rater.BadParameters:
        due = configuration(system, start(SPACES[system]))
    assert config == due


def test_evaluate_shows_a_table(write: Write) -> None:
    """Where nothing was scored, a number is a dash, and null in JSON."""
    file, config = write("a.jsonl", rounds(30)), write("one.json", MMR)
    text = done("evaluate", file, "--config", config, "--config", config)
    assert "pairs in right order" in text and "noise" in text and "…" not in text
    assert max(map(len, text.splitlines())) < 80, "as wide as a terminal"
    assert "↑ pairs in right order" in text and "↓ log loss" in text
    file = write("a.jsonl", rounds(2))
    row = evaluated(file, "--config", config)[0]
    assert row["pair_inversion"] is None and row["pair_inversion_all"] is not None
    assert "–" in done("evaluate", file, "--config", config)


def test_equal_rows_of_duels_are_one(write: Write) -> None:
    """The log loss of a pair is that of the winner, and has one row with two names."""
    duels = [event(*ranked([1, 2], ["ann", "bob"]), round_id=f"r{i}") for i in range(20)]
    text = done("evaluate", write("a.jsonl", duels), "--config", write("one.json", MMR))
    (row,) = (line for line in text.splitlines() if "log loss" in line and "0." in line)
    assert row.startswith("│ ↓ log loss ") and "│   = log loss of the winner" in text


def test_evaluate_takes_the_valid_rounds_and_reports_the_others(write: Write) -> None:
    """With the line, on stderr; the exit code is 1."""
    file = write("a.jsonl", [*rounds(3), {"round_id": "x"}, rounds(1)[0]])
    result = run("evaluate", file, "--config", write("one.json", MMR), "--format", "json")
    assert result.exit_code == 1
    assert json.loads(result.stdout)[0]["rounds"] == 3
    assert ":4: bad-id" in result.stderr and ":5: duplicate-round" in result.stderr
    assert result.stderr.splitlines()[-1].endswith("2 rounds were invalid; the 3 others were taken")


def test_wrong_usage_is_one_line(write: Write, tmp_path: Path) -> None:
    """No configuration, no rounds, a bad configuration, a broken archive."""
    file, config = write("a.jsonl", rounds(3)), write("one.json", MMR)
    bad, broken = write("bad.json", {"system": "elo-mmr"}), tmp_path / "broken.jsonl.gz"
    broken.write_bytes(b"no gzip")
    for words, code in (
        ([file], 2), ([config], 2), ([file, "--config", bad], 2),
        ([str(broken), "--config", config], 1),
        (["--config", config, str(broken), "--config", config], 1),
    ):  # fmt: skip
        result = run("evaluate", *words)
        assert (result.exit_code, len(result.stderr.splitlines())) == (code, 1), result.stderr


def test_tune_writes_a_configuration_that_evaluate_takes(write: Write, tmp_path: Path) -> None:
    """To a file or to standard output, the same; the report of both parts is on stderr."""
    words = ["tune", write("a.jsonl", rounds(60)), "--system", "codeforces", "--trials", "12",
             "--workers", "1"]  # fmt: skip
    out = tmp_path / "tuned.json"
    result = run(*words, "--out", out)
    assert (result.exit_code, result.stdout) == (0, "")
    assert "30 rounds to tune on" in result.stderr and "tuned less present" in result.stderr
    assert "│ points │ how much the performances of one player vary" in result.stderr
    assert read_rating(out) is not None
    assert json.loads(done(*words)) == json.loads(out.read_bytes())


def test_what_tune_writes_is_what_it_compared(write: Write, tmp_path: Path) -> None:
    """`evaluate` gives the log loss that `tune` showed. Numbers that did not help are left out."""
    file, out = write("a.jsonl", rounds(120)), tmp_path / "tuned.json"
    poor = write("poor.json", {"system": "glicko", "beta": 900, "sigma_drift": 5})
    result = run("tune", file, "--config", poor, "--trials", "12", "--workers", "1", "--out", out)
    assert result.exit_code == 0, result.stderr
    verdict = result.stderr.splitlines()[-1]
    assert verdict.startswith("better on rounds it had not seen: adopt it (better in log loss, -")
    (losses,) = (line for line in result.stderr.splitlines() if line.startswith("│ ↓ log loss  "))
    now, tuned = (float(losses.split("│")[i]) for i in (4, 5))
    for config, loss in ((poor, now), (out, tuned)):
        row = evaluated(file, "--config", config, "--train", "0.5")[0]
        assert row["log_loss"] == pytest.approx(loss, abs=1e-4)
    fitted = re.findall(r"^(\w+) = (\S+): (taken|left out), log loss ([+-])", result.stderr, re.M)
    written = json.loads(out.read_bytes())
    assert {name for name, *_ in fitted} >= {"variance_factor"}
    for name, _, what, sign in fitted:
        assert (what == "taken") == (sign == "-") == (name in written)


def test_what_is_worse_is_not_written(
    write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With exit code 3, and the verdict as the last line, wherever it would have gone."""
    poor = Validated([0.0, 0.0], True, 1.0, 0.1, [])  # ratings hardly move
    monkeypatch.setattr(proposal, "validated", lambda *_: poor)
    file, out = write("a.jsonl", rounds(300)), tmp_path / "tuned.json"
    for words in (["--out", out], []):
        result = run("tune", file, "--system", "codeforces", "--workers", "1", *words)
        last = result.stderr.splitlines()[-1]
        assert last.startswith("worse on rounds it had not seen: keep what you have (")
        assert (result.exit_code, result.stdout, out.exists()) == (3, "", False)


def test_evaluate_shows_and_draws_calibration(write: Write, tmp_path: Path) -> None:
    """A row for each bin that has a side; the same numbers as JSON, and a picture."""
    file, config = write("a.jsonl", rounds(60)), write("one.json", MMR)
    picture = tmp_path / "diagram.svg"
    shown = done("evaluate", file, "--config", config, "--calibration", "--diagram", picture)
    bins = evaluated(file, "--config", config)[0]["calibration"]
    assert sum(each["sides"] for each in bins) == 30 * 6
    assert sum(each["sides"] * each["won"] for each in bins) == pytest.approx(30.0)
    for each in bins:
        assert each["low"] <= each["foretold"] <= each["high"]
        assert f"{each['low']:.0%} to {each['high']:.0%}" in shown
    drawn = picture.read_text()
    assert "probability to win" in drawn and "one.json" in drawn


def test_a_diagram_that_cannot_be_drawn_is_one_line(
    write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before any round is rated."""
    words = ["evaluate", write("a.jsonl", rounds(3)), "--config", write("one.json", MMR)]
    for name, cure in (("d.gif", "end its name in .png or .svg"), ("no/d.png", "no folder")):
        result = run(*words, "--diagram", tmp_path / name)
        assert result.exit_code == 2 and result.stdout == "", result.stderr
        assert cure in result.stderr and len(result.stderr.splitlines()) == 1
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    lacks = "--diagram: matplotlib is not installed: stream-rater[lab] brings it"
    assert failed(*words, "--diagram", tmp_path / "d.png") == lacks


def test_tune_needs_something_to_score(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    """On both parts, or it says how many rounds there are. Without SciPy there is no tuning."""
    words = ["--system", "bar", "--workers", "1"]
    said = failed("tune", write("a.jsonl", rounds(20)), *words)
    assert "a.jsonl: 10 rounds to tune on and 10 to compare on say who was better, and 20" in said
    assert said.endswith("give a file with more rounds, or choose another --train than 0.5")
    monkeypatch.setitem(sys.modules, "scipy", None)
    said = failed("tune", write("a.jsonl", rounds(60)), *words)
    assert said.endswith("scipy is not installed: stream-rater[lab] brings it")


def test_evidence_is_no_part_of_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    """Outside a checkout the command says so; its help refers to the laboratory's."""
    helps = CliRunner().invoke(command.evidence, ["--help"]).output
    for word in (*PARTS, "--cut", "--teams", "--rounds", "games.json", "openskill.py"):
        assert word in helps
    assert "make evidence ARGS=--help" in done("evidence", "--help")
    monkeypatch.setitem(sys.modules, command.__name__, None)
    lacks = "evidence needs a checkout of the repository: `make evidence` there"
    assert failed("evidence", "--only", "farming") == lacks


def test_the_laboratory_starts_without_clients() -> None:
    """Nor with what only `tune`, tables and figures need, or numba alone would take up."""
    heavy = "confluent_kafka redis scipy.optimize scipy.linalg cffi yaml rich matplotlib"
    code = (
        "import sys, stream_rater.cli.app, stream_rater.operations.evaluate\n"
        "import stream_rater.operations.rate\n"
        "from stream_rater.rating.factor import single; single(1.0)\n"
        f"print(*set('{heavy}'.split()) & set(sys.modules))"
    )
    assert subprocess.check_output([sys.executable, "-c", code], text=True).split() == []


def test_a_brief_run_looks_for_no_garbage() -> None:
    """And leaves the interpreter as it was, even when it fails."""
    gc.enable()
    before_s = sys.getswitchinterval()
    with pytest.raises(Failed), short_run():
        assert not gc.isenabled() and sys.getswitchinterval() < before_s
        raise Failed
    assert gc.isenabled() and sys.getswitchinterval() == before_s


VOIDED = a_correction("round-voided", ladder="ranked-eu", round_id="r3")
AMENDED = a_correction("round-amended", ladder="ranked-eu", round_id="r7",
                       standings=ranked([1, 2], ["p1", "p2"]))  # fmt: skip
REMOVED = a_correction("player-removed", ladder="ranked-eu", player="p5")
CORRECTIONS = [VOIDED, AMENDED, REMOVED]
"""Of the made-up season: a round is taken back, another one was another one, a player goes."""


def by_hand(season: list[dict[str, Any]]) -> list[dict[str, Any]]:
    left = [dict(each) for each in season if each["round_id"] != "r3"]
    for each in left:
        if each["round_id"] == "r7":
            each["standings"] = AMENDED["standings"]
        each["standings"] = [entry for entry in each["standings"] if entry["player"] != "p5"]
    return [each for each in left if len(each["standings"]) > 1]


def test_evaluate_reads_a_file_as_its_corrections_make_it(write: Write) -> None:
    """As the file edited by hand: with one configuration and with two, wherever they stand."""
    season, config = rounds(60), write("one.json", MMR)
    ours = write("a.jsonl", [*season[:40], *CORRECTIONS, *season[40:]])
    hand = write("b.jsonl", by_hand(season))
    names = (*MEASURES, "rounds", "scored_rounds", "results")
    for configs in ([config], [config, config]):
        mine, theirs = evaluated(ours, "--config", *configs), evaluated(hand, "--config", *configs)
        for one, other in zip(mine, theirs, strict=True):
            assert [one[m] for m in names] == [other[m] for m in names]
    assert mine[0]["rounds"] == 59


def test_evaluate_reads_corrections_from_standard_input(write: Write) -> None:
    """It can be read but once."""
    file = write("a.jsonl", [*rounds(30), *CORRECTIONS])
    words = ["--config", write("one.json", MMR)]
    text = piped(Path(file).read_text(), "evaluate", "-", *words, "--format", "json")
    (one,), (other,) = json.loads(text), evaluated(file, *words)
    assert [one[m] for m in (*MEASURES, "rounds")] == [other[m] for m in (*MEASURES, "rounds")]


def test_evaluate_reports_rejected_corrections_once(write: Write) -> None:
    """With their line and code; the others count."""
    unknown = VOIDED | {"round_id": "no"}
    file = write("a.jsonl", [{"round_id": "x"}, *rounds(30), unknown, VOIDED])
    result = run("evaluate", file, "--config", write("one.json", MMR), "--format", "json")
    assert (result.exit_code, json.loads(result.stdout)[0]["rounds"]) == (1, 29)
    one, other, last = result.stderr.splitlines()
    assert ":1: bad-id" in one and ":32: unknown-round" in other
    assert last.endswith("2 rounds were invalid; the 29 others were taken")


def test_tune_reads_a_file_as_its_corrections_make_it(write: Write) -> None:
    """The configuration that it finds is that of the file edited by hand."""
    season = rounds(50)
    ours = write("a.jsonl", [*season, *CORRECTIONS])
    words = ["--system", "elo-mmr", "--trials", "12", "--workers", "1"]
    hand = write("b.jsonl", by_hand(season))
    assert done("tune", ours, *words) == done("tune", hand, *words)


def test_evidence_reads_a_file_as_its_corrections_make_it(write: Write) -> None:
    """Even the first rounds alone, which later lines correct."""
    season = rounds(30)
    files = write("a.jsonl", [*season, *CORRECTIONS]), write("b.jsonl", by_hand(season))
    mine, theirs = (load(Path(file), RoundsFile(Path(file)), 20)[0] for file in files)
    assert mine.rounds == theirs.rounds == 20
    for one, other in zip(singly(mine.sessions), singly(theirs.sessions), strict=True):
        assert one.rows.tolist() == other.rows.tolist()
        assert one.rounds.place.tolist() == other.rounds.place.tolist()
