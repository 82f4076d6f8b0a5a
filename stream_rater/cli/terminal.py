"""What commands share at a terminal: progress bars, and mistakes told with their place."""

import difflib
import gc
import os
import sys
import zlib
from collections.abc import Iterator, Mapping, Sequence, Sized
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from stream_rater.config.errors import BadConfiguration, Failed
from stream_rater.contract.events import shown
from stream_rater.runtime.progress import counted, track_bytes

if TYPE_CHECKING:  # they take longer to load than `--help` should take
    from rich.console import Console

    from stream_rater.contract.record import Record
    from stream_rater.replay.edited_log import LogBatch
    from stream_rater.rounds.batch import RoundBatch
    from stream_rater.rounds.validation import Invalid

T = TypeVar("T")
S = TypeVar("S", bound=Sized)

SHOWN_MISTAKES = 20


MOST_LATE = 0.1
"""Part of a file's rounds that may be earlier than the round before them without a word."""


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


def tables() -> "Console":
    """Standard output for tables: as wide as the terminal, or as they need.

    Raises BrokenPipeError where nobody reads it any more, where rich ends the process by itself.
    """
    from rich.console import Console

    class Output(Console):
        def on_broken_pipe(self) -> None:
            raise BrokenPipeError

    return Output(file=sys.stdout, width=None if sys.stdout.isatty() else 160)


@contextmanager
def file_failures() -> Iterator[None]:
    """A file that cannot be read or written fails in one line."""
    try:
        yield
    except BrokenPipeError:
        raise  # whoever read our output has enough
    except (OSError, EOFError, zlib.error) as error:
        raise Failed(str(error)) from None


def records_in(path: Path) -> "Iterator[Record]":
    """The lines of a file of rounds as records, with a progress bar by its bytes.

    Raises OSError where it cannot be read, or holds no JSON lines.
    """
    from stream_rater.replay.edited_log import records_of
    from stream_rater.replay.files import json_lines, name_of, read_lines, text_size

    lines = json_lines(read_lines(path), name_of(path))
    return records_of(track_bytes(lines, path.name, text_size(path)))


def check_writable(out: Path) -> None:
    """BadConfiguration where a file could not be written; asked before the work is done."""
    folder = out.parent
    if not folder.is_dir():
        raise BadConfiguration(f"{out}: no folder {folder}")
    if not os.access(out if out.exists() else folder, os.W_OK):
        raise BadConfiguration(f"{out}: not to be written")


def rejections(codes: Mapping[str, int]) -> str:
    """How many records were rejected, and why: by error code, the most frequent first."""
    told = f"{sum(codes.values())} rejected"
    if not codes:
        return told
    ordered = sorted(codes.items(), key=lambda item: (-item[1], item[0]))
    return f"{told} ({', '.join(f'{count} {code}' for code, count in ordered)})"


def unknown_ladder(ladder: str, rated: Sequence[str]) -> str:
    """Why nothing is known of a ladder that is not among those that were rated."""
    nearest = difflib.get_close_matches(ladder, rated, n=1)
    hint = f"; the nearest name is {nearest[0]!r}" if nearest else ""
    return f"ladder {ladder!r} has no players: no round of it was rated{hint}"


class Order:
    """Whether rounds come in the order of time: ratings depend on the order of the file."""

    def __init__(self) -> None:
        self._latest: dict[str, int] = {}
        self._count = 0
        self._late = 0
        self._first_late = ""

    def add(self, rounds: "RoundBatch") -> None:
        """The next rounds."""
        self._count += len(rounds)
        for head, time in zip(rounds.heads, rounds.time.tolist(), strict=True):
            if time < self._latest.get(head.ladder, time):
                self._late += 1
                self._first_late = self._first_late or head.round_id
            self._latest[head.ladder] = time

    def conclude(self, path: Path) -> None:
        """Warn on standard error if many rounds are earlier than the one before."""
        if self._late > MOST_LATE * self._count:
            print(
                f"{path}: warning: {self._late:,} of {counted(self._count, 'round')} were "
                "completed before the round before them in the file, the first of them is "
                f"{shown(self._first_late)!r}: the file is rated from top to bottom, and should "
                "be in order of time",
                file=sys.stderr,
            )


class Mistakes:
    """Lines of an input file that are no valid rounds, told on stderr with their place."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.count = 0
        self.taken = 0
        self._told = 0
        """How many were told before the file was begun again."""

    def begin_again(self) -> None:
        """The file is read again from its start: what was told is not told twice."""
        self._told = max(self._told, self.count)
        self.count = self.taken = 0

    def valid(self, round_: T) -> T:
        """Count a round that is valid."""
        self.taken += 1
        return round_

    def note(self, batch: "LogBatch") -> None:
        """Count the accepted lines of a batch, and report the others."""
        self.taken += len(batch.rounds) + len(batch.corrections)
        for line, invalid in batch.rejected:
            self.add(line.offset, invalid)

    def add(self, line: int, invalid: "Invalid") -> None:
        """Tell of a line, numbered from 0."""
        from stream_rater.replay.files import name_of

        self.count += 1
        if self._told < self.count <= SHOWN_MISTAKES:
            print(f"{name_of(self.path)}:{line + 1}: {invalid.code}: {invalid}", file=sys.stderr)

    def conclude(self) -> None:
        """Fail if there were any; say so if there was nothing at all."""
        from stream_rater.replay.files import name_of

        if self.count:
            were = f"{counted(self.count, 'round')} {'was' if self.count == 1 else 'were'} invalid"
            others = f"the {self.taken:,} others were" if self.taken > 1 else "the other one was"
            more = f"; {others} taken" if self.taken else ", and there was no other"
            raise Failed(f"{name_of(self.path)}: {were}{more}")
        if not self.taken:
            print(f"{name_of(self.path)}: no rounds in it", file=sys.stderr)
