"""What the state machines tell whoever watches them: counts and moments, nothing they wait for."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import NamedTuple

from stream_rater.contract.record import Record
from stream_rater.contract.tracecontext import Trace
from stream_rater.pipeline.ports import Rejection
from stream_rater.rounds.batch import RoundHead


class Traced(NamedTuple):
    """A round that carries a trace."""

    trace: Trace
    ladder: str
    round_id: str
    partition: int
    """Of the machine's input, where the round, or a part of it, stands."""
    offset: int


def unwatched(_: Iterable[Traced]) -> AbstractContextManager[object]:
    """Nobody looks at who is traced."""
    return nullcontext()


class Observer:
    """Ignores everything; metrics, logs and tests override what they care about."""

    def owned(self, partitions: frozenset[int]) -> None:
        """The partitions (or shards) that the machine owns from now on."""

    def reading_back(self, partitions: Collection[int]) -> None:
        """Of these, from now on, only the ids before the committed offset are being read."""

    def rounds_accepted(self, records: Sequence[Record], rounds: Sequence[RoundHead]) -> None:
        """Valid rounds, if any, were read together, each in its record."""

    def unknown_fields(self, rounds: int) -> None:
        """So many rounds with fields that we do not know, or a rank beside `dnf`, were accepted."""

    def round_rejected(self, rejection: Rejection) -> None:
        """A record will go to round-rejected."""

    def partitions_resting(self, partitions: frozenset[int]) -> None:
        """These are not read for a while, from now on: too much of them was rejected."""

    def at_work(self, rounds: Iterable[Traced]) -> AbstractContextManager[object]:
        """Around the work on a wave, or on a batch of parts: its traced rounds, if anybody asks."""
        return unwatched(rounds)

    def rounds_scattered(self, rounds: int, players: int) -> None:
        """A wave was estimated and acknowledged."""

    def rounds_resumed(self, rounds: int) -> None:
        """Rounds that a predecessor had already scattered."""

    def beliefs_applied(
        self, shard: int, end: int, applied: int, repeated: int, *, replayed: bool
    ) -> None:
        """Rows of a shard, of parts before offset `end`, written to the store and rows ignored;
        `replayed` where the store had lost them."""

    def events_published(self, events: int, *, settled: bool) -> None:
        """A transaction was committed; `settled` where a predecessor had applied its rows."""

    def positions(self, next_offsets: Mapping[int, int]) -> None:
        """The next offset to be finished, by partition."""

    def rounds_missing(self, partition: int, committed: int, start: int) -> None:
        """The log was cut: offsets [committed, start) were deleted before they were read."""

    def started_over(self, reason: str) -> None:
        """Trouble: everything is forgotten and read again."""

    def ladder_refused(self, ladder: str, offset: float, reason: str) -> None:
        """A ladder's rounds wait from an offset on: this worker's file and the others' disagree."""

    def ladders_agreed(self, ladders: Iterable[str]) -> None:
        """This worker may rate rounds of these ladders."""

    def shard_opened(self, shard: int) -> None:
        """A shard's store and log are in order, and it goes on from there."""

    def part_ignored(self, shard: int, offset: int, reason: str) -> None:
        """A foreign message in the parts' topic."""

    def shard_refused(self, shard: int, reason: str, offset: int | None = None) -> None:
        """A shard cannot go on, with the part at that offset, without an operator."""
