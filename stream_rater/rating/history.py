"""A full history: all logistic factors of one belief, as rows (p, a, r) in order of performance."""

from stream_rater.columns.arrays import Floats
from stream_rater.columns.kernels import kernel


@kernel
def copy(held: Floats, i: int, to: int) -> None:
    """Copy factor i to the place `to`."""
    for c in range(3):
        held[to, c] = held[i, c]


@kernel
def insert(held: Floats, count: int, p: float, a: float, r: float) -> None:
    """Insert (p, a, r) among `count` factors in order of p. There must be room for one more."""
    i = count
    while i > 0 and held[i - 1, 0] > p:
        copy(held, i - 1, i)
        i -= 1
    held[i, 0], held[i, 1], held[i, 2] = p, a, r
