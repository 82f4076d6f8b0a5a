"""The variance factor that suits a configuration, against whole evaluations with other factors."""

import math
import sys
from collections.abc import Iterable

import pytest

from stream_rater.config.extras import MissingExtra
from stream_rater.evaluation import variance_factor as module
from stream_rater.evaluation.evaluation import evaluate
from stream_rater.evaluation.measures import FIELDS
from stream_rater.evaluation.research.synthetic import Kind, season
from stream_rater.evaluation.season import Session, in_blocks
from stream_rater.evaluation.variance_factor import variance_factor
from stream_rater.rating.parameters import EloMMR, RatingConfig, TrueSkill
from tests.rounds import as_json, ranked
from tests.unit.test_season import sessions

SEASON = list(season(Kind(players=40, rounds=200, per_round=8), 5))
OVERCONFIDENT = EloMMR(weight_limit=0.2, sigma_limit=15.0)
DRAWS = TrueSkill(beta=60.0, sigma_drift=5.0, draw_margin=20.0)


def drawn() -> list[Session]:
    """Half of these rounds have no winner."""
    places = ([1, 1], [1, 2], [1, 1], [2, 1])
    lines = (as_json(*ranked(places[i % 4]), round_id=str(i)) for i in range(80))
    return sessions(*lines)[0]


def cost(rounds: Iterable[Session], config: RatingConfig, factor: float) -> float:
    """The winners' loss in a whole evaluation, and the prior's."""
    scores = evaluate(rounds, config, variance_factor=factor).scores
    loss = float(scores[:, FIELDS.index("winner_log_loss")].sum())
    return loss + 0.5 * (math.log(factor) / module.PRIOR) ** 2


@pytest.mark.parametrize(
    ("rounds", "config"), [(SEASON, OVERCONFIDENT), (drawn(), DRAWS)], ids=["winners", "draws"]
)
def test_no_other_factor_suits_better(rounds: list[Session], config: RatingConfig) -> None:
    """Neither nearby nor far off."""
    found = variance_factor(rounds, config)
    least = cost(rounds, config, found)
    assert all(least < cost(rounds, config, found * by) for by in (0.1, 0.9, 1.1, 10.0))


def test_who_is_too_sure_needs_more_variance() -> None:
    """However the rounds are read."""
    found = variance_factor(SEASON, OVERCONFIDENT)
    assert found > 2.0
    assert variance_factor(in_blocks(SEASON), OVERCONFIDENT) == pytest.approx(found, rel=1e-3)


def test_a_few_rounds_say_little(monkeypatch: pytest.MonkeyPatch) -> None:
    """None says nothing; and only so many sides are looked at."""
    assert variance_factor([], OVERCONFIDENT) == pytest.approx(1.0, abs=1e-2)
    all_rounds = variance_factor(SEASON, OVERCONFIDENT)
    monkeypatch.setattr(module, "MOST_SIDES", 16)
    two_rounds = variance_factor(SEASON, OVERCONFIDENT)
    assert abs(math.log(two_rounds)) < 0.5 * math.log(all_rounds)


def test_without_scipy_one_line_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """And what to install."""
    monkeypatch.setitem(sys.modules, "scipy.optimize", None)
    with pytest.raises(MissingExtra, match=r"is not installed: stream-rater\[lab\] brings it"):
        variance_factor(SEASON, OVERCONFIDENT)
