"""The work on one correction in the estimator: validate it, write its ladder event, and send the
new records.

`corrections` decides when a correction is applied, and which rounds wait for it.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from stream_rater.columns import player_map
from stream_rater.columns.kernels import KERNEL_VERSION
from stream_rater.columns.player_map import Fingerprints
from stream_rater.columns.sharding import shards_of
from stream_rater.columns.strings import StringColumn
from stream_rater.contract.corrections import CorrectionsApplied, name_of
from stream_rater.contract.events import MOST_BYTES
from stream_rater.pipeline.corrections.correction_job import ChangedPlayers, CorrectionJob
from stream_rater.pipeline.corrections.correction_validator import Rejections
from stream_rater.pipeline.corrections.edits_in_force import LadderEdits, recorded_correction
from stream_rater.pipeline.corrections.log_context import LogContext, QueuedCorrection
from stream_rater.pipeline.corrections.lookahead import CorrectionQueue
from stream_rater.pipeline.estimator.estimation import part_ends
from stream_rater.pipeline.parts import correction_parts
from stream_rater.pipeline.parts.correction_parts import CorrectionPart
from stream_rater.pipeline.ports import NoteCorrections, RecordedCorrection, Scatter, Step, ask
from stream_rater.rounds.correction_records import round_in

THRESHOLD = 0.5
"""A changed rating is published immediately if it moves by at least this many displayed points."""

HEAD_BYTES = 10  # The most bytes that MessagePack writes before an id and a record, together.

TOGETHER_BYTES = 2**18
"""The most bytes of corrections that are finished together: one message has the ladder events of
all of them."""


class PartOptions(NamedTuple):
    """The options for cutting and publishing correction parts."""

    shards: int
    rows_per_part: int  # The most rows in a message.
    threshold: float = THRESHOLD  # The threshold for events, as in CorrectionPart.
    kernel: int = KERNEL_VERSION  # The version of the kernels that rated.


class PartsToSend(NamedTuple):
    """Correction parts that are sent together."""

    messages: list[tuple[int, bytes]]
    players: dict[int, Fingerprints]  # By shard, the fingerprints of the players in the messages.


class Work:
    """The work on one correction."""

    def __init__(
        self, queued: QueuedCorrection, edits: LadderEdits, log: LogContext, options: PartOptions,
        queues: Sequence[CorrectionQueue] = (), rejections: Rejections | None = None,
        followers: Sequence[QueuedCorrection] = (), *,
        make_job: Callable[..., CorrectionJob] = CorrectionJob,
    ) -> None:  # fmt: skip
        """`queues` and `rejections`: as in CorrectionJob. `followers`: later corrections that, like
        this one, only wait or are rejected. They are finished together with it. `make_job` makes a
        CorrectionJob from its positional arguments."""
        self._queued = queued
        self.group = [queued, *followers]
        """This correction and all others that are finished together with it."""
        self._options = options
        self._is_recorded = False
        self._parts: Iterator[PartsToSend] = iter(())
        self.waits = queued.waits
        correction, place = queued.correction, queued.record.offset
        applied = isinstance(correction, CorrectionsApplied)
        self._refusal = log.rejection(queued)
        """Why the ladder accepts no corrections; None if it accepts them. This is decided now, when
        all workers agree on the ladders file at this offset, and not when the correction is
        polled."""
        self.job = make_job(
            correction.ladder, queued.record.partition, place, [] if applied else [queued],
            edits.waiting(place) if applied else (),
            () if self.waits else edits.accepted(place), log, queues, rejections,
        )  # fmt: skip

    def step(
        self, sent: Callable[[Mapping[int, int], Mapping[int, Fingerprints]], None]
    ) -> Step[bool]:
        """Do the next step of the work. Returns whether all of it is done. Once parts are
        acknowledged, `sent` is called with the ends of the parts and the players in them, both by
        shard."""
        if self._refusal is not None:
            self.job.rejected = [(self._queued.record, self._refusal)]
            return True
        if not self._is_recorded:
            if self.waits or (yield from self.job.step()):
                if events := self.ladder_events():
                    yield from ask(NoteCorrections({self.job.ladder: events}))
                self._is_recorded, self._parts = True, self._encoded()
            return False
        parts = next(self._parts, None)
        if parts is None:
            return True
        if not parts.messages:
            return False
        offsets = yield from ask(Scatter(parts.messages))
        sent(part_ends(parts.messages, offsets), parts.players)
        return False

    def ladder_events(self) -> list[RecordedCorrection]:
        """The ladder events to write. Each `corrections-applied` has one, even if it applies no
        correction. Without it, the next `corrections-applied` would validate the same batch."""
        if self._refusal is not None:
            return []
        if self.waits:
            return [
                recorded_correction(each.record.offset, each.correction, -1) for each in self.group
            ]
        at = self.job.at
        events = [
            recorded_correction(each.record.offset, each.correction, at)
            for each in self.job.accepted
        ]
        events += [
            recorded_correction(each.record.offset, each.correction, each.record.offset)
            for each in self.group if isinstance(each.correction, CorrectionsApplied)
        ]  # fmt: skip
        return events

    def _encoded(self) -> Iterator[PartsToSend]:
        for changed in self.job.corrected():
            if not changed.players:
                yield PartsToSend([], {})
                continue
            shards = shards_of(changed.players, self._options.shards)
            messages = [
                (shard, correction_parts.encode(self._part(changed, rows)))
                for shard in np.unique(shards).tolist()
                for rows in self._cut(changed, np.flatnonzero(shards == shard).tolist())
            ]
            yield PartsToSend(messages, self._fingerprints(changed))

    def _cut(self, changed: ChangedPlayers, rows: Sequence[int]) -> Iterator[Sequence[int]]:
        """Yield these rows in order, in groups of as many as one message may have."""
        most_bytes = MOST_BYTES - len(correction_parts.encode(self._part(changed, [])))
        first = size = 0
        for i, row in enumerate(rows):
            own = len(changed.players[row].encode()) + len(changed.records[row]) + HEAD_BYTES
            if first < i and (i == first + self._options.rows_per_part or size + own > most_bytes):
                yield rows[first:i]
                first, size = i, 0
            size += own
        yield rows[first:]

    def _part(self, changed: ChangedPlayers, rows: Sequence[int]) -> CorrectionPart:
        record, correction = self._queued
        return CorrectionPart(
            version=correction_parts.CORRECTION, kernel=self._options.kernel,
            shards=self._options.shards,
            offset=record.offset, ladder=correction.ladder, cause=name_of(correction),
            round_id=round_in(correction), completed_at=self.job.completed_at, rule=self.job.rule,
            threshold=self._options.threshold, players=[changed.players[i] for i in rows],
            records=[changed.records[i] for i in rows],
        )  # fmt: skip

    def _fingerprints(self, changed: ChangedPlayers) -> dict[int, Fingerprints]:
        names, sizes = StringColumn.of(changed.players), [len(changed.players)]
        prints = player_map.fingerprints(names, [self.job.ladder], sizes, self._options.shards)
        shards = player_map.shards_in(prints)
        return {shard: prints[shards == shard] for shard in np.unique(shards).tolist()}
