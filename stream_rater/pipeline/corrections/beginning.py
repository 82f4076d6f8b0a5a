"""Where a correction job begins: at a checkpoint, or at the log's start."""

from collections.abc import Sequence
from functools import cached_property
from typing import NamedTuple

from stream_rater.config.ladders import Ladder, Ladders
from stream_rater.pipeline.corrections.judged_log import Known
from stream_rater.replay import checkpoint
from stream_rater.replay.checkpoint import Head
from stream_rater.replay.edits import Edits
from stream_rater.replay.id_filter import IdFilter
from stream_rater.replay.pool import Pool


class _Pieces(NamedTuple):
    players: Sequence[bytes]
    ids: Sequence[bytes]


class Beginning:
    """A checkpoint with these pieces; None: the log's start."""

    def __init__(self, head: Head | None = None, pieces: Sequence[bytes] = ()) -> None:
        self.head = head
        ids = len(pieces) - (0 if head is None else head.id_pieces)
        self._pieces = _Pieces(pieces[:ids], pieces[ids:])
        self.offset = 0 if head is None else head.offset
        self.known = Known()
        """What is known of the rounds before it."""
        if head is not None:
            self.known = Known(head.last, head.time, head.completed_at)

    @cached_property
    def ids(self) -> IdFilter:
        """Those that may be in the rounds before it."""
        return checkpoint.ids_of(self._pieces.ids)

    def pool(self, edits: Edits, ladder: str, ladders: Ladders) -> Pool:
        """The players of the checkpoint, on a ladder with these corrections."""
        started = tuple(each.season for each in edits.seasons if each.offset < self.offset)
        terms = ladders.find(ladder, self.known.last[0])
        assert terms is not None, "the checkpoint has a round"
        return checkpoint.pool_of(Ladder(rating=terms.rating), started, self._pieces.players)

    def let_go(self) -> None:
        """Let the pieces go: nobody asks for the players any more."""
        self._pieces = _Pieces((), ())
