"""A log in this process: what `local_driver.LocalDriver` needs of it, and what every such log
does alike.

The consumer groups and the transactions that have not ended are in memory. They do not outlive the
process, and neither do the members.
"""

import itertools
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from stream_rater.contract.errors import LogTrouble
from stream_rater.contract.record import Record
from stream_rater.pipeline.ladder_history import LadderLog
from stream_rater.pipeline.ports import Event, Rejection


class Topic(Protocol):
    """The partitions of `round-completed` or `performance-estimated`; `len` is their number."""

    def __len__(self) -> int: ...

    def start(self, partition: int) -> int:
        """The first offset that can be read. Records before it were deleted."""

    def end(self, partition: int) -> int:
        """The offset of the next record."""

    def read(self, partition: int, first: int, end: int) -> Sequence[Record]:
        """The records with offsets in [first, end), where the log has them."""


@dataclass
class Transaction:
    """The messages of a producer in a transaction that has not ended."""

    batches: list[Collection[Event]] = field(default_factory=list)
    """The events, in the order in which they were sent."""
    rejections: list[Rejection] = field(default_factory=list)
    offsets: dict[int, int] = field(default_factory=dict)
    tails: dict[int, int | None] = field(default_factory=dict)
    """The checksums that are committed with offsets of `round-completed`."""


class Group:
    """A consumer group on one topic: the owner of each partition, and the committed offsets."""

    def __init__(self, partitions: int) -> None:
        self.partitions = partitions
        self.generation = 0
        self.owners: dict[int, object] = {}
        self.committed: dict[int, int] = {}
        self.tails: dict[int, int | None] = {}
        """The checksum of the record before each committed offset of `round-completed`, where it is
        known. A group of a file knows those of its process only."""
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


class LocalLog(ABC):
    """The topics, the two consumer groups, and the ladder events (a
    `ladder_history.LadderEventLog`)."""

    rounds: Topic
    parts: Topic
    rejections_deleted = 0
    """The number of the first rejections that retention has deleted."""

    def __init__(self, partitions: int, shards: int) -> None:
        self.estimators = Group(partitions)
        self.updaters = Group(shards)
        self._producers = itertools.count()
        self._fenced: set[int] = set()

    @abstractmethod
    def append_part(self, shard: int, value: bytes) -> int:
        """Append a part, and return its offset."""

    @abstractmethod
    def read(self) -> LadderLog:
        """Combine the ladder events."""

    @abstractmethod
    def write(self, messages: Sequence[bytes]) -> None:
        """Append ladder events."""

    @abstractmethod
    def after_rejected(self) -> Iterable[tuple[int, int]]:
        """The partition and the `next_offset` of the rejections that were not deleted, at least the
        largest one of each partition."""

    @abstractmethod
    def save(self, group: Group, transaction: Transaction) -> None:
        """Write the messages and offsets of a transaction, all or none."""

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
        self.save(group, group.transactions.pop(producer))

    def abort(self, group: Group, producer: int) -> None:
        """Abort a producer's transaction, if it has one."""
        group.transactions.pop(producer, None)

    def fence(self, group: Group, producer: int) -> None:
        """Abort the producer's transaction, and refuse everything that it sends later."""
        self.abort(group, producer)
        self._fenced.add(producer)
