"""How the topics must be configured, and what is said of those that others made.

Nothing here asks Kafka: what it tells of each topic comes in, and lines come out. A refusal is for
what would lose rounds or ratings, or stop the service; a warning is for what might. Each line names
the topic, the setting, its value, what it must be, why, and the command that mends it.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

from stream_rater.adapters.access import LARGEST_RESPONSE_BYTES
from stream_rater.config import Settings
from stream_rater.contract.events import (
    LADDERS_NOTED,
    PERFORMANCE_ESTIMATED,
    RATING_CHANGED,
    ROUND_COMPLETED,
    ROUND_REJECTED,
)

DAY_MS = 86_400_000
MESSAGE_BYTES = 16 * 2**20
"""Rounds may be large, and so may their parts."""
ENVELOPE_BYTES = 64 * 1024
"""What a rejection has beyond the bytes it rejects, at most: its headers, and the batch's."""
LARGEST_ROUND_BYTES = LARGEST_RESPONSE_BYTES - ENVELOPE_BYTES
"""No larger record is read at once."""

MANY_COPIES = 3
"""From so many on one may be away and two are left."""

POLICY = "cleanup.policy"
RETENTION_MS = "retention.ms"
RETENTION_BYTES = "retention.bytes"
TIMESTAMPS = "message.timestamp.type"
LARGEST = "max.message.bytes"
MIN_INSYNC = "min.insync.replicas"

DELETE, COMPACT = "delete", "compact"
FOR_EVER = "-1"
BROKERS_CLOCK = "LogAppendTime"

UNKNOWN = "not told"
"""Instead of the value of a setting that the broker does not tell."""


class Found(NamedTuple):
    """What Kafka tells of a topic."""

    partitions: int
    copies: int
    """Of the partition that has the fewest."""
    configuration: Mapping[str, str]


class Judgement(NamedTuple):
    """What is said of the topics, a line each."""

    refusals: list[str]
    warnings: list[str]


class Rule(NamedTuple):
    """What one setting of a topic must be."""

    setting: str
    must: str
    why: str
    fits: Callable[[str], bool]


def wanted(settings: Settings) -> dict[str, tuple[int, dict[str, str]]]:
    """Partitions and configuration of each topic as the service creates it.

    Every setting that is judged is named: a broker's defaults may be other ones.
    """
    large = {LARGEST: str(MESSAGE_BYTES)}
    rejections = {LARGEST: str(MESSAGE_BYTES + ENVELOPE_BYTES)}
    made: dict[str, tuple[int, dict[str, str]]] = {
        ROUND_COMPLETED: (settings.partitions, _deleted(FOR_EVER) | large),
        PERFORMANCE_ESTIMATED: (settings.shards, _deleted(str(7 * DAY_MS)) | large),
        RATING_CHANGED: (settings.shards, {POLICY: COMPACT, TIMESTAMPS: BROKERS_CLOCK}),
        ROUND_REJECTED: (1, _deleted(str(30 * DAY_MS)) | rejections),
        LADDERS_NOTED: (1, _deleted(FOR_EVER)),
    }
    if settings.replication >= MANY_COPIES:
        for _, configuration in made.values():
            configuration[MIN_INSYNC] = "2"
    return {settings.topic_prefix + topic: each for topic, each in made.items()}


def _deleted(after_ms: str) -> dict[str, str]:
    """A topic whose records are deleted by their age alone, as a broker's clock tells it."""
    return {
        POLICY: DELETE,
        RETENTION_MS: after_ms,
        RETENTION_BYTES: FOR_EVER,
        TIMESTAMPS: BROKERS_CLOCK,
    }


# --- what is judged ------------------------------------------------------------------------------


def _exactly(setting: str, value: str, why: str) -> Rule:
    return Rule(setting, value, why, lambda held: held == value)


def _a_day(why: str) -> Rule:
    must = f"{FOR_EVER} or at least {DAY_MS} (a day)"
    return Rule(RETENTION_MS, must, why, lambda held: held == FOR_EVER or _number(held) >= DAY_MS)


def _number(held: str) -> int:
    """A number as Kafka writes it; -1 where it is none."""
    return int(held) if held.isdecimal() else -1


ALL_OF_IT = "it is the source of truth, of which `rebuild` and `verify` read all"
OUTAGE = "it must outlive the longest outage of Redis"
DELETED_EARLY = "a worker's wrong clock would let Kafka delete records early"

REFUSED: Mapping[str, tuple[Rule, ...]] = {
    ROUND_COMPLETED: (
        _exactly(POLICY, DELETE, "compaction keeps one round of each ladder"),
        _exactly(RETENTION_MS, FOR_EVER, ALL_OF_IT),
        _exactly(RETENTION_BYTES, FOR_EVER, ALL_OF_IT),
        _exactly(TIMESTAMPS, BROKERS_CLOCK, "a round's time is judged by when Kafka got it"),
    ),
    PERFORMANCE_ESTIMATED: (
        _exactly(POLICY, DELETE, "parts have no key to compact by"),
        _a_day(OUTAGE),
        _exactly(RETENTION_BYTES, FOR_EVER, OUTAGE),
    ),
    RATING_CHANGED: (
        _exactly(POLICY, COMPACT, "the last rating of each player is kept, however old"),
    ),
    ROUND_REJECTED: (
        _exactly(POLICY, DELETE, "compaction keeps one rejection of each key"),
        _a_day("somebody must have the time to look at rejections"),
    ),
    LADDERS_NOTED: (
        _exactly(POLICY, DELETE, "every note counts, and the first one of rival ones"),
        _exactly(RETENTION_MS, FOR_EVER, "it says how all rounds were rated"),
        _exactly(RETENTION_BYTES, FOR_EVER, "it says how all rounds were rated"),
    ),
}
"""What a topic cannot serve without."""

WARNED: Mapping[str, tuple[Rule, ...]] = {
    PERFORMANCE_ESTIMATED: (_exactly(TIMESTAMPS, BROKERS_CLOCK, DELETED_EARLY),),
    RATING_CHANGED: (
        _exactly(
            TIMESTAMPS, BROKERS_CLOCK, "a worker's wrong clock would tell Kafka when to compact"
        ),
    ),
    ROUND_REJECTED: (_exactly(TIMESTAMPS, BROKERS_CLOCK, DELETED_EARLY),),
}
"""What it serves better with."""


def judged(settings: Settings, found: Mapping[str, Found]) -> Judgement:
    """What is said of the topics; `found` has each by its name with the prefix."""
    return Judgement(
        [
            *_unequal(settings, found),
            *_broken(settings, found, REFUSED, "must be"),
            *_sizes(settings, found),
        ],
        [*_broken(settings, found, WARNED, "should be"), *_fragile(settings, found)],
    )


def _broken(
    settings: Settings, found: Mapping[str, Found], rules: Mapping[str, tuple[Rule, ...]], verb: str
) -> Iterator[str]:
    """The rules that are not kept."""
    made = wanted(settings)
    for topic, its_rules in rules.items():
        name = settings.topic_prefix + topic
        for setting, must, why, fits in its_rules:
            held = found[name].configuration.get(setting, UNKNOWN)
            if not fits(held):
                mended = _configured(settings, name, setting, made[name][1][setting])
                yield f"{name}: {setting} is {held}, {verb} {must}: {why}: {mended}"


def _unequal(settings: Settings, found: Mapping[str, Found]) -> Iterator[str]:
    """Kafka adds partitions and takes none away: the topic with fewer gets more."""
    parts, changed = (settings.topic_prefix + t for t in (PERFORMANCE_ESTIMATED, RATING_CHANGED))
    fewer, more = sorted((parts, changed), key=lambda name: found[name].partitions)
    if found[fewer].partitions < found[more].partitions:
        command = f"kafka-topics.sh --bootstrap-server {settings.kafka} --alter --topic {fewer}"
        yield (
            f"{parts} has {found[parts].partitions} partitions and {changed} "
            f"{found[changed].partitions}, both must have one a shard: "
            f"run `{command} --partitions {found[more].partitions}`"
        )


def _sizes(settings: Settings, found: Mapping[str, Found]) -> Iterator[str]:
    """Whatever round-completed takes must be read at once, and go on whole."""
    rounds, parts, rejected = (
        settings.topic_prefix + topic
        for topic in (ROUND_COMPLETED, PERFORMANCE_ESTIMATED, ROUND_REJECTED)
    )
    size = size_of(found[rounds].configuration)
    for name, enough in ((parts, size), (rejected, size + ENVELOPE_BYTES)):
        held = size_of(found[name].configuration)
        if held < size:
            yield (
                f"{name}: {LARGEST} is {held}, must be at least the {size} of {rounds}: "
                f"what is read there goes on whole: "
                f"{_configured(settings, name, LARGEST, str(enough))}"
            )
    if size > LARGEST_ROUND_BYTES:
        yield (
            f"{rounds}: {LARGEST} is {size}, must be at most {LARGEST_ROUND_BYTES}: no more is "
            f"read at once: {_configured(settings, rounds, LARGEST, str(LARGEST_ROUND_BYTES))}"
        )


def size_of(configuration: Mapping[str, str]) -> int:
    """The largest record that a topic takes."""
    return int(configuration.get(LARGEST, MESSAGE_BYTES))


def _fragile(settings: Settings, found: Mapping[str, Found]) -> Iterator[str]:
    """Topics with copies enough, whose records count as written with a single one."""
    for name, (_, copies, configuration) in found.items():
        held = configuration.get(MIN_INSYNC, "1")
        if copies >= MANY_COPIES and int(held) < 2:
            yield (
                f"{name}: {MIN_INSYNC} is {held}, should be 2: what a single broker has counts as "
                f"written, and is lost with it: {_configured(settings, name, MIN_INSYNC, '2')}"
            )


def _configured(settings: Settings, name: str, setting: str, value: str) -> str:
    """To run the command that gives a topic's setting this value."""
    return (
        f"run `kafka-configs.sh --bootstrap-server {settings.kafka} --alter --entity-type topics "
        f"--entity-name {name} --add-config {setting}={value}`"
    )
