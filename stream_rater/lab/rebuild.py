"""Fill a store from the log alone, so that workers can go on as if nothing had been lost.

The state of a shard is the fold of its parts before `applied`. We choose g, the group's committed
offset: all before it is published, nothing after it is. What the store must hold there is, for each
player, the sequential replay of its rounds up to the last one that has a part before g:

- parts are kept for days only. Who has parts before g: up to the largest source offset in them,
- who has none before g, but later ones: up to before the smallest source offset in those,
- who has none at all: all rounds before the estimators' committed offset, since those were wholly
  scattered, and long ago,
- who has parts before g in another shard only, from when there were fewer: likewise, but no less
  than those tell. Parts that came later, to its shard of now, may be deleted before them.

So a round that was scattered in part, or not yet, is left to the workers, who finish it as after
any crash. Other players of a round are replayed with it all the same: their ratings count in it.

What the store then holds is not the fold of the log before: that may be of another number of
shards, another kernel or ladders file. So each shard's log gets a mark. Where no part waits,
`applied` and g move past it, and whoever comes to it has lost the store since. Where parts wait,
they come first, and the store notes that the mark behind them is its own.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from stream_rater.config import Ladders
from stream_rater.lab.offline import Replay
from stream_rater.pipeline import parts
from stream_rater.pipeline.changes import players_of
from stream_rater.pipeline.parts import NotAPart
from stream_rater.pipeline.ports import REBUILT, UNFINISHED, Application, Player, Position, Record
from stream_rater.pipeline.sharding import shards_of
from stream_rater.rating.compiled import KERNEL_VERSION
from stream_rater.standings import Invalid, Standings

BATCH = 10_000
"""Beliefs written in one go."""

Offsets = Mapping[int, int]
"""Committed offset by partition; 0 where nothing was committed."""

Write = Callable[[Mapping[int, Application]], Mapping[int, bool]]
"""Compare and set by shard, as the store port does."""


class Misplaced(ValueError):
    """A part waits in a shard that is not its player's any more."""


class InUse(Exception):
    """Somebody else writes to the store."""


class Reach:
    """How far each player's rounds are in the store when `applied` is g."""

    def __init__(
        self, applied: Offsets, scattered: Offsets, shards: int, kernel: int = KERNEL_VERSION
    ) -> None:
        self._applied = applied
        self._scattered = scattered
        self._shards = shards
        self._kernel = kernel
        self._before: dict[Player, int] = {}
        """Largest source offset before g, in the player's own shard."""
        self._elsewhere: dict[Player, int] = {}
        """The same in shards that were once its own."""
        self._after: dict[Player, int] = {}
        """Smallest source offset from g on, of those who have none before."""

    def note(self, record: Record) -> None:
        """Look at a record of `performance-estimated`; raises UnknownPart or Misplaced."""
        try:
            part = parts.decode(record.value or b"", self._kernel, oldest=0)
        except NotAPart:
            return
        offsets = [part.rounds[i].offset for i in part.round_index.tolist()]
        whose = zip(players_of(part), offsets, strict=True)
        at_home = shards_of(part.players, self._shards) == record.partition
        if record.offset < self._applied.get(record.partition, 0):
            for (player, offset), home in zip(whose, at_home.tolist(), strict=True):
                known = self._before if home else self._elsewhere
                known[player] = max(offset, known.get(player, offset))
            return
        if not at_home.all():
            raise Misplaced(
                f"offset {record.offset} of shard {record.partition} waits to be applied, and its "
                f"players are elsewhere among {self._shards} shards"
            )
        for player, offset in whose:
            self._after[player] = min(offset, self._after.get(player, offset))

    def of(self, player: Player, partition: int) -> int:
        """The source offset of the last round that counts, in its partition of the rounds."""
        if player in self._before:
            reached = self._before[player]
        elif player in self._after:
            reached = self._after[player] - 1
        else:
            reached = self._scattered.get(partition, 0) - 1
        return max(reached, self._elsewhere.get(player, reached))

    def least(self, partitions: int) -> int:
        """No player's reach is less."""
        scattered = [self._scattered.get(p, 0) - 1 for p in range(partitions)]
        after = min(self._after.values(), default=math.inf)
        return int(min(*scattered, min(self._before.values(), default=math.inf), after - 1))


class Rebuild:
    """The replay that remembers everybody at their reach."""

    def __init__(self, ladders: Ladders, window: int, reach: Reach, partitions: int) -> None:
        self._replay = Replay(ladders, window)
        self._reach = reach
        self._least = reach.least(partitions)
        self._held: dict[Player, bytes | None] = {}
        """Beliefs of players whose later rounds do not count; None: they have none yet."""
        self.rounds = 0
        self.updates = 0
        self.written = 0
        """Beliefs that were asked for."""

    def feed(self, record: Record) -> None:
        """Rate the round in a record of `round-completed`, if it is valid."""
        try:
            standings = self._replay.judge(record)
        except Invalid:
            return
        if record.offset > self._least:
            self._hold(standings, record)
        self._replay.rate(standings, record.offset)
        self.rounds += 1
        self.updates += len(standings.players)

    def _hold(self, standings: Standings, record: Record) -> None:
        pool = self._replay.pools.get(standings.ladder)
        for name in standings.players:
            player = (standings.ladder, name)
            reached = record.offset > self._reach.of(player, record.partition)
            if reached and player not in self._held:
                known = pool is not None and name in pool
                self._held[player] = pool.belief_bytes(name) if pool and known else None

    @property
    def ladders(self) -> list[str]:
        """Those that have rounds."""
        return list(self._replay.pools)

    def beliefs(self) -> Iterator[tuple[Player, bytes]]:
        """Every belief that the store must hold."""
        for player, held in self._held.items():
            if held is not None:
                self.written += 1
                yield player, held
        for ladder, pool in self._replay.pools.items():
            names = [name for name, _ in pool if (ladder, name) not in self._held]
            for start in range(0, len(names), BATCH):
                some = names[start : start + BATCH]
                self.written += len(some)
                yield from zip(((ladder, name) for name in some), pool.records(some), strict=True)


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
