"""How the kernels are compiled: the same bits on every machine, and only once.

Bit-for-bit equality of ratings needs arithmetic that does not depend on the processor:

- no fastmath, so no reassociated sums, and no fused multiply-add, which LLVM forms only when asked;
- a named instruction level instead of "whatever this host has";
- no libm: `elementary` brings its own exp, log and tanh.

Compiled code is cached next to the sources, so a process starts warm. Numba notices a change of a
kernel's own file only, not of those it calls; so each state of the sources has a cache of its own.
"""

import hashlib
import platform
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar, cast

import numba

KERNEL_VERSION = 3
"""Raised by any change that can alter a bit of a rating. Parts carry it; workers leave alone those
of newer kernels, and of older ones than `pipeline.parts.OLDEST_KERNEL`."""

F = TypeVar("F", bound=Callable[..., Any])


def _instruction_level() -> str | None:
    """The widest level that every machine of this architecture we run on has."""
    if platform.machine() != "x86_64":
        return None
    try:
        flags = Path("/proc/cpuinfo").read_text()
    except OSError:
        return "x86-64"
    return "x86-64-v3" if " avx2 " in flags and " fma " in flags else "x86-64"


def _cache_folder() -> str:
    """Where the kernels compiled from these very sources are kept."""
    here, digest = Path(__file__).parent, hashlib.sha256()
    for source in sorted(here.rglob("*.py")):
        digest.update(source.read_bytes())
    return str(here / "__pycache__" / f"kernels-{digest.hexdigest()[:12]}")


_config: Any = numba.config
_config.CACHE_DIR = _config.CACHE_DIR or _cache_folder()
_config.CPU_NAME = _instruction_level()
_config.CPU_FEATURES = ""


def kernel(function: F) -> F:
    """Compile `function` on its first call, without the GIL, by the rules above."""
    return cast(F, numba.njit(cache=True, nogil=True, error_model="numpy")(function))
