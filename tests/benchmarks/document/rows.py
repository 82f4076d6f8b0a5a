"""Rows of figures: what benchmarks printed, and when and where each was taken."""

import json
import os
import platform
import re
import shlex
import subprocess
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec

from stream_rater.columns.kernels import KERNEL_VERSION

MISSING = "–"
DIGITS = 3  # Significant digits of a measured figure; counts are shown in full.

Figures = Mapping[str, Any]  # A JSON object as a benchmark printed it.


class Unreadable(Exception):
    """A line is not a JSON object of a benchmark. The message names the line."""


class Origin(msgspec.Struct, frozen=True, omit_defaults=True):
    """When and where a row was taken."""

    date: str  # UTC, such as `2026-11-25 09:12`.
    commit: str
    command: str
    machine: str
    remark: str = ""  # What else a reader must know, in a full sentence.


class Row(msgspec.Struct, frozen=True):
    """The figures of one benchmark, fault or simulation."""

    name: str  # Unique: the row of a later run replaces it.
    origin: Origin
    figures: Figures

    def word(self, index: int) -> str:
        """A word of the name, which are separated by `/`."""
        return self.name.split("/")[index]


def name_of(figures: Figures) -> str | None:
    """The name of an object's row; None for a fault that could not be played, and for a comparison
    with another release, which holds for one afternoon. Unreadable for other objects."""
    match figures:
        case {"failure": _}:
            return None
        case {"fault": str(fault)}:
            return f"chaos/{fault}"
        case {"ledger": str(fault), "played": _}:
            return f"ledger/{fault}"
        case {"inputs": _, "wrong": _}:
            return "soak/decoder"
        case {"seeds": _, "mutants": _}:
            return "soak/simulation"
        case {"name": str(name), "value": _}:
            return None if name.startswith("against/") else name
    raise Unreadable(f"no benchmark prints such an object: {json.dumps(figures)[:200]}")


def made(printed: Iterable[Figures], origin: Origin) -> list[Row]:
    named = ((name_of(figures), figures) for figures in printed)
    return [Row(name, origin, figures) for name, figures in named if name is not None]


def replaced(rows: Iterable[Row], newer: Iterable[Row]) -> list[Row]:
    """All rows, in order; of the same name, the newer one."""
    by_name = {row.name: row for row in (*rows, *newer)}
    return sorted(by_name.values(), key=lambda row: natural(row.name))


def natural(name: str) -> list[tuple[int, int, str]]:
    """Sorts names such that `stage1/5` comes before `stage1/12`."""
    parts = re.findall(r"\d+|\D+", name)
    return [(0, int(part), "") if part.isdecimal() else (1, 0, part) for part in parts]


def printed_in(path: Path) -> Iterator[Figures]:
    """The JSON objects in the saved output of a benchmark, one a line; Unreadable elsewhere."""
    for number, line in enumerate(path.read_text().splitlines(), start=1):
        try:
            yield msgspec.json.decode(line, type=dict[str, Any])
        except msgspec.DecodeError as error:
            raise Unreadable(f"{path}, line {number}: {error}") from error


def figure(row: Row, path: str) -> Any:
    """A figure by its path in the object, such as `ratio.redis_us`; None where there is none."""
    found: Any = row.figures
    for part in path.split("."):
        found = found.get(part) if isinstance(found, Mapping) else None
    return found


def number(value: float | str | None) -> str:
    match value:
        case None:
            return MISSING
        case int():
            return f"{value:,}"
        case float():
            return f"{float(f'{value:.{DIGITS}g}'):,.12g}"
    return str(value)


def load(path: Path) -> list[Row]:
    """All rows that were kept; none where there is no file."""
    lines = path.read_bytes().splitlines() if path.exists() else []
    return [msgspec.json.decode(line, type=Row) for line in lines]


def dumped(rows: Iterable[Row]) -> str:
    """The text of the file that keeps them: a row a line."""
    return "".join(msgspec.json.encode(row).decode() + "\n" for row in rows)


# --- where and when -------------------------------------------------------------------------------

ROOT = Path(__file__).resolve().parents[3]
GIB = 2**30


def origin_now(target: str, arguments: Sequence[str]) -> Origin:
    """That of a run of this target of the Makefile, with these arguments, which just ended."""
    return Origin(
        date=dated(datetime.now(UTC).timestamp()), commit=commit(),
        command=command(target, arguments), machine=machine(),
    )  # fmt: skip


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
        _processor(), f"{len(os.sched_getaffinity(0))} cores", f"{memory:.0f} GiB",
        f"{platform.system()} {platform.release().partition('-')[0]}",
        f"Python {platform.python_version()}", f"rating kernels {KERNEL_VERSION}",
    )  # fmt: skip
    return ", ".join(parts)


def _processor() -> str:
    found = re.search(r"^model name\s*: (.+)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    return found[1] if found else platform.machine()
