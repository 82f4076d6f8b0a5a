"""`make chaos`: injects every fault on real servers; a table, and a JSON object a line. Exit code
1: something was lost, doubled or wrong, differs, does not recover, or was not injected in time."""

import argparse
import signal
import sys
import tempfile
import threading
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
from tests.benchmarks.document.rows import commit, dated
from tests.chaos.faults import FAULTS, ON_REQUEST
from tests.chaos.ledger import BadLedger, Ledger, Played, sums
from tests.chaos.scene import Outcome
from tests.chaos.season import reseed

MINUTES = 45.0
LEDGER = Path(".chaos")
WIDE = 140  # the width of the table in columns


class OutOfTime(Exception):
    """The time for all faults is over."""


class Failure(msgspec.Struct, frozen=True):
    """A fault that has no line in the table, and the reason."""

    fault: str
    failure: str
    out_of_time: bool = False  # whether only the time was over


def main() -> int:
    """Inject the named faults, or all except those on request."""
    given = _arguments()
    if given.until:
        return go_on(given)
    outcomes: list[Outcome] = []
    failures: list[Failure] = []
    try:
        with signals_as_exit():
            play(given.faults, given.quick, given.minutes, outcomes, failures)
    finally:
        Console(stderr=True, width=WIDE).print(table(outcomes))
        for each in (*outcomes, *failures):
            sys.stdout.write(msgspec.json.encode(each).decode() + "\n")
        sys.stdout.flush()
        if given.write:
            writing.write_run("chaos", (*outcomes, *failures), sys.argv[1:])
    return 1 if failures or any(each.lost or each.doubled or each.wrong for each in outcomes) else 0


def go_on(given: argparse.Namespace) -> int:
    """Repeat the faults, with other seeds, until the ledger has enough; print its sums."""
    try:
        ledger = Ledger(given.ledger)
        with signals_as_exit():
            accumulate(ledger, given.faults, given.until, given.minutes, given.quick)
    except BadLedger as error:
        sys.stderr.write(f"{error}\n")
        return 2
    found = sums(ledger.rows)
    for each in found:
        sys.stdout.write(msgspec.json.encode(each).decode() + "\n")
    if given.write:
        writing.write_run("chaos", found, sys.argv[1:])
    return 0 if ledger.injected >= given.until and all(r.is_clean for r in ledger.rows) else 1


def accumulate(
    ledger: Ledger, faults: list[str], until_injected: int, minutes: float, quick: bool
) -> None:
    """Play the least played fault, until the ledger has so many faults or the time is over."""
    deadline_s = time.monotonic() + 60.0 * minutes
    while ledger.injected < until_injected and time.monotonic() < deadline_s:
        name = ledger.next(faults)
        seed = ledger.seed_of(name)
        reseed(seed)
        outcomes: list[Outcome] = []
        failures: list[Failure] = []
        play([name], quick, (deadline_s - time.monotonic()) / 60.0, outcomes, failures)
        at, of = dated(time.time()), commit()
        for outcome in outcomes:
            ledger.add(Played.of(outcome, at=at, commit=of, seed=seed, quick=quick))
        for each in failures:
            if not each.out_of_time:
                ledger.add(
                    Played(
                        at=at, commit=of, fault=name, seed=seed, quick=quick, failure=each.failure
                    )
                )  # fmt: skip


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument("faults", nargs="*", metavar="FAULT", help=f"of {', '.join(FAULTS)}")
    parser.add_argument("--quick", action="store_true", help="each but once or a few times")
    parser.add_argument("--minutes", type=float, help=f"for all ({MINUTES:g}; with --until none)")
    parser.add_argument(
        "--until", type=int, default=0, metavar="N",
        help="repeat the faults until the ledger has N, over all runs",
    )  # fmt: skip
    parser.add_argument("--ledger", type=Path, default=LEDGER, help="its folder (%(default)s)")
    writing.add_option(parser)
    given = parser.parse_args()
    writing.check(parser, write=given.write, unlike={"--quick": given.quick})
    if unknown := set(given.faults) - FAULTS.keys():
        parser.error(f"no such fault: {', '.join(sorted(unknown))}")
    given.faults = given.faults or [name for name in FAULTS if name not in ON_REQUEST]
    if given.minutes is None:
        given.minutes = threading.TIMEOUT_MAX / 60.0 if given.until else MINUTES
    return given


def play(
    names: list[str], quick: bool, minutes: float, outcomes: list[Outcome], failures: list[Failure]
) -> None:
    """Inject one fault after the other, whatever the outcome of each, until the time is over."""
    said = Console(stderr=True)
    deadline_s = time.monotonic() + 60.0 * minutes
    for name in names:
        began_s = time.monotonic()
        try:
            with (
                until(deadline_s),
                tempfile.TemporaryDirectory(prefix="chaos-", ignore_cleanup_errors=True) as folder,
            ):
                outcomes.append(FAULTS[name](name, Path(folder) / name, quick))
        except OutOfTime:
            why = f"not played to its end within {minutes:g} minutes"
            failures.append(Failure(name, why, out_of_time=True))
        except Exception as error:  # whatever failed, the next fault is played
            failures.append(Failure(name, f"{type(error).__name__}: {error}"))
        else:
            said.print(f"{name}: {time.monotonic() - began_s:.0f} s", markup=False)
            continue
        said.print(f"{name}: {failures[-1].failure}", style="red", markup=False)


@contextmanager
def until(deadline_s: float) -> Iterator[None]:
    """Raise OutOfTime in the block, once, at that time; before the block if the time is over."""

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


def table(outcomes: list[Outcome]) -> Table:
    names = Outcome.__struct_fields__
    found = Table(*(name.replace("_", " ") for name in names))
    for outcome in outcomes:
        values = (getattr(outcome, name) for name in names)
        found.add_row(*(str(sum(v.values()) if isinstance(v, dict) else v) for v in values))
    return found


if __name__ == "__main__":
    sys.exit(main())
