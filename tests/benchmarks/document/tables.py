"""One renderer for all tables: `tables.toml` says which rows and columns a table has.

A table of `tables.toml` has a `section` (its marker in the page), the `command` that measures it,
and `names`, a regular expression that the names of its rows match. Words of names are sorted as in
`order`, else as in `labels`. `spread` names a function of `lines.py` that makes several lines from
one row; `lines` lists such lines. `brief` selects columns and rows for the short table.

A cell is one of these:

- `date`, `name`: the row's.
- `word:N`, `count:N`, `load:N`, `label:N`: the name's Nth word, as code, as a number, as a load,
  or as `labels` translates it.
- `note:PATTERN`: a number from the note that the benchmark printed.
- a path in the printed object, such as `ratio.redis_us`; with `*1000` or `/path` it is multiplied
  or divided, with `:.4f` it is formatted so.
"""

import re
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from tests.benchmarks.document.lines import SPREADS
from tests.benchmarks.document.rows import MISSING, Origin, Row, figure, number
from tests.benchmarks.stream.rounds import WORKLOADS

FILE = Path(__file__).with_name("tables.toml")
ORDERS = {"workloads": list(WORKLOADS)}

Cell = Callable[[Row], str]


class Column(NamedTuple):
    heading: str
    cell: str
    meaning: str  # A sentence or two for a reader who is new to the project.


class Brief(NamedTuple):
    """The short form of a table."""

    columns: Sequence[str]  # Headings of its columns.
    names: str = ".*"  # A regular expression that the names of its rows match.


@dataclass(frozen=True, kw_only=True)
class Table:
    section: str
    command: str
    names: str  # A regular expression that the names of its rows match.
    columns: Sequence[Column]
    labels: Mapping[str, str] = field(default_factory=dict)  # Text for words of names.
    order: Sequence[str] = ()
    """Words of names, in the order of their rows; other rows keep the order of the file."""
    spread: Callable[[Row], Iterable[Row]] = lambda row: [row]
    """Returns the lines that one row makes."""
    brief: Brief | None = None

    def rows(self, rows: Iterable[Row]) -> list[Row]:
        """The rows of this table, in order."""
        place = {word: number for number, word in enumerate(self.order)}
        own = [row for row in rows if re.fullmatch(self.names, row.name)]
        return sorted(
            own, key=lambda row: [place.get(word, len(place)) for word in row.name.split("/")]
        )

    def markdown(self, rows: Iterable[Row]) -> str:
        """Where its rows were taken, how to read columns, and the table without empty columns."""
        own = self.rows(rows)
        if not own:
            return f"Not measured yet: `{self.command}`.\n"
        columns, text = self._grid(self.columns, own)
        meanings = "\n".join(f"- **{each.heading}**: {each.meaning}" for each in columns)
        return "\n\n".join((taken(row.origin for row in own), meanings, text)) + "\n"

    def brief_markdown(self, rows: Iterable[Row]) -> str:
        """The short table, without explanations."""
        assert self.brief is not None, f"{self.section} has no short form"
        chosen = [each for each in self.columns if each.heading in self.brief.columns]
        own = [row for row in self.rows(rows) if re.fullmatch(self.brief.names, row.name)]
        return (self._grid(chosen, own)[1] if own else f"Not measured: `{self.command}`.") + "\n"

    def _grid(self, columns: Iterable[Column], own: Iterable[Row]) -> tuple[list[Column], str]:
        """The columns that have a figure, and the Markdown of the table."""
        lines = [line for row in own for line in self.spread(row)]
        filled = [(each, self._cells(each, lines)) for each in columns]
        filled = [(each, cells) for each, cells in filled if any(c != MISSING for c in cells)]
        headings = [each.heading for each, _ in filled]
        body = zip(*(cells for _, cells in filled), strict=True)
        every: list[Sequence[str]] = [headings, ["---"] * len(headings), *body]
        text = "\n".join(f"| {' | '.join(line)} |" for line in every)
        return [each for each, _ in filled], text

    def _cells(self, column: Column, lines: Sequence[Row]) -> list[str]:
        cell = cell_of(column.cell, self.labels)
        return [cell(row) for row in lines]


def cell_of(text: str, labels: Mapping[str, str]) -> Cell:
    """The function that fills a cell, from its text in `tables.toml`."""
    kind, _, rest = text.partition(":")
    match kind:
        case "date":
            return lambda row: row.origin.date
        case "name":
            return lambda row: row.name
        case "word":
            return lambda row: f"`{row.word(int(rest))}`"
        case "count":
            return lambda row: number(int(row.word(int(rest))))
        case "load":
            return lambda row: load(row.word(int(rest)))
        case "label":
            return lambda row: labels.get(row.word(int(rest)), f"`{row.word(int(rest))}`")
        case "note":
            return lambda row: from_note(row, rest)
    return lambda row: formatted(computed(row, kind), rest)


def computed(row: Row, text: str) -> Any:
    """The figure at a path, perhaps multiplied by a constant or divided by another figure."""
    path, times, factor = text.partition("*")
    path, over, divisor = path.partition("/")
    value = figure(row, path)
    if isinstance(value, Mapping):
        return sum(value.values())
    if value is None or not (times or over):
        return value
    return value * float(factor) if times else value / figure(row, divisor)


def formatted(value: Any, form: str) -> str:
    """A figure for people, in this format if there is one."""
    return format(value, form) if form and value is not None else number(value)


def load(word: str) -> str:
    """A load as its row is named: `at5000` updates a second, or `80` percent."""
    return f"{number(int(word[2:]))}/s" if word.startswith("at") else f"{word} %"


def from_note(row: Row, pattern: str) -> str:
    """A number from the note that a benchmark printed beside its figures."""
    match = re.search(pattern, figure(row, "note") or "")
    return number(int(match[1].replace(",", "")) if match else None)


def taken(origins: Iterable[Origin]) -> str:
    """A line for each run that rows are of."""
    runs = []
    for each in dict.fromkeys(origins):
        where = f"{each.date} (UTC) at commit `{each.commit}` by `{each.command}`"
        runs.append(f"Taken {where} on: {each.machine}. {each.remark}".rstrip())
    return runs[0] if len(runs) == 1 else "\n".join(f"- {each}" for each in runs)


def read_tables(path: Path = FILE) -> Iterator[Table]:
    whole = tomllib.loads(path.read_text(encoding="utf-8"))
    shared = whole["columns"]
    for entry in whole["table"]:
        columns = [Column(*(shared[c] if isinstance(c, str) else c)) for c in entry.pop("columns")]
        order = entry.pop("order", entry.get("labels", ()))
        if "brief" in entry:
            entry["brief"] = Brief(**entry["brief"])
        if "lines" in entry:
            entry["spread"] = listed(entry.pop("lines"))
        elif "spread" in entry:
            entry["spread"] = SPREADS[entry["spread"]]
        order = ORDERS[order] if isinstance(order, str) else list(order)
        yield Table(columns=columns, order=order, **entry)


def listed(lines: Mapping[str, Sequence[Sequence[str]]]) -> Callable[[Row], Iterator[Row]]:
    """Makes the lines that are listed for a row's name: what is measured, the path, the unit."""

    def spread(row: Row) -> Iterator[Row]:
        for what, path, unit in lines[row.name]:
            yield Row(what, row.origin, {"value": figure(row, path), "unit": unit})

    return spread


TABLES = tuple(read_tables())
BY_SECTION = {each.section: each for each in TABLES}
