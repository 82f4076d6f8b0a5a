"""`python -m tests.benchmarks`: a JSON object a line on standard output, a table on standard error.

Exit code 0: all was measured; 1: an entry was skipped, the reason is on standard error; 2: no such
name.
"""

import argparse
import sys
from collections.abc import Callable, Sequence

import msgspec
from rich.console import Console
from rich.progress import Progress

from stream_rater.runtime import malloc
from tests.benchmarks import (
    codeforces,
    lobbies,
    offline,
    replaying,
    seeds,
    stage1,
    tuning,
    two_moment,
    winners,
)
from tests.benchmarks.document import writing
from tests.benchmarks.measure import Effort, Result, Skipped, table

BENCHMARKS: dict[str, Callable[[Effort], Result]] = {
    **stage1.BENCHMARKS,
    **lobbies.BENCHMARKS,
    **codeforces.BENCHMARKS,
    **offline.BENCHMARKS,
    **seeds.BENCHMARKS,
    **replaying.BENCHMARKS,
    **winners.BENCHMARKS,
    **tuning.BENCHMARKS,
    **two_moment.BENCHMARKS,
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure what is asked for."""
    asked = _parse(arguments)
    console = Console(stderr=True)
    malloc.configure()  # as a worker does; the peers have it, too
    try:
        names = _chosen(asked.names)
    except KeyError as unknown:
        all_names = " ".join(BENCHMARKS)
        print(f"bench: no benchmark {unknown.args[0]!r}; there are: {all_names}", file=sys.stderr)
        return 2
    effort = Effort(quick=asked.quick, repeat=asked.repeat)
    done = _measure(names, effort, console)
    console.print(table(done))
    if asked.write:
        writing.write_run("bench", done, sys.argv[1:] if arguments is None else arguments)
    return 0 if len(done) == len(names) else 1


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks", description=__doc__)
    which = "stage1/100, or stage1 for all of that kind; none: everything"
    parser.add_argument("names", nargs="*", metavar="NAME", help=which)
    parser.add_argument("--quick", action="store_true", help="less of everything: does it run?")
    parser.add_argument("--repeat", type=int, metavar="N", help="take turns so many times")
    writing.add_option(parser)
    asked = parser.parse_args(arguments)
    writing.check(parser, write=asked.write, unlike={"--quick": asked.quick})
    return asked


def _chosen(names: Sequence[str]) -> list[str]:
    """The benchmarks of these names or kinds, in order, all of them for none; else KeyError."""
    chosen = dict.fromkeys(BENCHMARKS if not names else ())
    for name in names:
        found = [each for each in BENCHMARKS if each == name or each.startswith(f"{name}/")]
        if not found:
            raise KeyError(name)
        chosen.update(dict.fromkeys(found))
    return list(chosen)


def _measure(names: Sequence[str], effort: Effort, console: Console) -> list[Result]:
    """Print each result as it comes. What could not be measured is reported and left out."""
    done = []
    with Progress(console=console, transient=True, redirect_stdout=False) as progress:
        task = progress.add_task("", total=len(names))
        for name in names:
            progress.update(task, description=name)
            try:
                result = BENCHMARKS[name](effort)
            except Skipped as reason:
                console.print(f"skipped {name}: {reason}", style="yellow", highlight=False)
            else:
                print(msgspec.json.encode(result).decode(), flush=True)
                done.append(result)
            progress.advance(task)
    return done


if __name__ == "__main__":
    sys.exit(main())
