"""Shows the progress of compiling kernels. Without it, a first command would be silent for minutes.

On a terminal, one line is overwritten; on other outputs, a line is written now and then. Both are
silent while nothing takes long, and nothing does once the kernels are in the cache.
"""

import sys
import time
from collections.abc import Callable
from typing import TextIO

from stream_rater.columns.compiling import Watcher, watchers

SILENT_S, SILENT_ELSEWHERE_S = 0.5, 2.0
"""Nothing is shown for this time at first, in seconds: on a terminal, and elsewhere."""
EVERY_S, EVERY_ELSEWHERE_S = 0.1, 10.0
"""The least time between two reports, in seconds: on a terminal, and elsewhere."""

ERASE = "\r\x1b[2K"

Clock = Callable[[], float]


def on_stderr(stream: TextIO | None = None, clock: Clock = time.monotonic) -> None:
    """Show progress on standard error from now on. A second call changes nothing. If progress was
    shown as in a notebook, that ends."""
    watchers[:] = [each for each in watchers if not isinstance(each, NotebookProgress)]
    if not any(isinstance(each, CompileProgress) for each in watchers):
        watchers.append(CompileProgress(stream or sys.__stderr__, clock))


def in_notebook() -> None:
    """Show progress from now on, on whatever standard error is at the time of a report. If progress
    is already shown on a stream, nothing changes."""
    if not any(isinstance(each, CompileProgress) for each in watchers):
        watchers.append(NotebookProgress())


def in_log(info: Callable[..., object]) -> None:
    """Report progress in a log from now on."""
    watchers.append(CompileLog(info))


class CompileProgress(Watcher):
    """Shows progress on a stream."""

    def __init__(self, stream: TextIO | None, clock: Clock) -> None:
        self._stream = stream
        self._clock = clock
        self._terminal = stream is not None and stream.isatty()
        self._began_s: float | None = None
        self._due_s = 0.0
        self._shown = False

    def compiling(self, kernel: str, number: int) -> None:
        self._report(f"compiling kernel {number}, once for each release: {kernel}")

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
    """Shows progress on whatever `sys.stderr` is at the time of a report: a notebook shows it below
    the cell."""

    def __init__(self, clock: Clock = time.monotonic) -> None:
        super().__init__(None, clock)

    def _report(self, text: str) -> None:
        self._stream = sys.stderr
        super()._report(text)


class CompileLog(Watcher):
    """Reports progress in a log, for the service: a line when compiling begins, and further lines
    now and then."""

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
