"""The laboratory's tables, for people: what `evaluate` and `tune` show."""

import sys
from collections.abc import Mapping, Sequence

from rich.console import Console
from rich.table import Table

from stream_rater.lab.accuracy import averages
from stream_rater.lab.bootstrap import Difference, difference
from stream_rater.lab.comparison import Row
from stream_rater.lab.evaluation import evaluate, trained
from stream_rater.lab.measures import MEASURES
from stream_rater.lab.season import Session
from stream_rater.rating.parameters import RatingConfig

HEADINGS = {
    "pair_inversion": ("pair inv.", "{:.3f} %"),
    "rank_deviation": ("rank dev.", "{:.3f} %"),
    "pair_inversion_all": ("(all)", "{:.3f} %"),
    "rank_deviation_all": ("(all)", "{:.3f} %"),
    "kendall_tau": ("Kendall", "{:.4f}"),
    "log_loss": ("log loss", "{:.4f}"),
    "brier": ("Brier", "{:.4f}"),
}
"""How a table shows each measure."""


def show(rows: Sequence[Row]) -> None:
    """Tables on standard output."""
    console = Console(file=sys.stdout, width=None if sys.stdout.isatty() else 160)
    console.print(accuracy_table(rows))
    if any(row.differences for row in rows):
        console.print(difference_table(rows))


def accuracy_table(rows: Sequence[Row]) -> Table:
    """One line a row: accuracy, then time."""
    table = Table("file", "configuration", "system")
    for heading, _ in HEADINGS.values():
        table.add_column(heading, justify="right")
    for heading in ("seconds", "rounds/s", "players/s"):
        table.add_column(heading, justify="right")
    for row in rows:
        measures = shown({name: getattr(row, name) for name in HEADINGS})
        speed = f"{row.rounds_per_second:,.0f}", f"{row.players_per_second:,.0f}"
        table.add_row(row.file, row.config, row.system, *measures, f"{row.seconds:.2f}", *speed)
    return table


def shown(measures: Mapping[str, float | None]) -> list[str]:
    """Measures as a table has them."""
    forms = ((measures[name], form) for name, (_, form) in HEADINGS.items())
    return ["–" if value is None else form.format(value) for value, form in forms]


def difference_table(rows: Sequence[Row]) -> Table:
    """Differences to the first configuration of a file, with intervals; noise is called so."""
    table = Table("file", "configuration", title="difference to the first, 95 % interval")
    for heading, _ in HEADINGS.values():
        table.add_column(heading, justify="right")
    for row in rows:
        if row.differences is not None:
            table.add_row(row.file, row.config, *map(told, row.differences.values()))
    return table


def told(found: Difference | None) -> str:
    """A difference with its interval, and whether it may be noise."""
    if found is None:
        return "–"
    text = f"{found.mean:+.4f}\n[{found.low:+.4f}, {found.high:+.4f}]".replace("[", r"\[")
    return text + ("\nnoise" if found.noise else "")


def report_tuning(
    sessions: Sequence[Session], train: float, begin: RatingConfig, found: RatingConfig
) -> None:
    """Both configurations on both parts, and the difference on the second, on stderr."""
    outcomes = [evaluate(sessions, config) for config in (begin, found)]
    first = trained(len(sessions), train)
    table = Table("part", "configuration", title=f"{len(sessions)} rounds, first {first} to tune")
    for heading, _ in HEADINGS.values():
        table.add_column(heading, justify="right")
    for part, chosen in (("first", slice(0, first)), ("rest", slice(first, None))):
        for name, outcome in zip(("start", "tuned"), outcomes, strict=True):
            measures = averages(outcome.scores[chosen])
            table.add_row(part, name, *shown(measures))
    base, tuned = (each.scores[first:] for each in outcomes)
    if len(base):
        differences = (difference(tuned, base, each) for each in MEASURES)
        table.add_row("rest", "tuned less start", *map(told, differences))
    Console(file=sys.stderr, width=None if sys.stderr.isatty() else 160).print(table)
