"""Fill a store from the log alone, so that workers can go on as if nothing had been lost.

The state of a shard is the fold of its parts before `applied`. We choose g, the group's committed
offset: all before it is published, nothing after it is. What the store must hold there is, for each
player, the sequential replay of its rounds up to the last one that has a part before g (`reach`).

So a round that was scattered in part, or not yet, is left to the workers, who finish it as after
any crash. Other players of a round are replayed with it all the same: their ratings count in it.

What the store then holds is not the fold of the log before: that may be of another number of
shards, another kernel or ladders file. So each shard's log gets a mark. Where no part waits,
`applied` and g move past it, and whoever comes to it has lost the store since. Where parts wait,
they come first, and the store notes that the mark behind them is its own.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import numpy as np

from stream_rater.config import Ladders
from stream_rater.lab.crowd import Crowd, Heard, Turn
from stream_rater.lab.offline import Judge
from stream_rater.lab.reach import Offsets, Reach
from stream_rater.pipeline.ports import REBUILT, UNFINISHED, Application, Player, Position, Record
from stream_rater.pipeline.sharding import shards_of
from stream_rater.rating.model import Ints
from stream_rater.standings import Invalid

BATCH = 10_000
"""Beliefs written in one go."""

AT_ONCE = 50_000
"""Ratings to be changed, about, before rounds are rated: the more, the more side by side."""

Write = Callable[[Mapping[int, Application]], Mapping[int, bool]]
"""Compare and set by shard, as the store port does."""


class InUse(Exception):
    """Somebody else writes to the store."""


class Rebuild:
    """The replay that remembers everybody at their reach."""

    def __init__(self, ladders: Ladders, window: int, reach: Reach) -> None:
        self._judge = Judge(ladders, window)
        self._reach = reach
        self._least = reach.least()
        self._crowd = Crowd()
        self._waiting: list[Heard] = []
        self._players: list[str] = []
        """Of those rounds, as the census wants them."""
        self._held = np.zeros(0, np.bool_)
        """Rows whose later rounds do not count."""
        self._beliefs: list[tuple[Player, bytes]] = []
        """Of those of them that had one by then."""
        self._ladders: dict[str, None] = {}
        self.rounds = 0
        self.updates = 0
        self.written = 0
        """Beliefs that were asked for."""

    def feed(self, record: Record) -> None:
        """Rate the round in a record of `round-completed`, if it is valid: at once, or with others
        that are fed later."""
        try:
            standings = self._judge.judge(record)
        except Invalid:
            return
        self.rounds += 1
        self.updates += len(standings.players)
        self._ladders[standings.ladder] = None
        rating = self._judge.rating(standings.ladder, record.offset)
        if not standings.rates(skip_all_tied=rating.skip_all_tied):
            return
        mark = self._reach.census.mark(standings.ladder)
        self._players += [mark + player for player in standings.players]
        self._waiting.append(Heard(record.partition, record.offset, standings, rating))
        if len(self._players) >= AT_ONCE:
            self._rate()

    def _rate(self) -> None:
        """Rate all that waits."""
        if not self._waiting:
            return
        census = self._reach.census
        rows = census.rows(self._players)
        self._crowd.make_room(len(census))
        self._held = np.append(self._held, np.zeros(len(census) - len(self._held), np.bool_))
        for turn in self._crowd.turns(self._waiting, rows):
            self._hold(turn)
            self._crowd.rate(turn)
        self._waiting, self._players = [], []

    def _hold(self, turn: Turn) -> None:
        """Put the beliefs aside of those who have come to their reach."""
        offsets = turn.offsets()
        if offsets.max() <= self._least:
            return
        beyond = offsets > self._reach.of(turn.rows, turn.partitions())
        rows = turn.rows[beyond & ~self._held[turn.rows]]
        self._held[rows] = True
        self._beliefs += self._told(self._crowd.rated(rows))

    def _told(self, rows: Ints) -> Iterator[tuple[Player, bytes]]:
        return zip(self._reach.census.players(rows), self._crowd.records(rows), strict=True)

    @property
    def ladders(self) -> list[str]:
        """Those that have rounds."""
        return list(self._ladders)

    def beliefs(self) -> Iterator[tuple[Player, bytes]]:
        """Every belief that the store must hold. Nothing can be fed afterwards."""
        self._rate()
        self.written += len(self._beliefs)
        yield from self._beliefs
        rows = self._crowd.rated(np.flatnonzero(~self._held))
        for start in range(0, len(rows), BATCH):
            some = rows[start : start + BATCH]
            self.written += len(some)
            yield from self._told(some)


def passed(applied: Offsets, marks: Offsets) -> dict[int, int]:
    """Where shards go on that are marked at these offsets, and in which no part waits."""
    return {shard: mark + 1 for shard, mark in marks.items() if mark == applied.get(shard, 0)}


def fill(
    beliefs: Iterable[tuple[Player, bytes]], applied: Offsets, marks: Offsets, write: Write
) -> None:
    """Write beliefs to a store whose shards, all marked, are empty and UNFINISHED; raises InUse.

    No state on the way can be taken for a whole one, not even by a store that goes back to it.
    """
    shards = len(marks)
    batch: list[tuple[Player, bytes]] = []
    for each in beliefs:
        batch.append(each)
        if len(batch) == BATCH:
            _write(_by_shard(batch, shards), write)
            batch.clear()
    _write(_by_shard(batch, shards), write)
    ends = {shard: applied.get(shard, 0) for shard in range(shards)}
    ahead = {s: [(REBUILT, b"%d" % (mark + 1))] for s, mark in marks.items() if mark >= ends[s]}
    for starts in (dict.fromkeys(ends, UNFINISHED), ends):  # the last call is to change nothing
        last = {
            s: Application(Position(end, starts[s]), ahead.get(s, ())) for s, end in ends.items()
        }
        _write(last, write)


def _by_shard(batch: Sequence[tuple[Player, bytes]], shards: int) -> dict[int, Application]:
    found: dict[int, list[tuple[Player, bytes]]] = {}
    owners = shards_of([player for (_, player), _ in batch], shards)
    for each, shard in zip(batch, owners.tolist(), strict=True):
        found.setdefault(shard, []).append(each)
    return {
        shard: Application(Position(UNFINISHED, UNFINISHED), some) for shard, some in found.items()
    }


def _write(applications: Mapping[int, Application], write: Write) -> None:
    if applications and not all(write(applications).values()):
        raise InUse("the store changed while it was being rebuilt: is a worker running?")
