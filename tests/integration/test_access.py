"""TLS, passwords and least rights, on servers that enforce them.

A worker with exactly the rights of docs/reference/access.md works from end to end; with any one
less it ends with one clear line. Each case has a user, topics and a database of its own, so that
several run at once.
"""

import itertools
import json
import re
import subprocess
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest

from stream_rater.adapters.kafka.topics import Admin, Topics
from stream_rater.adapters.redis.store import RedisStore
from stream_rater.config.settings import Settings
from tests import rounds
from tests.integration import rights
from tests.integration.processes import WorkerProcess, complaints, stream_rater, wait_until
from tests.integration.rights import least
from tests.integration.secured import (
    USERS,
    Acl,
    Certificates,
    SecuredCluster,
    SecuredKafka,
    SecuredRedis,
    make_certificates,
    secured_cluster,
    secured_kafka,
    secured_redis,
    settings_of,
)
from tests.integration.topics import Bytes, Finished, produce, read_topic

AT_ONCE = 4
Start = Callable[..., WorkerProcess]


@dataclass
class Castle:
    """The secured servers, and users that are not used yet."""

    kafka: SecuredKafka
    redis: SecuredRedis
    certificates: Certificates
    users: Iterator[str] = field(default_factory=lambda: iter(USERS))
    places: Iterator[int] = field(default_factory=lambda: itertools.count(1))

    def place(self) -> Settings:
        """Topics and a database of its own, on which nobody has rights yet."""
        number = next(self.places)
        at = self.settings("nobody", f"p{number}.", number)
        Admin(self.opened(at)).create_topics()
        return at

    def settings(self, user: str, prefix: str, database: int) -> Settings:
        return settings_of(user, self.kafka, self.redis, self.certificates, prefix, database)

    def opened(self, settings: Settings) -> Settings:
        """The same place through Kafka's other listener, where everything is allowed."""
        plain = Settings(kafka=self.kafka.open)
        names = [n for n in Settings.__struct_fields__ if n.startswith("kafka")]
        return msgspec.structs.replace(settings, **{name: getattr(plain, name) for name in names})

    def user(self, at: Settings, role: str, less: Acl | str | None = None) -> Settings:
        """The settings of a new user with a role's rights there, or with all but one of them."""
        name = next(self.users)
        given = least(role, at).without(less)
        self.kafka.allow(name, given.kafka)
        self.redis.allow(name, *given.redis)
        database = int(at.redis.rpartition("/")[2])
        return self.settings(name, at.topic_prefix, database)


@pytest.fixture(scope="module")
def castle(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Castle]:
    """Both secured servers."""
    folder = tmp_path_factory.mktemp("castle")
    certificates = make_certificates(folder)
    with ExitStack() as stack:
        redis = stack.enter_context(secured_redis(folder / "redis", certificates))
        (folder / "kafka").mkdir()
        kafka = stack.enter_context(secured_kafka(folder / "kafka", certificates))
        yield Castle(kafka, redis, certificates)


def some_rounds() -> list[Bytes]:
    """Two valid rounds and one that is not."""
    made = [
        rounds.as_json(round_id=f"r{n}", ladder="eu", completed_at="2020-05-01T20:15:05Z")
        for n in range(2)
    ]
    return [Bytes(value, b"eu") for value in (made[0], b"no round", made[1])]


@pytest.fixture(scope="module")
def finished(castle: Castle, tmp_path_factory: pytest.TempPathFactory) -> Settings:
    """A place where a worker has rated those rounds, seen through Kafka's open listener."""
    at = castle.place()
    user = castle.user(at, "all")
    opened = castle.opened(at)
    produce(opened, some_rounds())
    worker = WorkerProcess(user, tmp_path_factory.mktemp("parts") / "log")
    try:
        wait_until(Finished(opened), "all is rated")
        worker.terminate()  # it leaves its groups, so that `rebuild` may run
        assert worker.wait() == 0
    finally:
        worker.close()
    return opened


# --- with exactly these rights -------------------------------------------------------------------


@pytest.mark.parametrize("roles", [("estimator", "updater"), ("all",)], ids=" and ".join)
def test_the_least_rights_suffice(
    castle: Castle, worker_process: Start, tmp_path: Path, roles: Sequence[str]
) -> None:
    """`submit` sends rounds, `watch` shows ratings and `rejected` the others, `verify` finds all
    equal, `inspect` and `predict` work, each as a user with the least rights. The first worker
    finds Redis empty."""
    castle.redis.empty()
    at = castle.place()
    workers = [worker_process(castle.user(at, role), role=role) for role in roles]
    file = tmp_path / "rounds.jsonl"
    file.write_bytes(b"\n".join(each.value or b"" for each in some_rounds()))
    sent = stream_rater("submit", str(file), settings=castle.user(at, "submit"))
    assert "2 rounds sent" in sent.stderr
    produce(castle.opened(at), [Bytes(b"no round", b"eu")])
    watch = ["watch", "--from-start", "--count", "4", "--json"]
    watched = stream_rater(*watch, settings=castle.user(at, "watch"))
    assert (watched.returncode, complaints(watched.stderr)) == (0, [])
    events = [json.loads(line) for line in watched.stdout.splitlines()]
    assert {(each["round_id"], each["player"]) for each in events} == {
        (name, player) for name in ("r0", "r1") for player in ("ann", "bob")
    }
    verified = stream_rater("verify", settings=castle.user(at, "verify"))
    assert (verified.returncode, complaints(verified.stderr)) == (0, []), verified.stderr
    assert verified.stdout.startswith("2 rounds replayed, 1 rejected (1 malformed), 2 beliefs comp")
    rejected = stream_rater(*COMMANDS["rejected"], "--json", settings=castle.user(at, "rejected"))
    assert (rejected.returncode, complaints(rejected.stderr)) == (0, [])
    assert json.loads(rejected.stdout)["code"] == "malformed"
    for role in ("inspect", "inspect --player", "predict"):
        inspected = stream_rater(*COMMANDS[role], settings=castle.user(at, role))
        assert (inspected.returncode, complaints(inspected.stderr)) == (0, []), inspected.stderr
    for worker in workers:
        worker.terminate()
        assert worker.wait() == 0
    rebuilt = stream_rater(*COMMANDS["rebuild"], settings=castle.user(at, "rebuild"))
    assert (rebuilt.returncode, complaints(rebuilt.stderr)) == (0, []), rebuilt.stderr
    assert rebuilt.stdout.startswith("2 rounds replayed, 2 beliefs written")
    begun = stream_rater(*SEED, settings=castle.user(at, "seed --from-ladder"))
    assert (begun.returncode, complaints(begun.stderr)) == (0, []), begun.stderr
    for role, why in (("tune", "1 rounds to tune on"), ("correct --dry-run", ""), ("correct", "")):
        done = stream_rater(*COMMANDS[role], settings=castle.user(at, role))
        assert (done.returncode, why in done.stderr) == (1 if why else 0, True), done.stderr


def test_scripts_in_the_place_of_functions(castle: Castle, worker_process: Start) -> None:
    """A worker whose user may use no functions rates with the rights of scripts, and says so.
    Without one of these rights it ends with a line that names both."""
    castle.redis.empty()
    at = castle.place()
    user = castle.user(at, "all")
    rules = rights.by_scripts(rights.REDIS["all"])
    castle.redis.allow(user.redis_username, *rules)
    produce(castle.opened(at), some_rounds())
    for less in dict.fromkeys(itertools.chain(*rights.IN_THE_PLACE_OF.values())):
        castle.redis.allow(user.redis_username, *(rule for rule in rules if rule != less))
        ended = _run("all", user)
        (line,) = [each for each in complaints(ended.stderr) if not each.startswith("{")]
        assert ended.returncode == 1
        assert re.fullmatch(rf"stream-rater: .*redis: .*'f.*{re.escape(less[1:])}.*", line), line
        castle.redis.allow(user.redis_username, *rules)
    worker = worker_process(user)
    wait_until(Finished(castle.opened(at)), "all is rated")
    said = [each["event"] for each in worker.events() if "EVALSHA" in each["event"]]
    assert len(said) == 1
    assert castle.redis.client.function_list() == []


def on_the_cluster(castle: Castle, cluster: SecuredCluster, less: str | None = None) -> Settings:
    """The settings of a new user with a worker's rights on the cluster, or with all but one of
    them."""
    at = castle.place()
    user = castle.user(at, "on a cluster")
    rules = least("on a cluster", at).without(less).redis
    cluster.allow(user.redis_username, *rules)
    return msgspec.structs.replace(user, redis=cluster.address, redis_cluster=True)


def test_the_least_rights_on_a_cluster(
    castle: Castle, worker_process: Start, tmp_path: Path
) -> None:
    """A worker rates. One that may not ask for the commands or the slots says so in one line."""
    with secured_cluster(tmp_path / "cluster", castle.certificates) as cluster:
        user = on_the_cluster(castle, cluster)
        worker = worker_process(user)
        produce(castle.opened(user), some_rounds())
        wait_until(Finished(castle.opened(user)), "all is rated")
        assert worker.metric("stream_rater_updates_total", outcome="applied") == 4
        for rule in rights.ON_A_CLUSTER:
            less = on_the_cluster(castle, cluster, rule)
            ended = _run("verify", less)
            lines = [line for line in complaints(ended.stderr) if not line.startswith("{")]
            assert (ended.returncode, len(lines)) == (1, 1), ended.stderr
            said = f"permissions.*{rule[1:]}|{re.escape(rule)}"
            assert re.fullmatch(f"stream-rater: redis: .*({said}).*", lines[0]), lines[0]


@pytest.mark.parametrize(("less", "warnings"), [(None, 0), (rights.KNOWING, 1)])
def test_a_worker_says_when_it_cannot_know_whether_redis_evicts(
    castle: Castle, worker_process: Start, less: str | None, warnings: int
) -> None:
    """With the rights that are listed it knows, and without INFO it starts all the same."""
    worker = worker_process(castle.user(castle.place(), "all", less))
    said = [each["event"] for each in worker.events() if "it is unknown" in each["event"]]
    assert len(said) == warnings


# --- with one less -------------------------------------------------------------------------------

NOWHERE = Settings(topic_prefix="")
COMMANDS = {
    "all": ["run"],
    "estimator": ["run", "--role", "estimator"],
    "updater": ["run", "--role", "updater"],
    "submit": ["submit", "deploy/examples/rounds.jsonl"],
    "correct": ["correct", "merge", "eu", "ann", "bob"],
    "correct --dry-run": ["correct", "void", "eu", "r0", "--dry-run"],
    "tune": ["tune", "--from-topic", "--ladder", "eu"],
    "watch": ["watch", "--from-start", "--count", "1"],
    "rejected": ["rejected", "--from-start", "--count", "1"],
    "verify": ["verify", "--wait", "0"],
    "rebuild": ["rebuild", "--replace"],
    "inspect": ["inspect"],
    "inspect --player": ["inspect", "--ladder", "eu", "--player", "ann"],
    "predict": ["predict", "--ladder", "eu", "ann", "bob"],
    "checkpoint": ["checkpoint", "eu"],
    "serve": ["serve"],
}
SEED = ["seed", "--from-ladder", "eu", "--ladder", "new", "--yes"]
LOOK = {"verify", "inspect", "inspect --player", "predict", "correct --dry-run", "checkpoint"}
LOOK |= {"tune", "rebuild"}  # they look at what workers have done; `rebuild` changes it
REMOVED = [role for role in COMMANDS if role not in ("all", "rebuild")] + ["rebuild"]
READ_EVENTS = ("rebuild", str(Acl("TOPIC", "rating-changed", "READ")))
READ_PARTS = ("estimator", str(Acl("TOPIC", "performance-estimated", "READ")))
"""Needed only where parts were deleted, or the log has corrections; and once parts were applied."""
ALL_OF_KAFKA = [(role, str(acl)) for role in REMOVED for acl in least(role, NOWHERE).kafka]
KAFKA_CASES = [case for case in ALL_OF_KAFKA if case not in (READ_EVENTS, READ_PARTS)]
REDIS_CASES = [
    (role, rule)
    for role in REMOVED
    if role != "checkpoint"  # which has a test of its own: one changes what the others find
    for rule in rights.REDIS[role]
    if rule != rights.KNOWING
]
CASES = [*KAFKA_CASES, *REDIS_CASES]

Ended = subprocess.CompletedProcess[str]
Case = tuple[str, str]
"""A role and a right."""


@pytest.fixture(scope="module")
def attempts(castle: Castle, finished: Settings) -> Iterator[dict[Case, Callable[..., Ended]]]:
    """Every case, a few at a time; each ends by itself, or is ended after a while. Rebuilds change
    what others look at: they come after those, in turn."""
    found = read_topic(finished, Topics.of(finished).parts)
    parts = [Bytes(each.value(), partition=each.partition() or 0) for each in found]
    with ThreadPoolExecutor(AT_ONCE) as pool:
        cases = {
            case: _prepared(castle, finished if case[0] in LOOK else castle.place(), *case)
            for case in CASES
        }
        for (role, _), at in cases.items():
            if role == "estimator":
                produce(castle.opened(at), some_rounds())
            if role == "updater":
                produce(castle.opened(at), parts, Topics.of(at).parts)
        loading = [case for case in CASES if case[1] == "+function|load"]
        castle.redis.client.function_flush()  # those find no functions, the others do
        futures = {case: pool.submit(_run, case[0], cases[case]) for case in loading}
        for future in futures.values():
            future.exception()
        library = castle.user(castle.place(), "all")
        RedisStore(library).prepare()
        rebuilds = [case for case in CASES if case[0] == "rebuild" and case not in futures]
        for case in CASES:
            if case not in futures and case not in rebuilds:
                futures[case] = pool.submit(_run, case[0], cases[case])
        looks = [future for (role, _), future in futures.items() if role in LOOK]

        def rebuild_in_turn() -> list[Ended]:
            wait(looks)
            return [_run("rebuild", cases[case]) for case in rebuilds]

        in_turn = pool.submit(rebuild_in_turn)
        yield {case: future.result for case, future in futures.items()} | {
            case: partial(_nth, in_turn, i) for i, case in enumerate(rebuilds)
        }
        pool.shutdown(cancel_futures=True)


def _nth(future: "Future[list[Ended]]", i: int) -> Ended:
    return future.result()[i]


def _prepared(castle: Castle, at: Settings, role: str, right: str) -> Settings:
    """A user who lacks this right there, which is named without its prefix."""
    named = [*map(str, least(role, NOWHERE).kafka), *rights.REDIS[role]]
    there: list[Any] = [*least(role, at).kafka, *rights.REDIS[role]]
    return castle.user(at, role, there[named.index(right)])


def _run(role: str, settings: Settings) -> Ended:
    return stream_rater(*COMMANDS[role], settings=settings)


@pytest.mark.parametrize("case", CASES, ids=" without ".join)
def test_each_right_is_needed(attempts: dict[Case, Callable[[], Ended]], case: Case) -> None:
    """Without the right, the exit code is 1 or 2, and one line says who denied access, without a
    traceback or a hang."""
    ended = attempts[case]()
    announced = ("{", "ladder 'eu': ")  # in the log, and what `correct` does
    lines = [line for line in complaints(ended.stderr) if not line.startswith(announced)]
    assert ended.returncode in (1, 2), ended.stderr
    print(*lines)
    assert len(lines) == 1, ended.stderr
    server = "redis" if case in REDIS_CASES else "kafka|topic"
    assert re.fullmatch(rf"stream-rater: .*({server}).*", lines[0]), lines[0]


# --- secrets -------------------------------------------------------------------------------------

SECRET = re.compile("SECRET|f00d")


def said_by(worker: WorkerProcess) -> str:
    """Everything that a worker prints or serves."""
    return "".join([worker.log(), *(worker.get(f"/{page}")[1] for page in PAGES)])


PAGES = ("metrics", "healthz", "readyz", "")


@pytest.mark.parametrize("where", ["in files", "in a URL"])
def test_secrets_stay_secret(
    castle: Castle, worker_process: Start, tmp_path: Path, where: str
) -> None:
    """Secrets are neither in logs at debug level nor on any page, whether all is well or not."""
    at = castle.place()
    user = castle.user(at, "all")
    changes: dict[str, str] = {"log_level": "debug"}
    for name in ("kafka_sasl_password", "redis_password"):
        file = tmp_path / name
        file.write_text(getattr(user, name) + "\n")
        changes |= {name: "", f"{name}_file": str(file)}
    if where == "in a URL":
        password = f"{user.redis_username}:{user.redis_password}@"
        changes |= {"redis": user.redis.replace("://", f"://{password}"), "redis_username": ""}
        changes["redis_password_file"] = ""
    worker = worker_process(msgspec.structs.replace(user, **changes))
    produce(castle.opened(at), some_rounds())
    wait_until(Finished(castle.opened(at)), "all is rated")
    said = said_by(worker)
    assert "wave sent" in said and "stream_rater_rounds_total" in said
    castle.redis.client.execute_command("ACL", "SETUSER", user.kafka_sasl_username, "-@all")
    assert worker.wait() == 1
    said += worker.log()
    assert "no permissions" in said
    assert not SECRET.search(said)


WRONG = {
    "Kafka's password": ({"kafka_sasl_password": "SECRET-wrong"}, 1, "SASL authentication error"),
    "Redis' password": ({"redis_password": "SECRET-wrong"}, 1, "redis: .*password"),
    "no password": ({"kafka_sasl_password": ""}, 2, "SASL needs kafka_sasl_username"),
    "no SASL": ({"kafka_security_protocol": "ssl"}, 2, "has no SASL"),
    "another protocol": ({"kafka_security_protocol": "tls"}, 2, "must be one of"),
    "another authority": ({"kafka_ssl_ca": ""}, 1, "certificate verify failed"),
    "no such authority": ({"kafka_ssl_ca": "/no/ca.pem"}, 2, "ssl.ca.location"),
    "Redis' authority": ({"redis_ca": ""}, 1, "redis: .*CERTIFICATE_VERIFY_FAILED"),
    "no such authority for Redis": ({"redis_ca": "/no/ca.pem"}, 2, "/no/ca.pem: no such file"),
    "Redis in the clear": ({"redis": "", "redis_ca": ""}, 1, "redis: "),
    "two passwords": ({"redis": "@"}, 2, "names a user, too"),
    "no URL": ({"redis": "redis://u:SECRET/x@h:1/0", "redis_password": "", "redis_username": "",
                "redis_ca": ""}, 2, "the URL is not valid"),
    "no such file": ({"redis_password": "", "redis_password_file": "/no/f"}, 2, "/no/f: no such"),
    "an unknown option": ({"kafka_sasl_mechanism": "ROT-13"}, 2, "kafka: "),
}  # fmt: skip
"""Changes to valid settings, the exit code, and a part of the line."""


@pytest.fixture(scope="module")
def wrong(castle: Castle) -> Iterator[dict[str, Future[Ended]]]:
    """Every worker with wrong settings, a few at a time."""
    at = castle.place()
    user = castle.user(at, "all")
    clear = user.redis.replace("rediss", "redis")
    urls = {"": clear, "@": user.redis.replace("://", "://u:SECRET@")}
    with ThreadPoolExecutor(AT_ONCE) as pool:
        futures = {}
        for name, (changes, _, _) in WRONG.items():
            redis = changes.get("redis", user.redis)
            given = {"log_level": "debug", **changes, "redis": urls.get(redis, redis)}
            settings = msgspec.structs.replace(user, **given)
            futures[name] = pool.submit(_run, "all", settings)
        yield futures


@pytest.mark.parametrize("name", WRONG)
def test_wrong_access_is_one_line(wrong: dict[str, Future[Ended]], name: str) -> None:
    """The line says what is wrong, without any secret."""
    _, code, says = WRONG[name]
    ended = wrong[name].result()
    lines = [line for line in ended.stderr.splitlines() if not line.startswith("{")]
    assert (ended.returncode, len(lines)) == (code, 1), ended.stderr
    assert re.fullmatch(f"stream-rater: .*{says}.*", lines[0]), lines[0]
    assert not SECRET.search(ended.stdout + ended.stderr)
