"""The least rights of each role, as docs/reference/access.md lists them."""

from dataclasses import dataclass, replace

import msgspec

from stream_rater.adapters.kafka.season_topic import topic_of
from stream_rater.adapters.kafka.topics import Topics
from stream_rater.config.settings import Settings
from stream_rater.contract.events import ESTIMATORS, UPDATERS
from tests.integration.secured import Acl

READ_BELIEFS = "%R~{*}:belief:*"
READ_POSITIONS = "%R~{*}:position"
BELIEFS = "~{*}:belief:*"
POSITIONS = "~{*}:position"
LAYOUT = "~stream-rater:layout"
LADDERS = "~stream-rater:ladders"
CHECKPOINTS = "~stream-rater:checkpoint*"
READ_LAYOUT = "%R~stream-rater:layout"
INDEX = ("~{stream-rater:index}", "~stream-rater:index:*")
READING = "+hmget", "+multi", "+exec"
KNOWING = "+info"
"""To know whether Redis deletes ratings when it is full; without it a worker only warns."""
AT_START = (
    LAYOUT, *READING, "+hsetnx", "+hget", "+function|list", "+function|load", KNOWING,
    "+select",
)  # fmt: skip

IN_THE_PLACE_OF = {
    "+fcall": ("+evalsha", "+script|load"),
    "+function|list": ("+script|load",),
    "+function|load": (),
}
"""Redis' rights to run functions.lua as a script, by the rights to run it as a function."""

OLD_NOTES = "+hgetall"
"""The right to read the notes of an older release, to copy them into the log."""

ROLES = {
    "estimator": {
        "round-completed": "READ DESCRIBE_CONFIGS",
        "performance-estimated": "READ WRITE DESCRIBE_CONFIGS",
        "rating-changed": "DESCRIBE DESCRIBE_CONFIGS",
        "round-rejected": "READ WRITE DESCRIBE_CONFIGS",
        "ladders-noted": "READ WRITE DESCRIBE_CONFIGS",
        "group estimators": "READ",
        "transactions estimator": "WRITE",
    },
    "updater": {
        "round-completed": "DESCRIBE DESCRIBE_CONFIGS",
        "performance-estimated": "READ DESCRIBE_CONFIGS",
        "rating-changed": "WRITE DESCRIBE_CONFIGS",
        "round-rejected": "DESCRIBE DESCRIBE_CONFIGS",
        "ladders-noted": "DESCRIBE DESCRIBE_CONFIGS",
        "group updaters": "READ",
        "transactions updater": "WRITE",
    },
    "all": {
        "round-completed": "READ DESCRIBE_CONFIGS",
        "performance-estimated": "READ WRITE DESCRIBE_CONFIGS",
        "rating-changed": "WRITE DESCRIBE_CONFIGS",
        "round-rejected": "READ WRITE DESCRIBE_CONFIGS",
        "ladders-noted": "READ WRITE DESCRIBE_CONFIGS",
        "group estimators": "READ",
        "group updaters": "READ",
        "transactions estimator": "WRITE",
        "transactions updater": "WRITE",
    },
    "submit": {"round-completed": "WRITE"},
    "correct": {"round-completed": "WRITE"},
    "correct --dry-run": {"round-completed": "READ", "ladders-noted": "READ"},
    "seed --from-ladder": {"round-completed": "WRITE", "ladders-noted": "READ"},
    "tune": {"round-completed": "READ", "ladders-noted": "READ"},
    "watch": {"rating-changed": "READ"},
    "rejected": {"round-rejected": "READ"},
    "verify": {
        "round-completed": "READ",
        "performance-estimated": "DESCRIBE",
        "ladders-noted": "READ",
        "group estimators": "DESCRIBE",
        "group updaters": "DESCRIBE",
    },
    "rebuild": {
        "round-completed": "READ DESCRIBE_CONFIGS",
        "performance-estimated": "READ WRITE DESCRIBE_CONFIGS",
        "rating-changed": "READ DESCRIBE_CONFIGS",
        "round-rejected": "DESCRIBE DESCRIBE_CONFIGS",
        "ladders-noted": "READ WRITE DESCRIBE_CONFIGS",
        "group estimators": "DESCRIBE",
        "group updaters": "READ",
    },
    "erase": {
        "round-completed": "READ DESCRIBE_CONFIGS",
        "performance-estimated": "DESCRIBE DESCRIBE_CONFIGS",
        "rating-changed": "READ WRITE DESCRIBE_CONFIGS",
        "round-rejected": "DESCRIBE DESCRIBE_CONFIGS",
        "ladders-noted": "READ DESCRIBE_CONFIGS",
        "group estimators": "DESCRIBE",
        "group updaters": "DESCRIBE",
    },
    "erase --to": {
        "round-completed": "READ WRITE DESCRIBE_CONFIGS",
        "performance-estimated": "READ WRITE DESCRIBE_CONFIGS",
        "rating-changed": "WRITE DESCRIBE_CONFIGS",
        "round-rejected": "DESCRIBE DESCRIBE_CONFIGS",
        "ladders-noted": "READ WRITE DESCRIBE_CONFIGS",
        "group estimators": "READ",
        "group updaters": "READ",
    },
    "inspect": {
        "round-completed": "DESCRIBE DESCRIBE_CONFIGS",
        "performance-estimated": "DESCRIBE DESCRIBE_CONFIGS",
        "rating-changed": "DESCRIBE DESCRIBE_CONFIGS",
        "round-rejected": "DESCRIBE DESCRIBE_CONFIGS",
        "ladders-noted": "DESCRIBE DESCRIBE_CONFIGS",
        "group estimators": "DESCRIBE",
        "group updaters": "DESCRIBE",
    },
    "inspect --player": {
        "round-completed": "DESCRIBE", "rating-changed": "READ", "ladders-noted": "READ",
    },
    "predict": {
        "round-completed": "DESCRIBE", "rating-changed": "DESCRIBE", "ladders-noted": "READ",
    },
    "checkpoint": {
        "round-completed": "READ", "ladders-noted": "READ", "group estimators": "DESCRIBE",
    },
    "serve": {"rating-changed": "READ"},
    "serve with beliefs": {
        "round-completed": "DESCRIBE", "rating-changed": "READ", "ladders-noted": "READ",
    },
    "serve with min_offset": {
        "round-completed": "DESCRIBE",
        "performance-estimated": "DESCRIBE",
        "rating-changed": "READ",
        "round-rejected": "DESCRIBE",
        "group estimators": "DESCRIBE",
        "group updaters": "DESCRIBE",
    },
    "serve with writing": {
        "round-completed": "WRITE",
        "performance-estimated": "DESCRIBE",
        "rating-changed": "READ",
        "round-rejected": "READ",
        "group estimators": "DESCRIBE",
        "group updaters": "DESCRIBE",
    },
}  # fmt: skip
ROLES["on a cluster"] = ROLES["all"]  # Kafka's rights by role: the operations on each resource.

SEASONS = "season-standings"
IN_A_SENTENCE = {
    SEASONS: {
        "round-completed": "READ", "ladders-noted": "READ", "season-ended": "READ WRITE",
        "group estimators": "DESCRIBE", "transactions season": "WRITE",
    },
}  # fmt: skip
"""The same for the command whose rights the page names in a sentence."""

ON_A_CLUSTER = ("+command", "+cluster|slots")
"""The commands that any client sends to the nodes of a Redis Cluster at its start."""

REBUILDING = (
    BELIEFS, POSITIONS, LADDERS, LAYOUT, "+fcall", "+hget", "+hset", "+hdel", "+unlink", "+scan",
    "+function|list", "+function|load", KNOWING, "+select",
)  # fmt: skip

REDIS = {
    "estimator": (READ_BELIEFS, READ_POSITIONS, LADDERS, OLD_NOTES, *AT_START),
    "updater": (BELIEFS, POSITIONS, "+fcall", "+hset", *AT_START),
    "all": (BELIEFS, POSITIONS, LADDERS, OLD_NOTES, "+fcall", "+hset", *AT_START),
    "submit": (),
    "correct": (),
    "correct --dry-run": (),
    "seed --from-ladder": (READ_BELIEFS, "+hgetall", "+scan", "+select"),
    "tune": (),
    "watch": (),
    "rejected": (),
    "verify": (
        READ_BELIEFS, READ_POSITIONS, READ_LAYOUT, *READING, "+hget", "+hlen", "+scan", "+select",
    ),
    "rebuild": REBUILDING,
    "erase": (*REBUILDING, CHECKPOINTS, *INDEX, "+hgetall", "+hsetnx"),
    "erase --to": (),
    "inspect": (READ_POSITIONS, "+hmget", "+select"),
    "inspect --player": (READ_BELIEFS, READ_POSITIONS, *READING, "+select"),
    "predict": (READ_BELIEFS, READ_POSITIONS, READ_LAYOUT, *READING, "+select"),
    "checkpoint": (
        CHECKPOINTS, "+get", "+set", "+hgetall", "+hset", "+hdel", "+unlink",
        "+select",
    ),
    "serve": (),
}  # fmt: skip
REDIS["serve with beliefs"] = REDIS["predict"]
REDIS["serve with min_offset"] = REDIS["serve with writing"] = REDIS["serve"]
REDIS["on a cluster"] = (*(rule for rule in REDIS["all"] if rule != "+select"), *ON_A_CLUSTER)
"""Redis' rights by role: the rules of its user; `+select` if the URL names a database."""

REDIS_IN_A_SENTENCE = {SEASONS: ("%R~stream-rater:checkpoint*", "+get", "+hgetall", "+select")}


def by_scripts(rules: tuple[str, ...]) -> tuple[str, ...]:
    """The rules of a user who may use scripts in the place of functions."""
    found = dict.fromkeys(one for rule in rules for one in IN_THE_PLACE_OF.get(rule, (rule,)))
    return tuple(found)


@dataclass(frozen=True)
class Rights:
    """The rights of one user."""

    kafka: tuple[Acl, ...]
    redis: tuple[str, ...]

    def without(self, one: "Acl | str | None") -> "Rights":
        """The rights without one; a topic can still be described without reading or writing."""
        kafka = tuple(each for each in self.kafka if each != one)
        if isinstance(one, Acl) and one.kind == "TOPIC" and one.operation in ("READ", "WRITE"):
            kafka += (replace(one, operation="DESCRIBE"),)
        return Rights(kafka, tuple(each for each in self.redis if each != one))


def least_to_erase(settings: Settings, to: str) -> Rights:
    """The least rights to write the log of these settings again, to topics with the prefix `to`."""
    new = msgspec.structs.replace(settings, topic_prefix=to)
    old = least("erase", settings)
    return Rights(old.kafka + least("erase --to", new).kafka, old.redis)


def least(role: str, settings: Settings) -> Rights:
    """The least rights of a role on the topics and groups of these settings."""
    acls = [
        _acl(thing, operation, settings)
        for thing, operations in (ROLES | IN_A_SENTENCE)[role].items()
        for operation in operations.split()
    ]
    return Rights(tuple(acls), (REDIS | REDIS_IN_A_SENTENCE)[role])


def _acl(thing: str, operation: str, settings: Settings) -> Acl:
    prefix = settings.topic_prefix
    match thing.split():
        case ["group", which]:
            group = {"estimators": ESTIMATORS, "updaters": UPDATERS}[which]
            return Acl("GROUP", prefix + group, operation)
        case ["transactions", role]:
            return Acl("TRANSACTIONAL_ID", f"{prefix}stream-rater-{role}-", operation, True)
        case [topic]:
            assert prefix + topic in (*Topics.of(settings).names, topic_of(settings))
            return Acl("TOPIC", prefix + topic, operation)
    raise AssertionError(thing)
