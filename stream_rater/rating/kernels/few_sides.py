"""The two-moment filter for a few sides: products of probabilities on one grid.

All sides share a grid of columns, performances a step apart. At each column a side has the
densities of its performance on a usual and on a bad day, and the probabilities F and 1 - F that it
performs worse and better. With them come

    worse     the product of F over the sides that are worse,
    better    the product of 1 - F over the sides that are better,
    tied      the product of the densities of the others in the same place,

each a running product over the sides in order of place. The product of the three is the likelihood
L, and density times L summed over the columns gives the moments. There is no logarithm, and one
exponential for each density, which F shares.

The factors are at most 1 (the densities leave out their constants). So if a sum of products is at
least SEEN, no product that counts in it has underflowed on the way. Otherwise the result was so
surprising that `many_sides` computes it by logarithms.

The rows are whole vectors and the loops have no branches, so that a processor handles several
columns at once.
"""

import math

import numpy as np

from stream_rater.columns.arrays import Floats
from stream_rater.columns.intrinsics import fma
from stream_rater.columns.kernels import giving, inlined, kernel
from stream_rater.rating.elementary import quick_exp
from stream_rater.rating.kernels.duel import PART, PI_0, PI_1, REACH, SHIFT_0, SHIFT_1
from stream_rater.rating.model import Places

FEW = 30  # The most sides.
STEP, TIED_STEP = 1.25, 1.0
"""The distance between two columns, in standard deviations of the narrowest possible posterior. The
trapezoid rule is exact to 3e-6 even for that posterior (to 3e-9 where sides tie), and posteriors
are wider: only a tie says as much as a known performance would."""
MOST_COLUMNS = 256  # The most columns, a multiple of WHOLE.
PARTS, WHOLE = 4, 16
"""A sum over all columns begins with PARTS columns at a time. The number of columns is a multiple
of WHOLE, so that each part consists of whole vectors."""
FURTHEST = 36.0
"""No column may be further from the mean of a kind of day, in standard deviations of it. Beyond,
densities underflow."""
SEEN, TINY = 1e-150, 1e-300
"""The least sum that counts, and a sum that is added where one is divided by."""

SHARED = 10
X, WORSE, AFTER, BETTER, SUMS = range(5)
"""The rows that the sides share: the distance of each column from the centre of the grid; the
product of F over the worse sides, in two rows that take turns; the product of 1 - F over the better
sides, and before that the products of a tied group; the sums of a side, in six rows."""
USUAL, BAD, ABOVE, DENSITY = range(4)
"""The rows of a side: the densities on a usual and on a bad day, times the products so far; 1 - F;
and the whole density."""
OF_SIDE = 4


@kernel
def tail(a: float) -> float:
    """Phi(-a) e^(a^2 / 2) for a >= 0, with a relative error below 2e-11. It is a quotient of
    polynomials of degree 6 and 7, fitted at Chebyshev's points of (a - 3) / (a + 3) up to a = 40.
    All coefficients are positive, so nothing cancels."""
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


@kernel
def room(n: int) -> int:
    """The number of rows of scratch space for a round of n sides; 0 if there are too many."""
    return SHARED + OF_SIDE * n if n <= FEW else 0


@inlined
def _columns(place: Places, m: Floats, v: Floats, b2: Floats, x: Floats) -> tuple[int, float]:
    """Write the columns' distances from the centre of the grid into x. Returns their number, whole
    vectors, and the centre. The number is 0 if there would be too many, or one too far from a
    mean."""
    low, high, narrowest, information = math.inf, -math.inf, math.inf, 0.0
    distance = STEP
    for j in range(len(m)):
        distance = TIED_STEP if j > 0 and place[j] == place[j - 1] else distance
        b, variance = np.sqrt(b2[j]), v[j] + PART * b2[j]
        reach = REACH * np.sqrt(variance)
        low = min(low, m[j] + SHIFT_1 * b - reach)
        high = max(high, m[j] + SHIFT_0 * b + reach)
        narrowest = min(narrowest, variance)
        information += 1.0 / variance
    step = distance / np.sqrt(1.0 / narrowest + information)
    if not high - low < (MOST_COLUMNS - WHOLE) * step:
        return 0, 0.0
    count = (int((high - low) / step) + 1 + WHOLE) // WHOLE * WHOLE
    furthest = 0.0
    for j in range(len(m)):
        b, u = np.sqrt(b2[j]), 1.0 / np.sqrt(v[j] + PART * b2[j])
        furthest = max(furthest, (m[j] + SHIFT_0 * b - low) * u)
        furthest = max(furthest, (low + count * step - m[j] - SHIFT_1 * b) * u)
    if not furthest < FURTHEST:
        return 0, 0.0
    half = 0.5 * count
    for g in range(count):
        x[g] = (g - half) * step
    return count, low + half * step


@inlined
def _tabulate(
    x: Floats, centre: float, m: float, v: float, b2: float, worse: Floats, after: Floats,
    usual: Floats, bad: Floats, above: Floats, density: Floats,
) -> None:  # fmt: skip
    """Write a side's rows. Its densities are multiplied by `worse`, and `after` by its F."""
    b, u = np.sqrt(b2), 1.0 / np.sqrt(v + PART * b2)
    first, second = (centre - m - SHIFT_0 * b) * u, (centre - m - SHIFT_1 * b) * u
    for g in range(len(x)):
        z_0, z_1 = fma(x[g], u, first), fma(x[g], u, second)
        e_0, e_1 = quick_exp(-0.5 * z_0 * z_0), quick_exp(-0.5 * z_1 * z_1)
        t_0, t_1 = PI_0 * e_0 * tail(abs(z_0)), PI_1 * e_1 * tail(abs(z_1))
        r_0, r_1 = PI_0 - t_0, PI_1 - t_1
        d_0, d_1 = PI_0 * e_0, PI_1 * e_1
        usual[g], bad[g], density[g] = d_0 * worse[g], d_1 * worse[g], d_0 + d_1
        above[g] = (r_0 if z_0 < 0.0 else t_0) + (r_1 if z_1 < 0.0 else t_1)
        after[g] *= (t_0 if z_0 < 0.0 else r_0) + (t_1 if z_1 < 0.0 else r_1)


@inlined
def _tie(usual: Floats, bad: Floats, density: Floats, product: Floats) -> None:
    """Multiply a side's densities by the product so far, and the product by its density."""
    for g in range(len(product)):
        usual[g] *= product[g]
        bad[g] *= product[g]
        product[g] *= density[g]


@inlined
def _sum(x: Floats, better: Floats, usual: Floats, bad: Floats, sums: Floats) -> None:
    """Write the masses, the sums of x and those of x^2, of a usual day and then of a bad one, into
    the six rows of `sums`: each element is the sum of PARTS columns that far apart. A sum over all
    columns would be one chain of additions, which cannot be vector instructions."""
    w = len(x) // PARTS
    for day in range(2):
        density = usual if day == 0 else bad
        mass, mean, square = sums[3 * day], sums[3 * day + 1], sums[3 * day + 2]
        for g in range(w):
            a, b, c, d = g, g + w, g + 2 * w, g + 3 * w
            d_a, d_b = density[a] * better[a], density[b] * better[b]
            d_c, d_d = density[c] * better[c], density[d] * better[d]
            x_a, x_b, x_c, x_d = d_a * x[a], d_b * x[b], d_c * x[c], d_d * x[d]
            mass[g] = (d_a + d_b) + (d_c + d_d)
            mean[g] = (x_a + x_b) + (x_c + x_d)
            square[g] = fma(x_a, x[a], x_b * x[b]) + fma(x_c, x[c], x_d * x[d])


@inlined
def _totals(sums: Floats, w: int) -> tuple[float, float, float, float, float, float]:
    """The sum of the first w elements of each row."""
    a = b = c = d = e = f = 0.0
    for g in range(w):
        a, b, c = a + sums[0, g], b + sums[1, g], c + sums[2, g]
        d, e, f = d + sums[3, g], e + sums[4, g], f + sums[5, g]
    return a, b, c, d, e, f


@inlined
def _moments(
    sums: Floats, w: int, centre: float, m: float, v: float, b2: float, ceiling: float,
    out: Floats,
) -> bool:  # fmt: skip
    """Write a side's results from its sums of distances from the centre of the grid. Returns
    whether the sums are large enough to count."""
    mass_0, mean_0, square_0, mass_1, mean_1, square_1 = _totals(sums, w)
    if not mass_0 + mass_1 >= SEEN:
        return False
    d_0, d_1 = mean_0 / (mass_0 + TINY), mean_1 / (mass_1 + TINY)
    b, k = np.sqrt(b2), v / (v + PART * b2)
    unseen = PART * b2 * k
    p_0, p_1 = min(centre + d_0, ceiling), min(centre + d_1, ceiling)
    s_0, s_1 = k * (p_0 - (m + SHIFT_0 * b)), k * (p_1 - (m + SHIFT_1 * b))
    var_0 = unseen + k * k * max(square_0 / (mass_0 + TINY) - d_0 * d_0, 0.0)
    var_1 = unseen + k * k * max(square_1 / (mass_1 + TINY) - d_1 * d_1, 0.0)
    q = mass_1 / (mass_0 + mass_1)
    apart = s_1 - s_0
    out[0] = p_0 + q * (p_1 - p_0)
    out[1] = m + s_0 + q * apart
    out[2] = var_0 + q * (var_1 - var_0) + q * (1.0 - q) * apart * apart
    return True


@giving
def rate_few(
    place: Places, m: Floats, v: Floats, b2: Floats, ceiling: Floats, rows: Floats, out: Floats
) -> bool:
    """Write into `out` (n, 3) what `two_moment.rate_sides` does. Returns False if it cannot, and
    then `out` is not complete. `rows` is scratch space with `room` rows."""
    n = len(m)
    count, centre = _columns(place, m, v, b2, rows[X])
    if count == 0:
        return False
    x, sums, better = rows[X, :count], rows[SUMS:SHARED], rows[BETTER, :count]
    worse, after, w = WORSE, AFTER, count // PARTS
    rows[worse, :count] = 1.0
    end = n
    while end > 0:
        first = end - 1
        while first > 0 and place[first - 1] == place[end - 1]:
            first -= 1
        rows[after, :count] = rows[worse, :count]
        for i in range(first, end):
            own = SHARED + OF_SIDE * i
            _tabulate(
                x, centre, m[i], v[i], b2[i], rows[worse, :count], rows[after, :count],
                rows[own + USUAL, :count], rows[own + BAD, :count], rows[own + ABOVE, :count],
                rows[own + DENSITY, :count],
            )  # fmt: skip
        for way in (1, -1) if end > first + 1 else (0, 0):
            better[:] = 1.0
            for number in range(end - first if way != 0 else 0):
                own = SHARED + OF_SIDE * (first + number if way > 0 else end - 1 - number)
                _tie(
                    rows[own + USUAL, :count], rows[own + BAD, :count],
                    rows[own + DENSITY, :count], better,
                )  # fmt: skip
        worse, after, end = after, worse, first
    better[:] = 1.0
    first = 0
    while first < n:
        end = first
        while end < n and place[end] == place[first]:
            own = SHARED + OF_SIDE * end
            _sum(x, better, rows[own + USUAL, :count], rows[own + BAD, :count], sums)
            if not _moments(sums, w, centre, m[end], v[end], b2[end], ceiling[end], out[end]):
                return False
            end += 1
        for i in range(first, end):
            above = rows[SHARED + OF_SIDE * i + ABOVE, :count]
            for g in range(count):
                better[g] *= above[g]
        first = end
    return True
