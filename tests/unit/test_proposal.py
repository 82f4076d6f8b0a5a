"""Proposals: what is tuned on, what is compared on, and what is said of it."""

from dataclasses import astuple, replace
from typing import Any

import numpy as np
import pytest
from msgspec import structs

from stream_rater.evaluation.accuracy import average
from stream_rater.evaluation.bootstrap import Difference, difference
from stream_rater.evaluation.evaluation import evaluate
from stream_rater.evaluation.fits import LOG_LOSS, ORDER, ORDER_OF_ALL, Fit
from stream_rater.evaluation.present import Present
from stream_rater.evaluation.proposal import (
    ADOPT,
    KEEP,
    LEAST_ROUNDS,
    NO_DIFFERENCE,
    Compared,
    Proposal,
    TooFewRounds,
    propose,
)
from stream_rater.evaluation.research.synthetic import Kind, season
from stream_rater.evaluation.season import Session
from stream_rater.evaluation.tuning import search
from stream_rater.rating.parameters import Codeforces, EloMMR, RatingConfig
from stream_rater.rating.systems.dimension import fraction_of

SEASON = list(season(Kind(players=25, rounds=160, per_round=6), 11))
POOR = Codeforces(beta=200.0, weight=0.002, floor=100.0)
"""Ratings hardly move."""


def proposed(
    present: RatingConfig, sessions: list[Session] = SEASON, train: float = 0.5, **options: Any
) -> Proposal:
    return propose(present, options.pop("system", "codeforces"), sessions, train=train, trials=40,
                   **options)  # fmt: skip


def test_poor_parameters_are_found_out() -> None:
    """The gain is the difference on the rounds that were not tuned on, as `evaluate` scores
    them."""
    trials: list[None] = []
    found = proposed(POOR, on_trial=lambda: trials.append(None))
    assert found.verdict == ADOPT and 30 <= len(trials) <= 50
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
    """Whatever comes later: it is another season here."""
    other = list(season(Kind(players=25, rounds=160, per_round=6), 12))
    swapped = [*SEASON[:80], *other[80:]]
    one, two = proposed(POOR), proposed(POOR, swapped)
    assert one.rating == two.rating and one.compared != two.compared


def test_a_short_first_part_moves_little() -> None:
    """The prior holds the present parameters: the likeliest ones are further away."""
    present = Present(Codeforces(beta=400.0, weight=0.5))
    found = proposed(present.rating, train=LEAST_ROUNDS / 160)
    free = Fit(present, SEASON[:LEAST_ROUNDS], LOG_LOSS, has_prior=False)
    likeliest = free.config(search(free, 40))
    gaps = [
        sum(
            (fraction_of(each, getattr(rating, each.name)) - fraction_of(each, each.start)) ** 2
            for each in present.space
        )
        for rating in (found.rating, likeliest)
    ]
    assert 0.0 < gaps[0] < 0.5 * gaps[1]


def test_another_system_begins_with_its_first_guess() -> None:
    """It is compared with the present parameters all the same, on the same rounds, although the
    present ones skip some."""
    present = EloMMR(weight_limit=0.2, sigma_limit=80.0, skip_all_tied=True)
    rounds = SEASON[100].rounds
    tied = np.ones_like(rounds.place)
    all_tied = replace(SEASON[100], rounds=_with_places(rounds, tied))
    found = proposed(present, [*SEASON[:100], all_tied, *SEASON[101:]], system="codeforces")
    assert isinstance(found.rating, Codeforces) and found.rest == 80


def _with_places(rounds: Any, place: Any) -> Any:
    return structs.replace(rounds, place=place)


def test_order_may_be_aimed_at() -> None:
    """Then parameters are others."""
    assert proposed(POOR, aim=ORDER).rating != proposed(POOR).rating


@pytest.mark.parametrize(("rounds", "train"), [(160, 0.12), (160, 0.89), (38, 0.5), (0, 0.5)])
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


@pytest.mark.parametrize(
    ("order", "log_loss", "verdict"),
    [
        (BETTER, WORSE, ADOPT), (NOISE, WORSE, ADOPT), (BETTER, NOISE, ADOPT),
        (NOISE, NOISE, NO_DIFFERENCE),
        (WORSE, NOISE, KEEP), (WORSE, WORSE, KEEP), (BETTER, BETTER, KEEP), (NOISE, BETTER, KEEP),
    ],
)  # fmt: skip
def test_what_to_do(order: Difference, log_loss: Difference, verdict: str) -> None:
    """Adopt what is better in something and worse in nothing. Less log loss is better."""
    compared = [Compared(ORDER, 70.0, 71.0, order), Compared(LOG_LOSS, 0.6, 0.6, log_loss)]
    assert Proposal(POOR, 1, 1, compared).verdict == verdict
