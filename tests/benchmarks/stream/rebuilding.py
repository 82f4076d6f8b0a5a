"""Redis is lost: how fast `stream-rater rebuild` fills it from the log, and with the same bytes."""

import os
import subprocess
import sys
import time
from collections.abc import Iterable
from dataclasses import dataclass

from local.tools import ROOT
from stream_rater.config.settings import Settings
from tests.benchmarks.stream.crew import a_crew
from tests.benchmarks.stream.ground import Ground, send
from tests.benchmarks.stream.rounds import Round, Workload
from tests.benchmarks.stream.throughput import SERVICE
from tests.integration.processes import THIS_RELEASE, environment_of

WRONG_USAGE = 2

NAMELESS = ("",)
"""One worker, whose groups do not wait for it to come back."""


@dataclass(frozen=True)
class Rebuilt:
    """What a rebuild took, from the start of its process to its end."""

    updates: int
    players: int
    seconds: float
    processor_s: dict[str, float]
    """Of the command, Redis and the broker."""
    start_s: float
    """What the command used of the processor before it began: imports, kernels, a look around."""

    @property
    def a_core(self) -> float:
        """Updates a second of the command's own processor time, its start left out."""
        return self.updates / (self.processor_s["rebuild"] - self.start_s)

    @property
    def rate(self) -> float:
        """Updates a second."""
        return self.updates / self.seconds


def rebuilt(ground: Ground, workload: Workload, rounds: Iterable[Round]) -> Rebuilt:
    """Rate these rounds by a worker, empty Redis, rebuild; AssertionError where a byte differs."""
    updates = 0

    def counted() -> Iterable[Round]:
        nonlocal updates
        for each in rounds:
            updates += len(each.players)
            yield each

    with a_crew(ground, workload, NAMELESS, SERVICE) as crew:
        crew.workers[0].wait_ready()
        send(crew.settings, counted())
        crew.wait_until_finished()
        crew.dismiss()
    before = ground.beliefs()
    _, start = _command(ground, crew.settings, WRONG_USAGE)  # nothing is lost yet: it refuses
    ground.lose()
    seconds, used_s = _command(ground, crew.settings)
    assert ground.beliefs() == before, f"{workload.name}: the rebuilt store is another"
    players = sum(map(len, before.values()))
    return Rebuilt(updates, players, seconds, used_s, start["rebuild"])


def _command(
    ground: Ground, settings: Settings, exit_code: int = 0
) -> tuple[float, dict[str, float]]:
    """Run it, to this exit code: seconds, and seconds of processor time by whom."""
    servers_s, began_s = ground.servers_s(), time.monotonic()
    command = subprocess.Popen(
        [sys.executable, "-m", THIS_RELEASE, "rebuild"],
        cwd=ROOT, env=environment_of(settings), stdout=sys.stderr,
    )  # fmt: skip
    _, status, usage = os.wait4(command.pid, 0)
    took_s = time.monotonic() - began_s
    command.returncode = os.waitstatus_to_exitcode(status)
    assert command.returncode == exit_code, "rebuild failed: see above"
    after_s = ground.servers_s()
    used_s = {who: after_s[who] - servers_s[who] for who in after_s}
    return took_s, {"rebuild": usage.ru_utime + usage.ru_stime, **used_s}
