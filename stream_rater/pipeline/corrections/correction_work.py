"""The work on one queued record in the estimator; `corrections` decides when it begins, and what
waits for it.

A correction is validated, its ladder event is written, and the new records are sent. Seeds and
resets need no replay and no ladder event: their rows are sent as parts. A row depends on the
record, and on the corrections before it. Whether it changes a belief depends on the belief alone,
and the updater decides it. So no belief is read before the parts are sent.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

import msgspec
import numpy as np

from stream_rater.columns import player_map
from stream_rater.columns.arrays import Ints
from stream_rater.columns.kernels import KERNEL_VERSION
from stream_rater.columns.player_map import Fingerprints
from stream_rater.columns.strings import StringColumn
from stream_rater.contract.corrections import CorrectionsApplied, name_of
from stream_rater.pipeline.corrections.correction_job import ChangedPlayers, CorrectionJob
from stream_rater.pipeline.corrections.correction_validator import (
    CorrectionQueue,
    LogContext,
    QueuedCorrection,
    Rejections,
)
from stream_rater.pipeline.corrections.edits_in_force import LadderEdits, recorded_correction
from stream_rater.pipeline.estimator.estimation import part_ends
from stream_rater.pipeline.parts import schema
from stream_rater.pipeline.parts.schema import Epochs, Part
from stream_rater.pipeline.ports import NoteCorrections, RecordedCorrection, Scatter, Step, ask
from stream_rater.rating.stages import RatingRule
from stream_rater.rounds.correction_records import Seed, round_in

THRESHOLD = 0.5
"""A changed rating is published immediately if it moves by at least this many displayed points."""

TOGETHER_BYTES = 2**18
"""The most bytes of corrections that are finished together, with one write of ladder events."""

Sent = Callable[[Mapping[int, int], Mapping[int, Fingerprints]], None]
"""A function that is called once parts are acknowledged, with the ends of the parts and the players
in them, both by shard."""


class PartOptions(NamedTuple):
    """The options for cutting and publishing correction parts."""

    shards: int
    rows_per_part: int  # The most rows in a message.
    threshold: float = THRESHOLD  # The threshold for events, as in Head.
    kernel: int = KERNEL_VERSION  # The version of the kernels that rated.


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
        self.group = [queued, *followers]  # All corrections that are finished together.
        self._options = options
        self._is_recorded = False
        self._changed: Iterator[ChangedPlayers] = iter(())
        self.waits = queued.waits
        correction, place = queued.correction, queued.record.offset
        applied = isinstance(correction, CorrectionsApplied)
        self._refusal = log.rejection(queued)
        """Why the ladder accepts no corrections; None if it accepts them. This is decided now, when
        all workers agree on the ladders file at this offset, not when the correction is polled."""
        self.job = make_job(
            correction.ladder, queued.record.partition, place, [] if applied else [queued],
            edits.waiting(place) if applied else (),
            () if self.waits else edits.accepted(place), log, queues, rejections,
        )  # fmt: skip

    def step(self, sent: Sent, epochs: Epochs) -> Step[bool]:
        """Do the next step of the work. Returns whether it is all done. Parts name the `epochs`."""
        if self._refusal is not None:
            self.job.rejected = [(self._queued.record, self._refusal)]
            return True
        if not self._is_recorded:
            if self.waits or (yield from self.job.step()):
                if events := self.ladder_events():
                    yield from ask(NoteCorrections({self.job.ladder: events}))
                self._is_recorded, self._changed = True, self.job.corrected()
            return False
        changed = next(self._changed, None)
        if changed is not None and changed.players:
            yield from self._send(changed, sent, epochs)
        return changed is None

    def _send(self, changed: ChangedPlayers, sent: Sent, epochs: Epochs) -> Step[None]:
        ladder, names = self.job.ladder, StringColumn.of(changed.players)
        prints = player_map.fingerprints(names, [ladder], [len(names)], self._options.shards)
        order, cuts = player_map.by_shard(prints)
        most_rows = self._options.rows_per_part
        messages = schema.messages(self._part(changed), order, cuts, most_rows, epochs)
        offsets = yield from ask(Scatter(messages))
        sent(part_ends(messages, offsets), in_shards(prints))

    def ladder_events(self) -> list[RecordedCorrection]:
        """The ladder events to write. Each `corrections-applied` has one, even if it applies no
        correction. Without it, the next `corrections-applied` would validate the same batch."""
        if self._refusal is not None:
            return []
        if self.waits:
            return [recorded_correction(each.offset, each.correction, -1) for each in self.group]
        recorded = [(each, self.job.at) for each in self.job.accepted]
        applied = [e for e in self.group if isinstance(e.correction, CorrectionsApplied)]
        recorded += [(each, each.offset) for each in applied]
        return [recorded_correction(each.offset, each.correction, at) for each, at in recorded]

    def _part(self, changed: ChangedPlayers) -> Part:
        """All rows of these players."""
        record, correction = self._queued
        rule = msgspec.structs.replace(self.job.rule, kernel=self._options.kernel)
        about = round_in(correction), correction.ladder, self.job.completed_at
        return Part.of_correction(
            rule, record.offset, about, StringColumn.of(changed.players), self._options.shards,
            name_of(correction), self._options.threshold, StringColumn.of_bytes(changed.records),
        )  # fmt: skip


def in_shards(players: Fingerprints) -> dict[int, Fingerprints]:
    """The fingerprints in each shard, by shard."""
    order, cuts = player_map.by_shard(players)
    return {shard: players[order[where]] for shard, where in cuts}


# --- seeds and resets ---

MOST_ROWS = 50_000
"""The most rows of adjacent records that are sent together. One record may have more."""


class QueuedSeed(NamedTuple):
    """A valid seed or reset that was read, as reported, and whose parts are not sent yet."""

    seed: Seed

    @property
    def ladder(self) -> str:
        return self.seed.ladder

    @property
    def partition(self) -> int:
        return self.seed.partition

    @property
    def offset(self) -> int:
        return self.seed.offset

    def goes_with(self, other: "QueuedSeed") -> bool:
        """Whether both can be in one part: their kind, ladder and parameters are equal."""
        own, its = self.seed, other.seed
        return (own.kind, own.ladder, own.rating) == (its.kind, its.ladder, its.rating)


class SeedWork:
    """The work on adjacent seeds or resets of one ladder, which can be in one part."""

    def __init__(
        self, group: Sequence[QueuedSeed], edited: Sequence[Seed], rule: RatingRule,
        options: PartOptions,
    ) -> None:  # fmt: skip
        """`edited` are the records in `group` after the corrections before them, without those that
        change no belief any more. `rule` is the ladder's rule at all of them."""
        self.group = list(group)  # The records that are finished together.
        self._options = options
        self._whole = _concatenated(edited, rule, options) if edited else None
        self.players = self._fingerprints()

    def _fingerprints(self) -> Fingerprints:
        whole = self._whole
        if whole is None:
            return np.empty(0, np.uint64)
        ladders, sizes = whole.ladder[:1], [len(whole)]
        return player_map.fingerprints(whole.names, ladders, sizes, self._options.shards)

    def step(self, sent: Sent, epochs: Epochs) -> Step[bool]:
        """Send all parts, with these epochs. Returns True: then the work is done."""
        if messages := list(self._messages(epochs)):
            offsets = yield from ask(Scatter(messages))
            sent(part_ends(messages, offsets), in_shards(self.players))
        return True

    def _messages(self, epochs: Epochs) -> Iterator[tuple[int, bytes]]:
        """Yield the parts as (shard, message). In a shard, players' first rows come first."""
        if self._whole is None:
            return
        for rows in by_turn(self._whole.names):
            order, cuts = player_map.by_shard(self.players[rows])
            most_rows = self._options.rows_per_part
            yield from schema.messages(self._whole, rows[order], cuts, most_rows, epochs)


def by_turn(names: StringColumn) -> list[Ints]:
    """The rows of each player's first name among `names`, then those of the second, and so on."""
    _, which = np.unique(names.hashes, return_inverse=True)
    if len(names) == int(which.max(initial=-1)) + 1:
        return [np.arange(len(names))]
    seen, turns = dict[bytes, int](), list[list[int]]()
    for row, name in enumerate(names.strings()):
        turn = seen[name] = seen.get(name, -1) + 1
        if turn == len(turns):
            turns.append([])
        turns[turn].append(row)
    return [np.array(rows, np.int64) for rows in turns]


def _concatenated(seeds: Sequence[Seed], rule: RatingRule, options: PartOptions) -> Part:
    """The rows of all these records, in order."""
    sizes, n = [len(each) for each in seeds], sum(map(len, seeds))
    given = [np.concatenate([getattr(each, name) for each in seeds]) for name in GIVEN]
    return Part(
        [msgspec.structs.replace(rule, kernel=options.kernel)],
        np.array([each.offset for each in seeds]), np.zeros(len(seeds), np.int64),
        np.array([each.time for each in seeds]), [each.round_id for each in seeds],
        [each.ladder for each in seeds], [each.head.completed_at for each in seeds],
        [None] * len(seeds),
        np.repeat(np.arange(len(seeds)), sizes), np.zeros(n, np.int32),
        np.column_stack(given).astype(np.float64),
        StringColumn.concat([each.names for each in seeds]), options.shards, seeds[0].kind,
    )  # fmt: skip


GIVEN = "mu", "sigma", "rounds"  # What a row of a seed part has in place of evidence.
