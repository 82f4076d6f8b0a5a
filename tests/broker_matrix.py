"""`make brokers`: installs releases of Apache Kafka, and prints a table of them and of suites
(`tests.matrix`).

With `--write`, the table goes into docs/operations/managed-services.md.
"""

import argparse
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence

from local.tools import KAFKA_CHOICE, KAFKA_VERSION
from tests.matrix import PAGE, ROOT, Counts, Runner, has_failed, table, write

RELEASES = "3.9.1", "4.0.1", KAFKA_VERSION
"""The last one before Kafka 4, the first of Kafka 4, and the one that all tests use."""

SUITES: Mapping[str, Sequence[str]] = {
    "the log": (
        "contract/test_reading.py", "contract/test_writing.py", "contract/test_doubt.py",
        "contract/test_correction_effects.py",
    ),
    "topics": (
        "contract/test_ladder_events.py", "contract/test_message_sizes.py",
        "contract/test_season_topic.py",
    ),
    "commands": ("integration/test_log_ends.py", "integration/test_erase.py"),
    "access": ("integration/test_logins.py",),
}  # fmt: skip
"""Files of tests, by what they are about."""

FAULTS = "hard-lone-broker", "one-of-three-brokers", "hard-worker-3"
"""The faults of `make chaos` without which a release is not called supported."""


def main() -> int:
    """Run all suites on the named releases, or on all. 1 if a test failed, or a release cannot be
    installed."""
    parser = argparse.ArgumentParser(prog="python -m tests.broker_matrix", description=__doc__)
    parser.add_argument("releases", nargs="*", metavar="RELEASE", help=f"as {RELEASES[0]}")
    parser.add_argument("--write", action="store_true", help=f"into {PAGE.name}, too")
    given = parser.parse_args()
    rows = {f"Apache Kafka {each}": _row(each) for each in given.releases or RELEASES}
    found = table("broker", [*SUITES, *(f"`{name}`" for name in FAULTS)], rows)
    sys.stdout.write(found)
    if given.write:
        write("brokers", found)
    return int(has_failed(rows))


def _row(release: str) -> dict[str, Counts]:
    runner = Runner(f"Apache Kafka {release}", KAFKA_CHOICE, release)
    command = [sys.executable, "-m", "local.setup", "kafka"]
    environment = {**os.environ, KAFKA_CHOICE: release}
    if subprocess.run(command, cwd=ROOT, env=environment, check=False).returncode != 0:
        sys.exit(1)  # the set-up has said why
    found = {name: runner.tests(files) for name, files in SUITES.items()}
    return found | {f"`{name}`": runner.fault(name) for name in FAULTS}


if __name__ == "__main__":
    sys.exit(main())
