"""The effects that corrections need: the estimator reads a partition again, and keeps notes and
checkpoints.

A note says which corrections of a ladder were accepted. It is written to `ladders-noted` before a
later round of the ladder is rated, so whoever takes over knows whom later rounds count for.

A checkpoint is only a cache. An effect that fails to read, write or delete one says so by its
outcome, and not by an exception: no correction waits for it. Only Denied is raised.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import msgspec

from stream_rater.contract.record import Record
from stream_rater.pipeline.ports import Effect


class NotedCorrection(msgspec.Struct, frozen=True):
    """A correction that was accepted, or one that waits for `corrections-applied`."""

    offset: int
    """Of its record."""
    event_type: str
    correction: msgspec.Raw
    """In JSON, without texts that may be of any length, as its reason is, and of an amended round
    without what it is now. Older notes have a reason."""
    at: int = -1
    """The offset at which it was worked in; -1: it waits."""

    @property
    def place(self) -> tuple[int, int]:
        """What tells it from others of its ladder: its offset, and where it was worked in."""
        return self.offset, self.at


Noted = Mapping[str, Sequence[NotedCorrection]]
"""By ladder, in the order in which they were noted."""


@dataclass(frozen=True, slots=True)
class NoteCorrections(Effect[None]):
    """Note corrections. They are in the log when this returns; one that is noted already stays as
    it is."""

    noted: Noted


@dataclass(frozen=True, slots=True)
class NotedCorrections(Effect[Noted]):
    """Read all notes of corrections that exist now."""


@dataclass(frozen=True, slots=True)
class ReadAgain(Effect[Sequence[Record]]):
    """Read records of a partition of `round-completed` from an offset to before another, in order:
    as many as come at once, and at least one, if there is any. No records: there are none."""

    partition: int
    first: int
    end: int


@dataclass(frozen=True, slots=True)
class Checkpoints(Effect[Mapping[str, bytes]]):
    """Read the heads of a ladder's checkpoints, by the checkpoints' names. None, if they cannot be
    read."""

    ladder: str


@dataclass(frozen=True, slots=True)
class ReadPiece(Effect[bytes | None]):
    """Read a piece of a checkpoint; None if it is not there, or cannot be read."""

    ladder: str
    name: str
    number: int


@dataclass(frozen=True, slots=True)
class WritePiece(Effect[bool]):
    """Write a piece of a checkpoint. Returns whether it is written for certain."""

    ladder: str
    name: str
    number: int
    data: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class KeepCheckpoint(Effect[bool]):
    """Write the head of a checkpoint. Returns whether it is written for certain."""

    ladder: str
    name: str
    head: bytes


@dataclass(frozen=True, slots=True)
class DropCheckpoint(Effect[bool]):
    """Delete a checkpoint: its pieces, which are numbered from 0, then its head. Returns whether it
    is deleted for certain."""

    ladder: str
    name: str
    pieces: int
