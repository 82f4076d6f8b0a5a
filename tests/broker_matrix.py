"""`make brokers`: installs releases of Apache Kafka and builds kfake, and prints a table of them
and of suites (`tests.matrix`).

With `--write`, the table goes into docs/operations/managed-services.md.
"""

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from local import kafka_probe
from local.go_tools import GO_MINIMUM, find_go
from local.processes import LOOPBACK, PROBE_TIMEOUT_S, Launch, Server, start_on
from local.tools import KAFKA_CHOICE, KAFKA_VARIABLE, KAFKA_VERSION
from tests.matrix import PAGE, ROOT, Counts, Row, Runner, concluded

RELEASES = "3.9.1", "4.0.1", KAFKA_VERSION
"""The last one before Kafka 4, the first of Kafka 4, and the one that all tests use."""

KFAKE = "kfake"
"""Another implementation of the protocol, in Go, which `tests/kfake` runs."""

SUITES: Mapping[str, Sequence[str]] = {
    "the log": (
        "contract/test_reading.py", "contract/test_writing.py", "contract/test_doubt.py",
        "contract/test_correction_effects.py", "contract/test_source_tails.py",
    ),
    "topics": (
        "contract/test_ladder_events.py", "contract/test_message_sizes.py",
        "contract/test_season_topic.py",
    ),
    "commands": (
        "integration/test_log_ends.py", "integration/test_erase.py",
        "integration/test_serve_lost.py",
    ),
    "access": ("integration/test_logins.py",),
}  # fmt: skip
"""Files of tests, by what they are about."""

OF_KFAKE = "the log", "topics", "commands"
"""The suites that kfake is tested by."""

FAULTS = "hard-lone-broker", "one-of-three-brokers", "hard-worker-3"
"""The faults of `make chaos` without which a release is not called supported."""


def main() -> int:
    """Run all suites on the named releases, or on all. 1 if a test failed, or a release cannot be
    installed."""
    parser = argparse.ArgumentParser(prog="python -m tests.broker_matrix", description=__doc__)
    parser.add_argument("releases", nargs="*", metavar="RELEASE", help=f"as {RELEASES[0]}")
    parser.add_argument("--write", action="store_true", help=f"into {PAGE.name}, too")
    given = parser.parse_args()
    rows = dict(map(_row, given.releases or (*RELEASES, KFAKE)))
    suites = [*SUITES, *(f"`{name}`" for name in FAULTS)]
    return concluded("broker", suites, rows, into_page=given.write)


def _row(release: str) -> tuple[str, Row]:
    if release == KFAKE:
        return _row_of_kfake()
    runner = Runner(f"Apache Kafka {release}", KAFKA_CHOICE, release)
    command = [sys.executable, "-m", "local.setup", "kafka"]
    environment = {**os.environ, KAFKA_CHOICE: release}
    if subprocess.run(command, cwd=ROOT, env=environment, check=False).returncode != 0:
        sys.exit(1)  # the set-up has said why
    found = {name: runner.tests(files) for name, files in SUITES.items()}
    return runner.title, found | {f"`{name}`": runner.fault(name) for name in FAULTS}


def _row_of_kfake() -> tuple[str, Row]:
    """The row of kfake. The tests of logins, and faults, start an Apache Kafka of their own, so
    neither is run."""
    go = find_go()
    if go is None:
        sys.exit(f"kfake needs Go {'.'.join(map(str, GO_MINIMUM))} or newer")
    found: dict[str, Counts | None] = dict.fromkeys(f"`{name}`" for name in FAULTS)
    found |= dict.fromkeys(SUITES)
    with tempfile.TemporaryDirectory(prefix="stream-rater-") as folder:
        program = str(Path(folder, "kfake"))
        subprocess.run([go, "build", "-o", program, "."], cwd=ROOT / "tests" / "kfake", check=True)

        def start(port: int) -> Server:
            command = program, str(port)
            return Server(Launch("kfake", command, Path(folder), port, _answers, 30.0)).start()

        with start_on(None, start) as server:
            runner = Runner("kfake", KAFKA_VARIABLE, server.address)
            found |= {name: runner.tests(SUITES[name]) for name in OF_KFAKE}
    return "kfake (franz-go)", found


def _answers(port: int) -> bool:
    return kafka_probe.ready(LOOPBACK, port, PROBE_TIMEOUT_S)


if __name__ == "__main__":
    sys.exit(main())
