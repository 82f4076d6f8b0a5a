"""The state of one owned shard: its positions in the store and in the group, and its queue of
parts.

In the protocol's terms, a is `applied` and c is `committed`. Parts are read from a on. If a > c,
they are read from the start of the last call, whose events are published first.
"""

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from stream_rater.columns.kernels import KERNEL_VERSION
from stream_rater.columns.player_column import PlayerColumn
from stream_rater.columns.sharding import shards_of
from stream_rater.contract.record import Record, checksum
from stream_rater.pipeline import same_history
from stream_rater.pipeline.observer import Traced
from stream_rater.pipeline.parts import corrections, decoder
from stream_rater.pipeline.parts.corrections import CorrectionPart
from stream_rater.pipeline.parts.decoder import PartView
from stream_rater.pipeline.parts.rows import rows_of
from stream_rater.pipeline.parts.schema import CutForFewer, NotAPart, Rebuilt, UnknownPart
from stream_rater.pipeline.ports import UNFINISHED, VANISHED, Held, Position
from stream_rater.pipeline.same_history import REBUILD
from stream_rater.pipeline.updater.repeats import in_one_shard


@dataclass(frozen=True, slots=True)
class Item:
    """A part that was read."""

    offset: int
    piece: PartView
    """The rows of the part; no player has two."""
    correction: CorrectionPart | None = None
    """The correction part, which has no rows of rounds."""
    checksum: int | None = None
    """That of the record."""

    @property
    def rows(self) -> int:
        """The number of rows."""
        return len(self.piece) if self.correction is None else len(self.correction)


def _no_rows(record: Record) -> Item:
    """What a record that is no part does: nothing."""
    return Item(record.offset, decoder.NO_ROWS, checksum=checksum(record.value))


@dataclass(frozen=True, slots=True)
class Batch:
    """Consecutive parts of one shard that are applied in one call; a correction part is alone."""

    end: int
    """The offset after the last part."""
    items: Sequence[Item]

    @property
    def parts(self) -> list[PartView]:
        """The parts, in order."""
        return [item.piece for item in self.items]

    @property
    def rows(self) -> int:
        """The number of rows."""
        return sum(item.rows for item in self.items)

    @property
    def correction(self) -> CorrectionPart | None:
        """The correction part that it is, if it is one."""
        return self.items[0].correction if self.items else None

    @property
    def tail(self) -> int | None:
        """The checksum of the last record."""
        return self.items[-1].checksum if self.items else None

    @property
    def players(self) -> PlayerColumn:
        """The players, each once, in order of their first rows."""
        if (part := self.correction) is not None:
            return PlayerColumn.of([(part.ladder, player) for player in part.players])
        rows = rows_of(self.parts)
        return rows.players.take(in_one_shard(rows).first)


def traced(batches: Mapping[int, Batch]) -> Iterator[Traced]:
    """The traced rounds in these batches, by shard. A round that has several parts in a shard is
    listed once for each."""
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
    """The next offset to read."""
    among: int
    """The number of shards."""
    rebuilt: int = 0
    """The store includes the rebuilds whose marks are before this offset."""
    queue: deque[Item] = field(default_factory=deque)
    """Parts that were read and not yet applied."""
    barrier: str = ""
    """Why the record at `next_offset` cannot be read; empty if nothing is wrong."""

    @classmethod
    def at(cls, position: Position, committed: int, among: int) -> "Shard":
        """A shard that is opened at these positions; `among` is the number of shards."""
        ahead = position.applied > committed
        return cls(position, committed, position.start if ahead else position.applied, among)

    @classmethod
    def found(cls, held: Held, committed: int, among: int) -> "Shard":
        """A shard that is opened from what the store returned for the key REBUILT."""
        shard = cls.at(held.position, committed, among)
        shard.rebuilt = int(held.records[0] or 0)
        return shard

    @property
    def applied(self) -> int:
        """The store is the fold of all parts before this offset."""
        return self.position.applied

    @property
    def unsettled(self) -> bool:
        """Whether a > c: the events of [c, a) must be published before anything else."""
        return self.applied > self.committed

    @property
    def replaying(self) -> bool:
        """Whether a < c: the store lost writes whose events are already published."""
        return self.applied < self.committed

    @property
    def forgotten(self) -> str:
        """Why a shard without a committed offset cannot continue; empty if the shard is new."""
        if self.applied <= 0:
            return ""
        return (
            f"the store is at {self.applied} and the group has no committed offset: Kafka deletes"
            " it some days after the last worker left (offsets.retention.minutes). Commit"
            f" {self.applied} for this partition to continue"
        )

    @property
    def too_far_ahead(self) -> str:
        """Why the events of [c, a) cannot be rebuilt where the last call began after c; empty if it
        did not."""
        if not self.unsettled or self.position.start <= self.committed:
            return ""
        told = (
            f"the store's last call applied [{self.position.start}, {self.applied}) and the group's"
            f" committed offset is {self.committed}. No crash leads to this: was the offset reset?"
            f" Commit {self.applied} for this partition to continue"
        )
        if self.position.tail is not None:
            return told
        return f"{told}, unless Kafka was restored from an older copy: then {REBUILD}"

    def misfit(self, log_start: int, log_end: int, tail: int | None = None) -> str:
        """Why the store cannot be a fold of this log, which holds [log_start, log_end); empty if it
        can. `tail`: the checksum of the log's last record before `applied`; None where the log does
        not hold it, or nobody knows what it should be."""
        if self.applied == UNFINISHED:
            return f"a rebuild of the store is unfinished: {REBUILD}"
        if self.applied == VANISHED:
            return (
                "beliefs vanished from Redis, which no worker deletes: `stream-rater verify` tells "
                f"whose; then {REBUILD}"
            )
        if log_start > self.next_offset:
            need = f"the store needs offset {self.next_offset}"
            return f"{need} and the log starts at {log_start}: {REBUILD}"
        reached = max(self.applied, self.committed)
        return same_history.ends_early(reached, log_end) or same_history.other_tail(
            self.position, tail
        )

    @property
    def stopped(self) -> bool:
        """Whether a barrier was met and everything before it is applied."""
        return bool(self.barrier) and (self.unsettled or not self.queue)

    @property
    def rows(self) -> int:
        """The number of rows that wait to be applied."""
        return 0 if self.unsettled else sum(item.rows for item in self.queue)

    def read(
        self, record: Record, kernel: int = KERNEL_VERSION, piece: PartView | None = None
    ) -> None:
        """Queue the part in a record, to be applied by kernels of version `kernel`.

        `piece` is what `pipeline.parts.decoder.read_all` found in the record. A record that cannot
        be read sets `barrier`. Raises NotAPart for a foreign message, after an empty part was
        queued in its place.
        """
        if self.barrier or record.offset < self.next_offset:
            return
        if record.unreadable:
            self.barrier = f"offset {record.offset}: {record.unreadable}"
            return
        if record.offset > self.next_offset:
            # Parts are written without transactions, so only lost records leave a gap.
            self.barrier = f"offsets [{self.next_offset}, {record.offset}) are not in the log"
            return
        try:
            item = self._item(record, kernel, piece)
        except UnknownPart as error:
            self.barrier = f"offset {record.offset}: {error}"
            return
        except Rebuilt as mark:
            self._meet(mark, record)
            return
        except NotAPart:
            self._queue(_no_rows(record))
            raise
        self._queue(item)

    def _item(self, record: Record, kernel: int, piece: PartView | None) -> Item:
        """The part in a record. Raises NotAPart or UnknownPart."""
        value = record.value or b""
        if piece is None and corrections.is_correction(value):
            correction = corrections.decode(value, kernel)
            self._check_cut(correction, record.partition)
            return Item(record.offset, decoder.NO_ROWS, correction, checksum(value))
        part = decoder.read(value, kernel) if piece is None else piece
        self._check_cut(part, record.partition)
        return Item(record.offset, part, checksum=checksum(value))

    def _check_cut(self, part: PartView | CorrectionPart, shard: int) -> None:
        """Check that a part was cut for the present number of shards, and that all its players
        belong to this shard. Raises CutForFewer or UnknownPart.

        A part that was cut for fewer shards is ignored. A worker that was paused while shards were
        added sends it after the mark of the rebuild that followed. (Before the mark such a part may
        belong there, but a worker that reads there cannot get past the mark.)
        """
        if part.shards and part.shards < self.among:
            raise CutForFewer(f"it was cut for {part.shards} shards, and there are {self.among}")
        if part.shards > self.among:
            raise UnknownPart(
                f"it was cut for {part.shards} shards, and there were {self.among} when this worker"
                " started: start this worker again"
            )
        if len(part) and not self._is_home(part, shard):
            raise UnknownPart(f"its players are elsewhere among {self.among} shards: {REBUILD}")

    def _is_home(self, part: PartView | CorrectionPart, shard: int) -> bool:
        if isinstance(part, PartView) and part.shards:
            return part.home == shard
        return bool((shards_of(part.players, self.among) == shard).all())

    def _meet(self, mark: Rebuilt, record: Record) -> None:
        """Pass the mark of a rebuild, or set the barrier: a store that is older than the rebuild,
        or empty, cannot catch up from the log before the mark."""
        if record.offset < max(self.applied, self.rebuilt):
            self._queue(_no_rows(record))
        else:
            self.barrier = (
                f"offset {record.offset}: the store was rebuilt here for {mark.shards} shards, and "
                f"the present store is older than that rebuild: {REBUILD}"
            )

    def _queue(self, item: Item) -> None:
        self.queue.append(item)
        self.next_offset = item.offset + 1

    def last_call(self) -> Batch | None:
        """Step 11: take the parts of the store's last call once all of them are read; None if they
        are not, or if all events are published."""
        if not self.unsettled or self.next_offset < self.applied:
            return None
        items = []
        while self.queue and self.queue[0].offset < self.applied:
            items.append(self.queue.popleft())
        return Batch(self.applied, items)

    def cut(self, most_rows: int) -> Batch | None:
        """Steps 10 and 12: take parts until they have `most_rows` rows; while a < c, those before
        c. Returns None if there is nothing to take."""
        if self.unsettled:
            return None
        limit = self.committed if self.replaying else self.next_offset
        items: list[Item] = []
        rows = 0
        while self.queue and self.queue[0].offset < limit and rows < most_rows:
            if items and self.queue[0].correction is not None:
                break
            items.append(self.queue.popleft())
            rows += items[-1].rows
            if items[-1].correction is not None:
                break
        return Batch(items[-1].offset + 1, items) if items else None
