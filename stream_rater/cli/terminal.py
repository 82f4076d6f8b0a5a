"""What commands share at a terminal: progress bars, and mistakes told with their place."""

import gc
import sys
from collections.abc import Iterable, Iterator, Sized
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:  # they take longer to load than `--help` should take
    from rich.progress import Progress

    from stream_rater.rounds.validation import Invalid

T = TypeVar("T")
S = TypeVar("S", bound=Sized)

SHOWN_MISTAKES = 20


class Failed(Exception):
    """The work failed: one line says why."""


@contextmanager
def brief() -> Iterator[None]:
    """A run that ends with its process and makes no garbage in circles, nor waits for servers.

    None is looked for, neither meanwhile nor at the end, be it when that begins again or when the
    process ends: each takes a twentieth of a second and more. And threads let each other have the
    interpreter ten times as often: what one of them does with it before it runs a kernel takes less
    than they wait for it otherwise.
    """
    interval_s = sys.getswitchinterval()
    sys.setswitchinterval(interval_s / 10.0)
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()
        sys.setswitchinterval(interval_s)


def progress() -> "Progress":
    """A progress bar on stderr, shown where that is a terminal."""
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
    )

    console = Console(stderr=True)
    return Progress(
        TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn(),
        console=console, transient=True, disable=not console.is_terminal,
    )  # fmt: skip


def track(items: Iterable[T], label: str, total: int | None = None) -> Iterator[T]:
    """The items, with a progress bar; where nobody would see it, as they are."""
    if not sys.stderr.isatty():
        yield from items
        return
    with progress() as bar:
        yield from bar.track(items, total=total, description=label)


def track_batches(batches: Iterable[S], label: str, total: int | None = None) -> Iterator[S]:
    """Batches of items, with a progress bar for the items."""
    if not sys.stderr.isatty():
        yield from batches
        return
    with progress() as bar:
        task = bar.add_task(label, total=total)
        for each in batches:
            yield each
            bar.advance(task, len(each))


class Mistakes:
    """Lines of an input file that are no valid rounds, told on stderr with their place."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.count = 0

    def add(self, line: int, invalid: "Invalid") -> None:
        """Tell of a line, numbered from 0."""
        self.count += 1
        if self.count <= SHOWN_MISTAKES:
            print(f"{self.path}:{line + 1}: {invalid.code}: {invalid}", file=sys.stderr)

    def conclude(self) -> None:
        """Fail if there were any."""
        if self.count:
            raise Failed(f"{self.path}: {self.count} rounds were invalid; the others were taken")
