"""The fused multiply-add a b + c, rounded once.

IEEE 754 defines its bits, so they are equal on every machine. It is one instruction if the
processor has it (x86-64-v3, ARM), and otherwise a function of the C library that takes nanoseconds.
The kernels name it where they want it. LLVM fuses nothing by itself (see `columns.kernels`).
"""

from typing import Any, Protocol, TypeVar, cast

import numpy as np
from numba.extending import intrinsic

X = TypeVar("X", float, np.float32)


class _FusedMultiplyAdd(Protocol):
    def __call__(self, a: X, b: X, c: X, /) -> X: ...


def _fused(_: Any, a: Any, b: Any, c: Any) -> Any:
    """The numba intrinsic for LLVM's operation on float64 or float32: its signature and its code
    generator."""
    assert a == b == c, f"a fused multiply-add of {a}, {b} and {c}"
    return a(a, a, a), lambda context, builder, signature, arguments: builder.fma(*arguments)


fma = cast(_FusedMultiplyAdd, intrinsic(_fused))
