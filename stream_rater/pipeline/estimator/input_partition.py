"""One owned partition of `round-completed`: the records that were read, and offsets to commit."""

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import takewhile

from stream_rater.contract.errors import OffsetsForgotten
from stream_rater.contract.events import Round
from stream_rater.contract.record import Record, checksum
from stream_rater.pipeline import ports
from stream_rater.pipeline.estimator.estimation import PendingRounds, distinct
from stream_rater.rounds.validation import DuplicateWindow, Invalid

MOST_REJECTED_BYTES = 64 * 2**20
"""The estimator stops reading while the rejected records of all partitions that are not committed
have more bytes than this."""


class InputPartition:
    """Validates records in order, beginning before the committed offset c, and tracks those from c
    on. Records at offsets [c - W, c) are read for their round ids only. Gaps between offsets are
    allowed, because Kafka's transaction markers take offsets, too."""

    def __init__(self, duplicates: DuplicateWindow, *, start: int, committed: int) -> None:
        self._duplicates = duplicates
        self._committed = committed
        self._next_offset = start
        self._found_end = False
        self._unfinished: deque[int] = deque()
        """The offsets that were read and not committed, in order."""
        self._checksums: deque[int | None] = deque()
        """The checksums of the records at these offsets; None where one was damaged."""
        self._finished: set[int] = set()  # The unfinished offsets for which nothing is left to do.
        self._rejections: dict[int, list[ports.Rejection]] = {}
        """The rejections, by the offset with which they are committed."""
        self.rejected_bytes = 0
        """The number of bytes of the rejected records that are not committed."""

    def __len__(self) -> int:
        """The number of records that were read and not committed."""
        return len(self._unfinished)

    def is_reading_back(self, *, idle: bool) -> bool:
        """Whether round ids before c are still being read. After an empty poll (`idle`) they are
        not: the offsets that remain before c may have no records."""
        self._found_end = self._found_end or idle
        return self._next_offset < self._committed and not self._found_end

    def validate(self, record: Record, found: Round | Invalid) -> Invalid | bool:
        """Validate a record. Returns why it is rejected, or True if its round is to be rated, or
        False if it is skipped, because it is read for its round id only or was read before."""
        live = self._is_live(record)
        if live is None:
            return False
        try:
            if isinstance(found, Invalid):
                raise found
            self._duplicates.check(record.offset, found.ladder, found.round_id)
        except Invalid as invalid:
            return invalid if live else False
        return live

    def enqueue(self, record: Record) -> bool:
        """Whether a well-formed correction in a record is to be applied. It is not if the record
        was read before, or is before the committed offset."""
        return bool(self._is_live(record))

    def _is_live(self, record: Record) -> bool | None:
        """Whether a record is at or after c, so that it is tracked from now on. None if it was read
        before."""
        if record.offset < self._next_offset:
            return None
        self._next_offset = record.offset + 1
        if live := record.offset >= self._committed:
            self._unfinished.append(record.offset)
            self._checksums.append(None if record.unreadable else checksum(record.value))
        return live

    def all_finished_before(self, offset: int) -> bool:
        """Whether all records before this offset are finished."""
        return next((o for o in self._unfinished if o not in self._finished), offset) >= offset

    def finished_prefix(self, offsets: Sequence[int]) -> int:
        """The length of the longest prefix of `offsets` for which all other records before its last
        offset are finished."""
        count = 0
        for offset in self._unfinished:
            if count < len(offsets) and offset == offsets[count]:
                count += 1
            elif offset not in self._finished:
                break
        return count

    def reject(self, record: Record, invalid: Invalid, at: int) -> ports.Rejection:
        """Reject a record. The rejection is committed together with the offset `at`."""
        rejection = ports.Rejection(
            record, invalid.code, str(invalid), invalid.ladder, invalid.round_id,
            None if at == record.offset else at,
        )  # fmt: skip
        self._rejections.setdefault(at, []).append(rejection)
        self.rejected_bytes += len(record.value or b"")
        return rejection

    def settle(self, offset: int) -> list[ports.Rejection]:
        """Finish a record that is not rated. Returns its rejection, if it is rejected."""
        self._finished.add(offset)
        return self._rejections.get(offset, [])

    def finish(self, offsets: Iterable[int]) -> None:
        """Mark the records at these offsets as finished."""
        self._finished.update(offsets)

    def take_finished(self) -> tuple[ports.SourceCommit | None, list[ports.Rejection]]:
        """Step 7: take the contiguous prefix of finished records. Returns the offset after it with
        the last one's checksum, or None if it is empty, and the rejections in it."""
        done = list(takewhile(self._finished.__contains__, self._unfinished))
        tail = None
        for _ in done:
            self._unfinished.popleft()
            tail = self._checksums.popleft()
        self._finished.difference_update(done)
        rejections = [each for offset in done for each in self._rejections.pop(offset, ())]
        self.rejected_bytes -= sum(len(each.record.value or b"") for each in rejections)
        return (ports.SourceCommit(done[-1] + 1, tail) if done else None), rejections


def committed_offsets(
    partitions: frozenset[int],
) -> ports.Step[dict[int, ports.SourceCommit | None]]:
    """Step 1: the committed offset of each partition; None where nothing was ever committed.

    Kafka deletes a consumer group's offsets some days after its last member left
    (`offsets.retention.minutes`). If no part and no rejection was deleted, the offset after the
    last rejection (`Rejection.next_offset`) replaces the lost offset. That rejection was committed
    in one transaction with this offset, and no later record was rejected. Later rounds that were
    already sent are detected in step 5. The replacement is committed at once.

    Raises Regrouped if ownership changed during the call: the worker that owns the partition now,
    perhaps the same one, starts over. Raises OffsetsForgotten if parts were deleted. A round that
    is sent again so late might become the only round of its players that has parts in the log, and
    `rebuild` relies on the parts. It is also raised if rejections were deleted. The records of a
    partition whose last rejection is among them might be rejected twice.
    """
    committed = yield from ports.ask(ports.CommittedSource(partitions))
    forgotten = frozenset(p for p, commit in committed.items() if commit is None)
    if not forgotten:
        return dict(committed)
    remains = yield from ports.ask(ports.LookForOffsets(forgotten))
    least = {p: remains.after_rejected.get(p, 0) for p in forgotten}
    incomplete = remains.parts_deleted or remains.rejections_deleted
    if incomplete and any(remains.ends[p] for p in forgotten):
        raise OffsetsForgotten({p: least[p] for p in forgotten if remains.ends[p]})
    yield from ports.ask(ports.CommitSource(least))
    return {**committed, **{p: ports.SourceCommit(o) for p, o in remains.after_rejected.items()}}


def finish(inputs: Mapping[int, InputPartition], pending: PendingRounds) -> None:
    """Mark the records of these rounds as finished."""
    partitions, _ = distinct(pending.partitions)
    for partition in partitions:
        mine = pending.partitions == partition
        inputs[partition].finish(pending.offsets[mine].tolist())


def commit_finished(
    inputs: Mapping[int, InputPartition], poll: Callable[[], ports.Step[None]]
) -> ports.Step[ports.CommitSource | None]:
    """Step 7: commit the finished offsets of all partitions, together with the rejections before
    them. After Regrouped, call `poll` and commit the offsets of the partitions that are still
    owned. Returns the effect that was committed, or None. Raises Regrouped as
    `commit_through_regrouping` does."""
    offsets: dict[int, ports.SourceCommit] = {}
    rejections: list[ports.Rejection] = []
    for partition, source in inputs.items():
        finished, rejected = source.take_finished()
        if finished is not None:
            offsets[partition] = finished
            rejections += rejected

    def commit() -> ports.CommitSource | None:
        ours = {p: each for p, each in offsets.items() if p in inputs}
        owned = [each for each in rejections if each.record.partition in ours]
        ends = {p: each.offset for p, each in ours.items()}
        tails = {p: each.tail for p, each in ours.items()}
        return ports.CommitSource(ends, owned, tails) if ours else None

    return (yield from ports.commit_through_regrouping(commit, poll))
