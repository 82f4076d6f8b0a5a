"""Waits for a fact, which give up when nothing has moved for long, not after some seconds of work.

On a busy machine, a second of work may take a minute. So the caller says what moves on the way to
the fact: committed offsets, the length of a log, a process' time on a processor. The error of a
wait that fails says what it waited for, and what moved last."""

import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final

from local.processes import cpu_steps

STILL_S: Final = 180.0  # A wait fails after this long without movement.

LEAST_LOOKS: Final = 20  # The fewest looks before it fails: a machine may have been suspended.

LONGEST_S: Final = 1500.0  # A wait fails after this time, even if something still moves.

HANGS_S: Final = 1800.0  # For programs whose progress is unseen; pytest's `timeout` is longer.

Moves = Callable[[], object]  # A value that changes as long as there is progress.


class StoodStill(AssertionError):
    """A wait has failed. The message names the fact that was waited for, and what moved last."""


class Watch:
    """Looks at what moves, and fails when it has stood still for long."""

    def __init__(self, what: str, moves: Moves | None = None, still_s: float = STILL_S) -> None:
        """`what` names the fact in the error. Without `moves`, nothing counts as movement."""
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
    """Wait until `holds()` is true, or raise StoodStill, which names `what`. `moves`: what moves on
    the way; by default the attribute `moves` of `holds`, if it has one."""
    watch = Watch(what, moves or getattr(holds, "moves", None))
    while not holds():
        watch.look()
        time.sleep(every_s)


def cpu_of(pid: int) -> Moves:
    """A process' CPU time, as what moves, in steps that mere polling does not reach in time."""
    return partial(cpu_steps, pid)


def size_of(*files: Path) -> Moves:
    """The sizes of those of the files that exist, as what moves."""
    return lambda: [path.stat().st_size for path in files if path.exists()]


def any_of(*several: Moves) -> Moves:
    return lambda: [each() for each in several]
