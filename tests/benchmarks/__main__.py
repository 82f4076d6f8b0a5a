"""`python -m tests.benchmarks`: a JSON object a line on standard output, a table on standard error.

Exit code 0: all was measured; 1: an entry was skipped, the reason is on standard error; 2: no such
name.
"""

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence

from rich.console import Console
from rich.progress import Progress

from stream_rater.runtime import startup
from tests.benchmarks import lobbies, offline, papers, replaying, stage1, tuning, winners
from tests.benchmarks.command import a_parser, end, parsed, show
from tests.benchmarks.measure import Effort, Result

BENCHMARKS: dict[str, Callable[[Effort], Result]] = {
    **stage1.BENCHMARKS, **lobbies.BENCHMARKS, **offline.BENCHMARKS, **replaying.BENCHMARKS,
    **winners.BENCHMARKS, **tuning.BENCHMARKS, **papers.BENCHMARKS,
}  # fmt: skip


def main(arguments: Sequence[str] | None = None) -> int:
    parser = a_parser("tests.benchmarks", __doc__)
    which = "stage1/100, or stage1 for all of that kind; none: everything"
    parser.add_argument("names", nargs="*", metavar="NAME", help=which)
    parser.add_argument("--repeat", type=int, metavar="N", help="take turns so many times")
    asked = parsed(parser, arguments)
    startup.configure()  # as a worker does; the peers have it, too
    try:
        names = _chosen(asked.names)
    except KeyError as unknown:
        all_names = " ".join(BENCHMARKS)
        print(f"bench: no benchmark {unknown.args[0]!r}; there are: {all_names}", file=sys.stderr)
        return 2
    console, effort = Console(stderr=True), Effort(quick=asked.quick, repeat=asked.repeat)
    return end("bench", asked, show(_measure(names, effort, console), console))


def _chosen(names: Sequence[str]) -> list[str]:
    """The benchmarks of these names or kinds, in order, all of them for none; else KeyError."""
    chosen = dict.fromkeys(BENCHMARKS if not names else ())
    for name in names:
        found = [each for each in BENCHMARKS if each == name or each.startswith(f"{name}/")]
        if not found:
            raise KeyError(name)
        chosen.update(dict.fromkeys(found))
    return list(chosen)


def _measure(
    names: Sequence[str], effort: Effort, console: Console
) -> Iterator[tuple[str, Iterable[Result]]]:
    """Each benchmark, which is measured when its result is asked for."""
    with Progress(console=console, transient=True, redirect_stdout=False) as progress:
        task = progress.add_task("", total=len(names))
        for name in names:
            progress.update(task, description=name)
            yield name, map(BENCHMARKS[name], [effort])
            progress.advance(task)


if __name__ == "__main__":
    sys.exit(main())
