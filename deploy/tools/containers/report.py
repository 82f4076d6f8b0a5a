"""The table that a command ends with: what was checked, what was seen, how long it took."""

import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final, TextIO

POLL_S: Final = 0.5


class Failed(Exception):
    """A check failed; the message says why."""


@dataclass
class Report:
    """The rows of a table. Each is printed as soon as it is known, and all of them at the end."""

    title: str
    rows: list[tuple[str, str, float]] = field(default_factory=list)
    failed: int = 0
    out: TextIO = sys.stderr

    def check(self, name: str, what: Callable[[], str]) -> bool:
        """Run a check and record what it saw. Returns whether it passed. A check that fails does
        not end the others."""
        self.say(f"{name} ...")
        began_s = time.monotonic()
        try:
            seen = what()
        except Failed as failure:
            seen = f"FAILED: {failure}"
            self.failed += 1
        self.rows.append((name, seen, time.monotonic() - began_s))
        self.say(f"{name}: {seen} ({self.rows[-1][2]:.0f} s)")
        return not seen.startswith("FAILED: ")

    def say(self, text: str) -> None:
        """Print a line about progress."""
        print(f"{self.title}: {text}", file=self.out, flush=True)

    def figures(self) -> dict[str, object]:
        """The report as an object for `docs/benchmarks.jsonl`."""
        rows = [{"what": name, "seen": seen, "s": round(s, 1)} for name, seen, s in self.rows]
        total = round(sum(s for _, _, s in self.rows), 1)
        return {"name": f"platform/{self.title}", "value": total, "unit": "s", "rows": rows}

    def table(self) -> str:
        """All rows, in Markdown."""
        return table(("what", "seen", "s"), [(n, s, f"{took:.1f}") for n, s, took in self.rows])


def wait_for(what: Callable[[], bool], why: str, timeout_s: float) -> None:
    """Wait until `what()` is true. Raises Failed if that takes too long."""
    deadline_s = time.monotonic() + timeout_s
    while not what():
        if time.monotonic() > deadline_s:
            raise Failed(f"not within {timeout_s:.0f} s: {why}")
        time.sleep(POLL_S)


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table in Markdown with aligned columns."""
    cells = [[cell.replace("\n", " ").replace("|", "/") for cell in row] for row in (head, *rows)]
    widths = [max(len(row[i]) for row in cells) for i in range(len(head))]
    lines = [
        "| " + " | ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)) + " |"
        for row in cells
    ]
    lines.insert(1, "|" + "|".join("-" * (width + 2) for width in widths) + "|")
    return "\n".join(lines)
