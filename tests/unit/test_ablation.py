"""What a part gains is measured by switching off that part alone."""

import numpy as np
import pytest

from stream_rater.evaluation import calibrating
from stream_rater.evaluation.contestants import OwnSystem
from stream_rater.evaluation.game import games_of
from stream_rater.evaluation.measures import FIELDS, OF_PAIRS
from stream_rater.evaluation.research.games import REFERENCE
from stream_rater.evaluation.research.synthetic import Kind, season
from tests.benchmarks import ablation
from tests.benchmarks.document.lines import SPREADS
from tests.benchmarks.document.rows import Origin, Row

SEASON = list(season(Kind(players=30, rounds=120, per_round=6), 3))


@pytest.mark.slow
def test_every_part_has_a_row() -> None:
    """On each file, with its interval. Calibrations forget as before afterwards."""
    (game,) = games_of("made up", SEASON)
    before = calibrating.HALF_LIFE
    found = list(ablation.rows(game, 8))
    parts = {*ablation.PARAMETERS, *ablation.CALIBRATION} - {"calibration: draw width"}
    assert {each.note for each in found} == parts | {
        "calibration", "tuning once", "validation", "following", "calibration: forgetting",
        "all of tuning and calibration",
    }  # fmt: skip
    assert all(each.ratio["low"] <= each.value <= each.ratio["high"] for each in found)
    assert before == calibrating.HALF_LIFE


@pytest.mark.parametrize("part", ablation.PARAMETERS)
def test_a_part_that_is_switched_off_has_no_effect(part: str) -> None:
    """Its parameters are fixed and none of them is tuned; the others are."""
    fixed = ablation.PARAMETERS[part]
    system, whole = ablation.Without(REFERENCE, fixed=fixed), OwnSystem(REFERENCE)
    names = {each.name for each in system.space}
    assert names == {each.name for each in whole.space} - {name for name, _ in fixed}
    config = system.config({each.name: each.at(0.7) for each in system.space})
    assert [getattr(config, name) for name, _ in fixed] == [value for _, value in fixed]


def test_a_gain_is_what_would_be_lost() -> None:
    """Positive where the rounds are predicted worse without the part."""
    (game,) = games_of("made up", SEASON)
    on = np.zeros((50, OF_PAIRS))
    on[:, FIELDS.index("scored")] = 2.0
    off = on.copy()
    on[:, FIELDS.index("log_loss")], off[:, FIELDS.index("log_loss")] = 0.5, 0.6
    (row,) = ablation._row(game, "a part", on, off)
    assert (row.name, row.value) == ("ablation/made up/a-part", 0.1)


def test_gains_and_losses_look_different() -> None:
    """In the table: bold where a part costs, slanted where it is not known."""
    then = Origin("2026-11-25 09:12", "abcdef1", "make bench-ablation", "one machine")

    def shown(value: float, low: float, high: float) -> str:
        figures = {"value": value, "ratio": {"low": low, "high": high}, "note": "a part"}
        (line,) = SPREADS["ablation"](Row("ablation/frc/a-part", then, figures))
        return str(line.figures["ablation_gain"])

    assert shown(0.01, 0.005, 0.015) == "+0.01 [+0.005, +0.015]"
    assert shown(-0.01, -0.015, -0.005) == "**-0.01 [-0.015, -0.005]**"
    assert shown(0.01, -0.005, 0.015) == "*+0.01 [-0.005, +0.015]*"
