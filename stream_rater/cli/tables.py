"""The tables of `evaluate` and `tune`, and the TOML that `tune` proposes for a ladders file. Each
measure has a row and each configuration a column, so that a table fits into 80 columns."""

import json
import re
import sys
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from importlib.resources import files
from itertools import groupby
from typing import TYPE_CHECKING, Any

import msgspec
from rich.console import Console
from rich.table import Table
from rich.text import Text

from stream_rater.cli.options import table_console
from stream_rater.config.ladders import TEMPLATE, Ladders, Limits
from stream_rater.evaluation import accuracy, tuning
from stream_rater.evaluation.bootstrap import differences
from stream_rater.evaluation.measures import Difference, Evaluation, better
from stream_rater.rating.parameters import RatingConfig

if TYPE_CHECKING:
    from stream_rater.evaluation.proposal import TuningProposal  # it takes long to load

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
ABSENT = "–"  # The cell of a measure without a value.
BARE_KEY = re.compile("[A-Za-z0-9_-]+")  # A key of TOML that needs no quotes.


def show_accuracy(rows: Sequence[Evaluation], *, calibration: bool) -> None:
    """Print each file's accuracy and differences, and if wanted the calibrations."""
    console = table_console()
    for file, group in groupby(rows, lambda row: row.file):
        of_file = list(group)
        console.print(_accuracy_table(file, of_file))
        if any(row.differences for row in of_file):
            console.print(_difference_table(file, of_file))
        if calibration:
            for row in of_file:
                console.print(_calibration_table(row))


def _accuracy_table(file: str, rows: Sequence[Evaluation]) -> Table:
    table = _side_by_side(file, [f"{row.config}\n{row.system}" for row in rows])
    measures = [_measure_cells({name: getattr(row, name) for name in HEADINGS}) for row in rows]
    _of_measures(table, measures).add_section()
    for heading, cells in _scored(rows):
        table.add_row(heading, *cells)
    table.add_row("seconds", *(f"{row.seconds:.2f}" for row in rows))
    table.add_row("rounds a second", *(f"{row.rounds_per_second:,.0f}" for row in rows))
    table.add_row("results a second", *(f"{row.players_per_second:,.0f}" for row in rows))
    return table


def _scored(rows: Sequence[Evaluation]) -> Iterator[tuple[str, list[str]]]:
    """Yield rows of counts: what measures score, and what log loss and Brier score leave out."""
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


def _side_by_side(title: str | Text, headings: Sequence[str]) -> Table:
    table = Table("", title=title)
    for heading in headings:
        table.add_column(heading, justify="right", overflow="fold")
    return table


def _of_measures(table: Table, columns: Sequence[Sequence[str]]) -> Table:
    """Add a row for each measure, with an arrow up if more is better, else down. Measures with the
    same cells, as some have in duels, share a row."""
    rows = dict[tuple[str, ...], list[str]]()
    for name, cells in zip(HEADINGS, zip(*columns, strict=True), strict=True):
        heading = f"{'↑' if better(name) > 0 else '↓'} {HEADINGS[name][0]}"
        known = heading if set(cells) == {ABSENT} else heading[0]
        rows.setdefault((known, *cells), []).append(heading)
    for (_, *of_row), (first, *others) in rows.items():
        table.add_row("\n".join([first, *(f"  = {each[2:]}" for each in others)]), *of_row)
    return table


def _measure_cells(measures: Mapping[str, float | None]) -> list[str]:
    forms = ((measures[name], form) for name, (_, form) in HEADINGS.items())
    return [ABSENT if value is None else form.format(value) for value, form in forms]


def _difference_table(file: str, rows: Sequence[Evaluation]) -> Table:
    first, *others = rows
    title = f"{file}: difference to {first.config}, 95 % interval"
    table = _side_by_side(title, [row.config for row in others])
    gaps = [row.differences or {} for row in others]
    return _of_measures(table, [[_difference(gap.get(name)) for name in HEADINGS] for gap in gaps])


def _calibration_table(row: Evaluation) -> Table:
    table = Table(title=f"{row.file}, {row.config}: sides by their probability to win")
    for heading in ("probability", "sides", "foretold", "won", "95 % interval"):
        table.add_column(heading, justify="right", no_wrap=True)
    for group in row.calibration:
        table.add_row(
            f"{group.low:.0%} to {group.high:.0%}", f"{group.sides:,}", f"{group.foretold:.2%}",
            f"{group.won:.2%}", f"{group.won_low:.2%} to {group.won_high:.2%}",
        )  # fmt: skip
    return table


def _difference(gap: Difference | None) -> str:
    """A difference with its interval, marked as noise if the interval contains 0."""
    if gap is None:
        return ABSENT
    return _interval(gap).replace("[", r"\[") + (" noise" if gap.noise else "")


def _interval(gap: Difference) -> str:
    return f"{gap.mean:+.4f} [{gap.low:+.4f}, {gap.high:+.4f}]"


# --- tune ----------------------------------------------------------------------------------------


def show_proposal(of: str, proposal: "TuningProposal") -> None:
    """Print on standard error the accuracy of the present parameters and of those that were found,
    on both parts; each number that was fitted; the parameters; and the verdict. `of`: what was
    tuned."""
    _on_stderr(_tuning_table(of, proposal))
    if proposal.of is not None:
        _on_stderr(f"compared on the rounds it had not seen: {proposal.of.sentence()}")
    if proposal.at_ends:
        _on_stderr(f"at an end of its range: {', '.join(proposal.at_ends)}: tune on more rounds")
    for name, value, gap, taken in proposal.tested:
        what = "taken" if taken else "left out"
        _on_stderr(f"{name} = {value:g}: {what}, log loss {_interval(gap)} with it")
    if not proposal.worse:
        table = Table(title="present parameters, which stay" if proposal.kept else "parameters")
        for heading in ("parameter", "value", "unit", "meaning"):
            table.add_column(heading, overflow="fold")
        meanings = tomllib.loads((files("stream_rater.evaluation") / "meanings.toml").read_text())
        for name, value in tuning.without_defaults(proposal.rating).items():
            if name in meanings:
                table.add_row(name, Text(str(value)), *meanings[name])
        _on_stderr(table)
    _on_stderr(verdict(proposal))


def _tuning_table(of: str, proposal: "TuningProposal") -> Table:
    """A table with columns for each part and parameters, and for the differences on the second."""
    parts = {"first": slice(0, proposal.first), "second": slice(proposal.first, None)}
    columns = {
        f"{part} part\n{name}": _measure_cells(accuracy.averages(scores[chosen]))
        for part, chosen in parts.items()
        for name, scores in zip(("present", "tuned"), proposal.scores, strict=True)
    }
    base, tuned = (each[proposal.first :] for each in proposal.scores)
    gaps = differences(tuned, base, list(HEADINGS))
    columns["second part\ntuned less present"] = [_difference(gaps[name]) for name in HEADINGS]
    title = Text(f"{of}: {proposal.first:,} rounds to tune on, {proposal.rest:,} to compare on")
    return _of_measures(_side_by_side(title, list(columns)), list(columns.values()))


def verdict(proposal: "TuningProposal") -> str:
    """A line that says whether what was found is better, by how much, and what to do."""
    why = "; ".join(
        f"{each.verdict} in {HEADINGS[each.measure][0]}, {_interval(each.difference)}"
        for each in proposal.compared
    )
    stays = ": what you have stays" if proposal.kept and not proposal.worse else ""
    return f"{proposal.verdict}{stays} ({why})"


def _on_stderr(output: Table | str) -> None:
    if isinstance(output, str):
        print(output, file=sys.stderr)
    else:
        Console(file=sys.stderr, width=None if sys.stderr.isatty() else 160).print(output)


# --- the ladders file ----------------------------------------------------------------------------


def ladders_file_entry(
    ladders: Ladders, ladder: str, rating: RatingConfig, offset: int, *, named: bool
) -> str:
    """The TOML to paste into the ladders file so that a ladder is rated by these parameters: from
    this offset on, or from the first later one that the ladder's changes allow. For another system
    it defines a new ladder. `named`: whether there is a ladders file; if not, the text is a whole
    one."""
    from stream_rater.evaluation.fits import system_of  # `evaluate` does not need it

    present, known = ladders.find(ladder), ladders.ladders.get(ladder)
    assert present is not None
    new = tuning.without_defaults(rating)
    if type(present.rating) is not type(rating):
        return _table(f"[ladders.{_key(f'{ladder}-{system_of(rating)}')}]", rating=new)
    if known is not None:
        at = max(offset, known.offsets[-1] + 1)
        return _table(f"[[ladders.{_key(ladder)}.changes]]", from_offset=at, rating=new)
    limits = {} if present.limits == Limits() else {"limits": msgspec.to_builtins(present.limits)}
    ladder_entry = _table(f"[ladders.{_key(ladder)}]", from_offset=offset, rating=new, **limits)
    if named:
        return ladder_entry
    others = _table(f"[ladders.{_key(TEMPLATE)}]", rating=tuning.without_defaults(present.rating))
    return f"{others}\n{ladder_entry}"


def _table(heading: str, **values: Any) -> str:
    lines = [f"{name} = {_value(value)}" for name, value in values.items()]
    return "\n".join([heading, *lines, ""])


def _key(name: str) -> str:
    return name if BARE_KEY.fullmatch(name) else _value(name)


def _value(value: Any) -> str:
    """A value in one line. It is JSON except for tables."""
    if isinstance(value, dict):
        fields = ", ".join(f"{_key(name)} = {_value(field)}" for name, field in value.items())
        return f"{{ {fields} }}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_value, value))}]"
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
