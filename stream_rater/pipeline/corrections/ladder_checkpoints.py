"""The checkpoints of one ladder, as a correction job reads and writes them.

If the store fails to read a checkpoint, the job continues without it. If the store fails to write
one, the job continues and makes no further checkpoint.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain
from typing import NamedTuple

import msgspec

from stream_rater.config.ladders import Ladders
from stream_rater.contract.record import Record, checksum
from stream_rater.pipeline.corrections.correction_validator import Steps
from stream_rater.pipeline.ports import Effect, Step, ask
from stream_rater.replay import checkpoint
from stream_rater.replay.checkpoint import CheckpointHead, IdFilter, RecordPlace, UnusableCheckpoint
from stream_rater.replay.edits import Edits
from stream_rater.replay.pool import Pool


@dataclass(frozen=True, slots=True)
class Checkpoints(Effect[Mapping[str, bytes]]):
    """Read the heads of a ladder's checkpoints, by name. Empty if they cannot be read."""

    ladder: str


@dataclass(frozen=True, slots=True)
class ReadPiece(Effect[bytes | None]):
    """Read a piece of a checkpoint. Returns None if it does not exist or cannot be read."""

    ladder: str
    name: str
    number: int


@dataclass(frozen=True, slots=True)
class WritePiece(Effect[bool]):
    """Write a piece of a checkpoint. Returns whether it has certainly been written."""

    ladder: str
    name: str
    number: int
    data: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class KeepCheckpoint(Effect[bool]):
    """Write the head of a checkpoint. Returns whether it has certainly been written."""

    ladder: str
    name: str
    head: bytes


@dataclass(frozen=True, slots=True)
class DropCheckpoint(Effect[bool]):
    """Delete a checkpoint: first its pieces, which are numbered from 0, then its head. Returns
    whether it has certainly been deleted."""

    ladder: str
    name: str
    pieces: int


class LadderCheckpoints:
    """Finds, reads, writes and deletes the checkpoints of a ladder."""

    def __init__(self, ladder: str) -> None:
        self._ladder = ladder
        self.heads: list[CheckpointHead] = []
        """The heads of the checkpoints, newest first. Empty before `find`."""
        self._writable = True  # Whether the store has accepted all writes so far.

    def find(self) -> Step[None]:
        """Find all checkpoints."""
        self.heads = checkpoint.heads_in((yield from ask(Checkpoints(self._ladder))))

    def read(self, head: CheckpointHead) -> Step[list[bytes]]:
        """Read the pieces of a checkpoint. Raises UnusableCheckpoint if a piece is missing."""
        pieces = []
        for number in range(head.pieces):
            piece = yield from ask(ReadPiece(self._ladder, head.name, number))
            if piece is None:
                raise UnusableCheckpoint("somebody has deleted it, or it cannot be read")
            pieces.append(piece)
        return pieces

    def due(self, first: int, end: int, every: int, places: tuple[RecordPlace, ...]) -> list[int]:
        """The offsets at which a pass from `first` to before `end` makes checkpoints, in rising
        order: the offsets of checkpoints whose corrections are not those at these places. `end` is
        included if the last checkpoint is at least `every` records before it."""
        between = [each for each in self.heads if first < each.offset < end]
        offsets = {each.offset for each in between if each.corrections != places}
        if end - max(offsets | {first}) >= every:
            offsets.add(end)
        return sorted(offsets)

    def write(self, head: CheckpointHead, pool: Pool, ids: IdFilter, end: int) -> Steps[int | None]:
        """Write a checkpoint of this pool and these ids, and delete the ones that it replaces.
        Returns the number of its players; None if it could not be written. `end`: the end of the
        pass, from which the distances of checkpoints are measured."""
        if not self._writable:
            return None
        rows, found = pool.played(), checkpoint.encoded_ids(ids)
        pieces = checkpoint.number_of_pieces(len(rows)) + len(found)
        head = msgspec.structs.replace(head, pieces=pieces, id_pieces=len(found))
        data = chain(checkpoint.pieces_of(pool, rows), found)
        self._writable = yield from self._written(head, data)
        if not self._writable:  # its first pieces may have been written
            yield from ask(DropCheckpoint(self._ladder, head.name, head.pieces))
            return None
        head = msgspec.structs.replace(head, whole=True)
        others = [each for each in self.heads if each.name != head.name]
        obsolete = [each for each in others if each.offset == head.offset or not each.whole]
        left = [each for each in others if each not in obsolete]
        left = sorted([head, *left], key=lambda each: each.offset, reverse=True)
        obsolete += checkpoint.superfluous(left, end)
        for each in obsolete:
            yield from ask(DropCheckpoint(self._ladder, each.name, each.pieces))
        self.heads = [each for each in left if each not in obsolete]
        return len(rows)

    def _written(self, head: CheckpointHead, pieces: Iterable[bytes]) -> Steps[bool]:
        """Write a checkpoint; stop at the first write that fails. Returns whether all succeeded."""
        if not (yield from self._write_head(head)):
            return False
        for number, data in enumerate(pieces):
            if not (yield from ask(WritePiece(self._ladder, head.name, number, data))):
                return False
            yield None
        return (yield from self._write_head(msgspec.structs.replace(head, whole=True)))

    def _write_head(self, head: CheckpointHead) -> Step[bool]:
        return (yield from ask(KeepCheckpoint(self._ladder, head.name, checkpoint.encode(head))))


class ReadSoFar(NamedTuple):
    """A summary of the ladder's rounds, seeds and resets that a pass has read so far."""

    last: RecordPlace = (-1, 0)
    """The last one: its offset and checksum, as in CheckpointHead. (-1, 0) before the first one."""
    time: int = 0  # The latest of their times, in Unix seconds.
    completed_at: str = ""  # The time of the last one, as reported.

    def read(self, record: Record, time: int, completed_at: str) -> "ReadSoFar":
        """The summary that includes the records up to this one, too. `time`: the latest of their
        times. `completed_at`: the time of the last one, as reported."""
        place = record.offset, checksum(record.value)
        return ReadSoFar(place, max(self.time, time), completed_at)


class StartingPoint:
    """The place at which a job begins to read the log: a checkpoint with these pieces, or the log's
    start if `head` is None."""

    def __init__(self, head: CheckpointHead | None = None, pieces: Sequence[bytes] = ()) -> None:
        self.head = head
        players = len(pieces) - (0 if head is None else head.id_pieces)
        self._players, self._ids = pieces[:players], pieces[players:]
        self.offset = 0 if head is None else head.offset
        self.read = ReadSoFar()  # What is known of the rounds before this place.
        if head is not None:
            self.read = ReadSoFar(head.last, head.time, head.completed_at)

    @cached_property
    def ids(self) -> IdFilter:
        """A filter for the ids in the rounds before this place. Raises UnusableCheckpoint."""
        return checkpoint.ids_of(self._ids)

    def pool(self, edits: Edits, ladder: str, ladders: Ladders) -> Pool:
        """The checkpoint's beliefs, on a ladder with these edits. Raises UnusableCheckpoint."""
        terms = ladders.find(ladder, self.read.last[0])
        assert terms is not None, "the checkpoint has a round"
        started = edits.started_before(self.offset)
        return checkpoint.pool_of(terms.rating, started, self._players)

    def release(self) -> None:
        """Free the memory of the pieces, once the players and ids have been read."""
        self._players = self._ids = ()
