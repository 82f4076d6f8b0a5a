"""`make stores`, `make brokers`: suites on other servers or releases (Apache Kafka's, kfake), as
tables of tests passed, failed, skipped; a fault of `make chaos` is one test. `--write`: into
docs/operations/managed-services.md."""

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree

from local.go_tools import GO_MINIMUM, find_go
from local.stores import ALL, STORE_VARIABLE, why_missing
from local.tools import KAFKA_CHOICE, KAFKA_VARIABLE, KAFKA_VERSION, ROOT
from tests.brokers import kfake
from tests.real import PROTOCOL_VARIABLE

PAGE = ROOT / "docs" / "operations" / "managed-services.md"

BY_CONSUMER = f"{KAFKA_VERSION}/consumer"  # With the group protocol of this name.

RELEASES = "3.9.1", "4.0.1", KAFKA_VERSION, BY_CONSUMER
"""The last release before Kafka 4, its first, and the tests' own, twice."""

KFAKE = "kfake"  # Another implementation of the protocol, in Go, which `tests/kfake` runs.

STORE_SUITES: Mapping[str, Sequence[str]] = {
    "the store": (
        "contract/test_store.py", "contract/test_store_in_redis.py",
        "contract/test_redis_connections.py", "contract/test_estimator_effects.py",
    ),
}  # fmt: skip
BROKER_SUITES: Mapping[str, Sequence[str]] = {
    "the log": (
        "contract/test_reading.py", "contract/test_writing.py", "contract/test_doubt.py",
    ),
    "topics": ("contract/test_estimator_effects.py", "contract/test_season_topic.py"),
    "commands": (
        "integration/test_log_ends.py", "integration/test_erase.py",
        "integration/test_serve_lost.py",
    ),
    "access": ("integration/test_logins.py",),
}  # fmt: skip
"""By the name of a suite, its test files below tests/."""

OF_KFAKE = "the log", "topics", "commands"  # The others start an Apache Kafka of their own.

STORE_FAULTS = "redis-killed", "redis-restored", "redis-failover"
BROKER_FAULTS = "hard-lone-broker", "one-of-three-brokers", "hard-worker-3"
"""The faults of `make chaos` without which a store, or a release, is not called supported."""


class Counts(NamedTuple):
    passed: int
    failed: int
    skipped: int

    def __str__(self) -> str:
        return " / ".join(map(str, self))


Row = Mapping[str, Counts | None]  # By suite; None: it was not run.

Rows = Mapping[str, Row]  # By title.


class Runner(NamedTuple):
    """Runs suites on one server, whose address or release environment variables give them."""

    title: str
    variables: Mapping[str, str]

    def row(self, suites: Mapping[str, Sequence[str]], faults: Sequence[str]) -> Row:
        """Run these suites and faults. Returns the row of the table."""
        found = {name: self.tests(files) for name, files in suites.items()}
        return found | {f"`{name}`": self.fault(name) for name in faults}

    def tests(self, files: Sequence[str]) -> Counts:
        """Run the tests that need servers in these files below tests/."""
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
        environment = {**os.environ, **self.variables}
        command = [sys.executable, "-m", module, *arguments]
        return subprocess.run(
            command, cwd=ROOT, env=environment, stdout=sys.stderr, check=False
        ).returncode


def stores(names: Sequence[str]) -> Rows:
    """The rows of the named stores, or of all. Leaves out those that are not installed."""
    if unknown := set(names) - ALL.keys():
        sys.exit(f"no such store: {', '.join(sorted(unknown))}; there are: {', '.join(ALL)}")
    rows = {}
    for store in (ALL[name] for name in names or ALL):
        if store.find() is None:
            sys.stderr.write(f"{why_missing(store)}\n")
            continue
        missing = () if store.clusters else ("redis-failover",)
        faults = [name for name in STORE_FAULTS if name not in missing]
        found = Runner(store.title, {STORE_VARIABLE: store.name}).row(STORE_SUITES, faults)
        rows[store.title] = {**found, **{f"`{name}`": Counts(0, 0, 1) for name in missing}}
    return rows


def brokers(names: Sequence[str]) -> Rows:
    """The rows of the named releases, or of all. Ends the program if one cannot be installed."""
    rows = {}
    for release in names or (*RELEASES, KFAKE):
        if release == KFAKE:
            rows["kfake (franz-go)"] = _row_of_kfake()
            continue
        command = [sys.executable, "-m", "local.setup", "kafka"]
        version, slash, protocol = release.partition("/")
        variables = {KAFKA_CHOICE: version, PROTOCOL_VARIABLE: protocol or "classic"}
        environment = {**os.environ, **variables}
        if subprocess.run(command, cwd=ROOT, env=environment, check=False).returncode != 0:
            sys.exit(1)  # the set-up has said why
        runner = Runner(f"Apache Kafka {version}{slash and ', '}{protocol}", variables)
        rows[runner.title] = runner.row(BROKER_SUITES, BROKER_FAULTS)
    return rows


def _row_of_kfake() -> Row:
    if find_go() is None:
        sys.exit(f"kfake needs Go {'.'.join(map(str, GO_MINIMUM))} or newer")
    with (
        tempfile.TemporaryDirectory(prefix="stream-rater-") as folder,
        kfake(Path(folder)) as server,
    ):
        runner = Runner("kfake", {KAFKA_VARIABLE: server.address})
        return runner.row({name: BROKER_SUITES[name] for name in OF_KFAKE}, ())


def table(first: str, suites: Sequence[str], rows: Rows) -> str:
    """The table in Markdown. `first`: the heading of the titles."""
    lines = [f"| {first} | " + " | ".join(suites) + " |", "|---" * (1 + len(suites)) + "|"]
    lines += [f"| {title} | " + " | ".join(str(row.get(each) or "–") for each in suites) + " |"
              for title, row in rows.items()]  # fmt: skip
    return "\n".join(lines) + "\n"


def with_table(page: str, name: str, text: str) -> str:
    """The page with this table between its marks. Rows with other titles stay, and come first."""
    before, begin, rest = page.partition(f"<!-- {name}: begin -->\n")
    old, end, after = rest.partition(f"<!-- {name}: end -->")
    heading, rows = text.splitlines()[:2], text.splitlines()[2:]
    titles = {_title(each) for each in rows}
    stay = [each for each in old.splitlines()[2:] if _title(each) not in titles]
    lines = "\n".join([*heading, *stay, *rows])
    return f"{before}{begin}{lines}\n{end}{after}"


def _title(row: str) -> str:
    return row.split("|")[1]


def main() -> int:
    """Print the table and, if asked, put it into the page. Returns 1 if a test failed, else 0."""
    parser = argparse.ArgumentParser(prog="python -m tests.matrix", description=__doc__)
    parser.add_argument("what", choices=["stores", "brokers"])
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"as valkey, or {RELEASES[0]}")
    parser.add_argument("--write", action="store_true", help=f"into {PAGE.name}, too")
    given = parser.parse_args()
    of_stores = given.what == "stores"
    rows = stores(given.names) if of_stores else brokers(given.names)
    suites = STORE_SUITES if of_stores else BROKER_SUITES
    faults = STORE_FAULTS if of_stores else BROKER_FAULTS
    found = table(given.what[:-1], [*suites, *(f"`{name}`" for name in faults)], rows)
    sys.stdout.write(found)
    if given.write:
        page = PAGE.read_text(encoding="utf-8")
        PAGE.write_text(with_table(page, given.what, found), encoding="utf-8")
    return int(any(each.failed for row in rows.values() for each in row.values() if each))


if __name__ == "__main__":
    sys.exit(main())
