"""Simulate at length: `python -m tests.simulation.soak --seeds N --minutes M`.

First fuzzes the decoder, for a third of the time at most. Then runs the production code on new
seeds, and beside it every mutant on some of them. Prints a table and a JSON object for each of the
two. Exit 1 if the production code is ever found wrong.
"""

import argparse
import json
import os
import random
import sys
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from itertools import repeat

from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from tests.fuzz.run import INPUTS, fuzz

from .actors import Machines
from .mutants import MUTANTS
from .scenarios import SCENARIOS
from .simulator import replay_command, violations_of
from .stage import Stage

AT_ONCE = 25
MUTANT_EVERY = 2
"""After so many chunks of the production code comes one of a mutant."""

PRODUCTION = ""

Chunk = tuple[str, int, int]
"""Mutant (or PRODUCTION), first seed, how many."""


@dataclass
class Tally:
    """What came of all chunks."""

    seeds: Counter[str] = field(default_factory=Counter)
    wrong: Counter[str] = field(default_factory=Counter)
    failing: list[tuple[int, str]] = field(default_factory=list)
    """Seeds of the production code, and what was wrong."""


def chunks(first: int, seeds: int) -> Iterator[Chunk]:
    """What to run, in this order: mutants take turns."""
    names = list(MUTANTS)
    for i in range(-(-seeds // AT_ONCE)):
        done = i * AT_ONCE
        yield PRODUCTION, first + done, min(AT_ONCE, seeds - done)
        if i % MUTANT_EVERY == 0:
            turn = i // MUTANT_EVERY
            yield names[turn % len(names)], first + turn // len(names) * AT_ONCE, AT_ONCE


def run(chunk: Chunk, deadline_s: float) -> tuple[str, int, list[tuple[int, str]]]:
    """A chunk: its mutant, how many seeds there was time for, and those found wrong."""
    name, first, count = chunk
    machines = MUTANTS[name].machines if name else Machines()
    wrong = []
    for done in range(count):
        if time.time() > deadline_s:
            return name, done, wrong
        found = violations_of(first + done, machines)
        if found:
            wrong.append((first + done, found[0]))
    return name, count, wrong


def soak(first: int, seeds: int, minutes: float, console: Console) -> Tally:
    """Run until either bound is reached."""
    tally = Tally()
    deadline_s = time.time() + 60.0 * minutes
    todo = list(chunks(first, seeds))
    with (
        ProcessPoolExecutor(os.cpu_count()) as pool,
        Progress(console=console, transient=True) as progress,
    ):
        bar = progress.add_task(f"seeds from {first}", total=len(todo))
        for name, done, wrong in pool.map(run, todo, repeat(deadline_s)):
            tally.seeds[name] += done
            tally.wrong[name] += len(wrong)
            if name == PRODUCTION:
                tally.failing += wrong
            progress.advance(bar)
    return tally


def directed(name: str) -> bool:
    """Whether the mutant fails in its directed scenario."""
    if name not in SCENARIOS:
        return False
    stage = Stage(MUTANTS[name].machines)
    SCENARIOS[name](stage)
    return bool(stage.finish())


def report(tally: Tally, console: Console) -> dict[str, int]:
    """The table, and its summary."""
    table = Table(title="Violations, by the rule that was left out")
    for heading in ("rule", "directed scenario", "seeds", "violations"):
        table.add_column(heading, justify="left" if heading == "rule" else "right")
    table.add_row(
        "(none: the production code)", "", str(tally.seeds[PRODUCTION]),
        str(tally.wrong[PRODUCTION]),
    )  # fmt: skip
    caught = 0
    for name, mutant in MUTANTS.items():
        fails = directed(name)
        caught += fails or tally.wrong[name] > 0
        table.add_row(
            mutant.rule, "fails" if fails else "", str(tally.seeds[name]), str(tally.wrong[name])
        )
    console.print(table)
    for seed, found in tally.failing:
        console.print(f"{replay_command(seed)}  # {found:.200}", markup=False, highlight=False)
    return {
        "seeds": tally.seeds[PRODUCTION],
        "violations": tally.wrong[PRODUCTION],
        "mutants": len(MUTANTS),
        "caught": caught,
    }


def main() -> int:
    """Parse, soak, report."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation.soak", description=__doc__)
    parser.add_argument("--seeds", type=int, default=20_000, help="of the production code")
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--first", type=int, help="the first seed; by default a random one")
    arguments = parser.parse_args()
    console = Console(stderr=True)
    first = random.SystemRandom().randrange(2**40) if arguments.first is None else arguments.first
    began_s = time.time()
    fuzzed = fuzz(first, INPUTS, 60.0 * arguments.minutes / 3.0, console)
    print(json.dumps(fuzzed), flush=True)
    minutes = arguments.minutes - (time.time() - began_s) / 60.0
    summary = report(soak(first, arguments.seeds, minutes, console), console)
    print(json.dumps(summary))
    return 1 if summary["violations"] or fuzzed["wrong"] else 0


if __name__ == "__main__":
    sys.exit(main())
