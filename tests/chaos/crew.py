"""Workers under a supervisor, and what they went through."""

import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import msgspec

from stream_rater.config import Settings
from tests.integration.processes import THIS_RELEASE, WorkerProcess

REASONS = {
    "unknown to a broker that came back": "fatal error|unknown member|fenced",
    "a call that does not return": "in a call that does not return",
    "nobody answered at its start": "kafka at |redis: ",
}
"""Why a worker may end by itself, and how its last line tells."""
ENDED = 1
"""The exit code of one that says why."""
OFTEN = 2
"""How many such ends of each worker a fault may lead to."""


class Violation(Exception):
    """What was promised and does not hold."""


@dataclass
class Crew:
    """Workers, each started again under its name when it is gone, as an orchestrator would."""

    settings: Settings
    start: Callable[..., WorkerProcess]
    named: bool = True
    """Without names nobody knows that one comes back: it is another member of the groups."""
    workers: list[WorkerProcess] = field(default_factory=list)
    everyone: list[WorkerProcess] = field(default_factory=list)
    """Those that are gone, too."""
    ended: Counter[str] = field(default_factory=Counter)
    """How many ended by themselves, by reason."""
    module: str = THIS_RELEASE

    def hire(self, count: int) -> None:
        """So many more, all ready when this returns."""
        fresh = [self.add(f"worker-{number}" if self.named else "") for number in range(count)]
        for worker in fresh:
            worker.wait_ready()

    def add(self, name: str) -> WorkerProcess:
        """One more of this name, none if it is empty; it is not ready yet."""
        settings = msgspec.structs.replace(self.settings, instance_id=name)
        worker = self.start(settings, ready=False, module=self.module)
        self.workers.append(worker)
        self.everyone.append(worker)
        return worker

    def replace(self, worker: WorkerProcess) -> WorkerProcess:
        """Another one in the place of one that is gone."""
        self.workers.remove(worker)
        return self.add(worker.settings.instance_id)

    def tend(self) -> None:
        """Start again who ended; Violation unless it said why, and that is known to happen."""
        for worker in [each for each in self.workers if not each.running]:
            self.ended[why_ended(worker.wait(), worker.log())] += 1
            self.replace(worker)

    def check_ends(self, faults: int) -> None:
        """Violation where more ended by themselves than these faults explain."""
        most = OFTEN * faults * max(1, len(self.workers))
        if self.ended.total() > most:
            raise Violation(f"more than {most} workers ended by themselves: {dict(self.ended)}")

    def rebalances(self) -> int:
        """How often the share of a worker changed while it went on."""
        return sum(map(changes_of_share, self.everyone))

    def dismiss(self) -> None:
        """All leave as asked."""
        for worker in self.workers:
            worker.terminate()
        for worker in self.workers:
            worker.wait()
        self.workers.clear()


def why_ended(code: int, log: str) -> str:
    """The reason, by the last line; Violation where a worker must not end like this."""
    said = [line for line in log.splitlines() if line.startswith("stream-rater: ")] or [""]
    known = [reason for reason, told in REASONS.items() if re.search(told, said[-1], re.IGNORECASE)]
    if "Traceback" in log or code != ENDED or not known:
        raise Violation(f"a worker ended with {code}:\n{log[-2000:]}")
    return known[0]


def shares(worker: WorkerProcess) -> dict[str, Sequence[int]]:
    """What each role owned last, by the worker's log."""
    return {role: owned[-1] for role, owned in _owned(worker).items()}


def changes_of_share(worker: WorkerProcess) -> int:
    """By its log: how often a role came to own something else than before."""
    return sum(a != b for owned in _owned(worker).values() for a, b in pairwise(owned))


def _owned(worker: WorkerProcess) -> dict[str, list[Sequence[int]]]:
    """By role what it owned in turn; nothing, as at its end or when it begins anew, is left out."""
    found: dict[str, list[Sequence[int]]] = {}
    for event in worker.events("owned"):
        if event["partitions"]:
            found.setdefault(event["role"], []).append(event["partitions"])
    return found
