"""What corrections would make of a log: it is replayed as it is, and as they would edit it."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import msgspec
import numpy as np

from stream_rater.columns.sharding import ANYWHERE
from stream_rater.config.ladders import Ladders
from stream_rater.contract.record import Record
from stream_rater.replay.corrected import judged
from stream_rater.replay.sequential import RatedBatch, Replay, batches_of
from stream_rater.replay.verdicts import Verdicts
from stream_rater.rounds.validation import Invalid


@dataclass
class Foreseen:
    """Two replays of a log, and how they differ."""

    before: Replay
    after: Replay
    rounds: int
    """Accepted rounds of the ladder."""
    touched: int
    """Of them those that are not what they were."""
    refused: list[tuple[int, Invalid]]
    """Which of the corrections would be refused, by their index, and why."""
    others_refused: list[tuple[int, Invalid]]
    """Of the corrections that are in the log and wait, which would be, by their offset."""


def foresee(
    again: Callable[[], Iterable[Record]], corrections: Sequence[Record], ladder: str,
    ladders: Ladders, window: int, partitions: int = ANYWHERE,
) -> Foreseen:  # fmt: skip
    """What corrections of a ladder would do, if they came after the records of its partition, which
    `again` yields from the first one on, each time. Their own offsets do not count."""
    added: list[Record] = []

    def longer() -> Iterator[Record]:
        end = 0
        for record in again():
            yield record
            end = record.offset + 1
        added[:] = [
            msgspec.structs.replace(each, offset=end + i) for i, each in enumerate(corrections)
        ]
        yield from added

    old = judged(again, ladders, window, partitions)
    new = judged(longer, ladders, window, partitions)
    found = Foreseen(
        Replay(ladders, window, partitions, old), Replay(ladders, window, partitions, new),
        0, 0, [], [],
    )  # fmt: skip
    for some in batches_of(again()):
        batch = found.before.feed(some)
        found.after.feed(some)
        _count(found, batch, ladder, old, new)
    for some in batches_of(added):
        found.after.feed(some)
    ours = {(each.partition, each.offset): i for i, each in enumerate(added)}
    for place, invalid in new.refusals.items():
        if place in ours:
            found.refused.append((ours[place], invalid))
        elif place not in old.refusals:
            found.others_refused.append((place[1], invalid))
    found.refused.sort(key=lambda each: each[0])
    return found


def _count(found: Foreseen, batch: RatedBatch, ladder: str, old: Verdicts, new: Verdicts) -> None:
    """Count the rounds of a ladder in a batch, and those that corrections would touch."""
    rounds = batch.decoded.rounds
    own = np.array([i for i, head in enumerate(rounds.heads) if head.ladder == ladder], np.int64)
    found.rounds += len(own)
    if not len(own) or new.of(ladder) is old.of(ladder):
        return
    offsets = np.array([each.offset for each in batch.decoded.valid(batch.records)], np.int64)
    found.touched += new.of(ladder).differing(old.of(ladder), rounds.take(own), offsets[own])
