"""Tuning finds better parameters, the same ones again, and says what is missing."""

import sys
from dataclasses import replace
from typing import Any

import pytest

from stream_rater.config.extras import MissingExtra
from stream_rater.evaluation.accuracy import averages
from stream_rater.evaluation.contestants import OwnSystem
from stream_rater.evaluation.evaluation import evaluate
from stream_rater.evaluation.executors import Processes, opened
from stream_rater.evaluation.fits import Fit
from stream_rater.evaluation.measures import MEASURES, better
from stream_rater.evaluation.research.synthetic import Kind, season
from stream_rater.evaluation.spaces import SPACES, configuration, start
from stream_rater.evaluation.tuning import (
    PRIOR,
    Problem,
    ProblemWithPrior,
    at_ends,
    tune,
    without_defaults,
)
from stream_rater.rating.parameters import EloMMR, TwoMoment, from_builtins
from stream_rater.rating.systems.dimension import LEVEL_PART, Dimension, fraction_of
from stream_rater.rating.systems.elo_mmr import newcomer_weights

SEASON = list(season(Kind(players=25, rounds=150, per_round=6), 11))


def problem(system: str = "codeforces", **changes: Dimension) -> Problem:
    space = tuple(changes.get(each.name, each) for each in SPACES[system])
    return Problem(system, space, "pair_inversion", SEASON)


FAR_OFF = Dimension("weight", 0.001, 2.0, 0.0015)
"""A first guess with which ratings hardly move."""


def test_tuning_improves_on_the_first_guess() -> None:
    """Far off at the start, by points of pair inversion in the end."""
    poor = problem(weight=FAR_OFF)
    trials: list[None] = []
    found = tune(poor, 40, on_trial=lambda: trials.append(None))
    begin = poor.cost(poor.start())
    values = {each.name: getattr(found, each.name) for each in poor.space}
    end = poor.cost([fraction_of(each, values[each.name]) for each in poor.space])
    assert end < begin - 1.0
    assert 30 <= len(trials) <= 50


def test_tuning_is_never_worse_than_the_first_guess() -> None:
    """It is among the trials, and wins where all are equal: nothing can be scored here."""
    blind = Problem("codeforces", SPACES["codeforces"], "pair_inversion", SEASON[:3])
    assert tune(blind, 12) == configuration("codeforces", start(blind.space))


@pytest.mark.parametrize("measure", MEASURES)
def test_every_measure_has_a_cost(measure: str) -> None:
    """That of winners, too, though other searches do not score them."""
    some = replace(problem(), measure=measure)
    found = averages(evaluate(SEASON, some.config(some.start())).scores)[measure]
    assert found is not None
    assert some.cost(some.start()) == -better(measure) * found


@pytest.mark.slow
def test_the_same_is_found_with_any_number_of_processes() -> None:
    """They share the work and nothing else."""
    with opened(Processes(2)) as executor:
        assert tune(problem(), 16) == tune(problem(), 16, executor)


def test_without_scipy_one_line_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """And what to install."""
    monkeypatch.setitem(sys.modules, "scipy", None)
    with pytest.raises(MissingExtra, match=r"scipy is not installed: stream-rater\[lab\]"):
        tune(problem(), 12)


@pytest.mark.parametrize("system", sorted(SPACES))
@pytest.mark.parametrize("at", [0.0, 0.37, 1.0])
def test_every_point_of_every_space_is_a_configuration(system: str, at: float) -> None:
    """It is valid, and it reads as itself if it is written without defaults."""
    found = Problem(system, SPACES[system], "brier", []).config([at] * len(SPACES[system]))
    assert from_builtins(without_defaults(found)) == found


def test_the_first_guess_of_two_moment_is_its_default() -> None:
    """So `default` in the games' tables is what a ladder has that says nothing."""
    assert configuration("two-moment", start(SPACES["two-moment"])) == TwoMoment()
    assert TwoMoment().newcomer_field == LEVEL_PART


@pytest.mark.parametrize("dimension", [d for space in SPACES.values() for d in space])
def test_a_first_guess_has_a_place_in_its_range(dimension: Dimension) -> None:
    """And values come back from their place."""
    assert dimension.low <= dimension.start <= dimension.high
    assert dimension.at(fraction_of(dimension, dimension.start)) == pytest.approx(dimension.start)
    assert (dimension.at(0.0), dimension.at(1.0)) == (dimension.low, dimension.high)


@pytest.mark.parametrize("aim", ["log_loss", "pair_inversion"])
def test_tuning_with_a_prior_is_that_of_games(aim: str) -> None:
    """The same total loss and the same prior, so the same points are better."""
    ours = ProblemWithPrior.of(replace(problem(), measure=aim))
    theirs = Fit(OwnSystem("codeforces"), SEASON, aim)
    points = [ours.start(), [0.2, 0.9], [0.9, 0.1], [0.5, 0.5]]
    costs = [ours.cost(point) - theirs.cost(point) for point in points]
    assert costs == pytest.approx([costs[0]] * len(points), abs=1e-6)


@pytest.mark.parametrize("measure", MEASURES)
def test_a_prior_holds_parameters_where_rounds_say_little(measure: str) -> None:
    """Of every measure: of a few rounds most of what is gained far off is noise."""
    few = ProblemWithPrior.of(replace(problem(), measure=measure, sessions=SEASON[:40]))
    free = few.problem.cost
    start, point = few.start(), [0.0, 1.0]
    assert few.cost(start) == pytest.approx(few.count * unit(measure) * free(start))
    gap = sum((a - b) ** 2 for a, b in zip(start, point, strict=True)) / (2.0 * PRIOR**2)
    assert few.cost(point) == pytest.approx(few.count * unit(measure) * free(point) + gap)


def unit(measure: str) -> float:
    """Measures in % are parts of a hundred."""
    return 0.01 if measure.startswith(("pair", "rank", "order")) else 1.0


def test_ends_of_ranges_are_noticed() -> None:
    """Unless the first guess is there, too: a drift of 0 is where it begins."""
    space = SPACES["elo-mmr"]
    begun = [fraction_of(each, each.start) for each in space]
    assert at_ends(space, begun) == ()
    names = [each.name for each in space]
    drift, weight = names.index("drift_per_day"), names.index("weight_limit")
    assert begun[drift] == 0.0
    for x, due in ((0.0, "weight_limit"), (0.995, "weight_limit"), (0.5, None)):
        point = list(begun)
        point[weight] = x
        assert at_ends(space, point) == ((due,) if due else ())
    point = list(begun)
    point[drift] = 1.0
    assert at_ends(space, point) == ("drift_per_day",)


def test_newcomers_weights_approach_one() -> None:
    """From the factor on, by the same part each round."""
    assert newcomer_weights(3.0, 0.5)[:4] == [3.0, 2.0, 1.5, 1.25]
    assert newcomer_weights(1.0, 0.5) == []


def test_described_leaves_defaults_out() -> None:
    """What is written is what was decided."""
    config: Any = EloMMR(weight_limit=0.2, sigma_limit=80.0, rho="inf")
    expected = {"system": "elo-mmr", "weight_limit": 0.2, "sigma_limit": 80.0, "rho": "inf"}
    assert without_defaults(config) == expected
