"""Reads the current beliefs of some players from the workers' store, as a pool of these players."""

import math
import time
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from stream_rater.columns.player_column import PlayerColumn
from stream_rater.columns.sharding import partition_of, shards_of
from stream_rater.config.ladders import Ladders
from stream_rater.contract.record import Player
from stream_rater.pipeline.corrections.edits_in_force import EditsOfLadders
from stream_rater.pipeline.ladder_history import LadderLog
from stream_rater.places.checks import disagreement
from stream_rater.places.port import Place
from stream_rater.replay.pool import Pool
from stream_rater.replay.what_if import KnownBeliefs, playing_as

REFRESH_S = 1.0  # The time after which the ladder events and the partitions are looked at again.
NEW_LADDER_S = 0.1  # The same for a ladder that is unknown: its first round may be new.
NOTHING_PUBLISHED: Mapping[str, int] = {}


class UnratedLadder(Exception):
    """No round of the ladder was rated."""

    def __init__(self, ladder: str, rated: Sequence[str]) -> None:
        super().__init__(f"no round of ladder {ladder!r} was rated")
        self.ladder, self.rated = ladder, rated


class LaddersDiffer(Exception):
    """The ladders file differs from the workers'. The text names the place and the remedy."""


class StaleBeliefs(Exception):
    """The store lacks beliefs that were published: it lost them, or a rebuild is not finished."""

    def __init__(self, reason: str) -> None:
        super().__init__(
            f"{reason}: Redis lost beliefs, or workers are still catching up: try again"
        )


class LiveBeliefs:
    """Reads the workers' beliefs. It is for one thread. The methods raise LayoutMismatch if the
    store is not that of the workers, TopicMismatch, LogTrouble, StoreTrouble or Denied."""

    def __init__(
        self, ladders: Ladders, place: Place, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """Makes no request to `place`."""
        self._ladders, self._place, self._clock = ladders, place, clock
        self._ladder_log, self._looked_s = LadderLog(), -math.inf
        self._edits = EditsOfLadders()
        self._ends: Sequence[int] = ()  # By partition, where the next round will be.

    def of(
        self, ladder: str, players: Sequence[str], time_s: int | None = None,
        published: Mapping[str, int] = NOTHING_PUBLISHED,
    ) -> KnownBeliefs:  # fmt: skip
        """The beliefs about these players for a round at this time in Unix seconds (None: now), by
        the parameters that the next round will have. A player without a record is a newcomer.

        `published`: for some players, the offset of the last change that is known to exist.

        Raises UnratedLadder, LaddersDiffer, StaleBeliefs, or RemovedPlayer for a player who may not
        play any more.
        """
        self._prepare()
        if ladder not in self._ladder_log.ladders:
            self._prepare(-1.0 if published else NEW_LADDER_S)
        if ladder not in self._ladder_log.ladders:
            raise UnratedLadder(ladder, self._ladder_log.ladders)
        if why := disagreement(self._place, self._ladders, self._ladder_log, ladder):
            raise LaddersDiffer(why)
        terms = self._ladders.find(ladder, self._ends[partition_of(ladder, len(self._ends))])
        if terms is None:
            raise LaddersDiffer(
                f"the ladders file does not rate {ladder!r} yet: `from_offset` lies ahead"
            )
        edits = self._edits.of(ladder, self._ladder_log.corrections).last
        pool = Pool(terms.rating, edits.started)
        known = KnownBeliefs(ladder, pool, edits, int(time.time()) if time_s is None else time_s)
        names = sorted(set(playing_as(players, known).values()))
        records = self._records(ladder, names)
        found = {name: data for name, data in records.items() if data is not None}
        pool.put(list(found), list(found.values()))
        last = dict(zip(found, pool.headers(np.arange(len(pool)))["last"].tolist(), strict=True))
        for name in names:
            if last.get(name, -1) < published.get(name, -1):
                raise StaleBeliefs(f"the belief about {name!r} is older than what was published")
        return known

    def started_seasons(self, ladder: str) -> list[int]:
        """The numbers of the seasons that have started on a ladder, in order."""
        self._prepare()
        edits = self._edits.of(ladder, self._ladder_log.corrections).last
        return [each.number for each in edits.started]

    def _prepare(self, after_s: float = REFRESH_S) -> None:
        """Unless begun within `after_s`, check the store's layout, and read new ladder events."""
        if (now_s := self._clock()) > self._looked_s + after_s:
            self._place.look()
            self._ladder_log, self._ends = self._place.ladder_log(), self._place.ends()
            self._looked_s = now_s

    def _records(self, ladder: str, players: Sequence[str]) -> dict[str, bytes | None]:
        """The record of each player; None if there is none. Each shard is read at one instant."""
        found: dict[str, bytes | None] = {}
        asked: dict[int, list[Player]] = {}
        for player, number in zip(players, shards_of(players, self._place.shards), strict=True):
            asked.setdefault(int(number), []).append((ladder, player))
        stored = self._place.read({number: PlayerColumn.of(own) for number, own in asked.items()})
        self._place.check_layout()  # a rebuild with more shards may have ended before the read
        for number, wanted in asked.items():
            if stored[number].position.is_unfinished:
                raise StaleBeliefs(f"the rebuild of shard {number} is not finished")
            found |= zip((player for _, player in wanted), stored[number].records, strict=True)
        return found
