"""Workers under a supervisor that restarts them, and what happened to them."""

import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import msgspec

from stream_rater.config.settings import Settings
from tests.integration.processes import THIS_RELEASE, WorkerProcess

REASONS = {
    "unknown to a broker that came back": "fatal error|unknown member|fenced",
    "a call that does not return": "in a call that does not return|^Timeout \\(",
    "nobody answered at its start": "kafka at |broker transport failure|redis: ",
}
"""The reasons for which a worker may end by itself, with a pattern for its last log line."""
ENDED = 1  # the exit code of a worker that logs its reason
OFTEN = 2  # the most such ends of each worker that a fault may cause


class Violation(Exception):
    """A promise of the service that does not hold."""


@dataclass
class Crew:
    """Workers, each restarted under its name when it has ended, as an orchestrator does."""

    settings: Settings
    start: Callable[..., WorkerProcess]
    named: bool = True  # A restarted worker without a name is another member.
    workers: list[WorkerProcess] = field(default_factory=list)
    everyone: list[WorkerProcess] = field(default_factory=list)  # those that have ended, too
    ended: Counter[str] = field(default_factory=Counter)  # those who ended by themselves, by reason
    module: str = THIS_RELEASE

    def hire(self, count: int) -> None:
        """Start this many more workers, all of which are ready when this returns."""
        fresh = [self.add(f"worker-{number}" if self.named else "") for number in range(count)]
        for worker in fresh:
            worker.wait_ready()

    def add(self, name: str) -> WorkerProcess:
        """Start a worker of this name, or without a name if it is empty. It is not ready yet."""
        settings = msgspec.structs.replace(self.settings, instance_id=name)
        worker = self.start(settings, ready=False, module=self.module)
        self.workers.append(worker)
        self.everyone.append(worker)
        return worker

    def replace(self, worker: WorkerProcess) -> WorkerProcess:
        """Start another worker in the place of one that has ended."""
        self.workers.remove(worker)
        return self.add(worker.settings.instance_id)

    def kill(self, worker: WorkerProcess) -> WorkerProcess:
        worker.kill()
        return self.replace(worker)

    def tend(self) -> None:
        """Restart workers that ended. Raises Violation unless the worker logged a known reason."""
        for worker in [each for each in self.workers if not each.running]:
            self.ended[why_ended(worker.wait(), worker.log())] += 1
            self.replace(worker)

    def check_ends(self, faults: int) -> None:
        """Raise Violation if more workers ended by themselves than these faults explain."""
        most = OFTEN * faults * max(1, len(self.workers))
        if self.ended.total() > most:
            raise Violation(f"more than {most} workers ended by themselves: {dict(self.ended)}")

    def rebalances(self) -> int:
        """How often the assignment of a worker changed while it ran."""
        shares = (each for worker in self.everyone for each in _owned(worker).values())
        return sum(a != b for owned in shares for a, b in pairwise(owned))

    def dismiss(self) -> None:
        for worker in self.workers:
            worker.terminate()
        for worker in self.workers:
            worker.wait()
        self.workers.clear()


def why_ended(code: int, log: str) -> str:
    """The reason in the last log line. Raises Violation if a worker must not end like this."""
    last_words = "stream-rater: ", "Timeout ("
    said = [line for line in log.splitlines() if line.startswith(last_words)] or [""]
    known = [
        reason for reason, pattern in REASONS.items() if re.search(pattern, said[-1], re.IGNORECASE)
    ]
    if "Traceback" in log or code != ENDED or not known:
        raise Violation(f"a worker ended with {code}:\n{log[-2000:]}")
    return known[0]


def shares(worker: WorkerProcess) -> dict[str, Sequence[int]]:
    """The last assignment of each role, from the worker's log."""
    return {role: owned[-1] for role, owned in _owned(worker).items()}


def _owned(worker: WorkerProcess) -> dict[str, list[Sequence[int]]]:
    """The successive assignments of each role, without empty ones, as an end or a restart has."""
    found: dict[str, list[Sequence[int]]] = {}
    for event in worker.events("owned"):
        if event["partitions"]:
            found.setdefault(event["role"], []).append(event["partitions"])
    return found
