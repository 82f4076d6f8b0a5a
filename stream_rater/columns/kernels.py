"""Compiles the kernels so that they compute the same bits on every machine, and compiles them only
once.

Bit-for-bit equality of ratings needs arithmetic that does not depend on the processor:

- There is no fastmath, so sums are not reassociated. There is no fused multiply-add except where a
  kernel calls one (`intrinsics.fma`): LLVM forms none by itself.
- The instruction level has a name instead of being "whatever this host has". It is $NUMBA_CPU_NAME,
  for an image that must start warm anywhere, or the widest level of this machine, which only has
  more lanes.
- There is no libm: `elementary` has its own exp, log and tanh.

Compiled code is cached next to the sources, so a process starts warm. Numba notices a change of a
kernel's own file, but not of the files of the kernels that it calls. So each state of the sources
has a cache of its own. Numba gives up a cache that it cannot write to, although a container's
read-only image contains all that is needed. So such a cache is copied to a writable folder.
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
"""The version of the kernels. It is raised by any change that can alter a bit of a rating. Parts
carry it. Workers leave alone parts of newer kernels, and parts of kernels older than
`pipeline.parts.schema.OLDEST_KERNEL`."""

F = TypeVar("F", bound=Callable[..., Any])


UNUSED = ("scipy.linalg", "cffi", "yaml")
"""Modules that numba uses where they are installed, but that no kernel uses: BLAS, which brings all
of SciPy; C libraries; and a file of settings. They take as long to import as numba itself."""


def _numba_without(unused: tuple[str, ...]) -> Any:
    """Import those parts of numba that look for these modules, with the modules hidden. Returns
    numba."""
    modules: dict[str, Any] = sys.modules
    hidden = [name for name in unused if name not in modules]
    modules.update(dict.fromkeys(hidden))  # None: the module cannot be imported
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
"""The option that makes LLVM use whole registers at the widest level, not halves of them."""


def _instruction_level() -> str | None:
    """The level that $NUMBA_CPU_NAME names, or the widest of this machine; None on other
    architectures. A wider level has more lanes, but gives the same bits."""
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
    """The folder for the kernels compiled from exactly these sources. Its name depends on the
    sources even below numba's $NUMBA_CACHE_DIR, because numba checks only a kernel's own file."""
    here, digest = Path(__file__).parent, hashlib.sha256()
    for package in (here, here.parent / "rating"):  # other packages' kernels call only these
        for source in sorted(package.rglob("*.py")):
            digest.update(source.read_bytes())
    return Path(under or here / "__pycache__") / f"kernels-{digest.hexdigest()[:12]}"


def writable(folder: Path, copies: list[tempfile.TemporaryDirectory[str]]) -> Path:
    """The folder itself, or a copy of it if it is read-only. The copy exists as long as `copies`
    do.

    A folder that is neither writable nor there is returned, and numba reports the error.
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
    """Copy the files of a cache into `to`, and return `to`. Modes are not copied, because the
    copies must be writable."""
    for file in folder.glob("*/*"):
        target = to / file.relative_to(folder)
        target.parent.mkdir(exist_ok=True)
        shutil.copyfile(file, target)
    return to


_COPIES: list[tempfile.TemporaryDirectory[str]] = []
"""The copies of cache folders. They are removed at the end of the process."""

_config.CACHE_DIR = str(writable(_cache_folder(_config.CACHE_DIR), _COPIES))
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
    compiled = numba.njit(**OPTIONS, cache=True)(function)
    compiled._cache = SharedCache(compiled._cache, f"{function.__module__}.{function.__name__}")
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
    return cast(F, numba.njit(**OPTIONS, forceinline=True, _nrt=False)(function))


def giving(function: F) -> F:
    """Compile a function as `inlined` does, but one that makes or returns arrays and so counts
    references. No `inlined` function may call it."""
    return cast(F, numba.njit(**OPTIONS, forceinline=True)(function))
