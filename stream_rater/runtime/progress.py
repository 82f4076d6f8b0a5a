"""Progress bars on standard error, shown where that is a terminal."""

import sys
from collections.abc import Iterable, Iterator, Sized
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:  # it takes longer to load than `--help` should take
    from rich.progress import Progress

T = TypeVar("T")
S = TypeVar("S", bound=Sized)


BYTES_AT_LEAST = 1 << 16
"""A progress bar of bytes moves by so many."""


def progress(*, percent: bool = False) -> "Progress":
    """A progress bar on stderr, shown where that is a terminal: counts, or per cent of bytes."""
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TaskProgressColumn,
        TextColumn,
        TimeRemainingColumn,
    )

    console = Console(stderr=True)
    done = TaskProgressColumn() if percent else MofNCompleteColumn()
    return Progress(
        TextColumn("{task.description}"), BarColumn(), done, TimeRemainingColumn(),
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


def track_bytes(lines: Iterable[bytes], label: str, total: int | None) -> Iterator[bytes]:
    """Lines, with a progress bar of their bytes; where nobody would see it, as they are."""
    if not sys.stderr.isatty():
        yield from lines
        return
    with progress(percent=True) as bar:
        task = bar.add_task(label, total=total)
        held, every = 0, max((total or 0) // 1000, BYTES_AT_LEAST)
        for line in lines:
            yield line
            held += len(line)
            if held >= every:
                bar.advance(task, held)
                held = 0


def counted(count: int, thing: str) -> str:
    """`1 round`, `2 rounds`."""
    return f"{count:,} {thing}{'' if count == 1 else 's'}"
