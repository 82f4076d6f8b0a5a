"""Checks that the store, the log and the committed offsets have the same history (steps 1 and 9).

Kafka may be restored from an older copy, or Redis from a newer one. Then the store contains the
result of records that this log never had. At first the log ends before `applied`; later it grows
past `applied` with other records. So the store keeps the checksum of the last record that was
applied. A worker that opens a shard compares this checksum with that of the log's record at the
same offset.

An updater refuses a shard whose store and log differ. An estimator must not rate by the beliefs of
such a shard either, because its parts would remain in the log after the rebuild that repairs the
store.

`round-completed` alone may lose records, too, by an unclean leader election. The next rounds take
their offsets, and would be taken for finished ones. So the estimators commit the checksum of the
last finished record together with the offset after it, and compare it when they open a partition.
"""

from collections.abc import Mapping, Sequence

from stream_rater.contract.errors import RoundsLost
from stream_rater.pipeline import ports

REBUILD = "stop the workers and run `stream-rater rebuild --replace`"


def log_too_short(reached: int, log_end: int) -> str:
    """Why a log that ends at `log_end` cannot have led to the offset `reached`; empty if it can."""
    if reached <= log_end:
        return ""
    return f"offset {reached} was reached and the log ends at {log_end}: {REBUILD}"


def tail_mismatch(position: ports.Position, tail: int | None) -> str:
    """The reason why the log is not the one that was applied, given the checksum `tail` of its last
    record before `applied`; empty if it is, or if a checksum is unknown."""
    if None in (position.tail, tail) or position.tail == tail:
        return ""
    return (
        f"the record at offset {position.applied - 1} is not the one that was applied to the store:"
        f" Kafka or Redis was restored from a copy of another history: {REBUILD}"
    )


def tails(
    positions: Mapping[int, ports.Position], ends: Sequence[int]
) -> ports.Step[dict[int, int | None]]:
    """By shard, the checksum of the log's last record before `applied`, where it can be compared.
    `ends` has the end of each shard's log."""
    to_read = {
        shard: position.applied - 1
        for shard, position in positions.items()
        if position.tail is not None and 0 < position.applied <= ends[shard]
    }
    return dict((yield from ports.ask(ports.PartSums(to_read)))) if to_read else {}


def check_source(
    committed: Mapping[int, ports.SourceCommit | None], starts: Mapping[int, int]
) -> ports.Step[None]:
    """Step 1: raise RoundsLost unless the log of each partition of `round-completed` still has the
    records that were finished. `starts`: the first offset of each."""
    known = {p: each for p, each in committed.items() if each and each.offset > starts[p]}
    if not known:
        return
    found = yield from ports.ask(ports.SourceTails({p: each.offset for p, each in known.items()}))
    if reasons := lost_rounds(known, found):
        raise RoundsLost(reasons.values())


def lost_rounds(
    committed: Mapping[int, ports.SourceCommit], found: Mapping[int, ports.SourceTail]
) -> dict[int, str]:
    """By partition of `round-completed`, the reason why its log cannot be the one that was rated up
    to the committed offset. Partitions whose log can be are left out."""
    reasons = {}
    for partition, commit in committed.items():
        log, c = found[partition], commit.offset
        if log.end < c:
            reasons[partition] = (
                f"partition {partition} was finished up to offset {c} and ends at {log.end}"
            )
        elif commit.tail is not None and commit.tail != log.tail and not log.damaged:
            reasons[partition] = f"partition {partition} has another record at offset {c - 1}"
    return reasons
