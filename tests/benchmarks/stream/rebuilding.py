"""Redis is lost: how fast `stream-rater rebuild` fills it from the log, and with the same bytes."""

import os
import subprocess
import sys
import time

from local.tools import ROOT
from stream_rater.config.settings import Settings
from tests.benchmarks.measure import Result, result
from tests.benchmarks.stream.crew import a_crew
from tests.benchmarks.stream.ground import Ground
from tests.benchmarks.stream.rounds import Workload, updates_of
from tests.benchmarks.stream.throughput import SERVICE
from tests.integration.processes import THIS_RELEASE, environment_of

WRONG_USAGE = 2

NAMELESS = ("",)
"""One worker, whose groups do not wait for it to come back."""


def rebuild(ground: Ground, workload: Workload, updates: int, name: str) -> Result:
    """Rate about so many updates by a worker, empty Redis, rebuild; AssertionError where a byte
    differs. The processor time of the command does not count its start, where a core's rate is
    meant: imports, kernels, a look around."""
    with a_crew(ground, workload, NAMELESS, SERVICE) as crew:
        crew.workers[0].wait_ready()
        updates = sum(map(updates_of, crew.in_steps(updates, workload.rounds())))
        crew.dismiss()
    before = ground.beliefs()
    _, start = _command(ground, crew.settings, WRONG_USAGE)  # nothing is lost yet: it refuses
    ground.lose()
    seconds, used_s = _command(ground, crew.settings)
    assert ground.beliefs() == before, f"{workload.name}: the rebuilt store is another"
    ratio = {f"{who}_us": used / updates * 1e6 for who, used in used_s.items()}
    start_s = start["rebuild"]
    ratio |= {"a_core": updates / (used_s["rebuild"] - start_s), "start_s": start_s}
    note = f"{workload.name}: {updates} updates of {sum(map(len, before.values()))} players"
    return result(name, updates / seconds, "updates/s", ratio, f"{note} in {seconds:.2f} s")


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
