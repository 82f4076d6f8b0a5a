"""The effects that corrections need: the estimator reads a partition again, and keeps notes and
checkpoints.

A note says which corrections of a ladder were accepted. It is written to `ladders-noted` before a
later round of the ladder is rated, so whoever takes over knows whom later rounds count for.

A checkpoint is only a cache. An effect that fails to read, write or delete one says so by its
outcome, and not by an exception: no correction waits for it. Only Denied is raised.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from stream_rater.contract.record import Record
from stream_rater.pipeline.ports import Effect, Handler, Noted, NotedCorrection, R_co

__all__ = [
    "Checkpoints", "DropCheckpoint", "KeepCheckpoint", "NoteCorrections", "Noted",
    "NotedCorrection", "NotedCorrections", "ReadAgain", "ReadPiece", "WritePiece",
]  # fmt: skip


@dataclass(frozen=True, slots=True)
class NoteCorrections(Effect[None]):
    """Note corrections. They are in the log when this returns; one that is noted already stays as
    it is."""

    noted: Noted

    def perform(self, handler: Handler[R_co]) -> R_co:
        return handler.note_corrections(self.noted)


@dataclass(frozen=True, slots=True)
class NotedCorrections(Effect[Noted]):
    """Read all notes of corrections that exist now."""

    def perform(self, handler: Handler[R_co]) -> R_co:
        return handler.noted_corrections()


@dataclass(frozen=True, slots=True)
class ReadAgain(Effect[Sequence[Record]]):
    """Read records of a partition of `round-completed` from an offset to before another, in order:
    as many as come at once, and at least one, if there is any. No records: there are none."""

    partition: int
    first: int
    end: int

    def perform(self, handler: Handler[R_co]) -> R_co:
        return handler.read_again(self.partition, self.first, self.end)


@dataclass(frozen=True, slots=True)
class Checkpoints(Effect[Mapping[str, bytes]]):
    """Read the heads of a ladder's checkpoints, by the checkpoints' names. None, if they cannot be
    read."""

    ladder: str

    def perform(self, handler: Handler[R_co]) -> R_co:
        return handler.checkpoints(self.ladder)


@dataclass(frozen=True, slots=True)
class ReadPiece(Effect[bytes | None]):
    """Read a piece of a checkpoint; None if it is not there, or cannot be read."""

    ladder: str
    name: str
    number: int

    def perform(self, handler: Handler[R_co]) -> R_co:
        return handler.read_piece(self.ladder, self.name, self.number)


@dataclass(frozen=True, slots=True)
class WritePiece(Effect[bool]):
    """Write a piece of a checkpoint. Returns whether it is written for certain."""

    ladder: str
    name: str
    number: int
    data: bytes = field(repr=False)

    def perform(self, handler: Handler[R_co]) -> R_co:
        return handler.write_piece(self.ladder, self.name, self.number, self.data)


@dataclass(frozen=True, slots=True)
class KeepCheckpoint(Effect[bool]):
    """Write the head of a checkpoint. Returns whether it is written for certain."""

    ladder: str
    name: str
    head: bytes

    def perform(self, handler: Handler[R_co]) -> R_co:
        return handler.keep_checkpoint(self.ladder, self.name, self.head)


@dataclass(frozen=True, slots=True)
class DropCheckpoint(Effect[bool]):
    """Delete a checkpoint: its pieces, which are numbered from 0, then its head. Returns whether it
    is deleted for certain."""

    ladder: str
    name: str
    pieces: int

    def perform(self, handler: Handler[R_co]) -> R_co:
        return handler.drop_checkpoint(self.ladder, self.name, self.pieces)
