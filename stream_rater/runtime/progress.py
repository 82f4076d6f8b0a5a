"""The progress reports of commands: bars, where standard error is a terminal, and counts."""

import difflib
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Sized
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:  # loading it takes longer than `--help` should
    from rich.progress import Progress

T = TypeVar("T")
S = TypeVar("S", bound=Sized)
MIN_BYTES = 1 << 16  # The smallest step of a progress bar of bytes.
SHOWN_LINES = 20  # The most lines that a command prints of a long list, as of mistakes.


def progress(*, percent: bool = False) -> "Progress":
    """A progress bar on standard error. `percent`: it shows per cent instead of counts."""
    from rich import progress as shown
    from rich.console import Console

    console = Console(stderr=True)
    done = shown.TaskProgressColumn() if percent else shown.MofNCompleteColumn()
    label, remaining = shown.TextColumn("{task.description}"), shown.TimeRemainingColumn()
    return shown.Progress(
        label, shown.BarColumn(), done, remaining,
        console=console, transient=True, disable=not console.is_terminal,
    )  # fmt: skip


def track(items: Iterable[T], label: str, total: int | None = None) -> Iterator[T]:
    """Yield the items, with a progress bar."""
    if not sys.stderr.isatty():
        yield from items
        return
    with progress() as bar:
        yield from bar.track(items, total=total, description=label)


@contextmanager
def advancing(label: str, total: int | None = None) -> Iterator[Callable[[int], None]]:
    """A progress bar, and a function that gets the number of items that are done."""
    if not sys.stderr.isatty():
        yield lambda _: None
        return
    with progress() as bar:
        task = bar.add_task(label, total=total)
        yield lambda count: bar.advance(task, count)


def track_batches(batches: Iterable[S], label: str, total: int | None = None) -> Iterator[S]:
    """Yield batches of items, with a progress bar that counts the items."""
    with advancing(label, total) as advance:
        for batch in batches:
            yield batch
            advance(len(batch))


def track_bytes(lines: Iterable[bytes], label: str, total: int | None) -> Iterator[bytes]:
    """Yield lines, with a progress bar that counts their bytes. `total`: None if it is unknown."""
    return _with_bar(lines, label, total) if sys.stderr.isatty() else iter(lines)


def _with_bar(lines: Iterable[bytes], label: str, total: int | None) -> Iterator[bytes]:
    with progress(percent=True) as bar:
        task = bar.add_task(label, total=total)
        size, step = 0, max((total or 0) // 1000, MIN_BYTES)
        for line in lines:
            yield line
            size += len(line)
            if size >= step:
                bar.advance(task, size)
                size = 0


def counted(count: int, thing: str) -> str:
    """`1 round`, `2 rounds`."""
    return f"{count:,} {thing}{'' if count == 1 else 's'}"


def rejections(codes: Mapping[str, int]) -> str:
    """`3 rejected (2 bad-rank, 1 too-deep)`: the most frequent error code first."""
    total = f"{sum(codes.values())} rejected"
    if not codes:
        return total
    ordered = sorted(codes.items(), key=lambda item: (-item[1], item[0]))
    return f"{total} ({', '.join(f'{count} {code}' for code, count in ordered)})"


def unknown_ladder(ladder: str, rated: Sequence[str]) -> str:
    """The error text for a ladder without players, with the nearest name of the rated ladders."""
    nearest = difflib.get_close_matches(ladder, rated, n=1)
    hint = f"; the nearest name is {nearest[0]!r}" if nearest else ""
    return f"ladder {ladder!r} has no players: no round of it was rated{hint}"
