"""The benchmarks run, and print what checks read; how fast anything is, is not asserted here."""

import subprocess
import sys

import msgspec
import numpy as np
import pytest

from local.tools import ROOT
from stream_rater.rating import stages as systems
from stream_rater.rating.model import PERFORMANCE
from tests.benchmarks import __main__ as benchmarks
from tests.benchmarks import stage1, two_moment
from tests.benchmarks.codeforces import widest_swap
from tests.benchmarks.measure import Result


def run(*arguments: str, **environment: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-m", "tests.benchmarks", *arguments],
        cwd=ROOT,
        env=environment or None,
        capture_output=True,
        text=True,
        check=False,
    )


def test_json_lines() -> None:
    """Standard output is one JSON object a line, with the names asked for and these keys."""
    done = run("--quick", "stage1/5", "lobby/5")
    assert done.returncode == 0, done.stderr
    lines = [msgspec.json.decode(line) for line in done.stdout.splitlines()]
    assert [set(line) for line in lines] == [{"name", "value", "unit", "ratio", "note"}] * 2
    stage, lobby = (msgspec.convert(line, Result) for line in lines)
    assert (stage.name, stage.unit) == ("stage1/5", "us/player")
    assert (lobby.name, lobby.unit) == ("lobby/5", "us/update")
    assert stage.value > 0.0 and stage.ratio["error_points"] < 1e-4
    for peer in ("openskill", "trueskill"):
        assert (peer in lobby.ratio) != (f"{peer} is not installed" in lobby.note)


def test_names() -> None:
    """Those that checks look for; a kind stands for all of it, and none for everything."""
    sizes = (2, 5, 12, 30, 60, 100, 300, 1000, 10000, 100000, 1000000)
    stages = [f"{kind}/{n}" for kind in ("stage1", "stage1-gaussian") for n in sizes]
    files = ["update/codeforces", "evaluate/codeforces", "record/codeforces"]
    offline = ("cwl", "formula-one", "map-rando", "codeforces")
    made = ("duels", "duels-few", "twelve", "twelve-few")
    files += [*(f"offline/{each}" for each in (*offline, *made)), "replay/seeds"]
    files += ["replay/rebuild", "replay/verify"]
    models = ("elo-mmr", "elo-mmr-factor", "elo", "openskill")
    files += [f"winners/{each}/{model}" for each in offline for model in models][:-1]
    files += [f"tuning/{each}" for each in ("processes/1", "processes/2", "processes/4", "dask/2")]
    lobbies = ["lobby/5", "lobby/100", *(f"two-moment/{n}" for n in two_moment.SIZES)]
    assert sorted(benchmarks._chosen([])) == sorted([*stages, *lobbies, *files])
    assert benchmarks._chosen(["lobby", "stage1/5"]) == ["lobby/5", "lobby/100", "stage1/5"]


def test_an_unknown_name_is_wrong_usage() -> None:
    """One line lists the known names, and the exit code is 2."""
    done = run("stage1/7")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("bench: no benchmark 'stage1/7'; there are: stage1/2 ")
    assert done.stderr.count("\n") == 1


def test_missing_data_are_reported(tmp_path: object) -> None:
    """Without the shared folder its benchmarks are skipped, with the reason, and exit code 1."""
    done = run("--quick", "update/codeforces", STREAM_RATER_SHARED=str(tmp_path))
    assert (done.returncode, done.stdout) == (1, "")
    assert "skipped update/codeforces: no data/codeforces.jsonl.gz" in done.stderr


@pytest.mark.parametrize("size", [2, 60])
@pytest.mark.parametrize("gaussian", [False, True])
def test_brute_force_sees_an_error(size: int, gaussian: bool) -> None:
    """The error reported is that of the worst performance."""
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
