"""What several commands share: kinds of arguments, options, errors in one line, and a console."""

import sys
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from stream_rater.config.errors import BadConfiguration, Failed
from stream_rater.config.files import read_settings
from stream_rater.config.settings import Settings

if TYPE_CHECKING:  # it takes longer to load than `--help` should take
    from rich.console import Console

ROUNDS = click.Path(exists=True, dir_okay=False, path_type=Path)
INPUT = click.Path(exists=True, dir_okay=False, allow_dash=True, path_type=Path)
FOLDER = click.Path(exists=True, file_okay=False, path_type=Path)
FILE = click.Path(dir_okay=False, path_type=Path)
COUNT = click.IntRange(min=1)
RATE = click.FloatRange(min=0.0, min_open=True)
PART = click.FloatRange(min=0.0, max=1.0, max_open=True)

PACKAGE_EXTRAS = {
    "confluent_kafka": "service",
    "prometheus_client": "service",
    "redis": "service",
    "structlog": "service",
    "httptools": "service",
    "uvicorn": "service",
    "starlette": "serve",
}
"""The extra of stream-rater that brings a package."""

Command = Callable[..., Any]


def one_line(command: Command) -> Command:
    """A command whose BadConfiguration (exit code 2) and Failed (1) end in one line on stderr."""

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
    """The settings of this file and the environment. Configures the log by them."""
    from stream_rater.runtime import log

    settings = read_settings(path)
    log.configure(settings.log_level)
    return settings


def following(command: Command) -> Command:
    """A command with the options of those that follow a topic."""
    for option in (
        click.option("--wait", "wait_s", type=RATE,
                     help="Stop when nothing has come for so many seconds."),
        click.option("--count", type=COUNT,
                     help="Stop after so many lines; with --wait, fewer are a failure."),
        click.option("--from-start", is_flag=True,
                     help="From the first that is kept, not from now."),
    ):  # fmt: skip
        command = option(command)
    return command


SETTINGS = click.option(
    "--settings", "settings_path", type=ROUNDS, help="TOML file; STREAM_RATER_* override it."
)


def tables() -> "Console":
    """Standard output for tables: as wide as the terminal, or 160 columns without one.

    Raises BrokenPipeError where its reader has ended. There rich would end the process by itself.
    """
    from rich.console import Console

    class Output(Console):
        def on_broken_pipe(self) -> None:
            raise BrokenPipeError

    return Output(file=sys.stdout, width=None if sys.stdout.isatty() else 160)
