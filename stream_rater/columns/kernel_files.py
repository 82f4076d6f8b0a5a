"""Keeps compiled kernels in files that are valid wherever and whenever they were unpacked.

The name of a file says what it was compiled from: the kernel's bytecode and its source file, the
types of its arguments, and the instructions that it may use. The name of its folder says the rest:
the sources that kernels of other files call, and the versions of Python, numba and llvmlite. So a
file that does not fit is not found. Nothing in it depends on a place or a time.

Kernels are looked for in several folders, in this order:

1. `SHIPPED`, a folder in the package that a wheel or an image brings.
2. $NUMBA_CACHE_DIR; if it is not set, a folder beside the sources.
3. The user's folder for caches.

A kernel that is in none of them is compiled, and written to the first of 2. and 3. that can be
written, or else to a temporary folder, which is removed at the end of the process.
"""

import hashlib
import os
import pickle
import secrets
import sys
import tempfile
from collections.abc import Callable
from contextlib import suppress
from functools import cache, partial
from pathlib import Path
from typing import Any

import llvmlite
from llvmlite import binding as llvm

from stream_rater.columns import linking
from stream_rater.columns.linking import numba

_PACKAGE = Path(__file__).parents[1]

SHIPPED = _PACKAGE / "compiled"

CHECKSUM_BYTES = 16

_config: Any = numba.config
_compiler: Any = numba.core.compiler
_dumps: Any = numba.core.serialize.dumps
_runtime: Any = numba.core.runtime.rtsys
_log: Any = numba.core.caching._cache_log
"""Prints a line if $NUMBA_DEBUG_CACHE is set, as numba does for its own cache."""


class KernelFiles:
    """The files of one kernel: one for each list of types that it was compiled for. Numba uses it
    as it uses its own `Cache`."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function
        self._name = f"{function.__module__.partition('.')[2]}.{function.__qualname__}"

    @property
    def cache_path(self) -> str:
        """The folder that compiled forms are written to."""
        return str(written() / level())

    def load_overload(self, signature: Any, target: Any) -> Any:
        """The compiled form for these types of arguments, or None if no folder has it."""
        _runtime.initialize(target)  # machine code refers to it
        key = self._key(signature, target.codegen())
        for folder in folders():
            path = folder / level() / self._file_name(key)
            content = _read(path, key)
            if content is not None and (compiled := _rebuilt(target, content)) is not None:
                _log("[cache] data loaded from %r", str(path))
                return compiled
        return None

    def save_overload(self, signature: Any, compiled: Any) -> None:
        """Write a compiled form. If it cannot be written, for example because the disk is full,
        this process can still use it."""
        linking.mark(compiled, self._function.__module__, self._function.__name__)
        if compiled.lifted or compiled.library.has_dynamic_globals:
            return  # it has addresses of this process in it
        key = self._key(signature, compiled.codegen)
        path = Path(self.cache_path, self._file_name(key))
        if _write(path, key, _reduced(compiled)):
            _log("[cache] data saved to %r", str(path))

    def _file_name(self, key: bytes) -> str:
        return f"{self._name.replace('<locals>.', '')}-{key.hex()}.kernel"

    def _key(self, signature: Any, codegen: Any) -> bytes:
        """A digest of all that the compiled form depends on, except for what `STATE` names."""
        code, cells = self._function.__code__, self._function.__closure__ or ()
        parts = (
            self._name,
            code.co_firstlineno,
            code.co_code,
            [_dumps(each.cell_contents) for each in cells],
            _source_digest(code.co_filename),
            str(signature),
            codegen.magic_tuple(),
        )
        return hashlib.blake2b(repr(parts).encode(), digest_size=CHECKSUM_BYTES).digest()


def _reduced(compiled: Any) -> bytes:
    """A compiled form as bytes. Numba's `_reduce` gives the machine code and the LLVM code. The
    latter is needed only where a kernel that calls this one is compiled, but to read it would take
    a third of the time of loading a form. So it is stored beside the rest. The annotation, a text
    for people, is left out, because it says where the source was."""
    (name, kind, (machine_code, llvm_code)), *rest = compiled._replace(type_annotation="")._reduce()
    module = compiled.library._get_module_for_linking()
    symbols = {
        each.name
        for some in (module.functions, module.global_variables)
        for each in some
        if not each.is_declaration
    }
    reduced = ((name, kind, (machine_code, _no_llvm_code())), *rest)
    library = compiled.library
    return bytes(_dumps((library.entry, [*library.callees], symbols, llvm_code, reduced)))


def _rebuilt(target: Any, content: bytes) -> Any:
    """The compiled form that `_reduced` gave these bytes of. Its LLVM code is read when a kernel
    that has a copy of it is compiled. None if the kernels that it calls are not those that it was
    compiled with."""
    entry, called, symbols, llvm_code, reduced = pickle.loads(content)
    callees = linking.load_callees(called)
    if callees is None:
        return None
    target.codegen()._engine._defined_symbols |= symbols
    compiled = _compiler.CompileResult._rebuild(target, *reduced)
    compiled.library._get_module_for_linking = cache(partial(llvm.parse_bitcode, llvm_code))
    compiled.library.entry, compiled.library.callees = entry, callees
    return compiled


@cache
def _no_llvm_code() -> bytes:
    return bytes(llvm.parse_assembly("").as_bitcode())


@cache
def _source_digest(file: str) -> str:
    return hashlib.sha256(Path(file).read_bytes()).hexdigest()


def _read(path: Path, key: bytes) -> bytes | None:
    """What was written under this key; None if the file is absent, damaged, or of another key."""
    try:
        content = path.read_bytes()
    except OSError:
        return None
    checksum, pickled = content[:CHECKSUM_BYTES], content[CHECKSUM_BYTES:]
    return pickled if checksum == _checksum(key, pickled) else None


def _write(path: Path, key: bytes, pickled: bytes) -> bool:
    """Write a file wholly or not at all. Returns whether it was written."""
    unfinished = path.with_name(f".{secrets.token_hex(8)}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            unfinished.write_bytes(_checksum(key, pickled) + pickled)
            unfinished.replace(path)
        finally:
            unfinished.unlink(missing_ok=True)
    except OSError:
        return False
    return True


def _checksum(key: bytes, pickled: bytes) -> bytes:
    return hashlib.blake2b(pickled, key=key, digest_size=CHECKSUM_BYTES).digest()


def _state() -> str:
    digest = hashlib.sha256()
    for package in ("columns", "rating"):  # other packages' kernels call only these
        for source in sorted((_PACKAGE / package).rglob("*.py")):
            digest.update(source.read_bytes())
    versions = (sys.implementation.cache_tag, numba.__version__, llvmlite.__version__)
    digest.update(repr(versions).encode())
    return f"kernels-{digest.hexdigest()[:12]}"


STATE = _state()
"""The name of the folders for kernels that were compiled from these sources, by these versions."""


def level() -> str:
    """The name of the folder for the chosen instruction level."""
    return str(_config.CPU_NAME)


def is_shipped(level: str) -> bool:
    """Whether a wheel or an image brought kernels of an instruction level."""
    return (SHIPPED / STATE / level).is_dir()


@cache
def folders() -> tuple[Path, ...]:
    """The folders in which kernels are looked for."""
    places = [SHIPPED, Path(_config.CACHE_DIR or _PACKAGE / "columns" / "__pycache__")]
    with suppress(RuntimeError):  # a user without a home
        users = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser()
        places.append(users / "stream-rater")
    return tuple(place / STATE for place in places)


_temporary: list[tempfile.TemporaryDirectory[str]] = []
"""The temporary folder, if one is needed. It is removed at the end of the process."""


@cache
def written() -> Path:
    """The folder that compiled kernels are written to."""
    for folder in folders()[1:]:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            tempfile.TemporaryFile(dir=folder).close()
        except OSError:
            continue
        return folder
    _temporary.append(tempfile.TemporaryDirectory(prefix="stream-rater-kernels-"))
    return Path(_temporary[0].name)
