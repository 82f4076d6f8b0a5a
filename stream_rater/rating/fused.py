"""a b + c, rounded once: one instruction instead of two, and the smaller error.

IEEE 754 says what its bits are, so they are the same on every machine: one instruction where the
processor has it (x86-64-v3, ARM), elsewhere a function of the C library that takes nanoseconds.
Where a kernel writes it, no compiler chooses: left alone, LLVM fuses nothing (see `compiled`).
"""

from typing import Any, Protocol, TypeVar, cast

import numpy as np
from numba.extending import intrinsic

X = TypeVar("X", float, np.float32)


class _FusedMultiplyAdd(Protocol):
    def __call__(self, a: X, b: X, c: X, /) -> X: ...


def _fused(_: Any, a: Any, b: Any, c: Any) -> Any:
    """LLVM's own operation on float64 or float32: its signature, and what makes its code."""
    assert a == b == c, f"a fused multiply-add of {a}, {b} and {c}"
    return a(a, a, a), lambda context, builder, signature, arguments: builder.fma(*arguments)


fma = cast(_FusedMultiplyAdd, intrinsic(_fused))
