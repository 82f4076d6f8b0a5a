"""Reads the priors of rounds from the store, and decides which of them count (steps 4 and 5).

A shard is refused for a while if a belief in it cannot be read; rounds with a player there wait.
"""

from collections.abc import Mapping

import numpy as np

from stream_rater.columns.arrays import Flags
from stream_rater.columns.player_map import shards_in
from stream_rater.pipeline import estimation
from stream_rater.pipeline.estimation import PendingRounds
from stream_rater.pipeline.observer import Observer
from stream_rater.pipeline.ports import NO_PLAYERS, Priors, ReadPriors, Step, ask
from stream_rater.pipeline.progress import Progress
from stream_rater.rating.model import Table


class PriorReader:
    """Reads priors for one estimator, and reports shards that are refused or readable again."""

    def __init__(self, shards: int, observer: Observer) -> None:
        self._shards = shards
        self._observer = observer
        self._refused: set[int] = set()
        """Shards whose beliefs could not be read the last time."""

    def read(
        self, pending: PendingRounds, progress: Progress, refused_until_s: float
    ) -> Step[tuple[Table, Flags]]:
        """(P,) headers of the rounds' players, and (P,) whether each one's shard was accepted.

        A shard whose headers cannot be read is refused until `refused_until_s`.
        """
        read = yield from ask(ReadPriors(estimation.asked(pending)))
        accepted = _accept(read, progress)
        headers, unreadable = estimation.headers_of(pending, read)
        for shard, reason in unreadable.items():
            progress.refuse(shard, refused_until_s)
            self._refused.add(shard)
            self._observer.shard_refused(shard, reason)
        for shard in self._refused.intersection(read) - unreadable.keys():
            self._refused.remove(shard)
            self._observer.shard_opened(shard)
        counts = np.zeros(self._shards, np.bool_)
        counts[list(accepted - unreadable.keys())] = True
        return headers, counts[shards_in(pending.fingerprints)]


def read_positions(progress: Progress) -> Step[None]:
    """Read `applied`, and no priors, of the shards where it may have moved."""
    if waiting := progress.waiting():
        _accept((yield from ask(ReadPriors(dict.fromkeys(waiting, NO_PLAYERS)))), progress)


def _accept(read: Mapping[int, Priors], progress: Progress) -> set[int]:
    """Step 4: the shards whose `applied` is not below their floor."""
    return {s for s, priors in read.items() if progress.accept(s, priors.applied)}
