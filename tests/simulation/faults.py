"""Faults are counted where they happen, since a fault that never happens tests nothing."""

from collections import Counter

from stream_rater.adapters.memory import Log

from .game import PARTITION_OF
from .recovery import rows

KINDS = {
    "crash": "workers crashed", "pause": "workers paused",
    "zombie": "workers resumed after a rebalance that they did not notice",
    "rebalance": "rebalances",
    "deaf": "polls by a worker that does not know of a rebalance yet",
    "repeated": "records delivered again", "duplicate": "rounds reported again",
    "junk": "records that are no round",
    "correction": "corrections of earlier rounds and players", "seed": "seeds and resets",
    "checkpoint": "checkpoints that corrections began with",
    "no-checkpoint": "checkpoints lost, whole or in part, or put back to older ones",
    "unkept": "checkpoints that were not read, written or deleted, as if the store were full",
    "misplaced": "rounds in another partition than their ladder's",
    "reordered": "parts that came after those of a later wave",
    "doubt": "ends of transactions that timed out",
    "late-end": "timed-out ends of transactions that took effect later",
    "into-the-next": "timed-out ends of transactions that came into the next one",
    "aborted": "transactions aborted by the coordinator",
    "roll-back": "shards that lost their last calls",
    "restored": "shards put back to any older state",
    "stale": "reads answered with an older state", "wipe": "stores emptied",
    "expired": "times that Kafka forgot the committed offsets",
    "resharded": "times that shards were added",
    "ended": "workers that ended by themselves after shards were added",
    "torn": "partitions of rounds that lost finished records",
    "lost": "shards emptied under load, or put back to before a rebuild",
    "vanished": "hashes of beliefs deleted within a call", "fail": "calls failed",
    "late-call": "requests that reached their server after their call had failed",
    "slow": "workers slowed down",
    "mixed": "workers started with a newer version beside older ones",
    "litter": "foreign records among the parts", "jump-ahead": "a worker's clock jumped ahead",
    "jump-back": "a worker's clock jumped back",
    "early": "records stamped by a broker whose clock was set back",
}  # fmt: skip
"""The kinds of fault, with their names in tables."""

Faults = Counter[str]  # the number of faults by kind


def overtaken(log: Log) -> int:
    """How many parts come first of their round, but after a later round's part in their shard."""
    found = 0
    for shard in log.parts:
        seen: set[tuple[int, int]] = set()
        latest: dict[int, int] = {}
        for record in shard:
            rounds = {(PARTITION_OF[ladder], offset) for (ladder, _), offset in rows(record)}
            found += any(offset < latest.get(partition, 0) for partition, offset in rounds - seen)
            seen |= rounds
            for partition, offset in rounds:
                latest[partition] = max(offset, latest.get(partition, 0))
    return found
