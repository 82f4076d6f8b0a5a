"""The generations of a log on Kafka: all topics of one prefix. A new one is filled once, by one
command (`operations.migrate`)."""

import re
from collections.abc import Mapping

from stream_rater.adapters.kafka.season_topic import topic_of
from stream_rater.adapters.kafka.topic_rules import LARGEST, advice_to_set, size_of
from stream_rater.adapters.kafka.topics import Admin
from stream_rater.config.errors import BadConfiguration
from stream_rater.config.settings import Settings

TOPIC_NAME = re.compile(r"[A-Za-z0-9._-]*")
OUT_OF_REACH = (
    "out of reach, and to be done by hand: snapshots, backups and the append-only file of Redis; "
    "backups of Kafka; what subscribers have stored; logs. A game backend that reports the old id "
    "again makes a new player"
)


def check_free(
    settings: Settings, admin: Admin, option: str, partitions: Mapping[str, int], old: str
) -> None:
    """Raise BadConfiguration if a topic of the settings has or had records, or another number of
    partitions than is needed. `option`: what names the prefix. `partitions`: the numbers that are
    needed, by topic. `old`: what has them."""
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
    """Raise BadConfiguration if the largest record of a new topic may be smaller than that of the
    old one. `settings`: those of the new topics."""
    for topic, twin in zip(new.topics.names, old.topics.names, strict=True):
        size, needed = size_of(new.configuration(topic)), size_of(old.configuration(twin))
        if size < needed:
            command = advice_to_set(settings, topic, LARGEST, str(needed))
            raise BadConfiguration(
                f"{topic}: {LARGEST} is {size}, and that of {twin} is {needed}: {command}, and run "
                "it again"
            )
