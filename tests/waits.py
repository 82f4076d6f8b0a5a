"""Waits for a fact end when nothing has moved for long, not after so many seconds of work, which
may take minutes on a busy machine. So whoever waits says what moves on the way: offsets, a log's
length, a process' time. A wait that fails says what for, and what moved last."""

import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final

from local.processes import cpu_steps

STILL_S: Final = 180.0  # Without movement for so long a wait fails; no step is delayed so.

LEAST_LOOKS: Final = 20  # It looks so often first: a suspended machine has not stood still.

LONGEST_S: Final = 1500.0  # A wait fails then, even if something moves for ever.

HANGS_S: Final = 1800.0  # Bounds a program of unseen progress; pytest's `timeout` is longer.

Moves = Callable[[], object]  # A value that changes as long as there is progress.


class StoodStill(AssertionError):
    """The fact did not come to hold: says which, and what moved last."""


class Watch:
    """Looks at what moves, and fails when it has stood still for long."""

    def __init__(self, what: str, moves: Moves | None = None, still_s: float = STILL_S) -> None:
        """`what` is waited for; without `moves`, nothing is known to move."""
        self._what, self._moves, self._still_s = what, moves, still_s
        self._began_s = self._moved_s = time.monotonic()
        self._looks = self._since_moved = 0
        self._last: object = None

    def look(self) -> None:
        now_s = time.monotonic()
        found = self._moves() if self._moves is not None else None
        if found != self._last:
            self._last, self._moved_s, self._since_moved = found, now_s, 0
        self._looks += 1
        self._since_moved += 1
        waited_s = now_s - self._began_s
        if now_s - self._moved_s >= self._still_s and self._since_moved >= LEAST_LOOKS:
            seen = f"; the last that moved: {self._last}" if self._moves is not None else ""
            raise StoodStill(
                f"nothing has moved for {now_s - self._moved_s:.0f} s, of {waited_s:.0f} s of "
                f"waiting until {self._what}{seen}"
            )
        if waited_s >= LONGEST_S and self._looks >= LEAST_LOOKS:
            raise StoodStill(
                f"still moving, but not within {waited_s:.0f} s: {self._what}; the last that "
                f"moved: {self._last}"
            )


def wait_until(
    holds: Callable[[], bool], what: str, *, moves: Moves | None = None, every_s: float = 0.05
) -> None:
    """Until `holds` is true, or nothing has `moves`-d for STILL_S: then fails with `what`."""
    watch = Watch(what, moves or getattr(holds, "moves", None))
    while not holds():
        watch.look()
        time.sleep(every_s)


def cpu_of(pid: int) -> Moves:
    """A process' time on a processor, as what moves: only one that works gets its steps in time."""
    return partial(cpu_steps, pid)


def size_of(*files: Path) -> Moves:
    """The sizes of files, of those that there are, as what moves."""
    return lambda: [path.stat().st_size for path in files if path.exists()]


def any_of(*several: Moves) -> Moves:
    return lambda: [each() for each in several]
