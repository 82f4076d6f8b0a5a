"""Numbers rounded to what a record holds: the nearest there is, and never twice."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stream_rater.rating import factor, model

KINDS = {
    "weight": (factor.WEIGHT_BITS, factor.WEIGHT_LOW, factor.WEIGHT_TOP),
    "width": (factor.WIDTH_BITS, factor.WIDTH_LOW, factor.WIDTH_TOP),
}
kinds = pytest.mark.parametrize("kind", KINDS)


def every(kind: str) -> list[float]:
    """All small floats of a kind, by code."""
    bits, low, top = KINDS[kind]
    return [factor.small_float(code, bits, low) for code in range(top + 1)]


@kinds
def test_codes_are_in_order(kind: str) -> None:
    """The greater the code, the greater the number, from zero on; and each has its own code."""
    bits, low, top = KINDS[kind]
    numbers = every(kind)
    assert numbers[0] == 0.0
    assert all(a < b for a, b in itertools.pairwise(numbers))
    codes = [factor.small_code(x, bits, low, top) for x in numbers]
    assert codes == list(range(top + 1))


@kinds
def test_all_of_a_kind(kind: str) -> None:
    """small_floats gives what the kernel gives, code by code."""
    bits, low, top = KINDS[kind]
    assert factor.small_floats(bits, low, top) == every(kind)


def test_ranges() -> None:
    """Weights reach from 2^-15 to just under 2, widths from 1/64 to 768."""
    weights, widths = every("weight"), every("width")
    assert (weights[1], weights[-1]) == (2.0**-15, 2.0 - 2.0**-13)
    assert (widths[1], widths[-1]) == (1.0 / 64.0, 768.0)


@kinds
@given(data=st.data())
def test_rounding_finds_the_nearest(kind: str, data: st.DataObject) -> None:
    """No small float is nearer than the one found."""
    numbers = np.array(every(kind))
    x = data.draw(st.floats(0.0, 1.5 * numbers[-1]))
    found = numbers[factor.small_code(x, *KINDS[kind])]
    assert abs(found - x) == np.abs(numbers - x).min()
    if kind == "weight":
        assert factor.weight(x) == found


@given(st.integers(-40, 40), st.floats(-1e9, 1e9))
def test_a_performance_goes_to_the_nearest_grid_point(grid: int, p: float) -> None:
    """Within half a step, or to the end of the grid."""
    step = 2.0**grid
    point = factor.grid_code(p, 1.0 / step) * step
    end = (2**19 - 1) * step
    assert abs(point) <= end
    assert abs(point - min(max(p, -end), end)) <= step / 2.0


@given(st.floats(-1e6, 1e6), st.floats(1e-3, 1e6))
def test_the_grid_is_fine_and_wide(mu: float, sigma: float) -> None:
    """It reaches beyond 60 sigma and 4 |mu|, and one step coarser would be needless."""
    step = 2.0 ** model.grid_of(mu, sigma)
    reach = (2**19 - 1) * step
    assert reach > 60.0 * sigma
    assert reach > 3.99 * abs(mu)
    assert step < 2.0 * max(sigma / 2**13, abs(mu) / 2**17)


def test_the_grid_of_the_paper() -> None:
    """A ladder at 1500 with sigma 350 rounds performances to 1/16 point."""
    assert model.grid_of(1500.0, 350.0) == -4
    assert model.grid_of(25.0, 25.0 / 3.0) == -9


@pytest.mark.parametrize("exponent", [-1022, -4, 0, 19, 1023])
def test_powers_of_two(exponent: int) -> None:
    """Exact over all normal numbers."""
    assert factor.power_of_two(exponent) == math.ldexp(1.0, exponent)


@given(st.floats(1e-300, 1e300))
def test_a_scale_grows_until_a_weight_is_under_two(weight: float) -> None:
    """By a power of two, and no more than needed."""
    times = factor.growth(weight)
    assert math.frexp(times)[0] == 0.5
    assert weight / times < 2.0
    assert times == 1.0 or weight / times >= 1.0
