"""The state of one owned shard: its positions in the store and in the consumer group, and its queue
of parts.

In the terms of the protocol (`updater`), a is `applied` and c is `committed`. Parts are read from
offset a. If a > c, they are read from the start of the last call instead, because the events of
that call must be published first.
"""

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise

import numpy as np

from stream_rater.columns.arrays import Ints
from stream_rater.columns.kernels import KERNEL_VERSION
from stream_rater.columns.player_column import PlayerColumn
from stream_rater.columns.player_map import NOTHING, TAKEN, Fingerprints, PlayerMap
from stream_rater.columns.sharding import shards_of
from stream_rater.contract.record import Player, Record, checksum
from stream_rater.pipeline import same_history
from stream_rater.pipeline.observer import Published, Traced
from stream_rater.pipeline.parts import decoder, schema
from stream_rater.pipeline.parts.decoder import PartView, Rows, rows_of
from stream_rater.pipeline.ports import VANISHED, Position, StoredShard
from stream_rater.pipeline.same_history import REBUILD


@dataclass(frozen=True, slots=True)
class QueuedPart:
    """A part that was read and waits to be applied. Empty if the record contains no part."""

    offset: int  # The offset of its record.
    checksum: int  # The checksum of its record.
    part: PartView = decoder.NO_ROWS
    """The part. No player has two rows in it."""

    def __len__(self) -> int:
        return len(self.part)


@dataclass(slots=True)
class Shard:
    """One owned partition of `performance-estimated`."""

    position: Position
    committed: int
    next_offset: int  # The next offset to read.
    shard_count: int  # The number of shards.
    marks_before: int = 0
    """The offset after the mark of the store's last rebuild; 0: unknown, or there was none."""
    opening: int = 0  # The number of this opening, by which its cached records are found.
    queue: deque[QueuedPart] = field(default_factory=deque)
    barrier: str = ""
    """Why the record of Kafka at `next_offset` cannot be read; empty if nothing is wrong."""

    @classmethod
    def at(cls, position: Position, committed: int, shard_count: int) -> "Shard":
        """Open a shard at these positions. `shard_count` is the number of shards."""
        ahead = position.applied > committed
        return cls(position, committed, position.start if ahead else position.applied, shard_count)

    @classmethod
    def from_stored(cls, stored: StoredShard, committed: int, shard_count: int) -> "Shard":
        """Open a shard from the store's answer to a read of REBUILT_KEY."""
        shard = cls.at(stored.position, committed, shard_count)
        shard.marks_before = int(stored.records[0] or 0)
        return shard

    @property
    def applied(self) -> int:
        """The offset before which all parts are applied in the store."""
        return self.position.applied

    @property
    def is_unsettled(self) -> bool:
        """Whether a > c. Then the events of [c, a) must be published before anything else."""
        return self.applied > self.committed

    @property
    def is_refilling(self) -> bool:
        """Whether a < c. Then the store has lost writes whose events are already published."""
        return self.applied < self.committed

    @property
    def lost_offset_reason(self) -> str:
        """Why a shard without a committed offset cannot continue; empty if the shard is new."""
        if self.applied <= 0:
            return ""
        return (
            f"the store is at {self.applied} and the group has no committed offset: Kafka deletes"
            " it some days after the last worker left (offsets.retention.minutes). Commit"
            f" {self.applied} for this partition to continue"
        )

    @property
    def too_far_ahead_reason(self) -> str:
        """Why the events of [c, a) cannot be built again: the last call began after c. Empty if it
        did not. c must have been read after a (step 9)."""
        if not self.is_unsettled or self.position.start <= self.committed:
            return ""
        reason = (
            f"the store's last call applied [{self.position.start}, {self.applied}) and the group's"
            f" committed offset is {self.committed}. No crash leads to this: was the offset reset?"
            f" Commit {self.applied} for this partition to continue"
        )
        if self.position.tail is not None:
            return reason
        return f"{reason}, unless Kafka was restored from an older copy: then {REBUILD}"

    def mismatch(self, log_start: int, log_end: int, tail: int | None = None) -> str:
        """Why the store cannot result from this log, which has the offsets [log_start, log_end).
        Empty if it can. `tail`: the checksum of the log's last record before `applied`; None if the
        log does not have that record, or if the expected checksum is unknown."""
        if self.position.is_unfinished:
            return f"a rebuild of the store is unfinished: {REBUILD}"
        if self.applied == VANISHED:
            return (
                "beliefs vanished from Redis, which no worker deletes: `stream-rater verify` shows "
                f"whose; then {REBUILD}"
            )
        if log_start > self.next_offset:
            need = f"the store needs offset {self.next_offset}"
            return f"{need} and the log starts at {log_start}: {REBUILD}"
        reached = max(self.applied, self.committed)
        return same_history.log_too_short(reached, log_end) or same_history.tail_mismatch(
            self.position, tail
        )

    @property
    def is_stopped(self) -> bool:
        """Whether nothing more can be done. That is so if there is a barrier, and either all parts
        before it are applied, or it lies within the last call, whose events then cannot be built
        again. Valid after `last_call`."""
        return bool(self.barrier) and (self.is_unsettled or not self.queue)

    @property
    def rows(self) -> int:
        """The number of rows that wait to be applied."""
        return 0 if self.is_unsettled else sum(map(len, self.queue))

    def read(
        self, record: Record, kernel: int = KERNEL_VERSION, part: PartView | None = None
    ) -> None:
        """Queue the part in a record. It will be applied by kernels of version `kernel`. `part` is
        the part that `decoder.read_all` found in the record; None if the record must be decoded
        alone. A record that cannot be read sets `barrier`. Raises NotAPart for a foreign message,
        after it has queued an empty part in its place."""
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
            self._queue(self._part(record, kernel, part))
        except schema.UnknownPart as error:
            self.barrier = f"offset {record.offset}: {error}"
        except schema.RebuildMark as found:
            self._pass_mark(found.mark, record)
        except schema.NotAPart:
            self._queue(QueuedPart(record.offset, checksum(record.value)))
            raise

    def _part(self, record: Record, kernel: int, part: PartView | None) -> QueuedPart:
        """Decode the part in a record. Raises NotAPart or UnknownPart."""
        value = record.value or b""
        part = decoder.read(value, kernel) if part is None else part
        self._check_epoch(part, record.offset)
        self._check_shard(part, record.partition)
        return QueuedPart(record.offset, checksum(value), part)

    def _check_epoch(self, part: PartView, offset: int) -> None:
        """Raise OfOlderStore if a part behind the mark of the store's last rebuild was computed
        from the beliefs before it. The group had excluded the worker that sent it: its offsets are
        not committed, and the owner of its records sends them again. Parts before the mark were
        pending in the rebuild, and are applied."""
        if part.epoch in (None, self.position.epoch) or not 0 < self.marks_before <= offset:
            return
        raise schema.OfOlderStore("it was computed from the beliefs before the last rebuild")

    def _check_shard(self, part: PartView, shard: int) -> None:
        """Raise CutForFewer or UnknownPart unless a part was cut for the present number of shards,
        and all its players belong to this shard. A part that was cut for fewer shards is ignored. A
        worker that was paused while shards were added sends it after the mark of the rebuild that
        followed. (Before the mark such a part may be correct, but a worker that reads there cannot
        pass the mark.)"""
        if part.shards and part.shards < self.shard_count:
            raise schema.CutForFewer(
                f"it was cut for {part.shards} shards, and there are {self.shard_count}"
            )
        if part.shards > self.shard_count:
            raise schema.UnknownPart(
                f"it was cut for {part.shards} shards, and there were {self.shard_count} when"
                " this worker started: start this worker again"
            )
        at_home = part.home == shard
        if not part.shards:
            at_home = bool((shards_of(part.players, self.shard_count) == shard).all())
        if len(part) and not at_home:
            raise schema.UnknownPart(
                f"its players are elsewhere among {self.shard_count} shards: {REBUILD}"
            )

    def _pass_mark(self, mark: schema.Mark, record: Record) -> None:
        """Pass the mark of a rebuild if the store includes that rebuild; otherwise set the barrier.
        A store that is empty or older cannot catch up from the log before the mark."""
        if record.offset < max(self.applied, self.marks_before):
            self._queue(QueuedPart(record.offset, checksum(record.value)))
        else:
            self.barrier = (
                f"offset {record.offset}: the store was rebuilt here for {mark.shards} shards, and "
                f"the present store is older than that rebuild: {REBUILD}"
            )

    def _queue(self, part: QueuedPart) -> None:
        self.queue.append(part)
        self.next_offset = part.offset + 1

    def last_call(self) -> list[QueuedPart]:
        """Step 11: take the parts of the store's last call once all of them are read. Returns an
        empty list if some are not read yet, or if all events are published."""
        taken: list[QueuedPart] = []
        if self.is_unsettled and self.next_offset >= self.applied:
            while self.queue and self.queue[0].offset < self.applied:
                taken.append(self.queue.popleft())
        return taken

    def cut(self, most_rows: int) -> list[QueuedPart]:
        """Steps 10 and 12: take parts until they have `most_rows` rows. While a < c, only parts
        before c are taken. A correction part or a seed part is taken alone."""
        taken: list[QueuedPart] = []
        if self.is_unsettled:
            return taken
        end = self.committed if self.is_refilling else self.next_offset
        rows = 0
        while self.queue and self.queue[0].offset < end and rows < most_rows:
            if taken and (taken[-1].part.cause or self.queue[0].part.cause):
                break
            taken.append(self.queue.popleft())
            rows += len(taken[-1])
        return taken


class ShardBatch:
    """Consecutive parts of several shards. The rows of all shards are computed together, as one
    column. A correction part and a seed part have a batch of their own."""

    def __init__(self, parts: Mapping[int, Sequence[QueuedPart]]) -> None:
        self.parts = parts  # The parts of each shard, at least one for each.
        self.cuts: dict[int, slice] = {}  # The range of each shard's rows among all rows.
        self.ends: dict[int, int] = {}  # The offset after each shard's last part.
        self.tails: dict[int, int] = {}  # The checksum of the record of each shard's last part.
        self.given: PartView | None = None
        """The part, if this batch consists of a single part of a correction, seeds or resets."""
        end = 0
        for shard, queued in parts.items():
            start, end = end, end + sum(len(each.part) for each in queued)
            self.cuts[shard] = slice(start, end)
            self.ends[shard], self.tails[shard] = queued[-1].offset + 1, queued[-1].checksum
            self.given = queued[0].part if queued[0].part.cause else None

    @cached_property
    def rows(self) -> Rows:
        """The rows of all parts, shard by shard."""
        return rows_of([each.part for queued in self.parts.values() for each in queued])

    @cached_property
    def distinct(self) -> tuple[Ints, Ints]:
        """(D,) the first row of each player, and (n,) the index of each row's player among these.
        The indices of a shard's players are consecutive."""
        sizes = [cut.stop - cut.start for cut in self.cuts.values()]
        shard = np.repeat(np.arange(len(sizes)), np.array(sizes, np.int64))
        return distinct(self.rows.players, self.rows.fingerprints, shard)

    @cached_property
    def all_players(self) -> PlayerColumn:
        """The distinct players of all shards, shard by shard, in the order of their first rows."""
        first, which = self.distinct
        return self.rows.players if len(first) == len(which) else self.rows.players.take(first)

    @cached_property
    def spans(self) -> dict[int, slice]:
        """The range of each shard's players among these."""
        first, which = self.distinct
        if len(first) == len(which):
            return self.cuts
        ends = [0, *np.searchsorted(first, [cut.stop for cut in self.cuts.values()]).tolist()]
        return {shard: slice(a, b) for shard, (a, b) in zip(self.cuts, pairwise(ends), strict=True)}

    @cached_property
    def players(self) -> dict[int, PlayerColumn]:
        """The distinct players of each shard, in the order of their first rows."""
        return {shard: self.all_players[span] for shard, span in self.spans.items()}

    def rows_before(self, shard: int, offset: int) -> int:
        """The number of rows in the shard's parts before an offset."""
        return sum(len(each.part) for each in self.parts[shard] if each.offset < offset)

    def take(self, shards: Sequence[int]) -> "ShardBatch":
        """Return a batch with only these of its shards."""
        if len(shards) == len(self.parts):
            return self
        return ShardBatch({shard: self.parts[shard] for shard in shards})


def distinct(players: PlayerColumn, fingerprints: Fingerprints, shard: Ints) -> tuple[Ints, Ints]:
    """(D,) the first row of each distinct player, and (n,) the index of each row's player among
    these. `shard` (n,) is the shard of each row. Rows of one player have the same fingerprint. Rows
    of different players may have the same one, too."""
    rows = np.arange(len(players))
    # These fingerprints are plain hashes. TAKEN makes them keys of a PlayerMap, where 0 is free.
    if (PlayerMap().put(fingerprints | TAKEN, rows) == NOTHING).all():
        return rows, rows
    numbers: dict[tuple[int, Player], int] = {}
    each = zip(shard.tolist(), players, strict=True)
    which = np.array([numbers.setdefault(one, len(numbers)) for one in each], np.int64)
    return np.unique(which, return_index=True)[1], which


def last_calls(shards: Mapping[int, Shard]) -> dict[int, ShardBatch]:
    """Step 11: a batch for each shard with an unsettled last call, with the parts of that call."""
    taken = ((number, shard.last_call()) for number, shard in shards.items())
    return {number: ShardBatch({number: parts}) for number, parts in taken if parts}


def next_batches(shards: Mapping[int, Shard], most_rows: int) -> list[ShardBatch]:
    """Steps 10 and 12: cut parts from the queues of these shards. Each shard is in at most one
    batch. A batch of several shards has at most `most_rows` rows."""
    taken = {number: parts for number, each in shards.items() if (parts := each.cut(most_rows))}
    batches, alone = list[ShardBatch](), list[ShardBatch]()
    batch, rows = dict[int, list[QueuedPart]](), 0
    for number, parts in taken.items():
        if parts[0].part.cause:
            alone.append(ShardBatch({number: parts}))
            continue
        count = sum(map(len, parts))
        if batch and rows + count > most_rows:
            batches.append(ShardBatch(batch))
            batch, rows = {}, 0
        batch[number] = parts
        rows += count
    return [*batches, *([ShardBatch(batch)] if batch else ()), *alone]


def published(parts: Sequence[QueuedPart], events: int) -> Iterator[Published]:
    """What is known of parts of a shard, which have so many events. Rows without an event were
    applied before: they are those of the first parts. Only the first part is looked at for a trace,
    because it has waited longest."""
    repeated = sum(map(len, parts)) - events
    for each in parts:
        count, repeated = max(0, len(each) - repeated), max(0, repeated - len(each))
        if count and each.part.arrived_s > 0.0:
            trace = next(each.part.traced(), None) if each is parts[0] else None
            yield Published(each.part.arrived_s, count, trace[0].id if trace else "")


def traced(batches: Sequence[ShardBatch]) -> Iterator[Traced]:
    """The traced rounds in these batches, by shard. A round with several parts in a shard is listed
    once for each part."""
    for batch in batches:
        for shard, parts in batch.parts.items():
            for queued in parts:
                for trace, ladder, round_id in queued.part.traced():
                    yield Traced(trace, ladder, round_id, shard, queued.offset)
