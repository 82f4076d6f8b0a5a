"""Rates a round that is larger than a wave, in pieces: one in each pass of the estimator's loop.

The round stays one round. All its players are estimated together, and it counts as sent once all
pieces are acknowledged. Steps 4 to 6 may be split into pieces because they concern one player at a
time:

- None of its players is in another wave before the round is finished (`backlog`). So a prior that
  counted when its piece was read stays the prior until the round is finished, even if the store
  loses writes.
- A piece is read once its players have no pending parts. It counts if each `applied` that was read
  with it is accepted.
- The parts of a piece are pending for its players from the moment when they are acknowledged.

If the worker dies, its successor finds this round in some beliefs, as it does after any round that
was sent in part.

Later parts in a shard wait behind a piece. So the next piece is sent only while at most
PIECES_IN_FLIGHT - 1 of the earlier pieces wait to be applied. Other rounds then wait for at most
PIECES_IN_FLIGHT pieces.
"""

from collections.abc import Callable

import numpy as np

from stream_rater.pipeline.estimator import estimation
from stream_rater.pipeline.estimator.estimation import PendingRounds
from stream_rater.pipeline.estimator.priors import PriorsRead
from stream_rater.pipeline.estimator.progress import InFlightWindow, Progress
from stream_rater.pipeline.observer import Observer
from stream_rater.pipeline.parts import schema
from stream_rater.pipeline.parts.schema import Part
from stream_rater.pipeline.ports import Scatter, Step, ask
from stream_rater.rating.model import Table

PIECES_IN_FLIGHT = 2  # The most pieces that may be in the log and not yet applied.


class OversizeRound:
    """An oversize round in progress, cut into pieces of at most `piece_players` players."""

    def __init__(self, whole: PendingRounds, piece_players: int, progress: Progress) -> None:
        self.whole = whole  # The oversize round, as pending rounds of length one.
        self._progress = progress
        self._starts = range(0, whole.count, piece_players)
        self._priors: list[Table] = []  # The priors of each piece that was read.
        self.was_sent_before = False
        """Whether a belief shows that some worker has sent the whole round before."""
        self._rows: Part | None = None  # All rows of the round; None until they are estimated.
        self._sent = 0  # The number of acknowledged pieces.
        self._in_flight = InFlightWindow(progress)

    @property
    def partition(self) -> int:
        """The partition that the round was read from."""
        return int(self.whole.partitions[0])

    @property
    def is_read(self) -> bool:
        """Whether all priors were read and the rows estimated, so that parts can be sent."""
        return self._rows is not None

    @property
    def is_sent(self) -> bool:
        """Whether all parts of the round were acknowledged."""
        return self._sent == len(self._starts)

    def next_piece(self) -> PendingRounds:
        """The round, reduced to the players whose priors are to be read next."""
        return self._piece(len(self._priors))

    def _piece(self, number: int) -> PendingRounds:
        first = self._starts[number]
        return self.whole.piece(first, first + self._starts.step)

    def is_due(self) -> bool:
        """Whether the next piece may be read or sent now."""
        if not self.is_read:
            piece = self.next_piece()
            return bool(self._progress.ready(piece.fingerprints, piece.sizes)[0])
        return not self._in_flight.has_at_least(PIECES_IN_FLIGHT, 0, 0.0)

    def take(
        self, piece: PendingRounds, found: PriorsRead,
        estimate: Callable[[PendingRounds, Table], Part], observer: Observer,
    ) -> None:  # fmt: skip
        """Do step 5 for a piece with these priors. After the last piece, estimate all rows."""
        verdict = estimation.classified(piece, found.headers, found.usable)
        self.was_sent_before = bool(verdict.already_sent)
        if verdict.ready:
            self._priors.append(found.headers)
        if len(self._priors) == len(self._starts):
            with observer.working_on(estimation.traced(self.whole)):
                self._rows = estimate(self.whole, np.concatenate(self._priors))

    def send(self, rows_per_part: int) -> Step[None]:
        """Do step 6 for the next piece."""
        assert self._rows is not None, "it is read first"
        piece = self._piece(self._sent)
        start = self._starts[self._sent]
        part = self._rows.take(np.arange(start, start + piece.count))
        messages = schema.messages(part, *piece.by_shard, rows_per_part, self._progress.epochs)
        offsets = yield from ask(Scatter(messages))
        ends = estimation.part_ends(messages, offsets)
        self._in_flight.sent(ends, estimation.fingerprints_by_shard(piece), 0.0)
        self._sent += 1
