"""Waits for a fact. A wait ends when nothing has moved for long, not after so many seconds of work.

On a machine with other work, a second of work may take a minute. So whoever waits says what moves
on the way to the fact: committed offsets, the length of a log file, a process' time on a processor.
As long as it moves, the wait goes on. A wait that fails says what it waited for, and what moved
last.
"""

import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final

from local.processes import cpu_steps

STILL_S: Final = 180.0
"""A wait fails after this time without a movement. It is far longer than the machine's other work
delays any single step."""

LEAST_LOOKS: Final = 20
"""A wait looks at least this often without a movement before it fails: a machine that was suspended
for an hour has not stood still for one."""

LONGEST_S: Final = 1500.0
"""A wait fails after this time, even if something moves: a process may repeat the same for ever."""

HANGS_S: Final = 1800.0
"""The longest time that a test lets a program run whose progress it cannot see. It only bounds a
hang. pytest's own `timeout`, for a whole test, is longer than this."""

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
    """Wait until `holds` returns true. Fails with `what` when nothing has moved for STILL_S.

    `moves`: what moves on the way. Without it, that of `holds`, if it has such a method.
    """
    watch = Watch(what, moves or getattr(holds, "moves", None))
    while not holds():
        watch.look()
        time.sleep(every_s)


def cpu_of(pid: int) -> Moves:
    """The time that a process has had on a processor, as what moves: in steps that a process which
    works gets long before STILL_S, even with a tenth of a processor, and one that polls does not.
    """
    return partial(cpu_steps, pid)


def size_of(*files: Path) -> Moves:
    """The sizes of files, of those that there are, as what moves."""
    return lambda: [path.stat().st_size for path in files if path.exists()]


def any_of(*several: Moves) -> Moves:
    return lambda: [each() for each in several]
