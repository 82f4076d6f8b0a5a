"""The checkpoints of one ladder, as a correction job reads and writes them."""

from collections.abc import Generator
from itertools import chain
from typing import Any, TypeVar

import msgspec

from stream_rater.pipeline.correction_ports import (
    Checkpoints,
    DropCheckpoint,
    KeepCheckpoint,
    ReadPiece,
    WritePiece,
)
from stream_rater.pipeline.ports import Effect, Step, ask
from stream_rater.replay import checkpoint
from stream_rater.replay.checkpoint import Head, Place, Unusable
from stream_rater.replay.id_filter import IdFilter
from stream_rater.replay.pool import Pool

T = TypeVar("T")


class KeptCheckpoints:
    """Finds, reads, writes and deletes them."""

    def __init__(self, ladder: str) -> None:
        self._ladder = ladder
        self.heads: list[Head] = []
        """The newest first, once they are found."""

    def find(self) -> Step[None]:
        """Find all that are kept."""
        self.heads = checkpoint.heads_in((yield from ask(Checkpoints(self._ladder))))

    def read(self, head: Head) -> Step[list[bytes]]:
        """The pieces of a checkpoint. Raises Unusable if one is missing."""
        pieces = []
        for number in range(head.pieces):
            piece = yield from ask(ReadPiece(self._ladder, head.name, number))
            if piece is None:
                raise Unusable("somebody has deleted it")
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

    def keep(
        self, head: Head, pool: Pool, ids: IdFilter, end: int
    ) -> Generator[Effect[Any] | None, Any, int]:
        """Write a checkpoint of this pool, and of these ids, and delete those whose place it takes.
        Returns the number of its players. `end`: where the log is now. Yields effects, and None
        wherever it may pause."""
        rows, found = pool.played(), checkpoint.encoded_ids(ids)
        pieces = checkpoint.number_of_pieces(len(rows)) + len(found)
        head = msgspec.structs.replace(head, pieces=pieces, id_pieces=len(found))
        yield from self._write_head(head)
        for number, data in enumerate(chain(checkpoint.pieces_of(pool, rows), found)):
            yield from ask(WritePiece(self._ladder, head.name, number, data))
            yield None
        head = msgspec.structs.replace(head, whole=True)
        yield from self._write_head(head)
        others = [each for each in self.heads if each.name != head.name]
        gone = [each for each in others if each.offset == head.offset or not each.whole]
        left = [each for each in others if each not in gone]
        left = sorted([head, *left], key=lambda each: each.offset, reverse=True)
        gone += checkpoint.superfluous(left, end)
        for each in gone:
            yield from ask(DropCheckpoint(self._ladder, each.name, each.pieces))
        self.heads = [each for each in left if each not in gone]
        return len(rows)

    def _write_head(self, head: Head) -> Step[None]:
        yield from ask(KeepCheckpoint(self._ladder, head.name, checkpoint.encode(head)))
