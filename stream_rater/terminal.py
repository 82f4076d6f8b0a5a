"""What commands share at a terminal: progress bars, and mistakes told with their place."""

import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

if TYPE_CHECKING:  # it takes longer to load than `--help` should take
    from stream_rater.standings import Invalid

T = TypeVar("T")

SHOWN_MISTAKES = 20


class Failed(Exception):
    """The work failed: one line says why."""


def progress() -> Progress:
    """A progress bar on stderr, shown where that is a terminal."""
    console = Console(stderr=True)
    return Progress(
        TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn(),
        console=console, transient=True, disable=not console.is_terminal,
    )  # fmt: skip


def track(items: Iterable[T], label: str, total: int | None = None) -> Iterator[T]:
    """The items, with a progress bar."""
    with progress() as bar:
        yield from bar.track(items, total=total, description=label)


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
