"""The tables of `evaluate` and `tune`, and the TOML that `tune` proposes for a ladders file.

Each measure has a row and each configuration a column, so that a table of a few configurations fits
into a terminal of 80 columns.
"""

import json
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any

import msgspec
from rich.console import Console
from rich.table import Table
from rich.text import Text

from stream_rater.cli.options import table_console
from stream_rater.config.ladders import TEMPLATE, Ladders, Limits
from stream_rater.evaluation.bootstrap import Difference
from stream_rater.evaluation.comparison import Row
from stream_rater.evaluation.measures import better
from stream_rater.evaluation.tuning import without_defaults
from stream_rater.rating.parameters import RatingConfig

if TYPE_CHECKING:  # `evaluate` does not need them, and they take long to load
    from stream_rater.evaluation.proposal import Compared, Proposal
    from stream_rater.operations.tune import Report, TunedFile, TunedLadder

HEADINGS = {
    "pair_inversion": ("pairs in right order", "{:.3f} %"),
    "rank_deviation": ("rank deviation", "{:.3f} %"),
    "order": ("order, equal ratings half", "{:.3f} %"),
    "pair_inversion_all": ("pairs in right order, all players", "{:.3f} %"),
    "rank_deviation_all": ("rank deviation, all players", "{:.3f} %"),
    "order_all": ("order, all players", "{:.3f} %"),
    "kendall_tau": ("Kendall tau", "{:.4f}"),
    "log_loss": ("log loss", "{:.4f}"),
    "brier": ("Brier score", "{:.4f}"),
    "winner_log_loss": ("log loss of the winner", "{:.4f}"),
    "winner_brier": ("Brier score of the winner", "{:.4f}"),
}
"""The heading and the format of each measure. The paper's pair inversion is the fraction of all
pairs whose order was predicted correctly, so a larger value is better."""

MEASURE_NAMES = {
    "log_loss": "log loss", "pair_inversion": "order", "pair_inversion_all": "order of all players",
}  # fmt: skip
"""The names of the measures in the verdict on a proposal."""

BARE_KEY = re.compile("[A-Za-z0-9_-]+")
"""A key of TOML that needs no quotes."""


def show_accuracy(rows: Sequence[Row], *, calibration: bool) -> None:
    """Print tables for each file: one of the accuracy, one of the differences, and, if
    `calibration`, one of the calibration of each configuration."""
    console = table_console()
    for file, group in groupby(rows, lambda row: row.file):
        of_file = list(group)
        console.print(accuracy_table(file, of_file))
        if any(row.differences for row in of_file):
            console.print(difference_table(file, of_file))
        if calibration:
            for row in of_file:
                console.print(calibration_table(row))


def accuracy_table(file: str, rows: Sequence[Row]) -> Table:
    """A table of the accuracy and the time, with a column for each configuration."""
    table = _side_by_side(file, [f"{row.config}\n{row.system}" for row in rows])
    measures = [measure_cells({name: getattr(row, name) for name in HEADINGS}) for row in rows]
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
    """Yield rows of counts: what the measures score, and what log loss and Brier score leave
    out."""
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


def measure_cells(measures: Mapping[str, float | None]) -> list[str]:
    """The cells of a column of measures, in the order of HEADINGS."""
    forms = ((measures[name], form) for name, (_, form) in HEADINGS.items())
    return ["–" if value is None else form.format(value) for value, form in forms]


def difference_table(file: str, rows: Sequence[Row]) -> Table:
    """A table of the differences to the first configuration of a file, with their intervals."""
    first, *others = rows
    title = f"{file}: difference to {first.config}, 95 % interval"
    table = _side_by_side(title, [row.config for row in others])
    for name, (heading, _) in HEADINGS.items():
        found = ((row.differences or {}).get(name) for row in others)
        table.add_row(heading, *map(difference_text, found))
    return table


def calibration_table(row: Row) -> Table:
    """A table of how often sides won, by their predicted probability to win."""
    table = Table(title=f"{row.file}, {row.config}: sides by their probability to win")
    for heading in ("probability", "sides", "foretold", "won", "95 % interval"):
        table.add_column(heading, justify="right", no_wrap=True)
    for each in row.calibration:
        table.add_row(
            f"{each.low:.0%} to {each.high:.0%}", f"{each.sides:,}", f"{each.foretold:.2%}",
            f"{each.won:.2%}", f"{each.won_low:.2%} to {each.won_high:.2%}",
        )  # fmt: skip
    return table


def difference_text(found: Difference | None) -> str:
    """A difference with its interval, marked as noise if the interval contains 0."""
    if found is None:
        return "–"
    text = f"{found.mean:+.4f} [{found.low:+.4f}, {found.high:+.4f}]".replace("[", r"\[")
    return text + (" noise" if found.noise else "")


# --- tune: a file --------------------------------------------------------------------------------


def show_tuning(found: "TunedFile") -> None:
    """Print on standard error the accuracy of the first guess and of the tuned parameters on both
    parts of a file, and the parameters of predictions that suit the tuned ones."""
    report = found.report
    _on_stderr(tuning_table(report))
    if found.at_ends:
        _on_stderr(range_end_warning(found.at_ends))
    _on_stderr(found.validated.sentence())
    _on_stderr(f"on the second part, {report.counted.sentence()}")
    factor, width, upset = report.calibration
    predictive = f"variance_factor = {factor:g}, draw_width = {width:g}, upset = {upset:g}"
    losses = " to ".join("–" if each is None else f"{each:.4f}" for each in report.losses)
    _on_stderr(f"{predictive} suit its predictions: log loss on the second part {losses}")


def tuning_table(report: "Report") -> Table:
    """A table with a column for each pair of a part and parameters, and one for the difference on
    the second part."""
    columns = {
        f"{part} part\n{name}": measure_cells(measures)
        for (part, name), measures in report.measures.items()
    }
    if report.differences is not None:
        gaps = (report.differences[name] for name in HEADINGS)
        columns["second part\ntuned less start"] = [difference_text(gap) for gap in gaps]
    title = f"{report.rounds} rounds, first {report.first} to tune"
    table = _side_by_side(title, list(columns))
    for i, (heading, _) in enumerate(HEADINGS.values()):
        table.add_row(heading, *(each[i] for each in columns.values()))
    return table


def range_end_warning(names: Sequence[str]) -> str:
    """The warning about parameters that ended at an end of their range."""
    return (
        f"at an end of its range: {', '.join(names)}: compare with the first guess before you use "
        "it, or tune on more rounds"
    )


# --- tune: a ladder ------------------------------------------------------------------------------


def show_proposal(tuned: "TunedLadder") -> None:
    """Print the gain of the proposed parameters, and the verdict, on standard error."""
    ladder, system, found = tuned.ladder, tuned.system, tuned.proposal
    _on_stderr(gain_table(ladder, system, found))
    if found.of is not None:
        print(found.of.sentence(), file=sys.stderr)
    if found.at_ends:
        print(range_end_warning(found.at_ends), file=sys.stderr)
    print(verdict(found), file=sys.stderr)
    if tuned.another:
        print(
            f"another system is another ladder: {ladder!r} cannot change to {system}: name a new "
            "ladder, and report its rounds there",
            file=sys.stderr,
        )


def gain_table(ladder: str, system: str, found: "Proposal") -> Table:
    """A table of each measure by the present and by the tuned parameters, with the gain. For every
    measure, a larger gain is better."""
    title = (
        f"ladder {ladder!r}, {system}: {found.first:,} rounds to tune on, {found.rest:,} to "
        "compare on"
    )
    table = Table("", title=Text(title), title_justify="left")
    for heading in ("now", "tuned", "gain, 95 % interval"):
        table.add_column(heading, justify="right")
    for each in found.compared:
        table.add_row(*_gain(each))
    return table


def _gain(compared: "Compared") -> tuple[str, str, str, str]:
    heading, form = HEADINGS[compared.measure]
    gap = compared.difference
    if better(compared.measure) < 0:
        gap = Difference(-gap.mean, -gap.high, -gap.low)
    now, tuned = form.format(compared.now), form.format(compared.tuned)
    return heading, now, tuned, difference_text(gap)


def verdict(found: "Proposal") -> str:
    """A line that says whether to adopt the proposed parameters, and why."""
    why = ", ".join(f"{each.verdict} in {MEASURE_NAMES[each.measure]}" for each in found.compared)
    return f"{found.verdict}: {why}"


def _on_stderr(output: Table | str) -> None:
    Console(file=sys.stderr, width=None if sys.stderr.isatty() else 160).print(output)


# --- the ladders file ----------------------------------------------------------------------------


def ladders_file_entry(
    ladders: Ladders, ladder: str, rating: RatingConfig, offset: int, *, named: bool
) -> str:
    """The TOML to paste into the ladders file so that a ladder is rated by these parameters. They
    apply from this offset on, or from the first later offset that the ladder's changes allow. If
    the parameters are of another system, the TOML defines a new ladder.

    `named`: whether there is a ladders file. If not, the text is a whole ladders file.
    """
    from stream_rater.evaluation.present import system_of  # `evaluate` does not need it

    present, known = ladders.find(ladder), ladders.ladders.get(ladder)
    assert present is not None
    new = without_defaults(rating)
    if type(present.rating) is not type(rating):
        return _table(f"[ladders.{_key(f'{ladder}-{system_of(rating)}')}]", rating=new)
    if known is not None:
        at = max(offset, known.offsets[-1] + 1)
        return _table(f"[[ladders.{_key(ladder)}.changes]]", from_offset=at, rating=new)
    limits = {} if present.limits == Limits() else {"limits": msgspec.to_builtins(present.limits)}
    ladder_entry = _table(f"[ladders.{_key(ladder)}]", from_offset=offset, rating=new, **limits)
    if named:
        return ladder_entry
    others = _table(f"[ladders.{_key(TEMPLATE)}]", rating=without_defaults(present.rating))
    return f"{others}\n{ladder_entry}"


def _table(heading: str, **values: Any) -> str:
    return "\n".join([heading, *(f"{name} = {_value(each)}" for name, each in values.items()), ""])


def _key(name: str) -> str:
    return name if BARE_KEY.fullmatch(name) else _value(name)


def _value(value: Any) -> str:
    """A value in one line. It is JSON except for tables."""
    if isinstance(value, dict):
        return (
            f"{{ {', '.join(f'{_key(name)} = {_value(each)}' for name, each in value.items())} }}"
        )
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_value, value))}]"
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
