"""How the kernels are compiled: the same bits on every machine, and only once.

Bit-for-bit equality of ratings needs arithmetic that does not depend on the processor:

- no fastmath, so no reassociated sums, and no fused multiply-add but where a kernel writes it
  (`fused`): LLVM forms none by itself;
- a named instruction level instead of "whatever this host has": $NUMBA_CPU_NAME, for an image that
  is to start warm anywhere, or the widest of this machine, which only holds more lanes;
- no libm: `elementary` brings its own exp, log and tanh.

Compiled code is cached next to the sources, so a process starts warm. Numba notices a change of a
kernel's own file only, not of those it calls; so each state of the sources has a cache of its own.
Numba gives up a cache that it cannot write to, though a container's read-only image has all that is
needed; so such a cache is copied to where it can be written to.
"""

import hashlib
import platform
import shutil
import sys
import tempfile
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any, TypeVar, cast

from llvmlite import binding as llvm

from stream_rater.columns.compiling import SharedCache

KERNEL_VERSION = 12
"""Raised by any change that can alter a bit of a rating. Parts carry it; workers leave alone those
of newer kernels, and of older ones than `pipeline.parts.schema.OLDEST_KERNEL`."""

F = TypeVar("F", bound=Callable[..., Any])


UNUSED = ("scipy.linalg", "cffi", "yaml")
"""What numba takes up where it is installed, and no kernel uses: BLAS, which brings all of SciPy,
C libraries, and a file of settings. They take as long to import as numba itself."""


def _numba_without(unused: tuple[str, ...]) -> Any:
    """Import those parts of numba that look for these modules, and let them find none."""
    modules: dict[str, Any] = sys.modules
    hidden = [name for name in unused if name not in modules]
    modules.update(dict.fromkeys(hidden))  # None: cannot be imported
    try:
        import_module("numba.np.arraymath")
        import_module("numba.core.typing.cffi_utils")
    finally:
        for name in hidden:
            del modules[name]
    return modules["numba"]


numba = _numba_without(UNUSED)

_config: Any = numba.config

LEVELS = (
    ("x86-64-v4", ("avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl")),
    ("x86-64-v3", ("avx2", "fma")),
    ("x86-64", ()),
)
"""Instruction levels of this architecture, the widest first, each with the features it needs."""

WIDEST = LEVELS[0][0]
WHOLE_WIDTH = "-prefer-256-bit"
"""The option by which LLVM uses whole registers at the widest level, not halves of them."""


def _instruction_level() -> str | None:
    """The level asked for, or the widest of this machine: it holds more lanes, not other bits."""
    if platform.machine() != "x86_64":
        return None
    if _config.CPU_NAME:  # numba's $NUMBA_CPU_NAME
        return str(_config.CPU_NAME)
    try:
        flags = set(Path("/proc/cpuinfo").read_text().split())
    except OSError:
        flags = set()
    return next(level for level, needed in LEVELS if flags.issuperset(needed))


def _cache_folder(under: str) -> Path:
    """Where the kernels compiled from these very sources are kept: below numba's $NUMBA_CACHE_DIR,
    too, since numba looks at a kernel's own file only."""
    here, digest = Path(__file__).parent, hashlib.sha256()
    for package in (here, here.parent / "rating"):  # others call only their kernels
        for source in sorted(package.rglob("*.py")):
            digest.update(source.read_bytes())
    return Path(under or here / "__pycache__") / f"kernels-{digest.hexdigest()[:12]}"


def writable(folder: Path, copies: list[tempfile.TemporaryDirectory[str]]) -> Path:
    """The folder, or where it is read-only a copy, which is gone when `copies` are.

    A folder that is neither writable nor there is left for numba to complain of.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=folder).close()
    except OSError:
        if folder.is_dir():
            copies.append(tempfile.TemporaryDirectory(prefix="stream-rater-kernels-"))
            return _copied(folder, Path(copies[-1].name))
    return folder


def _copied(folder: Path, to: Path) -> Path:
    """The files alone: read-only modes would be copied, too."""
    for file in folder.glob("*/*"):
        target = to / file.relative_to(folder)
        target.parent.mkdir(exist_ok=True)
        shutil.copyfile(file, target)
    return to


_COPIES: list[tempfile.TemporaryDirectory[str]] = []
"""Removed at the end of the process."""

_config.CACHE_DIR = str(writable(_cache_folder(_config.CACHE_DIR), _COPIES))
_config.CPU_NAME = _instruction_level()
_config.CPU_FEATURES = WHOLE_WIDTH if _config.CPU_NAME == WIDEST else ""


MOST_CHECKS = 100
"""A loop over several rows of one array becomes vector instructions only if the compiler may first
check that they lie apart: it allows itself 8 comparisons, and a table of stage 1 needs more."""

llvm.set_option("", f"-runtime-memory-check-threshold={MOST_CHECKS}")

OPTIONS: dict[str, Any] = {"nogil": True, "error_model": "numpy"}


def kernel(function: F) -> F:
    """Compile `function` on its first call, without the GIL, by the rules above."""
    compiled = numba.njit(**OPTIONS, cache=True)(function)
    compiled._cache = SharedCache(compiled._cache, f"{function.__module__}.{function.__name__}")
    return cast(F, compiled)


def inlined(function: F) -> F:
    """A piece of a kernel, made part of each that calls it; it neither makes nor gives arrays.

    Only there does the compiler see which arrays lie apart, and can do without asking each time. It
    is kept with those kernels alone: to look for a file of its own takes as long as to import it.

    It counts no references: numba counts those of each slice by two locked instructions, which were
    a third of the time of rounds of two players. Whoever calls it holds what it works on. So numba
    refuses to compile one that makes an array or gives another than it was given.
    """
    return cast(F, numba.njit(**OPTIONS, forceinline=True, _nrt=False)(function))


def giving(function: F) -> F:
    """Such a piece that makes or gives arrays, and counts references; no `inlined` one calls it."""
    return cast(F, numba.njit(**OPTIONS, forceinline=True)(function))
