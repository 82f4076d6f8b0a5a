"""Merging factors keeps what it promises, and costs little."""

import math

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from stream_rater.rating import belief, mode, sketch
from stream_rater.rating.model import Floats, newcomers
from stream_rater.rating.sketch import LOGISTIC_VARIANCE

C = math.pi / math.sqrt(3.0)

factor = st.tuples(st.floats(0.0, 3000.0), st.floats(1e-3, 0.1), st.floats(1e-6, 0.1))
factor_lists = st.lists(factor, min_size=2, max_size=12)


def table(factors: list[tuple[float, float, float]]) -> Floats:
    """The factors in order of performance, with room for one more."""
    return np.array([*sorted(factors), (0.0, 0.0, 0.0)])


def in_lanes(held: Floats, count: int, kept: int = 0) -> tuple[Floats, Floats]:
    """Factors (K, 3) in the first of two lanes; in the other the same, of which all are kept."""
    factors = np.zeros((4, len(held), 2))
    factors[:3] = held.T[:, :, None]
    factors[:3, count:] = np.array([mode.FILL, 0.0, 0.0])[:, None, None]
    lanes = np.zeros((sketch.ROWS, 2))
    lanes[mode.COUNT], lanes[mode.SCALE], lanes[sketch.KEPT] = count, 1.0, (kept, 0)
    return factors, lanes


def merge_cheapest(held: Floats, count: int) -> int:
    """Merge one pair among so many factors, in place and unrounded; return where it is now."""
    factors, lanes = in_lanes(held, count, kept=count - 1)
    assert sketch._surplus(lanes, 2) == 1
    sketch._find_cheapest(factors, lanes, 2, count)
    pair = int(lanes[sketch.PAIR, 0])
    sketch._take(factors, lanes, 2)
    sketch._mix(lanes, 2)
    sketch._close_up(factors, lanes, 2, count)
    assert lanes[mode.COUNT].tolist() == [count - 1, count]
    assert factors[:3, :count, 1].T.tolist() == held[:count].tolist()
    held[:] = factors[:3, :, 0].T
    return pair


def insert(held: Floats, count: int, *new: float) -> None:
    """Put a factor among so many others, in place."""
    factors, lanes = in_lanes(held, count)
    lanes[sketch.NEW_P : sketch.NEW_R + 1] = np.array(new)[:, None]
    sketch.insert(factors, lanes, 2, count)
    assert lanes[mode.COUNT].tolist() == [count + 1, count + 1]
    held[:] = factors[:3, :, 0].T


def moments(factors: Floats) -> tuple[float, float, float]:
    """Sum of o, and the o-weighted mean and variance of the mixture of logistics."""
    p, a, o = factors.T
    mean = float((o * p).sum() / o.sum())
    variance = float((o * (LOGISTIC_VARIANCE / a**2 + (p - mean) ** 2)).sum() / o.sum())
    return float(o.sum()), mean, variance


def test_a_logistic_factor_has_variance_beta2() -> None:
    """A fresh factor of variance beta^2 has slope a = C / 2 beta: the two definitions agree."""
    assert pytest.approx(123.0**2, rel=1e-15) == LOGISTIC_VARIANCE / (C / (2.0 * 123.0)) ** 2


@given(factor_lists)
def test_merging_keeps_three_moments(factors: list[tuple[float, float, float]]) -> None:
    """One merge leaves the sum of o, the mean and the variance of all factors as they were."""
    held = table(factors)
    expected = moments(held[: len(factors)])
    merge_cheapest(held, len(factors))
    actual = moments(held[: len(factors) - 1])
    assert expected == pytest.approx(actual, rel=1e-12)  # sums of 12 terms


@given(factor_lists)
def test_merging_keeps_the_order(factors: list[tuple[float, float, float]]) -> None:
    """Merged down to one, the factors stay in order of performance after each step."""
    held = table(factors)
    for count in range(len(factors), 1, -1):
        merge_cheapest(held, count)
        p = held[: count - 1, 0].tolist()
        assert p == sorted(p)


@given(factor_lists)
def test_the_cheapest_neighbours_merge(factors: list[tuple[float, float, float]]) -> None:
    """The pair that disappears has the least o1 o2 / (o1 + o2) d^4; all others keep their bits."""
    held = table(factors)
    before = held[: len(factors)].copy()
    (p1, o1), (p2, o2) = before[:-1, [0, 2]].T, before[1:, [0, 2]].T
    costs = o1 * o2 / (o1 + o2) * (p2 - p1) ** 4
    assume(len(set(costs.tolist())) == len(costs))
    i = int(np.argmin(costs))
    merge_cheapest(held, len(factors))
    assert before[:i].tobytes() == held[:i].tobytes()
    assert before[i + 2 :].tobytes() == held[i + 1 : len(factors) - 1].tobytes()


def test_merging_by_hand() -> None:
    """Equal factors 100 apart become one in the middle, wider by the 50 on each side."""
    a = math.sqrt(LOGISTIC_VARIANCE) / 200.0  # a standard deviation of 200
    held = table([(1400.0, a, 0.01), (1500.0, a, 0.01), (2500.0, a, 0.01)])
    assert merge_cheapest(held, 3) == 0
    wider = math.sqrt(LOGISTIC_VARIANCE / (200.0**2 + 50.0**2))
    # relative: one square root and a few products
    assert [1450.0, wider, 0.02] == pytest.approx(held[0].tolist(), rel=1e-15)
    assert [2500.0, a, 0.01] == held[1].tolist()


def test_weightless_factors_merge() -> None:
    """Factors decayed to nothing merge to something finite: no division by zero."""
    held = table([(1400.0, 0.01, 0.0), (1600.0, 0.01, 0.0)])
    assert merge_cheapest(held, 2) == 0
    assert held[0, [0, 2]].tolist() == [1500.0, 0.0]
    assert 0.0 < held[0, 1] < 0.01


@given(factor_lists, factor)
def test_insertion_keeps_the_order(
    factors: list[tuple[float, float, float]], new: tuple[float, float, float]
) -> None:
    """A new factor goes in after all of its performance or less; the others keep their bits."""
    held = table(factors)
    insert(held, len(factors), *new)
    ordered = sorted(factors)
    place = sum(p <= new[0] for p, _, _ in ordered)
    assert [*ordered[:place], new, *ordered[place:]] == [tuple(f) for f in held.tolist()]


def errors(kept: int, players: int = 400, rounds: int = 75) -> Floats:
    """|mu with K factors - mu with all| after random histories (w = 0.34, s = 103, rho = 0)."""
    random = np.random.default_rng(11)
    skill = random.normal(1500.0, 300.0, players)
    w, s2 = 0.34, 103.0**2
    sketched, full = (newcomers(players, rounds + 1, 1500.0, 350.0) for _ in range(2))
    rows, rho = np.arange(players), np.zeros(players)
    for _ in range(rounds):
        skill += random.normal(0.0, math.sqrt(w * s2), players)
        p = skill + random.logistic(0.0, math.sqrt((1 + 1 / w) * s2) / C, players)
        evidence = np.column_stack([p, np.full((players, 2), ((1 + 1 / w) * s2, w * s2))])
        for beliefs, k in ((sketched, kept), (full, 0)):
            belief.update(beliefs.header, beliefs.factors, rows, evidence, rho, rows * 0 + k)
    difference: Floats = np.abs(sketched.header["mu"] - full.header["mu"])
    return difference


@pytest.mark.parametrize(
    ("kept", "mean", "most"), [(4, 2.2, 27.0), (8, 0.2, 3.5), (12, 0.05, 0.44), (16, 0.035, 0.18)]
)
def test_the_sketch_is_close_to_the_full_history(kept: int, mean: float, most: float) -> None:
    """K factors, rounded, stay near all 75: bounds thrice what 1,000 such histories measured.

    Folding the oldest factor into the Gaussian, as the paper does, breaks all but K = 4's.
    """
    found = errors(kept)
    assert float(found.mean()) < mean
    assert float(found.max()) < most
