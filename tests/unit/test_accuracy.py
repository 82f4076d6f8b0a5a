"""The measures of accuracy, against their definitions taken word by word."""

import math
from itertools import combinations
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stream_rater.columns.arrays import Floats
from stream_rater.evaluation import accuracy
from stream_rater.evaluation.accuracy import averages, score
from stream_rater.evaluation.measures import FACTS_OF, FIELDS, MEASURES, OF_PAIRS
from stream_rater.rating.elo_mmr.performance import C
from stream_rater.rating.model import DID_NOT_FINISH, Wave
from stream_rater.rating.parameters import (
    Bar,
    Codeforces,
    EloMMR,
    EloMMX,
    EloR,
    Glicko,
    Topcoder,
    TrueSkill,
    from_builtins,
)

NOISE = 200.0**2


def scored(
    places: list[int], mu: list[float], rounds: list[int], *, sigma: float = 80.0,
    margin: float = 0.0, upset: float = 0.0,
) -> dict[str, float]:  # fmt: skip
    """One round's scores by name; players in any order."""
    order = sorted(range(len(places)), key=lambda i: places[i] or math.inf)
    n = len(places)
    (found,) = score(
        np.array([0, n]), np.array(places, np.int32)[order], np.arange(n + 1), np.ones(n),
        np.array(mu)[order], np.full(n, sigma), np.array(rounds)[order], 1500.0, NOISE, 1.0,
        margin > 0.0, np.array([margin]), np.array([upset]), np.empty(0),
    )  # fmt: skip
    return dict(zip(FIELDS[:OF_PAIRS], found.tolist(), strict=True))


def test_the_columns_that_kernels_write_have_their_numbers() -> None:
    """The numbers in `accuracy` are the places of the names in FIELDS."""
    for number, name in enumerate(FIELDS[:OF_PAIRS]):
        assert getattr(accuracy, name.upper()) == number, name


def test_every_measure_is_a_column_behind_its_weight() -> None:
    """What is about pairs stands in the columns of `accuracy`, what is about winners behind."""
    assert {*FACTS_OF} < {*FIELDS}
    for name, facts in FACTS_OF.items():
        at, weight = FIELDS.index(name), FIELDS.index(facts.weight)
        assert weight < at, name
        assert (at >= OF_PAIRS) == (weight >= OF_PAIRS) == facts.is_of_winner, name


def by_definition(places: list[int], mu: list[float]) -> tuple[float, float] | None:
    """Pair inversion and rank deviation in %, as data/README.md has them; None: all tie."""
    ranks = [place or math.inf for place in places]
    if len(set(ranks)) < 2:
        return None
    n = len(ranks)
    wrong = sum((ranks[i] - ranks[j]) * (mu[i] - mu[j]) > 0.0 for i, j in combinations(range(n), 2)
                if ranks[i] != ranks[j] and mu[i] != mu[j])  # fmt: skip
    deviation = 0
    for at, i in enumerate(sorted(range(n), key=lambda i: (-mu[i], ranks[i]))):
        low = sum(rank < ranks[i] for rank in ranks)
        high = low + sum(rank == ranks[i] for rank in ranks) - 1
        deviation += abs(at - min(max(at, low), high))
    return 100.0 * (1.0 - wrong / math.comb(n, 2)), 100.0 * deviation / (n * (n - 1))


def test_the_definition_on_a_round_done_by_hand() -> None:
    """Rated a > b > c, placed b, a = c: one pair of three is wrong; a stands one place too high."""
    assert by_definition([2, 1, 2], [3.0, 2.0, 1.0]) == (
        pytest.approx(100.0 * 2 / 3),
        pytest.approx(100.0 * 2 / 6),
    )


@st.composite
def rounds(draw: Any, most: int = 40) -> tuple[list[int], list[float], list[int]]:
    """Places (0: not finished), ratings with many equal, rounds played before."""
    n = draw(st.integers(2, most))
    few = st.integers(0, draw(st.sampled_from([1, 3, n])))
    ratings = st.integers(-4, 4) if draw(st.booleans()) else st.floats(-2000, 2000)
    places = draw(st.lists(few, min_size=n, max_size=n))
    mu = [1500.0 + x for x in draw(st.lists(ratings, min_size=n, max_size=n))]
    return places, mu, draw(st.lists(st.integers(0, 9), min_size=n, max_size=n))


@given(rounds())
def test_pair_inversion_and_rank_deviation_are_what_they_are_defined_as(drawn: Any) -> None:
    """Of the experienced, re-ranked among themselves, and of all; weighed by their number."""
    places, mu, played = drawn
    found = scored(*drawn)
    known = [i for i, count in enumerate(played) if count >= 5]
    groups = (
        (known, "experienced", "pair_inversion", "rank_deviation"),
        (range(len(mu)), "entries", "pair_inversion_all", "rank_deviation_all"),
    )
    for those, weight, inversion, deviation in groups:
        expected = by_definition([places[i] for i in those], [mu[i] for i in those])
        assert found[weight] == (len(those) if expected else 0)
        if expected:
            assert (found[inversion], found[deviation]) == pytest.approx(expected, abs=1e-9)


@given(rounds())
def test_kendall_and_the_scores_are_what_they_are_defined_as(drawn: Any) -> None:
    """Over all pairs not tied in place, of rounds small enough that all are taken."""
    places, mu, played = drawn
    found = scored(places, mu, played)
    ranks = [place or math.inf for place in places]
    discordant, losses, squares, right = [], [], [], list[float]()
    for i, j in combinations(range(len(mu)), 2):
        if ranks[i] == ranks[j]:
            continue
        lead = (mu[i] - mu[j]) * (1 if ranks[i] < ranks[j] else -1)
        discordant.append(1.0 if lead < 0.0 else 0.5 if lead == 0.0 else 0.0)
        if min(played[i], played[j]) >= 5:
            right.append(100.0 * (1.0 - discordant[-1]))
        z = lead / math.sqrt(2 * (80.0**2 + NOISE))
        p = min(max(_below(z), accuracy.LEAST_PROBABILITY), 1.0 - accuracy.LEAST_PROBABILITY)
        losses.append(-math.log(p))
        squares.append((1.0 - p) ** 2)
    assert found["pairs"] == len(discordant)
    assert found["order"] == pytest.approx(np.mean(right) if right else 0.0, abs=1e-9)
    if discordant:
        assert found["kendall_tau"] == pytest.approx(np.mean(discordant), abs=1e-12)
        assert found["order_all"] == pytest.approx(100.0 - 100.0 * np.mean(discordant), abs=1e-9)
        assert found["scored"] == len(mu)
        # abs: of the normal distribution's far upper tail only 1 - p is exact
        assert found["log_loss"] == pytest.approx(np.mean(losses), rel=1e-9, abs=1e-9)
        assert found["brier"] == pytest.approx(np.mean(squares), abs=1e-9)
    else:
        assert found["scored"] == found["entries"] == 0


def test_equal_ratings_are_half_right_in_order() -> None:
    """Pair inversion, which the paper defines, counts them as right."""
    found = scored([1, 2, 3, 3], [1500.0] * 4, [9, 9, 9, 0])
    assert (found["order"], found["order_all"]) == (50.0, 50.0)
    assert found["pair_inversion"] == found["pair_inversion_all"] == 100.0


def _below(z: float) -> float:
    return 0.5 * math.erfc(-z / math.sqrt(2.0))


def crowd(n: int, seed: int = 1) -> tuple[Any, Floats, Floats]:
    rng = np.random.default_rng(seed)
    skill = rng.normal(1500.0, 300.0, n)
    order = np.argsort(-rng.normal(skill, 250.0))
    place = (np.arange(n) // 3 + 1).astype(np.int32)
    place[-n // 10 :] = DID_NOT_FINISH
    return place, skill[order], np.full(n, 200.0**2)


def test_sampled_pairs_show_what_all_would(monkeypatch: pytest.MonkeyPatch) -> None:
    """In a crowd, within one percent of the loss over every pair; and they are the same again."""
    place, mu, variance = crowd(3000)
    some = accuracy.pair_scores(place, mu, variance, 0.0)
    i, j = np.triu_indices(len(mu), 1)
    untied = place[i] != place[j]
    z = (mu[i] - mu[j])[untied] / math.sqrt(2 * 200.0**2)
    p = np.array([_below(each) for each in z.tolist()])
    assert some[2] < len(p) / 50
    assert some[0] == pytest.approx(-np.log(p).mean(), rel=0.01)
    assert some[1] == pytest.approx(((1 - p) ** 2).mean(), rel=0.01)
    assert accuracy.pair_scores(place, mu, variance, 0.0) == some


def test_a_large_round_is_compared_exactly() -> None:
    """As the definition does, far beyond what is counted together."""
    place, mu, _ = crowd(1001)
    found = scored(place.tolist(), mu.tolist(), [9] * len(mu))
    expected = by_definition(place.tolist(), mu.tolist())
    assert (found["pair_inversion"], found["rank_deviation"]) == pytest.approx(expected, abs=1e-9)


def test_hopeless_favourites_cost_no_infinity() -> None:
    """The loss of a sure thing that did not happen is large, and a number."""
    found = scored([1, 2], [-1e6, 1e6], [0, 0])
    assert found["log_loss"] == pytest.approx(-math.log(accuracy.LEAST_PROBABILITY))
    assert found["brier"] == pytest.approx(1.0)


def test_a_team_is_predicted_by_the_sum_of_its_members() -> None:
    """Deviations add up, with shares, and so do variances; all members must be experienced."""
    (row,) = score(
        np.array([0, 2]), np.array([1, 2], np.int32), np.array([0, 2, 3]),
        np.array([1.0, 0.5, 1.0]), np.array([1600.0, 1400.0, 1540.0]), np.array([90.0, 60.0, 30.0]),
        np.array([9, 3, 7]), 1500.0, NOISE, 1.0, False, np.zeros(1), np.zeros(1), np.empty(0),
    )  # fmt: skip
    found = dict(zip(FIELDS[:OF_PAIRS], row.tolist(), strict=True))
    variance = 90.0**2 + 0.25 * 60.0**2 + 30.0**2 + 2.25 * NOISE
    assert found["log_loss"] == pytest.approx(-math.log(_below(10.0 / math.sqrt(variance))))
    assert (found["experienced"], found["pair_inversion_all"]) == (0.0, 100.0)


def test_averages_weigh_each_round_by_its_entries() -> None:
    """And are None where nothing was scored."""
    scores = np.zeros((3, len(FIELDS)))
    scores[0, :4] = 10, 80.0, 20.0, 60.0
    scores[1, :4] = 30, 60.0, 40.0, 60.0
    found = averages(scores)
    assert found["pair_inversion"] == 65.0 and found["rank_deviation"] == 35.0
    assert set(found) == set(MEASURES)
    assert [name for name, value in found.items() if value is None] == list(MEASURES[3:])


LIMITS = {"weight_limit": 0.2, "sigma_limit": 80.0}


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        (EloMMR(**LIMITS), (1.0, 6.0 * 6400.0 + 0.2 * 6400.0)),  # type: ignore[arg-type]
        (EloMMX(**LIMITS), (1.0, 6.0 * 6400.0 + 0.2 * 6400.0)),  # type: ignore[arg-type]
        (Codeforces(beta=300.0, weight=0.2), (0.0, 45_000.0)),
        (Topcoder(), (1.0, 0.0)),
        (Glicko(beta=200.0, sigma_drift=30.0), (1.0, 20_900.0)),
        (Bar(beta=200.0, sigma_drift=30.0), (1.0, 40_900.0)),
        (TrueSkill(beta=200.0, sigma_drift=30.0, draw_margin=1.0), (1.0, 40_900.0)),
        (EloR(delta=100.0, sigma_limit=60.0), (1.0, 10_000.0 + 2025.0)),
    ],
    ids=lambda case: getattr(type(case), "__name__", ""),
)
def test_each_system_has_a_model_of_a_match_of_two(config: Any, expected: Any) -> None:
    """The parts of its variance."""
    assert config.chances == pytest.approx(expected)


@pytest.mark.parametrize("system", ["elo", "pairwise-elo", "plackett-luce", "thurstone"])
@pytest.mark.parametrize("model", ["logistic", "gaussian"])
def test_the_model_of_two_is_what_a_climbing_system_climbs(system: str, model: str) -> None:
    """One game moves the winner by the derivative of ln P(win), times the learning rate. P is the
    system's own link, of the variance by which it is predicted."""
    table = {"system": system, "learning_rate": 1e-3, "scale": 150.0, "initial_mu": 0.0}
    if system in ("elo", "pairwise-elo"):
        table["model"] = model
    config: Any = from_builtins(table)
    sigmas, noise = config.chances
    assert sigmas == 0.0

    def surprise(winner: float) -> float:
        z = (winner - 30.0) / math.sqrt(2.0 * noise)
        return -math.log(_below(z) if config.likelihood.gaussian else 1 / (1 + math.exp(-C * z)))

    one = np.ones(1)
    wave = Wave(
        np.array([0, 2]), one, one * np.inf, np.zeros(1, np.int64), np.array([1, 2], np.int32),
        np.arange(3), np.ones(2), np.array([-100.0, 30.0]), np.ones(2), *np.zeros((2, 2), np.int64),
    )  # fmt: skip
    performance = config.estimate(wave)[0, 0]  # mu + scale^2 d ln P / d mu
    slope = (surprise(-101.0) - surprise(-99.0)) / 2.0
    assert (performance + 100.0) / 150.0**2 == pytest.approx(slope, rel=1e-4)


@pytest.mark.parametrize("n", [2, 5, accuracy.EXACT, accuracy.EXACT + 1, 300])
def test_every_pair_that_could_be_scored_is_counted_once(n: int) -> None:
    """As scored, as a draw, or as two of whom neither finished; whatever the size of the round."""
    random = np.random.default_rng(n)
    places = np.sort(random.integers(1, max(n // 2, 2), n))
    places[n - n // 4 :] = 0
    found = scored(places.tolist(), random.normal(1500.0, 200.0, n).tolist(), [9] * n)
    order = np.array([*places[places > 0], *places[places == 0]])
    scoreable = [(i, i + d) for d in accuracy.distances_of(n) for i in range(n - d)]
    kinds = [
        "unfinished" if order[i] == order[j] == 0 else "drawn" if order[i] == order[j] else "scored"
        for i, j in scoreable
    ]
    names = {"scored": "pairs_scored", "drawn": "pairs_drawn", "unfinished": "pairs_unfinished"}
    for kind, name in names.items():
        assert found[name] == kinds.count(kind), kind
