"""How far each player's rounds are in the store when `applied` is g: what `rebuild` goes up to.

g is the updaters' committed offset: all parts before it are published, nothing from it on is. For
each player that is

- who has parts before g: up to the largest source offset in them,
- who has none before g, but later ones: up to before the smallest source offset in those,
- who has none at all (parts are kept for days only): all rounds before the estimators' committed
  offset, since those were wholly scattered, and long ago,
- who has parts before g in another shard only, from when there were fewer: likewise, but no less
  than those tell. Parts that came later, to its shard of now, may be deleted before them.
"""

from collections.abc import Mapping, Sequence
from itertools import compress

import numpy as np

from stream_rater.lab.crowd import Census
from stream_rater.pipeline import parts
from stream_rater.pipeline.marks import Flags
from stream_rater.pipeline.parts import NotAPart, Part
from stream_rater.pipeline.ports import Record
from stream_rater.pipeline.sharding import shards_of
from stream_rater.rating.compiled import KERNEL_VERSION
from stream_rater.rating.model import Ints

AT_ONCE = 20_000
"""Players looked up in one go: parts may be small."""

NONE_BEFORE, NONE_AFTER = -1, 2**62

Offsets = Mapping[int, int]
"""Committed offset by partition, for all of them; 0 where nothing was committed."""


class Misplaced(ValueError):
    """A part waits in a shard that is not its player's any more."""


class _Noted:
    """Of each row the largest, or the smallest, of the offsets noted."""

    def __init__(self, census: Census, pick: np.ufunc, none: int) -> None:
        self._census = census
        self._pick = pick
        self._none = none
        self._found = np.empty(0, np.int64)
        self._players: list[str] = []
        self._offsets: list[Ints] = []

    def note(self, players: Sequence[str], offsets: Ints) -> None:
        """One offset for each player, who is told as the census wants it."""
        self._players += players
        self._offsets.append(offsets)
        if len(self._players) >= AT_ONCE:
            self._settle()

    def _settle(self) -> None:
        """Whatever was noted counts from now on; there is an offset for each row of the census."""
        rows, known = self._census.rows(self._players), len(self._census)
        if known > len(self._found):
            more = max(known, 2 * len(self._found)) - len(self._found)
            self._found = np.append(self._found, np.full(more, self._none, np.int64))
        if len(rows):
            self._pick.at(self._found, rows, np.concatenate(self._offsets))
        self._players, self._offsets = [], []

    def of(self, rows: Ints) -> Ints:
        """The offset of each row, or `none`."""
        self._settle()
        return self._found[rows]

    def least(self) -> int:
        """The smallest of all that were noted; NONE_AFTER if nothing was."""
        self._settle()
        noted = self._found[self._found != self._none]
        return int(noted.min()) if len(noted) else NONE_AFTER


class Reach:
    """The source offset of each player's last round that counts."""

    def __init__(
        self, applied: Offsets, scattered: Offsets, shards: int, kernel: int = KERNEL_VERSION
    ) -> None:
        self.census = Census()
        self._applied = applied
        self._scattered = np.array([scattered[p] for p in range(len(scattered))], np.int64)
        self._shards = shards
        self._kernel = kernel
        self._before = _Noted(self.census, np.maximum, NONE_BEFORE)
        """Largest source offset before g, in the player's own shard."""
        self._elsewhere = _Noted(self.census, np.maximum, NONE_BEFORE)
        """The same in shards that were once its own."""
        self._after = _Noted(self.census, np.minimum, NONE_AFTER)
        """Smallest source offset from g on."""

    def note(self, record: Record) -> None:
        """Look at a record of `performance-estimated`; raises UnknownPart or Misplaced."""
        try:
            part = parts.decode(record.value or b"", self._kernel, oldest=0)
        except NotAPart:
            return
        at_home = shards_of(part.players, self._shards) == record.partition
        waits = record.offset >= self._applied.get(record.partition, 0)
        if waits and not at_home.all():
            raise Misplaced(
                f"offset {record.offset} of shard {record.partition} waits to be applied, and its "
                f"players are elsewhere among {self._shards} shards"
            )
        self._note(part, at_home, self._after if waits else self._before)
        self._note(part, ~at_home, self._elsewhere)

    def _note(self, part: Part, chosen: Flags, noted: _Noted) -> None:
        """These rows of a part."""
        if not chosen.any():
            return
        offsets = np.array([each.offset for each in part.rounds], np.int64)[part.round_index]
        marks = [self.census.mark(each.ladder) for each in part.rounds]
        rows = zip(part.round_index.tolist(), part.players, strict=True)
        players = [marks[i] + player for i, player in compress(rows, chosen.tolist())]
        noted.note(players, offsets[chosen])

    def of(self, rows: Ints, partitions: Ints) -> Ints:
        """(P,) of the players in these rows of the census, whose rounds are in these partitions."""
        before, after = self._before.of(rows), self._after.of(rows)
        kept = np.where(after < NONE_AFTER, after, self._scattered[partitions]) - 1
        reached = np.where(before > NONE_BEFORE, before, kept)
        return np.maximum(reached, self._elsewhere.of(rows))

    def least(self) -> int:
        """No player's reach is less."""
        after = min(self._after.least(), int(self._scattered.min()))
        return min(self._before.least(), after - 1)
