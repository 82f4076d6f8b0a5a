"""The effects that corrections need: to read a partition again, and to store ladder events and
checkpoints.

A ladder event records which corrections of a ladder were accepted. It is written to `ladders-noted`
before a later round of the ladder is rated. So a worker that takes the partition over knows for
which players later rounds count.

A checkpoint is only a cache. An effect that fails to read, write or delete one reports this by its
result and not by an exception, so that no correction waits for it. Only Denied is raised.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from stream_rater.contract.record import Record
from stream_rater.pipeline.ports import (
    CorrectionsByLadder,
    Effect,
    Handler,
    R_co,
    RecordedCorrection,
)

__all__ = [
    "Checkpoints",
    "CorrectionsByLadder",
    "DropCheckpoint",
    "KeepCheckpoint",
    "NoteCorrections",
    "NotedCorrections",
    "ReadAgain",
    "ReadPiece",
    "RecordedCorrection",
    "WritePiece",
]  # fmt: skip


@dataclass(frozen=True, slots=True)
class NoteCorrections(Effect[None]):
    """Write the ladder events of corrections. They are in `ladders-noted` when this returns. An
    event that exists already stays as it is."""

    corrections: CorrectionsByLadder

    def perform(self, handler: Handler[R_co]) -> R_co:
        return handler.note_corrections(self.corrections)


@dataclass(frozen=True, slots=True)
class NotedCorrections(Effect[CorrectionsByLadder]):
    """Read all ladder events of corrections that exist now."""

    def perform(self, handler: Handler[R_co]) -> R_co:
        return handler.noted_corrections()


@dataclass(frozen=True, slots=True)
class ReadAgain(Effect[Sequence[Record]]):
    """Read records of a partition of `round-completed` from `first` to before `end`, in order.
    Returns as many as one fetch delivers, and at least one if there is any. An empty result means
    that there is none."""

    partition: int
    first: int
    end: int

    def perform(self, handler: Handler[R_co]) -> R_co:
        return handler.read_again(self.partition, self.first, self.end)


@dataclass(frozen=True, slots=True)
class Checkpoints(Effect[Mapping[str, bytes]]):
    """Read the heads of a ladder's checkpoints, by the checkpoints' names. The result is empty if
    they cannot be read."""

    ladder: str

    def perform(self, handler: Handler[R_co]) -> R_co:
        return handler.checkpoints(self.ladder)


@dataclass(frozen=True, slots=True)
class ReadPiece(Effect[bytes | None]):
    """Read a piece of a checkpoint. Returns None if it does not exist or cannot be read."""

    ladder: str
    name: str
    number: int

    def perform(self, handler: Handler[R_co]) -> R_co:
        return handler.read_piece(self.ladder, self.name, self.number)


@dataclass(frozen=True, slots=True)
class WritePiece(Effect[bool]):
    """Write a piece of a checkpoint. Returns whether it has certainly been written."""

    ladder: str
    name: str
    number: int
    data: bytes = field(repr=False)

    def perform(self, handler: Handler[R_co]) -> R_co:
        return handler.write_piece(self.ladder, self.name, self.number, self.data)


@dataclass(frozen=True, slots=True)
class KeepCheckpoint(Effect[bool]):
    """Write the head of a checkpoint. Returns whether it has certainly been written."""

    ladder: str
    name: str
    head: bytes

    def perform(self, handler: Handler[R_co]) -> R_co:
        return handler.keep_checkpoint(self.ladder, self.name, self.head)


@dataclass(frozen=True, slots=True)
class DropCheckpoint(Effect[bool]):
    """Delete a checkpoint: first its pieces, which are numbered from 0, then its head. Returns
    whether it has certainly been deleted."""

    ladder: str
    name: str
    pieces: int

    def perform(self, handler: Handler[R_co]) -> R_co:
        return handler.drop_checkpoint(self.ladder, self.name, self.pieces)
