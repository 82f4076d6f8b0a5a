"""`python -m tests.simulation.soak --seeds N --minutes M`: fuzzes the decoder for at most half of
the time, then runs production code on seeds beyond `make test`'s, and every mutant on some. Tables,
and a JSON object each. Exit code 1: a violation, a mutant that passes its scenario, or too few
inputs."""

import argparse
import json
import os
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, field
from itertools import repeat
from typing import NamedTuple

from rich.box import MARKDOWN
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from tests.benchmarks.document import writing
from tests.benchmarks.document.tables import counted as counted_in
from tests.fuzz.run import INPUTS, fuzz

from .actors import Machines
from .faults import KINDS, Faults
from .mutants import MUTANTS, caught
from .simulator import outcome_of, replay_command
from .transitions import TRANSITIONS, Taken, name_of

MINUTES = 10.0
FIRST = 1_000_000  # so that a table can be reproduced; `--first` chooses another seed

AT_ONCE = 25
MUTANT_EVERY = 2  # a chunk of a mutant follows this many chunks of the production code
PRODUCTION = ""

Chunk = tuple[str, int, int]  # the mutant (or PRODUCTION), the first seed, and the number of seeds


class Ran(NamedTuple):
    name: str  # its mutant, or PRODUCTION
    done: int  # how many seeds there was time for
    wrong: list[tuple[int, str]]  # the seeds with violations
    faults: Faults
    reached: Counter[Taken]  # in how many seeds each transition was taken


@dataclass
class Tally:
    seeds: Counter[str] = field(default_factory=Counter)
    wrong: Counter[str] = field(default_factory=Counter)
    failing: list[tuple[int, str]] = field(default_factory=list)
    """The seeds on which the production code failed, with the violation."""
    faults: Faults = field(default_factory=Faults)  # the faults that the production code met
    reached: Counter[Taken] = field(default_factory=Counter)
    """In how many seeds of the production code each transition was taken."""


def chunks(first: int, seeds: int) -> Iterator[Chunk]:
    """The chunks to run, in order; mutants take turns."""
    names = list(MUTANTS)
    for i in range(-(-seeds // AT_ONCE)):
        done = i * AT_ONCE
        yield PRODUCTION, first + done, min(AT_ONCE, seeds - done)
        if i % MUTANT_EVERY == 0:
            turn = i // MUTANT_EVERY
            yield names[turn % len(names)], first + turn // len(names) * AT_ONCE, AT_ONCE


def run(chunk: Chunk, deadline_s: float) -> Ran:
    name, first, count = chunk
    machines = MUTANTS[name].machines if name else Machines()
    wrong, faults, reached = list[tuple[int, str]](), Faults(), Counter[Taken]()
    for done in range(count):
        if time.time() > deadline_s:
            return Ran(name, done, wrong, faults, reached)
        found, there, taken = outcome_of(first + done, machines)
        faults += there
        reached.update(taken)
        if found:
            wrong.append((first + done, found[0]))
    return Ran(name, count, wrong, faults, reached)


def soak(first: int, seeds: int, minutes: float, console: Console) -> Tally:
    tally = Tally()
    deadline_s = time.time() + 60.0 * minutes
    todo = list(chunks(first, seeds))
    with (
        ProcessPoolExecutor(os.cpu_count()) as pool,
        Progress(console=console, transient=True) as progress,
    ):
        bar = progress.add_task(f"seeds from {first}", total=len(todo))
        for name, done, wrong, faults, reached in pool.map(run, todo, repeat(deadline_s)):
            tally.seeds[name] += done
            tally.wrong[name] += len(wrong)
            if name == PRODUCTION:
                tally.failing += wrong
                tally.faults += faults
                tally.reached += reached
            progress.advance(bar)
    return tally


@dataclass
class Summary:
    first: int  # The first seed. The same seeds have the same faults and violations.
    seeds: int
    violations: int
    mutants: int
    caught: int  # how many mutants fail their own scenario
    caught_by_seeds: int  # how many mutants fail on random seeds, too
    fuzzed: int
    fuzzed_wrong: int
    faults: dict[str, int]

    def complaints(self, inputs: int) -> Iterator[str]:
        """The reasons why the soak failed, if this many inputs were promised to the decoder."""
        if self.violations or not self.seeds:
            yield f"{self.violations} of {self.seeds} seeds went wrong"
        if self.caught < self.mutants:
            yield f"{self.mutants - self.caught} rules left out are not caught by their scenarios"
        if self.fuzzed_wrong or self.fuzzed < inputs:
            yield f"{self.fuzzed_wrong} of {self.fuzzed} inputs went wrong, of {inputs} promised"


def promised(minutes: float) -> int:
    """The inputs promised to the decoder: all, or a shorter time's share."""
    return int(INPUTS * min(1.0, minutes / MINUTES))


def summary_of(first: int, tally: Tally, fuzzed: Mapping[str, int]) -> Summary:
    return Summary(
        first, tally.seeds[PRODUCTION], tally.wrong[PRODUCTION], len(MUTANTS),
        sum(map(caught, MUTANTS.values())), sum(tally.wrong[name] > 0 for name in MUTANTS),
        fuzzed["inputs"], fuzzed["wrong"], {kind: tally.faults[kind] for kind in KINDS},
    )  # fmt: skip


def tables(tally: Tally, summary: Summary) -> Iterator[Table]:
    rules = [(rule.rule, tally.seeds[name], tally.wrong[name]) for name, rule in MUTANTS.items()]
    yield table(("rule left out", "seeds", "violations"), rules)
    taken = [(name_of(each), tally.reached[each]) for each in sorted(TRANSITIONS, key=name_of)]
    yield table(("transition of a state machine", "reached in seeds"), taken)
    yield table(("simulated", "times"), counted_in(asdict(summary)))


def table(heads: Sequence[str], rows: Iterable[tuple[str, *tuple[int, ...]]]) -> Table:
    found = Table(heads[0], box=MARKDOWN)
    for head in heads[1:]:
        found.add_column(head, justify="right")
    for name, *numbers in rows:
        found.add_row(name, *(f"{number:,}" for number in numbers))
    return found


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation.soak", description=__doc__)
    parser.add_argument("--seeds", type=int, default=20_000, help="of the production code")
    parser.add_argument("--minutes", type=float, default=MINUTES)
    parser.add_argument("--first", type=int, default=FIRST, help="the first seed")
    writing.add_option(parser)
    arguments = parser.parse_args()
    first, minutes, began_s = arguments.first, arguments.minutes, time.time()
    console = Console(stderr=True, width=100)
    fuzzed = fuzz(first, promised(minutes), 60.0 * minutes / 2.0, console)
    print(json.dumps(fuzzed), flush=True)
    left = minutes - (time.time() - began_s) / 60.0
    tally = soak(first, arguments.seeds, left, console)
    summary = summary_of(first, tally, fuzzed)
    console.print(*tables(tally, summary), sep="\n")
    for seed, found in tally.failing:
        console.print(f"{replay_command(seed)}  # {found:.200}", markup=False, highlight=False)
    complaints = list(summary.complaints(promised(minutes)))
    for each in complaints:
        console.print(each)
    print(json.dumps(asdict(summary)), flush=True)
    if arguments.write:
        writing.write_run("soak", [fuzzed, asdict(summary)], sys.argv[1:])
    return 1 if complaints else 0


if __name__ == "__main__":
    sys.exit(main())
