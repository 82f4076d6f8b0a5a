"""Compiles the kernels so that they compute the same bits on every machine, and compiles them only
once.

Bit-for-bit equality of ratings needs arithmetic that does not depend on the processor:

- There is no fastmath, so sums are not reassociated. There is no fused multiply-add except where a
  kernel calls one (`intrinsics.fma`): LLVM forms none by itself.
- The instruction level has a name instead of being "whatever this host has". It is $NUMBA_CPU_NAME,
  for an image that must start warm anywhere, or the widest level of this machine, which only has
  more lanes.
- There is no libm: `elementary` has its own exp, log and tanh.

Compiled code is kept in files (`kernel_files`), so a process starts warm. A wheel or an image can
bring such files. Then the level is theirs, even if the machine has a wider one, so that nothing is
compiled.
"""

import platform
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar, cast

from llvmlite import binding as llvm

from stream_rater.columns import kernel_files, linking
from stream_rater.columns.compiling import SharedCache
from stream_rater.columns.linking import numba

KERNEL_VERSION = 14
"""The version of the kernels, raised by any change that can alter a bit of a rating. Workers leave
alone parts of newer kernels, and of older ones than `pipeline.parts.schema.OLDEST_KERNEL`."""

F = TypeVar("F", bound=Callable[..., Any])

_config: Any = numba.config

LEVELS = (
    ("x86-64-v4", ("avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl")),
    ("x86-64-v3", ("avx2", "fma")),
    ("x86-64", ()),
)
"""Instruction levels of this architecture, the widest first, each with the features it needs."""

WIDEST = LEVELS[0][0]
WHOLE_WIDTH = "-prefer-256-bit"
"""The option that makes LLVM use whole registers at the widest level, not halves of them."""


def _instruction_level() -> str:
    """The level that $NUMBA_CPU_NAME names, or the widest of this machine, or the widest of shipped
    kernels; on other architectures what each of their processors has. All give the same bits."""
    if platform.machine() != "x86_64":
        return "generic"
    if _config.CPU_NAME:  # numba's $NUMBA_CPU_NAME
        return str(_config.CPU_NAME)
    try:
        flags = set(Path("/proc/cpuinfo").read_text().split())
    except OSError:
        flags = set()
    usable = [level for level, needed in LEVELS if flags.issuperset(needed)]
    return next(filter(kernel_files.is_shipped, usable), usable[0])


_config.CPU_NAME = _instruction_level()
_config.CPU_FEATURES = WHOLE_WIDTH if _config.CPU_NAME == WIDEST else ""

MOST_CHECKS = 100
"""A loop over several rows of one array becomes vector instructions only if the compiler may first
check that the rows do not overlap. By default the compiler allows itself 8 comparisons, and a table
of stage 1 needs more."""

llvm.set_option("", f"-runtime-memory-check-threshold={MOST_CHECKS}")

OPTIONS: dict[str, Any] = {"nogil": True, "error_model": "numpy"}


def kernel(function: F) -> F:
    """Compile `function` on its first call, without the GIL, by the rules above."""
    compiled = numba.njit(**OPTIONS, no_cfunc_wrapper=True, pipeline_class=linking.KernelCompiler)(
        function
    )
    files = kernel_files.KernelFiles(function)
    compiled._cache = SharedCache(files, f"{function.__module__}.{function.__name__}")
    return cast(F, compiled)


def inlined(function: F) -> F:
    """Compile a function that becomes part of each kernel that calls it. The function neither makes
    nor returns arrays.

    Only inside a kernel does the compiler see which arrays do not overlap, so that it need not
    check each time. The function is cached with those kernels alone, because looking for a file of
    its own takes as long as importing it.

    It counts no references. Numba counts those of each slice by two locked instructions, which took
    a third of the time of rounds of two players. The caller keeps the arrays alive. So numba
    refuses to compile a function that makes an array or returns one that was not passed to it.
    """
    return cast(F, linking.Inlined(function, OPTIONS, counting=False))


def giving(function: F) -> F:
    """Compile a function as `inlined` does, but one that makes or returns arrays and so counts
    references. No `inlined` function may call it."""
    return cast(F, linking.Inlined(function, OPTIONS, counting=True))
