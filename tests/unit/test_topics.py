"""How the topics are made, and what is said of those that others made."""

import re
from typing import Any

from stream_rater.adapters.kafka.topic_rules import (
    TopicDescription,
    TopicMessages,
    check_rules,
    season_refusals,
    season_topic_settings,
    topic_settings,
)
from stream_rater.config.settings import Settings
from tests.builders.cases import cases

AT = Settings(kafka="one:9092,two:9092", topic_prefix="p.", replication=3)
TOPICS = (
    "round-completed", "performance-estimated", "rating-changed", "round-rejected", "ladders-noted",
)  # fmt: skip
DAY_MS = 86_400_000
CONFIGURED = re.compile(
    r"run `kafka-configs\.sh --bootstrap-server one:9092,two:9092 --alter --entity-type topics "
    r"--entity-name p\.(\S+) --add-config (\S+)=(\S+)`"
)


def as_made(**changes: Any) -> dict[str, TopicDescription]:
    """The topics as the service makes them, but for settings of one: `topic`, and what changes."""
    topic = changes.pop("topic", "")
    there = {}
    for name, (partitions, configuration) in topic_settings(AT).items():
        changed = changes if name == f"p.{topic}" else {}
        there[name] = TopicDescription(partitions, AT.replication, configuration | changed)
    return there


def verdict_of(topic: str, setting: str, value: str) -> TopicMessages:
    """What is said where one topic's setting is another than the service gives it."""
    return check_rules(AT, as_made(topic=topic, **{setting: value}))


def test_three_copies_need_two_to_write() -> None:
    """All topics; with fewer copies Kafka's own default holds. What the service makes it takes:
    each checked setting is given at the creation."""
    three = topic_settings(Settings(replication=3))
    assert {name: config.get("min.insync.replicas") for name, (_, config) in three.items()} == (
        dict.fromkeys(TOPICS, "2")
    )
    for copies in (1, 2):
        made = topic_settings(Settings(replication=copies)).values()
        assert not any("min.insync.replicas" in config for _, config in made)
    assert check_rules(AT, as_made()) == ([], [])


REQUIRED = {
    ("round-completed", "cleanup.policy"): ("compact", "compact,delete", "delete,compact", ""),
    ("round-completed", "retention.ms"): ("604800000", "0", "9223372036854775807"),
    ("round-completed", "retention.bytes"): ("1073741824", "0"),
    ("round-completed", "message.timestamp.type"): ("CreateTime",),
    ("performance-estimated", "cleanup.policy"): ("compact", "compact,delete", ""),
    ("performance-estimated", "retention.ms"): (str(DAY_MS - 1), "0"),
    ("performance-estimated", "retention.bytes"): ("1073741824",),
    ("performance-estimated", "max.message.bytes"): ("1000", str(16 * 2**20 - 1)),
    ("rating-changed", "cleanup.policy"): ("delete", "compact,delete", "delete,compact", ""),
    ("round-rejected", "cleanup.policy"): ("compact", "compact,delete", ""),
    ("rating-changed", "max.message.bytes"): ("1000", "1048587"),
    ("ladders-noted", "max.message.bytes"): ("1000", "1048587"),
    ("ladders-noted", "cleanup.policy"): ("compact", "compact,delete", ""),
    ("ladders-noted", "retention.ms"): ("604800000", "0"),
    ("ladders-noted", "retention.bytes"): ("1073741824",),
    ("round-rejected", "retention.ms"): (str(DAY_MS - 1), "0"),
    ("round-rejected", "max.message.bytes"): ("1000", str(16 * 2**20 - 1)),
}  # fmt: skip
ADVISED: dict[tuple[str, str], tuple[str, ...]] = {
    ("performance-estimated", "message.timestamp.type"): ("CreateTime",),
    ("rating-changed", "message.timestamp.type"): ("CreateTime",),
    ("round-rejected", "message.timestamp.type"): ("CreateTime",),
    ("round-completed", "min.insync.replicas"): ("1",),
    ("round-rejected", "min.insync.replicas"): ("1",),
    **{(topic, "unclean.leader.election.enable"): ("true",) for topic in TOPICS},
}
ACCEPTED = {
    ("performance-estimated", "retention.ms"): ("-1", str(DAY_MS)),
    ("performance-estimated", "max.message.bytes"): (str(16 * 2**20),),
    ("rating-changed", "retention.ms"): ("1",),
    ("rating-changed", "max.message.bytes"): ("1048588",),
    ("ladders-noted", "max.message.bytes"): ("1048588",),
    ("round-rejected", "retention.ms"): ("-1", str(DAY_MS)),
    ("round-rejected", "retention.bytes"): ("1073741824",),
    ("round-rejected", "max.message.bytes"): (str(16 * 2**20),),
    ("round-completed", "min.insync.replicas"): ("3",),
    ("round-completed", "unclean.leader.election.enable"): ("false",),
}
TIERED = {
    "remote.storage.enable": "true",
    "local.retention.ms": "3600000",
    "local.retention.bytes": "1073741824",
}
"""Settings of a topic whose older segments lie in remote storage."""


def settings_in(table: dict[tuple[str, str], tuple[str, ...]]) -> list[tuple[str, str, str]]:
    return [(*where, value) for where, values in table.items() for value in values]


def assert_mends(line: str, topic: str, setting: str, value: str) -> None:
    """The line names what is wrong, and its command makes it right."""
    assert line.startswith(f"p.{topic}: {setting} is {value}, "), line
    assert "\n" not in line
    command = CONFIGURED.search(line)
    assert command is not None and command.end() == len(line), line
    assert command.groups()[:2] == (topic, setting)
    assert verdict_of(topic, setting, command[3]) == ([], [])


@cases(("topic", "setting", "value"), settings_in(REQUIRED))
def test_a_topic_that_loses_what_is_needed_is_refused(topic: str, setting: str, value: str) -> None:
    """In one line: the topic, the setting, its value, what it must be, and the command for it."""
    (line,), warnings = verdict_of(topic, setting, value)
    assert warnings == []
    assert " must be " in line
    assert_mends(line, topic, setting, value)


@cases(("topic", "setting", "value"), settings_in(ADVISED))
def test_a_topic_that_may_lose_something_is_warned_of(topic: str, setting: str, value: str) -> None:
    """In one line of the same form."""
    refusals, (line,) = verdict_of(topic, setting, value)
    assert refusals == []
    assert " should be " in line
    assert_mends(line, topic, setting, value)


@cases(("topic", "setting", "value"), settings_in(ACCEPTED))
def test_what_keeps_enough_is_accepted(topic: str, setting: str, value: str) -> None:
    """It need not be as the service would have made it."""
    assert verdict_of(topic, setting, value) == ([], [])


@cases("topic", TOPICS)
def test_tiered_storage_is_accepted(topic: str) -> None:
    """What leaves the broker's disk is still in the topic. Only `retention.ms` and
    `retention.bytes` delete it."""
    assert check_rules(AT, as_made(topic=topic, **TIERED)) == ([], [])


def test_settings_that_are_not_known_or_too_large_are_refused() -> None:
    """Nobody knows then what the broker does. Rounds may be as large as one answer of a broker,
    with what a rejection has beside them."""
    there = as_made()
    found = there["p.round-completed"]
    there["p.round-completed"] = found._replace(
        configuration={k: v for k, v in found.configuration.items() if k != "retention.ms"}
    )
    (line,), _ = check_rules(AT, there)
    assert line.startswith(
        "p.round-completed: retention.ms is not returned by the broker, must be -1: "
    )
    there = {
        name: found._replace(configuration={**found.configuration, "max.message.bytes": "99999999"})
        for name, found in as_made().items()
    }
    (line,), _ = check_rules(AT, there)
    assert "p.round-completed: max.message.bytes is 99999999, must be at most 99934464: " in line
    assert CONFIGURED.findall(line) == [("round-completed", "max.message.bytes", "99934464")]


@cases("topic", TOPICS[1:])
def test_a_topic_that_cannot_take_what_workers_write_is_refused(topic: str) -> None:
    """Also where rounds are small: workers write messages of nearly Kafka's default."""
    there = {
        name: found._replace(configuration={**found.configuration, "max.message.bytes": size})
        for name, found in as_made().items()
        for size in [{"p.round-completed": "10000", f"p.{topic}": "1048587"}.get(name, "1048588")]
    }
    (line,), _ = check_rules(AT, there)
    assert line.startswith(
        f"p.{topic}: max.message.bytes is 1048587, must be at least 1048588: a message that a "
        "worker cannot write stops it: "
    )
    assert CONFIGURED.findall(line) == [(topic, "max.message.bytes", str(16 * 2**20))]


@cases(("parts", "changed", "short"), [(4, 3, "rating-changed"), (3, 4, "")])
def test_unequal_numbers_of_partitions_are_refused(parts: int, changed: int, short: str) -> None:
    """The topic with fewer gets more, since Kafka takes none away."""
    there = as_made()
    for topic, count in (("performance-estimated", parts), ("rating-changed", changed)):
        there[f"p.{topic}"] = there[f"p.{topic}"]._replace(partitions=count)
    (line,), _ = check_rules(AT, there)
    assert line == (
        f"p.performance-estimated has {parts} partitions and p.rating-changed has {changed}, and "
        "both must have one for each shard: "
        "run `kafka-topics.sh --bootstrap-server one:9092,two:9092 --alter "
        f"--topic p.{short or 'performance-estimated'} --partitions 4`"
    )


FRAGILE = {"min.insync.replicas": "1", "unclean.leader.election.enable": "true"}


def test_one_copy_has_nothing_to_wait_for() -> None:
    """A topic that one broker has alone is not warned of for counting one copy as written, nor for
    electing another one that lags."""
    there = {
        name: found._replace(copies=1, configuration={**found.configuration, **FRAGILE})
        for name, found in as_made().items()
    }
    assert check_rules(AT, there) == ([], [])


def test_a_topic_of_seasons_must_keep_them() -> None:
    """By age and by size; what the service makes, and what is compacted, does."""
    at = Settings()
    made = season_topic_settings(at)[1]
    assert season_refusals(at, "season-ended", made) == []
    for setting in ("retention.ms", "retention.bytes"):
        (refusal,) = season_refusals(at, "season-ended", made | {setting: "1000"})
        assert refusal.startswith(f"season-ended: {setting} is 1000, must be -1: the standings of ")
        assert refusal.endswith(f"--add-config {setting}=-1`")
        compacted = made | {setting: "1000", "cleanup.policy": "compact"}
        assert season_refusals(at, "season-ended", compacted) == []
