"""What the laboratory's commands do, once their words are understood (`cli`)."""

import sys
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from time import perf_counter
from typing import Any

import msgspec
from rich.console import Console
from rich.table import Table

from stream_rater.config import Settings
from stream_rater.lab.accuracy import averages
from stream_rater.lab.bootstrap import Difference, difference
from stream_rater.lab.evaluation import Outcome, evaluate, trained
from stream_rater.lab.lines import read_lines
from stream_rater.lab.measures import MEASURES
from stream_rater.lab.offline import records_of
from stream_rater.lab.season import Session, sessions_of
from stream_rater.lab.spaces import SPACES
from stream_rater.lab.tuning import MissingExtra, Problem, tune
from stream_rater.lab.tuning import told as told_config
from stream_rater.rating.parameters import RatingConfig
from stream_rater.terminal import Failed, Mistakes, progress, track

Named = tuple[str, RatingConfig]
"""A configuration and what it is called."""


class Row(msgspec.Struct, kw_only=True):
    """One configuration on one file, as `evaluate --format json` writes it.

    Measures are None where no round was scored. Times are those of this configuration alone.
    """

    file: str
    config: str
    system: str
    rounds: int
    scored_rounds: int
    players: int
    """Of all rounds together: players times rounds."""
    pair_inversion: float | None
    rank_deviation: float | None
    pair_inversion_all: float | None
    rank_deviation_all: float | None
    kendall_tau: float | None
    log_loss: float | None
    brier: float | None
    seconds: float
    """Reading, rating and scoring."""
    rating_seconds: float
    rounds_per_second: float
    players_per_second: float
    differences: dict[str, Difference | None] | None = None
    """To the first configuration on the same file, by measure; None for the first one itself."""


@contextmanager
def named_failures() -> Iterator[None]:
    """A file that cannot be read or written fails in one line."""
    try:
        yield
    except (OSError, EOFError, zlib.error) as error:
        raise Failed(str(error)) from None


def read_sessions(lines: Iterable[bytes], mistakes: Mistakes) -> Iterator[Session]:
    """The valid rounds of a file; the others go to `mistakes`."""
    records = track(records_of(lines), mistakes.path.name)
    return sessions_of(records, Settings().duplicate_window, mistakes.add)


def evaluate_files(
    files: Sequence[tuple[Path, Iterable[bytes]]],
    configs: Sequence[Named],
    train: float,
    *,
    as_json: bool,
) -> None:
    """`evaluate`: each configuration on each file, in a table or as JSON."""
    rows, every = [], []
    for path, lines in files:
        mistakes = Mistakes(path)
        every.append(mistakes)
        with named_failures():
            rows += _rows(lines, configs, train, mistakes)
    if as_json:
        print(msgspec.json.encode(rows).decode())
    else:
        show(rows)
    for mistakes in every:
        mistakes.conclude()


def _rows(
    lines: Iterable[bytes], configs: Sequence[Named], train: float, mistakes: Mistakes
) -> list[Row]:
    began_s, reading_s = perf_counter(), 0.0
    alone = len(configs) == 1
    sessions: Iterable[Session] = read_sessions(lines, mistakes)
    if not alone:
        sessions = list(sessions)
        reading_s = perf_counter() - began_s
    rows: list[Row] = []
    base: Outcome | None = None
    for name, config in configs:
        outcome = evaluate(sessions, config, threads=alone)
        rows.append(_row(mistakes.path, name, outcome, train, reading_s))
        if base is not None:
            pair = outcome.scored(train), base.scored(train)
            rows[-1].differences = {each: difference(*pair, each) for each in MEASURES}
        base = base or outcome
    return rows


def _row(path: Path, name: str, outcome: Outcome, train: float, reading_s: float) -> Row:
    scored = outcome.scored(train)
    seconds = outcome.seconds + reading_s
    measures: dict[str, Any] = averages(scored)
    return Row(
        file=path.name,
        config=name,
        system=str(outcome.config.__struct_config__.tag),
        rounds=len(outcome.scores),
        scored_rounds=len(scored),
        players=int(outcome.players.sum()),
        seconds=seconds,
        rating_seconds=outcome.rating_s,
        rounds_per_second=len(outcome.scores) / seconds,
        players_per_second=float(outcome.players.sum()) / seconds,
        **measures,
    )


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


# --- tune ---------------------------------------------------------------------------------------


def tune_file(
    path: Path, system: str, measure: str, out: Path | None, *, train: float, trials: int,
    workers: int,
) -> None:  # fmt: skip
    """`tune`: search on the first part of a file, report both parts, write the configuration."""
    mistakes = Mistakes(path)
    with named_failures():
        sessions = list(read_sessions(read_lines(path), mistakes))
    first = sessions[: trained(len(sessions), train)]
    problem = Problem(system, SPACES[system], measure, first)
    begin = problem.config(problem.start())
    if averages(evaluate(first, begin).scores)[measure] is None:
        raise Failed(f"{path}: {len(first)} rounds to tune on say nothing about {measure}")
    found = search(problem, trials, workers)
    report_tuning(sessions, train, begin, found)
    written = msgspec.json.format(msgspec.json.encode(told_config(found)))
    with named_failures():
        if out is None:
            print(written.decode())
        else:
            out.write_bytes(written + b"\n")
    mistakes.conclude()


def search(problem: Problem, trials: int, workers: int) -> RatingConfig:
    """`tune` with a progress bar."""
    with progress() as bar:
        task = bar.add_task(f"tuning {problem.system}", total=trials)
        try:
            return tune(problem, trials, workers, lambda: bar.advance(task))
        except MissingExtra as error:
            raise Failed(str(error)) from None


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
