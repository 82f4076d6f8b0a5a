"""`stream-rater demo`: from nothing to a season's living page, without a server."""

import signal
import socket
import tempfile
import time
from contextlib import closing, suppress
from pathlib import Path

import click

from stream_rater.cli import correct, options
from stream_rater.config import errors
from stream_rater.config.settings import Settings

SHOWN_MOVES = 6  # The most players in the table about the cheater's removal.
VERIFY_WAIT_S = 60.0
FEWEST = 300  # Rounds in which the cheater stands out.


@click.command()
@click.option(
    "--rounds", type=click.IntRange(min=FEWEST), default=900, show_default=True,
    help=f"Length of the season, at least {FEWEST}.",
)  # fmt: skip
@click.option("--once", is_flag=True, help="End where the page would live on.")
@click.option("--began", "began_s", type=float, hidden=True)
@options.one_line_errors
def demo(rounds: int, once: bool, began_s: float | None) -> None:
    """Play a made-up season through a standalone process, and keep its page alive.

    A cheater is found and removed on the way. Ctrl-C ends the demo and deletes its data.
    """
    began_s = began_s or time.time()  # of `make demo`, before its set-up
    from stream_rater.operations.demo import CHEATED, PAUSE_S, Season, ladders_file
    from stream_rater.operations.verify import verify
    from stream_rater.runtime.child import standalone

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.default_int_handler)  # a shell may ignore SIGINT
    with errors.named_failures(), tempfile.TemporaryDirectory(prefix="stream-rater-demo-") as at:
        ladders = Path(at, "ladders.toml")
        ladders.write_text(ladders_file())
        with standalone(_address(), ladders=ladders) as rater:
            season = Season(rater)
            season.play(rounds)
            print(f"{rounds:,} rounds reported by POST /v1/rounds, and rated.")
            player, wins, played, others = season.suspect()
            print(
                f"\nA cheater was found: {player} won {wins} of {played} {CHEATED}, nobody else "
                f"more than {others}.\nRemoved by POST /v1/ladders/{CHEATED}/corrections:"
            )
            moves = season.remove(player)
            options.table_console().print(correct.table_of(CHEATED, moves[:SHOWN_MOVES]))
            gained = sum((each.difference or 0.0) > 0.0 for each in moves)
            print(f"{gained} of {len(moves) - 1} players who moved got points back.")
            print(f"\nstream-rater verify --data {rater.data}")
            print(verify(Settings(data=str(rater.data), ladders=str(ladders)), VERIFY_WAIT_S))
            print(f"\nThe page was ready after {time.time() - began_s:.1f} s: {rater.url}/")
            if not once:
                print(f"A round ends every {PAUSE_S:g} s. Ctrl-C ends the demo.", flush=True)
                with suppress(KeyboardInterrupt):
                    season.go_on()


def _address() -> str:
    """The usual address of `standalone`, or a free port if a program listens there."""
    host, _, port = Settings().serve.partition(":")
    with closing(socket.socket()) as probe:
        if probe.connect_ex((host, int(port))):
            return f"{host}:{port}"
    print(f"A program listens at {host}:{port}: the demo takes a free port.")
    return f"{host}:0"
