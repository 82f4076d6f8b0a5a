"""How well the winner of a round was predicted, against a plain count."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stream_rater.columns.arrays import Floats
from stream_rater.evaluation.evaluation import evaluate
from stream_rater.evaluation.winners import WinPredictions, calibration, score, win_predictions
from stream_rater.rating.parameters import EloMMR
from stream_rater.rating.wins import Performances, of_rounds, win_probabilities
from tests.rounds import as_json
from tests.unit.test_evaluation import column
from tests.unit.test_season import sessions

MEANS, SPREADS = st.floats(500.0, 2500.0), st.floats(30.0, 600.0)
CONFIG = EloMMR(weight_limit=0.2, sigma_limit=80.0)


def scored(places: list[int], win: list[float], *, draws: bool = False) -> list[float]:
    starts, place = np.array([0, len(places)]), np.array(places, np.int32)
    found: list[float] = score(starts, place, np.array(win), draws).tolist()[0]
    return found


def test_the_winner_is_scored() -> None:
    """Log loss, and half of the squares. A draw is an outcome only where draws are predicted."""
    assert scored([1, 2], [0.7, 0.3]) == pytest.approx([1.0, -math.log(0.7), 0.3**2])
    brier = 0.5 * ((1 - 0.5) ** 2 + 0.3**2 + 0.2**2)
    assert scored([1, 2, 3], [0.5, 0.3, 0.2]) == pytest.approx([1.0, math.log(2.0), brier])
    assert scored([1, 1], [0.6, 0.4]) == [0.0, 0.0, 0.0]
    assert scored([1, 2, 2], [0.6, 0.2, 0.2])[0] == 1.0, "only the first place matters"
    brier = 0.5 * ((1 - 0.3) ** 2 + 0.4**2 + 0.3**2)
    assert scored([1, 1], [0.4, 0.3], draws=True) == pytest.approx([1.0, -math.log(0.3), brier])


def test_predictions_are_reported_by_side() -> None:
    """Those of scored rounds are, with the round's number. Large rounds may be left out."""
    starts, place = np.array([0, 2, 4, 7]), np.array([1, 2, 1, 1, 1, 1, 3], np.int32)
    win = np.array([0.9, 0.1, 0.5, 0.5, 0.2, 0.3, 0.5])
    found = win_predictions(starts, place, win, np.array([True, False, True]))
    assert found.round.tolist() == [0, 0, 2, 2, 2]
    assert found.win.tolist() == [0.9, 0.1, 0.2, 0.3, 0.5]
    assert found.won.tolist() == [True, False, False, False, False], "a draw has no winner"
    starts, place = np.array([0, 2, 5]), np.array([1, 2, 1, 2, 3], np.int32)
    sides = Performances(np.array([1500.0, 1400, 1500, 1450, 1400]), np.full(5, 200.0))
    few, every = of_rounds(starts, sides, 2), of_rounds(starts, sides)
    assert few.tolist() == [*every[:2].tolist(), 0.0, 0.0, 0.0]
    assert score(starts, place, few, False, 2)[:, 0].tolist() == [1.0, 0.0]
    assert score(starts, place, every, False)[:, 0].tolist() == [1.0, 1.0]


def test_calibration_counts_by_probability() -> None:
    """Mean probability and part that won, in each bin that has a side; the interval holds it."""
    win = np.array([0.0, 0.32, 0.38, 0.33, 0.36, 1.0])
    won = np.array([False, True, False, False, True, True])
    found = calibration(WinPredictions(np.arange(6), win, won))
    assert [(each.low, each.high, each.sides) for each in found] == [
        (0.0, 0.01, 1), (0.3, 0.4, 4), (0.9, 1.0, 1),
    ]  # fmt: skip
    middle = found[1]
    assert (middle.foretold, middle.won) == pytest.approx((0.3475, 0.5))
    assert middle.won_low == pytest.approx(0.150, abs=1e-3), "Wilson's, of 2 in 4"
    assert middle.won_high == pytest.approx(0.850, abs=1e-3)


@settings(max_examples=200, deadline=None)
@given(
    st.lists(
        st.lists(st.tuples(MEANS, SPREADS), min_size=2, max_size=8), min_size=1, max_size=4
    ),
    st.sampled_from([0.0, 60.0]),
)  # fmt: skip
def test_many_rounds_at_once_are_as_one_by_one(
    given_rounds: list[list[tuple[float, float]]], margin: float
) -> None:
    """The quick integrals are those of a prediction, to 1e-5."""
    mu, sigma = (np.array([side[k] for r in given_rounds for side in r]) for k in (0, 1))
    starts = np.cumsum([0, *map(len, given_rounds)])
    found = of_rounds(starts, Performances(mu, sigma, margin))
    for a, b in itertools.pairwise(starts):
        exact = win_probabilities(Performances(mu[a:b], sigma[a:b], margin))
        assert found[a:b] == pytest.approx(exact, abs=1e-5)


RNG = np.random.default_rng(3)
FIELD = np.full(5000, 1500.0)
CROWDS: dict[str, tuple[Floats, Floats]] = {
    "of a contest": (RNG.normal(1500.0, 350.0, 5000), RNG.uniform(200.0, 400.0, 5000)),
    "of equals": (FIELD, np.full(5000, 250.0)),
    "below two favourites": (np.append(FIELD, [2850.0] * 2), np.full(5002, 250.0)),
    "below two who are well known": (
        np.append(FIELD, [2250.0] * 2), np.append(np.full(5000, 250.0), [1.0] * 2),
    ),
    "of all spreads": (RNG.normal(1500.0, 300.0, 5000), 10.0 ** RNG.uniform(-3.0, 4.0, 5000)),
}  # fmt: skip


def test_so_are_rounds_of_thousands() -> None:
    """Each probability, their sum, and the loss of whoever may win; in any order."""
    for (name, crowd), margin in itertools.product(CROWDS.items(), (0.0, 60.0)):
        sides, whole = Performances(*crowd, margin), np.array([0, len(crowd[0])])
        found, exact = of_rounds(whole, sides), win_probabilities(sides)
        assert found == pytest.approx(exact, abs=1e-5), (name, margin)
        assert found.sum() == pytest.approx(exact.sum(), abs=1e-4), (name, margin)
        likely = exact > 1e-6
        assert np.log(found[likely]) == pytest.approx(np.log(exact[likely]), abs=1e-3), name
        order = RNG.permutation(len(exact))
        other = of_rounds(whole, Performances(sides.mu[order], sides.sigma[order], margin))
        assert other == pytest.approx(found[order], abs=1e-12), (name, margin)


def test_evaluate_scores_whole_rounds_of_teams() -> None:
    """Nothing is known of the teams before the first; a team that won is likelier to win again."""
    teams = [["ann", "bob"], ["cy"], ["dee", "eve", "fay"]]
    entries = [{"team": team, "rank": rank} for rank, team in enumerate(teams, 1)]
    value = [as_json(*entries, round_id=str(i)) for i in range(3)]
    scores = evaluate(sessions(*value)[0], CONFIG).scores
    first, second, third = column(scores, "winner_log_loss")
    assert column(scores, "decided") == [1.0, 1.0, 1.0]
    assert 0.5 * math.log(3) < first < 1.5 * math.log(3) and first > second > third
