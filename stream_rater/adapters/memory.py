"""Kafka and Redis in memory, for the simulator, the unit tests and the self-check.
`local_driver.LocalDriver` performs a machine's effects on them."""

from collections.abc import Iterable, Sequence
from itertools import chain

from stream_rater.adapters.local_driver import Group, LocalLog, LocalStore, Topic, Transaction
from stream_rater.columns.player_column import PlayerColumn
from stream_rater.contract.record import Headers, Player, Record
from stream_rater.pipeline import ladder_history, ports


class Records(list[Record]):
    """One partition, by offset. Records before `start` were deleted and cannot be read."""

    start = 0


class Partitions(list[Records], Topic):
    """The partitions of a topic."""

    def start(self, partition: int) -> int:
        return self[partition].start

    def end(self, partition: int) -> int:
        return len(self[partition])

    def read(self, partition: int, first: int, end: int) -> Sequence[Record]:
        return self[partition][first:end]


class Log(LocalLog):
    """The topics, the two consumer groups, and the ladder events."""

    def __init__(self, partitions: int, shards: int) -> None:
        super().__init__(partitions, shards)
        self.rounds: Partitions = Partitions(Records() for _ in range(partitions))
        self.parts: Partitions = Partitions(Records() for _ in range(shards))
        self.changed: list[list[ports.Event]] = [[] for _ in range(shards)]
        self.rejected: list[ports.Rejection] = []
        self.ladder_events: list[bytes] = []

    def add_shards(self, count: int) -> None:
        """Add shards. Running workers do not notice them."""
        self.parts += [Records() for _ in range(count)]
        self.changed += [[] for _ in range(count)]
        self.updaters.partitions += count

    def submit(
        self, partition: int, value: bytes | None, headers: Headers = (), received_s: float = 0.0,
        key: bytes | None = None,
    ) -> int:  # fmt: skip
        """Append a record to `round-completed`, and return its offset."""
        log = self.rounds[partition]
        log.append(Record(partition, len(log), value, headers, received_s, key))
        return len(log) - 1

    def append_part(self, shard: int, value: bytes) -> int:
        log = self.parts[shard]
        log.append(Record(shard, len(log), value))
        return len(log) - 1

    def read(self) -> ladder_history.LadderLog:
        ladder_log = ladder_history.LadderLog()
        for each in self.ladder_events:
            ladder_log.read(each)
        return ladder_log

    def write(self, messages: Sequence[bytes]) -> None:
        self.ladder_events += messages

    def after_rejected(self) -> Iterable[tuple[int, int]]:
        left = self.rejected[self.rejections_deleted :]
        return ((each.record.partition, each.next_offset) for each in left)

    def save(self, group: Group, transaction: Transaction) -> None:
        for event in chain.from_iterable(transaction.batches):
            self.changed[event.shard].append(event)
        self.rejected.extend(transaction.rejections)
        group.committed.update(transaction.offsets)
        group.tails.update(transaction.tails)


class Store(LocalStore):
    """The position and the beliefs of each shard, and the ladders' checkpoints."""

    def __init__(self) -> None:
        self.positions: dict[int, ports.Position] = {}
        self.beliefs: dict[int, dict[Player, bytes]] = {}
        self.checkpoints: dict[str, dict[str, bytes]] = {}
        """Heads by ladder and name."""
        self.pieces: dict[tuple[str, str, int], bytes] = {}
        """The pieces of checkpoints by ladder, name and number."""

    def read(self, shard: int, players: PlayerColumn) -> ports.StoredShard:
        beliefs = self.beliefs.get(shard, {})
        position = self.positions.get(shard, ports.Position())
        return ports.StoredShard(position, [beliefs.get(player) for player in players])

    def apply(self, shard: int, application: ports.Application) -> bool:
        position, beliefs = application.position, application.beliefs
        stored = self.positions.get(shard, ports.Position())
        if (stored.applied, stored.epoch) != (position.start, position.epoch):
            return False
        before = self.beliefs.setdefault(shard, {})
        new = sum(player not in before for player, _ in beliefs)
        before.update(beliefs)
        vanished = application.absent is not None and new != application.absent
        vanished_position = ports.Position(ports.VANISHED, ports.VANISHED, epoch=position.epoch)
        self.positions[shard] = vanished_position if vanished else position
        return not vanished

    def heads(self, ladder: str) -> dict[str, bytes]:
        return dict(self.checkpoints.get(ladder, {}))

    def read_piece(self, ladder: str, name: str, number: int) -> bytes | None:
        return self.pieces.get((ladder, name, number))

    def write_piece(self, ladder: str, name: str, number: int, data: bytes) -> None:
        self.pieces[ladder, name, number] = data

    def keep_head(self, ladder: str, name: str, head: bytes) -> None:
        self.checkpoints.setdefault(ladder, {})[name] = head

    def drop_piece(self, ladder: str, name: str, number: int) -> None:
        self.pieces.pop((ladder, name, number), None)

    def drop_head(self, ladder: str, name: str) -> None:
        self.checkpoints.get(ladder, {}).pop(name, None)
