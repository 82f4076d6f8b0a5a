"""What the judge found: violations, each one line with its place, and counts of what it checked."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

MOST_LINES = 1000  # The violations that are kept as lines. All are counted.


@dataclass
class Findings:
    lines: list[str] = field(default_factory=list)
    violations: int = 0
    checked: Counter[str] = field(default_factory=Counter)  # how often each thing was checked
    left_open: Counter[str] = field(default_factory=Counter)
    """What the texts do not decide, or what this recording does not show."""

    def wrong(self, rule: str, who: object, where: str, what: str) -> None:
        """Note a violation: the rule, the player or round, the place, and the records."""
        self.violations += 1
        if len(self.lines) < MOST_LINES:
            self.lines.append(f"{rule}: {who} at {where}: {what}")

    @property
    def clean(self) -> bool:
        """Whether something was checked, and nothing is wrong."""
        return not self.violations and (self.checked["changes"] > 0 or self.checked["answers"] > 0)

    def report(self, most: int = MOST_LINES) -> Iterator[str]:
        yield from self.lines[:most]
        if self.violations > min(most, len(self.lines)):
            yield f"... {self.violations - min(most, len(self.lines))} more"
        for name, count in sorted(self.checked.items()):
            yield f"checked {name}: {count:,}"
        for name, count in sorted(self.left_open.items()):
            yield f"left open, {name}: {count:,}"
        if self.violations:
            yield f"VIOLATED: {self.violations} violations"
        else:
            yield "clean" if self.clean else "NOTHING CHECKED: no change and no answer"
