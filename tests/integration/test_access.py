"""TLS, passwords and least rights, on servers that really ask for them.

A worker with exactly the rights of the README works from end to end; with any one less it ends with
one clear line. Each case has a user, topics and a database of its own, so that several run at once.
"""

import itertools
import json
import re
import subprocess
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
import pytest

from stream_rater.adapters.topics import Admin, Topics
from stream_rater.config import Settings
from tests import rounds
from tests.integration import rights
from tests.integration.processes import WorkerProcess, stream_rater, wait_until
from tests.integration.rights import Rights, least
from tests.integration.secured import (
    USERS,
    Certificates,
    SecuredKafka,
    SecuredRedis,
    make_certificates,
    secured_kafka,
    secured_redis,
    settings_of,
)
from tests.integration.topics import Bytes, produce, read_topic

AT_ONCE = 4
ENDS_WITHIN_S = 60.0
Start = Callable[..., WorkerProcess]


@dataclass
class Castle:
    """The secured servers, and users not given away yet."""

    kafka: SecuredKafka
    redis: SecuredRedis
    certificates: Certificates
    users: Iterator[str] = field(default_factory=lambda: iter(USERS))
    places: Iterator[int] = field(default_factory=lambda: itertools.count(1))

    def place(self) -> Settings:
        """Topics and a database of their own; nobody may do anything there yet."""
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

    def user(self, at: Settings, role: str, less: object = None) -> Settings:
        """Settings there of a new user with a role's rights, or with all but one of them."""
        name = next(self.users)
        given: Rights = least(role, at).without(less)  # type: ignore[arg-type]
        self.kafka.allow(name, given.kafka)
        self.redis.allow(name, *given.redis)
        database = int(at.redis.rpartition("/")[2])
        return self.settings(name, at.topic_prefix, database)


@pytest.fixture(scope="module")
def castle(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Castle]:
    """Both servers."""
    folder = tmp_path_factory.mktemp("castle")
    certificates = make_certificates(folder)
    with ExitStack() as stack:
        redis = stack.enter_context(secured_redis(folder / "redis", certificates))
        (folder / "kafka").mkdir()
        kafka = stack.enter_context(secured_kafka(folder / "kafka", certificates))
        yield Castle(kafka, redis, certificates)


def some_rounds() -> list[Bytes]:
    """Two that can be rated and one that cannot."""
    made = [
        rounds.as_json(round_id=f"r{n}", ladder="eu", completed_at="2020-05-01T20:15:05Z")
        for n in range(2)
    ]
    return [Bytes(value, b"eu") for value in (made[0], b"no round", made[1])]


@pytest.fixture(scope="module")
def parts(castle: Castle, tmp_path_factory: pytest.TempPathFactory) -> list[Bytes]:
    """What an estimator makes of those rounds, and a release's functions in Redis."""
    at = castle.place()
    user = castle.user(at, "all")
    opened = castle.opened(at)
    produce(opened, some_rounds())
    worker = WorkerProcess(user, tmp_path_factory.mktemp("parts") / "log")
    try:
        wait_until(lambda: worker.metric("stream_rater_events_total") == 4, worker.log())
    finally:
        worker.close()
    found = read_topic(opened, Topics.of(at).parts)
    return [Bytes(each.value(), partition=each.partition() or 0) for each in found]


# --- with exactly these rights -------------------------------------------------------------------


@pytest.mark.parametrize("roles", [("estimator", "updater"), ("all",)], ids=" and ".join)
def test_the_least_rights_suffice(
    castle: Castle, worker_process: Start, tmp_path: Path, roles: Sequence[str]
) -> None:
    """Rounds go in by `submit`, ratings come out by `watch`, and `verify` finds all equal, each as
    a user who may do no more; the first worker finds Redis empty."""
    castle.redis.empty()
    at = castle.place()
    for role in roles:
        worker_process(castle.user(at, role), role=role)
    file = tmp_path / "rounds.jsonl"
    file.write_bytes(b"\n".join(each.value or b"" for each in some_rounds()))
    sent = stream_rater("submit", str(file), settings=castle.user(at, "submit"))
    assert "2 rounds sent" in sent.stderr
    produce(castle.opened(at), [Bytes(b"no round", b"eu")])
    watch = ["watch", "--from-start", "--count", "4", "--json"]
    watched = stream_rater(*watch, settings=castle.user(at, "watch"))
    assert (watched.returncode, watched.stderr) == (0, "")
    events = [json.loads(line) for line in watched.stdout.splitlines()]
    assert {(each["round_id"], each["player"]) for each in events} == {
        (name, player) for name in ("r0", "r1") for player in ("ann", "bob")
    }
    verified = stream_rater("verify", settings=castle.user(at, "verify"))
    assert (verified.returncode, verified.stderr) == (0, ""), verified.stderr
    assert verified.stdout.startswith("3 rounds replayed, 1 rejected, 2 beliefs compared: all")
    assert len(read_topic(castle.opened(at), Topics.of(at).rejected)) == 1


# --- with one less -------------------------------------------------------------------------------

NOWHERE = Settings(topic_prefix="")
COMMANDS = {
    "estimator": ["run", "--role", "estimator"],
    "updater": ["run", "--role", "updater"],
    "submit": ["submit", "deploy/examples/rounds.jsonl"],
    "watch": ["watch", "--from-start", "--count", "1"],
    "verify": ["verify", "--wait", "0"],
}
KAFKA_CASES = [(role, str(acl)) for role in COMMANDS for acl in least(role, NOWHERE).kafka]
REDIS_CASES = [(role, rule) for role in COMMANDS for rule in rights.REDIS[role]]
CASES = [*KAFKA_CASES, *REDIS_CASES]

Ended = subprocess.CompletedProcess[str]


@pytest.fixture(scope="module")
def attempts(castle: Castle, parts: list[Bytes]) -> Iterator[dict[tuple[str, str], Future[Ended]]]:
    """Every case, a few at a time; each ends by itself, or is ended after a while."""
    with ThreadPoolExecutor(AT_ONCE) as pool:
        cases = {case: _prepared(castle, parts, *case) for case in CASES}
        loading = [case for case in CASES if case[1] == "+function|load"]
        castle.redis.client.function_flush()  # those find no functions, the others do
        futures = {case: pool.submit(_run, case[0], cases[case]) for case in loading}
        for future in futures.values():
            future.exception()
        library = castle.user(castle.place(), "all")
        from stream_rater.adapters.redis import RedisStore

        RedisStore(library).prepare()
        futures |= {
            case: pool.submit(_run, case[0], at)
            for case, at in cases.items()
            if case not in futures
        }
        yield futures
        pool.shutdown(cancel_futures=True)


def _prepared(castle: Castle, parts: list[Bytes], role: str, right: str) -> Settings:
    at = castle.place()
    (less,) = (
        each
        for whole, bare in zip(
            [*least(role, at).kafka, *least(role, at).redis],
            [*map(str, least(role, NOWHERE).kafka), *least(role, NOWHERE).redis],
            strict=True,
        )
        for each in ([whole] if bare == right else [])
    )
    opened = castle.opened(at)
    if role in ("estimator", "verify"):
        produce(opened, some_rounds())
    if role == "updater":
        produce(opened, parts, Topics.of(at).parts)
    return castle.user(at, role, less)


def _run(role: str, settings: Settings) -> Ended:
    return stream_rater(*COMMANDS[role], settings=settings, timeout_s=ENDS_WITHIN_S)


@pytest.mark.parametrize("case", CASES, ids=" without ".join)
def test_each_right_is_needed(
    attempts: dict[tuple[str, str], Future[Ended]], case: tuple[str, str]
) -> None:
    """Without it: exit code 1 or 2 and one line that says who denies what; no traceback, no hang."""
    ended = attempts[case].result()
    print(case, ended.returncode, [x for x in ended.stderr.splitlines() if not x.startswith("{")])
    lines = [line for line in ended.stderr.splitlines() if not line.startswith("{")]
    assert ended.returncode in (1, 2), ended.stderr
    assert len(lines) == 1, ended.stderr
    server = "redis" if case in REDIS_CASES else "kafka|topic"
    assert re.fullmatch(rf"stream-rater: .*({server}).*", lines[0]), lines[0]
