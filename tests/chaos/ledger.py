"""The ledger of chaos: a line for each row that was played, and the sums over all runs."""

import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import msgspec

from tests.chaos.scene import Outcome

NAME = "chaos.jsonl"
COUNTED = ("injected", "updates", "judged", "lost", "doubled", "wrong")


class Played(msgspec.Struct, frozen=True, kw_only=True):
    at: str  # when it ended, in UTC
    commit: str
    fault: str
    seed: int  # the row's random choices: the same seed makes the same ones
    quick: bool = False
    failure: str = ""  # why the row failed; empty if it did not
    injected: int = 0
    updates: int = 0
    judged: int = 0
    lost: int = 0
    doubled: int = 0
    wrong: int = 0

    @classmethod
    def of(cls, outcome: Outcome, *, at: str, commit: str, seed: int, quick: bool) -> "Played":
        counts = {name: getattr(outcome, name) for name in ("fault", *COUNTED)}
        return cls(at=at, commit=commit, seed=seed, quick=quick, **counts)

    @property
    def is_clean(self) -> bool:
        """Whether it was played to its end, and nothing was wrong."""
        return not (self.failure or self.lost or self.doubled or self.wrong)


class Sum(msgspec.Struct, kw_only=True):
    """The sums of a fault over all runs. `ledger` is its name."""

    ledger: str
    played: int = 0
    injected: int = 0
    updates: int = 0
    judged: int = 0
    lost: int = 0
    doubled: int = 0
    wrong: int = 0
    failed: int = 0  # rows that failed; the ledger has the reasons
    commits: int = 0  # at how many commits it was played


class BadLedger(ValueError):
    """A line that is none of a ledger."""


class Ledger:
    """The ledger in a folder, which is created."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._file = folder / NAME
        self.rows = list(read(self._file))

    @property
    def injected(self) -> int:
        """How many faults were injected, over all runs."""
        return sum(each.injected for each in self.rows)

    def seed_of(self, fault: str) -> int:
        """The next seed of a fault: how often it was played."""
        return sum(each.fault == fault for each in self.rows)

    def next(self, faults: Sequence[str]) -> str:
        """The fault of those that was played least often; of several the first."""
        return min(faults, key=self.seed_of)

    def add(self, played: Played) -> None:
        """Add a line, which outlives a kill of this process."""
        with self._file.open("ab") as file:
            file.write(msgspec.json.encode(played) + b"\n")
            file.flush()
            os.fsync(file.fileno())
        self.rows.append(played)


def read(path: Path) -> Iterator[Played]:
    """A ledger's lines, but not a last one that a kill cut off. Raises BadLedger for others."""
    if not path.exists():
        return
    lines = path.read_bytes().split(b"\n")
    for number, line in enumerate(lines[:-1], 1):
        try:
            yield msgspec.json.decode(line, type=Played)
        except msgspec.DecodeError as error:
            raise BadLedger(f"{path}:{number}: {error}: delete this line") from None
    if lines[-1]:
        path.write_bytes(b"".join(line + b"\n" for line in lines[:-1]))


def sums(rows: Iterable[Played]) -> list[Sum]:
    """The sums of each fault, and those of all as `all`."""
    found: dict[str, Sum] = {}
    commits: dict[str, set[str]] = {}
    for row in rows:
        for name in (row.fault, "all"):
            total = found.setdefault(name, Sum(ledger=name))
            total.played += 1
            total.failed += bool(row.failure)
            for counted in COUNTED:
                setattr(total, counted, getattr(total, counted) + getattr(row, counted))
            commits.setdefault(name, set()).add(row.commit)
            total.commits = len(commits[name])
    return sorted(found.values(), key=lambda each: (each.ledger == "all", each.ledger))
