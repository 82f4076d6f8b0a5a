"""The figures of shared/data/README.md, made by an independent implementation."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from stream_rater.cli import app
from stream_rater.evaluation.accuracy import averages
from stream_rater.evaluation.evaluation import evaluate
from stream_rater.evaluation.season import sessions_of
from stream_rater.rating.parameters import EloMMR
from stream_rater.replay.edited_log import records_of
from stream_rater.replay.files import read_lines
from stream_rater.rounds.validation import Invalid

CONFIG = {"system": "elo-mmr", "weight_limit": 0.23, "sigma_limit": 54, "rho": 0.04}


@pytest.mark.slow
def test_codeforces_is_predicted_as_well_as_the_prototype_did(shared: Path, tmp_path: Path) -> None:
    """78.458 % pair inversion and 14.853 % rank deviation there, with all opponents."""
    config = tmp_path / "c.json"
    config.write_text(json.dumps(CONFIG))
    words = ["evaluate", str(shared / "data" / "codeforces.jsonl.gz"), "--config", str(config)]
    result = CliRunner().invoke(app.main, [*words, "--format", "json"])
    (found,) = json.loads(result.stdout)
    assert (found["rounds"], found["scored_rounds"], found["players"]) == (1071, 964, 3_104_991)
    assert found["pair_inversion"] >= 78.45
    assert found["rank_deviation"] <= 14.86


def refuse(offset: int, invalid: Invalid) -> None:
    raise AssertionError(f"line {offset + 1}: {invalid}")


def test_formula_one_is_predicted_to_the_digit(shared: Path) -> None:
    """72.85 % and 18.99 %, where unfinished entries are rated as one tied last group: as by
    default."""
    lines = read_lines(shared / "data" / "formula-one.jsonl.gz")
    config = EloMMR(weight_limit=0.23, sigma_limit=54.0, rho=0.04)
    outcome = evaluate(sessions_of(records_of(lines), 10_000, refuse), config)
    found = averages(outcome.scored(0.1))
    assert found["pair_inversion"] == pytest.approx(72.85, abs=0.005)
    assert found["rank_deviation"] == pytest.approx(18.99, abs=0.005)
