"""Merging factors keeps what it promises, and costs little."""

import math
from bisect import bisect_left
from dataclasses import dataclass, field

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from stream_rater.columns.arrays import Floats
from stream_rater.rating import factor, roots
from stream_rater.rating.elementary import exp, log
from stream_rater.rating.elo_mmr import belief, sketch
from stream_rater.rating.factor import LOGISTIC_DEVIATION, LOGISTIC_VARIANCE
from stream_rater.rating.model import Beliefs, Codes, newcomers

C = math.pi / math.sqrt(3.0)
STEP, NARROWEST = 2.0**-4, 200.0

WEIGHTS = factor.small_floats(factor.WEIGHT_BITS, factor.WEIGHT_LOW, factor.WEIGHT_TOP)
WIDTHS = factor.small_floats(factor.WIDTH_BITS, factor.WIDTH_LOW, factor.WIDTH_TOP)

factors = st.builds(
    lambda step, weight, width: factor.code_of(step * STEP, weight, width, 1.0 / STEP),
    st.integers(-(2**19) + 1, 2**19 - 1),
    st.sampled_from(WEIGHTS),
    st.sampled_from(WIDTHS),
)
factor_lists = st.lists(factors, min_size=2, max_size=12)


def performance(code: int) -> float:
    return factor.performance_of(code, STEP)


def in_lanes(given_codes: list[int], kept: int) -> tuple[Codes, Codes, Floats]:
    """Codes in the first of two lanes, and the same in the other, of which all are kept.

    There is room for one more, and for one that is on its way in.
    """
    codes = np.full((len(given_codes) + 2, 2), -1, np.int64)
    codes[: len(given_codes)] = np.array(given_codes, np.int64)[:, None]
    lanes = np.zeros((sketch.ROWS, 2))
    lanes[roots.COUNT], lanes[roots.SCALE], lanes[sketch.KEPT] = len(given_codes), 1.0, (kept, 64)
    lanes[roots.GRID], lanes[roots.NARROWEST] = STEP, NARROWEST
    return codes, np.zeros(2, np.int64), lanes


def merged(given_codes: list[int]) -> tuple[list[int], int, Floats]:
    """The codes after one pair is merged, where that is now, and what was written down."""
    count = len(given_codes)
    codes, new, lanes = in_lanes(given_codes, kept=count - 1)
    sketch.merge(codes, new, lanes, 2, count)
    assert lanes[roots.COUNT].tolist() == [count - 1, count]
    assert codes[:count, 1].tolist() == given_codes
    return codes[: count - 1, 0].tolist(), int(lanes[sketch.PLACE, 0]), lanes


def moments(p: Floats, a: Floats, r: Floats) -> tuple[float, float, float]:
    """Sum of r, and the r-weighted mean and variance of the mixture of logistics."""
    mean = float((r * p).sum() / r.sum())
    variance = float((r * (LOGISTIC_VARIANCE / a**2 + (p - mean) ** 2)).sum() / r.sum())
    return float(r.sum()), mean, variance


def test_a_logistic_factor_has_variance_beta2() -> None:
    """A fresh factor of variance beta^2 has slope a = C / 2 beta: the two definitions agree."""
    assert pytest.approx(123.0**2, rel=1e-15) == LOGISTIC_VARIANCE / (C / (2.0 * 123.0)) ** 2


@given(factors, factors)
def test_merging_keeps_three_moments(one: int, other: int) -> None:
    """Before it is rounded, what a pair becomes has its sum of r, its mean and its variance."""
    assume(factor.weight_of(one) + factor.weight_of(other) > 0.0)
    codes, _, lanes = in_lanes(sorted([one, other], key=performance), kept=1)
    sketch._take(codes, lanes, 2)
    pair = lanes[[sketch.NEW_P, sketch.P2, sketch.NEW_A, sketch.A2, sketch.NEW_R, sketch.R2], 0]
    expected = moments(*pair.reshape(3, 2))
    sketch._mix(lanes, 2)
    actual = moments(*lanes[[sketch.NEW_P, sketch.NEW_A, sketch.NEW_R], :1])
    assert expected == pytest.approx(actual, rel=1e-12, abs=1e-9)  # a mean may be near 0


@given(factor_lists)
def test_merging_keeps_the_order(some: list[int]) -> None:
    """Merged down to one, the factors stay in order of performance after each step."""
    codes = sorted(some, key=performance)
    while len(codes) > 1:
        codes, _, _ = merged(codes)
        p = [performance(code) for code in codes]
        assert p == sorted(p)


@given(factor_lists)
def test_the_cheapest_neighbours_merge(some: list[int]) -> None:
    """The pair that disappears has the least r1 r2 / (r1 + r2) d^4; all others keep their bits."""
    before = sorted(some, key=performance)
    p, r = (np.array([of(code) for code in before]) for of in (performance, factor.weight_of))
    assume((r[:-1] + r[1:]).min() > 0.0)
    costs = r[:-1] * r[1:] / (r[:-1] + r[1:]) * np.diff(p) ** 4
    assume(len(set(costs.tolist())) == len(costs))
    i = int(np.argmin(costs))
    assume(r[i] + r[i + 1] < 2.0)
    after, place, _ = merged(before)
    assert place == i
    assert before[:i] == after[:i]
    assert before[i + 2 :] == after[i + 1 :]


def test_merging_by_hand() -> None:
    """Equal factors 100 apart become one in the middle, wider by the 50 on each side."""
    near = [factor.code_of(p, 0.5, 0.0, 1.0 / STEP) for p in (1400.0, 1500.0)]
    far = factor.code_of(2500.0, 0.5, 0.0, 1.0 / STEP)
    wider = math.sqrt((200.0**2 + 50.0**2) / 200.0**2 - 1.0)
    assert merged([*near, far])[0] == [factor.code_of(1450.0, 1.0, wider, 1.0 / STEP), far]


def test_weightless_factors_merge() -> None:
    """Factors decayed to nothing merge to something finite: no division by zero."""
    pair = [factor.code_of(p, 0.0, 0.0, 1.0 / STEP) for p in (1400.0, 1600.0)]
    (code,), _, _ = merged(pair)
    assert (performance(code), factor.weight_of(code)) == (1500.0, 0.0)


def test_what_gets_too_heavy_is_weighed_on_a_larger_scale() -> None:
    """A merged weight of 2 or more doubles the scale and halves all others'."""
    pair = [factor.code_of(p, 1.5, 0.0, 1.0 / STEP) for p in (1400.0, 1401.0)]
    codes, _, lanes = merged([*pair, factor.code_of(2500.0, 0.5, 0.0, 1.0 / STEP)])
    assert [factor.weight_of(code) for code in codes] == [1.5, 0.25]
    assert lanes[roots.SCALE].tolist() == [2.0, 1.0]


@given(st.lists(factors, max_size=12), factors)
def test_insertion_keeps_the_order(some: list[int], new_code: int) -> None:
    """A new factor goes in after all of its performance or less; the others keep their bits."""
    ordered = sorted(some, key=performance)
    codes, new, lanes = in_lanes(ordered, kept=64)
    new[:] = new_code
    sketch.insert(codes, new, lanes, 2, len(ordered))
    place = sum(performance(code) <= performance(new_code) for code in ordered)
    expected = [*ordered[:place], new_code, *ordered[place:]]
    assert lanes[roots.COUNT].tolist() == [len(expected)] * 2
    assert codes[: len(expected)].T.tolist() == [expected, expected]


def nearest(numbers: list[float], x: float) -> float:
    """The number nearest to x, the greater of two; x >= 0."""
    above = min(bisect_left(numbers, x), len(numbers) - 1)
    below = numbers[max(above - 1, 0)]
    return below if abs(below - x) < abs(numbers[above] - x) else numbers[above]


@dataclass
class Plain:
    """One belief's factors as numbers, rounded where they are set: what `sketch` does, plainly."""

    scale: float = 0.0
    narrowest: float = 0.0
    stored: list[tuple[float, float, float]] = field(default_factory=list)
    """(p, excess width, r), in order of p."""

    def join(self, p: float, beta: float, kept: int) -> None:
        """Let a performance join, and no more than so many factors be kept."""
        u = C / beta
        if self.scale == 0.0:
            self.stored = []
        if not self.stored:
            self.scale, self.narrowest = factor.single(u), factor.single(beta)
        elif beta < self.narrowest * sketch.NARROWER:
            narrower = factor.single(beta)
            self.stored = [(p, self.width(self.slope(e), narrower), r) for p, e, r in self.stored]
            self.narrowest = narrower
        self.lighten(u / self.scale)
        at = sum(each <= self.on_grid(p) for each, _, _ in self.stored)
        self.put(at, p, 0.5 * u, u / self.scale)
        while len(self.stored) > kept:
            self.merge()

    def slope(self, excess: float) -> float:
        return (1.0 / math.sqrt(1.0 + excess * excess)) * (LOGISTIC_DEVIATION / self.narrowest)

    def width(self, slope: float, narrowest: float) -> float:
        ratio = LOGISTIC_DEVIATION / (slope * narrowest)
        return nearest(WIDTHS, math.sqrt(max(ratio * ratio - 1.0, 0.0)))

    def lighten(self, weight: float) -> float:
        """Let the scale grow until this weight is under 2."""
        times = 2.0 ** max(math.floor(math.log2(weight)), 0) if weight else 1.0
        self.scale *= times
        self.stored = [(p, e, nearest(WEIGHTS, r / times)) for p, e, r in self.stored]
        return weight / times

    def on_grid(self, p: float) -> float:
        most = (2**19 - 1) * STEP
        return min(max(math.floor(p / STEP + 0.5) * STEP, -most), most)

    def put(self, at: int, p: float, slope: float, r: float) -> None:
        """Let a factor stand there."""
        width = self.width(slope, self.narrowest)
        self.stored.insert(at, (self.on_grid(p), width, nearest(WEIGHTS, r)))

    def merge(self) -> None:
        def cost(k: int) -> tuple[float, float]:
            (p1, _, r1), (p2, _, r2) = self.stored[k : k + 2]
            d = p2 - p1
            return r1 * r2 * (d * d) * (d * d), r1 + r2 + sketch.WEIGHTLESS

        k, (least, over) = 0, cost(0)
        for other in range(1, len(self.stored) - 1):
            a, b = cost(other)
            if a * over < least * b:
                k, (least, over) = other, (a, b)
        (p1, e1, r1), (p2, e2, r2) = self.stored[k : k + 2]
        part, d = r2 / (r1 + r2) if r1 + r2 > 0.0 else 0.5, p2 - p1
        a1, a2 = self.slope(e1), self.slope(e2)
        within = LOGISTIC_VARIANCE * ((1.0 - part) / (a1 * a1) + part / (a2 * a2))
        slope = LOGISTIC_DEVIATION / math.sqrt(within + part * (1.0 - part) * (d * d))
        r = self.lighten(r1 + r2)
        del self.stored[k : k + 2]
        self.put(k, p1 + part * d, slope, r)


seasons = st.lists(st.floats(-1e5, 1e5), min_size=1, max_size=25)


@given(seasons, st.floats(1.0, 1e6), st.integers(1, 8), st.sampled_from([0.0, 0.04, 1.0, math.inf]))
def test_the_sketch_is_what_it_is_in_plain_numbers(
    season: list[float], beta2: float, kept: int, rho: float
) -> None:
    """After every round a belief's codes say what lists of rounded numbers say, to the bit."""
    beliefs, one = newcomers(1, kept + 1, 1500.0, 350.0, coded=True), np.zeros(1, np.int64)
    plain, header = Plain(), beliefs.header[0]
    for i, p in enumerate(season):
        evidence = np.array([[p, beta2 * (3 - i % 3), 900.0]])
        variance = float(header["sigma"]) ** 2
        kappa = variance / (variance + 900.0)
        plain.scale *= kappa * (0.0 if rho == math.inf else exp(rho * log(kappa)))
        belief.update(beliefs.header, beliefs.factors, one, evidence, np.full(1, rho), one + kept)
        plain.join(p, math.sqrt(evidence[0, 1]), kept)
        plain.scale = factor.single(plain.scale)
        assert (plain.scale, plain.narrowest) == (header["scale"], header["width"])
        assert [[p, plain.slope(e), r] for p, e, r in plain.stored] == stored_in(beliefs)


def stored_in(beliefs: Beliefs) -> list[list[float]]:
    """The factors (p, a, r) of the first belief."""
    found: list[list[float]] = factor.factors_of(beliefs)[0, : beliefs.header["count"][0]].tolist()
    return found


def errors(kept: int, players: int = 400, rounds: int = 75) -> Floats:
    """|mu with K factors - mu with all| after random histories (w = 0.34, s = 103, rho = 0)."""
    random = np.random.default_rng(11)
    skill = random.normal(1500.0, 300.0, players)
    w, s2 = 0.34, 103.0**2
    sketched = newcomers(players, kept + 1, 1500.0, 350.0, coded=True)
    full = newcomers(players, rounds + 1, 1500.0, 350.0)
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
