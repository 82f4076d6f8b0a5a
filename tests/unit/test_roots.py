"""One safeguarded step keeps the root bracketed and makes progress."""

import math
from collections.abc import Callable

from hypothesis import given
from hypothesis import strategies as st

from stream_rater.rating.roots import MAX_STEPS, safeguard

C = math.pi / math.sqrt(3.0)


def steps(
    slope: Callable[[float], tuple[float, float]], x: float, low: float, high: float, small: float
) -> tuple[int, float]:
    """Newton by `safeguard` from x, as the kernels loop: evaluations needed, and the root."""
    last = math.inf
    for count in range(1, MAX_STEPS):
        value, derivative = slope(x)
        step = -value / derivative
        if abs(step) <= small:
            return count, x + step
        x, low, high, last = safeguard(x, value, step, low, high, last)
    raise AssertionError("no root within MAX_STEPS")


def test_no_two_cycle() -> None:
    """mu 1500, one performance of 2303, a newcomer's sigma: plain bracketed Newton takes 166."""
    weight, sigma = 0.2, 80.0
    precision = 1.0 / (350.0**2 + weight * sigma**2)
    u = C / math.sqrt((1.0 + 1.0 / weight) * sigma**2)

    def slope(x: float) -> tuple[float, float]:
        t = math.tanh((x - 2303.0) * u / 2.0)
        return precision * (x - 1500.0) + u * t, precision + u * u / 2.0 * (1.0 - t * t)

    count, root = steps(slope, 1500.0, -500.0, 4300.0, 1e-9 * 350.0)
    assert count <= 8
    assert abs(slope(root)[0]) < 1e-15  # of terms near 1e-2: the root to the last bits


@given(
    root=st.floats(-1e4, 1e4),
    width=st.floats(1e-3, 1e4),
    start=st.floats(-3e4, 3e4),
    pull=st.floats(1e-9, 1e3),
)
def test_any_start_ends_at_the_root(root: float, width: float, start: float, pull: float) -> None:
    """tanh((x - root) / width) + pull (x - root) is solved in bounded steps from anywhere."""

    def slope(x: float) -> tuple[float, float]:
        t = math.tanh((x - root) / width)
        return t + pull * (x - root), (1.0 - t * t) / width + pull

    count, found = steps(slope, start, -4e4, 4e4, 1e-6)
    assert abs(found - root) <= 1e-6
    assert count <= 60  # bisection alone: log2(8e4 / 1e-6) = 36 and some Newton steps between


@given(
    st.floats(-1e3, 1e3), st.floats(-1.0, 1.0), st.floats(-1e3, 1e3), st.floats(-1.0, 1.0)
)  # fmt: skip
def test_a_step_stays_inside_and_halves(x: float, value: float, last: float, part: float) -> None:
    """The next x lies in the bracket of the root; a step not half the last one bisects."""
    step = part * last
    target, low, high, taken = safeguard(x, value, step, -1e3, 1e3, last)
    assert (low, high) == ((x, 1e3) if value < 0.0 else (-1e3, x))
    assert low <= target <= high
    assert taken == (step if target == x + step else target - x)
    if abs(step) >= 0.5 * abs(last):
        assert target == 0.5 * (low + high)


def test_a_not_a_number_bisects() -> None:
    """A step that is not a number is replaced by the middle."""
    assert safeguard(0.0, 1.0, math.nan, -4.0, 4.0, 1.0)[0] == -2.0
