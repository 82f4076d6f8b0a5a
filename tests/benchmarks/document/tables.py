"""How rows become a Markdown table, with a sentence on each column."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from tests.benchmarks.document.rows import Origin, Row

MISSING = "–"
DIGITS = 3
"""Significant digits of a figure that was measured; counts are told in full."""

Cell = Callable[[Row], str]


class Column(NamedTuple):
    """One column."""

    heading: str
    meaning: str
    """A sentence or two for someone who never saw the project."""
    cell: Cell


@dataclass(frozen=True)
class Table:
    """One section of the page."""

    section: str
    command: str
    """What measures its rows."""
    names: str
    """A regular expression that the names of its rows match."""
    columns: Sequence[Column]
    order: Sequence[str] = ()
    """Words of names, in the order that their rows are to have; others stay as they are."""
    spread: Callable[[Row], Iterable[Row]] = lambda row: [row]
    """The lines that one row makes."""

    def rows(self, rows: Iterable[Row]) -> list[Row]:
        """Those of this table, in order."""
        place = {word: number for number, word in enumerate(self.order)}
        own = [row for row in rows if re.fullmatch(self.names, row.name)]
        return sorted(
            own, key=lambda row: [place.get(word, len(place)) for word in row.name.split("/")]
        )

    def markdown(self, rows: Iterable[Row]) -> str:
        """The section: where its rows were taken, how to read the columns, the table.

        A column in which no row has a figure is left out.
        """
        own = self.rows(rows)
        if not own:
            return f"Not measured yet: `{self.command}`.\n"
        lines = [line for row in own for line in self.spread(row)]
        columns = [each for each in self.columns if any(each.cell(row) != MISSING for row in lines)]
        parts = (
            taken(row.origin for row in own),
            "\n".join(f"- **{each.heading}**: {each.meaning}" for each in columns),
            table(columns, lines),
        )
        return "\n\n".join(parts) + "\n"


def taken(origins: Iterable[Origin]) -> str:
    """A line for each run that rows are of."""
    told = []
    for each in dict.fromkeys(origins):
        where = f"{each.date} (UTC) at commit `{each.commit}` by `{each.command}`"
        told.append(f"Taken {where} on: {each.machine}. {each.remark}".rstrip())
    return told[0] if len(told) == 1 else "\n".join(f"- {each}" for each in told)


def table(columns: Sequence[Column], rows: Iterable[Row]) -> str:
    """The Markdown of a table."""
    lines: Iterator[Sequence[str]] = ([each.cell(row) for each in columns] for row in rows)
    headings = [each.heading for each in columns]
    every = [headings, ["---"] * len(columns), *lines]
    return "\n".join(f"| {' | '.join(line)} |" for line in every)


def figure(row: Row, path: str) -> Any:
    """A figure by its path in the object, such as `ratio.redis_us`; None where there is none."""
    found: Any = row.figures
    for part in path.split("."):
        found = found.get(part) if isinstance(found, Mapping) else None
    return found


def number(value: float | str | None) -> str:
    """A figure for people."""
    match value:
        case None:
            return MISSING
        case int():
            return f"{value:,}"
        case float():
            return f"{float(f'{value:.{DIGITS}g}'):,.12g}"
    return str(value)


def shown(path: str, times: float | None = None) -> Cell:
    """The figure at this path, perhaps in another unit."""

    def cell(row: Row) -> str:
        value = figure(row, path)
        return number(value if times is None or value is None else value * times)

    return cell


def word(index: int) -> Cell:
    """This word of the row's name."""
    return lambda row: f"`{row.name.split('/')[index]}`"


def noted(pattern: str) -> Cell:
    """A number from the note that a benchmark printed beside its figures."""

    def cell(row: Row) -> str:
        match = re.search(pattern, figure(row, "note") or "")
        return number(int(match[1]) if match else None)

    return cell


TAKEN = Column("taken", "when the row was measured (UTC).", lambda row: row.origin.date)
