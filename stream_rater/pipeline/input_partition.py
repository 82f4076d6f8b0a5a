"""One owned partition of `round-completed`: what was read of it and what may be committed."""

from collections import deque
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from itertools import takewhile

from stream_rater.contract.record import Record
from stream_rater.pipeline.ports import (
    CommitSource,
    Committed,
    LookForOffsets,
    OffsetsForgotten,
    Regrouped,
    Rejection,
    Step,
    ask,
)
from stream_rater.rounds.batch import RoundHead
from stream_rater.rounds.duplicates import DuplicateWindow
from stream_rater.rounds.validation import Invalid

REJECTED_BYTES = 64 * 2**20


class InputPartition:
    """Reads records in order from before the committed offset c; counts those from c on.

    Offsets in [c - W, c) are read for their round ids only. Gaps are allowed: Kafka's transaction
    markers take offsets, too.
    """

    def __init__(self, duplicates: DuplicateWindow, *, start: int, committed: int) -> None:
        self._duplicates = duplicates
        self._committed = committed
        self._next_offset = start
        self._ran_dry = False
        self._unfinished: deque[int] = deque()
        """Offsets read and not committed, in order."""
        self._finished: set[int] = set()
        """Those of them that are done."""
        self._rejections: dict[int, Rejection] = {}
        self.rejected_bytes = 0
        """Size of what is rejected and not committed."""

    def __len__(self) -> int:
        """How many records are read and not committed."""
        return len(self._unfinished)

    def is_behind(self, *, idle: bool) -> bool:
        """Whether ids before c are still being read; not if ever nothing more came (`idle`): what
        is left may be no records."""
        self._ran_dry = self._ran_dry or idle
        return self._next_offset < self._committed and not self._ran_dry

    def judge(self, record: Record, found: RoundHead | Invalid) -> Rejection | bool:
        """Whether the round found in a record counts, or why the record is rejected; False if it is
        read only for its id."""
        if record.offset < self._next_offset:
            return False
        self._next_offset = record.offset + 1
        live = record.offset >= self._committed
        if live:
            self._unfinished.append(record.offset)
        try:
            if isinstance(found, Invalid):
                raise found
            self._duplicates.check(record.offset, found.ladder, found.round_id)
        except Invalid as invalid:
            return self._reject(record, invalid) if live else False
        return live

    def _reject(self, record: Record, invalid: Invalid) -> Rejection:
        whose = (invalid.ladder, invalid.round_id)
        rejection = Rejection(record, invalid.code, str(invalid), *whose)
        self._rejections[record.offset] = rejection
        self.rejected_bytes += len(record.value or b"")
        self._finished.add(record.offset)
        return rejection

    def finish(self, offsets: Iterable[int]) -> None:
        """These records are done."""
        self._finished.update(offsets)

    def take_finished(self) -> tuple[int | None, list[Rejection]]:
        """Step 7: the offset after the contiguous prefix of records that are done, if there is one,
        and the rejections in it."""
        done = list(takewhile(self._finished.__contains__, self._unfinished))
        for _ in done:
            self._unfinished.popleft()
        self._finished.difference_update(done)
        rejections = [self._rejections.pop(offset) for offset in done if offset in self._rejections]
        self.rejected_bytes -= sum(len(each.record.value or b"") for each in rejections)
        return (done[-1] + 1 if done else None), rejections


def committed_by(partitions: frozenset[int]) -> Step[dict[int, int | None]]:
    """Step 1: the committed offset of each partition; None where nothing ever was.

    Kafka forgets a group's offsets some days after its last member left
    (`offsets.retention.minutes`). As long as no part was deleted, it is then the offset after the
    last rejection: what lies before that was committed with it, and nothing behind it was rejected.
    Rounds behind it that were scattered are found so in step 5. It is committed at once, to be
    there the next time. Once parts were deleted, raises OffsetsForgotten: a round scattered again
    so late may be the only one of its players that there are parts of, and `rebuild` goes by parts.
    """
    committed = yield from ask(Committed(partitions))
    forgotten = frozenset(p for p, offset in committed.items() if offset is None)
    if not forgotten:
        return dict(committed)
    remains = yield from ask(LookForOffsets(forgotten))
    least = {p: remains.after_rejected.get(p, 0) for p in forgotten}
    if remains.parts_deleted and any(remains.ends[p] for p in forgotten):
        raise OffsetsForgotten({p: least[p] for p in forgotten if remains.ends[p]})
    with suppress(Regrouped):  # then whoever has the partition now does it
        yield from ask(CommitSource(least))
    return {**committed, **remains.after_rejected}


def hold_much(sources: Collection[InputPartition], most: int) -> bool:
    """Whether one holds more than so many records, or all of them together more than REJECTED_BYTES
    to be rejected."""
    rejected = sum(each.rejected_bytes for each in sources)
    return rejected > REJECTED_BYTES or any(len(each) > most for each in sources)


def behind(sources: Mapping[int, InputPartition], *, idle: bool) -> list[int]:
    """Partitions of which nothing new was read yet, only ids; `idle`: the last poll was empty."""
    return [p for p, source in sources.items() if source.is_behind(idle=idle)]


def all_finished(sources: Mapping[int, InputPartition]) -> tuple[dict[int, int], list[Rejection]]:
    """`take_finished` of all partitions that have something: offsets, and the rejections before."""
    offsets: dict[int, int] = {}
    rejections: list[Rejection] = []
    for partition, source in sources.items():
        end, rejected = source.take_finished()
        if end is not None:
            offsets[partition] = end
            rejections += rejected
    return offsets, rejections
