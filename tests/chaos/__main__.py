"""`make chaos`: injects every fault on real servers, and prints a table, then one JSON object a
line.

The exit code is 1 if anything was lost, doubled or wrong, differs from the replay, does not
recover, or was not injected in time.
"""

import argparse
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

import msgspec
from rich.console import Console
from rich.table import Table

from local.servers import AGAIN_S, in_destructor, signals_as_exit
from tests.benchmarks.document import writing
from tests.chaos.faults import FAULTS, ON_REQUEST
from tests.chaos.scene import Outcome

MINUTES = 45.0
WIDE = 140
"""The width of the table in columns."""


class OutOfTime(Exception):
    """The time for all faults is over."""


class Failure(msgspec.Struct, frozen=True):
    """A fault that has no line in the table, and the reason."""

    fault: str
    failure: str


def main() -> int:
    """Inject the named faults, or all except those on request."""
    given = _arguments()
    outcomes: list[Outcome] = []
    failures: list[Failure] = []
    try:
        with signals_as_exit():
            play(given.faults or unasked(), given.quick, given.minutes, outcomes, failures)
    finally:
        Console(stderr=True, width=WIDE).print(table(outcomes))
        for each in (*outcomes, *failures):
            sys.stdout.write(msgspec.json.encode(each).decode() + "\n")
        sys.stdout.flush()
        if given.write:
            writing.write_run("chaos", (*outcomes, *failures), sys.argv[1:])
    return 1 if failures or any(each.lost or each.doubled or each.wrong for each in outcomes) else 0


def unasked() -> list[str]:
    """The faults that run if none is named."""
    return [name for name in FAULTS if name not in ON_REQUEST]


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument("faults", nargs="*", metavar="FAULT", help=f"of {', '.join(FAULTS)}")
    parser.add_argument("--quick", action="store_true", help="each but once or a few times")
    parser.add_argument("--minutes", type=float, default=MINUTES, help="for all (%(default)g)")
    writing.add_option(parser)
    given = parser.parse_args()
    writing.check(parser, write=given.write, unlike={"--quick": given.quick})
    if unknown := set(given.faults) - FAULTS.keys():
        parser.error(f"no such fault: {', '.join(sorted(unknown))}")
    return given


def play(
    names: list[str], quick: bool, minutes: float, outcomes: list[Outcome], failures: list[Failure]
) -> None:
    """Inject one fault after the other, whatever the outcome of the last one, until the time is
    over."""
    said = Console(stderr=True)
    deadline_s = time.monotonic() + 60.0 * minutes
    for name in names:
        began_s = time.monotonic()
        try:
            with until(deadline_s):
                outcomes.append(played(name, quick=quick))
        except OutOfTime:
            failures.append(Failure(name, f"not played to its end within {minutes:g} minutes"))
        except Exception as error:  # servers, clients, workers, promises: the next fault goes on
            failures.append(Failure(name, f"{type(error).__name__}: {error}"))
        else:
            said.print(f"{name}: {time.monotonic() - began_s:.0f} s", markup=False)
            continue
        said.print(f"{name}: {failures[-1].failure}", style="red", markup=False)


@contextmanager
def until(deadline_s: float) -> Iterator[None]:
    """Raise OutOfTime within the block, once, at that time; or before the block if the time is
    over."""

    def out_of_time(_number: int, frame: FrameType | None) -> None:
        if not in_destructor(frame):
            raise OutOfTime
        signal.setitimer(signal.ITIMER_REAL, AGAIN_S)

    left_s = deadline_s - time.monotonic()
    if left_s <= 0.0:
        raise OutOfTime
    before = signal.signal(signal.SIGALRM, out_of_time)
    signal.setitimer(signal.ITIMER_REAL, left_s)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, before)


def played(name: str, *, quick: bool) -> Outcome:
    """Inject one fault, in a folder that is deleted afterwards."""
    with tempfile.TemporaryDirectory(prefix="chaos-", ignore_cleanup_errors=True) as folder:
        return FAULTS[name](name, Path(folder) / name, quick)


def table(outcomes: list[Outcome]) -> Table:
    """The table of outcomes."""
    names = Outcome.__struct_fields__
    found = Table(*(name.replace("_", " ") for name in names))
    for outcome in outcomes:
        found.add_row(*(_cell(getattr(outcome, name)) for name in names))
    return found


def _cell(value: object) -> str:
    return str(sum(value.values()) if isinstance(value, dict) else value)


if __name__ == "__main__":
    sys.exit(main())
