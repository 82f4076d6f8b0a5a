"""`python -m tests.benchmarks.compiling [WORK]`: the processor time that each kernel takes to
compile.

WORK is what compiles: `first` (one round of two players in Python), `rate` (the command on one such
round), `setup` (what `make setup` compiles; without WORK it is this), or `all` (every system). A
new process does it with an empty cache. With `--against TREE`, a process of another tree takes
turns with it, and the medians of both are shown, e.g. before and after a change.

The time of a kernel includes the functions that are inlined into it, but not the kernels that it
calls: these have lines of their own. An inlined function is translated for the first kernel that
needs it, and optimised in each.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from statistics import median

from rich.console import Console
from rich.table import Table

ROOT = Path(__file__).resolve().parents[2]

ROUND = '{"round_id": "r", "ladder": "l", "completed_at": "2026-01-01T00:00:00Z", "standings": ' \
    '[{"player": "ann", "rank": 1}, {"player": "bob", "rank": 2}]}'  # fmt: skip

SETUP = """
from stream_rater.runtime import selfcheck
selfcheck.check()
selfcheck.compile_for(selfcheck.SYSTEMS[0])
selfcheck.compile_for_full_histories()
"""

WORK: Mapping[str, str] = {
    "first": """
import stream_rater
ladder = stream_rater.Ladder(system="elo-mmr")
ladder.rate([("ann",), ("bob",)], ranks=[1, 2])
""",
    "rate": f"""
import pathlib, tempfile
from stream_rater.cli import app
with tempfile.TemporaryDirectory() as folder:
    rounds = pathlib.Path(folder, "rounds.jsonl")
    rounds.write_text('''{ROUND}''')
    app.main(["rate", str(rounds), "--out", str(rounds) + ".out"], standalone_mode=False)
""",
    "setup": SETUP,
    "all": f"""{SETUP}
for rating in selfcheck.SYSTEMS[1:]:
    selfcheck.compile_for(rating)
""",
}
"""Programs by the name of their work. They use only what all releases have."""

PROFILE = """
import json, sys, time
from collections import Counter
from stream_rater.columns.compiling import Watcher, watchers

REST = "(all else)"

class Clock(Watcher):
    def __init__(self):
        self.open, self.spent, self.forms = [REST], Counter(), Counter()
        self.last_s = 0.0  # so that importing numba and this counts among all else

    def turn(self):
        now_s = time.process_time()
        self.spent[self.open[-1]] += now_s - self.last_s
        self.last_s = now_s

    def compiling(self, kernel, number, most):
        self.turn()
        self.open.append(kernel)
        self.forms[kernel] += 1

    def compiled(self, kernel):
        self.turn()
        while self.open.pop() != kernel:  # one that could not be compiled
            pass

clock = Clock()
watchers.append(clock)
exec(sys.argv[1])
clock.turn()
print(json.dumps({name: [clock.forms[name], s] for name, s in clock.spent.items()}))
"""

REST = "(all else)"

Profile = dict[str, tuple[int, float]]
"""By kernel: for how many types of arguments it was compiled, and processor seconds."""


def profile(work: str, tree: Path = ROOT) -> Profile:
    """Do the work in a new process of a tree, with an empty cache."""
    python = tree / ".venv" / "bin" / "python"
    with tempfile.TemporaryDirectory(prefix="stream-rater-compiling-") as folder:
        done = subprocess.run(
            [str(python) if python.exists() else sys.executable, "-c", PROFILE, WORK[work]],
            cwd=tree, env=os.environ | {"NUMBA_CACHE_DIR": folder}, stdout=subprocess.PIPE,
            text=True, check=True,
        )  # fmt: skip
    found: dict[str, list[float]] = json.loads(done.stdout.splitlines()[-1])
    return {name: (int(forms), s) for name, (forms, s) in found.items()}


def medians(profiles: Sequence[Profile]) -> Profile:
    """The median time of each kernel."""
    names = {name for each in profiles for name in each}
    zero = (0, 0.0)
    return {
        name: (
            max(each.get(name, zero)[0] for each in profiles),
            median(each.get(name, zero)[1] for each in profiles),
        )
        for name in names
    }


def table(found: Mapping[str, Profile]) -> Table:
    """A line for each kernel, the longest first, with the columns of each tree."""
    shown = Table("kernel")
    for title in found:
        shown.add_column(f"{title}: forms", justify="right")
        shown.add_column("s", justify="right")
    names = {name for each in found.values() for name in each} - {REST}
    zero = (0, 0.0)
    first = next(iter(found.values()))

    def add_row(title: str, columns: Iterable[tuple[int, float]]) -> None:
        shown.add_row(title, *(text for n, s in columns for text in (f"{n}", f"{s:.2f}")))

    for name in sorted(names, key=lambda each: -first.get(each, zero)[1]):
        add_row(name, (each.get(name, zero) for each in found.values()))
    shown.add_section()
    kernels = ([each[name] for name in each if name != REST] for each in found.values())
    add_row("all kernels", ((sum(n for n, _ in some), sum(s for _, s in some)) for some in kernels))
    add_row(REST, (each[REST] for each in found.values()))
    return shown


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the table on standard output."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.compiling")
    parser.add_argument("work", nargs="?", choices=sorted(WORK), default="setup")
    parser.add_argument("--against", type=Path, metavar="TREE", help="another tree, in turns")
    parser.add_argument("--repeat", type=int, default=1, metavar="N", help="so many turns")
    asked = parser.parse_args(arguments)
    trees = {"here": ROOT}
    if asked.against is not None:
        trees[asked.against.name] = asked.against.resolve()
    runs: dict[str, list[Profile]] = {title: [] for title in trees}
    for _ in range(asked.repeat):
        for title, tree in trees.items():
            runs[title].append(profile(asked.work, tree))
    Console(width=120).print(table({title: medians(each) for title, each in runs.items()}))


if __name__ == "__main__":
    main()
