"""`python -m tests.benchmarks.compiling` prints the CPU time that each kernel takes to compile,
with the functions that are inlined into it, but without the kernels that it calls."""

import json
import os
import subprocess
import sys
import tempfile

from rich.console import Console
from rich.table import Table

from tests.benchmarks.measure import ROOT

PROFILE = """
import json, time
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

    def compiling(self, kernel, number):
        self.turn()
        self.open.append(kernel)
        self.forms[kernel] += 1

    def compiled(self, kernel):
        self.turn()
        while self.open.pop() != kernel:  # one that could not be compiled
            pass

clock = Clock()
watchers.append(clock)
from stream_rater.cli.compile_kernels import USUAL, parts_for
from stream_rater.runtime import selfcheck
selfcheck.check()
for part in parts_for(USUAL):
    part()
clock.turn()
print(json.dumps([[name, clock.forms[name], s] for name, s in clock.spent.most_common()]))
"""


def main() -> None:
    """Print a line for each kernel, the longest first, on standard output."""
    with tempfile.TemporaryDirectory(prefix="stream-rater-compiling-") as folder:
        done = subprocess.run(
            [sys.executable, "-c", PROFILE], cwd=ROOT, stdout=subprocess.PIPE, text=True,
            env=os.environ | {"NUMBA_CACHE_DIR": folder}, check=True,
        )  # fmt: skip
    shown = Table("kernel", "types of arguments", "s")
    for name, forms, spent_s in json.loads(done.stdout.splitlines()[-1]):
        shown.add_row(name, str(forms), f"{spent_s:.2f}")
    Console(width=120).print(shown)


if __name__ == "__main__":
    main()
