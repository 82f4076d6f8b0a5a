"""`python -m tests.benchmarks.stream`: a JSON object a line on standard output, a table on standard
error.

Exit code 0: all was measured; 1: an entry was skipped, the reason is on standard error; 2: no such
workload.
"""

import argparse
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec
from rich.console import Console

from local.servers import signals_as_exit
from tests.benchmarks.__main__ import _table
from tests.benchmarks.measure import Result, Skipped, result
from tests.benchmarks.stream.ground import Ground, a_ground
from tests.benchmarks.stream.rounds import WORKLOADS, Round, Workload, up_to
from tests.benchmarks.stream.throughput import Run, measured, null

MEASURES = ("rate", "null")
TURNS = 3
QUICK = 20
"""`--quick` measures the so manieth part."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure what is asked for."""
    asked = _parse(arguments)
    console = Console(stderr=True)
    if unknown := [name for name in asked.workloads if name not in WORKLOADS]:
        print(
            f"bench: no workload {unknown[0]!r}; there are: {' '.join(WORKLOADS)}", file=sys.stderr
        )
        return 2
    done, complete = [], True
    given = dict(each.split("=", 1) for each in asked.set)
    with (
        signals_as_exit(),
        tempfile.TemporaryDirectory(prefix="stream-rater-", ignore_cleanup_errors=True) as folder,
        a_ground(Path(folder), given) as ground,
    ):
        for name in asked.workloads or WORKLOADS:
            try:
                for each in _measure(ground, WORKLOADS[name], asked):
                    print(msgspec.json.encode(each).decode(), flush=True)
                    done.append(each)
            except Skipped as reason:
                complete = False
                console.print(f"skipped {name}: {reason}", style="yellow", highlight=False)
    console.print(_table(done))
    return 0 if complete else 1


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.stream", description=__doc__)
    parser.add_argument("workloads", nargs="*", metavar="WORKLOAD", help=", ".join(WORKLOADS))
    parser.add_argument("--quick", action="store_true", help="less of everything: does it run?")
    parser.add_argument("--workers", default="1", help="how many processes, as 1,2,3")
    parser.add_argument("--turns", type=int, metavar="N", help="take turns so many times")
    parser.add_argument("--measure", default=",".join(MEASURES), help="default: %(default)s")
    parser.add_argument("--updates", type=int, metavar="N", help="ratings to change, about")
    parser.add_argument(
        "--set", action="append", default=[], metavar="NAME=VALUE", help="a setting of the service"
    )
    return parser.parse_args(arguments)


def _measure(ground: Ground, workload: Workload, asked: argparse.Namespace) -> Iterator[Result]:
    updates = asked.updates or workload.updates // (QUICK if asked.quick else 1)
    rounds = up_to(updates, workload.rounds())
    for count in map(int, asked.workers.split(",")):
        yield from _beside_null(ground, workload, rounds, count, asked)


def _beside_null(
    ground: Ground, workload: Workload, rounds: Sequence[Round], count: int,
    asked: argparse.Namespace,
) -> Iterator[Result]:  # fmt: skip
    """The service and the null pipeline, in turns; the best of each."""
    runs: dict[str, list[Run]] = {"": [], "/null": []}
    for _ in range(asked.turns or (1 if asked.quick else TURNS)):
        run = measured(ground, workload, rounds, count)
        runs[""].append(run)
        if "null" in asked.measure:
            beside = null(run.sample, ground.folder)
            runs["/null"].append(beside(ground, workload, rounds, count))
    best = {name: max(each, key=lambda run: run.rate) for name, each in runs.items() if each}
    for name, run in best.items():
        ratio = {f"{who}_us": us for who, us in run.processor_us.items()}
        if not name:
            ratio["bytes_a_player"] = run.memory
            ratio |= {
                f"of{other}".replace("/", "_"): run.rate / best[other].rate
                for other in best
                if other
            }
        note = f"{run.updates} updates of {run.players} players in {run.seconds:.2f} s"
        yield result(f"{workload.name}/{count}{name}", run.rate, "updates/s", ratio, note)


if __name__ == "__main__":
    sys.exit(main())
