"""Who acts in the simulation: machines with their workers, and calls that outlive their caller."""

from collections.abc import Generator
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import msgspec

from stream_rater.adapters.memory import Group, Steps
from stream_rater.lab.reach import Reach
from stream_rater.pipeline.estimator import Estimator
from stream_rater.pipeline.parts import Part
from stream_rater.pipeline.ports import (
    Apply,
    CommitSource,
    Effect,
    Publish,
    Scatter,
    Trouble,
)
from stream_rater.pipeline.updater import Updater
from stream_rater.rating.compiled import KERNEL_VERSION
from stream_rater.rating.model import Ints

from .world import UnkindWorker

WRITES = (Scatter, Apply, CommitSource, Publish)


@dataclass(frozen=True)
class Machines:
    """What is simulated: the production code, or it with one rule left out."""

    estimator: type[Estimator] = Estimator
    updater: type[Updater] = Updater
    worker: type[UnkindWorker] = UnkindWorker
    reach: type[Reach] = Reach
    """Of a rebuild."""


PRODUCTION = Machines()

NEXT_KERNEL = KERNEL_VERSION + 1

M = TypeVar("M", Estimator, Updater)


def upgraded(kind: type[M]) -> type[M]:
    """The same machine with kernels of the next version, which compute what those of ours do."""

    class Next(kind):  # type: ignore[misc, valid-type]
        """Of the next release."""

        kernel = NEXT_KERNEL

        def _estimate(self, *arguments: Any) -> tuple[Part, Ints]:
            part, shards = super()._estimate(*arguments)
            laws = [msgspec.structs.replace(law, kernel=self.kernel) for law in part.laws]
            return replace(part, laws=laws), shards

    return Next


@dataclass(eq=False)
class Actor:
    """One machine of one worker."""

    role: str
    worker: UnkindWorker
    machine: Generator[Effect[Any], Any, Any]
    effect: Effect[Any]
    steps: Steps
    pieces: int = 0
    """How many of them are done."""
    old: bool = True
    """Of the release that there is from the start, with its ladders file."""
    pace: float = 1.0
    """Of its turns, how many it takes: 0 while it sleeps."""

    @property
    def writing(self) -> bool:
        """Whether it is in the middle of a write."""
        return self.pieces > 0 and isinstance(self.effect, WRITES)

    def __str__(self) -> str:
        return f"{self.role} {self.worker.producer}"

    def go_on(self, effect: Effect[Any]) -> None:
        """The machine asked for something else."""
        self.effect, self.steps, self.pieces = effect, self.worker.steps(effect), 0

    def perform(self) -> None:
        """All of the effect in hand."""
        effect = self.effect
        while self.effect is effect:
            self.advance()

    def advance(self) -> None:
        """One atomic piece; the machine hears of what came of it at once."""
        self.pieces += 1
        try:
            next(self.steps)
        except StopIteration as done:
            self.go_on(self.machine.send(done.value))
        except Trouble as trouble:
            self.go_on(self.machine.throw(trouble))


@dataclass(eq=False)
class Straggler:
    """Requests of a call that failed or whose worker died, still on their way."""

    sender: Actor
    steps: Steps
    group: Group
    overtaken_by: dict[int, int] | None
    """Of a plain commit: the offsets committed when it was sent. Any other is a later one, and the
    coordinator does not reorder a member's commits."""

    def arrive(self) -> bool:
        """One more request arrives; whether there are others."""
        if self.overtaken_by not in (None, self.group.committed):
            return False
        try:
            next(self.steps)
        except (StopIteration, Trouble):
            return False
        return True
