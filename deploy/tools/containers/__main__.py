"""`make image`, `make compose`, `make kubernetes`: run one of them; a table of what was seen.

    python -m containers image|compose|kubernetes [--write]

Standard output has the table, standard error what is being done. With --write the table goes into
docs/benchmarks.jsonl, too. Exit code 1 if anything is not as it should be, 2: wrong usage.
"""

import argparse
import importlib
import sys
from functools import partial

from cluster import run as kubernetes
from containers import compose, image
from containers.report import Report
from local import steps

COMMANDS = {"image": image.played, "compose": compose.played, "kubernetes": kubernetes.played}
WRITING = "tests.benchmarks.document.writing"
"""The module that writes the tables of all benchmarks into the documents."""


def main() -> int:
    """Run the target, print its table, and write it into the documents if asked."""
    parser = argparse.ArgumentParser(prog="python -m containers", description=__doc__)
    parser.add_argument("command", choices=COMMANDS)
    parser.add_argument("--write", action="store_true", help="into docs/benchmarks.jsonl, too")
    given = parser.parse_args()
    report = Report(given.command)
    code = steps.run(partial(COMMANDS[given.command], report))
    if report.rows:
        print(report.table())
    if given.write and not code:
        importlib.import_module(WRITING).write_run(given.command, [report.figures()], [])
    return code or min(report.failed, 1)


if __name__ == "__main__":
    sys.exit(main())
