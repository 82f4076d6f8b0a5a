"""Who acts in the simulation: machines with their workers, and calls that outlive their caller."""

from collections.abc import Callable, Generator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Self, TypeVar

import msgspec

from stream_rater.adapters.memory import Steps
from stream_rater.adapters.memory_servers import Group
from stream_rater.columns.kernels import KERNEL_VERSION
from stream_rater.lab.cutoff import Reach
from stream_rater.parts.schema import Part
from stream_rater.pipeline.estimator import Estimator
from stream_rater.pipeline.observer import Observer
from stream_rater.pipeline.ports import (
    Apply,
    CannotGoOn,
    CommitSource,
    Effect,
    Publish,
    Scatter,
    Trouble,
)
from stream_rater.pipeline.shard import REBUILD
from stream_rater.pipeline.updater import Updater

from .world import UnkindWorker

WRITES = (Scatter, Apply, CommitSource, Publish)


class Watch(Observer):
    """An operator's eye on the shards."""

    def __init__(self) -> None:
        self.to_rebuild: set[int] = set()
        """Shards that were refused with this advice, and not opened since."""

    def shard_refused(self, shard: int, reason: str, offset: int | None = None) -> None:
        if REBUILD in reason:
            self.to_rebuild.add(shard)

    def shard_opened(self, shard: int) -> None:
        self.to_rebuild.discard(shard)


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

        def _estimate(self, *arguments: Any) -> Part:
            part = super()._estimate(*arguments)
            laws = [msgspec.structs.replace(law, kernel=self.kernel) for law in part.laws]
            return replace(part, laws=laws)

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
    skew_s: float = 0.0
    """By how much its clock is ahead."""
    ended: bool = False
    """Whether its process has ended by itself."""

    @property
    def writing(self) -> bool:
        """Whether it is in the middle of a write."""
        return self.pieces > 0 and isinstance(self.effect, WRITES)

    @property
    def ending(self) -> bool:
        """Whether all of a transaction was sent but its end."""
        if not isinstance(self.effect, Publish | CommitSource):
            return False
        pending = self.worker.group.pending.get(self.worker.producer)
        return pending is not None and bool(pending.offsets)

    @property
    def sent(self) -> bool:
        """Whether what is left of its call may be on its way; of a transaction, only its end."""
        plain = isinstance(self.effect, CommitSource) and self.worker.commits_plainly
        return plain or isinstance(self.effect, Scatter | Apply) or self.ending

    def __str__(self) -> str:
        return f"{self.role} {self.worker.producer}"

    @property
    def unaware(self) -> bool:
        """Whether it believes in an assignment that is over."""
        worker = self.worker
        return bool(worker._owned) and worker._generation != worker.group.generation

    def go_on(self, effect: Effect[Any]) -> None:
        """The machine asked for something else."""
        self.effect, self.steps, self.pieces = effect, self.worker.steps(effect), 0

    def perform(self) -> None:
        """All of the effect in hand."""
        effect = self.effect
        while self.effect is effect and not self.ended:
            self.advance()

    def advance(self) -> None:
        """One atomic piece; the machine hears of what came of it at once."""
        if self.ended:
            return
        self.pieces += 1
        try:
            next(self.steps)
        except StopIteration as done:
            self._answer(partial(self.machine.send, done.value))
        except Trouble as trouble:
            self._answer(partial(self.machine.throw, trouble))

    def fail(self, trouble: Trouble) -> None:
        """The effect in hand fails where it stands."""
        if not self.ended:
            self._answer(partial(self.machine.throw, trouble))

    def _answer(self, how: Callable[[], Effect[Any]]) -> None:
        try:
            self.go_on(how())
        except CannotGoOn:
            self.ended = True


@dataclass(eq=False)
class Straggler:
    """Requests of a call that failed or whose worker died, still on their way."""

    sender: Actor
    steps: Steps
    group: Group
    ends: int | None = None
    """The producer whose transaction this is the end of."""

    @classmethod
    def of(cls, actor: Actor) -> Self:
        """Of the call that an actor has in hand."""
        ends = actor.worker.producer if actor.ending else None
        return cls(actor, actor.steps, actor.worker.group, ends)

    @property
    def fault(self) -> str:
        """Of which kind its next arrival is; none, if the end of a transaction comes too late."""
        if self.ends is None:
            return "late-call"
        producer, pending = self.sender.worker.producer, self.group.pending
        if producer != self.ends and producer in pending:
            return "into-the-next"
        return "late-end" if self.ends in pending else ""

    def arrive(self) -> bool:
        """One more request arrives; whether there are others."""
        try:
            next(self.steps)
        except (StopIteration, Trouble):
            return False
        return self.ends is None
