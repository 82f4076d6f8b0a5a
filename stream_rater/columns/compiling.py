"""Compiles kernels and reports it: one process compiles a kernel, the others wait and load it.

A kernel that is not in the cache takes a second or so to compile, and all of them take minutes.
Several processes that start together would each compile all of them. So a process that does not
find a kernel in the cache locks it first. Then it looks into the cache once more: if another
process had the lock, the kernel is there. The lock is on one byte of a file in the cache's folder.
The operating system releases it when the process ends, however it ends.

Processes cannot wait for each other in a circle: a process that waits for a kernel has locks only
of kernels that call it.
"""

import fcntl
import os
import zlib
from pathlib import Path
from typing import Any

LOCK_FILE = "compiling.lock"


class Watcher:
    """Receives reports of what is compiled. This base class ignores them."""

    def compiling(self, kernel: str, number: int) -> None:
        """The compilation of a kernel begins: it will be the `number`th that the cache has, whoever
        compiled the others."""

    def waiting(self, kernel: str) -> None:
        """Another process compiles this kernel, and this process begins to wait for it."""

    def compiled(self, kernel: str) -> None:
        """A kernel was compiled here and is in the cache."""


watchers: list[Watcher] = []  # All watchers that receive reports.


class SharedCache:
    """A kernel's cache (numba's), filled by one process at a time."""

    ready: set[str] = set()  # noqa: RUF012  # shared by the process
    """The names of the kernels that were loaded or compiled."""

    def __init__(self, cache: Any, kernel: str) -> None:
        self._cache = cache
        self._kernel = kernel
        self._locks = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._cache, name)

    def load_overload(self, signature: Any, target: Any) -> Any:
        """The cached code for these types of arguments, or None if this process has to compile
        it."""
        found = self._cache.load_overload(signature, target)
        if found is None:
            self._lock()
            found = self._cache.load_overload(signature, target)
            if found is not None:
                self._unlock()
        if found is None:
            self._report_compiling()
        else:
            self.ready.add(self._kernel)
        return found

    def save_overload(self, signature: Any, compiled: Any) -> None:
        """Store what was compiled in the cache, and release the lock, so that other processes load
        it."""
        try:
            self._cache.save_overload(signature, compiled)
        finally:
            self._unlock()
        self.ready.add(self._kernel)
        for each in watchers:
            each.compiled(self._kernel)

    def _report_compiling(self) -> None:
        if watchers:
            number = count(Path(self._cache.cache_path)) + 1
        for each in watchers:
            each.compiling(self._kernel, number)

    @property
    def _place(self) -> int:
        """The byte of the lock file that stands for this kernel."""
        return zlib.crc32(f"{self._cache.cache_path}/{self._kernel}".encode())

    def _lock(self) -> None:
        self._locks += 1
        file = _lock_file(Path(self._cache.cache_path).parent)
        if file is None or self._locks > 1:
            return
        try:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, self._place)
        except BlockingIOError:
            for each in watchers:
                each.waiting(self._kernel)
            fcntl.lockf(file, fcntl.LOCK_EX, 1, self._place)
        except OSError:  # a file system without locks: each process compiles for itself
            pass

    def _unlock(self) -> None:
        self._locks -= 1
        file = _lock_file(Path(self._cache.cache_path).parent)
        if file is not None and self._locks == 0:
            fcntl.lockf(file, fcntl.LOCK_UN, 1, self._place)


def count(folder: Path) -> int:
    """How many compiled kernels a folder has. So all processes count on from one number."""
    return sum(1 for _ in folder.glob("*.kernel"))


_files: dict[Path, int | None] = {}
"""The descriptor of the lock file of each folder; None where it cannot be written. The files stay
open as long as the process runs, because closing one would release all locks on it."""


def _lock_file(folder: Path) -> int | None:
    """The descriptor of the lock file of a cache's folder; None where it cannot be written."""
    if folder not in _files:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            _files[folder] = os.open(folder / LOCK_FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC)
        except OSError:
            _files[folder] = None
    return _files[folder]
