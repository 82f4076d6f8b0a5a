"""`stream-rater run` and `serve`: the processes of the service."""

from pathlib import Path

import click

from stream_rater.cli.options import SETTINGS, one_line_errors, settings_of
from stream_rater.columns import compile_progress
from stream_rater.config.errors import BadConfiguration, Failed
from stream_rater.config.files import ladders_of_settings
from stream_rater.config.settings import PREFIX, Settings
from stream_rater.contract.errors import Unrecoverable


@click.command()
@click.option("--role", type=click.Choice(["all", "estimator", "updater"]), default="all")
@SETTINGS
@one_line_errors
def run(role: str, settings_path: Path | None) -> None:
    """Run the service until SIGTERM or Ctrl-C."""
    settings = settings_of(settings_path)
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
    settings = settings_of(settings_path)
    from stream_rater.runtime import log

    compile_progress.in_log(log.logger("serve").info)
    serve_api(settings)


def serve_api(settings: Settings) -> None:
    """Serve the API until SIGTERM or SIGINT. Raises BadConfiguration or Failed."""
    from stream_rater.runtime.failures import named_failures
    from stream_rater.serve.service import ServeProcess, parts_of_service

    ladders = ladders_of_settings(settings)
    with named_failures():
        try:
            service = ServeProcess(settings, ladders, parts_of_service(settings))
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
