"""The in-memory log and store, with the faults of real servers. The store remembers every state,
and can return to it or answer from it. Batches are small, and shards get calls in any order."""

import itertools
import random
from collections import Counter, deque
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from stream_rater.adapters.local_driver import Group, LocalDriver, Steps, Topic
from stream_rater.adapters.memory import Log, Store
from stream_rater.columns.player_column import PlayerColumn
from stream_rater.contract.record import Player, Record
from stream_rater.pipeline.ports import Application, Event, Polled, Position, StoredShard

State = tuple[Position, dict[Player, bytes]]


@dataclass(frozen=True)
class Unkindness:
    """The faults that may come with every call."""

    small_bites: bool = False
    deaf: float = 0.0  # the probability that a poll does not report a rebalance yet
    stutter: float = 0.0  # the probability that a poll returns records a second time


class StoreWithPast(Store):
    def __init__(self, rng: random.Random, stale: float = 0.0) -> None:
        super().__init__()
        self._rng = rng
        self.epochs = itertools.count(1)  # the words of the rebuilds to come; no two are equal
        self.stale = stale
        self.unkept = 0.0  # the probability that a checkpoint is not read, written or deleted
        self.luck = random.Random(0)  # decides when; the rest happens as without this fault
        self.vanishing = False  # whether beliefs vanish within the next call that changes some
        self.faults: Counter[str] = Counter()  # the faults that have happened
        self._line: dict[int, list[State]] = {}  # by shard, the states that led to the present one
        self._ever: dict[int, list[State]] = {}
        self._older: dict[int, list[State]] = {}  # those of before a loss of the store
        self._were: list[tuple[dict[str, dict[str, bytes]], dict[tuple[str, str, int], bytes]]] = []
        """The checkpoints that there were before."""

    def state(self, shard: int) -> State:
        return self.positions.get(shard, Position()), dict(self.beliefs.get(shard, {}))

    def apply(self, shard: int, application: Application) -> bool:
        if self.vanishing:
            self._vanish_within(shard, application)
        before = self.state(shard)
        done = super().apply(shard, application)
        if done:
            self._line.setdefault(shard, []).append(before)
            self._ever.setdefault(shard, [before]).append(self.state(shard))
        return done

    def read(self, shard: int, players: PlayerColumn) -> StoredShard:
        if self.stale and self._rng.random() < self.stale and shard in self._ever:
            self.faults["stale"] += 1
            position, beliefs = self._rng.choice(self._ever[shard])
            return StoredShard(position, [beliefs.get(player) for player in players])
        return super().read(shard, players)

    def stores_nothing(self) -> bool:
        """Whether an effect on a checkpoint fails, as where the store is full."""
        fails = self.luck.random() < self.unkept
        self.faults["unkept"] += fails
        return fails

    def vanish(self) -> None:
        """Let a hash of beliefs be deleted while a call that writes to it is on its way."""
        self.vanishing = True

    def _vanish_within(self, shard: int, application: Application) -> None:
        """Delete half of a shard's beliefs, if the call writes one of them and will succeed."""
        stored = self.positions.get(shard, Position())
        position = application.position
        beliefs = self.beliefs.get(shard, {})
        mine = [player for player, _ in application.beliefs if player in beliefs]
        counted = mine and application.absent is not None
        if counted and (position.start, position.epoch) == (stored.applied, stored.epoch):
            self.vanishing = False
            self.faults["vanished"] += 1
            others = [player for player in beliefs if player not in mine]
            for player in [mine[0], *others[::2]]:
                del beliefs[player]

    def lose_checkpoints(self) -> None:
        """Lose some pieces and heads, or return to older ones."""
        if not self.checkpoints:
            return
        self.faults["no-checkpoint"] += 1
        self._were.append(
            ({each: {**of} for each, of in self.checkpoints.items()}, {**self.pieces})
        )
        if self._rng.random() < 0.5:
            heads, pieces = self._rng.choice(self._were)
            self.checkpoints, self.pieces = {each: {**of} for each, of in heads.items()}, {**pieces}
        stored: list[dict[Any, bytes]] = [self.pieces, *self.checkpoints.values()]
        for pieces in stored:
            for key in [each for each in pieces if self._rng.random() < 0.2]:
                del pieces[key]

    def roll_back_some(self, shards: Sequence[int]) -> None:
        """Lose the last calls on some shards, or return to another old state."""
        for shard in self._rng.sample(shards, self._rng.choice([1, 1, 2, len(shards)])):
            if self._rng.random() < 0.2:
                self.restore(shard)
            else:
                self.roll_back(shard, self._rng.choice([1, 2, 3, 1000]))

    def lose_some(self, shards: Sequence[int]) -> None:
        """Lose some shards, or all, as `lose` does."""
        for shard in self._rng.sample(shards, self._rng.choice([1, len(shards)])):
            self.lose(shard)

    def roll_back(self, shard: int, calls: int) -> None:
        """Take back the last calls on a shard, as a failover to a lagging replica does."""
        line = self._line.get(shard, [])
        if line:
            self.faults["roll-back"] += 1
            keep = max(0, len(line) - calls)
            self.put(shard, line[keep])
            del line[keep:]

    def restore(self, shard: int) -> None:
        """Return to a former state, as by an old snapshot or a master that was cut off."""
        if shard in self._ever:
            self.faults["restored"] += 1
            self._line.setdefault(shard, []).append(self.state(shard))
            self.put(shard, self._rng.choice(self._ever[shard]))

    def wipe(self) -> None:
        """Delete everything. No past state returns, except as `lose` does."""
        for shard, states in self._ever.items():
            self._older.setdefault(shard, []).extend(states)
        for stored in (self.positions, self.beliefs, self._line, self._ever):
            stored.clear()

    def lose(self, shard: int) -> None:
        """Empty the shard, or return it to before a rebuild."""
        self.faults["lost"] += 1
        self.put(shard, self._rng.choice([(Position(), {}), *self._older.get(shard, ())]))
        self._line.pop(shard, None)
        self._ever.pop(shard, None)

    def forget_before(self, shard: int, start: int) -> None:
        """Forget the states of a shard whose parts are no longer in the log."""
        for states in (self._line, self._ever):
            kept = [each for each in states.get(shard, ()) if each[0].start >= start]
            states[shard] = kept
        if not self._ever[shard]:
            self._ever[shard] = [self.state(shard)]

    def put(self, shard: int, state: State) -> None:
        self.positions[shard], beliefs = state
        self.beliefs[shard] = dict(beliefs)


class UnkindDriver(LocalDriver):
    """A driver that performs effects in any order that real servers might."""

    log: Log
    store: StoreWithPast
    commits_plainly = False  # whether offsets alone are committed outside a transaction

    def __init__(
        self, log: Log, store: StoreWithPast, group: Group, source: Topic,
        rng: random.Random, unkindness: Unkindness,
    ) -> None:  # fmt: skip
        super().__init__(log, store, group, source)
        self.rng = rng
        self.unkindness = unkindness

    def checkpoints(self, ladder: str) -> Steps:
        return self._kept(super().checkpoints(ladder), {})

    def read_piece(self, ladder: str, name: str, number: int) -> Steps:
        return self._kept(super().read_piece(ladder, name, number), None, fault="checkpoint")

    def write_piece(self, ladder: str, name: str, number: int, data: bytes) -> Steps:
        return self._kept(super().write_piece(ladder, name, number, data), False)

    def keep_checkpoint(self, ladder: str, name: str, head: bytes) -> Steps:
        return self._kept(super().keep_checkpoint(ladder, name, head), False)

    def drop_checkpoint(self, ladder: str, name: str, pieces: int) -> Steps:
        return self._kept(super().drop_checkpoint(ladder, name, pieces), False)

    def _kept(self, steps: Steps, unkept: object, fault: str = "") -> Steps:
        """The steps of an effect on a checkpoint, unless the store is full."""
        if self.store.stores_nothing():
            return self._unkept(unkept)
        if fault:
            self.store.faults[fault] += 1
        return steps

    def _unkept(self, outcome: object) -> Steps:
        yield
        return outcome

    def _membership(self) -> Polled:
        if self.rng.random() < self.unkindness.deaf:
            self.store.faults["deaf"] += self._generation != self.group.generation
            return Polled(self.now_s)
        return super()._membership()

    def _take(self, partition: int, most: int) -> Sequence[Record]:
        if self.unkindness.small_bites:
            most = self.rng.choice((1, 1, 2, 5))
        if self.unkindness.stutter and self.rng.random() < self.unkindness.stutter:
            again = self._reading[partition] - self.rng.choice((1, 2, 5))
            again = max(again, self._source.start(partition))
            self.store.faults["repeated"] += again < self._reading[partition]
            self._reading[partition] = again
        return super()._take(partition, most)

    def read_priors(self, players: Mapping[int, PlayerColumn]) -> Steps:
        return (yield from super().read_priors(self._shuffled(players)))

    def read_beliefs(self, players: Mapping[int, PlayerColumn]) -> Steps:
        return (yield from super().read_beliefs(self._shuffled(players)))

    def apply(self, applications: Mapping[int, Application], events: Collection[Event]) -> Steps:
        return (yield from super().apply(self._shuffled(applications), events))

    def _shuffled(self, by_shard: Mapping[int, Any]) -> dict[int, Any]:
        if len(by_shard) < 2:
            return dict(by_shard)
        return dict(self.rng.sample(list(by_shard.items()), len(by_shard)))

    def scatter(self, parts: Sequence[tuple[int, bytes]]) -> Steps:
        """Append in order within a shard, as an idempotent producer does, else in any order."""
        waiting: dict[int, deque[tuple[int, bytes]]] = {}
        for index, (shard, data) in enumerate(parts):
            waiting.setdefault(shard, deque()).append((index, data))
        offsets = [-1] * len(parts)
        while waiting:
            yield
            shard = self.rng.choice(list(waiting))
            index, data = waiting[shard].popleft()
            offsets[index] = self.log.append_part(shard, data)
            if not waiting[shard]:
                del waiting[shard]
        yield
        return offsets
