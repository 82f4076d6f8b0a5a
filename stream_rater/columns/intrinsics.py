"""A hint to the processor: this row of an array will be read soon.

Beliefs lie far apart in memory, and a cache miss takes as long as hundreds of operations. A hint
changes no bit of anything. With 280,000 players both stages take 0.50 us an update with it and 0.54
without (minima of alternating runs).
"""

from collections.abc import Callable
from typing import Any, cast

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

tools: Any = cgutils
"""Untyped."""

LINE = 64
"""Bytes of a cache line."""

READ, KEEP, DATA = 0, 3, 1
"""Arguments of LLVM's instruction: the row will be read, is to stay in all caches, and is data."""


def _prefetch(typing_context: Any, array: Any, row: Any, offset: Any) -> Any:
    """Fetch the cache line `offset` bytes into array[row]; the row must exist."""
    if not isinstance(array, types.Array):
        return None

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        held = context.make_array(signature.args[0])(context, builder, arguments[0])
        stride = tools.unpack_tuple(builder, held.strides)[0]
        at = builder.add(builder.mul(arguments[1], stride), arguments[2])
        byte = ir.IntType(8).as_pointer()
        place = builder.gep(builder.bitcast(held.data, byte), [at])
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
