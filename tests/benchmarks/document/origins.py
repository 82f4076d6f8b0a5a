"""The date, commit, command and machine of a run."""

import os
import platform
import re
import shlex
import subprocess
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from stream_rater.columns.kernels import KERNEL_VERSION
from tests.benchmarks.document.rows import Origin

ROOT = Path(__file__).resolve().parents[3]
GIB = 2**30


def origin_now(target: str, arguments: Sequence[str]) -> Origin:
    """That of a run of this target of the Makefile, with these arguments, which just ended."""
    return Origin(
        date=dated(datetime.now(UTC).timestamp()),
        commit=commit(),
        command=command(target, arguments),
        machine=machine(),
    )


def dated(unix_s: float) -> str:
    """A time as rows have it."""
    return datetime.fromtimestamp(unix_s, UTC).strftime("%Y-%m-%d %H:%M")


def commit() -> str:
    """The commit of this folder, and whether files differ from it."""
    done = subprocess.run(
        ["git", "describe", "--always", "--dirty=, with changes", "--abbrev=7", "--exclude=*"],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    return done.stdout.strip() or "unknown"


def command(target: str, arguments: Sequence[str]) -> str:
    """What to type for the same run, without `--write`."""
    own = shlex.join(each for each in arguments if each != "--write")
    return f'make {target} ARGS="{own}"' if own else f"make {target}"


def machine() -> str:
    """Processor, cores, memory, operating system, Python, and version of the rating kernels."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / GIB
    parts = (
        _processor(),
        f"{len(os.sched_getaffinity(0))} cores",
        f"{memory:.0f} GiB",
        f"{platform.system()} {platform.release().partition('-')[0]}",
        f"Python {platform.python_version()}",
        f"rating kernels {KERNEL_VERSION}",
    )
    return ", ".join(parts)


def _processor() -> str:
    path = Path("/proc/cpuinfo")
    found = re.search(r"^model name\s*: (.+)$", path.read_text(), re.MULTILINE)
    return found[1] if found else platform.machine()
