"""The actors of the simulation: machines with workers, and calls that outlive their caller."""

from collections.abc import Callable, Generator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Self

import msgspec

from stream_rater.adapters.local_driver import Group, Steps
from stream_rater.columns.kernels import KERNEL_VERSION
from stream_rater.contract.errors import Trouble, Unrecoverable
from stream_rater.operations.cutoff import Cutoff
from stream_rater.operations.lost_rounds import Closing
from stream_rater.pipeline.corrections.correction_validator import LogContext
from stream_rater.pipeline.corrections.ladder_checkpoints import (
    DropCheckpoint,
    KeepCheckpoint,
    WritePiece,
)
from stream_rater.pipeline.estimator.estimator import Estimator
from stream_rater.pipeline.observer import Observer
from stream_rater.pipeline.parts.schema import Part
from stream_rater.pipeline.ports import (
    Apply,
    CommitSource,
    Effect,
    NoteCorrections,
    Publish,
    Scatter,
)
from stream_rater.pipeline.same_history import REBUILD
from stream_rater.pipeline.updater.updater import Updater

from .transitions import StateWatch
from .world import UnkindDriver

WRITES = (
    Scatter, Apply, CommitSource, Publish, NoteCorrections, WritePiece, KeepCheckpoint,
    DropCheckpoint,
)  # fmt: skip
ALONE = (Scatter, Apply, NoteCorrections, WritePiece, KeepCheckpoint, DropCheckpoint)
"""Effects of which each request has an effect by itself; of a transaction, only its end has."""


class Watch(Observer):
    """An observer that records which shards need an operator."""

    def __init__(self) -> None:
        self.to_rebuild: set[int] = set()  # shards refused with the advice to rebuild
        self.false_refusals: list[str] = []
        """Refusals that say that the group's committed offset was lost or reset. No fault does
        that: only an operator, or a log that comes back from a copy."""

    def shard_refused(self, shard: int, reason: str, offset: int | None = None) -> None:
        if REBUILD in reason:
            self.to_rebuild.add(shard)
        if "committed offset" in reason:
            self.false_refusals.append(f"shard {shard} is refused without a cause: {reason}")

    def shard_opened(self, shard: int) -> None:
        self.to_rebuild.discard(shard)


@dataclass(frozen=True)
class Machines:
    """The classes that are simulated: the production code, or a mutant with one rule left out."""

    estimator: type[Estimator] = Estimator
    updater: type[Updater] = Updater
    driver: type[UnkindDriver] = UnkindDriver
    cutoff: type[Cutoff] = Cutoff  # the cut-off that a rebuild uses
    closing: type[Closing] = Closing  # how a rebuild closes partitions that lost records


PRODUCTION = Machines()

NEXT_KERNEL = KERNEL_VERSION + 1


class NextLogContext(LogContext):
    """The log context of an estimator of the next release, which has checkpoints of its own."""

    def rules(self, ladder: str, offset: int) -> bytes:
        return super().rules(ladder, offset) + bytes([NEXT_KERNEL])


def upgraded(kind: type[Estimator]) -> type[Estimator]:
    """The estimator with kernels of the next version, which compute the same bits."""

    class Next(kind):  # type: ignore[misc, valid-type]
        def _forget_everything(self) -> None:
            of = self._admission
            of._log, of._options = (
                NextLogContext(*of._log), of._options._replace(kernel=NEXT_KERNEL),
            )  # fmt: skip
            super()._forget_everything()

        def _estimate(self, *arguments: Any) -> Part:
            part = super()._estimate(*arguments)
            rules = [msgspec.structs.replace(rule, kernel=NEXT_KERNEL) for rule in part.rules]
            return replace(part, rules=rules)

    return Next


@dataclass(eq=False)
class Actor:
    role: str
    driver: UnkindDriver
    machine: Generator[Effect[Any], Any, Any]
    effect: Effect[Any]
    steps: Steps
    states: StateWatch | None = None  # derives the states of its partitions or shards
    parts_done: int = 0  # how many pieces of the effect are done
    old: bool = True  # whether it has the first release and its ladders file
    pace: float = 1.0  # the fraction of its turns that it takes; 0 while it sleeps
    skew_s: float = 0.0  # how far its clock is ahead
    ended: bool = False  # whether its process has ended by itself

    @property
    def writing(self) -> bool:
        return self.parts_done > 0 and isinstance(self.effect, WRITES)

    @property
    def ending(self) -> bool:
        """Whether all of a transaction was sent except its end."""
        if not isinstance(self.effect, Publish | CommitSource):
            return False
        transaction = self.driver.group.transactions.get(self.driver.producer)
        return transaction is not None and bool(transaction.offsets)

    @property
    def sent(self) -> bool:
        """Whether the rest of its call may still be in flight."""
        plain = isinstance(self.effect, CommitSource) and self.driver.commits_plainly
        return plain or isinstance(self.effect, ALONE) or self.ending

    def __str__(self) -> str:
        return f"{self.role} {self.driver.producer}"

    @property
    def unaware(self) -> bool:
        """Whether it still believes in an assignment that is over."""
        driver = self.driver
        return bool(driver._owned) and driver._generation != driver.group.generation

    def go_on(self, effect: Effect[Any]) -> None:
        self.effect, self.steps, self.parts_done = effect, self.driver.steps(effect), 0
        if self.states is not None:
            self.states.asked(effect)

    def perform(self) -> None:
        effect = self.effect
        while self.effect is effect and not self.ended:
            self.advance()

    def advance(self, pieces: int = 1) -> None:
        """Perform atomic pieces. The machine receives the outcome of an effect at once."""
        for _ in range(pieces):
            if not self.ended:
                self._advance()

    def _advance(self) -> None:
        self.parts_done += 1
        try:
            next(self.steps)
        except StopIteration as done:
            if self.states is not None:
                self.states.got(done.value, self.effect)
            self._answer(partial(self.machine.send, done.value))
        except Trouble as trouble:
            self._answer(partial(self.machine.throw, trouble))

    def fail(self, trouble: Trouble) -> None:
        """Let the current effect fail after the pieces done so far."""
        if not self.ended:
            self._answer(partial(self.machine.throw, trouble))

    def _answer(self, answer: Callable[[], Effect[Any]]) -> None:
        try:
            self.go_on(answer())
        except Unrecoverable:
            self.ended = True


@dataclass(eq=False)
class Straggler:
    """The requests of a failed call, or of a dead worker's call, that are still in flight."""

    sender: Actor
    steps: Steps
    group: Group
    ends: int | None = None  # the producer whose transaction this request ends

    @classmethod
    def of(cls, actor: Actor) -> Self:
        ends = actor.driver.producer if actor.ending else None
        return cls(actor, actor.steps, actor.driver.group, ends)

    @property
    def fault(self) -> str:
        """The kind of fault of its next arrival; none if the end of a transaction is too late."""
        if self.ends is None:
            return "late-call"
        producer, transactions = self.sender.driver.producer, self.group.transactions
        if producer != self.ends and producer in transactions:
            return "into-the-next"
        return "late-end" if self.ends in transactions else ""

    def arrive(self) -> bool:
        """Let one more request arrive. Returns whether others are left."""
        try:
            next(self.steps)
        except (StopIteration, Trouble):
            return False
        return self.ends is None
