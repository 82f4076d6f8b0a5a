"""Whether store and log are of one history (steps 4 and 9).

Kafka may come back from an older copy, or Redis from a newer one. Then the store holds what this
log never said. At first the log ends before `applied`; later it grows past it with other records.
So the store keeps the checksum of the last record that was applied, and who opens a shard compares
it with the record that the log has there.

An updater refuses such a shard. An estimator must not rate by its beliefs either: its parts would
outlast the rebuild that mends the store.
"""

from collections.abc import Mapping, Sequence

from stream_rater.pipeline.estimator.progress import Progress
from stream_rater.pipeline.observer import Observer
from stream_rater.pipeline.ports import (
    NO_PLAYERS,
    PartSums,
    Position,
    ReadBeliefs,
    Step,
    ask,
    shard_ends,
)

REBUILD = "stop the workers and run `stream-rater rebuild --replace`"

AGAIN_S = 5.0
"""How long a shard of another history is not looked at again."""


def ends_early(reached: int, log_end: int) -> str:
    """Why a log that ends there does not lead to an offset that was reached; empty if it does."""
    if reached <= log_end:
        return ""
    return f"offset {reached} was reached and the log ends at {log_end}: {REBUILD}"


def other_tail(position: Position, tail: int | None) -> str:
    """Why a log whose last record before `applied` has this checksum is not the one that was
    applied; empty if it is, or if nobody can tell."""
    if None in (position.tail, tail) or position.tail == tail:
        return ""
    return (
        f"the record at offset {position.applied - 1} is not the one that was applied to the store:"
        f" Kafka or Redis was restored from a copy of another history: {REBUILD}"
    )


def tails(positions: Mapping[int, Position], ends: Sequence[int]) -> Step[dict[int, int | None]]:
    """The checksums of the last records before `applied`, of shards where they can be compared.
    `ends` are those of all shards' logs."""
    asked = {
        shard: position.applied - 1
        for shard, position in positions.items()
        if position.tail is not None and 0 < position.applied <= ends[shard]
    }
    return dict((yield from ask(PartSums(asked)))) if asked else {}


class Strangers:
    """The shards whose store is of another history than the log, as one estimator sees it."""

    def __init__(self, shards: int, observer: Observer) -> None:
        self._shards = shards
        self._observer = observer
        self._found: set[int] = set()
        self._due_s = 0.0

    def take_over(self, progress: Progress, now_s: float) -> Step[None]:
        """Step 1: set the floors to the ends of parts, and compare all shards' stores with them."""
        progress.take_over((yield from self._compare(range(self._shards), progress, now_s)))

    def look_again(self, progress: Progress, now_s: float) -> Step[None]:
        """Compare the shards again that were of another history."""
        if self._found and now_s >= self._due_s:
            yield from self._compare(sorted(self._found), progress, now_s)

    def _compare(
        self, shards: Sequence[int], progress: Progress, now_s: float
    ) -> Step[Sequence[int]]:
        """Compare the stores of some shards with the log. Returns the ends of all shards."""
        held = yield from ask(ReadBeliefs(dict.fromkeys(shards, NO_PLAYERS)))
        positions = {shard: each.position for shard, each in held.items()}
        ends = yield from shard_ends(self._shards)  # after applied, which never passes an end
        found = yield from tails(positions, ends)
        for shard, position in positions.items():
            reason = ends_early(position.applied, ends[shard])
            reason = reason or other_tail(position, found.get(shard))
            if reason:
                self._found.add(shard)
                progress.exclude(shard)
                self._observer.shard_refused(shard, reason)
            elif shard in self._found:
                self._found.remove(shard)
                progress.include(shard)
                self._observer.shard_opened(shard)
        self._due_s = now_s + AGAIN_S
        return ends
