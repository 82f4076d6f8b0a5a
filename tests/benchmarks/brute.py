"""Performances by brute force: every sum is computed again, and bisected. Slow; shares no code.

The balance of an entry at x is -Q_i(x) of Theorem 3.2, which increases; the performance is its
zero. No two entries of these rounds tie, but each with itself, fully.
"""

from collections.abc import Callable

import numpy as np
from scipy.special import erfcx

from stream_rater.columns.arrays import Floats, Ints

C = np.pi / np.sqrt(3.0)
CHUNK = 2**21
"""Terms taken at once."""
HALVINGS = 40
FIRST_REACH = 1e-3
"""Points around the found performance that are looked at first."""


def _logistic(x: Floats, i: Ints, mu: Floats, delta: Floats) -> Floats:
    u = C / delta
    won = np.tanh(0.5 * (x[:, None] - mu) * u) @ u
    own = u[i] * np.tanh(0.5 * (x - mu[i]) * u[i])
    better = np.concatenate([[0.0], np.cumsum(u)])
    balance: Floats = won + own + better[i] - (better[-1] - better[i + 1])
    return balance


def _gaussian(x: Floats, i: Ints, mu: Floats, delta: Floats) -> Floats:
    z = (x[:, None] - mu) / delta
    lost = np.arange(len(mu)) < i[:, None]
    # hazard(z) = phi(z) / Phi(-z): of a loss at z, of a win at -z.
    hazard = np.sqrt(2.0 / np.pi) / erfcx(np.where(lost, z, -z) / np.sqrt(2.0))
    terms = np.where(lost, hazard, -hazard) / delta
    own = (np.arange(len(i)), i)
    terms[own] = z[own] / delta[i]
    balance: Floats = terms.sum(axis=1)
    return balance


def worst_error(found: Floats, at: Ints, mu: Floats, delta: Floats, *, gaussian: bool) -> float:
    """How far, in points, the performances `found` of the entries `at` are from the true ones.

    Entries in order of place; `mu` and `delta` (n,) of all; `found` and `at` (m,).
    """
    balance = _gaussian if gaussian else _logistic
    size = max(1, CHUNK // len(mu))
    worst = 0.0
    for start in range(0, len(at), size):
        x, i = found[start : start + size], at[start : start + size]
        true = _zeros(lambda x, i=i: balance(x, i, mu, delta), x)  # type: ignore[misc]
        worst = max(worst, float(np.abs(true - x).max()))
    return worst


def _zeros(balance: Callable[[Floats], Floats], near: Floats) -> Floats:
    """The zeros of increasing functions, by bisection from around `near`."""
    low, high, reach = near.copy(), near.copy(), FIRST_REACH
    while (above := balance(low) > 0.0).any():
        low[above] = near[above] - reach
        reach *= 8.0
    reach = FIRST_REACH
    while (below := balance(high) < 0.0).any():
        high[below] = near[below] + reach
        reach *= 8.0
    for _ in range(HALVINGS):
        if (high - low).max() < 1e-9:
            break
        middle = 0.5 * (low + high)
        negative = balance(middle) < 0.0
        low, high = np.where(negative, middle, low), np.where(negative, high, middle)
    return 0.5 * (low + high)
