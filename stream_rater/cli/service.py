"""`stream-rater run`, `serve` and `standalone`, the processes of the service; and `submit`, `watch`
and `rejected`, which write and read topics."""

import os
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from stream_rater.cli import options as common
from stream_rater.columns import compiling
from stream_rater.config import errors, files
from stream_rater.config.ladders import Ladders
from stream_rater.config.settings import PREFIX, Settings
from stream_rater.contract.errors import Unrecoverable
from stream_rater.tables.reading import Reading

PARENT_S = 1.0  # The interval at which an ephemeral process looks whether its parent still runs.

if TYPE_CHECKING:
    from stream_rater.operations.follow import FollowedSpan
    from stream_rater.serve.service import MakeParts


@click.command()
@click.option("--role", type=click.Choice(["all", "estimator", "updater"]), default="all")
@common.with_settings
def run(role: str, settings: Settings) -> None:
    """Run the service until SIGTERM or Ctrl-C."""
    common.check_servers(settings, "run")
    _log_compiling("service")
    from stream_rater.runtime.service import run as run_worker

    run_worker(settings, frozenset({"estimator", "updater"} if role == "all" else {role}))


@click.command()
@common.with_settings
def serve(settings: Settings) -> None:
    """Answer questions about ratings over HTTP until SIGTERM or Ctrl-C.

    It needs the ladders file of the workers (STREAM_RATER_LADDERS): with another one, answers about
    newcomers and predictions are wrong.
    """
    common.check_servers(settings, "serve")
    _log_compiling("serve")
    from stream_rater.serve.service import parts_of_service

    ladders = files.ladders_of_settings(settings)
    _serve(settings, ladders, parts_of_service(settings, ladders))


@click.command()
@click.argument("file", type=common.NEW_FILE, required=False)
@click.option(
    "--listen", metavar="HOST:PORT", help="Where it listens; 127.0.0.1:9109 if not given."
)
@click.option(
    "--ephemeral", is_flag=True,
    help="In place of FILE, a temporary one. Ends with the process that started it, too.",
)  # fmt: skip
@common.with_settings
def standalone(file: Path | None, listen: str | None, ephemeral: bool, settings: Settings) -> None:
    """Rate rounds in one process, without Kafka and Redis, until SIGTERM or Ctrl-C.

    FILE keeps everything, and is created if there is none. Rounds come in by HTTP; ratings and the
    page are at the same address. The process prints the address once it is ready.
    """
    if ephemeral == (file is not None):
        raise errors.BadConfiguration(
            "standalone: give either FILE, or --ephemeral for a file that is deleted at the end"
        )
    with ExitStack() as stack:
        if file is None:
            settings = msgspec.structs.replace(settings, index="")
            file = stack.enter_context(_temporary_file())
        settings = msgspec.structs.replace(settings, serve=listen or settings.serve)
        _log_compiling("standalone")
        from stream_rater import places
        from stream_rater.serve.standalone import parts_of_file

        ladders = places.ladders_of(msgspec.structs.replace(settings, data=str(file)))
        _serve(settings, ladders, parts_of_file(settings, ladders, file))


@contextmanager
def _temporary_file() -> Iterator[Path]:
    """A name for a data file in a folder that is deleted at the end, also on SIGTERM. A SIGTERM
    comes, too, once the process that started this one has ended."""
    from stream_rater.runtime import log

    parent = os.getppid()

    def end_with_parent() -> None:
        while os.getppid() == parent:
            time.sleep(PARENT_S)
        os.kill(os.getpid(), signal.SIGTERM)

    # Until the event loop has a handler of its own.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    with tempfile.TemporaryDirectory(prefix="stream-rater-") as folder:
        threading.Thread(target=end_with_parent, daemon=True).start()
        log.logger("standalone").info("ephemeral", path=str(file := Path(folder, "ratings.db")))
        try:
            yield file
        finally:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)


def _log_compiling(role: str) -> None:
    from stream_rater.runtime import log

    compiling.in_log(log.logger(role).info)


def _serve(settings: Settings, ladders: Ladders, make_parts: "MakeParts") -> None:
    from stream_rater.serve.service import ServeProcess

    with errors.named_failures():
        try:
            service = ServeProcess(settings, ladders, make_parts, partial(print, flush=True))
        except errors.BadConfiguration:
            raise
        except (OSError, ValueError) as error:
            raise errors.BadConfiguration(
                f"serve {settings.serve!r}: {error}: set {PREFIX}SERVE to another host:port; port "
                "0 picks a free one"
            ) from None
        try:
            service.run()
        except Unrecoverable as error:
            raise errors.Failed(str(error)) from None


@click.command()
@click.argument("rounds", type=common.INPUT)
@click.option("--per-second", type=common.POSITIVE, help="At most so many rounds a second.")
@common.table_options
@common.with_data
def submit(rounds: Path, per_second: float | None, settings: Settings, reading: Reading) -> None:
    """Send the rounds and corrections of a file (JSON lines, CSV or Parquet) to round-completed,
    each validated before. `-` is standard input, with JSON lines."""
    from stream_rater.operations.submit import submit as submit_file

    submit_file(rounds, settings, per_second, reading)


@click.command()
@click.option("--ladder", help="Only this ladder.")
@click.option("--player", help="Only this player.")
@click.option("--json", "as_json", is_flag=True, help="The events as they are, one a line.")
@common.following
@common.with_data
def watch(settings: Settings, span: "FollowedSpan", **options: Any) -> None:
    """Follow rating-changed."""
    from stream_rater.operations import follow

    for line in follow.watch(settings, span, **options):
        print(line, flush=True)


@click.command()
@click.option("--ladder", help="Only this ladder, as far as it can be read.")
@click.option("--code", help="Only this error code.")
@click.option("--json", "as_json", is_flag=True, help="A JSON object a line, with the record.")
@common.following
@common.with_data
def rejected(settings: Settings, span: "FollowedSpan", **options: Any) -> None:
    """Follow round-rejected: which records were rejected, and why."""
    from stream_rater.operations import follow

    for line in follow.rejected(settings, span, **options):
        print(line, flush=True)
