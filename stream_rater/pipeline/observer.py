"""The hooks by which the state machines report what they do. No machine waits for an observer or
reads anything from it. So an observer cannot change what a machine does.

An observer may store what was reported to it and publish that: /readyz and the metrics read the
state of the service's observer.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import NamedTuple

from stream_rater.contract.errors import Trouble
from stream_rater.contract.record import Record, Trace
from stream_rater.pipeline.ports import Rejection
from stream_rater.rounds.batch import RoundBatch


class Traced(NamedTuple):
    """A round whose record carries a trace context."""

    trace: Trace
    ladder: str
    round_id: str
    partition: int  # The partition of the machine's input that contains the round, or a part of it.
    offset: int


class Published(NamedTuple):
    """Events of rounds that were committed, all of one part."""

    arrived_s: float  # When the first round of the part's wave arrived in the log, Unix seconds.
    events: int
    trace_id: str = ""  # The trace of one of the rounds; empty if none was looked for, or found.


def no_spans(_: Iterable[Traced]) -> AbstractContextManager[object]:
    """A context that records no spans."""
    return nullcontext()


class Observer:
    """Ignores every report. Metrics, logs and tests override the methods that they need."""

    def owned(self, partitions: frozenset[int]) -> None:
        """The machine owns exactly these partitions (or shards) from now on."""

    def reading_back(self, partitions: Collection[int]) -> None:
        """From now on these partitions read only round ids before their committed offset."""

    def rounds_accepted(self, records: Sequence[Record], rounds: RoundBatch) -> None:
        """Valid rounds were read in one poll, possibly none. `records` and `rounds` correspond."""

    def unknown_fields(self, rounds: int) -> None:
        """This many accepted rounds have unknown fields, or an entry with both a rank and `dnf`."""

    def round_rejected(self, rejection: Rejection) -> None:
        """A record was rejected and will be written to `round-rejected`."""

    def partitions_paused(self, partitions: frozenset[int]) -> None:
        """Only these partitions are paused from now on: too many of their records were rejected."""

    def working_on(self, rounds: Iterable[Traced]) -> AbstractContextManager[object]:
        """A context manager around the work on a wave or on a batch of parts. `rounds` yields its
        traced rounds on demand."""
        return nullcontext()

    def rounds_sent(self, rounds: int, players: int) -> None:
        """A wave of this size was estimated and sent: its parts were acknowledged."""

    def rounds_resumed(self, rounds: int) -> None:
        """A predecessor had already sent this many rounds."""

    def beliefs_applied(
        self, shard: int, end: int, applied: int, repeated: int, *, refilled: bool
    ) -> None:
        """Parts before offset `end` were applied to a shard: `applied` rows changed a belief, and
        `repeated` rows were ignored. `refilled`: the store had lost these rows, and their events
        were already published."""

    def seeds_without_effect(self, shard: int, end: int, rows: int) -> None:
        """Among the rows of a seed part before offset `end` of a shard, this many changed nothing:
        the player of a seed already has a round, or the player of a reset has none."""

    def records_looked_up(self, cached: int, read: int) -> None:
        """Of the belief records that a batch or a wave needs, `cached` were in the cache, and
        `read` come from the store."""

    def records_cached(self, evicted: int, bytes_used: int) -> None:
        """Records were cached, and so many others were `evicted` for that. All that are cached take
        `bytes_used` bytes."""

    def events_published(self, events: int, parts: Iterable[Published], *, settled: bool) -> None:
        """A transaction with this many events was committed, among them those of these parts, whose
        times of arrival are known. `settled`: an earlier call had applied their rows, and only the
        events were missing."""

    def correcting(self, ladder: str, partition: int, offset: int, progress: float) -> None:
        """A correction of this ladder, at this partition and offset, is being applied. `progress`
        is the share of the log that was read so far, from 0 to 1."""

    def corrected(self, ladder: str, partition: int, offset: int, refused: int) -> None:
        """The work on a correction is done. `refused` corrections were rejected in it."""

    def seeded(self, ladder: str, partition: int, offset: int, rows: int) -> None:
        """All parts of a seed or a reset were acknowledged. It has so many rows."""

    def positions(self, next_offsets: Mapping[int, int]) -> None:
        """The next unfinished offset of each of these partitions."""

    def rounds_missing(self, partition: int, committed: int, start: int) -> None:
        """Kafka deleted offsets [committed, start) of a partition before they were read."""

    def started_over(self, trouble: Trouble) -> None:
        """An effect failed with this error. The machine drops its state, and starts over."""

    def ladder_refused(self, ladder: str, offset: float, reason: str) -> None:
        """A ladder's rounds from `offset` on wait: the worker's file and ladder events disagree."""

    def ladders_agreed(self, ladders: Iterable[str]) -> None:
        """The worker's file and the ladder events agree on these ladders."""

    def shard_opened(self, shard: int) -> None:
        """A shard's store and log are consistent, and the shard is processed from now on."""

    def shard_refilled(self, shard: int, offset: int) -> None:
        """All parts before `offset` that the store had lost are applied again."""

    def part_ignored(self, shard: int, offset: int, reason: str) -> None:
        """The parts' topic has a message that is not a part. It is ignored."""

    def shard_refused(self, shard: int, reason: str, offset: int | None = None) -> None:
        """A shard cannot continue without an operator. `offset`: the part at which it stopped."""
