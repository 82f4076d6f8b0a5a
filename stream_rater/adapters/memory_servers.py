"""The log and the store in memory: what Kafka and Redis keep, without a process of their own."""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field

from stream_rater.contract.events import Headers
from stream_rater.contract.record import Player, Record
from stream_rater.pipeline.ladder_history import Story
from stream_rater.pipeline.ports import Event, Held, LogTrouble, Position, Priors, Rejection
from stream_rater.rating.record import HEADER_SIZE


@dataclass
class Transaction:
    """What a producer has sent and not ended."""

    events: list[Event] = field(default_factory=list)
    rejections: list[Rejection] = field(default_factory=list)
    offsets: dict[int, int] = field(default_factory=dict)


class Group:
    """A consumer group on one topic: who owns which partitions, and the committed offsets."""

    def __init__(self, partitions: int) -> None:
        self.partitions = partitions
        self.generation = 0
        self.owners: dict[int, object] = {}
        self.committed: dict[int, int] = {}
        self.pending: dict[int, Transaction] = {}
        """Transactions not ended, by producer: their offsets are not stable."""

    def assign(self, members: Sequence[object]) -> None:
        """A rebalance: deal the partitions out anew, which fences everyone until the next poll."""
        self.generation += 1
        self.owners = (
            {p: members[p % len(members)] for p in range(self.partitions)} if members else {}
        )

    def owned_by(self, member: object) -> frozenset[int]:
        """The partitions of a member, as the coordinator sees it."""
        return frozenset(p for p, owner in self.owners.items() if owner is member)


class Records(list[Record]):
    """One partition: the record at offset o is the o-th. Those before `start` cannot be read."""

    start = 0


class Log:
    """The topics and the two groups; notes about ladders are read and written as `story` asks."""

    def __init__(self, partitions: int, shards: int) -> None:
        self.rounds = [Records() for _ in range(partitions)]
        self.parts = [Records() for _ in range(shards)]
        self.changed: list[list[Event]] = [[] for _ in range(shards)]
        self.rejected: list[Rejection] = []
        self.notes: list[bytes] = []
        self.estimators = Group(partitions)
        self.updaters = Group(shards)
        self._producers = itertools.count()
        self._fenced: set[int] = set()

    def add_shards(self, count: int) -> None:
        """Of which nobody knows yet."""
        self.parts += [Records() for _ in range(count)]
        self.changed += [[] for _ in range(count)]
        self.updaters.partitions += count

    def submit(
        self,
        partition: int,
        value: bytes | None,
        headers: Headers = (),
        received_s: float = 0.0,
        key: bytes | None = None,
    ) -> int:
        """Append a record to round-completed; returns its offset."""
        log = self.rounds[partition]
        log.append(Record(partition, len(log), value, headers, received_s, key))
        return len(log) - 1

    def append_part(self, shard: int, value: bytes) -> int:
        """Append a part; returns its offset."""
        log = self.parts[shard]
        log.append(Record(shard, len(log), value))
        return len(log) - 1

    def read(self) -> Story:
        """What the ladders' notes add up to."""
        story = Story()
        for each in self.notes:
            story.read(each)
        return story

    def write(self, messages: Sequence[bytes]) -> None:
        """Add notes about ladders."""
        self.notes += messages

    def new_producer(self) -> int:
        """A producer's id, never used before."""
        return next(self._producers)

    def transaction(self, group: Group, producer: int) -> Transaction:
        """A producer's transaction, begun if it has none; raises LogTrouble if it is fenced."""
        if producer in self._fenced:
            raise LogTrouble("fenced: the producer has a successor, or its transaction timed out")
        return group.pending.setdefault(producer, Transaction())

    def commit(self, group: Group, producer: int) -> None:
        """End a producer's transaction, if it has one; raises LogTrouble if it is fenced."""
        self.transaction(group, producer)
        transaction = group.pending.pop(producer)
        for event in transaction.events:
            self.changed[event.shard].append(event)
        self.rejected.extend(transaction.rejections)
        group.committed.update(transaction.offsets)

    def abort(self, group: Group, producer: int) -> None:
        """Undo a producer's transaction, if it has one."""
        group.pending.pop(producer, None)

    def fence(self, group: Group, producer: int) -> None:
        """Abort, and take nothing more from this producer."""
        self.abort(group, producer)
        self._fenced.add(producer)


class Store:
    """Positions and beliefs, by shard."""

    def __init__(self) -> None:
        self.positions: dict[int, Position] = {}
        self.beliefs: dict[int, dict[Player, bytes]] = {}

    def read_priors(self, shard: int, players: Sequence[Player]) -> Priors:
        """Headers and `applied`, at one instant."""
        held = self.read(shard, players)
        nothing = bytes(HEADER_SIZE)
        headers = b"".join(r[:HEADER_SIZE] if r else nothing for r in held.records)
        return Priors(held.position.applied, headers)

    def read(self, shard: int, players: Sequence[Player]) -> Held:
        """Records and position, at one instant."""
        beliefs = self.beliefs.get(shard, {})
        position = self.positions.get(shard, Position())
        return Held(position, [beliefs.get(player) for player in players])

    def apply(
        self, shard: int, position: Position, beliefs: Sequence[tuple[Player, bytes]]
    ) -> bool:
        """Compare and set on `applied`."""
        if self.positions.get(shard, Position()).applied != position.start:
            return False
        self.positions[shard] = position
        self.beliefs.setdefault(shard, {}).update(beliefs)
        return True
