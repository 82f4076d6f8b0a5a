"""The noise of performances in the two-moment filter, and its normal parts.

The noise is skewed: there are usual days and bad ones, with the probabilities PI_0 and PI_1. On
either kind of day the noise is normal, with the mean SHIFT_0 b or SHIFT_1 b and the variance PART
b^2. Over both kinds of day its mean is 0 and its variance b^2.

`duel`, `few_sides` and `many_sides` rate a round of sides by this noise.
"""

import math

from stream_rater.columns.intrinsics import fma
from stream_rater.columns.kernels import kernel

BAD, LOWER = 0.2, 2.0
"""BAD is the probability of a bad day. The mean of a bad day is lower than that of a usual day by
LOWER standard deviations of one kind of day. LOWER = 2 is the most skewed noise of two normal
distributions whose density is log-concave. Both numbers were chosen on the games of the benchmarks,
as the parameters' defaults were."""
_TOTAL = 1.0 + BAD * (1.0 - BAD) * LOWER**2  # the variance before it is scaled to 1
PI_0, PI_1 = 1.0 - BAD, BAD
SHIFT_0, SHIFT_1 = BAD * LOWER / math.sqrt(_TOTAL), (BAD - 1.0) * LOWER / math.sqrt(_TOTAL)
PART = 1.0 / _TOTAL
ODDS = math.log(PI_1 / PI_0)

REACH = 6.0  # A grid of performances reaches this many standard deviations beyond every mean.


@kernel
def tail(a: float) -> float:
    """Phi(-a) e^(a^2 / 2) for a >= 0, with a relative error below 2e-11.

    It is a quotient of polynomials of degree 6 and 7, fitted at Chebyshev's points of
    (a - 3) / (a + 3) up to a = 40. All coefficients are positive, so nothing cancels.
    """
    p = fma(2.3443711612116013e-04, a, 3.6446520265905106e-03)
    p = fma(fma(p, a, 2.729013637323773e-02), a, 1.2292146773777403e-01)
    p = fma(fma(p, a, 3.4931469386148734e-01), a, 5.984375461610011e-01)
    p = fma(p, a, 5.000000000040387e-01)
    q = fma(5.876467124987007e-04, a, 9.135788369089294e-03)
    q = fma(fma(q, a, 6.899384257131251e-02), a, 3.1725524502446056e-01)
    q = fma(fma(q, a, 9.428114873217261e-01), a, 1.7902173020094052)
    q = fma(fma(q, a, 1.9947596540283), a, 1.0)
    found: float = p / q
    return found
