"""`make figure`: a season under a real Prometheus, and the dashboard drawn from what it saw.

python -m watching                                  # servers of its own, for a minute and a half
python -m watching --prometheus 127.0.0.1:9090      # what a Prometheus has seen of late
python -m watching --drill redis-stopped            # which alert says so? into the runbook
python -m watching --drill nothing --minutes 60     # none does
"""

import argparse
import os
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import Final

from demonstration.programs import (
    GAME_BACKEND,
    LADDERS,
    DemoFailed,
    program,
    start_serve,
    start_service,
)
from local.background import LISTPACKS
from local.prometheus_node import start_prometheus
from local.servers import LocalServerError, servers
from local.steps import in_a_thread
from local.tools import ROOT
from stream_rater.config.settings import PREFIX
from watching import drill
from watching.ask import Prometheus, Refused, panels
from watching.figure import draw

FIGURE: Final = ROOT / "docs" / "pictures" / "dashboard.png"
EVERY_S: Final = 1
RATE_INTERVAL: Final = "15s"
STEP_S: Final = 1.0
BOARD: Final = "/v1/ladders/ranked-eu/leaderboard"
ASK_EVERY_S: Final = 0.1
END_S: Final = 60.0
"""The seconds that the game backend may take longer than its season."""


@contextmanager
def a_season(seconds: float, per_second: float) -> Iterator[str]:
    """Let a worker rate a made-up season. Yields the address of the Prometheus that watched it."""
    with (
        servers(redis_settings=LISTPACKS) as at,
        tempfile.TemporaryDirectory(prefix="stream-rater-") as folder,
    ):
        environment = {**os.environ, **at.environment(), f"{PREFIX}LADDERS": str(LADDERS)}
        rounds = str(round(seconds * per_second))
        command = [*GAME_BACKEND, "--rounds", rounds, "--per-second", str(per_second)]
        with (
            start_service(Path(folder), environment) as worker,
            start_serve(Path(folder), environment) as serve,
            start_prometheus(
                Path(folder, "prometheus"), workers=[worker.address], apis=[serve.address],
                every=f"{EVERY_S}s",
            ) as server,
            asked(serve.address),
        ):  # fmt: skip
            with program("game_backend", command, Path(folder), environment) as backend:
                backend.result(seconds + END_S)
            yield server.address


def asked(address: str) -> AbstractContextManager[None]:
    """Ask for the leaderboard again and again in the block."""

    def ask(over: threading.Event) -> None:
        while not over.wait(ASK_EVERY_S):
            with suppress(OSError), urllib.request.urlopen(f"http://{address}{BOARD}"):
                pass

    return in_a_thread(ask)


def parse(arguments: list[str] | None) -> argparse.Namespace:
    """The parsed arguments."""
    parser = argparse.ArgumentParser(prog="watching", description="Draw the dashboard.")
    parser.add_argument("--prometheus", help="HOST:PORT of one that runs; else one of its own")
    parser.add_argument("--seconds", type=float, default=90.0, help="how much to show")
    parser.add_argument("--per-second", type=float, default=40.0, help="rounds of the own season")
    parser.add_argument("--out", type=Path, default=FIGURE)
    parser.add_argument("--drill", nargs="*", choices=drill.FAULTS, help="which faults; else all")
    parser.add_argument("--minutes", type=float, default=12.0, help="how long a fault lasts")
    return parser.parse_args(arguments)


def main(arguments: list[str] | None = None) -> int:
    """Draw the figure. Returns 0, or 1 after one line that says why it cannot be done."""
    given = parse(arguments)
    try:
        if given.drill is not None:
            drill.run(given.drill, given.minutes)
            return 0
        if given.prometheus:
            show(given.prometheus, given.seconds, given.out)
        else:
            with a_season(given.seconds, given.per_second) as address:
                show(address, given.seconds, given.out)
    except (LocalServerError, DemoFailed, Refused, OSError) as error:
        print(f"figure: {error}", file=sys.stderr)
        return 1
    print(f"figure: {given.out}", file=sys.stderr)
    return 0


def show(address: str, seconds: float, out: Path) -> None:
    """Ask each panel's queries and draw the answers."""
    asked = Prometheus(address)
    end_s = time.time()
    answers = [
        (
            panel,
            [asked.between(q.expression, end_s - seconds, end_s, STEP_S) for q in panel.queries],
        )
        for panel in panels(RATE_INTERVAL)
    ]
    empty = [panel.title for panel, found in answers if not all(found)]
    if empty:
        raise Refused(f"no data for {', '.join(empty)}")
    draw(answers, end_s, out)


if __name__ == "__main__":
    sys.exit(main())
