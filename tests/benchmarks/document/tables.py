"""One renderer for all tables: `tables.toml` says which rows and columns a table has.

A table has a `section` (its marker in the page), the `command` that measures it, and `names`, a
regular expression of its rows' names. Words of names are sorted as in `order`, else as in `labels`.
`spread` names one of SPREADS, which makes several lines of a row; `lines` lists such lines. `sum`
names one of SUMS, which makes lines of all rows. `brief` selects columns and rows for the short
table. A cell is one of these:

- `date`, `name`: the row's; `note:PATTERN`: a number from the note that the benchmark printed.
- `word:N`, `count:N`, `load:N`, `label:N`: the name's Nth word, as code, as a number, as a load,
  or as `labels` translates it.
- a path in the printed object, such as `ratio.redis_us`; with `*1000` or `/path` it is multiplied
  or divided, with `:.4f` it is formatted so.
"""

import re
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

from stream_rater.evaluation.bootstrap import VERDICTS, verdict
from stream_rater.evaluation.fits import LOG_LOSS
from stream_rater.evaluation.measures import Difference
from tests.benchmarks.document.rows import MISSING, Figures, Origin, Row, figure, number
from tests.benchmarks.lab import games
from tests.benchmarks.lab.games import BARE, CANDIDATES, CASES, COMPARED
from tests.benchmarks.lab.peers import SPACES
from tests.benchmarks.lab.rows import EDGES
from tests.benchmarks.stream.rounds import WORKLOADS
from tests.simulation.faults import KINDS

ALL_ELSE = "everything else, the Kafka client's threads among it"
WELL = 0.02  # The goal for calibration errors.
SIMULATED = {  # What a line of the simulation's table counts, by its field in the JSON object.
    "seeds": "seeds, each a simulation of its own",
    "violations": "seeds with a wrong rating, an event lost, doubled or out of order, or a round"
    " that is never rated",
    "mutants": "mutants: the protocol with one rule left out",
    "caught": "mutants caught by a scenario written for them",
    "caught_by_seeds": "mutants caught by random seeds, too",
}


def verdicts(row: Row) -> Iterator[Row]:
    """One line a game: ours, and differences to each peer in log loss."""
    ratio, found = row.figures["ratio"], dict[str, Any]()
    for peer in SPACES:
        edges = [ratio.get(f"{peer} {LOG_LOSS} {LOG_LOSS} {edge}") for edge in EDGES]
        if None not in edges:
            gap = Difference(*edges)
            text = f"{gap.mean:+.3g} [{gap.low:+.3g}, {gap.high:+.3g}]"
            found[f"{LOG_LOSS} {peer}"] = {"better": text, "worse": f"**{text}**"}.get(
                verdict(LOG_LOSS, gap), f"*{text}*"
            )
        if (seconds := ratio.get(f"{peer} not_finished")) is not None:
            found[f"{LOG_LOSS} {peer}"] = f"not finished in {seconds:,.0f} s"
    own = {key: ratio.get(f"{_ours(row)} {key}") for key in (LOG_LOSS, "calibration_error")}
    counts = "+{} ={} -{}".format(*_counts(row, _ours(row)))
    yield _line(
        row, game=_game(row), part=_part(row), counts=counts,
        note=row.figures["note"], draws=ratio.get("draws"), best=_best(row), **own, **found,
    )  # fmt: skip


def _best(row: Row) -> str:
    """The system with the least log loss on a game; if it is not ours, with its lead."""
    losses = {
        key.removesuffix(f" {LOG_LOSS}"): loss
        for key, loss in row.figures["ratio"].items()
        if key.endswith(f" {LOG_LOSS}") and len(key.split()) == 2
    }
    best = min(losses, key=lambda system: losses[system], default=_ours(row))
    if best == _ours(row):
        return best
    return f"{best}, by {losses[_ours(row)] - losses[best]:.4f}"


def _counts(row: Row, of: str) -> list[int]:
    """How many comparisons of a system, or of its `system case measure`, have each verdict."""
    names = (f"{of} {each.replace(' ', '_')}" for each in VERDICTS)
    return [int(row.figures["ratio"].get(each, 0)) for each in names]


def systems(row: Row) -> Iterator[Row]:
    ratio: dict[str, Any] = row.figures["ratio"]
    for system in dict.fromkeys(key.split()[0] for key in ratio if key.endswith(" us_update")):
        own = {key.split()[1]: value for key, value in ratio.items()
               if key.split()[0] == system and len(key.split()) == 2}  # fmt: skip
        counts = _counts(row, system)
        own["counts"] = "+{} ={} -{}".format(*counts) if any(counts) else None
        name = f"**{system}**" if system == _ours(row) else system
        yield _line(row, game=_game(row), system=name, note=row.figures["note"], **own)


def goal(rows: Sequence[Row]) -> Iterator[Row]:
    """The counts of all games, apart by the part that their files had in choosing our systems."""
    parts = [(_part(row), row) for row in rows]
    for part in sorted({part for part, _ in parts}, key=lambda each: (BARE in each, each)):
        yield from _counted([row for its, row in parts if its == part], part=part)


def goal_games(row: Row) -> Iterator[Row]:
    yield from _counted([row], game=_game(row), part=_part(row))


def _counted(rows: Sequence[Row], **words: str) -> Iterator[Row]:
    """A line for each of CANDIDATES: its verdicts in each case, as `raw-tuned order`; calibration
    errors, or on how many games they are within WELL, and the largest."""
    for ours in CANDIDATES:
        ratios = [row.figures["ratio"] for row in rows]
        played = [each for each in ratios if f"{ours} raw_error" in each]
        found: dict[str, Any] = {"games": len(played), "ours": f"`{ours}`", **words}
        for case in (f"{case} {measure}" for case, measure in product(CASES, COMPARED)):
            counts = [_counts(row, f"{ours} {case}") for row in rows]
            found[case] = "+{} ={} -{}".format(*map(sum, zip(*counts, strict=True)))
        for kind in ("raw", "calibrated", "calibration", "chance"):
            errors = [each[f"{ours} {kind}_error"] for each in played]
            found[kind] = f"{max(errors, default=0.0):.3f}"
            if len(rows) > 1:
                within = sum(each <= WELL for each in errors)
                found[kind] = f"{within} of {len(errors)}, at most {found[kind]}"
        if played:
            yield _line(rows[0], **found)


def goal_worse(row: Row) -> Iterator[Row]:
    """A line for each of CANDIDATES that a peer beats: by which peers in each case, and by how
    much."""
    ratio = row.figures["ratio"]
    for ours in CANDIDATES:
        found = dict[str, Any]()
        for case in (f"{case} {measure}" for case, measure in product(CASES, COMPARED)):
            gaps = ((peer, ratio.get(f"{ours} {case} {peer} mean")) for peer in SPACES)
            said = [f"{peer} {gap:+.2g}" for peer, gap in gaps if gap is not None]
            if said and not case.startswith("raw"):
                found[case] = ", ".join(said)
        if found:
            yield _line(row, game=_game(row), part=_part(row), ours=f"`{ours}`", **found)


def _part(row: Row) -> str:
    file, cut = [*row.name.split("/")[1:], ""][:2]
    return games.part_of(file, cut.replace("-", " "))


def named(row: Row) -> Iterator[Row]:
    """One line for each name that figures have; a key's last word says which figure it is."""
    found = dict[str, dict[str, Any]]()
    for key, value in row.figures["ratio"].items():
        name, _, figure_of_it = key.rpartition(" ")
        found.setdefault(name, {})[figure_of_it] = value
    for name, own in found.items():
        yield _line(row, line=name, **own)


def ablation(row: Row) -> Iterator[Row]:
    gap = Difference(row.figures["value"], *(row.figures["ratio"][e] for e in ("low", "high")))
    text = f"{gap.mean:+.2g} [{gap.low:+.2g}, {gap.high:+.2g}]"
    if gap.noise:
        text = f"*{text}*"
    elif gap.mean < 0.0:
        text = f"**{text}**"
    yield _line(row, ablated=row.figures["note"], ablation_gain=text)


def _game(row: Row) -> str:
    file, *cut = row.name.split("/")[1:]
    return f"`{file}`" + "".join(f", {each.replace('-', ' ')}" for each in cut)


def _ours(row: Row) -> str:
    return str(row.figures["note"]).removeprefix("ours: ").split(";")[0]


def steps(row: Row) -> Iterator[Row]:
    """One line for each step, and one for the time outside of all steps."""
    release = "before" if row.name.endswith("/before") else "this"
    spent = row.figures["ratio"]
    rest = float(figure(row, "value") or 0.0) - sum(spent.values())
    for step, used in (*spent.items(), (ALL_ELSE, rest)):
        yield _line(row, release=release, step=step, us=used)


def growth(row: Row) -> Iterator[Row]:
    """One line for each number of updates at which memory was measured."""
    for key, value in row.figures["ratio"].items():
        if match := re.fullmatch(r"MiB_at_(\d+)", key):
            yield _line(row, updates=int(match[1]), mib=value)


def simulated(row: Row) -> Iterator[Row]:
    for what, times in counted(row.figures):
        yield Row(what, row.origin, {"times": times})


def counted(figures: Figures) -> Iterator[tuple[str, Any]]:
    """The lines of the simulation's table: what is counted, how many."""
    yield from ((what, figures[name]) for name, what in SIMULATED.items() if name in figures)
    faults = figures["faults"]
    yield from ((what, faults[kind]) for kind, what in KINDS.items() if kind in faults)


def checks(row: Row) -> Iterator[Row]:
    """One line for each check of the image, of compose or of Kubernetes."""
    for each in row.figures["rows"]:
        yield _line(row, **{**each, "seen": str(each["seen"]).replace("|", "/")})


def _line(row: Row, **figures: Any) -> Row:
    return Row(row.name, row.origin, figures)


SPREADS: Mapping[str, Callable[[Row], Iterator[Row]]] = {
    each.__name__: each
    for each in (verdicts, systems, named, goal_games, goal_worse, ablation, steps, growth,
                 simulated, checks)
}  # fmt: skip
SUMS: Mapping[str, Callable[[Sequence[Row]], Iterable[Row]]] = {"goal": goal}

# --- rows that make several lines -----------------------------------------------------------------

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
    ours: str = ""  # Only lines about this system of ours; empty: all.


@dataclass(frozen=True, kw_only=True)
class Table:
    section: str
    command: str
    names: str  # A regular expression that the names of its rows match.
    columns: Sequence[Column]
    labels: Mapping[str, str] = field(default_factory=dict)  # Text for words of names.
    order: Sequence[str] = ()  # Words of names, in the order of their rows; others keep the file's.
    spread: Callable[[Row], Iterable[Row]] = lambda row: [row]
    """Returns the lines that one row makes."""
    sum: Callable[[Sequence[Row]], Iterable[Row]] | None = None
    """Returns the lines that all rows make together, in place of `spread`."""
    brief: Brief | None = None

    def rows(self, rows: Iterable[Row]) -> list[Row]:
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
        return f"{taken(row.origin for row in own)}\n\n{self.explained(own)}\n"

    def explained(self, rows: Iterable[Row]) -> str:
        """How to read columns, and the table without empty columns."""
        columns, text = self._grid(self.columns, self.rows(rows))
        meanings = "\n".join(f"- **{each.heading}**: {each.meaning}" for each in columns)
        return f"{meanings}\n\n{text}".lstrip()

    def brief_markdown(self, rows: Iterable[Row]) -> str:
        """The short table, without explanations."""
        assert self.brief is not None, f"{self.section} has no short form"
        chosen = [each for each in self.columns if each.heading in self.brief.columns]
        own = [row for row in self.rows(rows) if re.fullmatch(self.brief.names, row.name)]
        if not own:
            return f"Not measured: `{self.command}`.\n"
        return self._grid(chosen, own, self.brief.ours)[1] + "\n"

    def _grid(
        self, columns: Iterable[Column], own: Sequence[Row], ours: str = ""
    ) -> tuple[list[Column], str]:
        """The columns that have a figure, and the Markdown of the table."""
        each = (line for row in own for line in self.spread(row))
        lines = list(each if self.sum is None else self.sum(own))
        lines = [line for line in lines if ours in str(line.figures.get("ours", ours))]
        filled = [(each, self._cells(each, lines)) for each in columns]
        filled = [(each, cells) for each, cells in filled if any(c != MISSING for c in cells)]
        if not filled:
            return [], "None."
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
        if "sum" in entry:
            entry["sum"] = SUMS[entry["sum"]]
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
