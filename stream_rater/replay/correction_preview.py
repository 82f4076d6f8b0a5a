"""Previews corrections: replays the log as it is, and as the corrections would edit it."""

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
    """Two replays of a log, without and with the previewed corrections, and their differences."""

    before: Replay
    after: Replay
    rounds: int
    """The number of accepted rounds of the ladder."""
    touched: int
    """The number of these rounds that the corrections would change."""
    refused: list[tuple[int, Invalid]]
    """The index of each correction that would be rejected, and why."""
    others_refused: list[tuple[int, Invalid]]
    """The offset of each waiting correction of the log that would be rejected, and why."""


def foresee(
    again: Callable[[], Iterable[Record]], corrections: Sequence[Record], ladder: str,
    ladders: Ladders, window: int, partitions: int = ANYWHERE,
) -> Foreseen:  # fmt: skip
    """Preview corrections of a ladder as if they followed the last record of its partition. `again`
    yields the records of that partition from the first one, each time it is called. The offsets in
    `corrections` are ignored."""
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
