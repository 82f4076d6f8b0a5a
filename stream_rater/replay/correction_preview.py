"""Previews corrections: the log is replayed as it is, and as they would edit it."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import msgspec

from stream_rater.columns.sharding import ANYWHERE
from stream_rater.config.ladders import Ladders
from stream_rater.contract.record import Record
from stream_rater.replay.corrected import judged
from stream_rater.replay.edited_log import batches_of
from stream_rater.replay.sequential import Replay
from stream_rater.rounds.validation import Invalid


@dataclass
class Foreseen:
    """Two replays of a log, and how they differ."""

    before: Replay
    after: Replay
    rounds: int
    """The number of accepted rounds of the ladder."""
    touched: int
    """The number of these that the corrections would change."""
    refused: list[tuple[int, Invalid]]
    """The corrections that would be rejected, by their index, and why."""
    others_refused: list[tuple[int, Invalid]]
    """The waiting corrections of the log that would be rejected, by their offset, and why."""


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
        own = found.before.feed(some).log.rounds.of_ladder(ladder)
        found.after.feed(some)
        found.rounds += len(own)
        if len(own) and new.of(ladder) is not old.of(ladder):
            found.touched += new.of(ladder).differing(old.of(ladder), own.rounds, own.offset)
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
