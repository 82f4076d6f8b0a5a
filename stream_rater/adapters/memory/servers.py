"""In-memory Kafka and Redis: the log, the consumer groups and the store."""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field

from stream_rater.columns.player_column import PlayerColumn
from stream_rater.contract.errors import LogTrouble
from stream_rater.contract.events import Headers
from stream_rater.contract.record import Player, Record
from stream_rater.pipeline.ladder_history import LadderLog
from stream_rater.pipeline.ports import (
    VANISHED,
    Application,
    Event,
    Position,
    Priors,
    Rejection,
    StoredShard,
)
from stream_rater.rating.record import HEADER_SIZE


@dataclass
class Transaction:
    """The messages of a producer in a transaction that has not ended."""

    events: list[Event] = field(default_factory=list)
    rejections: list[Rejection] = field(default_factory=list)
    offsets: dict[int, int] = field(default_factory=dict)


class Group:
    """A consumer group on one topic: the owner of each partition, and the committed offsets."""

    def __init__(self, partitions: int) -> None:
        self.partitions = partitions
        self.generation = 0
        self.owners: dict[int, object] = {}
        self.committed: dict[int, int] = {}
        self.transactions: dict[int, Transaction] = {}
        """Open transactions by producer. The offsets in them are not stable."""

    def assign(self, members: Sequence[object]) -> None:
        """Rebalance: assign all partitions again. Members are fenced until their next poll."""
        self.generation += 1
        self.owners = (
            {p: members[p % len(members)] for p in range(self.partitions)} if members else {}
        )

    def owned_by(self, member: object) -> frozenset[int]:
        """The partitions that the coordinator has assigned to a member."""
        return frozenset(p for p, owner in self.owners.items() if owner is member)


class Records(list[Record]):
    """One partition: the record at offset o has index o. Records before `start` were deleted and
    cannot be read."""

    start = 0


class Log:
    """The topics, the two consumer groups, and the ladder events (a
    `ladder_history.NoteStore`)."""

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
        """Add shards. Running workers do not notice them."""
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
        """Append a record to `round-completed`, and return its offset."""
        log = self.rounds[partition]
        log.append(Record(partition, len(log), value, headers, received_s, key))
        return len(log) - 1

    def append_part(self, shard: int, value: bytes) -> int:
        """Append a part, and return its offset."""
        log = self.parts[shard]
        log.append(Record(shard, len(log), value))
        return len(log) - 1

    def read(self) -> LadderLog:
        """Combine the ladder events."""
        ladder_log = LadderLog()
        for each in self.notes:
            ladder_log.read(each)
        return ladder_log

    def write(self, messages: Sequence[bytes]) -> None:
        """Append ladder events."""
        self.notes += messages

    def new_producer(self) -> int:
        """The id of a new producer."""
        return next(self._producers)

    def transaction(self, group: Group, producer: int) -> Transaction:
        """The open transaction of a producer, which is begun if there is none. Raises LogTrouble if
        the producer is fenced."""
        if producer in self._fenced:
            raise LogTrouble(
                "fenced: another producer replaced this one, or its transaction timed out"
            )
        return group.transactions.setdefault(producer, Transaction())

    def commit(self, group: Group, producer: int) -> None:
        """Commit a producer's transaction. Raises LogTrouble if the producer is fenced."""
        self.transaction(group, producer)
        transaction = group.transactions.pop(producer)
        for event in transaction.events:
            self.changed[event.shard].append(event)
        self.rejected.extend(transaction.rejections)
        group.committed.update(transaction.offsets)

    def abort(self, group: Group, producer: int) -> None:
        """Abort a producer's transaction, if it has one."""
        group.transactions.pop(producer, None)

    def fence(self, group: Group, producer: int) -> None:
        """Abort the producer's transaction, and refuse everything that it sends later."""
        self.abort(group, producer)
        self._fenced.add(producer)


class Store:
    """The position and the beliefs of each shard, and the ladders' checkpoints."""

    def __init__(self) -> None:
        self.positions: dict[int, Position] = {}
        self.beliefs: dict[int, dict[Player, bytes]] = {}
        self.checkpoints: dict[str, dict[str, bytes]] = {}
        """Heads by ladder and name."""
        self.pieces: dict[tuple[str, str, int], bytes] = {}
        """The pieces of checkpoints by ladder, name and number."""

    def read_priors(self, shard: int, players: PlayerColumn) -> Priors:
        """The `applied` of a shard and the players' belief headers."""
        held = self.read(shard, players)
        nothing = bytes(HEADER_SIZE)
        headers = b"".join(r[:HEADER_SIZE] if r else nothing for r in held.records)
        return Priors(held.position.applied, headers)

    def read(self, shard: int, players: PlayerColumn) -> StoredShard:
        """The position of a shard and the players' records."""
        beliefs = self.beliefs.get(shard, {})
        position = self.positions.get(shard, Position())
        return StoredShard(position, [beliefs.get(player) for player in players])

    def apply(self, shard: int, application: Application) -> bool:
        """Write beliefs and position by compare-and-set. Returns False, and writes nothing, if
        `applied` is not `position.start` or the epoch differs. It also returns False if the number
        of new beliefs differs from the number of absent ones; then the shard is VANISHED."""
        position, beliefs = application.position, application.beliefs
        held = self.positions.get(shard, Position())
        if (held.applied, held.epoch) != (position.start, position.epoch):
            return False
        before = self.beliefs.setdefault(shard, {})
        new = sum(player not in before for player, _ in beliefs)
        before.update(beliefs)
        vanished = application.absent is not None and new != application.absent
        here = Position(VANISHED, VANISHED, epoch=position.epoch)
        self.positions[shard] = here if vanished else position
        return not vanished
