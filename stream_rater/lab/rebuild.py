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
from itertools import pairwise

import numpy as np

from stream_rater.columns.arrays import Ints
from stream_rater.columns.player_column import BeliefColumn
from stream_rater.columns.sharding import shards_of_names
from stream_rater.columns.strings import StringColumn
from stream_rater.config import Ladders
from stream_rater.contract.record import Record
from stream_rater.lab.bulk_replay import BulkReplay, Played, Turn
from stream_rater.lab.cutoff import Cutoff, Offsets
from stream_rater.lab.offline import Judge
from stream_rater.pipeline.ports import REBUILT, UNFINISHED, Application, Position

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

    def __init__(self, ladders: Ladders, window: int, partitions: int, reach: Cutoff) -> None:
        self._judge = Judge(ladders, window, partitions)
        self._reach = reach
        self._least = reach.least()
        self._crowd = BulkReplay()
        self._waiting: list[Played] = []
        self._players = 0
        """Of those rounds."""
        self._held = np.zeros(0, np.bool_)
        """Rows whose later rounds do not count."""
        self._aside: list[tuple[Ints, StringColumn]] = []
        """Those of them that had a belief by then, with it."""
        self._ladders: dict[str, None] = {}
        self.rounds = 0
        self.updates = 0
        self.written = 0
        """Beliefs that were asked for."""

    def feed(self, records: Sequence[Record]) -> None:
        """Rate the rounds in records of `round-completed` that are valid: at once, or with others
        that are fed later."""
        decoded = self._judge.decode(records)
        read = decoded.valid(records)
        self.rounds += len(decoded.rounds)
        self.updates += len(decoded.rounds.share)
        self._ladders |= dict.fromkeys(head.ladder for head in decoded.rounds.heads)
        played = Played(
            decoded.rounds,
            decoded.rule,
            np.array([each.partition for each in read], np.int64),
            np.array([each.offset for each in read], np.int64),
        )
        teach = self._judge.round_decoder.rates(decoded.rounds, decoded.rule)
        self._waiting.append(played if teach.all() else played.take(np.flatnonzero(teach)))
        self._players += int(self._waiting[-1].rounds.sizes.sum())
        if self._players >= AT_ONCE:
            self._rate()

    def _rate(self) -> None:
        """Rate all that waits."""
        if not self._players:
            return
        played, census = Played.concat(self._waiting), self._reach.census
        rows = census.rows(played.rounds.players())
        self._crowd.make_room(len(census))
        self._held = np.append(self._held, np.zeros(len(census) - len(self._held), np.bool_))
        for turn in self._crowd.turns(played, rows):
            self._hold(turn)
            self._crowd.rate(turn, self._judge.round_decoder.ratings[int(turn.played.rule[0])])
        self._waiting, self._players = [], 0

    def _hold(self, turn: Turn) -> None:
        """Put the beliefs aside of those who have come to their reach."""
        if turn.played.offset.max() <= self._least:
            return
        beyond = turn.offsets > self._reach.of(turn.rows, turn.partitions)
        rows = turn.rows[beyond & ~self._held[turn.rows]]
        self._held[rows] = True
        if len(rated := self._crowd.rated(rows)):
            self._aside.append((rated, self._crowd.records(rated)))

    @property
    def ladders(self) -> list[str]:
        """Those that have rounds."""
        return list(self._ladders)

    def beliefs(self) -> Iterator[BeliefColumn]:
        """Every belief that the store must hold, some at a time. Nothing can be fed afterwards."""
        self._rate()
        for rows, records in self._rows_with_records():
            self.written += len(rows)
            yield BeliefColumn(self._reach.census.players(rows), records)

    def _rows_with_records(self) -> Iterator[tuple[Ints, StringColumn]]:
        """Rows, and the beliefs in them."""
        if self._aside:
            aside = np.concatenate([rows for rows, _ in self._aside])
            records = StringColumn.concat([each for _, each in self._aside])
            for some in _batches(len(aside)):
                yield aside[some], records.slice(some.start, some.stop)
        rows = self._crowd.rated(np.flatnonzero(~self._held))
        for some in _batches(len(rows)):
            yield rows[some], self._crowd.records(rows[some])


def _batches(count: int) -> Iterator[slice]:
    for start in range(0, count, BATCH):
        yield slice(start, start + BATCH)


def passed(applied: Offsets, marks: Offsets) -> dict[int, int]:
    """Where shards go on that are marked at these offsets, and in which no part waits."""
    return {shard: mark + 1 for shard, mark in marks.items() if mark == applied.get(shard, 0)}


def fill(beliefs: Iterable[BeliefColumn], applied: Offsets, marks: Offsets, write: Write) -> None:
    """Write beliefs to a store whose shards, all marked, are empty and UNFINISHED; raises InUse.

    No state on the way can be taken for a whole one, not even by a store that goes back to it.
    """
    shards = len(marks)
    for some in beliefs:
        _write(_by_shard(some, shards), write)
    ends = {shard: applied.get(shard, 0) for shard in range(shards)}
    ahead = {s: [(REBUILT, b"%d" % (mark + 1))] for s, mark in marks.items() if mark >= ends[s]}
    for starts in (dict.fromkeys(ends, UNFINISHED), ends):  # the last call is to change nothing
        last = {
            s: Application(Position(end, starts[s]), ahead.get(s, ())) for s, end in ends.items()
        }
        _write(last, write)


def _by_shard(beliefs: BeliefColumn, shards: int) -> dict[int, Application]:
    owners = shards_of_names(beliefs.players.names, shards)
    ordered = beliefs.take(np.argsort(owners, kind="stable"))
    ends = np.cumsum(np.bincount(owners, minlength=shards))
    return {
        shard: Application(Position(UNFINISHED, UNFINISHED), ordered[start:end])
        for shard, (start, end) in enumerate(pairwise([0, *ends.tolist()]))
        if end > start
    }


def _write(applications: Mapping[int, Application], write: Write) -> None:
    if applications and not all(write(applications).values()):
        raise InUse("the store changed while it was being rebuilt: is a worker running?")
