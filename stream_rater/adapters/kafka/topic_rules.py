"""The rules for the configuration of the topics, and the messages about topics that break them.

This module makes no request to Kafka: it turns descriptions of the topics into lines of text. A
setting is refused if it would lose rounds or ratings, or stop the service. A setting that might do
so gets a warning. Each line names the topic, the setting, its value, the required value, the
reason, and the command that repairs it.
"""

from collections.abc import Callable, Iterator, Mapping
from itertools import chain
from typing import NamedTuple

from stream_rater.adapters.access import LARGEST_RESPONSE_BYTES
from stream_rater.config.settings import Settings
from stream_rater.contract import events
from stream_rater.contract.events import LEAST_BYTES

DAY_MS = 86_400_000
MESSAGE_BYTES = 16 * 2**20
"""The message size of new topics, for rounds and for old ladder events that `erase` copies."""
ENVELOPE_BYTES = 64 * 1024
"""The most bytes of a rejection besides the rejected record: its headers, and the batch's."""
LARGEST_ROUND_BYTES = LARGEST_RESPONSE_BYTES - ENVELOPE_BYTES  # What a reader can read at most.
MANY_COPIES = 3  # The number of replicas with which one may be unavailable and two are left.
POLICY = "cleanup.policy"
RETENTION_MS = "retention.ms"
RETENTION_BYTES = "retention.bytes"
TIMESTAMPS = "message.timestamp.type"
TOMBSTONES = "delete.retention.ms"
LARGEST = "max.message.bytes"
MIN_INSYNC = "min.insync.replicas"
UNCLEAN = "unclean.leader.election.enable"

DELETE, COMPACT = "delete", "compact"
WEEK_MS = str(7 * DAY_MS)
FOR_EVER = "-1"
BROKERS_CLOCK = "LogAppendTime"
UNKNOWN = "not returned by the broker"  # Shown in place of a value that the broker does not return.

NAMES = (
    events.ROUND_COMPLETED, events.PERFORMANCE_ESTIMATED, events.RATING_CHANGED,
    events.ROUND_REJECTED, events.LADDERS_NOTED,
)  # fmt: skip
"""The topics that a service needs, without the prefix."""


class TopicDescription(NamedTuple):
    """The description of a topic, from Kafka."""

    partitions: int
    copies: int  # The number of replicas of the partition that has the fewest.
    configuration: Mapping[str, str]


class TopicRule(NamedTuple):
    """A rule for one setting of a topic."""

    setting: str
    must: str
    why: str
    is_met: Callable[[str], bool]


Rules = Mapping[str, tuple[TopicRule, ...]]
"""The rules of each topic, by its name without the prefix."""


def topic_settings(settings: Settings) -> dict[str, tuple[int, dict[str, str]]]:
    """The partitions and the configuration with which the service creates each topic. Every setting
    that has a rule is named, because a broker's defaults may differ. The one exception is UNCLEAN:
    Kafka's default is right, and some services let nobody name it."""
    compacted = {POLICY: COMPACT, TIMESTAMPS: BROKERS_CLOCK, TOMBSTONES: WEEK_MS}
    rejections = _kept_for(str(30 * DAY_MS)) | {LARGEST: str(MESSAGE_BYTES + ENVELOPE_BYTES)}
    settings_by_topic = {
        events.ROUND_COMPLETED: (settings.partitions, _kept_for(FOR_EVER)),
        events.PERFORMANCE_ESTIMATED: (settings.shards, _kept_for(str(7 * DAY_MS))),
        events.RATING_CHANGED: (settings.shards, compacted),
        events.ROUND_REJECTED: (1, rejections),
        events.LADDERS_NOTED: (1, _kept_for(FOR_EVER)),
    }
    return {
        settings.topic_prefix + topic: (count, _with_sizes(settings, configuration))
        for topic, (count, configuration) in settings_by_topic.items()
    }


def season_topic_settings(settings: Settings) -> tuple[int, dict[str, str]]:
    """The partitions and the configuration of the topic that `season-standings` creates."""
    return settings.partitions, _with_sizes(settings, _kept_for(FOR_EVER))


def _with_sizes(settings: Settings, configuration: Mapping[str, str]) -> dict[str, str]:
    """A configuration with the in-sync replicas, and with a size of messages if it has none."""
    in_sync = {MIN_INSYNC: "2"} if settings.replication >= MANY_COPIES else {}
    return {LARGEST: str(MESSAGE_BYTES), **configuration, **in_sync}


def _kept_for(time_ms: str) -> dict[str, str]:
    """The configuration of a topic whose records are deleted by age, by the broker's clock."""
    return {
        POLICY: DELETE, RETENTION_MS: time_ms, RETENTION_BYTES: FOR_EVER,
        TIMESTAMPS: BROKERS_CLOCK,
    }  # fmt: skip


# --- the rules ------------------------------------------------------------------------------------


def _exactly(setting: str, must: str, why: str) -> TopicRule:
    return TopicRule(setting, must, why, lambda value: value == must)


def _at_least_a_day(why: str) -> TopicRule:
    must = f"{FOR_EVER} or at least {DAY_MS} (a day)"
    return TopicRule(
        RETENTION_MS, must, why, lambda value: value == FOR_EVER or _number(value) >= DAY_MS
    )


def _number(value: str) -> int:
    """A number as Kafka writes it; -1 if it is none."""
    return int(value) if value.isdecimal() else -1


READ_WHOLE = "it is the source of truth, and `rebuild` and `verify` read all of it"
OUTAGE = "it must outlive the longest outage of Redis"
DELETED_EARLY = "a worker's wrong clock would let Kafka delete records early"

REQUIRED: Rules = {
    events.ROUND_COMPLETED: (
        _exactly(POLICY, DELETE, "compaction keeps one round of each ladder"),
        _exactly(RETENTION_MS, FOR_EVER, READ_WHOLE),
        _exactly(RETENTION_BYTES, FOR_EVER, READ_WHOLE),
        _exactly(
            TIMESTAMPS, BROKERS_CLOCK, "a round's time is checked against when Kafka received it"
        ),
    ),
    events.PERFORMANCE_ESTIMATED: (
        _exactly(POLICY, DELETE, "parts have no key to compact by"),
        _at_least_a_day(OUTAGE),
        _exactly(RETENTION_BYTES, FOR_EVER, OUTAGE),
    ),
    events.RATING_CHANGED: (
        _exactly(POLICY, COMPACT, "the last rating of each player must be kept, however old"),
    ),
    events.ROUND_REJECTED: (
        _exactly(POLICY, DELETE, "compaction keeps one rejection of each key"),
        _at_least_a_day("operators need time to look at rejections"),
    ),
    events.LADDERS_NOTED: (
        _exactly(POLICY, DELETE, "every note counts, and compaction would remove some"),
        _exactly(RETENTION_MS, FOR_EVER, "it says how all rounds were rated"),
        _exactly(RETENTION_BYTES, FOR_EVER, "it says how all rounds were rated"),
    ),
}
"""Rules whose violation is refused."""

ADVISED: Rules = {
    events.PERFORMANCE_ESTIMATED: (_exactly(TIMESTAMPS, BROKERS_CLOCK, DELETED_EARLY),),
    events.RATING_CHANGED: (
        _exactly(
            TIMESTAMPS, BROKERS_CLOCK, "a worker's wrong clock would decide when Kafka compacts"
        ),
        TopicRule(
            TOMBSTONES,
            f"at least {WEEK_MS} (a week)",
            "an index of `serve` that is half as old is made again, since it may have missed that "
            "a player was erased",
            lambda value: _number(value) >= int(WEEK_MS),
        ),
    ),
    events.ROUND_REJECTED: (_exactly(TIMESTAMPS, BROKERS_CLOCK, DELETED_EARLY),),
}
"""Rules whose violation is a warning."""

STANDINGS_STAY = "the standings of a season are written once and kept for good"

OF_SEASONS = (
    _exactly(RETENTION_MS, FOR_EVER, STANDINGS_STAY),
    _exactly(RETENTION_BYTES, FOR_EVER, STANDINGS_STAY),
)
"""Rules for the topic of past seasons, unless it is compacted: each of its keys is written once."""


def season_refusals(settings: Settings, name: str, configuration: Mapping[str, str]) -> list[str]:
    """A message for each rule that the existing topic of past seasons breaks."""
    if configuration.get(POLICY) == COMPACT:
        return []
    return [
        _refusal(settings, name, rule, configuration, FOR_EVER) for rule in OF_SEASONS
        if not rule.is_met(configuration.get(rule.setting, UNKNOWN))
    ]  # fmt: skip


def _refusal(
    settings: Settings, name: str, rule: TopicRule, configuration: Mapping[str, str], cure: str,
    verb: str = "must be",
) -> str:  # fmt: skip
    """The message about a rule that a topic breaks. `cure`: the value to give to the setting."""
    value = configuration.get(rule.setting, UNKNOWN)
    demand = f"{verb} {rule.must}: {rule.why}"
    return _message(settings, name, rule.setting, value, demand, cure)


def _message(
    settings: Settings, name: str, setting: str, value: object, demand: str, cure: object
) -> str:
    """The message about a setting. `demand`: what it must be, and why. `cure`: its new value."""
    command = advice_to_set(settings, name, setting, str(cure))
    return f"{name}: {setting} is {value}, {demand}: {command}"


def check_rules(
    settings: Settings, found: Mapping[str, TopicDescription]
) -> tuple[list[str], list[str]]:
    """The refusals and the warnings, one line each. `found`: the topics by their full names."""
    broken, advised = (
        _violations(settings, found, rules, verb)
        for rules, verb in ((REQUIRED, "must be"), (ADVISED, "should be"))
    )
    refusals = chain(_unequal(settings, found), broken, _sizes(settings, found))
    return [*refusals], [*chain(advised, _fragile(settings, found), _unclean(settings, found))]


def _violations(
    settings: Settings, found: Mapping[str, TopicDescription], rules: Rules, verb: str
) -> Iterator[str]:
    """A message for each rule that is broken."""
    settings_by_topic = topic_settings(settings)
    for topic, its_rules in rules.items():
        name = settings.topic_prefix + topic
        configuration = found[name].configuration
        for rule in its_rules:
            if not rule.is_met(configuration.get(rule.setting, UNKNOWN)):
                cure = settings_by_topic[name][1][rule.setting]
                yield _refusal(settings, name, rule, configuration, cure, verb)


def _unequal(settings: Settings, found: Mapping[str, TopicDescription]) -> Iterator[str]:
    """A message if the topics with one partition for each shard differ in partitions. Kafka can
    only add partitions, so the topic with fewer gets more."""
    parts, changed = (
        settings.topic_prefix + t for t in (events.PERFORMANCE_ESTIMATED, events.RATING_CHANGED)
    )
    fewer, more = sorted((parts, changed), key=lambda name: found[name].partitions)
    if found[fewer].partitions < found[more].partitions:
        command = f"kafka-topics.sh --bootstrap-server {settings.kafka} --alter --topic {fewer}"
        yield (
            f"{parts} has {found[parts].partitions} partitions and {changed} has "
            f"{found[changed].partitions}, and both must have one for each shard: "
            f"run `{command} --partitions {found[more].partitions}`"
        )


def _sizes(settings: Settings, found: Mapping[str, TopicDescription]) -> Iterator[str]:
    """Messages about message sizes: every record that round-completed accepts must be readable, and
    every message that a worker may have to write must fit into its topic."""
    rounds, parts, changed, rejected, ladder_events = (
        settings.topic_prefix + topic for topic in NAMES
    )
    size = size_of(found[rounds].configuration)
    for name, enough in ((parts, size), (rejected, size + ENVELOPE_BYTES)):
        value = size_of(found[name].configuration)
        if value < size:
            demand = (
                f"must be at least the {size} of {rounds}: a record of that topic must fit whole "
                "into this one"
            )
            yield _message(settings, name, LARGEST, value, demand, enough)
    for name in (parts, changed, rejected, ladder_events):
        value = size_of(found[name].configuration)
        if value < LEAST_BYTES and not (name in (parts, rejected) and value < size):
            demand = (
                f"must be at least {LEAST_BYTES}: a message that a worker cannot write stops it"
            )
            yield _message(settings, name, LARGEST, value, demand, MESSAGE_BYTES)
    if size > LARGEST_ROUND_BYTES:
        demand = f"must be at most {LARGEST_ROUND_BYTES}: no more is read at once"
        yield _message(settings, rounds, LARGEST, size, demand, LARGEST_ROUND_BYTES)


def size_of(configuration: Mapping[str, str]) -> int:
    """The largest record that a topic accepts, in bytes."""
    return int(configuration.get(LARGEST, MESSAGE_BYTES))


def _fragile(settings: Settings, found: Mapping[str, TopicDescription]) -> Iterator[str]:
    """Messages about topics with enough replicas that count a record as written with only one."""
    demand = (
        "should be 2: a record that only one broker has counts as written, and is lost with that "
        "broker"
    )
    for name, (_, copies, configuration) in found.items():
        value = configuration.get(MIN_INSYNC, "1")
        if copies >= MANY_COPIES and int(value) < 2:
            yield _message(settings, name, MIN_INSYNC, value, demand, "2")


def _unclean(settings: Settings, found: Mapping[str, TopicDescription]) -> Iterator[str]:
    """Messages about topics of which a replica that lags may become the leader (KAFKA-20716). With
    one replica there is no other to elect."""
    demand = (
        "should be false: a replica that lags may become the leader, and records and the ends of "
        "transactions that it lacks are lost"
    )
    for name, (_, copies, configuration) in found.items():
        value = configuration.get(UNCLEAN, "false")
        if copies > 1 and value != "false":
            yield _message(settings, name, UNCLEAN, value, demand, "false")


def advice_to_enlarge(settings: Settings, name: str, size: int) -> str:
    """Why a topic rejected a message of this size, and the advice to let it accept it."""
    enough = max(MESSAGE_BYTES, size + ENVELOPE_BYTES)
    return (
        f"{name} does not take a message of {size} bytes, and nothing goes on before it does: "
        f"{advice_to_set(settings, name, LARGEST, str(enough))}"
    )


def advice_to_set(settings: Settings, name: str, setting: str, value: str) -> str:
    """The advice to run the command that gives a topic's setting this value."""
    return (
        f"run `kafka-configs.sh --bootstrap-server {settings.kafka} --alter --entity-type topics "
        f"--entity-name {name} --add-config {setting}={value}`"
    )
