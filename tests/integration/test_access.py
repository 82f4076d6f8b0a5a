"""TLS, passwords and least rights, on servers that enforce them. Each role works with exactly the
rights of docs/reference/access.md. Without any one of them it ends with one clear line. Both run in
threads (`rights_cases`), but what Kafka's clients do by themselves shows only in whole workers."""

import itertools
import re
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest

from stream_rater.adapters.redis.store import RedisStore
from stream_rater.columns.player_column import BeliefColumn
from stream_rater.config.settings import Settings
from stream_rater.pipeline.ports import Application, Position
from tests.integration import processes, rights
from tests.integration.castle import Castle, a_castle, rounds_from, some_rounds
from tests.integration.rights import least
from tests.integration.rights_cases import CASES, COMMANDS, REDIS, TOO_FEW, Case, outcomes
from tests.integration.role_runs import Ended, in_one_line, run_command, streams_by_thread
from tests.integration.secured import SecuredCluster, secured_cluster
from tests.integration.serving import Answered, Serve, ask, first
from tests.integration.topics import Finished, produce, rated

AT_ONCE = 8
Start = Callable[..., processes.WorkerProcess]


@pytest.fixture(scope="module")
def castle(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Castle]:
    with a_castle(tmp_path_factory.mktemp("castle")) as made:
        yield made


# --- all rights but one --------------------------------------------------------------------------

DENIALS = {
    "kafka": r"(kafka|topic).*(authorization failed|may not be seen|may not read)",
    REDIS: r"redis: .*(no permissions|can't run this command|without MULTI)",
}
UNNAMED = r"kafka: None"  # A producer may give up its records before librdkafka names the denial.


def fault(case: Case, ended: Ended) -> str:
    """What is wrong with how a case ended; empty if nothing is."""
    announced = ("{", "ladder 'eu': ")  # log lines, and what a command prints before it begins
    lines = [line for line in processes.complaints(ended.err) if not line.startswith(announced)]
    if not case.lacks:
        right = ended.code == 0 or (case.role == "tune" and TOO_FEW in ended.err)
        return "" if right else f"{case}: {ended}"
    if ended.code == 0:
        return f"{case}: it does without"
    pattern = DENIALS[case.server]
    if "WRITE TOPIC round-completed" in case.lacks:
        pattern = f"{pattern}|{UNNAMED}"
    one = len(lines) == 1 and re.match(f"stream-rater: .*({pattern})", lines[0])
    return "" if ended.code in (1, 2) and one else f"{case}: {ended.code}: {lines}"


def is_a_variation(case: Case) -> bool:
    """Whether a case is of `erase`, which has many: it does what `rebuild` does, and copies."""
    return case.role.startswith("erase") and bool(case.lacks)


@pytest.fixture(scope="module")
def ended(castle: Castle, tmp_path_factory: pytest.TempPathFactory) -> Mapping[Case, Ended]:
    """How each case ended; the cases of `erase` are left out."""
    cases = [case for case in CASES if not is_a_variation(case)]
    return outcomes(castle, tmp_path_factory.mktemp("cases"), cases)


def faults(ended: Mapping[Case, Ended]) -> list[str]:
    return [*filter(None, itertools.starmap(fault, ended.items()))]


def test_each_role_works_with_exactly_its_rights(ended: Mapping[Case, Ended]) -> None:
    """So does every command of the page. Without any one right, the exit code is 1 or 2, and one
    line says what Kafka or Redis denied."""
    assert {case.server for case in ended} == {"", *DENIALS}
    assert not faults(ended)


@pytest.mark.slow
def test_each_right_of_erase_is_needed(
    castle: Castle, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Rights on the old topics, on the new ones, and in Redis."""
    cases = [case for case in CASES if is_a_variation(case)]
    found = outcomes(castle, tmp_path_factory.mktemp("erasures"), cases)
    assert not faults(found)


# --- whole processes with exactly these rights ---------------------------------------------------


def test_workers_with_exactly_their_rights(castle: Castle, worker_process: Start) -> None:
    """Two workers share the partitions. A third with the first one's instance_id takes its place:
    Kafka fences the first. Nothing is lost. `verify` without one right ends in one line."""
    castle.redis.empty()
    at = castle.place(partitions=2, shards=2)
    opened = castle.opened(at)

    def worker(instance_id: str) -> processes.WorkerProcess:
        user = castle.user(at, "all")
        return worker_process(msgspec.structs.replace(user, instance_id=instance_id))

    first, second = worker("a"), worker("b")
    produce(opened, rounds_from(0, 20))
    processes.wait_until(lambda: second.has_a_share() and first.has_a_share(), "both have a share")
    successor = worker("a")
    processes.wait_until(lambda: not first.running, "the first is fenced", moves=first.moves)
    assert first.wait() == 1
    last = first.log().splitlines()[-1]
    assert re.match(r"stream-rater: (estimator|updater): kafka: .*", last), last
    assert "fenced" in last.lower() and "Traceback" not in first.log()
    rated(opened, *rounds_from(20, 20))
    assert successor.running and second.running
    words = "verify", "--wait", processes.PATIENTLY
    whole = processes.done(castle.user(at, "verify"), *words, quiet=True)
    assert whole.startswith("40 rounds replayed")
    denied = processes.refused(castle.user(at, "verify", "+hgetall"), "verify", code=1)
    assert denied.startswith("stream-rater: redis: ") and "'hgetall'" in denied


def test_scripts_in_the_place_of_functions(castle: Castle, worker_process: Start) -> None:
    """A worker with the rights for scripts instead of functions rates, and says so. Without any one
    of these, a line names the denied calls of both."""
    castle.redis.empty()
    at = castle.place()
    user, opened = castle.user(at, "all"), castle.opened(at)
    others = (rights.IN_THE_PLACE_OF.get(rule, (rule,)) for rule in rights.REDIS["all"])
    rules = [*dict.fromkeys(itertools.chain(*others))]
    produce(opened, some_rounds())
    for less in dict.fromkeys(itertools.chain(*rights.IN_THE_PLACE_OF.values())):
        castle.redis.allow(user.redis_username, *(rule for rule in rules if rule != less))
        denied = in_one_line(partial(assert_prepared, user))
        assert denied.code == 1
        assert re.fullmatch(rf"stream-rater: redis: .*'f.*{re.escape(less[1:])}.*\n", denied.err)
    castle.redis.allow(user.redis_username, *rules)
    worker = worker_process(user)
    processes.wait_until(Finished(opened), "all is rated")
    assert len([each for each in worker.events() if "EVALSHA" in each["event"]]) == 1
    assert castle.redis.client.function_list() == []


def assert_prepared(settings: Settings) -> None:
    store, ann = RedisStore(settings), BeliefColumn.of([(("eu", "ann"), b"belief")])
    store.prepare()
    assert store.apply({0: Application(Position(1, 0), ann)})[0]
    store.close()


def on_the_cluster(castle: Castle, cluster: SecuredCluster, less: str | None = None) -> Settings:
    """Settings of a new user with a worker's rights on the cluster, or with all but one."""
    at = castle.place()
    user = castle.user(at, "on a cluster")
    cluster.allow(user.redis_username, *least("on a cluster", at).without(less).redis)
    return msgspec.structs.replace(user, redis=cluster.address, redis_cluster=True)


def test_the_least_rights_on_a_cluster(
    castle: Castle, worker_process: Start, tmp_path: Path
) -> None:
    """A worker rates. One that may not ask for commands or slots ends, and says so in one line."""
    with secured_cluster(tmp_path / "cluster", castle.certificates) as cluster:
        user = on_the_cluster(castle, cluster)
        opened = castle.opened(user)
        worker = worker_process(user)
        rated(opened, *some_rounds())
        assert worker.metric("stream_rater_updates_total", outcome="applied") == 4
        for rule in rights.ON_A_CLUSTER:
            less = on_the_cluster(castle, cluster, rule)
            denied = in_one_line(partial(assert_prepared, less))
            why = f"permissions.*{rule[1:]}|{re.escape(rule)}"
            assert re.fullmatch(f"stream-rater: redis: .*({why}).*\n", denied.err), denied


def test_a_worker_says_when_it_cannot_know_whether_redis_evicts(castle: Castle) -> None:
    """With the listed rights it knows. Without INFO it warns, and starts all the same."""
    at = castle.place()
    for less, warnings in ((None, 0), (rights.KNOWING, 1)):
        found = RedisStore(castle.user(at, "all", less)).prepare()
        assert len([each for each in found if "it is unknown" in each]) == warnings, less


# --- serve ---------------------------------------------------------------------------------------

ROUND = {
    "round_id": "by-http", "completed_at": "2026-05-01T20:00:00Z",
    "standings": [{"player": "ann", "dnf": True}, {"player": "bob", "dnf": True}],
}  # fmt: skip
RESULT = {"sides": [{"players": ["ann"]}, {"players": ["bob"]}], "ranks": [1, 2]}
TOKEN = {"Authorization": "Bearer w"}
EXTRA = ("serve with beliefs", "serve with min_offset", "serve with writing")


def round_taken(api: processes.WorkerProcess) -> Answered:
    """Post a round until the process is connected. Returns the answer."""
    sent = partial(ask, api, "/v1/ladders/eu/rounds", ROUND, **TOKEN)
    return first(sent, "it is connected", lambda each: "not connected yet" not in each.text)


def test_serve_with_exactly_its_rights(
    castle: Castle, serve_process: Serve, worker_process: Start
) -> None:
    """It makes the index and answers every kind of question. A request that needs more rights is
    refused with the name of the right, does no harm, and is answered if the user has it."""
    castle.redis.empty()
    at = castle.place()
    opened = castle.opened(at)
    worker_process(castle.user(at, "all"))
    rated(opened, *some_rounds())

    def started(user: Settings) -> processes.WorkerProcess:
        return serve_process(msgspec.structs.replace(user, serve_write_token="w"))

    api, ladder = started(castle.user(at, "serve")), "/v1/ladders/eu"
    asked = [
        ask(api, "/v1/ladders"), ask(api, ladder), ask(api, f"{ladder}/players/ann"),
        ask(api, f"{ladder}/players/ann/history"), ask(api, f"{ladder}/leaderboard"),
        ask(api, f"{ladder}/players:lookup", {"players": ["ann", "x"]}),
        ask(api, f"{ladder}/balance", {"players": ["ann", "bob", "x", "y"]}),
    ]  # fmt: skip
    assert [each.status for each in asked] == [200] * len(asked), asked

    def special(api: processes.WorkerProcess) -> list[Answered]:
        return [
            ask(api, f"{ladder}/what-if", RESULT), ask(api, f"{ladder}/players/ann/explain"),
            ask(api, f"{ladder}/leaderboard?min_offset=0&wait=30"), round_taken(api),
        ]  # fmt: skip

    refused = special(api)
    codes = ["no-beliefs", "no-beliefs", "log-unavailable", "log-unavailable"]
    assert [(each.status, each.json["code"]) for each in refused] == [(503, c) for c in codes]
    denied = re.compile("redis: .*permission|round-completed|performance-estimated|authoriz")
    assert all(denied.search(each.json["detail"]) for each in refused), refused
    assert ask(api, ladder).status == 200
    user = castle.user(at, EXTRA[0])
    acls = dict.fromkeys(acl for role in EXTRA for acl in least(role, at).kafka)
    castle.kafka.allow({user.kafka_sasl_username: [*acls]})
    assert [each.status for each in special(started(user))] == [200, 200, 200, 202]


def test_serve_without_a_right_ends_in_one_line(castle: Castle) -> None:
    """It ends although another process of it, for the index, follows the topic."""
    at = castle.place()
    (less,) = least("serve", at).kafka
    line = processes.refused(castle.user(at, "serve", less), "serve", code=1)
    assert re.match(f"stream-rater: .*({DENIALS['kafka']})", line), line


# --- secrets -------------------------------------------------------------------------------------

SECRET = re.compile("SECRET|f00d")
PAGES = ("metrics", "healthz", "readyz", "")


def test_secrets_stay_secret(castle: Castle, worker_process: Start, tmp_path: Path) -> None:
    """Secrets of files and URLs are neither in debug logs nor on pages, also when a worker ends."""
    at = castle.place()
    user, opened = castle.user(at, "all"), castle.opened(at)
    file = tmp_path / "password"
    file.write_text(user.kafka_sasl_password + "\n")
    login = f"{user.redis_username}:{user.redis_password}@"
    worker = worker_process(
        msgspec.structs.replace(
            user, log_level="debug", kafka_sasl_password="", kafka_sasl_password_file=str(file),
            redis=user.redis.replace("://", f"://{login}"), redis_username="", redis_password="",
        )
    )  # fmt: skip
    rated(opened, *some_rounds())
    found = "".join([worker.log(), *(worker.get(f"/{page}")[1] for page in PAGES)])
    assert "wave sent" in found and "stream_rater_rounds_total" in found
    castle.redis.client.execute_command("ACL", "SETUSER", user.kafka_sasl_username, "-@all")
    assert worker.wait() == 1
    found += worker.log()
    assert "no permissions" in found
    assert not SECRET.search(found)


CLEAR, TWICE = "in the clear", "with a user"
WRONG: dict[str, tuple[dict[str, Any], int, str]] = {
    "Kafka's password": ({"kafka_sasl_password": "SECRET-wrong"}, 1, "SASL authentication error"),
    "Redis' password": ({"redis_password": "SECRET-wrong"}, 1, "redis: .*password"),
    "no password": ({"kafka_sasl_password": ""}, 2, "SASL needs kafka_sasl_username"),
    "no SASL": ({"kafka_security_protocol": "ssl"}, 2, "has no SASL"),
    "another protocol": ({"kafka_security_protocol": "tls"}, 2, "must be one of"),
    "another authority": ({"kafka_ssl_ca": ""}, 1, "certificate verify failed"),
    "no such authority": ({"kafka_ssl_ca": "/no/ca.pem"}, 2, "ssl.ca.location"),
    "Redis' authority": ({"redis_ca": ""}, 1, "redis: .*CERTIFICATE_VERIFY_FAILED"),
    "no such authority for Redis": ({"redis_ca": "/no/ca.pem"}, 2, "/no/ca.pem: no such file"),
    "Redis in the clear": ({"redis": CLEAR, "redis_ca": ""}, 1, "redis: "),
    "two passwords": ({"redis": TWICE}, 2, "names a user, too"),
    "no URL": ({"redis": "redis://u:SECRET/x@h:1/0", "redis_password": "", "redis_username": "",
                "redis_ca": ""}, 2, "the URL is not valid"),
    "no such file": ({"redis_password": "", "redis_password_file": "/no/f"}, 2, "/no/f: no such"),
    "an unknown option": ({"kafka_sasl_mechanism": "ROT-13"}, 2, "kafka: "),
}  # fmt: skip
"""By fault: changes to valid settings, the exit code, and a part of the line."""


def test_wrong_access_is_one_line(castle: Castle, tmp_path: Path) -> None:
    """The line says what is wrong, without any secret."""
    user = castle.user(castle.place(), "verify")
    urls = {CLEAR: user.redis.replace("rediss", "redis"),
            TWICE: user.redis.replace("://", "://u:SECRET@")}  # fmt: skip

    def run(name: str) -> str:
        """What is wrong with how a command with these settings ends."""
        changes, code, says = WRONG[name]
        redis = changes.get("redis", user.redis)
        given = {"log_level": "debug", **changes, "redis": urls.get(redis, redis)}
        folder = tmp_path / name
        folder.mkdir()
        ended = run_command(COMMANDS["verify"], msgspec.structs.replace(user, **given), folder)
        lines = [line for line in ended.err.splitlines() if not line.startswith("{")]
        right = len(lines) == 1 and re.fullmatch(f"stream-rater: .*{says}.*", lines[0])
        hidden = not SECRET.search(ended.out + ended.err)
        return "" if ended.code == code and right and hidden else f"{name}: {ended}"

    with streams_by_thread(), ThreadPoolExecutor(AT_ONCE) as pool:
        found = [*filter(None, pool.map(run, WRONG))]
    assert not found
