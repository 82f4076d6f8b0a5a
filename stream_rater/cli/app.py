"""`stream-rater …`: the group of all commands. The exit code is 0 for success, 1 for failed work
and 2 for wrong usage. A command calls one function of `operations`, which it imports only then: so
`--help` is fast, and `evaluate` needs no client of Kafka or Redis."""

import os
import signal
import sys
import warnings
from typing import Any, NoReturn

import click

from stream_rater.cli import lab, offline, service, store
from stream_rater.cli.correct import correct
from stream_rater.cli.demo import demo
from stream_rater.cli.seed import reset, seed
from stream_rater.columns import compiling

READER_ENDED = 128 + signal.SIGPIPE
"""The exit code if the output's reader, such as `head`, has ended. Shells use it for SIGPIPE."""


def _end_quietly() -> NoReturn:
    """End without an error text. The rest of standard output is discarded: nobody reads it."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    sys.exit(READER_ENDED)


class Commands(click.Group):
    """All commands. Each ends quietly once nobody reads its output or its help."""

    def make_context(self, *args: Any, **kwargs: Any) -> click.Context:
        """Make the context as click does. This may show the help of the group."""
        try:
            return super().make_context(*args, **kwargs)
        except BrokenPipeError:
            _end_quietly()

    def invoke(self, ctx: click.Context) -> Any:
        """Run a command, or show its help, as click does."""
        try:
            return super().invoke(ctx)
        except BrokenPipeError:
            _end_quietly()


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="stream-rater")
@click.pass_context
def main(context: click.Context) -> None:
    """Rate players from finished rounds: offline, or streaming on Kafka and Redis."""
    if context.invoked_subcommand not in ("run", "serve", "standalone"):  # they log it
        compiling.on_stderr()
        warnings.showwarning = lambda text, *_, **__: click.echo(f"warning: {text}", err=True)


for command in (
    store.backup, store.checkpoint, offline.convert, correct, demo, store.erase,
    lab.evaluate, lab.evidence, store.inspect, store.move, offline.predict,
    offline.rate, store.rebuild, service.rejected, reset, service.run, store.season_standings, seed,
    service.serve, service.standalone, service.submit, lab.tune, store.verify, service.watch,
):  # fmt: skip
    main.add_command(command)
