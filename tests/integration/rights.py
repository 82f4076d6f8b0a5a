"""The least rights of each role: those that docs/reference/access.md lists."""

import re
from dataclasses import dataclass, replace

import msgspec

from stream_rater.adapters.kafka.season_topic import topic_of
from stream_rater.adapters.kafka.topics import Topics
from stream_rater.config.settings import Settings
from stream_rater.contract.events import ESTIMATORS, UPDATERS
from tests import pages
from tests.integration.secured import Acl

KNOWING = "+info"  # To see if a full Redis deletes ratings; a worker without it only warns.
ON_A_CLUSTER = ("+command", "+cluster|slots")  # What any client sends to nodes at its start.
IN_THE_PLACE_OF = {  # By the rights to run functions, those to run scripts.
    "+fcall": ("+evalsha", "+script|load"),
    "+function|list": ("+script|load",),
    "+function|load": (),
}

# --- the tables of the page -----------------------------------------------------------------------

PAGE = pages.text("reference/access.md")
TOPICS = (
    "round-completed", "performance-estimated", "rating-changed", "round-rejected", "ladders-noted",
)  # fmt: skip
NAMED_ALIKE = (
    "submit", "correct", "correct --dry-run", "seed --from-ladder", "watch", "rejected", "verify",
    "rebuild", "erase", "inspect", "inspect --player", "predict", "checkpoint", "serve",
)  # fmt: skip
COMMANDS = {role: f"`{role}`" for role in NAMED_ALIKE} | {  # How the page names each role.
    "estimator": "`run --role estimator`", "updater": "`run --role updater`", "all": "`run`",
    "tune": "`tune --from-topic`", "erase --to": "`erase --to`, on the new topics",
    "serve with beliefs": "`serve` with `what-if` and `explain`",
    "serve with min_offset": "`serve` with `min_offset`",
    "serve with writing": "`serve` that takes rounds",
}  # fmt: skip


def rows_of(columns: int) -> dict[str, list[str]]:
    """The table of the page with so many columns: by its first cell, the other cells of a row."""
    found = re.findall(r"^\| (`.*?) \|(.*) \|$", PAGE, re.MULTILINE)
    table = [(name, [c.strip() for c in re.split(r"(?<!\\)\|", rest)]) for name, rest in found]
    return {name: rest for name, rest in table if len(rest) == columns}


def by_name(kind: str, column: str, both: tuple[str, str]) -> dict[str, str]:
    """By resource, the operations in a cell. `both`: the names that "both" in it stands for."""
    found: dict[str, str] = {}
    for each in filter(None, column.split("; ")):
        name, _, operation = each.rpartition(": ")
        one = name.strip("`").removeprefix("stream-rater-").removesuffix("-*")
        names = both if name == "both" else (one,)
        found |= {f"{kind} {each}": operation for each in names}
    return found


def on_kafka(command: str) -> dict[str, str]:
    """The operations on each topic, group and transactional id that the page gives a command."""
    *of_topics, groups, transactions = rows_of(7)[command]
    found = {topic: of.replace(",", "") for topic, of in zip(TOPICS, of_topics, strict=True) if of}
    found |= by_name("group", groups, ("estimators", "updaters"))
    return found | by_name("transactions", transactions, ("estimator", "updater"))


def on_redis(command: str) -> tuple[str, ...]:
    """The rules of a command's user in Redis; `+select`, since tests' URLs name a database."""
    found = [row[0] for name, row in rows_of(1).items() if command in name.split(", ")]
    rules = [one for row in found for one in row.strip("`").replace("\\|", "|").split()]
    return (*rules, "+select") if rules else ()


ROLES = {role: on_kafka(command) for role, command in COMMANDS.items()}
ROLES["on a cluster"] = ROLES["all"]
REDIS = {role: on_redis(command) for role, command in COMMANDS.items()}
REDIS["on a cluster"] = (*(rule for rule in REDIS["all"] if rule != "+select"), *ON_A_CLUSTER)

SEASONS = "season-standings"  # Its rights are in a sentence of the page.
IN_A_SENTENCE = {
    SEASONS: {
        "round-completed": "READ", "ladders-noted": "READ", "season-ended": "READ WRITE",
        "group estimators": "DESCRIBE", "transactions season": "WRITE",
    },
}  # fmt: skip
REDIS_IN_A_SENTENCE = {SEASONS: ("%R~stream-rater:checkpoint*", "+get", "+hgetall", "+select")}


@dataclass(frozen=True)
class Rights:
    kafka: tuple[Acl, ...]
    redis: tuple[str, ...]

    def without(self, one: "Acl | str | None") -> "Rights":
        """The rights without one. Whoever lacks READ or WRITE of a topic may still DESCRIBE it."""
        kafka = tuple(each for each in self.kafka if each != one)
        if isinstance(one, Acl) and one.kind == "TOPIC" and one.operation in ("READ", "WRITE"):
            kafka += (replace(one, operation="DESCRIBE"),)
        return Rights(kafka, tuple(each for each in self.redis if each != one))


def least_to_erase(settings: Settings, to: str) -> Rights:
    """The least rights to erase: to copy the log to topics with the prefix `to`."""
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
