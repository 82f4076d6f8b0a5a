"""`stream-rater run` and `serve`: the processes of the service."""

from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec

from stream_rater.cli.options import NEW_FILE, SETTINGS, one_line_errors, servers_of, settings_of
from stream_rater.columns import compile_progress
from stream_rater.config.errors import BadConfiguration, Failed
from stream_rater.config.files import ladders_of_settings
from stream_rater.config.ladders import Ladders
from stream_rater.config.settings import PREFIX, Settings
from stream_rater.contract.errors import Unrecoverable

if TYPE_CHECKING:
    from stream_rater.serve.service import MakeParts


@click.command()
@click.option("--role", type=click.Choice(["all", "estimator", "updater"]), default="all")
@SETTINGS
@one_line_errors
def run(role: str, settings_path: Path | None) -> None:
    """Run the service until SIGTERM or Ctrl-C."""
    settings = servers_of(settings_path, "run")
    from stream_rater.runtime import log

    compile_progress.in_log(log.logger("service").info)
    roles = frozenset({"estimator", "updater"} if role == "all" else {role})
    from stream_rater.operations.run import run as run_worker

    run_worker(settings, roles)


@click.command()
@SETTINGS
@one_line_errors
def serve(settings_path: Path | None) -> None:
    """Answer questions about ratings over HTTP until SIGTERM or Ctrl-C.

    It needs the ladders file of the workers (STREAM_RATER_LADDERS): with another one, answers about
    newcomers and predictions are wrong.
    """
    settings = servers_of(settings_path, "serve")
    from stream_rater.runtime import log

    compile_progress.in_log(log.logger("serve").info)
    serve_api(settings)


def serve_api(settings: Settings) -> None:
    """Serve the API until SIGTERM or SIGINT. Raises BadConfiguration or Failed."""
    from stream_rater.serve.service import parts_of_service

    ladders = ladders_of_settings(settings)
    _serve(settings, ladders, parts_of_service(settings, ladders))


def _serve(settings: Settings, ladders: Ladders, make_parts: "MakeParts") -> None:
    from stream_rater.config.errors import named_failures
    from stream_rater.serve.service import ServeProcess

    with named_failures():
        try:
            service = ServeProcess(settings, ladders, make_parts)
        except BadConfiguration:
            raise
        except (OSError, ValueError) as error:
            raise BadConfiguration(
                f"serve {settings.serve!r}: {error}: set {PREFIX}SERVE to another host:port; port "
                "0 picks a free one"
            ) from None
        try:
            service.run()
        except Unrecoverable as error:
            raise Failed(str(error)) from None


@click.command()
@click.argument("file", type=NEW_FILE)
@click.option(
    "--listen", metavar="HOST:PORT", help="Where it listens; 127.0.0.1:9109 if not given."
)
@SETTINGS
@one_line_errors
def standalone(file: Path, listen: str | None, settings_path: Path | None) -> None:
    """Rate rounds in one process, without Kafka and Redis, until SIGTERM or Ctrl-C.

    FILE keeps everything, and is created if there is none. Rounds come in by HTTP; ratings and the
    page are at the same address.
    """
    settings = settings_of(settings_path)
    if listen:
        settings = msgspec.structs.replace(settings, serve=listen)
    from stream_rater.runtime import log

    compile_progress.in_log(log.logger("standalone").info)
    from stream_rater.serve.standalone import parts_of_file

    ladders = ladders_of_settings(settings)
    _serve(settings, ladders, parts_of_file(settings, ladders, file))
