"""Corrections in the estimator: when they are worked in, and which rounds wait for them.

A correction at offset c begins once all records before c in its partition are finished. So its
parts follow those of all earlier rounds in every shard's log, and a redelivered part of an earlier
round is not fresh any more. Meanwhile the later rounds of its ladder are put aside. Other ladders'
rounds are rated between the pieces of the work.

1. Judge the correction, and rate the ladder's rounds anew (`correction_job`).
2. Note what was accepted (`correction_ports`): later rounds are rated by it, whoever rates them.
3. Send the new records of those whose beliefs changed, as correction parts. Once all parts are
   acknowledged, the correction is finished, and the players await the ends of the parts.
4. Rate the rounds that were put aside, as the corrections make them.

After a crash all of it is done again, with the same result, unless c was committed.
"""

from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import NamedTuple

import msgspec
import numpy as np
from msgspec import UNSET

from stream_rater.columns import player_map
from stream_rater.columns.kernels import KERNEL_VERSION
from stream_rater.columns.player_map import Fingerprints
from stream_rater.columns.sharding import shards_of
from stream_rater.columns.strings import StringColumn
from stream_rater.contract.corrections import (
    Batched,
    Correction,
    CorrectionsApplied,
    RoundAmended,
    name_of,
)
from stream_rater.contract.events import to_json
from stream_rater.contract.record import Record
from stream_rater.contract.sizes import MOST_BYTES
from stream_rater.parts import corrections as parts_
from stream_rater.parts.corrections import CorrectionPart
from stream_rater.pipeline.ahead import Queue
from stream_rater.pipeline.corrected_players import Corrected
from stream_rater.pipeline.correction_job import CorrectionJob
from stream_rater.pipeline.correction_ports import (
    NoteCorrections,
    Noted,
    NotedCorrection,
)
from stream_rater.pipeline.edited_rounds import edited
from stream_rater.pipeline.edits_in_force import LadderEdits
from stream_rater.pipeline.estimation import (
    NO_ROUNDS,
    PendingRounds,
    SeasonsOf,
    never,
    part_ends,
)
from stream_rater.pipeline.hearing import Refusals
from stream_rater.pipeline.input_partition import InputPartition
from stream_rater.pipeline.judged_log import Judged, Proposed
from stream_rater.pipeline.observer import Observer
from stream_rater.pipeline.ports import Scatter, Step, ask
from stream_rater.pipeline.progress import InFlightWindow
from stream_rater.replay.edits import NO_EDITS, Edits
from stream_rater.rounds.corrections import round_in

THRESHOLD = 0.5
"""Points by which a displayed rating must move for a correction to be told at once."""

HEADS = 10
"""The most bytes that MessagePack puts before an id and a record."""


TOGETHER_BYTES = 2**18
"""Of corrections that are finished together: they are noted in one message."""


class How(NamedTuple):
    """How correction parts are cut and told."""

    shards: int
    rows_per_part: int
    """The most rows in a message."""
    threshold: float = THRESHOLD
    """As in CorrectionPart."""


class Met(NamedTuple):
    """A correction that was polled and waits to be worked in."""

    record: Record
    correction: Correction

    @property
    def place(self) -> tuple[str, int]:
        """The ladder, and the offset."""
        return self.correction.ladder, self.record.offset

    @property
    def waits(self) -> bool:
        """Whether it is only noted, for `corrections-applied` to work it in."""
        return isinstance(self.correction, Batched) and self.correction.batched


class Parts(NamedTuple):
    """Correction parts that are sent together."""

    messages: list[tuple[int, bytes]]
    players: dict[int, Fingerprints]
    """By shard."""


class Work:
    """One correction that is worked in."""

    job_kind = CorrectionJob

    def __init__(
        self, met: Met, edits: LadderEdits, log: Judged, how: How, queues: Sequence[Queue] = (),
        refusals: Refusals | None = None, behind: Sequence[Met] = (),
    ) -> None:  # fmt: skip
        """`queues` and `refusals`: as in CorrectionJob. `behind`: others that are only noted, or
        refused, as this one is, and are finished with it."""
        self._met = met
        self.run = [met, *behind]
        """All that are finished with it."""
        self._how = how
        self._noted = False
        self._parts: Iterator[Parts] = iter(())
        self.waits = met.waits
        correction, place = met.correction, met.record.offset
        applied = isinstance(correction, CorrectionsApplied)
        self._refusal = log.refusal(Proposed(*met))
        """Why its ladder takes no corrections. It is asked here, where all workers agree on what
        the ladders file says of this offset, and not when the correction is met."""
        self.job = self.job_kind(
            correction.ladder, met.record.partition, place, [] if applied else [Proposed(*met)],
            edits.waiting(place) if applied else (),
            () if self.waits else edits.accepted(place), log, queues, refusals,
        )  # fmt: skip

    def step(
        self, sent: Callable[[Mapping[int, int], Mapping[int, Fingerprints]], None]
    ) -> Step[bool]:
        """The next piece of the work; returns whether all is done. `sent` is told the ends of
        parts, and the players in them, by shard, once the parts are acknowledged."""
        if self._refusal is not None:
            self.job.refused = [(self._met.record, self._refusal)]
            return True
        if not self._noted:
            if self.waits or (yield from self.job.step()):
                if notes := self.notes():
                    yield from ask(NoteCorrections({self.job.ladder: notes}))
                self._noted, self._parts = True, self._encoded()
            return False
        parts = next(self._parts, None)
        if parts is None:
            return True
        if not parts.messages:
            return False
        offsets = yield from ask(Scatter(parts.messages))
        sent(part_ends(parts.messages, offsets), parts.players)
        return False

    def notes(self) -> list[NotedCorrection]:
        """What is to be noted."""
        record, correction = self._met
        if self._refusal is not None:
            return []
        if self.waits:
            return [_note(*each, -1) for each in self.run]
        notes = [_note(each.record, each.correction, self.job.at) for each in self.job.accepted]
        if isinstance(correction, CorrectionsApplied):
            notes.append(_note(record, correction, self.job.at))
        return notes

    def _encoded(self) -> Iterator[Parts]:
        for some in self.job.corrected():
            if not some.players:
                yield Parts([], {})
                continue
            shards = shards_of(some.players, self._how.shards)
            messages = [
                (shard, parts_.encode(self._part(some, rows)))
                for shard in np.unique(shards).tolist()
                for rows in self._cut(some, np.flatnonzero(shards == shard).tolist())
            ]
            yield Parts(messages, self._fingerprints(some))

    def _cut(self, some: Corrected, rows: Sequence[int]) -> Iterator[Sequence[int]]:
        """These rows in order, as many at a time as one message may have."""
        most_bytes = MOST_BYTES - len(parts_.encode(self._part(some, [])))
        first = size = 0
        for i, row in enumerate(rows):
            own = len(some.players[row].encode()) + len(some.records[row]) + HEADS
            if first < i and (i == first + self._how.rows_per_part or size + own > most_bytes):
                yield rows[first:i]
                first, size = i, 0
            size += own
        yield rows[first:]

    def _part(self, some: Corrected, rows: Sequence[int]) -> CorrectionPart:
        record, correction = self._met
        return CorrectionPart(
            version=parts_.CORRECTION, kernel=KERNEL_VERSION, shards=self._how.shards,
            offset=record.offset, ladder=correction.ladder, cause=name_of(correction),
            round_id=round_in(correction), completed_at=self.job.completed_at, rule=self.job.rule,
            threshold=self._how.threshold, players=[some.players[i] for i in rows],
            records=[some.records[i] for i in rows],
        )  # fmt: skip

    def _fingerprints(self, some: Corrected) -> dict[int, Fingerprints]:
        names, sizes = StringColumn.of(some.players), [len(some.players)]
        prints = player_map.fingerprints(names, [self.job.ladder], sizes, self._how.shards)
        shards = player_map.shards_in(prints)
        return {shard: prints[shards == shard] for shard in np.unique(shards).tolist()}


def _note(record: Record, correction: Correction, at: int) -> NotedCorrection:
    """What is noted: all that later rounds are rated by, and nothing that may be of any length."""
    correction = msgspec.structs.replace(correction, reason="", event_type="")
    if isinstance(correction, RoundAmended):
        correction = msgspec.structs.replace(correction, standings=[], completed_at=UNSET)
    value = msgspec.Raw(to_json(correction))
    return NotedCorrection(record.offset, name_of(correction), value, at)


class Corrections:
    """The corrections of the owned partitions, and the rounds that wait for them."""

    work_kind = Work

    def __init__(self, log: Judged, how: How) -> None:
        self._log = log
        self._how = how
        self._edits: dict[str, LadderEdits] = {}
        """By ladder, where any correction was noted."""
        self._queues: dict[int, deque[Met]] = {}
        """By partition, those that were not worked in, in order."""
        self._works: dict[int, Work] = {}
        """By partition, the first of them, once it has begun."""
        self._ahead: dict[int, dict[int, Refusals | None]] = {}
        """By partition, of corrections that wait, by offset, what was found of them (`ahead`)."""
        self._offsets: dict[str, deque[int]] = {}
        """By ladder, the offsets of its corrections in the queue."""
        self._aside: dict[str, deque[PendingRounds]] = {}
        """By ladder, the rounds that wait, in order. No correction of the ladder comes between
        those of one element."""

    def noted(self, noted: Noted) -> None:
        """Take over what is noted of all ladders."""
        self._edits = {ladder: LadderEdits(some) for ladder, some in noted.items()}

    def __len__(self) -> int:
        return sum(map(len, self._queues.values()))

    def drop(self, partitions: Collection[int]) -> None:
        """Forget the corrections of these partitions, and the rounds that wait for them."""
        for partition in partitions:
            for met in self._queues.pop(partition, ()):
                self._aside.pop(met.correction.ladder, None)
                self._offsets.pop(met.correction.ladder, None)
            self._works.pop(partition, None)
            self._ahead.pop(partition, None)

    def meet(self, record: Record, correction: Correction) -> None:
        """A correction was polled."""
        self._queues.setdefault(record.partition, deque()).append(Met(record, correction))
        self._offsets.setdefault(correction.ladder, deque()).append(record.offset)
        self._aside.setdefault(correction.ladder, deque())

    # --- rounds ---

    def admit(self, pending: PendingRounds) -> tuple[PendingRounds, PendingRounds]:
        """Of rounds that were polled those that may be rated now, as corrections make them, and
        those that teach nothing any more. The others are put aside."""
        if self._aside:
            waits, rest = dict[str, list[int]](), list[int]()
            for i, head in enumerate(pending.rounds.heads):
                to = waits.setdefault(head.ladder, []) if head.ladder in self._aside else rest
                to.append(i)
            for ladder, own in waits.items():
                self._aside[ladder].append(pending.take(np.array(own, np.int64)))
            pending = pending.take(np.array(rest, np.int64))
        return (
            edited(pending, self.edits_of, self._how.shards)
            if self._edits
            else (pending, NO_ROUNDS)
        )

    def edits_of(self, ladder: str, offset: int) -> Edits:
        """The edits that a round of the ladder at this offset is rated by."""
        known = self._edits.get(ladder)
        return NO_EDITS if known is None else known.of(offset)

    @property
    def seasons(self) -> SeasonsOf:
        """Which seasons have started before a round of a ladder at an offset."""
        if not any(each.has_seasons for each in self._edits.values()):
            return never
        return lambda ladder, offset: self.edits_of(ladder, offset).started

    # --- work ---

    def due(self, inputs: Mapping[int, InputPartition]) -> list[Met]:
        """The corrections that may be worked on now, one a partition at most: all records before
        each are finished."""
        first = [queue[0] for queue in self._queues.values() if queue]
        return [each for each in first if inputs[each.record.partition].reached(each.record.offset)]

    def begin(
        self, met: Met, inputs: Mapping[int, InputPartition],
        agreed_at: Callable[[str, int], Step[bool]],
    ) -> Step[bool]:  # fmt: skip
        """Begin the work on a correction that is due, with those behind it that are done as fast.
        Returns whether it has begun: all workers agree on the ladder at its place."""
        partition = met.record.partition
        if partition in self._works:
            return True
        behind = self._behind(met, inputs[partition])
        for some in (behind, []) if behind else ([],):
            if (yield from agreed_at(*[met, *some][-1].place)):
                self._works[partition] = self._work(met, some)
                return True
        return False

    def _behind(self, met: Met, source: InputPartition) -> list[Met]:
        """The corrections right behind one which are only noted, or refused, as it is."""

        def kind(each: Met) -> tuple[str, bool, bool]:
            refused = self._refusals_of(each) is not None
            return each.correction.ladder, each.waits and not refused, refused

        ladder, waits, refused = kind(met)
        if not (waits or refused):
            return []
        run, size = list[Met](), 0
        for each in self._queues[met.record.partition]:
            size += len(each.record.value or b"")
            if kind(each) != (ladder, waits, refused) or (size > TOGETHER_BYTES and run):
                break
            run.append(each)
        return run[1 : source.reached_by([each.record.offset for each in run])]

    def work_on(
        self, met: Met, in_flight: InFlightWindow, now_s: float, observer: Observer
    ) -> Step[bool]:
        """Do the next piece of the work on a correction that is due. Returns whether it is done."""
        partition, ladder = met.record.partition, met.correction.ladder
        work = self._works[partition]
        done = yield from work.step(lambda ends, players: in_flight.sent(ends, players, now_s))
        observer.correcting(ladder, partition, met.record.offset, work.job.progress)
        return done

    def _work(self, met: Met, behind: Sequence[Met]) -> Work:
        edits, known = self._edits_on(met.correction.ladder), self._ahead.get(met.record.partition)
        refusals = self._refusals_of(met)
        judged = met.waits or refusals is not None
        queues = () if judged else self._queued(met.record.partition, known or {})
        return self.work_kind(met, edits, self._log, self._how, queues, refusals, behind)

    def _refusals_of(self, met: Met) -> Refusals | None:
        """What is refused with a correction, if that is known before it is worked in: its ladder
        takes none, or it was judged in the pass of another one."""
        if (invalid := self._log.refusal(Proposed(*met))) is not None:
            return [(met.record, invalid)]
        return self._ahead.get(met.record.partition, {}).get(met.record.offset)

    def _queued(self, partition: int, known: Collection[int]) -> list[Queue]:
        """The corrections that wait in a partition, by ladder, if more than the first one has yet
        to be judged."""
        first, *others = self._queues[partition]
        if all(each.waits or each.record.offset in known for each in others):
            return []
        polled: dict[str, list[Proposed]] = {}
        for each in (first, *others):
            polled.setdefault(each.correction.ladder, []).append(Proposed(*each))
        return [
            Queue(ladder, some, edits.waiting(at), edits.accepted(at))
            for ladder, some in polled.items()
            for edits, at in [(self._edits_on(ladder), some[0].record.offset)]
        ]

    def _edits_on(self, ladder: str) -> LadderEdits:
        return self._edits.get(ladder) or LadderEdits()

    def finished(self, met: Met) -> Iterator[tuple[Met, Refusals]]:
        """The corrections that are finished together, and what is refused with each."""
        work = self._works[met.record.partition]
        yield met, work.job.refused
        for each in work.run[1:]:
            yield each, self._refusals_of(each) or []

    def finish(self, met: Met) -> tuple[PendingRounds, PendingRounds]:
        """The work on a correction is done. Returns the rounds that waited for it alone, as
        `admit` does."""
        partition, ladder = met.record.partition, met.correction.ladder
        work, queue = self._works.pop(partition), self._queues[partition]
        self._edits.setdefault(ladder, LadderEdits()).add(work.notes())
        self._ahead.setdefault(partition, {}).update(work.job.ahead)
        offsets, aside, free = self._offsets[ladder], self._aside[ladder], list[PendingRounds]()
        for each in work.run:
            queue.popleft()
            offsets.popleft()
            self._ahead[partition].pop(each.record.offset, None)
        while aside and not (offsets and len(aside[0]) and aside[0].offsets[0] > offsets[0]):
            free.append(aside.popleft())
        if not offsets:
            del self._offsets[ladder], self._aside[ladder]
        return edited(PendingRounds.concat(free), self.edits_of, self._how.shards)
