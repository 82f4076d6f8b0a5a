"""The faults of a simulation, counted where they happen: a fault that never happens tests
nothing."""

from collections import Counter

from stream_rater.adapters.memory_servers import Log

from .game import PARTITION_OF
from .recovery import rows

KINDS = {
    "crash": "workers crashed",
    "pause": "workers paused",
    "zombie": "workers resumed as zombies",
    "rebalance": "rebalances",
    "deaf": "news of a rebalance late",
    "repeated": "records delivered again",
    "duplicate": "rounds reported again",
    "junk": "records that are no round",
    "misplaced": "rounds in another ladder's partition",
    "reordered": "parts overtaken by a later wave",
    "doubt": "transactions whose end timed out",
    "late-end": "such ends that completed later",
    "into-the-next": "such ends that came into the next transaction",
    "aborted": "transactions aborted by the coordinator",
    "roll-back": "shards that lost their last calls",
    "restored": "shards back in any older state",
    "stale": "reads answered from the past",
    "wipe": "stores wiped",
    "expired": "committed offsets that Kafka forgot",
    "resharded": "shards added",
    "ended": "workers from before shards were added that ended themselves",
    "lost": "shards lost at work, or back to before a rebuild",
    "fail": "calls failed",
    "late-call": "requests of failed calls that came later",
    "slow": "workers slowed down tenfold",
    "mixed": "workers of the next version and configuration beside the old",
    "litter": "foreign records among the parts",
    "jump-ahead": "a worker's clock jumped ahead",
    "jump-back": "a worker's clock jumped back",
    "early": "records that arrived by a broker's clock gone back",
}
"""The kinds of fault, with their names in tables."""

Faults = Counter[str]
"""The number of faults by kind."""


def overtaken(log: Log) -> int:
    """How many parts are the first of a round and follow, in their shard, a part of a later round
    of the same partition."""
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
