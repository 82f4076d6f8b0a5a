"""Bounds and moments of a round, computed before its performances are searched."""

from stream_rater.columns.arrays import Floats
from stream_rater.columns.kernels import inlined
from stream_rater.rating.elementary import log

LOW, HIGH, TOTAL, WIDEST, MEAN, SQUARE = range(6)
"""The columns: bounds of the round's performances; the sum and the maximum of u; the sums of u d
and u d^2, where d is the rating relative to the first entry."""
KNOWN = 6


@inlined
def survey(mu: Floats, u: Floats, first: int, end: int, tie: float, known: Floats) -> None:
    """Compute the columns of the round of entries [first, end) into `known`, (KNOWN,).

    Beyond the bounds, a single term of one side outweighs the whole other side.
    """
    least, widest, total = u[first], u[first], 0.0
    low, high, mean, square = mu[first], mu[first], 0.0, 0.0
    for j in range(first, end):
        least, widest, total = min(least, u[j]), max(widest, u[j]), total + u[j]
        low, high = min(low, mu[j]), max(high, mu[j])
        d = mu[j] - mu[first]
        mean, square = mean + u[j] * d, square + u[j] * d * d
    reach = log(2.0 * total / (tie * least)) / least
    known[LOW], known[HIGH] = low - reach, high + reach
    known[TOTAL], known[WIDEST] = total, widest
    known[MEAN], known[SQUARE] = mean, square
