"""Computes the normal distribution with the same bits on every machine: density, tails, quantile
and hazard H(z) = phi(z) / Phi(-z).

Everything is computed from Mills' ratio M(z) = Phi(-z) / phi(z), which is smooth and never
underflows: (1 + z) M(z) is a polynomial of degree 24 in t = (z - 4) / (z + 4), fitted at
Chebyshev's points with 40 digits. Its measured relative error is below 2e-13 for z >= 0.
"""

import math

import numpy as np

from stream_rater.columns.intrinsics import fma
from stream_rater.columns.kernels import kernel
from stream_rater.rating.elementary import LN2_HIGH, LN2_LOW, LOG2_E, ROUND, exp, log

INVERSE_SQRT_2_PI = 1.0 / math.sqrt(2.0 * math.pi)

MILLS = np.array(
    [
        1.1832619145678034, -0.24239967052180816, 0.035091880234748345, 0.07169048120144073,
        -0.08070800967906779, 0.0449591290769844, -0.012539103620118907, -0.0007159509042622868,
        0.0017418487711201582, -0.00023670176561751564, -0.00022021556122589934,
        5.32669985227654e-05, 3.4158763380516596e-05, -8.606259855336527e-06,
        -6.553236071353823e-06, 1.0196122279244076e-06, 1.3905788437143398e-06,
        -3.238458448879413e-09, -2.8674105075603825e-07, -4.485292083319898e-08,
        5.065511960760191e-08, 1.368462047478532e-08, -6.516140128481229e-09,
        -1.6886238691550213e-09, 4.4040925724540144e-10,
    ]
)  # fmt: skip
"""The coefficients of the polynomial, lowest first."""


@kernel
def density(z: float) -> float:
    """phi(z)."""
    return INVERSE_SQRT_2_PI * exp(-0.5 * z * z)


@kernel
def mills(z: float) -> float:
    """Phi(-z) / phi(z) for z >= 0."""
    t = (z - 4.0) / (z + 4.0)
    p: float = MILLS[24]
    for i in range(23, -1, -1):
        p = p * t + MILLS[i]
    return p / (1.0 + z)


@kernel
def below(z: float) -> float:
    """Phi(z), the probability of a value below z. The lower tail has no cancellation."""
    tail = density(z) * mills(abs(z))
    return tail if z < 0.0 else 1.0 - tail


@kernel
def hazard(z: float) -> float:
    """phi(z) / Phi(-z), which grows like z. It is the pull of a loss against an opponent rated z
    below."""
    if z >= 0.0:
        return 1.0 / mills(z)
    d = density(z)
    return d / (1.0 - d * mills(-z))


@kernel
def quantile(p: float) -> float:
    """The z with Phi(z) = p, for 0 < p < 1, by Halley's method from a rational guess."""
    q = min(p, 1.0 - p)
    t: float = np.sqrt(-2.0 * log(q))
    z = -(t - (2.515517 + t * (0.802853 + t * 0.010328))
          / (1.0 + t * (1.432788 + t * (0.189269 + t * 0.001308))))  # fmt: skip
    for _ in range(3):
        step = (below(z) - q) / density(z)
        z -= step / (1.0 + 0.5 * z * step)
    return z if p < 0.5 else -z


# --- hazards, computed for many z at once ---------------------------------------------------------
#
# H(z) = z + D(z) for z >= 0, where D falls from 0.8 to 0 like 1/z. D is a ratio of polynomials. It
# was fitted with 120 digits, and its relative error is below 5e-14. For negative arguments, the
# symmetry of Phi gives H(-z) = phi(z) H(z) / (H(z) - phi(z)). Derivatives follow from the Riccati
# equation H' = H (H - z).
#
# There are no branches, and chains of dependent operations are short (even and odd powers are
# summed separately), so that a processor works on several players at once.

FAR = 100.0
"""From this z on, four coefficients suffice, because a_m is about z^-(m+1). The recurrence
multiplies rounding errors by z at each step, so more coefficients would only add noise."""


@kernel
def _exp(x: float) -> float:
    """e**x for -700 <= x <= 0, to 1e-14."""
    shifted = fma(x, LOG2_E, ROUND)
    k = shifted - ROUND
    r = fma(k, -LN2_LOW, fma(k, -LN2_HIGH, x))
    r2 = r * r
    r4 = r2 * r2
    p0 = fma(r2, fma(r, 1.6666666666666666e-01, 0.5), 1.0 + r)
    p4 = fma(r, 8.333333333333333e-03, 4.1666666666666664e-02)
    p4 = fma(r2, fma(r, 1.984126984126984e-04, 1.388888888888889e-03), p4)
    p8 = fma(r, 2.7557319223985893e-06, 2.48015873015873e-05)
    p8 = fma(r2, fma(r, 2.505210838544172e-08, 2.755731922398589e-07), p8)
    bits = np.float64(shifted).view(np.int64) + 1023
    power_of_two: float = np.int64(bits << 52).view(np.float64)
    return fma(r4, fma(r4, p8, p4), p0) * power_of_two


@kernel
def excess(a: float) -> float:
    """D(a) = H(a) - a for a >= 0, without cancellation."""
    s = a * a
    even = fma(23.0052075457995, s, 1961.6951574997213)
    even = fma(fma(even, s, 36317.8985495411), s, 146781.87143940746)
    odd = fma(s + 265.62829288727204, s, 10034.861903643841)
    odd = fma(fma(odd, s, 91160.46428023092), s, 119291.90072085049)
    p = fma(even, a, odd)
    even = fma(fma(23.00520754586212, s, 2007.7055763593444), s, 40103.26911362227)
    even = fma(fma(even, s, 208620.02648052227), s, 149510.22564067232)
    odd = fma(s + 267.6282928609985, s, 10560.118219355227)
    odd = fma(fma(odd, s, 109678.0968743762), s, 252055.17332533386)
    return p / fma(odd, a, even)


@kernel
def tails(z: float) -> tuple[float, float]:
    """D(|z|) and H(-|z|), both without cancellation. H(z) and H(-z) are made of these."""
    a = abs(z)
    d = excess(a)
    right = a + d
    phi = INVERSE_SQRT_2_PI * _exp(max(-0.5 * a * a, -700.0))
    return d, phi * right / (right - phi)


@kernel
def chance_below(z: float) -> float:
    """Phi(z), as `below` computes it, in a form that suits many z at once."""
    d, _ = tails(z)
    tail = INVERSE_SQRT_2_PI * _exp(max(-0.5 * z * z, -700.0)) / (abs(z) + d)
    return tail if z < 0.0 else 1.0 - tail


@kernel
def taylor(
    g: float, z: float, d: float, left: float
) -> tuple[float, float, float, float, float, float]:
    """The first six Taylor coefficients of y(r) = g H(z + g r), given `tails` at z. y' = y (y - g
    (z + g r)), so each coefficient follows from those before it."""
    a = abs(z)
    h = a + d if z >= 0.0 else left
    excess = d if z >= 0.0 else left + a  # H(z) - z
    t0 = g * h
    e = g * excess
    g2 = g * g
    b = t0 + e
    t1 = t0 * e
    c = fma(2.0, t1, -g2)
    t2 = 0.5 * fma(t1, b, -g2 * t0)
    t3 = fma(t2, b, t1 * (t1 - g2)) * (1.0 / 3.0)
    near = 1.0 if z < FAR else 0.0
    u2, u3 = near * t2, near * t3
    t4 = fma(u3, b, u2 * c) * 0.25
    t5 = fma(t4, b, fma(u3, c, u2 * u2)) * 0.2
    return t0, t1, t2, t3, t4, t5
