"""Computes the normal distribution with the same bits on every machine: density, tails, hazard and
quantile.

Everything is computed from Mills' ratio M(z) = Phi(-z) / phi(z), which is smooth and never
underflows: (1 + z) M(z) is a polynomial of degree 24 in t = (z - 4) / (z + 4), fitted at
Chebyshev's points with 40 digits. Its measured relative error is below 2e-13 for z >= 0.
"""

import math

import numpy as np

from stream_rater.columns.kernels import kernel
from stream_rater.rating.elementary import exp, log

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
