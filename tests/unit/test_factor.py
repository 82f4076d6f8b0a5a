"""A factor's code: 40 bits in, the same 40 bits out; and coded beliefs are the rounded ones."""

import math

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from stream_rater.rating import belief, elo_r, factor, sketch
from stream_rater.rating.model import HEADER, Beliefs, Codes, newcomers

seasons = st.lists(st.floats(-1e5, 1e5), min_size=1, max_size=25)


def test_slopes_by_code() -> None:
    """The table of slopes is what a factor on its way in is given, to the bit."""
    widths = [factor.excess_of(code << factor.WIDTH_SHIFT) for code in range(32)]
    assert [sketch.relative_slope(each) for each in widths] == factor.SLOPES.tolist()


@given(
    st.lists(st.integers(0, 2**40 - 1).filter(lambda code: code % 2**20 != 2**19), max_size=9),
    st.integers(-20, 10),
    st.sampled_from([0.0, 150.0, 0.125, 1e5]),
)
def test_a_round_trip_is_the_identity(codes: list[int], grid: int, width: float) -> None:
    """read, then write gives the very codes, but for widths where there are none."""
    header = np.zeros(1, HEADER)
    header["grid"], header["count"], header["width"], header["scale"] = grid, len(codes), width, 3.0
    given_codes: Codes = np.array([codes], np.int64)
    factors, again = np.zeros((len(codes), 3)), np.zeros_like(given_codes)
    factor.read(header[0], given_codes[0], factors)
    factor.write(header[0], factors, again[0])
    kept = 2**40 - 1 if width > 0.0 else 2**factor.WIDTH_SHIFT - 1
    assert (given_codes & kept).tolist() == again.tolist()


def same(a: Beliefs, b: Beliefs) -> bool:
    count = int(a.header["count"][0])
    rows = [factor.factors_of(each)[0, :count].tobytes() for each in (a, b)]
    return a.header.tobytes() == b.header.tobytes() and rows[0] == rows[1]


@given(seasons, st.floats(1.0, 1e6), st.integers(1, 8), st.sampled_from([0.0, 0.04, 1.0, math.inf]))
def test_coded_beliefs_are_the_rounded_ones(
    season: list[float], beta2: float, kept: int, rho: float
) -> None:
    """After every round, whether held as codes or as numbers: the same header, the same factors."""
    pair = [newcomers(1, kept + 1, 1500.0, 350.0, coded=coded) for coded in (False, True)]
    one = np.zeros(1, np.int64)
    for i, p in enumerate(season):
        evidence = np.array([[p, beta2 * (1 + i % 3), 900.0]])
        for each in pair:
            belief.update(each.header, each.factors, one, evidence, one + rho, one + kept)
        assert same(*pair)


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
