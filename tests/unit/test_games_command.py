"""`evidence --only games` as typed; results are kept as they come, found again, and bounded in
time."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from click.testing import CliRunner, Result

from stream_rater.cli import app
from stream_rater.evaluation import peers
from stream_rater.evaluation.contestants import LEFT_OUT, OwnSystem
from stream_rater.evaluation.game import Game, games_of
from stream_rater.evaluation.measures import PARTS
from stream_rater.evaluation.research import games, games_tables, saved
from stream_rater.evaluation.research.games import Bounds
from stream_rater.evaluation.research.saved import Saved, Unfinished, digest_of
from stream_rater.evaluation.research.synthetic import Kind, season
from stream_rater.evaluation.season import Session
from stream_rater.evaluation.spaces import SPACES
from tests.builders.cases import cases
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


def test_the_folder_is_named_once(data: Path) -> None:
    """Neither twice nor not at all; sizes are whole numbers of two and more. The help lists all
    parts and options."""
    text = run("--help").stdout
    for word in (*PARTS, "--cut", "--teams", "--rounds", "games.json", "openskill.py"):
        assert word in text
    for words in ((), (str(data), "--data", str(data)), (str(data), "--cut", "1"),
                  (str(data), "--cut", "two")):  # fmt: skip
        assert run(*words, *QUICK).exit_code == 2


# --- results that are kept ------------------------------------------------------------------------

SEASON = list(season(Kind(players=20, rounds=40, per_round=6), 3))
BOUNDS = Bounds(10)


def game(rounds: list[Session] = SEASON) -> Game:
    (found,) = games_of("made up", rounds)
    return found


def test_a_system_that_takes_too_long_is_named_and_left_out(tmp_path: Path) -> None:
    """The others are compared all the same. It is tried again with more time alone."""
    systems, kept = [OwnSystem("glicko"), OwnSystem("bar")], Saved(tmp_path)
    ((none,), (found,)) = (
        games.compare([game()], systems, Bounds(10, seconds), None, lambda _: None, kept)
        for seconds in (0.0, 600.0)
    )
    assert [each.system for each in none.not_finished] == ["glicko", "bar"]
    assert none.systems == [] and none.ours is None
    said = "made up: glicko did not finish within 0 s, and is left out of all comparisons."
    assert any(said in line for line in games_tables.page([none], []))
    assert found.not_finished == [] and len(found.systems) == 2


def changed(**rounds: Any) -> Game:
    """The game with another last round."""
    last = SEASON[-1]
    return game([*SEASON[:-1], replace(last, rows=rounds.get("rows", last.rows))])


@cases(
    "other, bounds, system",
    [  # other rounds, boundary, trials, seconds, system
        (changed(rows=SEASON[-1].rows[::-1].copy()), BOUNDS, OwnSystem("glicko")),
        (replace(game(), boundary=5), BOUNDS, OwnSystem("glicko")),
        (game(), Bounds(11), OwnSystem("glicko")),
        (game(), Bounds(10, 9.0), OwnSystem("glicko")),
        (game(), BOUNDS, OwnSystem("bar")),
    ],
)
def test_whatever_decides_a_result_is_in_its_key(
    tmp_path: Path, other: Game, bounds: Bounds, system: OwnSystem
) -> None:
    """One of them is another, and the result is not used."""
    kept = Saved(tmp_path)
    outcome = Unfinished("glicko", 1.0)
    kept.store(game(), OwnSystem("glicko"), BOUNDS, outcome)
    assert kept.load(game(), OwnSystem("glicko"), BOUNDS) == outcome
    assert kept.load(other, system, bounds) is None


def test_other_code_has_other_keys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Other kernels, and other modules of the evaluation."""
    kept = Saved(tmp_path)
    kept.store(game(), OwnSystem("glicko"), BOUNDS, Unfinished("glicko", 1.0))
    for name, value in (("KERNEL_VERSION", 10**6), ("_code", lambda: "another")):
        with monkeypatch.context() as patched:
            patched.setattr(saved, name, value)
            assert kept.load(game(), OwnSystem("glicko"), BOUNDS) is None
    assert kept.load(game(), OwnSystem("glicko"), BOUNDS) is not None


def test_every_column_of_the_rounds_is_in_the_digest() -> None:
    """One number in one of them is another."""
    digests, base = {digest_of(game())}, SEASON[-1]
    names = [
        name for name in base.rounds.__struct_fields__
        if isinstance(getattr(base.rounds, name), np.ndarray) and getattr(base.rounds, name).size
    ]  # fmt: skip
    for name in names:
        column = getattr(base.rounds, name).copy()
        column[-1] = column[-1] == 0
        rounds = type(base.rounds)(*[
            column if each == name else getattr(base.rounds, each)
            for each in base.rounds.__struct_fields__
        ])  # fmt: skip
        digests.add(digest_of(game([*SEASON[:-1], replace(base, rounds=rounds)])))
    assert len(digests) == 1 + len(names) > 4
