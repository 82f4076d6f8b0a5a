"""What is reported about topics, about addresses where nobody answers, and about sentinels."""

import re
from collections.abc import Mapping
from typing import Any

import pytest
import redis
from confluent_kafka import KafkaError
from redis.connection import ConnectionPool
from redis.sentinel import MasterNotFoundError

from demonstration import corner
from examples import game_backend, matchmaking
from local.servers import Addresses
from local.tools import KAFKA_VARIABLE, REDIS_VARIABLE
from stream_rater.adapters.kafka import topic_rules
from stream_rater.adapters.kafka.topic_rules import TopicDescription, check_rules, topic_settings
from stream_rater.adapters.kafka.topics import Admin
from stream_rater.adapters.redis import sentinel
from stream_rater.adapters.redis.client import connect
from stream_rater.adapters.redis.sentinel import MasterFinder, parsed
from stream_rater.adapters.redis.store import RedisStore
from stream_rater.config.errors import BadConfiguration
from stream_rater.config.settings import Settings
from stream_rater.contract.errors import Denied, LogTrouble, StoreTrouble
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


def verdict_of(topic: str, setting: str, value: str) -> tuple[list[str], list[str]]:
    """What is said where one topic's setting is another than the service gives it."""
    return check_rules(AT, as_made(topic=topic, **{setting: value}))


def test_three_copies_need_two_to_write() -> None:
    """Of all topics. One copy is not warned of. What the service makes it takes."""
    three = topic_settings(Settings(replication=3))
    assert {name: config.get("min.insync.replicas") for name, (_, config) in three.items()} == (
        dict.fromkeys(TOPICS, "2")
    )
    for copies in (1, 2):
        made = topic_settings(Settings(replication=copies)).values()
        assert not any("min.insync.replicas" in config for _, config in made)
    assert check_rules(AT, as_made()) == ([], [])
    fragile = {"min.insync.replicas": "1", "unclean.leader.election.enable": "true"}
    there = {
        name: found._replace(copies=1, configuration={**found.configuration, **fragile})
        for name, found in as_made().items()
    }
    assert check_rules(AT, there) == ([], [])


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


@cases("topic, setting, value", settings_in(REQUIRED | ADVISED))
def test_a_topic_that_loses_or_may_lose_something(topic: str, setting: str, value: str) -> None:
    """It is refused, or warned of, in one line with the command that corrects it."""
    refusals, warnings = verdict_of(topic, setting, value)
    (line,) = refusals or warnings
    refused = value in REQUIRED.get((topic, setting), ())
    assert (bool(refusals), bool(warnings)) == (refused, not refused)
    assert line.startswith(f"p.{topic}: {setting} is {value}, "), line
    assert (" must be " if refused else " should be ") in line and "\n" not in line
    command = CONFIGURED.search(line)
    assert command is not None and command.end() == len(line), line
    assert command.groups()[:2] == (topic, setting)
    assert verdict_of(topic, setting, command[3]) == ([], [])


def test_what_keeps_enough_is_accepted() -> None:
    """It need not be as the service makes it. Tiered storage still has the records."""
    for where in settings_in(ACCEPTED):
        assert verdict_of(*where) == ([], []), where
    for topic in TOPICS:
        assert check_rules(AT, as_made(topic=topic, **TIERED)) == ([], []), topic


def test_settings_that_are_not_known_or_too_large_are_refused() -> None:
    """Rounds may be as large as one answer of a broker, with what a rejection has beside them."""
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


def test_a_topic_of_seasons_must_keep_them() -> None:
    """By age and by size; what the service makes, and what is compacted, does."""
    at = Settings()
    made = topic_rules.season_topic_settings(at)[1]
    assert topic_rules.season_refusals(at, "season-ended", made) == []
    for setting in ("retention.ms", "retention.bytes"):
        (refusal,) = topic_rules.season_refusals(at, "season-ended", made | {setting: "1000"})
        assert refusal.startswith(f"season-ended: {setting} is 1000, must be -1: the standings of ")
        assert refusal.endswith(f"--add-config {setting}=-1`")
        compacted = made | {setting: "1000", "cleanup.policy": "compact"}
        assert topic_rules.season_refusals(at, "season-ended", compacted) == []


# --- nobody answers -------------------------------------------------------------------------------

NOWHERE = "127.0.0.1:1"
DOWN = KafkaError(KafkaError._TRANSPORT)


@cases("settings, expected", [
    (
        Settings(kafka=NOWHERE),
        f"kafka at {NOWHERE}: {DOWN.str()} (the address is that of STREAM_RATER_KAFKA: is the "
        "server running?)",
    ),
    (
        Settings(),
        f"kafka at 127.0.0.1:9092: {DOWN.str()} (the default address; STREAM_RATER_KAFKA names "
        "another; `standalone FILE` needs none)",
    ),
])  # fmt: skip
def test_kafka_is_away(settings: Settings, expected: str) -> None:
    """Perhaps it was stopped, perhaps the variable is not set in this shell."""
    trouble = Admin(settings)._unreachable(DOWN)
    assert isinstance(trouble, LogTrouble)
    assert str(trouble) == expected


def test_servers_that_are_away_or_refuse(monkeypatch: pytest.MonkeyPatch) -> None:
    """A Kafka that refuses is not away: the address is right. Nobody listens on Redis' port."""
    admin = Admin(Settings(kafka=NOWHERE))
    admin._remember_connection_error(KafkaError(KafkaError._AUTHENTICATION))
    trouble = admin._unreachable(DOWN)
    assert isinstance(trouble, Denied)
    assert "STREAM_RATER_KAFKA" not in str(trouble)
    store = RedisStore(Settings(redis=f"redis://{NOWHERE}"))
    with pytest.raises(StoreTrouble) as caught:
        [*store.beliefs()]
    assert str(caught.value).endswith(
        "(the address is that of STREAM_RATER_REDIS: is the server running?)"
    )
    for module in (game_backend, matchmaking):
        monkeypatch.setattr(module, "CONNECT_S", 0.1)
    where = rf"Kafka at {NOWHERE} \(--kafka, or STREAM_RATER_KAFKA\) does not answer: "
    with pytest.raises(game_backend.NotReported, match=where):
        game_backend.Reporter(NOWHERE, "t").check()
    with pytest.raises(matchmaking.NotFollowed, match=where):
        matchmaking.Ratings(NOWHERE, "t")


@cases("variable", [KAFKA_VARIABLE, REDIS_VARIABLE])
def test_the_demo_says_how_to_do_without(variable: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A shell may still have the addresses of servers that `make down` stopped."""
    for each in (KAFKA_VARIABLE, REDIS_VARIABLE):
        monkeypatch.delenv(each, raising=False)
    monkeypatch.setenv(variable, NOWHERE)
    monkeypatch.setattr(corner, "TIMEOUT_S", 0.1)
    with pytest.raises(corner.NoCorner) as refused, corner.corner(Addresses(NOWHERE, NOWHERE)):
        pass
    assert str(refused.value).endswith(
        f"(the address is that of {variable}; without it, the demo starts its own: "
        "unset STREAM_RATER_KAFKA STREAM_RATER_REDIS)"
    )


# --- sentinels ------------------------------------------------------------------------------------

ADDRESS = "redis+sentinel://a:1,b:2,c:3/ratings"
OLD, NEW = ("old", 6379), ("new", 6379)


def state(place: tuple[str, int], epoch: int, **more: Any) -> dict[str, Any]:
    up = {"is_master": True, "is_sdown": False, "is_odown": False, "num-other-sentinels": 2}
    return {"ip": place[0], "port": place[1], "config-epoch": epoch, **up, **more}


class Scene:
    """A finder whose sentinels answer what `says` has, first all the same, or raise it; a clock."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.says: dict[str, Any] = dict.fromkeys("abc", state(OLD, 0))
        self.asked: list[str] = []
        self.now_s, at, pool = 0.0, Settings(redis=ADDRESS), ConnectionPool()
        self.finder = MasterFinder(at, parsed(ADDRESS), pool, lambda: self.now_s)
        for each in self.finder.sentinels:
            monkeypatch.setattr(each, "sentinel_masters", lambda each=each: self._answer(each))

    def _answer(self, asked: Any) -> Mapping[str, Any]:
        host = asked.connection_pool.connection_kwargs["host"]
        self.asked.append(host)
        found = self.says[host]
        if isinstance(found, Exception):
            raise found
        return {"ratings": found} if found else {"others": {}}


@pytest.fixture
def scene(monkeypatch: pytest.MonkeyPatch) -> Scene:
    return Scene(monkeypatch)


def test_the_newest_failover_counts(scene: Scene) -> None:
    """One sentinel is enough. No master is named while a failover is in progress."""
    for cut_off in "abc":
        scene.says = dict.fromkeys("abc", state(NEW, 4)) | {cut_off: state(OLD, 3)}
        assert scene.finder.find() == NEW
    scene.says = {"a": state(OLD, 3), "b": state(NEW, 4, is_sdown=True), "c": state(OLD, 3)}
    with pytest.raises(MasterNotFoundError, match="'ratings' that is up"):
        scene.finder.find()
    lost = redis.ConnectionError("refused")
    scene.says = {"a": lost, "b": redis.TimeoutError("silent"), "c": state(OLD, 0)}
    assert scene.finder.find() == OLD
    scene.says = dict.fromkeys("abc")
    with pytest.raises(MasterNotFoundError, match=r"a:1 knows no such name \(it knows: others\)"):
        scene.finder.find()
    scene.says = dict.fromkeys("abc", redis.AuthenticationError("WRONGPASS"))
    with pytest.raises(redis.AuthenticationError, match="STREAM_RATER_REDIS_SENTINEL_PASSWORD"):
        scene.finder.find()


def test_they_are_asked_at_intervals(scene: Scene) -> None:
    """A silent sentinel is left out for longer. A connection that works is kept."""
    assert not scene.finder.names_another(NEW)
    assert scene.asked == []
    scene.now_s += sentinel.LOOK_S
    scene.says["b"] = redis.TimeoutError("silent")
    assert scene.finder.names_another(NEW)
    assert not scene.finder.names_another(NEW)
    assert scene.asked == [*"abc"]
    scene.now_s += sentinel.LOOK_S
    assert not scene.finder.names_another(OLD)
    assert scene.asked == [*"abcac"]
    scene.now_s += sentinel.SILENT_S
    assert not scene.finder.names_another(OLD)
    assert scene.asked == [*"abcacabc"]
    scene.now_s += sentinel.LOOK_S
    scene.says = dict.fromkeys("abc", redis.ConnectionError("refused"))
    assert not scene.finder.names_another(OLD)


def test_the_login_of_sentinels() -> None:
    """It is that of Redis unless they have one of their own. The URL may have user and database."""
    ann = {"redis_username": "ann", "redis_password": "r"}
    logins: list[tuple[dict[str, Any], tuple[str | None, str | None]]] = [
        ({"redis_password": "r"}, ("default", "r")), (ann, ("ann", "r")),
        (ann | {"redis_sentinel_username": "default"}, ("default", "r")),
        (ann | {"redis_sentinel_password": "s"}, ("default", "s")), ({}, (None, None)),
    ]  # fmt: skip
    for given, login in logins:
        client = connect(Settings(redis=ADDRESS, **given))
        for each in client.connection_pool.sentinel_manager.sentinels:
            options = each.connection_pool.connection_kwargs
            assert (options.get("username"), options.get("password")) == login, given
    client = connect(Settings(redis="redis+sentinel://ann:s3cret@a:1,[::1]:2/my%20own/3"))
    given = client.connection_pool.connection_kwargs
    assert (given["username"], given["password"], given["db"]) == ("ann", "s3cret", 3)
    assert client.connection_pool.service_name == "my own"
    hosts = [
        each.connection_pool.connection_kwargs["host"]
        for each in client.connection_pool.sentinel_manager.sentinels
    ]
    assert hosts == ["a", "::1"]


def test_addresses_that_make_no_sense() -> None:
    """They are refused before anything is asked, without a password in the text."""
    for address, cluster, why in (
        ("redis+sentinel://a:1,b:2", False, "write redis.sentinel://host:port,host:port/NAME"),
        ("redis+sentinel://a:1,b/m", False, "'b' is no host:port of a sentinel"),
        ("redis+sentinel://a:1,b:99999/m", False, "'b:99999' is no host:port"),
        ("redis+sentinel://a:1/m,b:2", False, "where NAME is the name of the master"),
        ("redis+sentinel://a:1/m", True, "Sentinel watches no cluster: set redis_cluster to false"),
        ("redis+sentinel://ann:s3cret@a:1,b:2", False, r"'redis.sentinel://ann:\*\*\*@"),
    ):
        with pytest.raises(BadConfiguration, match=why) as refused:
            connect(Settings(redis=address, redis_cluster=cluster))
        assert "s3cret" not in str(refused.value)
        assert "\n" not in str(refused.value)
