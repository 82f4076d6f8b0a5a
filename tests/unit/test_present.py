"""A ladder's present parameters are where its tuning begins, and all that it may leave."""

from dataclasses import astuple, replace
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
from msgspec import structs

from stream_rater.evaluation.accuracy import average
from stream_rater.evaluation.bootstrap import difference
from stream_rater.evaluation.evaluation import evaluate
from stream_rater.evaluation.fits import LOG_LOSS, ORDER, ORDER_OF_ALL, Present, system_of
from stream_rater.evaluation.measures import Difference
from stream_rater.evaluation.proposal import (
    ADOPT,
    KEEP,
    NO_DIFFERENCE,
    Compared,
    TooFewRounds,
    TuningProposal,
    propose,
)
from stream_rater.evaluation.season import Session
from stream_rater.evaluation.spaces import SPACES
from stream_rater.rating.parameters import (
    Codeforces,
    Elo,
    EloMMR,
    EloR,
    MinusSigma,
    RatingConfig,
    Topcoder,
    TrueSkill,
)
from stream_rater.rating.systems.common import fraction_of
from stream_rater.runtime.selfcheck import SYSTEMS
from tests.benchmarks.lab.game import Kind, season
from tests.builders.cases import cases

MMR = EloMMR(weight_limit=0.2, sigma_limit=80.0)
FADING = (9.0, 5.0, 3.0, 2.0, 1.5, 1.25, 1.125, 1.062, 1.031, 1.016, 1.008, 1.004)
OTHERS: list[RatingConfig] = [
    EloMMR(weight_limit=5.0, sigma_limit=400.0, rho=20.0, drift_per_day=500.0,
           newcomer_weights=FADING),
    EloMMR(weight_limit=0.2, sigma_limit=8.0, initial_mu=0.0, initial_sigma=35.0),
    EloR(delta=3000.0, sigma_limit=60.0),
    TrueSkill(beta=4.0, sigma_drift=0.083, draw_margin=0.7, initial_mu=25.0, initial_sigma=8.333),
    Elo(learning_rate=0.1),
    Elo(learning_rate=((1000.0, 40.0), (2000.0, 17.7)), initial_mu=1333.0, scale=174.0),
]  # fmt: skip
"""Far from what is usual, but with values that the dimensions can have."""


def at_start(present: Present, rating: RatingConfig | None = None) -> RatingConfig:
    found: RatingConfig = present.config({each.name: each.start for each in present.space})
    return found


def name_of(rating: RatingConfig) -> str:
    return f"{system_of(rating)} {rating.initial_sigma:g}"


@cases("rating", [*SYSTEMS, *OTHERS], name_of)
def test_the_search_begins_at_the_present_parameters(rating: RatingConfig) -> None:
    """In any points: what has not moved is what is rated by now."""
    assert {system_of(each) for each in SYSTEMS} == set(SPACES)
    present = Present(rating)
    assert at_start(present) == rating
    for each in present.space:
        assert each.low <= each.start <= each.high
        assert each.at(fraction_of(each, each.start)) == pytest.approx(each.start, rel=1e-3)


@cases("rating", SYSTEMS, name_of)
def test_what_is_no_dimension_stays(rating: RatingConfig) -> None:
    """Wherever the search goes: how ratings are shown, how newcomers begin, what is rated."""
    kept: dict[str, Any] = {
        "initial_mu": 1200.0, "initial_sigma": 200.0, "history": 7, "floor": 100.0,
        "display": MinusSigma(2.0), "provisional_rounds": 3, "skip_all_tied": True,
    }  # fmt: skip
    present = Present(structs.replace(rating, **kept))
    for part in (0.0, 0.4, 1.0):
        found = present.config({each.name: each.at(part) for each in present.space})
        assert {name: getattr(found, name) for name in kept} == kept
        assert found != present.rating


def test_forms_of_parameters() -> None:
    """beta and gamma become limits, a table of rates keeps its form, and scales are bounded."""
    spread = EloMMR(beta=200.0, gamma=40.0)
    found = at_start(Present(spread))
    assert isinstance(found, EloMMR) and (found.beta, found.gamma) == (None, None)
    assert found.limits == pytest.approx(spread.limits, rel=1e-12)
    present = Present(Elo(learning_rate=((1000.0, 40.0), (2000.0, 20.0)), anchor=1200.0))
    faster = Elo(learning_rate=((1000.0, 80.0), (2000.0, 40.0)), anchor=1200.0)
    assert present.config({"learning_rate": 60.0}) == faster
    for rho, end in (("inf", 10.0), (0.0, 0.001)):
        rating: Any = structs.replace(MMR, rho=rho)
        assert at_start(Present(rating)) == structs.replace(MMR, rho=end)
    (rate,) = Present(Elo(learning_rate=((1000.0, 40.0), (2000.0, 20.0)))).space
    assert rate.start == 30.0
    assert isinstance(at_start(Present(structs.replace(MMR, newcomer_weights=(2.0, 4.0)))), EloMMR)


def test_ranges_are_in_the_ladders_points() -> None:
    """A tenth of the points has a tenth of the range. Where newcomers begin is not tuned."""
    small = structs.replace(MMR, initial_sigma=35.0, sigma_limit=8.0)
    for ours, theirs in zip(Present(small).space, Present(MMR).space, strict=True):
        shrunk = {"sigma_limit": 0.1, "drift_per_day": 0.01}.get(ours.name, 1.0)
        assert (ours.low, ours.high, ours.start) == pytest.approx(
            (shrunk * theirs.low, shrunk * theirs.high, shrunk * theirs.start)
        )
    assert "initial_mu" in {each.name for each in SPACES["topcoder"]}
    assert "initial_mu" not in {each.name for each in Present(Topcoder()).space}


# --- proposals: what is tuned on, what is compared on, and what is said of it ---------------------

SEASON = list(season(Kind(players=25, rounds=160, per_round=6), 11))
POOR = Codeforces(beta=200.0, weight=0.002, floor=100.0)  # Ratings hardly move.


def proposed(
    present: RatingConfig, sessions: list[Session] = SEASON, train: float = 0.5, **options: Any
) -> TuningProposal:
    return propose(present, "codeforces", sessions, train=train, trials=40, **options)


def test_poor_parameters_are_found_out() -> None:
    """The gain is the difference on the other rounds, as `evaluate` scores them."""
    trial = Mock()
    found = proposed(POOR, on_trial=trial)
    assert found.verdict == ADOPT and 30 <= trial.call_count <= 50
    assert (found.first, found.rest) == (80, 80)
    assert isinstance(found.rating, Codeforces) and found.rating.weight > 10 * POOR.weight
    assert found.rating.floor == POOR.floor, "it is no dimension"
    base, tuned = (evaluate(SEASON, each).scores[80:] for each in (POOR, found.rating))
    assert [each.measure for each in found.compared] == [LOG_LOSS, ORDER]
    for each in found.compared:
        due = difference(tuned, base, each.measure)
        assert due is not None and astuple(each.difference) == pytest.approx(astuple(due))
        assert (each.now, each.tuned) == (average(base, each.measure), average(tuned, each.measure))
    assert found.compared[0].verdict == "better"


def test_the_search_sees_the_first_part_alone() -> None:
    """Whatever comes later. With order as the aim, parameters are others."""
    other = list(season(Kind(players=25, rounds=160, per_round=6), 12))
    swapped = [*SEASON[:80], *other[80:]]
    one, two = proposed(POOR), proposed(POOR, swapped)
    assert one.rating == two.rating and one.compared != two.compared
    assert proposed(POOR, aim=ORDER).rating != one.rating


def test_another_system_begins_with_its_first_guess() -> None:
    """It is compared on the same rounds, although the present parameters skip some."""
    present = EloMMR(weight_limit=0.2, sigma_limit=80.0, skip_all_tied=True)
    rounds = SEASON[100].rounds
    tied = structs.replace(rounds, place=np.ones_like(rounds.place))
    found = proposed(present, [*SEASON[:100], replace(SEASON[100], rounds=tied), *SEASON[101:]])
    assert found.rest == 80 and found.kept == (found.rating == present)
    loses = found.compared[0].difference.mean >= 0.0
    assert found.verdict == NO_DIFFERENCE and found.kept == loses, "log loss decides, not order"


@cases("rounds, train", [(160, 0.12), (160, 0.89), (38, 0.5), (0, 0.5)])
def test_too_few_rounds_are_none(rounds: int, train: float) -> None:
    """To tune on, or to compare on: it says how many there are."""
    with pytest.raises(TooFewRounds, match=r"^\d+ rounds to tune on and \d+ to compare on"):
        proposed(POOR, SEASON[:rounds], train)


def test_order_of_newcomers_is_that_of_all() -> None:
    """Where nobody has played enough rounds."""
    strangers = [
        replace(each, rows=each.rows + 25 * i, players=25 * (i + 1))
        for i, each in enumerate(SEASON[:60])
    ]
    found = proposed(POOR, strangers)
    assert ORDER_OF_ALL in {each.measure for each in found.compared}
    assert ORDER not in {each.measure for each in found.compared}


BETTER, NOISE, WORSE = (Difference(x, x - 0.5, x + 0.5) for x in (1.0, 0.0, -1.0))


@cases("order, log_loss, verdict", [
    (BETTER, WORSE, ADOPT), (NOISE, WORSE, ADOPT), (BETTER, NOISE, ADOPT),
    (NOISE, NOISE, NO_DIFFERENCE),
    (WORSE, NOISE, KEEP), (WORSE, WORSE, KEEP), (BETTER, BETTER, KEEP), (NOISE, BETTER, KEEP),
])  # fmt: skip
def test_what_to_do(order: Difference, log_loss: Difference, verdict: str) -> None:
    """Adopt what is better in something and worse in nothing. Less log loss is better."""
    compared = [Compared(ORDER, 70.0, 71.0, order), Compared(LOG_LOSS, 0.6, 0.6, log_loss)]
    assert TuningProposal(POOR, 1, 1, compared).verdict == verdict
