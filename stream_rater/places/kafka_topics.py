"""What `KafkaPlace` asks about topics: unfinished rounds, whether a copy fits, and descriptions."""

import re
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from multiprocessing import TimeoutError
from multiprocessing.pool import ThreadPool
from typing import TypeVar

from stream_rater.adapters.kafka.reader import Reader
from stream_rater.adapters.kafka.season_topic import topic_of
from stream_rater.adapters.kafka.topic_rules import DAY_MS, LARGEST, advice_to_set, size_of
from stream_rater.adapters.kafka.topics import Admin
from stream_rater.config.errors import BadConfiguration
from stream_rater.config.settings import Settings
from stream_rater.contract.errors import Denied, StoreTrouble
from stream_rater.contract.events import ESTIMATORS
from stream_rater.places.port import ANSWER_S, Section

READ_S = 30.0  # How long one partition is read.
LOOK_S = 1.0  # The longest time that one call waits for a record.
T = TypeVar("T")


class UnfinishedRounds:
    """Which offsets of `round-completed` the workers have not finished.

    The ends of a game backend's transactions take offsets, and so do aborted records. No worker
    commits those at the end of a log, and only a reader sees what is a round. So partitions with
    offsets left are read, but only while nothing moves: reading costs a busy broker too much.
    """

    def __init__(self, settings: Settings, admin: Admin) -> None:
        self._settings, self._admin = settings, admin
        self._last: dict[int, range] | None = None  # The offsets that were left at the last look.

    def look(self, ends: Mapping[int, int]) -> dict[int, range]:
        """By partition, the offsets before these ends that the estimators have not committed;
        nothing if no partition has a record among them.

        At the first look, and if these offsets are those of the last one, partitions are read until
        a first record is found; those without one are left out. All offsets count behind the
        beginning of an open transaction, and where reading takes too long. Waits for transactions
        of the workers. Raises LogTrouble or Denied.
        """
        found = self._admin.left(ESTIMATORS, self._admin.topics.rounds, ends)
        left = {p: each for p, each in found.items() if each}
        has_moved = self._last not in (None, left)
        self._last = left
        return left if has_moved or not left else self._with_records(left)

    def _with_records(self, left: Mapping[int, range]) -> dict[int, range]:
        topic, found = self._admin.topics.rounds, dict(left)
        stable = self._admin.stable_ends(topic, max(left) + 1)
        with closing(Reader(self._settings, topic, placeholders=True)) as reader:
            for p, each in left.items():
                if stable[p] < each.stop or _may_have_record(reader, p, each):
                    break
                del found[p]
        return found


def _may_have_record(reader: Reader, partition: int, offsets: range) -> bool:
    """Whether one of these offsets has a record, or could not be read in READ_S."""
    reader.start_at({partition: offsets.start})
    until_s = time.monotonic() + READ_S
    while time.monotonic() < until_s:
        if records := reader.read(LOOK_S, at_most=1):
            return records[0].offset < offsets.stop
        if reader.ends.get(partition, -1) >= offsets.stop:
            return False
    return True


TOPIC_NAME = re.compile(r"[A-Za-z0-9._-]*")
OUT_OF_REACH = (
    "out of reach, and to be done by hand: snapshots, backups and the append-only file of Redis; "
    "backups of Kafka; what subscribers have stored; logs. A game backend that reports the old id "
    "again makes a new player"
)


def check_free(
    settings: Settings, admin: Admin, option: str, partitions: Mapping[str, int], old: str
) -> None:
    """Raise BadConfiguration if a topic of the settings has or had records, or has not as many
    partitions as `partitions` says. `option` is what names the prefix, `old` what has these
    numbers."""
    prefix = settings.topic_prefix
    if not TOPIC_NAME.fullmatch(prefix):
        raise BadConfiguration(
            f"{option}: {prefix!r} cannot begin the name of a topic: use letters, digits, '.', "
            "'_' and '-'"
        )
    found, seasons = admin.partitions(), topic_of(settings)
    for name, count in {**found, seasons: admin.partitions_if_any(seasons) or 0}.items():
        if count and any(admin.ends(name, count)):
            raise BadConfiguration(
                f"topic {name} holds records, or once had some: name another {option}, or delete "
                f"the topics of {prefix!r}"
            )
        if (needed := partitions.get(name, count)) != count:
            raise BadConfiguration(
                f"topic {name} has {count} partitions, and {old} has {needed}: delete it: it will "
                "be created as it must be"
            )


def check_sizes(settings: Settings, new: Admin, old: Admin) -> None:
    """Raise BadConfiguration if a new topic's size limit of records is below the old one's."""
    for topic, twin in zip(new.topics.names, old.topics.names, strict=True):
        size, needed = size_of(new.configuration(topic)), size_of(old.configuration(twin))
        if size < needed:
            command = advice_to_set(settings, topic, LARGEST, str(needed))
            raise BadConfiguration(
                f"{topic}: {LARGEST} is {size}, and that of {twin} is {needed}: {command}, and run "
                "it again"
            )


def answered(ask: Callable[[], T]) -> T | StoreTrouble | Denied:
    """What Redis answers within ANSWER_S, or why it does not. A thread asks, because a look-up of
    the server's name has no time-out."""
    try:
        with ThreadPool(1) as pool:
            return pool.apply_async(ask).get(ANSWER_S)
    except TimeoutError:
        return StoreTrouble(f"redis: no answer within {ANSWER_S:g} s")
    except (StoreTrouble, Denied) as error:
        return error


def section_of(admin: Admin, topic: str, group: str, applied: Sequence[int]) -> Section:
    """The section of a topic. `group` reads the topic; empty: none. `applied`: the offset before
    which Redis has applied each partition; empty if that is not kept for the topic."""
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
    """A line for each partition in which an open transaction hides records from readers."""
    ends = admin.ends(topic, count)
    return [
        f"  {p:>5} from {stable} on hidden to readers by an open transaction"
        for p, stable in enumerate(admin.stable_ends(topic, count))
        if stable < ends[p]
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
