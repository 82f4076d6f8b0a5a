"""Two instructions that numba does not offer: `prefetch` and `fma`.

`prefetch` is a hint to the processor that a row of an array will be read soon. Beliefs lie far
apart in memory, and a cache miss takes as long as hundreds of operations. The hint changes no bit
of any result. With 280,000 players, both stages take 0.50 us per update with it and 0.54 us without
(minima of alternating runs).

`fma(a, b, c)` is a b + c, rounded once. IEEE 754 defines its bits, so they are equal on every
machine. It is one instruction if the processor has it (x86-64-v3, ARM), and otherwise a function of
the C library that takes nanoseconds. LLVM fuses nothing by itself (`columns.kernels`).
"""

from collections.abc import Callable
from typing import Any, TypeVar, cast

import numpy as np

import stream_rater.columns.kernels  # noqa: F401 - first: it imports numba without unused modules

# isort: split
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

tools: Any = cgutils  # numba's tools for generating code, which have no type hints.

LINE = 64  # The number of bytes in a cache line.

READ, KEEP, DATA = 0, 3, 1
"""Arguments of LLVM's instruction: the row will be read, is to stay in all caches, and is data."""


def _prefetch(typing_context: Any, array: Any, row: Any, offset: Any) -> Any:
    """Fetch the cache line `offset` bytes into array[row]; the row must exist."""
    if not isinstance(array, types.Array):
        return None

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        struct = context.make_array(signature.args[0])(context, builder, arguments[0])
        stride = tools.unpack_tuple(builder, struct.strides)[0]
        at = builder.add(builder.mul(arguments[1], stride), arguments[2])
        byte = ir.IntType(8).as_pointer()
        place = builder.gep(builder.bitcast(struct.data, byte), [at])
        number = ir.IntType(32)
        hint = tools.get_or_insert_function(
            builder.module,
            ir.FunctionType(ir.VoidType(), [byte, number, number, number]),
            "llvm.prefetch.p0i8",
        )
        builder.call(hint, [place, number(READ), number(KEEP), number(DATA)])
        return context.get_dummy_value()

    return types.void(array, types.intp, types.intp), generate


prefetch: Callable[[Any, int, int], None] = cast(Any, intrinsic(_prefetch))

X = TypeVar("X", float, np.float32)


def _fused(_: Any, a: Any, b: Any, c: Any) -> Any:
    """LLVM's operation on float64 or float32: its signature and its code generator."""
    assert a == b == c, f"a fused multiply-add of {a}, {b} and {c}"
    return a(a, a, a), lambda context, builder, signature, arguments: builder.fma(*arguments)


fma: Callable[[X, X, X], X] = cast(Any, intrinsic(_fused))
