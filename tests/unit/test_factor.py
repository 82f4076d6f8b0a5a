"""A factor's code: 40 bits in, the same 40 bits out; and coded beliefs are the rounded ones."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stream_rater.rating import factor
from stream_rater.rating.kernels import elo_r
from stream_rater.rating.model import HEADER, Beliefs, Codes, newcomers

WIDTHS = factor.small_floats(factor.WIDTH_BITS, factor.WIDTH_LOW, factor.WIDTH_TOP)

any_code = st.integers(0, 2**40 - 1).filter(lambda code: code % 2**20 != 2**19)
grids = st.integers(-20, 10)
seasons = st.lists(st.floats(-1e5, 1e5), min_size=1, max_size=25)


@given(any_code, grids)
def test_the_code_of_what_a_code_says_is_that_code(code: int, grid: int) -> None:
    """Nothing is rounded twice."""
    p, r = factor.performance_of(code, 2.0**grid), factor.weight_of(code)
    excess = WIDTHS[code >> factor.WIDTH_SHIFT]
    assert code == factor.code_of(p, r, excess, 2.0**-grid)
    assert code == factor.lighter(code, 1.0)


@given(any_code, st.integers(0, 20))
def test_a_lighter_factor(code: int, halvings: int) -> None:
    """Its weight is the nearest there is to a part of what it was, and all else is as before."""
    part = 2.0**-halvings
    found = factor.lighter(code, part)
    weight = factor.weight_of(code) * part
    assert abs(factor.weight_of(found) - weight) <= 2.0**-16  # half of the least step
    others = ~(factor.WEIGHT_TOP << factor.WEIGHT_SHIFT)
    assert code & others == found & others


def test_slopes_by_code() -> None:
    """A slope is the narrowest one, by the root of 1 + (excess width)^2."""
    slopes = [factor.slope_of(code << factor.WIDTH_SHIFT, 3.0) for code in range(len(WIDTHS))]
    assert [(1.0 / math.sqrt(1.0 + width * width)) * 3.0 for width in WIDTHS] == slopes
    narrowest = 150.0
    excess = factor.excess_width(0.1 * factor.steepest(narrowest), narrowest)
    assert math.sqrt(99.0) == pytest.approx(excess, rel=1e-15)


@given(st.lists(any_code, max_size=9), grids)
def test_a_round_trip_is_the_identity(codes: list[int], grid: int) -> None:
    """read, then write gives the very codes where there are no widths (Elo-R)."""
    header = np.zeros(1, HEADER)
    header["grid"], header["count"], header["scale"] = grid, len(codes), 3.0
    given_codes: Codes = np.array([codes], np.int64) % 2**factor.WIDTH_SHIFT
    factors, again = np.zeros((len(codes), 3)), np.zeros_like(given_codes)
    factor.read(header[0], given_codes[0], factors)
    factor.write(header[0], factors, again[0])
    assert given_codes.tolist() == again.tolist()


def same(a: Beliefs, b: Beliefs) -> bool:
    count = int(a.header["count"][0])
    rows = [factor.factors_of(each)[0, :count].tobytes() for each in (a, b)]
    return a.header.tobytes() == b.header.tobytes() and rows[0] == rows[1]


@given(seasons, st.integers(1, 8))
def test_coded_beliefs_of_elo_r_are_the_rounded_ones(season: list[float], kept: int) -> None:
    """The same where each factor has a width of its own."""
    pair = [newcomers(1, kept + 1, 1500.0, 350.0, coded=coded) for coded in (False, True)]
    one = np.zeros(1, np.int64)
    for i, p in enumerate(season):
        evidence = np.array([[p, 250.0**2 * (1 + i % 3), 109.0**2]])
        for each in pair:
            elo_r.update(each.header, each.factors, one, evidence, one + kept)
        assert same(*pair)
