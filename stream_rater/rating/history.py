"""A history in full: all logistic factors of one belief, rows (p, a, r) in order of performance."""

from stream_rater.columns.arrays import Floats
from stream_rater.columns.kernels import kernel


@kernel
def copy(held: Floats, i: int, to: int) -> None:
    """Put factor i in the place `to`."""
    for c in range(3):
        held[to, c] = held[i, c]


@kernel
def insert(held: Floats, count: int, p: float, a: float, r: float) -> None:
    """Put (p, a, r) among `count` factors in order of p. Room for one more."""
    i = count
    while i > 0 and held[i - 1, 0] > p:
        copy(held, i - 1, i)
        i -= 1
    held[i, 0], held[i, 1], held[i, 2] = p, a, r
