"""Factors as codes of 40 bits, which are the nearest to their numbers; merging factors is cheap."""

import itertools
import math
from bisect import bisect_left
from dataclasses import dataclass, field

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stream_rater.columns.arrays import Floats
from stream_rater.rating import factor, model
from stream_rater.rating.elementary import exp, log, tanh
from stream_rater.rating.elo_mmr import belief, sketch
from stream_rater.rating.factor import LOGISTIC_DEVIATION, LOGISTIC_VARIANCE
from stream_rater.rating.kernels import elo_r
from stream_rater.rating.model import Beliefs, newcomers
from stream_rater.rating.parameters import EloMMR
from tests.builders.bounded_history import SEASONS, distances
from tests.builders.cases import cases

# --- numbers rounded to what a record holds -------------------------------------------------------

KINDS = {
    "weight": (factor.WEIGHT_BITS, factor.WEIGHT_LOW, factor.WEIGHT_TOP),
    "width": (factor.WIDTH_BITS, factor.WIDTH_LOW, factor.WIDTH_TOP),
}


def every(kind: str) -> list[float]:
    """All small floats of a kind, by code."""
    bits, low, top = KINDS[kind]
    return [factor.small_float(code, bits, low) for code in range(top + 1)]


WEIGHTS = factor.small_floats(factor.WEIGHT_BITS, factor.WEIGHT_LOW, factor.WEIGHT_TOP)
WIDTHS = factor.small_floats(factor.WIDTH_BITS, factor.WIDTH_LOW, factor.WIDTH_TOP)


def test_small_floats_are_in_order() -> None:
    """In order of codes, from zero on: weights 2^-15 to just under 2, widths 1/64 to 768."""
    for kind, (bits, low, top) in KINDS.items():
        numbers = every(kind)
        assert numbers[0] == 0.0
        assert all(a < b for a, b in itertools.pairwise(numbers)), kind
        assert [factor.small_code(x, bits, low, top) for x in numbers] == list(range(top + 1)), kind
        assert factor.small_floats(bits, low, top) == numbers, kind
    assert (WEIGHTS[1], WEIGHTS[-1]) == (2.0**-15, 2.0 - 2.0**-13)
    assert (WIDTHS[1], WIDTHS[-1]) == (2.0**-14, 1023.0)
    assert model.grid_of(1500.0, 350.0) == -4
    assert model.grid_of(25.0, 25.0 / 3.0) == -9
    slopes = [factor.slope_of(code << factor.WIDTH_SHIFT, 3.0) for code in range(len(WIDTHS))]
    assert [(1.0 / math.sqrt(1.0 + width * width)) * 3.0 for width in WIDTHS] == slopes
    excess = factor.excess_width(0.1 * LOGISTIC_DEVIATION / 150.0, 150.0)
    assert math.sqrt(99.0) == pytest.approx(excess, rel=1e-15)
    for exponent in (-1022, -4, 0, 19, 1023):
        assert factor.power_of_two(exponent) == math.ldexp(1.0, exponent)


@given(st.sampled_from(sorted(KINDS)), st.floats(0.0, 1.5))
def test_rounding_finds_the_nearest(kind: str, part: float) -> None:
    """No small float is nearer than the one found."""
    numbers = np.array(every(kind))
    x = part * numbers[-1]
    found = numbers[factor.small_code(x, *KINDS[kind])]
    assert abs(found - x) == np.abs(numbers - x).min()
    if kind == "weight":
        assert factor.weight(x) == found


@given(st.integers(-40, 40), st.floats(-1e9, 1e9), st.floats(-1e6, 1e6), st.floats(1e-3, 1e6))
def test_the_grid_of_performances(grid: int, p: float, mu: float, sigma: float) -> None:
    """It reaches past 60 sigma and 4 |mu|, no coarser than needed. Scales double if they must."""
    step = 2.0**grid
    point, end = factor.grid_code(p, 1.0 / step) * step, (2**19 - 1) * step
    assert abs(point) <= end
    assert abs(point - min(max(p, -end), end)) <= step / 2.0
    step = 2.0 ** model.grid_of(mu, sigma)
    reach = (2**19 - 1) * step
    assert reach > 60.0 * sigma and reach > 3.99 * abs(mu)
    assert step < 2.0 * max(sigma / 2**13, abs(mu) / 2**17)
    for weight in (sigma, 1.0 / sigma, sigma * 1e290, sigma * 1e-290):
        times = factor.growth(weight)
        assert math.frexp(times)[0] == 0.5
        assert weight / times < 2.0
        assert times == 1.0 or weight / times >= 1.0


# --- codes ----------------------------------------------------------------------------------------

any_code = st.integers(0, 2**48 - 1).filter(lambda code: code % 2**20 != 2**19)
grids = st.integers(-20, 10)
season_lists = st.lists(st.floats(-1e5, 1e5), min_size=1, max_size=25)


@given(any_code, grids, st.integers(0, 20))
def test_the_code_of_what_a_code_says_is_that_code(code: int, grid: int, halvings: int) -> None:
    """Nothing is rounded twice. A lighter factor's weight is the nearest there is to its part."""
    p, r = factor.performance_of(code, 2.0**grid), factor.weight_of(code)
    excess = WIDTHS[code >> factor.WIDTH_SHIFT]
    assert code == factor.code_of(p, r, excess, 2.0**-grid) == factor.lighter(code, 1.0)
    part = 2.0**-halvings
    found = factor.lighter(code, part)
    assert abs(factor.weight_of(found) - r * part) <= 2.0**-16  # half of the least step
    others = ~(factor.WEIGHT_TOP << factor.WEIGHT_SHIFT)
    assert code & others == found & others


# --- how far a bounded history is from the full one -----------------------------------------------


@cases("kind", SEASONS)
def test_weights_and_teams_are_near_the_full_history(kind: str) -> None:
    """To half a point, a whole one where members leave, and a twentieth where all widths are one.
    With one bit of width, and costs of merging that ignore it, it was up to 28 points."""
    most = {"solo": 0.05, "5 v 5, with leavers": 1.0}.get(kind, 0.5)
    config = EloMMR(weight_limit=0.2, sigma_limit=80.0)
    assert distances(config, SEASONS[kind], seed=0).max() <= most


# --- merging --------------------------------------------------------------------------------------

C = math.pi / math.sqrt(3.0)
STEP = 2.0**-4


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
        excess = ratio * ratio - 1.0
        return nearest(WIDTHS, math.sqrt(excess if excess > factor.ROUNDING else 0.0))

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
        width = self.width(slope, self.narrowest)
        self.stored.insert(at, (self.on_grid(p), width, nearest(WEIGHTS, r)))

    def merge(self) -> None:
        step = STEP / self.narrowest

        def cost(k: int) -> tuple[float, float]:
            (p1, e1, r1), (p2, e2, r2) = self.stored[k : k + 2]
            d, v1, v2 = (p2 - p1) / STEP, e1 * e1, e2 * e2
            unlike = d * d * (step * step) + abs(v2 - v1)
            over = (r1 + r2 + sketch.WEIGHTLESS) * (1.0 + v1) * (1.0 + v2)
            return r1 * r2 * unlike * unlike, over

        k, (least, over) = 0, cost(0)
        for other in range(1, len(self.stored) - 1):
            a, b = cost(other)
            if a * over < least * b:
                k, (least, over) = other, (a, b)
        (p1, e1, r1), (p2, e2, r2) = self.stored[k : k + 2]
        part, d = r2 / (r1 + r2) if r1 + r2 > 0.0 else 0.5, p2 - p1
        a1, a2 = self.slope(e1), self.slope(e2)
        within = LOGISTIC_VARIANCE * ((1.0 - part) / (a1 * a1) + part / (a2 * a2))
        as_wide = LOGISTIC_DEVIATION / math.sqrt(within + part * (1.0 - part) * (d * d))
        t1, t2 = tanh(part * d * a1), tanh((1.0 - part) * d * a2)
        slope = (1.0 - part) * a1 * (1.0 - t1 * t1) + part * a2 * (1.0 - t2 * t2)
        slope = max(slope, sketch.FLATTEST * as_wide)
        r = self.lighten(r1 + r2)
        del self.stored[k : k + 2]
        self.put(k, p1 + part * d, slope, r)


@given(
    season_lists,
    st.floats(1.0, 1e6),
    st.integers(1, 8),
    st.sampled_from([0.0, 0.04, 1.0, math.inf]),
)
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


@given(season_lists, st.integers(1, 8))
def test_coded_beliefs_of_elo_r_are_the_rounded_ones(season: list[float], kept: int) -> None:
    """The same where each factor has a width of its own."""
    pair = [newcomers(1, kept + 1, 1500.0, 350.0, coded=coded) for coded in (False, True)]
    one = np.zeros(1, np.int64)
    for i, p in enumerate(season):
        evidence = np.array([[p, 250.0**2 * (1 + i % 3), 109.0**2]])
        for each in pair:
            elo_r.update(each.header, each.factors, one, evidence, one + kept)
        plain, coded = pair
        assert plain.header.tobytes() == coded.header.tobytes()
        assert stored_in(plain) == stored_in(coded)


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


def test_the_sketch_is_close_to_the_full_history() -> None:
    """It is close to all 75 factors, within thrice what 1,000 such histories have measured."""
    for kept, mean, most in ((4, 2.2, 27.0), (8, 0.2, 3.5), (12, 0.05, 0.44), (16, 0.035, 0.18)):
        found = errors(kept)
        assert (found.mean() < mean, found.max() < most) == (True, True), kept
