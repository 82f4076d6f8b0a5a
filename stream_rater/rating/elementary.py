"""exp, log, tanh and 1/sqrt with the same bits on every machine, and arrays of whole vectors.

C libraries round differently between releases and processors, so the kernels use these functions.
They have no branches where speed matters, so that LLVM computes several values at once.
`tests/unit/test_elementary.py` measures the errors against exact values: exp and log are within
1.25 units in the last place, 1/sqrt within 5, tanh within 2e-16 absolute.

`whole` and `aligned` make arrays that consist of whole vectors and begin at a cache line. A vector
across two cache lines costs two accesses, and the rest of a loop after its last whole vector runs
one element at a time.
"""

import math

import numpy as np

from stream_rater.columns.arrays import Floats
from stream_rater.columns.intrinsics import fma
from stream_rater.columns.kernels import kernel

TAYLOR = tuple(1.0 / math.factorial(n) for n in range(14))  # The Taylor coefficients of e^r.

LOG2_E = 1.4426950408889634
LN2 = 0.6931471805599453
LN2_HIGH = 0.6931471803691238  # its last 32 bits are zero, so k * LN2_HIGH is exact
LN2_LOW = 1.9082149292705877e-10
EXP_LIMIT = 708.0  # Beyond this, exp saturates: a float64 would overflow or underflow.

ROUGH_LIMIT = 4.9  # Beyond this, `rough_tanh` is 1 up to its error.

ROUND = 6755399441055744.0
"""1.5 * 2**52. Adding it to a number rounds the number to an integer, which then is in the last
bits of the sum."""

SINGLE_LIMIT = np.float32(40.0)
SINGLE_LOG2_E, SINGLE_LN2 = np.float32(LOG2_E), np.float32(LN2)
SINGLE_ROUND = np.float32(12582912.0)  # The same constant for single precision, 1.5 * 2**23.
ONE = np.float32(1.0)
SINGLE_TAYLOR = tuple(np.float32(each) for each in TAYLOR)

HALF_ROOT_BITS = 0x5FE6EB50C7B537A9
"""This minus half of a number's bits approximates the bits of its inverse root. It is 1.5 times the
exponent's bias, adjusted to minimise the worst error."""

SQRT_HALF_BITS = 0x3FE6A09E667F3BCD
ONE_BITS = 0x3FF0000000000000
MANTISSA = 0xFFFFFFFFFFFFF
EXPONENT_0 = 0x4330000000000000
"""The bits of 2**52. An integer below 2**52, written into the last bits, is added to 2**52."""


@kernel
def _beyond_linear(r: float) -> float:
    """(e**r - 1 - r) / r^2, by its series up to r^7."""
    r2 = r * r
    a = fma(fma(TAYLOR[5], r, TAYLOR[4]), r2, fma(TAYLOR[3], r, TAYLOR[2]))
    b = fma(fma(TAYLOR[9], r, TAYLOR[8]), r2, fma(TAYLOR[7], r, TAYLOR[6]))
    total: float = fma(b, r2 * r2, a)
    return total


@kernel
def _times_power_of_two(p: float, shifted: float) -> float:
    """p * 2**k, where `shifted` is k + ROUND. The result must be a normal number."""
    bits = np.float64(p).view(np.int64) + (np.float64(shifted).view(np.int64) << 52)
    return float(np.int64(bits).view(np.float64))


@kernel
def exp(x: float) -> float:
    """e**x for |x| <= EXP_LIMIT; it saturates outside. It is 2**k times a polynomial on [-ln2/2,
    ln2/2]. The polynomial is summed in pairs, fours and eights, so that chains of dependent
    operations are short and a processor can overlap them."""
    x = min(max(x, -EXP_LIMIT), EXP_LIMIT)
    shifted = fma(x, LOG2_E, ROUND)
    k = shifted - ROUND
    r = fma(k, -LN2_LOW, fma(k, -LN2_HIGH, x))
    r2 = r * r
    r4 = r2 * r2
    c = fma(fma(TAYLOR[13], r, TAYLOR[12]), r2, fma(TAYLOR[11], r, TAYLOR[10]))
    beyond = fma(c, r4 * r4, _beyond_linear(r))
    return _times_power_of_two(1.0 + fma(r2, beyond, r), shifted)


@kernel
def quick_exp(x: float) -> float:
    """e**x with a relative error below 1e-11, for arguments that are themselves no more exact."""
    x = min(max(x, -EXP_LIMIT), EXP_LIMIT)
    shifted = fma(x, LOG2_E, ROUND)
    r = fma(shifted - ROUND, -LN2, x)
    return _times_power_of_two(1.0 + fma(r * r, _beyond_linear(r), r), shifted)


@kernel
def single_exp(x: np.float32) -> np.float32:
    """e**x in single precision to 5 digits, for first guesses; saturates beyond SINGLE_LIMIT."""
    x = min(max(x, -SINGLE_LIMIT), SINGLE_LIMIT)
    shifted = fma(x, SINGLE_LOG2_E, SINGLE_ROUND)
    r = fma(shifted - SINGLE_ROUND, -SINGLE_LN2, x)
    r2 = r * r
    beyond = fma(
        fma(SINGLE_TAYLOR[5], r, SINGLE_TAYLOR[4]), r2, fma(SINGLE_TAYLOR[3], r, SINGLE_TAYLOR[2])
    )
    p = fma(beyond, r2, ONE + r)
    bits = np.float32(p).view(np.int32) + (np.float32(shifted).view(np.int32) << np.int32(23))
    return np.float32(np.int32(bits).view(np.float32))


@kernel
def _split(x: float) -> tuple[float, float]:
    """k and m - 1, where x = m 2**k with m in [sqrt(1/2), sqrt 2), for finite, normal x > 0."""
    bits = np.float64(x).view(np.uint64) + np.uint64(ONE_BITS - SQRT_HALF_BITS)
    k = np.uint64((bits >> np.uint64(52)) | np.uint64(EXPONENT_0)).view(np.float64)
    m = np.uint64((bits & np.uint64(MANTISSA)) + np.uint64(SQRT_HALF_BITS)).view(np.float64)
    return k - (4503599627370496.0 + 1023.0), m - 1.0


@kernel
def log(x: float) -> float:
    """ln x for finite, normal x > 0: ln m + k ln2."""
    k, f = _split(x)
    s = f / (2.0 + f)
    z = s * s
    z2 = z * z
    # ln m = 2 artanh(s) = 2s + s*z*(2/3 + 2z/5 + ...); |s| <= 0.1716, so 11 terms reach 1e-17
    z4 = z2 * z2
    a = fma(fma(2.0 / 9.0, z, 2.0 / 7.0), z2, fma(2.0 / 5.0, z, 2.0 / 3.0))
    b = fma(fma(2.0 / 17.0, z, 2.0 / 15.0), z2, fma(2.0 / 13.0, z, 2.0 / 11.0))
    c = fma(2.0 / 23.0, z2, fma(2.0 / 21.0, z, 2.0 / 19.0))
    p = fma(fma(c, z4, b), z4, a)
    # 2s = f - s*f keeps the leading term exact
    rest = fma(k, -LN2_LOW, s * fma(-z, p, f))
    return fma(k, LN2_HIGH, f - rest)


@kernel
def quick_log(x: float) -> float:
    """ln x to 10 digits after the point, for arguments that are themselves no more exact."""
    k, f = _split(x)
    s = f / (2.0 + f)
    z = s * s
    a, b = fma(2.0 / 5.0, z, 2.0 / 3.0), fma(2.0 / 9.0, z, 2.0 / 7.0)
    p = fma(fma(2.0 / 11.0, z * z, b), z * z, a)
    return fma(k, LN2, fma(s, z * p, 2.0 * s))


@kernel
def inverse_root(x: float) -> float:
    """1 / sqrt(x) for finite, normal x > 0, without a root or a division. Subtracting half of the
    bits from a constant gives 1/sqrt(x) to 3.5 %. A step of fourth order then leaves a relative
    error of 7e-6, and a step of third order 5 units in the last place."""
    bits = np.int64(HALF_ROOT_BITS) - (np.float64(x).view(np.int64) >> 1)
    y: float = np.int64(bits).view(np.float64)
    h = fma(-x * y, y, 1.0)
    y = fma(y * h, fma(h, fma(h, 0.3125, 0.375), 0.5), y)
    h = fma(-x * y, y, 1.0)
    return fma(y * h, fma(h, 0.375, 0.5), y)


@kernel
def tanh(x: float) -> float:
    """Hyperbolic tangent; absolute error below 2e-16."""
    e = exp(-2.0 * abs(x))
    t = (1.0 - e) / (1.0 + e)
    return t if x >= 0.0 else -t


@kernel
def quick_tanh(x: float) -> float:
    """The hyperbolic tangent to 11 digits after the point, for arguments that are no more exact."""
    e = quick_exp(-2.0 * x)
    return (1.0 - e) / (1.0 + e)


@kernel
def rough_tanh(x: float) -> float:
    """The hyperbolic tangent for first guesses, by Lambert's continued fraction. The absolute error
    is below 1e-4."""
    x = min(max(x, -ROUGH_LIMIT), ROUGH_LIMIT)
    z = x * x
    return (
        x * fma(z, fma(z, 378.0 + z, 17325.0), 135135.0)
        / fma(z, fma(z, fma(z, 28.0, 3150.0), 62370.0), 135135.0)
    )  # fmt: skip


# --- arrays of whole vectors ----------------------------------------------------------------------

VECTOR = 8  # The number of floats in a cache line, and in the widest vector.


@kernel
def whole(n: int) -> int:
    """n rounded up to whole vectors."""
    return (n + VECTOR - 1) // VECTOR * VECTOR


@kernel
def aligned(n: int) -> Floats:
    """(n,) uninitialised floats, aligned so that the first one begins a cache line."""
    room = np.empty(n + VECTOR - 1)
    first = -(room.ctypes.data // 8) % VECTOR
    return room[first : first + n]
