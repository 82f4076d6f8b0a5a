"""`evidence --only games` as typed."""

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner, Result

from stream_rater.cli import app
from stream_rater.evaluation import peers
from stream_rater.evaluation.contestants import LEFT_OUT
from stream_rater.evaluation.executors import Processes
from stream_rater.evaluation.measures import PARTS
from stream_rater.evaluation.research import games
from stream_rater.evaluation.research.synthetic import Kind, season
from stream_rater.evaluation.spaces import SPACES
from stream_rater.operations.evidence import evidence_report
from tests.rounds import event, ranked

QUICK = ("--only", "games", "--quick", "--workers", "1")


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A folder with a made-up season, and one of teams."""
    folder = tmp_path / "data"
    folder.mkdir()
    singles, teams = [], []
    for i, session in enumerate(season(Kind(20, 40, 6), 4)):
        names = [f"p{row}" for row in session.rows.tolist()]
        singles.append(event(*ranked(list(range(1, 7)), names), round_id=f"r{i}"))
        sides = ({"team": names[:2], "rank": 1}, {"team": names[4:], "rank": 2})
        teams.append(event(*sides, round_id=f"r{i}"))
    for name, rounds in (("singles", singles), ("teams", teams)):
        lines = b"\n".join(map(msgspec.json.encode, rounds)) + b"\n"
        (folder / f"{name}.jsonl").write_bytes(lines)
    return folder


@pytest.fixture
def no_peers(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a machine where none is installed."""
    monkeypatch.setattr(peers, "missing", lambda: list(peers.SPACES))


def run(*words: str) -> Result:
    return CliRunner().invoke(app.main, ["evidence", *words])


def read_results(out: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((out / "games.json").read_bytes())
    return found


@pytest.mark.usefixtures("no_peers")
def test_games_are_written_as_markdown_and_json(data: Path, tmp_path: Path) -> None:
    """Each file is played as it is, and cut where it has no teams. One line names the missing
    peers."""
    out = tmp_path / "out"
    done = run(str(data), "--out", str(out), *QUICK, "--cut", "3,2", "--teams", "1",
               "--system", "glicko", "--system", "elo-mmr")  # fmt: skip
    assert done.exit_code == 0, done.stderr
    report, found = (out / "report.md").read_text(), read_results(out)
    names = ["singles", "singles, 2", "singles, 3", "singles, 1 against 1", "teams"]
    assert [each["game"] for each in found["games"]] == names
    for name in names:
        for system in ("glicko", "elo-mmr"):
            assert len([line for line in report.splitlines() if line.startswith(f"| {name} | ")
                        and f"{system}" in line.split("|")[2]]) == 2 + 1  # fmt: skip
    (line,) = [line for line in report.splitlines() if "Not installed" in line]
    assert all(peer in line for peer in peers.SPACES)
    assert line.removeprefix("- ") in found["notes"]
    assert "## Accuracy" not in report and "## Games" in report
    assert "- teams: 4 rounds to tune on, which say little." in report


@pytest.mark.usefixtures("no_peers")
def test_files_may_be_played_cut_alone(data: Path, tmp_path: Path) -> None:
    """As the benchmark plays them where they are played unchanged elsewhere."""
    out = tmp_path / "out"
    evidence_report(
        data, out, ["games"], ["glicko"], rounds=None, trials=None, quick=True, where=Processes(1),
        cut=(3,), whole=False,
    )  # fmt: skip
    assert [each["game"] for each in read_results(out)["games"]] == ["singles, 3"]


@pytest.mark.usefixtures("no_peers")
def test_a_second_run_goes_on(data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is tuned again where the results are kept, and the figures are the same."""
    out = tmp_path / "out"
    words = (str(data), "--out", str(out), *QUICK, "--system", "glicko")
    assert run(*words).exit_code == 0
    first = read_results(out)
    monkeypatch.setattr(games, "fit", lambda *_: pytest.fail("it is done again"))
    assert run(*words).exit_code == 0
    assert read_results(out) == first and len(list((out / "saved").iterdir())) == 2


@pytest.mark.usefixtures("no_peers")
def test_ours_is_marked(data: Path, tmp_path: Path) -> None:
    """Among all systems worth comparing, in the table and in the JSON."""
    out = tmp_path / "out"
    assert run("--data", str(data), "--out", str(out), *QUICK).exit_code == 0
    report = (out / "report.md").read_text()
    for each in read_results(out)["games"]:
        wanted = set(SPACES) - LEFT_OUT | {"trueskill+newcomers"}
        assert {system["system"] for system in each["systems"]} == wanted
        assert f"| {each['game']} | **{each['ours']}** | tuned |" in report
        assert report.count(f"| {each['game']} | **") == 2


@pytest.mark.skipif(bool(peers.missing()), reason="peers are not installed: `make bench` does it")
def test_peers_stand_beside_ours(data: Path, tmp_path: Path) -> None:
    """Each is compared with ours in both measures, in the table and in the JSON."""
    out = tmp_path / "out"
    words = ("--out", str(out), *QUICK, "--rounds", "30", "--system", "glicko")
    assert run(str(data), *words).exit_code == 0
    report, found = (out / "report.md").read_text(), read_results(out)
    assert any("first 30 rounds" in note for note in found["notes"])
    for each in found["games"]:
        assert each["rounds"] == 30 and each["scored_rounds"] == 27
        compared = {(v["peer"], v["measure"]) for v in each["verdicts"]}
        assert {peer for peer, _ in compared} == set(peers.SPACES)
        assert len(compared) == 2 * len(peers.SPACES)
        for v in each["verdicts"]:
            assert v["difference"]["low"] <= v["difference"]["high"]
            assert f"| {each['game']} | another file | glicko | {v['peer']} |" in report


def test_the_folder_is_named_once(data: Path) -> None:
    """Neither twice nor not at all; sizes are whole numbers of two and more."""
    for words in ((), (str(data), "--data", str(data)), (str(data), "--cut", "1"),
                  (str(data), "--cut", "two")):  # fmt: skip
        assert run(*words, *QUICK).exit_code == 2


def test_help_lists_all_parts_and_options() -> None:
    """What can be asked for."""
    text = run("--help").stdout
    for word in (*PARTS, "--cut", "--teams", "--rounds", "games.json", "openskill.py"):
        assert word in text
