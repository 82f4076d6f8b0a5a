"""A round larger than a wave: its priors are read and its parts sent in pieces, a piece a turn, and
other rounds pass between them.

It stays one round: estimated once, all players together, and scattered only when all pieces are
acknowledged. Pieces may lie apart because steps 4 to 6 speak of one player at a time:

- Nobody in it is in another wave before it is finished (`waves`). So a prior that counted when its
  piece was read is the prior until then, however often the store goes back meanwhile.
- A piece is read once its players await nothing, and counts where each `applied` read with it does.
- Its players await the end of its parts from the moment that these are acknowledged.

Who takes over in the midst of it finds this very round in some beliefs, as after any torn scatter.

What comes after a piece in a shard waits behind it. So the next one is sent only when of those
before it no more than AHEAD - 1 wait to be applied: others wait for AHEAD pieces, never for all.
"""

from collections.abc import Callable

import numpy as np

from stream_rater.columns.arrays import Flags
from stream_rater.parts.schema import Part
from stream_rater.pipeline import estimation
from stream_rater.pipeline.estimation import PendingRounds
from stream_rater.pipeline.observer import Observer
from stream_rater.pipeline.ports import Scatter, Step, ask
from stream_rater.pipeline.progress import InFlightWindow, Progress
from stream_rater.rating.model import Table

AHEAD = 2
"""How many pieces may be in the log and not be seen applied."""


class OversizeRound:
    """One round on its way, in pieces of at most so many players."""

    def __init__(self, whole: PendingRounds, piece_players: int, progress: Progress) -> None:
        self.whole = whole
        """The round alone."""
        self._progress = progress
        self._starts = range(0, whole.count, piece_players)
        self._priors: list[Table] = []
        """Of the pieces that are read."""
        self.is_scattered = False
        """Whether its priors tell that somebody has scattered it."""
        self._rows: Part | None = None
        """All rows, once they are estimated."""
        self._sent = 0
        """How many pieces are acknowledged."""
        self._ahead = InFlightWindow(progress)

    @property
    def partition(self) -> int:
        """Where it was read."""
        return int(self.whole.partitions[0])

    @property
    def is_read(self) -> bool:
        """Whether it is estimated and parts can be sent."""
        return self._rows is not None

    @property
    def is_sent(self) -> bool:
        """Whether all its parts are acknowledged."""
        return self._sent == len(self._starts)

    def _piece(self, number: int) -> PendingRounds:
        """Some of its players, as if they were the round."""
        first = self._starts[number]
        return self.whole.slice(first, first + self._starts.step)

    def is_due(self) -> bool:
        """Whether the next piece may be read, or sent."""
        if not self.is_read:
            piece = self._piece(len(self._priors))
            return bool(self._progress.ready(piece.fingerprints, piece.sizes)[0])
        return not self._ahead.has(AHEAD, 0, 0.0)

    def read(
        self, read_priors: Callable[[PendingRounds], Step[tuple[Table, Flags]]],
        estimate: Callable[[PendingRounds, Table], Part], observer: Observer,
    ) -> Step[None]:  # fmt: skip
        """Steps 4 and 5 for the next piece; with the last one all are estimated."""
        piece = self._piece(len(self._priors))
        headers, accepted = yield from read_priors(piece)
        ready, resumed, priors = estimation.classified(piece, headers, accepted)
        self.is_scattered = bool(resumed)
        if ready:
            self._priors.append(priors)
        if len(self._priors) == len(self._starts):
            with observer.at_work(estimation.traced(self.whole)):
                self._rows = estimate(self.whole, np.concatenate(self._priors))

    def send(self, rows_per_part: int) -> Step[None]:
        """Step 6 for the next piece."""
        assert self._rows is not None, "it is read first"
        piece = self._piece(self._sent)
        start = self._starts[self._sent]
        part = self._rows.take(np.arange(start, start + piece.count))
        messages = estimation.messages(part, piece, rows_per_part)
        offsets = yield from ask(Scatter(messages))
        ends = estimation.part_ends(messages, offsets)
        self._ahead.sent(ends, estimation.by_shard(piece), 0.0)
        self._sent += 1
