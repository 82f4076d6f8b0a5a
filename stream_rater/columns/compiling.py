"""Compiles kernels and shows it: one process compiles a kernel, the others wait and load it.

A kernel that is not in the cache takes a second or so to compile, and all of them take minutes. So
of several processes that start together, one that does not find a kernel in the cache locks it
first. Then it looks into the cache once more: if another process had the lock, the kernel is there.
The lock is on one byte of a file in the cache's folder. The operating system releases it when the
process ends. Processes cannot wait for each other in a circle: a process that waits for a kernel
has locks only of kernels that call it.

A first command would be silent for minutes if no progress were shown. On a terminal, one line is
overwritten; on other outputs, a line is written now and then, and none while nothing takes long.
"""

import fcntl
import os
import sys
import time
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, TextIO

LOCK_FILE = "compiling.lock"


class Watcher:
    """Receives reports of what is compiled. This base class ignores them."""

    def compiling(self, kernel: str, number: int) -> None:
        """A kernel's compilation begins: it will be the `number`th that the cache has."""

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
        """The cached code for these types of arguments; None if this process has to compile it."""
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
        """Store the compiled code, and release the lock, so that other processes load the code."""
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


# --- progress ---

SILENT_S, SILENT_ELSEWHERE_S = 0.5, 2.0
"""Nothing is shown for this time at first, in seconds: on a terminal, and elsewhere."""
EVERY_S, EVERY_ELSEWHERE_S = 0.1, 10.0
"""The least time between two reports, in seconds: on a terminal, and elsewhere."""

ERASE = "\r\x1b[2K"

Clock = Callable[[], float]


def on_stderr(stream: TextIO | None = None, clock: Clock = time.monotonic, total: int = 0) -> None:
    """Show progress on standard error from now on. If it was shown as in a notebook, that ends.
    `total`: the number of kernels that there will be; 0: unknown."""
    watchers[:] = [each for each in watchers if not isinstance(each, NotebookProgress)]
    if not any(isinstance(each, CompileProgress) for each in watchers):
        watchers.append(CompileProgress(stream or sys.__stderr__, clock, total))


def in_notebook() -> None:
    """Show progress on whatever standard error is at the time of each report. If a stream was
    chosen already, nothing changes."""
    if not any(isinstance(each, CompileProgress) for each in watchers):
        watchers.append(NotebookProgress())


def in_log(info: Callable[..., object]) -> None:
    """Report progress in a log from now on."""
    watchers.append(CompileLog(info))


class CompileProgress(Watcher):
    """Shows progress on a stream."""

    def __init__(self, stream: TextIO | None, clock: Clock, total: int = 0) -> None:
        self._stream = stream
        self._total = total
        self._clock = clock
        self._terminal = stream is not None and stream.isatty()
        self._began_s: float | None = None
        self._due_s = 0.0
        self._shown = False

    def compiling(self, kernel: str, number: int) -> None:
        of = f" of {self._total}" if number <= self._total else ""
        self._report(f"compiling kernel {number}{of}, once for each release: {kernel}")

    def waiting(self, kernel: str) -> None:
        self._report(f"another process compiles kernels, waiting for it: {kernel}")

    def compiled(self, kernel: str) -> None:
        if self._shown and self._terminal and self._stream is not None:
            self._stream.write(ERASE)
            self._stream.flush()
            self._shown = False

    def _report(self, text: str) -> None:
        now_s = self._clock()
        if self._began_s is None:
            self._began_s = now_s
            self._due_s = now_s + (SILENT_S if self._terminal else SILENT_ELSEWHERE_S)
        if self._stream is None or now_s < self._due_s:
            return
        self._due_s = now_s + (EVERY_S if self._terminal else EVERY_ELSEWHERE_S)
        line = f"{text} ({now_s - self._began_s:.0f} s so far)"
        self._stream.write(f"{ERASE}{line}" if self._terminal else f"{line}\n")
        self._stream.flush()
        self._shown = True


class NotebookProgress(CompileProgress):
    """Shows progress on what `sys.stderr` is at each report: a notebook shows it below the cell."""

    def __init__(self, clock: Clock = time.monotonic) -> None:
        super().__init__(None, clock)

    def _report(self, text: str) -> None:
        self._stream = sys.stderr
        super()._report(text)


class CompileLog(Watcher):
    """Reports progress in a log, for the service: when compiling begins, and from time to time."""

    def __init__(self, info: Callable[..., object], clock: Clock = time.monotonic) -> None:
        self._info = info
        self._clock = clock
        self._due_s = 0.0

    def compiling(self, kernel: str, number: int) -> None:
        self._report("compiling kernels", number=number)

    def waiting(self, kernel: str) -> None:
        self._report("another process compiles kernels: waiting for it")

    def _report(self, event: str, **fields: int) -> None:
        if (now_s := self._clock()) >= self._due_s:
            self._due_s = now_s + EVERY_ELSEWHERE_S
            self._info(event, **fields)
