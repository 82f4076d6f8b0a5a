"""The laboratory's tables, for people: what `evaluate` and `tune` show.

Measures stand below each other and configurations side by side: so a table of a few fits into a
terminal of 80 columns.
"""

import sys
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table
from rich.text import Text

from stream_rater.cli.terminal import tables
from stream_rater.evaluation.accuracy import averages
from stream_rater.evaluation.alike import counted, draws_of
from stream_rater.evaluation.bootstrap import Difference, differences
from stream_rater.evaluation.comparison import Row, outcomes_alike
from stream_rater.evaluation.evaluation import evaluate, trained
from stream_rater.evaluation.measures import MEASURES, better
from stream_rater.evaluation.season import Session
from stream_rater.rating.parameters import RatingConfig
from stream_rater.rating.prediction.wins import ANY

if TYPE_CHECKING:  # `evaluate` needs none of what it takes along
    from stream_rater.evaluation.proposal import Compared

HEADINGS = {
    "pair_inversion": ("pairs in right order", "{:.3f} %"),
    "rank_deviation": ("rank deviation", "{:.3f} %"),
    "pair_inversion_all": ("pairs in right order, all players", "{:.3f} %"),
    "rank_deviation_all": ("rank deviation, all players", "{:.3f} %"),
    "kendall_tau": ("Kendall tau", "{:.4f}"),
    "log_loss": ("log loss", "{:.4f}"),
    "brier": ("Brier score", "{:.4f}"),
    "winner_log_loss": ("log loss of the winner", "{:.4f}"),
    "winner_brier": ("Brier score of the winner", "{:.4f}"),
}
"""How a table shows each measure. The paper's pair inversion is the part of all pairs whose order
was foretold rightly, so that more of it is better."""


def show(rows: Sequence[Row], *, calibration: bool) -> None:
    """Tables on standard output, one for each file, one for its differences, and, if it is asked
    for, one of each row's calibration."""
    console = tables()
    for file, some in groupby(rows, lambda row: row.file):
        of_file = list(some)
        console.print(accuracy_table(file, of_file))
        if any(row.differences for row in of_file):
            console.print(difference_table(file, of_file))
        if calibration:
            for row in of_file:
                console.print(calibration_table(row))


def accuracy_table(file: str, rows: Sequence[Row]) -> Table:
    """A column for each configuration: accuracy, then time."""
    table = _side_by_side(file, [f"{row.config}\n{row.system}" for row in rows])
    measures = [shown({name: getattr(row, name) for name in HEADINGS}) for row in rows]
    for i, (heading, _) in enumerate(HEADINGS.values()):
        table.add_row(heading, *(each[i] for each in measures))
    table.add_section()
    for heading, cells in _scored(rows):
        table.add_row(heading, *cells)
    table.add_row("seconds", *(f"{row.seconds:.2f}" for row in rows))
    table.add_row("rounds a second", *(f"{row.rounds_per_second:,.0f}" for row in rows))
    table.add_row("results a second", *(f"{row.players_per_second:,.0f}" for row in rows))
    return table


def _scored(rows: Sequence[Row]) -> Iterator[tuple[str, list[str]]]:
    """What the measures are of, and what was left out of log loss and Brier score."""
    yield "rounds scored", [f"{row.rounds_scored:,} of {row.rounds:,}" for row in rows]
    yield "pairs scored", [f"{row.pairs_scored:,}" for row in rows]
    for heading, name in (
        ("draws among them", "draws_scored"), ("draws left out", "draws_left_out"),
        ("unfinished pairs left out", "unfinished_left_out"),
    ):  # fmt: skip
        counts = [getattr(row, name) for row in rows]
        if any(counts):
            yield heading, [f"{count:,}" for count in counts]
    yield "winners scored", [f"{row.winners_scored:,}" for row in rows]


def _side_by_side(title: str, headings: Sequence[str]) -> Table:
    table = Table("", title=title)
    for heading in headings:
        table.add_column(heading, justify="right", overflow="fold")
    return table


def shown(measures: Mapping[str, float | None]) -> list[str]:
    """Measures as a table has them."""
    forms = ((measures[name], form) for name, (_, form) in HEADINGS.items())
    return ["–" if value is None else form.format(value) for value, form in forms]


def difference_table(file: str, rows: Sequence[Row]) -> Table:
    """Differences to the first configuration of a file, with intervals; noise is called so."""
    first, *others = rows
    title = f"{file}: difference to {first.config}, 95 % interval"
    table = _side_by_side(title, [row.config for row in others])
    for name, (heading, _) in HEADINGS.items():
        found = ((row.differences or {}).get(name) for row in others)
        table.add_row(heading, *map(told, found))
    return table


def calibration_table(row: Row) -> Table:
    """How often sides won, by their probability to win."""
    table = Table(title=f"{row.file}, {row.config}: sides by their probability to win")
    for heading in ("probability", "sides", "foretold", "won", "95 % interval"):
        table.add_column(heading, justify="right", no_wrap=True)
    for each in row.calibration:
        table.add_row(
            f"{each.low:.0%} to {each.high:.0%}", f"{each.sides:,}", f"{each.foretold:.2%}",
            f"{each.won:.2%}", f"{each.won_low:.2%} to {each.won_high:.2%}",
        )  # fmt: skip
    return table


def told(found: Difference | None) -> str:
    """A difference with its interval, and whether it may be noise."""
    if found is None:
        return "–"
    text = f"{found.mean:+.4f} [{found.low:+.4f}, {found.high:+.4f}]".replace("[", r"\[")
    return text + (" noise" if found.noise else "")


def report_tuning(
    sessions: Sequence[Session], train: float, begin: RatingConfig, found: RatingConfig,
    factor: float, ends: Sequence[str] = (),
) -> None:  # fmt: skip
    """Both configurations on both parts, and the difference on the second, on stderr; and the tuned
    one's variance factor, with what it changes on the second part. `ends`: which parameters ended
    at an end of their range."""
    draws = draws_of((begin, found))
    outcomes = outcomes_alike([evaluate(sessions, each, draws=draws) for each in (begin, found)])
    rounds = len(outcomes[0].scores)
    first = trained(rounds, train)
    columns = {
        f"{part} part\n{name}": shown(averages(outcome.scores[chosen]))
        for part, chosen in (("first", slice(0, first)), ("second", slice(first, None)))
        for name, outcome in zip(("start", "tuned"), outcomes, strict=True)
    }
    base, tuned = (each.scores[first:] for each in outcomes)
    if len(base):
        gaps = differences(tuned, base, MEASURES)
        columns["second part\ntuned less start"] = [told(gaps[name]) for name in HEADINGS]
    table = _side_by_side(f"{rounds} rounds, first {first} to tune", list(columns))
    for i, (heading, _) in enumerate(HEADINGS.values()):
        table.add_row(heading, *(each[i] for each in columns.values()))
    _on_stderr(table)
    if ends:
        _on_stderr(ended(ends))
    _on_stderr(f"on the second part, {counted(tuned, draws=draws).told()}")
    usual, wide = (
        evaluate(sessions, found, variance_factor=each, most_sides=ANY) for each in (1.0, factor)
    )
    losses = (averages(each.scored(train))["winner_log_loss"] for each in (usual, wide))
    of = " to ".join("–" if each is None else f"{each:.4f}" for each in losses)
    _on_stderr(
        f"--variance-factor {factor:.3f} suits it: log loss of the winner on the second part {of}"
    )


def ended(names: Sequence[str]) -> str:
    """What to think of parameters at the end of their ranges."""
    return (
        f"at an end of its range: {', '.join(names)}: compare with the first guess before you use "
        "it, or tune on more rounds"
    )


def report_gain(title: str, compared: Sequence["Compared"]) -> None:
    """Each measure by the present parameters and by the tuned ones, and the gain, on stderr. More
    gain is better, whatever the measure."""
    table = Table("", title=Text(title), title_justify="left")
    for heading in ("now", "tuned", "gain, 95 % interval"):
        table.add_column(heading, justify="right")
    for each in compared:
        heading, form = HEADINGS[each.measure]
        gap = each.difference
        if better(each.measure) < 0:
            gap = Difference(-gap.mean, -gap.high, -gap.low)
        table.add_row(heading, form.format(each.now), form.format(each.tuned), told(gap))
    _on_stderr(table)


def _on_stderr(shown: Table | str) -> None:
    Console(file=sys.stderr, width=None if sys.stderr.isatty() else 160).print(shown)
