"""`make chaos`: every fault on real servers, a table, then a JSON object a line.

Exit code 1 if anything was lost or doubled, differs from the replay, or does not come back.
"""

import argparse
import sys
import tempfile
import time
from pathlib import Path

import msgspec
from rich.console import Console
from rich.table import Table

from local.servers import signals_as_exit
from tests.chaos.faults import FAULTS
from tests.chaos.scene import Outcome, Violation


def main() -> int:
    """Play the faults that are named, or all."""
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument("faults", nargs="*", metavar="FAULT", help=f"of {', '.join(FAULTS)}")
    parser.add_argument("--quick", action="store_true", help="each but once or a few times")
    given = parser.parse_args()
    if unknown := set(given.faults) - FAULTS.keys():
        parser.error(f"no such fault: {', '.join(sorted(unknown))}")
    said = Console(stderr=True)
    outcomes, failures = [], 0
    with signals_as_exit():
        for name in given.faults or FAULTS:
            began_s = time.monotonic()
            try:
                outcomes.append(played(name, quick=given.quick))
            except (Violation, AssertionError) as error:
                said.print(f"{name}: {error}", style="red", markup=False)
                failures += 1
                continue
            said.print(f"{name}: {time.monotonic() - began_s:.0f} s", markup=False)
    said.print(table(outcomes))
    for outcome in outcomes:
        sys.stdout.write(msgspec.json.encode(outcome).decode() + "\n")
    return 1 if failures or any(each.lost or each.doubled for each in outcomes) else 0


def played(name: str, *, quick: bool) -> Outcome:
    """One fault, in a folder that is gone afterwards."""
    with tempfile.TemporaryDirectory(prefix="chaos-", ignore_cleanup_errors=True) as folder:
        return FAULTS[name](name, Path(folder) / name, quick)


def table(outcomes: list[Outcome]) -> Table:
    """As the README has it."""
    found = Table(*Outcome.__struct_fields__)
    for outcome in outcomes:
        found.add_row(*(str(getattr(outcome, name)) for name in Outcome.__struct_fields__))
    return found


if __name__ == "__main__":
    sys.exit(main())
