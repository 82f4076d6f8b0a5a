"""What `inspect` says about the topics."""

from collections.abc import Mapping, Sequence

from stream_rater.adapters.kafka.topic_rules import DAY_MS
from stream_rater.adapters.kafka.topics import Admin
from stream_rater.places.port import Section


def section_of(admin: Admin, topic: str, group: str, applied: Sequence[int]) -> Section:
    """A topic. `group`: the consumer group that reads it; empty if none does. `applied`: how far
    Redis has applied each partition; empty if it has no such topic."""
    copies = admin.copies(topic)
    count = len(copies)
    starts, ends = admin.starts(topic, count), admin.ends(topic, count)
    columns: dict[str, Sequence[object]] = {"in sync": [f"{i}/{of}" for i, of in copies]}
    columns |= {"from": starts, "to": ends}
    if group:
        committed, owners = admin.committed(group, topic, count), admin.owners(group, topic)
        done = [max(committed[p] or 0, starts[p]) for p in range(count)]
        columns |= {"done": done}
        columns |= {"in Redis": applied} if applied else {}
        columns |= {"behind": [ends[p] - done[p] for p in range(count)]}
        columns |= {"owner": [f" {owners.get(p, 'nobody')}" for p in range(count)]}
    title = topic_line(topic, count, min(of for _, of in copies), admin.configuration(topic))
    return Section(title, columns, range(count), [*hidden_offsets(admin, topic, count), ""])


def hidden_offsets(admin: Admin, topic: str, count: int) -> list[str]:
    """A line for each partition in which an open transaction hides records from readers of
    committed records."""
    ends = admin.ends(topic, count)
    return [
        f"  {p:>5} from {stable} on hidden to readers by an open transaction"
        for p, (end, stable) in enumerate(zip(ends, admin.stable_ends(topic, count), strict=True))
        if stable < end
    ]


def topic_line(topic: str, partitions: int, copies: int, configuration: Mapping[str, str]) -> str:
    """A line with the configuration of a topic, by Kafka's names."""
    retention_ms = int(configuration["retention.ms"])
    days = "for ever" if retention_ms < 0 else f"{retention_ms / DAY_MS:g} days"
    return (
        f"{topic}: partitions {partitions}, replication.factor {copies}, "
        f"min.insync.replicas {configuration['min.insync.replicas']}, "
        f"cleanup.policy {configuration['cleanup.policy']}, "
        f"retention.ms {retention_ms} ({days})"
    )
