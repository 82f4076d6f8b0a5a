"""What the words of several commands share: kinds of arguments, options, how errors are told."""

import sys
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any

import click

from stream_rater.config.errors import BadConfiguration, Failed
from stream_rater.config.files import read_settings
from stream_rater.config.settings import Settings

ROUNDS = click.Path(exists=True, dir_okay=False, path_type=Path)
INPUT = click.Path(exists=True, dir_okay=False, allow_dash=True, path_type=Path)
FOLDER = click.Path(exists=True, file_okay=False, path_type=Path)
FILE = click.Path(dir_okay=False, path_type=Path)
COUNT = click.IntRange(min=1)
RATE = click.FloatRange(min=0.0, min_open=True)
PART = click.FloatRange(min=0.0, max=1.0, max_open=True)

OF_EXTRAS = {
    "confluent_kafka": "service",
    "prometheus_client": "service",
    "redis": "service",
    "structlog": "service",
    "httptools": "service",
    "uvicorn": "service",
    "starlette": "serve",
}
"""What extras bring."""

Command = Callable[..., Any]


def one_line(command: Command) -> Command:
    """Errors that a user can mend end in one line on stderr: 2 for configuration, 1 for work."""

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
            if (extra := OF_EXTRAS.get(error.name or "")) is None:
                raise
            why = f"{error.name} is not installed: stream-rater[{extra}] brings it"
            click.echo(f"stream-rater: {why}", err=True)
            sys.exit(1)

    return run


def settings_of(path: Path | None) -> Settings:
    """The settings of this file and the environment, which say how to log, too."""
    from stream_rater.runtime import log

    settings = read_settings(path)
    log.configure(settings.log_level)
    return settings


def following(command: Command) -> Command:
    """Options of what follows a topic."""
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
