"""oha asks at a steady rate, whatever the answers do; times count from when a request was due."""

import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from local.tools import SERVERS
from tests.benchmarks.measure import Skipped

CONNECTIONS = 40
NEEDED = "oha is not installed: `cargo install oha --root .servers/oha`"


@dataclass(frozen=True)
class Load:
    """What is asked, again and again."""

    name: str
    paths: Sequence[str]
    """One of them is asked for each time, chosen at random."""
    per_second: int
    body: Path | None = None
    """Of a POST."""


@dataclass(frozen=True)
class Times:
    """How long answers took, in ms."""

    p50: float
    p99: float
    answers: int


def ask(load: Load, address: str, seconds: float) -> Times:
    """Ask for so long. AssertionError where an answer is no 200."""
    words = [
        program(), "--no-tui", "--output-format", "json", "-z", f"{seconds:g}s",
        "-q", str(load.per_second), "-c", str(CONNECTIONS), "--latency-correction",
    ]  # fmt: skip
    if load.body is not None:
        words += ["-m", "POST", "-D", str(load.body), "-T", "application/json"]
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as urls:
        urls.writelines(f"{address}{path}\n" for path in load.paths)
        urls.flush()
        words += ["--urls-from-file", urls.name]
        done = subprocess.run(words, capture_output=True, text=True, check=True)
    result = msgspec.json.decode(done.stdout)
    codes, errors = result["statusCodeDistribution"], result["errorDistribution"]
    # Requests that are under way when the time is over are cut off.
    wrong = {name: n for name, n in errors.items() if "deadline" not in name}
    assert set(codes) == {"200"} and not wrong, f"{load.name}: {codes} {errors}"
    found = result["latencyPercentiles"]
    return Times(1000.0 * found["p50"], 1000.0 * found["p99"], codes["200"])


def program() -> str:
    """oha. Raises Skipped."""
    own = SERVERS / "oha" / "bin" / "oha"
    found = str(own) if own.exists() else shutil.which("oha")
    if found is None:
        raise Skipped(NEEDED)
    return found
