"""What the commands of all benchmarks share: options, JSON lines, the table, and `--write`."""

import argparse
import sys
from collections.abc import Iterable, Sequence

import msgspec
from rich.console import Console
from rich.table import Table

from tests.benchmarks.document import writing
from tests.benchmarks.measure import Result, Skipped

Shown = tuple[int, list[Result]]  # The exit code, and all results.


def a_parser(module: str, text: str | None) -> argparse.ArgumentParser:
    """A parser with the options that all benchmarks have."""
    parser = argparse.ArgumentParser(prog=f"python -m {module}", description=text)
    parser.add_argument("--quick", action="store_true", help="less of everything: does it run?")
    writing.add_option(parser)
    return parser


def parsed(
    parser: argparse.ArgumentParser, arguments: Sequence[str] | None, *others: str
) -> argparse.Namespace:
    """The parsed arguments. `--write` with a quick run or one of `others` is wrong usage."""
    asked = parser.parse_args(arguments)
    unlike = {option: getattr(asked, option[2:]) for option in ("--quick", *others)}
    writing.check(parser, write=asked.write, unlike=unlike)
    asked.arguments = sys.argv[1:] if arguments is None else arguments
    return asked


def show(
    parts: Iterable[tuple[str, Iterable[Result]]],
    console: Console | None = None,
    *,
    tabled: bool = True,
) -> Shown:
    """Print results as JSON lines, at the end a table on standard error; 1 if any is skipped."""
    console, code, done = console or Console(stderr=True), 0, list[Result]()
    for name, results in parts:
        try:
            for each in results:
                print(msgspec.json.encode(each).decode(), flush=True)
                done.append(each)
        except Skipped as reason:
            code, said = 1, f"skipped {name}: {reason}"
            console.print(said, style="yellow", markup=False, highlight=False, soft_wrap=True)
    if tabled:
        console.print(table(done))
    return code, done


def table(results: Sequence[Result]) -> Table:
    shown = Table("benchmark", "value", "", "ratio", "note")
    for each in results:
        ratios = "\n".join(f"{name} {value:g}" for name, value in each.ratio.items())
        shown.add_row(each.name, f"{each.value:g}", each.unit, ratios, each.note)
    return shown


def end(target: str, asked: argparse.Namespace, shown: Shown) -> int:
    """Write the results of a target of the Makefile if asked to. Returns the exit code."""
    code, done = shown
    if asked.write:
        writing.write_run(target, done, asked.arguments)
    return code
