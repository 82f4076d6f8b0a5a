"""Previews corrections: replays the log as it is, and as the corrections would edit it."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import msgspec

from stream_rater.columns.sharding import ANYWHERE
from stream_rater.config.ladders import Ladders
from stream_rater.contract.record import Record
from stream_rater.replay.corrected import verdicts_of_log
from stream_rater.replay.edited_log import batches_of
from stream_rater.replay.sequential import Replay
from stream_rater.rounds.validation import Invalid


@dataclass
class CorrectionPreview:
    """Two replays of a log, without and with the previewed corrections, and their differences."""

    before: Replay
    after: Replay
    rounds: int
    """The number of accepted rounds of the ladder."""
    touched: int
    """The number of these rounds that the corrections would change."""
    seeds: int
    """The number of accepted seeds and resets of the ladder that the corrections would change."""
    rejected: list[tuple[int, Invalid]]
    """The index of each previewed correction that would be rejected, and the reason."""
    others_rejected: list[tuple[int, Invalid]]
    """The offset of each waiting correction of the log that would be rejected, and the reason."""


def preview_corrections(
    read_log: Callable[[], Iterable[Record]], corrections: Sequence[Record], ladder: str,
    ladders: Ladders, window: int, partitions: int = ANYWHERE,
) -> CorrectionPreview:  # fmt: skip
    """Preview corrections of a ladder as if they followed the last record of its partition.
    `read_log` yields the records of that partition from the first one, each time it is called. The
    offsets in `corrections` are ignored."""
    added: list[Record] = []

    def with_corrections() -> Iterator[Record]:
        end = 0
        for record in read_log():
            yield record
            end = record.offset + 1
        added[:] = [
            msgspec.structs.replace(each, offset=end + i) for i, each in enumerate(corrections)
        ]
        yield from added

    old = verdicts_of_log(read_log, ladders, window, partitions)
    new = verdicts_of_log(with_corrections, ladders, window, partitions)
    found = CorrectionPreview(
        Replay(ladders, window, partitions, old), Replay(ladders, window, partitions, new),
        0, 0, 0, [], [],
    )  # fmt: skip
    before, after = old.of(ladder), new.of(ladder)
    for batch in batches_of(read_log()):
        log = found.before.feed(batch).log
        own = log.rounds.of_ladder(ladder)
        found.after.feed(batch)
        found.rounds += len(own)
        if after is not before:
            if len(own):
                found.touched += after.count_differences(before, own.rounds, own.offset)
            seeds = [each for each in log.seeds if each.ladder == ladder]
            found.seeds += sum(after.changes_seed(before, each) for each in seeds)
    for batch in batches_of(added):
        found.after.feed(batch)
    ours = {(each.partition, each.offset): i for i, each in enumerate(added)}
    for place, invalid in new.rejections.items():
        if place in ours:
            found.rejected.append((ours[place], invalid))
        elif place not in old.rejections:
            found.others_rejected.append((place[1], invalid))
    found.rejected.sort(key=lambda each: each[0])
    return found
