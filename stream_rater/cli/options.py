"""Code that several commands share: types of arguments, options, one-line errors, and tables."""

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from stream_rater.config import errors, files
from stream_rater.config.settings import PREFIX, Settings
from stream_rater.tables.reading import SCORES, Reading, parse_columns, parse_result, parse_skip

if TYPE_CHECKING:  # it takes longer to load than `--help` should take
    from rich.console import Console
    from rich.table import Table

EXISTING_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)
CONFIGURATION = click.Path(dir_okay=False, path_type=Path)  # A file, or the name of a system.
INPUT = click.Path(exists=True, dir_okay=False, allow_dash=True, path_type=Path)
OUTPUT = click.Path(dir_okay=False, allow_dash=True, path_type=Path)
NEW_FILE = click.Path(dir_okay=False, path_type=Path)
COUNT = click.IntRange(min=1)
POSITIVE = click.FloatRange(min=0.0, min_open=True)
FRACTION = click.FloatRange(min=0.0, max=1.0, max_open=True)
SHARE = click.FloatRange(min=0.0, max=1.0, min_open=True)

PACKAGE_EXTRAS = {
    "confluent_kafka": "service", "prometheus_client": "service", "redis": "service",
    "structlog": "service", "httptools": "service", "uvicorn": "service", "lmdb": "serve",
    "starlette": "serve",
}  # fmt: skip
"""By package, the extra of stream-rater that installs it."""
OF_SERVE = "serve", "standalone"  # The commands that need the extra `serve`.
Command = Callable[..., Any]


def one_line_errors(command: Command) -> Command:
    """Wrap a command so that an error is one line on standard error. The exit code is 2 for
    BadConfiguration, 4 for NotYetKnown, and 1 for Failed or a missing package of an extra."""

    def end(text: object, code: int) -> None:
        click.echo(f"stream-rater: {text}", err=True)
        sys.exit(code)

    @wraps(command)
    def run(*args: Any, **kwargs: Any) -> None:
        try:
            command(*args, **kwargs)
            sys.stdout.flush()
        except errors.BadConfiguration as error:
            end(error, 2)
        except errors.Failed as error:
            end(error, 4 if isinstance(error, errors.NotYetKnown) else 1)
        except ModuleNotFoundError as error:
            if (extra := PACKAGE_EXTRAS.get(error.name or "")) is None:
                raise
            extra = "serve" if command.__name__ in OF_SERVE else extra
            end(errors.missing(error.name or "", extra), 1)

    return run


def with_options(command: Command, options: Iterable[Callable[[Command], Command]]) -> Command:
    """Add options to a command. `--help` shows them in this order."""
    for option in reversed([*options]):
        command = option(command)
    return command


def _gathered(
    name: str, make: Callable[..., object], *options: Callable[[Command], Command]
) -> Callable[[Command], Command]:
    """A decorator that adds options to a command. The command gets, as the argument `name`, the
    result of `make` for their values."""
    added: Any = with_options(lambda: None, options)
    given = [each.name for each in added.__click_params__ if each.expose_value]

    def add(command: Command) -> Command:
        @one_line_errors
        @wraps(command)
        def run(*args: Any, **kwargs: Any) -> None:
            kwargs[name] = make(**{each: kwargs.pop(each) for each in given})
            command(*args, **kwargs)

        return with_options(run, options)

    return add


def only_with(option: str, others: Mapping[str, object]) -> None:
    """Raise BadConfiguration if one of `others` is given: they need `option`, which is absent."""
    for name, value in others.items():
        if value is not None:
            raise errors.BadConfiguration(f"{name} is for {option}: add it, or leave {name} out")


# --- settings ------------------------------------------------------------------------------------

SETTINGS = click.option(
    "--settings", "settings_path", type=EXISTING_FILE, help="TOML file; STREAM_RATER_* override it."
)
DATA = click.option(
    "--data", type=NEW_FILE, help="A data file of `standalone`, in place of Kafka and Redis."
)
"""The option of commands that work on a data file, too."""


def settings_of(settings_path: Path | None, data: Path | None = None) -> Settings:
    """The settings of this file and the environment, with `--data`. Sets the log's level, too."""
    from stream_rater.runtime import log

    settings = files.read_settings(settings_path)
    if data is not None:
        settings = msgspec.structs.replace(settings, data=str(data))
    log.configure(settings.log_level)
    return settings


def check_servers(settings: Settings, command: str) -> None:
    """Raise BadConfiguration if these settings name a data file."""
    if settings.data:
        raise errors.BadConfiguration(
            f"{command}: not for data files yet ({settings.data}): leave {PREFIX}DATA out to use "
            "Kafka and Redis"
        )


with_settings = _gathered("settings", settings_of, SETTINGS)
with_data = _gathered("settings", settings_of, DATA, SETTINGS)

# --- other options -------------------------------------------------------------------------------

CORES = click.option("--cores", type=COUNT, help="How many cores to use; all, if this is left out.")
WAIT = click.option(
    "--wait", "wait_s", default=60.0, show_default=True,
    help="Seconds to wait for the workers to catch up.",
)  # fmt: skip
FORMAT = click.option("--format", "form", type=click.Choice(["table", "json"]), default="table")
VARIANCE_FACTOR = click.option(
    "--variance-factor", "factor", type=POSITIVE, default=1.0, show_default=True,
    help="Multiplies the variance of a side's performance.",
)  # fmt: skip


def _span(**given: Any) -> object:
    from stream_rater.operations.follow import FollowedSpan

    return FollowedSpan(**given)


following = _gathered(
    "span", _span,
    click.option("--from-start", is_flag=True, help="From the first that is kept, not from now."),
    click.option(
        "--count", type=COUNT, help="Stop after so many lines; with --wait, fewer are a failure."
    ),
    click.option(
        "--wait", "wait_s", type=POSITIVE, help="Stop when nothing has come for so many seconds."
    ),
)  # fmt: skip
"""The options of commands that follow a topic."""

COLUMNS = click.option(
    "--columns", multiple=True, metavar="ROLE=COLUMN,...",
    help="Of a table: what its columns are, if their names do not say it.",
)  # fmt: skip
DECIMAL = click.option(
    "--decimal", type=click.Choice([".", ","]), help="Of a table: the sign before decimals."
)
ENCODING = click.option("--encoding", help="Of a table: that of a CSV file, such as cp1252.")
_READING = (
    COLUMNS,
    DECIMAL,
    ENCODING,
    click.option(
        "--score", type=click.Choice(SCORES),
        help="Of a table: whether a high or a low score is better.",
    ),
    click.option(
        "--dates", type=click.Choice(["dmy", "mdy", "ymd", "s", "ms"]),
        help="Of a table: the order of day, month and year, or the unit of times.",
    ),
    click.option(
        "--result", multiple=True, metavar="TEXT=MEANING,...",
        help="Of a table: which texts of results and ranks are win, loss, draw, dnf or skip.",
    ),
    click.option(
        "--team", multiple=True, metavar="COLUMN+...",
        help="Of a table: the columns of the members of a side; once for each side.",
    ),
    click.option(
        "--members", metavar="SIGN",
        help="Of a table: what separates the members of a team in a cell; whole: a cell has one.",
    ),
    click.option(
        "--skip", multiple=True, metavar="COLUMN=TEXT", help="Of a table: rows to leave out."
    ),
    click.option("--neutral", help="Of a table: the column that says that nobody is at home."),
)  # fmt: skip


def _reading(columns: Any, result: Any, skip: Any, ladder: str = "", **others: Any) -> Reading:
    given: dict[str, Any] = {name: value or "" for name, value in others.items()}
    reading = Reading(
        parse_columns(columns), **given, result=parse_result(result), skip=parse_skip(skip)
    )
    return reading.checked()._replace(ladder=ladder)


def of_tables(reading: Reading) -> dict[str, Any]:
    """What is said about a table, for `only_with`."""
    return {"what a table needs": reading.given or None}


def _where(workers: int | None, executor: str) -> object:
    from stream_rater.runtime.trials import parse_executor

    return parse_executor(executor, workers)


reading_options = _gathered("reading", _reading, *_READING)
"""The options that say how a table is to be read."""
table_options = _gathered(
    "reading", _reading,
    click.option(
        "--ladder", default="",
        help="Of a table: the ladder of its rounds; otherwise a column, or the file's name.",
    ),
    *_READING,
)  # fmt: skip
trial_options = _gathered(
    "where", _where,
    click.option(
        "--workers", type=COUNT, show_default="cores", help="Processes that do the trials."
    ),
    click.option(
        "--executor", default="processes", show_default=True, metavar="WHERE",
        help="What does the trials: processes, processes:N, or a Dask cluster, dask://HOST:PORT.",
    ),
)  # fmt: skip


# --- tables --------------------------------------------------------------------------------------


def table_console() -> "Console":
    """Standard output for tables: as wide as the terminal, or 160 columns without one. Raises
    BrokenPipeError if its reader has ended; rich would end the process by itself."""
    from rich.console import Console

    class Output(Console):
        def on_broken_pipe(self) -> None:
            raise BrokenPipeError

    return Output(file=sys.stdout, width=None if sys.stdout.isatty() else 160)


def table(title: str, headings: Sequence[str], rows: Iterable[Sequence[str]]) -> "Table":
    """A table whose rows are a name and numbers. Title and names are shown as plain text."""
    from rich.table import Table
    from rich.text import Text

    found = Table(title=Text(title), title_justify="left")
    found.add_column(headings[0], overflow="fold")
    for heading in headings[1:]:
        found.add_column(heading, justify="right", no_wrap=True)
    for name, *numbers in rows:
        found.add_row(Text(name), *numbers)
    return found
