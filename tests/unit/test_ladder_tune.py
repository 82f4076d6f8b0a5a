"""`Ladder.tune`: the numbers of a live ladder's proposal, on any executor."""

import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import stream_rater
from stream_rater import Ladder, MissingExtra, TrialsFailed
from stream_rater.evaluation.proposal import Proposal, propose
from stream_rater.operations.evaluate import SeasonFile
from tests.benchmarks.offline import Made, made_up
from tests.unit.test_executors import Dropping

TRIALS = 16


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Rounds of one ladder, of which one is taken back."""
    path = tmp_path / "duel.jsonl"
    void = b'{"event_type": "round-voided", "ladder": "duel", "round_id": "r3"}\n'
    path.write_bytes(b"".join(made_up(200, Made(200, 4, 20))) + void)
    return path


@pytest.fixture
def ladder(file: Path) -> Ladder:
    """A ladder that has rated them."""
    made = Ladder("glicko", beta=200, sigma_drift=35)
    made.rate_file(file)
    return made


def proposed(file: Path, ladder: Ladder, system: str, aim: str = "log_loss") -> Proposal:
    sessions = SeasonFile(file).play(list)
    return propose(ladder.parameters, system, sessions, aim, train=0.5, trials=TRIALS)


@pytest.mark.parametrize("system", [None, "elo-mmr"])
def test_it_is_the_proposal_for_a_live_ladder(file: Path, ladder: Ladder, system: Any) -> None:
    """For its own system and for another one. What is found makes a ladder."""
    before = ladder.players.to_dicts()
    found, due = ladder.tune(system, trials=TRIALS), proposed(file, ladder, system or "glicko")
    assert Ladder(found.system, **found.parameters).parameters == due.rating
    assert (found.verdict, found.tuned_rounds, found.compared_rounds) == (due.verdict, 99, 100)
    assert found.at_ends == due.at_ends and found.title.endswith(found.verdict)
    rows = [
        (each.measure, each.now, each.tuned, each.difference.mean, each.difference.low)
        for each in due.compared
    ]
    keys = ("measure", "now", "tuned", "difference", "low")
    assert [tuple(row[key] for key in keys) for row in found.to_dicts()] == rows and len(rows) == 2
    assert ladder.players.to_dicts() == before


def test_the_executor_makes_no_difference(ladder: Ladder) -> None:
    """Neither does its order of work."""
    with ThreadPoolExecutor(2) as threads:
        there = ladder.tune(trials=TRIALS, metric="pair_inversion", executor=threads)
    here = ladder.tune(trials=TRIALS, metric="pair_inversion")
    assert (there.parameters, there.to_dicts()) == (here.parameters, here.to_dicts())


def test_mistakes_are_one_line(ladder: Ladder) -> None:
    """Each names the argument."""
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"system": "chess"}, "system: 'chess' is none of bar, "),
        ({"metric": "brier"}, "metric: 'brier' is none of log_loss, pair_inversion"),
        ({"trials": 0}, "trials: 0 is no whole number from 1 on"),
        ({"train": 1.0}, r"train: 1.0 is not in \[0, 1\)"),
        ({"train": 0.01}, "train: 1 rounds to tune on and 19. to compare on"),
    ]
    for options, why in wrong:
        with pytest.raises(ValueError, match=f"^{why}"):
            ladder.tune(**options)


def test_what_is_missing_is_one_line(ladder: Ladder, monkeypatch: pytest.MonkeyPatch) -> None:
    """Workers, and SciPy."""
    assert stream_rater.TrialsFailed is TrialsFailed
    with pytest.raises(TrialsFailed, match="the executor dropped a trial"):
        ladder.tune(trials=TRIALS, executor=Dropping())
    monkeypatch.setitem(sys.modules, "scipy", None)
    with pytest.raises(MissingExtra, match=r"scipy is not installed: stream-rater\[lab\]"):
        ladder.tune(trials=TRIALS)
