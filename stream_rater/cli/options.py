"""Code that several commands share: types of arguments, options, errors in one line, a console."""

import sys
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from stream_rater.config.errors import BadConfiguration, Failed
from stream_rater.config.files import read_settings
from stream_rater.config.settings import PREFIX, Settings
from stream_rater.tables.reading import SCORES, Reading, parse_columns, parse_result, parse_skip

if TYPE_CHECKING:  # it takes longer to load than `--help` should take
    from rich.console import Console

EXISTING_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)
INPUT = click.Path(exists=True, dir_okay=False, allow_dash=True, path_type=Path)
FOLDER = click.Path(exists=True, file_okay=False, path_type=Path)
NEW_FILE = click.Path(dir_okay=False, path_type=Path)
COUNT = click.IntRange(min=1)
POSITIVE = click.FloatRange(min=0.0, min_open=True)
FRACTION = click.FloatRange(min=0.0, max=1.0, max_open=True)

PACKAGE_EXTRAS = {
    "confluent_kafka": "service",
    "prometheus_client": "service",
    "redis": "service",
    "structlog": "service",
    "httptools": "service",
    "uvicorn": "service",
    "starlette": "serve",
}
"""By package, the extra of stream-rater that installs it."""

Command = Callable[..., Any]

SHARE = click.FloatRange(min=0.0, max=1.0, min_open=True)
CORES = click.option("--cores", type=COUNT, help="How many cores to use; all, if this is left out.")


def one_line_errors(command: Command) -> Command:
    """Wrap a command so that an error is one line on standard error. The exit code is 2 for
    BadConfiguration, and 1 for Failed or a package that an extra would install."""

    @wraps(command)
    def run(*args: Any, **kwargs: Any) -> None:
        try:
            command(*args, **kwargs)
            sys.stdout.flush()
        except BadConfiguration as error:
            click.echo(f"stream-rater: {error}", err=True)
            sys.exit(2)
        except Failed as error:
            click.echo(f"stream-rater: {error}", err=True)
            sys.exit(1)
        except ModuleNotFoundError as error:
            if (extra := PACKAGE_EXTRAS.get(error.name or "")) is None:
                raise
            why = f"{error.name} is not installed: stream-rater[{extra}] brings it"
            click.echo(f"stream-rater: {why}", err=True)
            sys.exit(1)

    return run


def settings_of(path: Path | None) -> Settings:
    """The settings in this file and the environment, with `--data`. Sets the level of the log,
    too."""
    from stream_rater.runtime import log

    settings = read_settings(path)
    if data := given_data():
        settings = msgspec.structs.replace(settings, data=data)
    log.configure(settings.log_level)
    return settings


def servers_of(path: Path | None, command: str) -> Settings:
    """The settings for a command that needs Kafka and Redis. Raises BadConfiguration if they name a
    data file."""
    settings = settings_of(path)
    if settings.data:
        raise BadConfiguration(
            f"{command}: not for data files yet ({settings.data}): leave {PREFIX}DATA out to use "
            "Kafka and Redis"
        )
    return settings


def given_data() -> str:
    """The file that `--data` of the present command names; empty if it names none."""
    context = click.get_current_context(silent=True)
    return "" if context is None else str(context.meta.get(_DATA, ""))


def following(command: Command) -> Command:
    """Add the options of commands that follow a topic to a command."""
    for option in (
        click.option("--wait", "wait_s", type=POSITIVE,
                     help="Stop when nothing has come for so many seconds."),
        click.option("--count", type=COUNT,
                     help="Stop after so many lines; with --wait, fewer are a failure."),
        click.option("--from-start", is_flag=True,
                     help="From the first that is kept, not from now."),
    ):  # fmt: skip
        command = option(command)
    return command


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
        "--skip", multiple=True, metavar="COLUMN=TEXT", help="Of a table: rows to leave out."
    ),
    click.option("--neutral", help="Of a table: the column that says that nobody is at home."),
)  # fmt: skip


def reading_options(command: Command) -> Command:
    """Add the options that say how a table is to be read to a command. It gets them as
    `reading`."""

    @wraps(command)
    @one_line_errors
    def run(*args: Any, columns: Any, result: Any, skip: Any, **kwargs: Any) -> None:
        names = ("score", "dates", "decimal", "encoding", "team", "neutral")
        others: dict[str, Any] = {name: kwargs.pop(name) or "" for name in names}
        reading = Reading(parse_columns(columns), **others, result=parse_result(result),
                          skip=parse_skip(skip))  # fmt: skip
        command(*args, reading=reading.checked(), **kwargs)

    for option in reversed(_READING):
        run = option(run)
    return run


def table_options(command: Command) -> Command:
    """Add the options that say how a table is to be read, and `--ladder`, to a command."""

    @click.option(
        "--ladder", default="",
        help="Of a table: the ladder of its rounds; otherwise a column, or the file's name.",
    )  # fmt: skip
    @reading_options
    @wraps(command)
    def run(*args: Any, reading: Reading, ladder: str, **kwargs: Any) -> None:
        command(*args, reading=reading._replace(ladder=ladder), **kwargs)

    return run


def trial_options(command: Command) -> Command:
    """Add the options that say where trials run to a command. It gets them as `where`."""

    @click.option(
        "--workers", type=COUNT, show_default="cores", help="Processes that do the trials."
    )
    @click.option(
        "--executor", default="processes", show_default=True, metavar="WHERE",
        help="What does the trials: processes, processes:N, or a Dask cluster, dask://HOST:PORT.",
    )  # fmt: skip
    @wraps(command)
    @one_line_errors
    def run(*args: Any, workers: int | None, executor: str, **kwargs: Any) -> None:
        from stream_rater.runtime.trials import parse_executor

        command(*args, where=parse_executor(executor, workers), **kwargs)

    return run


SETTINGS = click.option(
    "--settings", "settings_path", type=EXISTING_FILE, help="TOML file; STREAM_RATER_* override it."
)

_DATA = "stream_rater.data"
"""The key of the file that `--data` names, in the context of a command."""


def _store_data(context: click.Context, _: click.Parameter, value: Path | None) -> None:
    if value is not None:
        context.meta[_DATA] = str(value)


DATA = click.option(
    "--data", type=NEW_FILE, callback=_store_data, expose_value=False,
    help="A data file of `standalone`, in place of Kafka and Redis.",
)  # fmt: skip
"""The option of commands that work on a data file, too. `settings_of` reads it."""


def table_console() -> "Console":
    """Standard output for tables: as wide as the terminal, or 160 columns without one.

    Raises BrokenPipeError if the reader of the output has ended. Without this, rich would end the
    process by itself.
    """
    from rich.console import Console

    class Output(Console):
        def on_broken_pipe(self) -> None:
            raise BrokenPipeError

    return Output(file=sys.stdout, width=None if sys.stdout.isatty() else 160)
