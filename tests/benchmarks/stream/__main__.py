"""`python -m tests.benchmarks.stream`: a JSON object a line on standard output, a table on standard
error.

Exit code 0: all was measured; 1: an entry was skipped, the reason is on standard error; 2: no such
workload or measure.
"""

import argparse
import re
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import msgspec
from rich.console import Console

from local.servers import signals_as_exit
from tests.benchmarks.measure import Result, Skipped, table
from tests.benchmarks.stream.ground import a_ground
from tests.benchmarks.stream.plan import MEASURES, USUAL, Plan
from tests.benchmarks.stream.rounds import WORKLOADS

SIZE = re.compile(r"[1-9]\d*(\+[1-9]\d*)?")
"""Of a crew, as in `names_of`."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure what is asked for."""
    asked = _parse(arguments)
    measures = asked.measure.split(",")
    for what, names, known in (
        ("workload", asked.workloads, WORKLOADS),
        ("measure", measures, MEASURES),
    ):
        for name in names:
            if name not in known:
                there = " ".join(known)
                print(f"bench: no {what} {name!r}; there are: {there}", file=sys.stderr)
                return 2
    sizes = asked.workers.split(",")
    for size in sizes:
        if not SIZE.fullmatch(size):
            print(f"bench: no number of workers {size!r}; like 2, or 1+1", file=sys.stderr)
            return 2
    plan = Plan(
        measures=frozenset(measures),
        workers=sizes,
        quick=asked.quick,
        turns=asked.turns,
        updates=asked.updates,
    )
    given = dict(each.split("=", 1) for each in asked.set)
    return _run(plan, asked.workloads or list(WORKLOADS), given)


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.stream", description=__doc__)
    parser.add_argument("workloads", nargs="*", metavar="WORKLOAD", help=", ".join(WORKLOADS))
    parser.add_argument("--quick", action="store_true", help="less of everything: does it run?")
    usual, more = ",".join(USUAL), ", ".join(each for each in MEASURES if each not in USUAL)
    parser.add_argument(
        "--measure", default=usual, metavar="M,M", help=f"default: %(default)s; more: {more}"
    )
    parser.add_argument(
        "--workers", default="1,1+1,2,3", metavar="N,N",
        help="how many processes, 1+1: a role each (%(default)s)",
    )  # fmt: skip
    parser.add_argument("--turns", type=int, metavar="N", help="take turns so many times")
    parser.add_argument("--updates", type=int, metavar="N", help="ratings to change, about")
    parser.add_argument(
        "--set", action="append", default=[], metavar="NAME=VALUE", help="a setting of the service"
    )
    return parser.parse_args(arguments)


def _run(plan: Plan, workloads: Sequence[str], given: dict[str, str]) -> int:
    console = Console(stderr=True)
    done: list[Result] = []
    complete = True
    with (
        signals_as_exit(),
        tempfile.TemporaryDirectory(prefix="stream-rater-", ignore_cleanup_errors=True) as folder,
        a_ground(Path(folder), given) as ground,
    ):
        for name in workloads:
            try:
                for each in plan.results(ground, WORKLOADS[name]):
                    print(msgspec.json.encode(each).decode(), flush=True)
                    done.append(each)
            except Skipped as reason:
                complete = False
                console.print(f"skipped {name}: {reason}", style="yellow", highlight=False)
    console.print(table(done))
    return 0 if complete else 1


if __name__ == "__main__":
    sys.exit(main())
