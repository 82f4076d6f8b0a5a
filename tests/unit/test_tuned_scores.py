"""What scores are worth, as dimensions that `tune` searches."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from stream_rater.evaluation import spaces
from stream_rater.evaluation.contestants import OwnSystem
from stream_rater.evaluation.fits import LOG_LOSS, Fit
from stream_rater.evaluation.present import Present
from stream_rater.evaluation.season import Session
from stream_rater.rating.parameters import TwoMoment
from stream_rater.rating.systems.dimension import fraction_of
from stream_rater.rating.systems.two_moment import Score
from tests.rounds import as_json
from tests.unit.test_season import sessions

Scores = Sequence[float | None]


def season(*rounds: Scores) -> list[Session]:
    """Rounds of players, ranked in the order in which their scores are given."""
    lines = []
    for number, scores in enumerate(rounds):
        entries: list[dict[str, Any]] = [
            {"player": f"p{i}", "rank": i + 1, **({} if score is None else {"score": score})}
            for i, score in enumerate(scores)
        ]
        lines.append(as_json(*entries, round_id=str(number)))
    return sessions(*lines)[0]


def margin(*rounds: Scores, by: str = "difference") -> float:
    return spaces.mean_margin([each.rounds for each in season(*rounds)], by)


@pytest.mark.parametrize(("rounds", "due"), [
    ([(3, 1)], 2.0),
    ([(3, 1), (5, 1)], 3.0),
    ([(3, 1), (1, 3)], 2.0),  # a score that contradicts the places shows nothing
    ([(3, 1), (None, 3)], 2.0),
    ([(3, 1), (3, 2, 1)], 2.0),
    ([(3, 1), (3, 2, 1), (None, None)], 0.0),  # most rounds show nothing
    ([(2, 2)], 0.0),
    ([(None, None)], 0.0),
])  # fmt: skip
def test_the_mean_margin(rounds: Sequence[Scores], due: float) -> None:
    """Of the rounds of two sides whose scores show something, if they are half of all."""
    assert margin(*rounds) == due


def test_the_mean_margin_by_ratio() -> None:
    """Of the logarithms of 1 + score. A negative score has none."""
    assert margin((math.e - 1.0, 0.0), (3, -3), by="ratio") == pytest.approx(1.0)


def test_only_a_system_that_uses_scores_has_the_dimensions() -> None:
    """Their ranges follow the scores' unit."""
    rounds = season((30, 10), (50, 10))
    scale, cap = spaces.field_dimensions("two-moment", rounds)
    assert (scale.name, scale.start, scale.high) == ("score.scale", 0.0, spaces.MOST_POINTS / 30.0)
    assert (cap.name, cap.start) == ("score.cap", 180.0)
    assert spaces.field_dimensions("glicko", rounds) == ()
    assert spaces.field_dimensions("two-moment", season((None, None))) == ()
    assert spaces.field_dimensions("two-moment", []) == ()


def test_the_first_guess_is_that_scores_do_not_count() -> None:
    own = OwnSystem("two-moment").on(season((3, 1)))
    start = {each.name: each.start for each in own.space}
    assert own.config(start).score is None
    assert own.config({**start, "score.scale": 40.0}).score == Score(scale=40.0, cap=12.0)


def test_a_ladder_begins_with_its_own_scale() -> None:
    """And keeps how it measures margins."""
    rating = TwoMoment(score=Score(scale=150.0, cap=2.5, by="ratio"))
    present = Present(rating).on(season((3, 1)))
    start = {each.name: each.start for each in present.space}
    assert (start["score.scale"], start["score.cap"]) == (150.0, 2.5)
    assert present.config(start) == rating
    assert present.config({**start, "score.scale": 0.0}).score is None
    without_scores = Present(rating).on(season((None, None)))
    assert without_scores.config({"beta": 200.0}).score == rating.score


def test_the_search_finds_that_margins_say_something() -> None:
    """Players of skills that are far apart win by as much as they are better. Then the loss is less
    with the scores than without."""
    rng, lines = np.random.default_rng(5), []
    skills = rng.normal(0.0, 2.0, 60)
    for number in range(300):
        pair = rng.permutation(60)[:2]
        shown = skills[pair] + rng.normal(0.0, 1.0, 2)
        entries = [
            {"player": f"p{player}", "rank": int(score < shown.max()) + 1, "score": round(score, 3)}
            for player, score in zip(pair, shown.tolist(), strict=True)
        ]
        lines.append(as_json(*entries, round_id=str(number)))
    rounds = sessions(*lines)[0]
    problem = Fit(OwnSystem("two-moment").on(rounds), rounds, LOG_LOSS, has_prior=False)
    (at,) = (i for i, each in enumerate(problem.space) if each.name == "score.scale")
    point = problem.start()
    without = problem.cost(point)
    point[at] = fraction_of(problem.space[at], 150.0)
    assert problem.cost(point) < without - 2.0
