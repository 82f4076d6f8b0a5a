"""Rebuilds the store from the log, so that workers can continue as if nothing had been lost.

The state of a shard is the fold of its parts before `applied`. For g, the group's committed offset,
all events before g are published and none after it is. The store at g must hold, for each player,
the sequential replay of the player's rounds up to the last one that has a part before g (`cutoff`).

So a round that was scattered in part, or not yet, is left to the workers, who finish it as after a
crash. Its other players are replayed with it, because their ratings count in it.

The rebuilt store is not the fold of the old log, which may have been cut for another number of
shards, or computed by another kernel or ladders file. So each shard's log gets a mark. If no part
waits in a shard, `applied` and g move past its mark; a worker that later reads the mark knows that
the store was lost since. If parts wait, they come first, and the store notes that the mark after
them is its own.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise

import numpy as np

from stream_rater.columns.arrays import Ints
from stream_rater.columns.player_column import BeliefColumn
from stream_rater.columns.sharding import shards_of_names
from stream_rater.columns.strings import StringColumn
from stream_rater.config.ladders import Ladders
from stream_rater.contract.record import Record, checksum
from stream_rater.operations.bulk_replay import BulkReplay, Played, Turn
from stream_rater.operations.corrected_rebuild import Marks, edited, starts_of
from stream_rater.operations.cutoff import Cutoff, Offsets
from stream_rater.pipeline.parts.schema import mark
from stream_rater.pipeline.ports import NO_BELIEFS, REBUILT, UNFINISHED, Application, Position
from stream_rater.rating.parameters import Season
from stream_rater.replay.sequential import Judge, Unjudged
from stream_rater.replay.verdicts import NO_VERDICTS, Verdicts
from stream_rater.rounds.batch import RoundBatch
from stream_rater.rounds.corrections import places_of

BATCH = 10_000
"""The number of beliefs written in one call."""

AT_ONCE = 50_000
"""About how many players are collected before their rounds are rated. More players mean more
parallel work."""

Write = Callable[[Mapping[int, Application]], Mapping[int, bool]]
"""Writes by compare-and-set for each shard, as `RedisStore.apply` does."""


class InUse(Exception):
    """Another process writes to the store."""


class Rebuild:
    """A replay that keeps each player's belief as of the player's cut-off."""

    def __init__(
        self, ladders: Ladders, window: int, partitions: int, reach: Cutoff,
        verdicts: Verdicts | None = None, marks: Marks | None = None,
    ) -> None:  # fmt: skip
        """`verdicts`: those on corrections that were worked in; without them a log with corrections
        ends in Unjudged. `marks`: what these left in beliefs."""
        self._verdicts = verdicts
        self._marks = marks
        self._starts = starts_of(verdicts) if verdicts is not None else {}
        self._kinds: dict[tuple[int, tuple[Season, ...]], int] = {}
        """Each different rule and seasons that rounds were rated by, and its number."""
        self._judge = Judge(ladders, window, partitions)
        self._reach = reach
        self._least = reach.least()
        self._crowd = BulkReplay()
        self._waiting: list[Played] = []
        self._players = 0
        """The number of players in the waiting rounds."""
        self._held = np.zeros(0, np.bool_)
        """(row,) whether the player's later rounds do not count."""
        self._aside: list[tuple[Ints, StringColumn]] = []
        """Rows among these that had a belief at the cut-off, with the encoded beliefs."""
        self._ladders: dict[str, None] = {}
        self.rounds = 0
        self.updates = 0
        self.written = 0
        """The number of beliefs that were yielded."""

    def feed(self, records: Sequence[Record]) -> None:
        """Rate the valid rounds in records of `round-completed`, now or together with rounds fed
        later. Raises Unjudged."""
        if places := places_of(records):
            if self._verdicts is None:
                raise Unjudged
            left = sorted(set(range(len(records))).difference(places))
            records = [records[i] for i in left]
        decoded = self._judge.decode(records)
        read = decoded.valid(records)
        self.rounds += len(decoded.rounds)
        self.updates += len(decoded.rounds.share)
        self._ladders |= dict.fromkeys(head.ladder for head in decoded.rounds.heads)
        partition = np.array([each.partition for each in read], np.int64)
        offset = np.array([each.offset for each in read], np.int64)
        rounds, which, counts = edited(decoded.rounds, offset, self._verdicts or NO_VERDICTS)
        rule, offset = decoded.rule[which], offset[which]
        teach = counts & self._judge.round_decoder.informative(rounds, rule)
        played = Played(rounds, self._numbered(rounds, rule, offset), partition[which], offset)
        self._waiting.append(played if teach.all() else played.take(np.flatnonzero(teach)))
        self._players += int(self._waiting[-1].rounds.sizes.sum())
        if self._players >= AT_ONCE:
            self._rate()

    def _numbered(self, rounds: RoundBatch, rule: Ints, offset: Ints) -> Ints:
        """(R,) the number of each round's rule and seasons."""
        started = (
            [()] * len(rounds)
            if not self._starts
            else [
                tuple(season for at, season in self._starts.get(head.ladder, ()) if at < o)
                for head, o in zip(rounds.heads, offset.tolist(), strict=True)
            ]
        )
        keys = zip(rule.tolist(), started, strict=True)
        return np.array([self._kinds.setdefault(k, len(self._kinds)) for k in keys], np.int64)

    def _rate(self) -> None:
        """Rate all waiting rounds."""
        if not self._players:
            return
        played, census = Played.concat(self._waiting), self._reach.census
        rows = census.rows(played.rounds.players())
        self._crowd.make_room(len(census))
        self._held = np.append(self._held, np.zeros(len(census) - len(self._held), np.bool_))
        kinds = list(self._kinds)
        for turn in self._crowd.turns(played, rows):
            self._hold(turn)
            rule, started = kinds[int(turn.played.rule[0])]
            rating = self._judge.round_decoder.ratings[rule]
            evidence = self._crowd.rate(turn, rating, started)
            if self._marks is None:  # corrections edit rounds whose parts may have been sent before
                self._reach.proof.compare(turn.rows, turn.offsets, evidence)
        self._waiting, self._players = [], 0

    def _hold(self, turn: Turn) -> None:
        """Keep the beliefs of players who have reached their cut-off."""
        if turn.played.offset.max() <= self._least:
            return
        beyond = turn.offsets > self._reach.of(turn.rows, turn.partitions)
        rows = turn.rows[beyond & ~self._held[turn.rows]]
        self._held[rows] = True
        if len(rated := self._crowd.rated(rows)):
            self._aside.append((rated, self._crowd.records(rated)))

    @property
    def unproven(self) -> set[int]:
        """The offsets of rounds of which a part waits with other evidence than the replay's."""
        return self._reach.proof.unproven

    @property
    def ladders(self) -> list[str]:
        """The ladders that have rounds."""
        return list(self._ladders)

    def beliefs(self) -> Iterator[BeliefColumn]:
        """Yield every belief that the store must hold, in batches. Nothing can be fed
        afterwards."""
        self._rate()
        for found in self._marked():
            self.written += len(found)
            yield found

    def _marked(self) -> Iterator[BeliefColumn]:
        for rows, records in self._batches_of_beliefs():
            found = BeliefColumn(self._reach.census.players(rows), records)
            yield found if self._marks is None else self._marks.put(found)
        yield from () if self._marks is None else self._marks.rest()

    def _batches_of_beliefs(self) -> Iterator[tuple[Ints, StringColumn]]:
        """Yield rows with their encoded beliefs, in batches."""
        if self._aside:
            aside = np.concatenate([rows for rows, _ in self._aside])
            records = StringColumn.concat([each for _, each in self._aside])
            for some in _batches(len(aside)):
                yield aside[some], records.slice(some.start, some.stop)
        rows = self._crowd.rated(np.flatnonzero(~self._held))
        for some in _batches(len(rows)):
            yield rows[some], self._crowd.records(rows[some])


class Rebuilds:
    """Replays of the same log by several editions, each with the beliefs of other players."""

    def __init__(self, works: Sequence[Rebuild], verdicts: Verdicts = NO_VERDICTS) -> None:
        """`verdicts`: those on all corrections that were worked in."""
        self._works = works
        self.verdicts = verdicts
        self.rounds, self.updates, self.ladders = (
            works[0].rounds, works[0].updates, works[0].ladders,
        )  # fmt: skip

    @property
    def unproven(self) -> set[int]:
        """The offsets of rounds of which a part waits with other evidence than the replay's."""
        return set().union(*(each.unproven for each in self._works))

    @property
    def written(self) -> int:
        """The number of beliefs that were yielded."""
        return sum(each.written for each in self._works)

    def beliefs(self) -> Iterator[BeliefColumn]:
        """Yield every belief that the store must hold, in batches."""
        for each in self._works:
            yield from each.beliefs()


def _batches(count: int) -> Iterator[slice]:
    for start in range(0, count, BATCH):
        yield slice(start, start + BATCH)


def tails_at(applied: Offsets, moved: Offsets, reach: Cutoff) -> dict[int, int]:
    """The checksums of the last records before the shards' next offsets. `moved` are those of the
    shards that are past their marks."""
    own = checksum(mark(len(applied)))
    return reach.tails | dict.fromkeys(moved, own)


def passed(applied: Offsets, marks: Offsets) -> dict[int, int]:
    """The next offset of each marked shard in which no part waits."""
    return {shard: mark + 1 for shard, mark in marks.items() if mark == applied.get(shard, 0)}


def fill(
    beliefs: Iterable[BeliefColumn], applied: Offsets, marks: Offsets, tails: Mapping[int, int],
    epoch: bytes, write: Write,
) -> None:  # fmt: skip
    """Write beliefs to a store whose shards are all marked, empty and UNFINISHED, and have this
    epoch. `tails`: by shard, the checksum of the last record before `applied`. Raises InUse.

    No intermediate state can be mistaken for a complete one, even if the store goes back to it.
    """
    shards = len(marks)
    for some in beliefs:
        _write(_by_shard(some, shards, epoch), write)
    ends = {shard: applied.get(shard, 0) for shard in range(shards)}
    ahead = {
        s: BeliefColumn.of([(REBUILT, b"%d" % (mark + 1))])
        for s, mark in marks.items()
        if mark >= ends[s]
    }
    for starts in (dict.fromkeys(ends, UNFINISHED), ends):  # so that the last call changes nothing
        last = {
            s: Application(
                Position(end, starts[s], b"", epoch, tails.get(s)), ahead.get(s, NO_BELIEFS)
            )
            for s, end in ends.items()
        }
        _write(last, write)


def _by_shard(beliefs: BeliefColumn, shards: int, epoch: bytes) -> dict[int, Application]:
    owners = shards_of_names(beliefs.players.names, shards)
    ordered = beliefs.take(np.argsort(owners, kind="stable"))
    ends = np.cumsum(np.bincount(owners, minlength=shards))
    unfinished = Position(UNFINISHED, UNFINISHED, epoch=epoch)
    return {
        shard: Application(unfinished, ordered[start:end])
        for shard, (start, end) in enumerate(pairwise([0, *ends.tolist()]))
        if end > start
    }


def _write(applications: Mapping[int, Application], write: Write) -> None:
    if applications and not all(write(applications).values()):
        raise InUse("the store changed while it was being rebuilt: is a worker running?")
