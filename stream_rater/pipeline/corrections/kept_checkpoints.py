"""The checkpoints of one ladder, as a correction job reads and writes them.

What the store does not take, or does not give, is as if it had not been kept: the job goes on, and
makes no further checkpoint.
"""

from collections.abc import Iterable
from itertools import chain

import msgspec

from stream_rater.pipeline.corrections.correction_ports import (
    Checkpoints,
    DropCheckpoint,
    KeepCheckpoint,
    ReadPiece,
    WritePiece,
)
from stream_rater.pipeline.corrections.hearing import Course
from stream_rater.pipeline.ports import Step, ask
from stream_rater.replay import checkpoint
from stream_rater.replay.checkpoint import Head, Place, Unusable
from stream_rater.replay.id_filter import IdFilter
from stream_rater.replay.pool import Pool


class KeptCheckpoints:
    """Finds, reads, writes and deletes them."""

    def __init__(self, ladder: str) -> None:
        self._ladder = ladder
        self.heads: list[Head] = []
        """The newest first, once they are found."""
        self._takes = True
        """Whether the store has taken all that was written so far."""

    def find(self) -> Step[None]:
        """Find all that are kept."""
        self.heads = checkpoint.heads_in((yield from ask(Checkpoints(self._ladder))))

    def read(self, head: Head) -> Step[list[bytes]]:
        """The pieces of a checkpoint. Raises Unusable if one is missing."""
        pieces = []
        for number in range(head.pieces):
            piece = yield from ask(ReadPiece(self._ladder, head.name, number))
            if piece is None:
                raise Unusable("somebody has deleted it, or it cannot be read")
            pieces.append(piece)
        return pieces

    def due(self, first: int, end: int, every: int, places: tuple[Place, ...]) -> list[int]:
        """Where checkpoints are to be made in a pass from `first` to before `end`: where one is
        that does not know just the corrections of these places, and at the end if the last one is
        `every` records behind."""
        between = [each for each in self.heads if first < each.offset < end]
        made = {each.offset for each in between if each.corrections != places}
        if end - max(made | {first}) >= every:
            made.add(end)
        return sorted(made)

    def keep(self, head: Head, pool: Pool, ids: IdFilter, end: int) -> Course[int | None]:
        """Write a checkpoint of this pool, and of these ids, and delete those whose place it takes.
        Returns the number of its players; None if it is not kept. `end`: where the log is now.
        Yields effects, and None wherever it may pause."""
        if not self._takes:
            return None
        rows, found = pool.played(), checkpoint.encoded_ids(ids)
        pieces = checkpoint.number_of_pieces(len(rows)) + len(found)
        head = msgspec.structs.replace(head, pieces=pieces, id_pieces=len(found))
        data = chain(checkpoint.pieces_of(pool, rows), found)
        self._takes = yield from self._written(head, data)
        if not self._takes:  # what was written of it takes room
            yield from ask(DropCheckpoint(self._ladder, head.name, head.pieces))
            return None
        head = msgspec.structs.replace(head, whole=True)
        others = [each for each in self.heads if each.name != head.name]
        gone = [each for each in others if each.offset == head.offset or not each.whole]
        left = [each for each in others if each not in gone]
        left = sorted([head, *left], key=lambda each: each.offset, reverse=True)
        gone += checkpoint.superfluous(left, end)
        for each in gone:
            yield from ask(DropCheckpoint(self._ladder, each.name, each.pieces))
        self.heads = [each for each in left if each not in gone]
        return len(rows)

    def _written(self, head: Head, pieces: Iterable[bytes]) -> Course[bool]:
        """Write all of a checkpoint, or up to what the store does not take."""
        if not (yield from self._write_head(head)):
            return False
        for number, data in enumerate(pieces):
            if not (yield from ask(WritePiece(self._ladder, head.name, number, data))):
                return False
            yield None
        return (yield from self._write_head(msgspec.structs.replace(head, whole=True)))

    def _write_head(self, head: Head) -> Step[bool]:
        return (yield from ask(KeepCheckpoint(self._ladder, head.name, checkpoint.encode(head))))
