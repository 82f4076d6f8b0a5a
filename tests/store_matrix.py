"""`make stores`: tests each store, and prints a table of stores and suites.

With `--write`, the table goes into docs/operations/managed-services.md. A cell has the numbers of
tests that passed, failed and were skipped. A fault of `make chaos` is one test: it fails if
anything was lost, doubled or wrong.
"""

import argparse
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree

from local.stores import ALL, STORE_VARIABLE, Store, why_missing

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "operations" / "managed-services.md"
TABLE = re.compile(r"(<!-- stores: begin -->\n).*?(<!-- stores: end -->)", re.DOTALL)

SUITES: Mapping[str, Sequence[str]] = {
    "the store": (
        "test_store.py", "test_store_layout.py", "test_redis_address.py", "test_redis_checks.py",
        "test_redis_failover.py", "test_redis_reads.py", "test_checkpoint_effects.py",
        "test_full_store.py", "test_moving_slots.py",
    ),
    "the index of `serve`": (
        "test_serve_index.py", "test_serve_index_lost.py", "test_season_index.py",
        "test_views_in_redis.py",
    ),
}  # fmt: skip
"""Files of tests/contract, by the part that they test."""

FAULTS = "redis-killed", "redis-restored", "redis-failover"
"""The faults of `make chaos` without which a store is not called supported."""


class Counts(NamedTuple):
    """How many tests passed, failed and were skipped."""

    passed: int
    failed: int
    skipped: int

    def __str__(self) -> str:
        return " / ".join(map(str, self))


def main() -> int:
    """Run all suites on the named stores, or on all that are here. 1 if a test failed."""
    parser = argparse.ArgumentParser(prog="python -m tests.store_matrix", description=__doc__)
    parser.add_argument("stores", nargs="*", metavar="STORE", help=f"of {', '.join(ALL)}")
    parser.add_argument("--write", action="store_true", help=f"into {PAGE.name}, too")
    given = parser.parse_args()
    if unknown := set(given.stores) - ALL.keys():
        parser.error(f"no such store: {', '.join(sorted(unknown))}")
    if given.write and given.stores:
        parser.error("--write writes the rows of all stores: name none")
    rows = {}
    for name in given.stores or ALL:
        if ALL[name].find() is None:
            sys.stderr.write(f"{why_missing(ALL[name])}\n")
            continue
        rows[ALL[name].title] = _row(ALL[name])
    found = _table(rows)
    sys.stdout.write(found)
    if given.write:
        PAGE.write_text(TABLE.sub(rf"\g<1>{found}\g<2>", PAGE.read_text(encoding="utf-8")))
    return int(any(each.failed for row in rows.values() for each in row.values()))


def _row(store: Store) -> dict[str, Counts]:
    found = {name: _tests(store, files) for name, files in SUITES.items()}
    return found | {f"`{name}`": _fault(store, name) for name in FAULTS}


def _tests(store: Store, files: Sequence[str]) -> Counts:
    """Run files of the contract suite, those tests that need servers."""
    sys.stderr.write(f"{store.title}: {', '.join(files)}\n")
    with tempfile.TemporaryDirectory(prefix="stream-rater-") as folder:
        report = Path(folder, "report.xml")
        paths = [str(ROOT / "tests" / "contract" / file) for file in files]
        _python(
            store, "pytest", "-q", "-n", "0", "-m", "integration", f"--junitxml={report}", *paths
        )
        if not report.exists():
            return Counts(0, len(files), 0)
        (suite,) = ElementTree.parse(report).getroot()
    total, skipped = int(suite.get("tests", 0)), int(suite.get("skipped", 0))
    failed = int(suite.get("failures", 0)) + int(suite.get("errors", 0))
    return Counts(total - failed - skipped, failed, skipped)


def _fault(store: Store, name: str) -> Counts:
    """Inject one fault of `make chaos`, once."""
    if name == "redis-failover" and not store.clusters:
        return Counts(0, 0, 1)
    sys.stderr.write(f"{store.title}: {name}\n")
    failed = _python(store, "tests.chaos", "--quick", name) != 0
    return Counts(int(not failed), int(failed), 0)


def _python(store: Store, module: str, *arguments: str) -> int:
    """Run a module on a store. Its output goes to standard error; returns its exit code."""
    environment = {**os.environ, STORE_VARIABLE: store.name}
    command = [sys.executable, "-m", module, *arguments]
    return subprocess.run(
        command, cwd=ROOT, env=environment, stdout=sys.stderr, check=False
    ).returncode


def _table(rows: Mapping[str, Mapping[str, Counts]]) -> str:
    """The table in Markdown."""
    suites = [*SUITES, *(f"`{name}`" for name in FAULTS)]
    lines = ["| store | " + " | ".join(suites) + " |", "|---" * (1 + len(suites)) + "|"]
    lines += [f"| {title} | " + " | ".join(str(row[each]) for each in suites) + " |"
              for title, row in rows.items()]  # fmt: skip
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.exit(main())
