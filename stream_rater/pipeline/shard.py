"""One owned shard: what the store and the group say of it, and its parts that wait.

Protocol's a is `applied`, c is `committed`. Parts are read from a on, or, where a > c, from the
start of the last call, which is then to be settled.
"""

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from stream_rater.columns.kernels import KERNEL_VERSION
from stream_rater.columns.player_column import PlayerColumn
from stream_rater.columns.sharding import shards_of
from stream_rater.contract.record import Record
from stream_rater.parts import decoder
from stream_rater.parts.decoder import PartView
from stream_rater.parts.rows import rows_of
from stream_rater.parts.schema import CutForFewer, NotAPart, Rebuilt, UnknownPart
from stream_rater.pipeline.observer import Traced
from stream_rater.pipeline.ports import UNFINISHED, Held, Position

REBUILD = "stop the workers and run `stream-rater rebuild --replace`"


@dataclass(frozen=True, slots=True)
class Item:
    """A part as read."""

    offset: int
    piece: PartView
    """No one stands in it twice."""


@dataclass(frozen=True, slots=True)
class Batch:
    """Consecutive parts of one shard."""

    end: int
    """The offset after the last part."""
    items: Sequence[Item]

    @property
    def parts(self) -> list[PartView]:
        """In order."""
        return [item.piece for item in self.items]

    @property
    def rows(self) -> int:
        """How many."""
        return sum(len(item.piece) for item in self.items)

    @property
    def players(self) -> PlayerColumn:
        """Of all rows, part by part."""
        return rows_of(self.parts).players


def traced(batches: Mapping[int, Batch]) -> Iterator[Traced]:
    """The rounds of shards' batches that carry a trace, each as often as it has parts there."""
    for shard, batch in batches.items():
        for item in batch.items:
            for trace, ladder, round_id in item.piece.traced():
                yield Traced(trace, ladder, round_id, shard, item.offset)


@dataclass(slots=True)
class Shard:
    """One owned partition of `performance-estimated`."""

    position: Position
    committed: int
    next_offset: int
    """The next offset to be read."""
    among: int
    """How many shards there are."""
    rebuilt: int = 0
    """The store holds what rebuilds put there whose marks are before this offset."""
    queue: deque[Item] = field(default_factory=deque)
    """Parts read and not yet used."""
    barrier: str = ""
    """Why nothing can be read at `next_offset`."""

    @classmethod
    def at(cls, position: Position, committed: int, among: int) -> "Shard":
        """A shard as found, one of so many."""
        ahead = position.applied > committed
        return cls(position, committed, position.start if ahead else position.applied, among)

    @classmethod
    def found(cls, held: Held, committed: int, among: int) -> "Shard":
        """The same, of what the store holds for `REBUILT`."""
        shard = cls.at(held.position, committed, among)
        shard.rebuilt = int(held.records[0] or 0)
        return shard

    @property
    def applied(self) -> int:
        """The store is the fold of all parts before it."""
        return self.position.applied

    @property
    def unsettled(self) -> bool:
        """a > c: the events of [c, a) come before anything else."""
        return self.applied > self.committed

    @property
    def replaying(self) -> bool:
        """a < c: the store lost writes whose events are out."""
        return self.applied < self.committed

    @property
    def forgotten(self) -> str:
        """Why a shard that has no committed offset cannot go on; empty if it is new."""
        if self.applied <= 0:
            return ""
        return (
            f"the store is at {self.applied} and the group has no committed offset, which Kafka"
            " forgets some days after the last worker left (offsets.retention.minutes): commit"
            f" {self.applied} for this partition to go on"
        )

    @property
    def _too_far_ahead(self) -> str:
        """Why [c, a) cannot be settled if the last call began after c."""
        return (
            f"the store's last call was [{self.position.start}, {self.applied}) and the group's"
            f" committed offset is {self.committed}, which no crash explains: was it reset?"
            f" Commit {self.applied} for this partition to go on"
        )

    def misfit(self, log_start: int, log_end: int) -> str:
        """Why this log cannot be the one that the store is a fold of; empty if it can."""
        if self.applied == UNFINISHED:
            return f"a rebuild of the store was not finished: {REBUILD}"
        if log_start > self.next_offset:
            need = f"the store needs offset {self.next_offset}"
            return f"{need} and the log starts at {log_start}: {REBUILD}"
        reached = max(self.applied, self.committed)
        if log_end < reached:
            return f"offset {reached} was reached and the log ends at {log_end}: {REBUILD}"
        if self.unsettled and self.position.start > self.committed:
            return self._too_far_ahead
        return ""

    @property
    def stopped(self) -> bool:
        """Whether all is done that can be done before the barrier."""
        return bool(self.barrier) and (self.unsettled or not self.queue)

    @property
    def rows(self) -> int:
        """How many rows wait to be applied."""
        return 0 if self.unsettled else sum(len(item.piece) for item in self.queue)

    def read(
        self, record: Record, kernel: int = KERNEL_VERSION, piece: PartView | None = None
    ) -> None:
        """Queue the part in a record, to be applied by kernels of this version; raises NotAPart,
        having queued one of no rows. `piece` is what `part_batch.read_all` found of it."""
        if self.barrier or record.offset < self.next_offset:
            return
        if record.unreadable:
            self.barrier = f"offset {record.offset}: {record.unreadable}"
            return
        if record.offset > self.next_offset:
            # Parts are not written in transactions, so nothing but loss leaves a gap.
            self.barrier = f"offsets [{self.next_offset}, {record.offset}) are not in the log"
            return
        try:
            part = decoder.read(record.value or b"", kernel) if piece is None else piece
            self._check_cut(part, record.partition)
        except UnknownPart as error:
            self.barrier = f"offset {record.offset}: {error}"
            return
        except Rebuilt as mark:
            self._meet(mark, record.offset)
            return
        except NotAPart:
            self._queue(Item(record.offset, decoder.NO_ROWS))
            raise
        self._queue(Item(record.offset, part))

    def _check_cut(self, part: PartView, shard: int) -> None:
        """A part is applied only if it was cut for as many shards as there are, and holds players
        of this shard alone; raises CutForFewer or UnknownPart.

        One that was cut for fewer changes nothing. It comes from a worker that was paused while
        shards were added, after the mark of the rebuild that followed. (Before the mark it may be
        in its place, but nobody gets past the mark who reads from there.)
        """
        if part.shards and part.shards < self.among:
            raise CutForFewer(f"it was cut for {part.shards} shards, there are {self.among}")
        if part.shards > self.among:
            raise UnknownPart(
                f"it was cut for {part.shards} shards, and there were {self.among} when this worker"
                " started: start it again"
            )
        if len(part) and not self._is_home(part, shard):
            raise UnknownPart(f"its players are elsewhere among {self.among} shards: {REBUILD}")

    def _is_home(self, part: PartView, shard: int) -> bool:
        if part.shards:
            return part.home == shard
        return bool((shards_of(part.players, self.among) == shard).all())

    def _meet(self, mark: Rebuilt, offset: int) -> None:
        """A store older than the rebuild, or empty, cannot be caught up from the log before it."""
        if offset < max(self.applied, self.rebuilt):
            self._queue(Item(offset, decoder.NO_ROWS))
        else:
            self.barrier = (
                f"offset {offset}: the store was rebuilt here, for {mark.shards} shards, and what "
                f"there is of it now is from before: {REBUILD}"
            )

    def _queue(self, item: Item) -> None:
        self.queue.append(item)
        self.next_offset = item.offset + 1

    def last_call(self) -> Batch | None:
        """Step 11: take the parts of the call to be settled, once all of them are read."""
        if not self.unsettled or self.next_offset < self.applied:
            return None
        items = []
        while self.queue and self.queue[0].offset < self.applied:
            items.append(self.queue.popleft())
        return Batch(self.applied, items)

    def cut(self, most_rows: int) -> Batch | None:
        """Steps 10 and 12: take parts up to so many rows, or to a player who stands in an earlier
        one, or to c while a < c."""
        if self.unsettled:
            return None
        limit = self.committed if self.replaying else self.next_offset
        items: list[Item] = []
        seen: set[int] = set()
        while self.queue and self.queue[0].offset < limit and len(seen) < most_rows:
            marks = self.queue[0].piece.fingerprints.tolist()
            if not seen.isdisjoint(marks):  # or two have the same mark: the cut does no harm
                break
            seen.update(marks)
            items.append(self.queue.popleft())
        return Batch(items[-1].offset + 1, items) if items else None
