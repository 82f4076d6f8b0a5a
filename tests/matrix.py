"""Runs suites on servers of other kinds or releases, and makes tables of what passed.

A cell has the numbers of tests that passed, failed and were skipped. A fault of `make chaos` is one
test: it fails if anything was lost, doubled or wrong.
"""

import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "operations" / "managed-services.md"


class Counts(NamedTuple):
    passed: int
    failed: int
    skipped: int

    def __str__(self) -> str:
        return " / ".join(map(str, self))


Row = Mapping[str, Counts | None]
"""By suite; None: it was not run."""

Rows = Mapping[str, Row]
"""By title."""


class Runner(NamedTuple):
    """Runs suites on one kind of server, which a variable names."""

    title: str
    variable: str
    value: str

    def tests(self, files: Sequence[str]) -> Counts:
        """Run files below tests/, those tests that need servers."""
        sys.stderr.write(f"{self.title}: {', '.join(files)}\n")
        with tempfile.TemporaryDirectory(prefix="stream-rater-") as folder:
            report = Path(folder, "report.xml")
            paths = [str(ROOT / "tests" / file) for file in files]
            given = "-q", "-n", "0", "-m", "integration", f"--junitxml={report}"
            self._python("pytest", *given, *paths)
            if not report.exists():
                return Counts(0, len(files), 0)
            (suite,) = ElementTree.parse(report).getroot()
        total, skipped = int(suite.get("tests", 0)), int(suite.get("skipped", 0))
        failed = int(suite.get("failures", 0)) + int(suite.get("errors", 0))
        return Counts(total - failed - skipped, failed, skipped)

    def fault(self, name: str) -> Counts:
        """Inject one fault of `make chaos`, once."""
        sys.stderr.write(f"{self.title}: {name}\n")
        failed = self._python("tests.chaos", "--quick", name) != 0
        return Counts(int(not failed), int(failed), 0)

    def _python(self, module: str, *arguments: str) -> int:
        """Run a module on that server. Its output goes to standard error; returns its exit code."""
        environment = {**os.environ, self.variable: self.value}
        command = [sys.executable, "-m", module, *arguments]
        return subprocess.run(
            command, cwd=ROOT, env=environment, stdout=sys.stderr, check=False
        ).returncode


def table(first: str, suites: Sequence[str], rows: Rows) -> str:
    """The table in Markdown. `first`: the heading of the titles."""
    lines = [f"| {first} | " + " | ".join(suites) + " |", "|---" * (1 + len(suites)) + "|"]
    lines += [f"| {title} | " + " | ".join(str(row[each] or "–") for each in suites) + " |"
              for title, row in rows.items()]  # fmt: skip
    return "\n".join(lines) + "\n"


def concluded(first: str, suites: Sequence[str], rows: Rows, *, into_page: bool) -> int:
    """Print the table and, if asked, put it into docs/operations/managed-services.md. Returns the
    exit code: 1 if a test failed. `first`: what a row is about, in the singular."""
    found = table(first, suites, rows)
    sys.stdout.write(found)
    if into_page:
        page = PAGE.read_text(encoding="utf-8")
        PAGE.write_text(with_table(page, f"{first}s", found), encoding="utf-8")
    return int(has_failed(rows))


def with_table(page: str, name: str, text: str) -> str:
    """The text of the page with this table between its marks. Rows of other titles that are there
    stay, before the new ones."""
    before, begin, rest = page.partition(f"<!-- {name}: begin -->\n")
    old, end, after = rest.partition(f"<!-- {name}: end -->")
    heading, rows = text.splitlines()[:2], text.splitlines()[2:]
    titles = {_title(each) for each in rows}
    stay = [each for each in old.splitlines()[2:] if _title(each) not in titles]
    lines = "\n".join([*heading, *stay, *rows])
    return f"{before}{begin}{lines}\n{end}{after}"


def _title(row: str) -> str:
    return row.split("|")[1]


def has_failed(rows: Rows) -> bool:
    return any(each.failed for row in rows.values() for each in row.values() if each)
