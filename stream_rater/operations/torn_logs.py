"""From where a rebuild counts rounds as rated, also if Kafka has lost records (`same_history`).

Usually the committed offsets say what was sent and what was applied. After an unclean leader
election they may lie beyond the end of a log, or name records that the log no longer has. Then they
prove nothing. All rounds that the log has now count as rated, and no part is pending.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from stream_rater.pipeline.ports import SourceCommit, SourceTail
from stream_rater.pipeline.same_history import lost_rounds


@dataclass(frozen=True)
class Reached:
    """How far the log was sent and applied when the workers stopped."""

    applied: dict[int, int]  # By shard, the offset before which all parts are published.
    sent: dict[int, int]
    """By partition of `round-completed`, the offset before which all rounds were sent."""
    lost: Mapping[int, str]
    """The partitions of `round-completed` that lost finished records, each with the reason."""
    is_torn: bool = False
    """Whether any log lost records. Then each round before `sent` counts, whatever its parts
    say."""

    @property
    def warning(self) -> str:
        """What an operator must know; empty if no log lost records."""
        if not self.is_torn:
            return ""
        lost = "; ".join(self.lost.values()) or "performance-estimated lost parts"
        after = (
            "Empty records take the lost offsets, and players whose last event is not true any "
            "more get one with the cause log-lost. Report the lost rounds again"
            if self.lost else "Events that were not published are never published"
        )  # fmt: skip
        return (
            f"Kafka lost records that were acknowledged: {lost}. All rounds that the log has now "
            f"count. {after}"
        )


def reached(
    applied: Mapping[int, int | None],
    part_ends: Sequence[int],
    committed: Mapping[int, SourceCommit | None],
    found: Mapping[int, SourceTail],
) -> Reached:
    """How far the log was sent and applied. `applied`, `committed`: the committed offsets of the
    updaters by shard, and of the estimators by partition; None: never committed. `part_ends`: the
    ends of the shards. `found`: by partition, what the log has at the committed offset."""
    g = {shard: offset or 0 for shard, offset in applied.items()}
    known = {p: each for p, each in committed.items() if each is not None}
    sent = {p: known[p].offset if p in known else 0 for p in committed}
    lost = lost_rounds({p: each for p, each in known.items() if p in found}, found)
    if not lost and all(g[shard] <= end for shard, end in enumerate(part_ends)):
        return Reached(g, sent, lost)
    return Reached(
        dict(enumerate(part_ends)), sent | {p: found[p].end for p in lost}, lost, is_torn=True
    )
