"""Log and metrics: causes of failures, readiness, recovery, and the progress of corrections."""

import io
import json
import pickle
import ssl
import sys
import threading
import time
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest
import redis
import structlog
from confluent_kafka import KafkaError
from redis.exceptions import NoPermissionError

from stream_rater.adapters.access import cause_in, trouble_of
from stream_rater.adapters.kafka.topics import Topics
from stream_rater.adapters.redis.client import translated_failures
from stream_rater.config.settings import Settings
from stream_rater.contract.errors import CAUSES, Cause, Denied, LogTrouble, StoreTrouble
from stream_rater.contract.events import ESTIMATORS
from stream_rater.pipeline.ports import Effect, Poll, ReadPriors
from stream_rater.runtime import log
from stream_rater.runtime import service as service_module
from stream_rater.runtime.metrics import Metrics
from stream_rater.runtime.observer import (
    MAX_UNFINISHED,
    PROGRESS_EVERY_S,
    CorrectionReports,
    Lag,
    ServiceObserver,
)
from stream_rater.runtime.service import QUIET_S, Recovery, Role, Service, keep_asking, other_counts
from tests.builders.cases import cases
from tests.builders.consumers import Client, input_with

READ, PAUSE = Poll(0.0), Poll(0.0, no_fetch=True)
AT = "sasl_ssl://127.0.0.1:9093/bootstrap"
OF_KAFKA: list[tuple[int, str, Cause]] = [
    # librdkafka 2.x at a TLS listener that was stopped, that broke off, that was cut off
    (KafkaError._ALL_BROKERS_DOWN, f"1/1 brokers are down: {AT}: Connect to ipv4#127.0.0.1:9093 "
     "failed: Connection refused (after 0ms in state CONNECT)", "kafka"),
    (KafkaError._TRANSPORT, "ssl://127.0.0.1:9093/1: Disconnected: SSL connection closed by peer "
     "(after 0ms in state SSL_HANDSHAKE)", "kafka"),
    (KafkaError._TRANSPORT, "ssl://127.0.0.1:9093/1: SSL handshake failed: Disconnected: "
     "connection reset by peer: connecting to a PLAINTEXT broker listener? (after 28ms in state "
     "SSL_HANDSHAKE)", "kafka"),
    (KafkaError._SSL, "ssl://127.0.0.1:9093/1: SSL handshake failed: error:0A000126:SSL routines::"
     "unexpected eof while reading (after 3ms in state SSL_HANDSHAKE)", "kafka"),
    (KafkaError._TIMED_OUT, f"{AT}: 5 request(s) timed out: disconnect (after 9ms in state UP)",
     "kafka"),
    # ... whose certificate is another authority's, and that wants one of ours
    (KafkaError._ALL_BROKERS_DOWN, f"1/1 brokers are down: {AT}: SSL handshake failed: "
     "error:0A000086:SSL routines::certificate verify failed: broker certificate could not be "
     "verified, verify that ssl.ca.location is correctly configured (after 1ms in state "
     "SSL_HANDSHAKE)", "tls"),
    (KafkaError._TRANSPORT, "ssl://127.0.0.1:9093/1: Receive failed: error:0A00045C:SSL routines::"
     "tlsv13 alert certificate required: SSL alert number 116 (after 13ms in state "
     "APIVERSION_QUERY)", "tls"),
    # ... that does not know the user, and that knows too well what they may not
    (KafkaError._AUTHENTICATION, f"{AT}: SASL authentication error: Authentication failed during "
     "authentication due to invalid credentials with SASL mechanism SCRAM-SHA-512 (after 305ms in "
     "state AUTH_REQ)", "denied"),
    (KafkaError.TOPIC_AUTHORIZATION_FAILED, "Broker: Topic authorization failed", "denied"),
]  # fmt: skip
"""Errors of librdkafka: code, text, and the cause."""

OF_REDIS: list[tuple[Exception, Exception | None, Cause]] = [
    (redis.ConnectionError("Error 111 connecting to 127.0.0.1:6379. Connection refused."),
     ConnectionRefusedError(111, "Connection refused"), "redis"),
    (redis.ConnectionError("Connection closed by server."), None, "redis"),
    (redis.ConnectionError("Error 8 connecting to 127.0.0.1:6379."), ssl.SSLEOFError(
        8, "[SSL: UNEXPECTED_EOF_WHILE_READING] EOF occurred in violation of protocol"), "redis"),
    (redis.ConnectionError("Error 1 connecting to 127.0.0.1:6379."), ssl.SSLCertVerificationError(
        1, "[SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed"), "tls"),
    (redis.ConnectionError("Error 1 connecting to 127.0.0.1:6379."), ssl.SSLError(
        1, "[SSL: TLSV13_ALERT_CERTIFICATE_REQUIRED] tlsv13 alert certificate required"), "tls"),
    (redis.AuthenticationError("invalid username-password pair or user is disabled."), None,
     "denied"),
    (redis.ResponseError("NOAUTH Authentication required."), None, "denied"),
    (NoPermissionError("User u has no permissions to run the 'fcall' command"), None,
     "denied"),
]  # fmt: skip
"""Errors of redis-py, the error that each follows from, and the cause."""


@cases(("code", "text", "cause"), OF_KAFKA)
def test_errors_of_kafka_carry_their_cause(code: int, text: str, cause: Cause) -> None:
    """A connection that breaks is no matter of certificates, however it was secured."""
    found = trouble_of(KafkaError(code, text))
    assert (str(found), found.cause) == (f"kafka: {text}", cause)


@cases(("error", "under", "cause"), OF_REDIS)
def test_errors_of_redis_carry_their_cause(error: Exception, under: Any, cause: Cause) -> None:
    """By the error that the client's error follows from."""
    error.__context__ = under
    with pytest.raises((StoreTrouble, Denied)) as found, translated_failures():
        raise error
    assert isinstance(found.value, StoreTrouble | Denied) and found.value.cause == cause


def test_our_own_errors_have_a_cause() -> None:
    """Each is one for which the metric has a label."""
    assert {LogTrouble("x").cause, StoreTrouble("x").cause, Denied("x").cause} < set(CAUSES)
    assert LogTrouble("3/3 brokers are down").cause == "kafka"
    assert cause_in("SASL authentication error: no such user") == "denied", "from a log line"
    assert pickle.loads(pickle.dumps(LogTrouble("x", "tls"))).cause == "tls", "to another process"


def test_a_role_that_is_denied_is_counted() -> None:
    """Before the process ends, for whoever scrapes it until then."""
    metrics, ended = Metrics(), threading.Event()
    observer = ServiceObserver(metrics, "updater", log.logger("updater"))
    worker: Any = SimpleNamespace(perform=Mock(side_effect=Denied("kafka: x")), input=Mock())
    machine: Any = (each for each in [READ])
    role = Role("updater", worker, observer, machine)
    role.drive(lambda _: ended.set())
    assert isinstance(role.failure, Denied) and ended.is_set()
    labels = {"role": "updater", "cause": "denied"}
    assert metrics.registry.get_sample_value("stream_rater_restarts_total", labels) == 1.0


class Watch:
    """A recovery with a clock that a test moves, and what it reported."""

    def __init__(self) -> None:
        self.now_s = 100.0
        self.reported: list[float] = []
        self.recovery = Recovery(lambda: self.now_s, self.reported.append)

    def effects(self, *outcomes: tuple[Effect[Any], bool]) -> None:
        """A second apart, each a success or not."""
        for effect, works in outcomes:
            self.now_s += 1.0
            (self.recovery.succeeded if works else self.recovery.failed)(effect)


def test_when_a_role_works_again() -> None:
    """It does once what failed has succeeded, or after a while, as that may not be tried again."""
    watch, priors = Watch(), ReadPriors({})
    watch.effects((READ, True), (priors, False), (PAUSE, True), (READ, True), (priors, False))
    watch.effects((PAUSE, True), (READ, True), (priors, True))
    assert watch.reported == []
    watch.effects((READ, True), (READ, True))
    assert watch.reported == [7.0], "from the first trouble on, and once"
    watch = Watch()
    watch.effects((ReadPriors({}), False), *[(READ, True)] * int(QUIET_S))
    assert watch.reported == [QUIET_S]


@pytest.fixture
def lines(monkeypatch: pytest.MonkeyPatch) -> Iterator[io.StringIO]:
    written = io.StringIO()
    monkeypatch.setattr(sys, "stderr", written)
    log.configure()
    yield written
    structlog.reset_defaults()


def test_the_log_says_what_recovered(lines: io.StringIO) -> None:
    """One line for a role, and one for each shard of an emptied Redis, with all its updates."""
    perform = Mock(side_effect=[StoreTrouble("redis: gone"), None, None, KeyboardInterrupt])

    def machine() -> Any:
        try:
            yield ReadPriors({})
        except StoreTrouble:
            yield ReadPriors({})
        while True:
            yield READ

    worker: Any = SimpleNamespace(perform=perform, input=Mock())
    observer = ServiceObserver(Metrics(), "updater", log.logger("updater"))
    Role("updater", worker, observer, machine()).drive(lambda _: None)
    for end, rows in ((5, 40), (9, 2)):
        observer.beliefs_applied(3, end, rows, 0, refilled=True)
    observer.shard_refilled(3, 9)
    role, shard = [json.loads(line) for line in lines.getvalue().splitlines()]
    assert role["event"] == "recovered" and role["after_s"] >= 0.0
    assert shard["event"] == "shard refilled from the log"
    assert (shard["shard"], shard["offset"], shard["updates"]) == (3, 9, 42)


def test_a_trouble_is_logged_when_it_changes(lines: io.StringIO) -> None:
    """Not at each new start, nor when an old reason comes back. The counter has them all."""
    metrics = Metrics()
    observer = ServiceObserver(metrics, "updater", log.logger("updater"))
    for _ in range(2):
        for reason in ("redis: gone (1 ms)", "redis: still loading", "redis: gone (20 ms)"):
            observer.started_over(StoreTrouble(reason))
        observer.recovered(1.0)
    said = [json.loads(line) for line in lines.getvalue().splitlines()]
    once = ["redis: gone (1 ms)", "redis: still loading", None]
    assert [each.get("reason") for each in said] == once * 2
    labels = {"role": "updater", "cause": "redis"}
    assert metrics.registry.get_sample_value("stream_rater_restarts_total", labels) == 6.0
    for i in range(200):
        observer.started_over(StoreTrouble("x" * i))
    assert len(lines.getvalue().splitlines()) == len(said) + 100


def test_the_log_says_when_a_server_does_not_answer(
    lines: io.StringIO, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has a line each time this changes, with the reason or, at the end, the seconds; the metric
    shows it at any time."""
    monkeypatch.setattr(service_module, "ASK_EVERY_S", 0.0)
    monkeypatch.setattr(time, "monotonic", iter([1.0, 4.5]).__next__)
    metrics, stop, seen = Metrics(), threading.Event(), list[float | None]()
    gone = StoreTrouble("redis: gone")
    outcomes = iter([None, gone, gone, ZeroDivisionError("x"), None, None])

    def ask() -> None:
        seen.append(metrics.registry.get_sample_value("stream_rater_dependency_up", labels))
        outcome = next(outcomes, stop)
        if outcome is stop:
            stop.set()
        elif isinstance(outcome, Exception):
            raise outcome

    labels = {"dependency": "redis"}
    keep_asking("redis", ask, metrics.answers.labels("redis"), stop)
    assert seen == [0.0, 1.0, 0.0, 0.0, 0.0, 1.0, 1.0]
    said = [json.loads(line) for line in lines.getvalue().splitlines()]
    assert [(each["event"], each.get("reason"), each.get("after_s")) for each in said] == [
        ("redis does not answer", "redis: gone", None), ("redis answers again", None, 3.5),
    ]  # fmt: skip


@pytest.mark.parametrize("read", [True, False])
def test_the_lag_rises_while_nothing_is_polled(read: bool) -> None:
    """Kafka is asked for ends and offsets whatever roles do. Unattended is what nobody commits."""
    names = Topics.of(Settings())
    partitions = {names.rounds: 2, names.parts: 3, names.changed: 3, names.rejected: 1}
    ends = {name: [9] * count for name, count in partitions.items()}
    committed: dict[int, int | None] = {0: 4, 1: None}
    admin = SimpleNamespace(
        topics=names, all_ends=ends.__getitem__,
        committed=lambda *asked: committed if asked == (ESTIMATORS, names.rounds, 2) else {},
    )  # fmt: skip
    metrics, lag = Metrics(), Lag()
    metrics.registry.register(lag)
    with input_with(Client()) as input_:
        input_.topic, input_.group = names.rounds, ESTIMATORS
        if read:
            input_.seek({0: 4})
        observer = ServiceObserver(metrics, "estimator", log.logger("estimator"))
        observer.positions({0: 4})
        lag.add(names.rounds, input_.ends, observer, corrections=True)
        driver: Any = SimpleNamespace(input=input_)
        nothing: Any = None
        roles = [Role("estimator", driver, observer, nothing)]
        service: Any = SimpleNamespace(_admin=admin, _roles=roles, metrics=metrics)
        for end in (9, 1909):
            ends[names.rounds][0] = end
            Service._ask_kafka(service)
            of_one = {"topic": names.rounds, "partition": "0"}
            found = metrics.registry.get_sample_value("stream_rater_lag_records", of_one)
            assert found == end - 4 == roles[0].lag()
        for name, total in ((names.rounds, 1918.0), (names.changed, 27.0), (names.rejected, 9.0)):
            of_topic = {"topic": name}
            ended = metrics.registry.get_sample_value("stream_rater_log_end_offset", of_topic)
            assert ended == total
        of_role = {"role": "estimator"}
        for end, at, unattended in ((9, None, 0), (11, 5, 0), (12, 5, 1), (12, 11, 0)):
            ends[names.rounds][1], committed[1] = end, at
            Service._ask_kafka(service)
            found = metrics.registry.get_sample_value("stream_rater_unattended", of_role)
            assert found == unattended


def test_how_long_the_oldest_record_waits() -> None:
    """Of any partition, from when its offset was first seen. One record may be a marker."""
    nothing: Any = None
    driver: Any = SimpleNamespace(input=SimpleNamespace(log_ends={}))
    role = Role("estimator", driver, nothing, nothing)
    for now_s, ends, committed, waited_s in (
        (10.0, [5, 7], [4, None], 0.0), (20.0, [6, 7], [4, 6], 0.0), (30.0, [9, 8], [4, 6], 10.0),
        (40.0, [9, 8], [6, 6], 10.0), (50.0, [9, 8], [9, 6], 20.0), (60.0, [9, 8], [9, 7], 0.0),
        (70.0, [9, 9], [9, 7], 0.0),
    ):  # fmt: skip
        driver.input.log_ends = dict(enumerate(ends))
        assert role.oldest_s(dict(enumerate(committed)), now_s) == waited_s, now_s


def test_a_count_that_is_not_the_topics_is_reported() -> None:
    """Where it was set: who says nothing takes what there is."""
    topics = Topics.of(Settings())
    there = {topics.rounds: 4, topics.parts: 4}
    (line,) = other_counts(Settings(shards=8), topics, there)
    assert line.startswith("STREAM_RATER_SHARDS is 8, but performance-estimated has 4 partitions")
    assert list(other_counts(Settings(shards=4, partitions=4), topics, there)) == []
    assert list(other_counts(Settings(), topics, {topics.rounds: 9, topics.parts: 9})) == []
    (line,) = other_counts(Settings(partitions=2), topics, there)
    assert line.startswith("STREAM_RATER_PARTITIONS is 2, but round-completed has 4")


def test_ready_is_logged_once() -> None:
    """When /readyz would say so for the first time, and not before."""
    asked, said = Mock(side_effect=[["not yet"], ["not yet"], []]), list[tuple[int, str]]()
    starting: Any = SimpleNamespace(
        unready=asked, _roles=[], _stop=Mock(wait=Mock(side_effect=[*[False] * 9, True])),
        log=Mock(info=lambda event: said.append((asked.call_count, event))),
    )  # fmt: skip
    assert Service._wait_for(starting, []) == []
    assert said == [(3, "ready")]


PLACE = {"ladder": "eu", "partition": 1, "offset": 90}


def test_a_correction_has_lines_and_progress() -> None:
    """A line at each end, and few between. Progress is below one until everything is sent."""
    now, lines = [100.0], list[dict[str, Any]]()
    log: Any = SimpleNamespace(info=lambda event, **more: lines.append({"event": event, **more}))
    reports = CorrectionReports(log, lambda: now[0])
    for progress in (0.0, 0.1, 0.2, 0.5, 0.6):
        reports.progressed("eu", 1, 90, progress)
        now[0] += 0.4 * PROGRESS_EVERY_S
    reports.done("eu", 1, 90, 2)
    assert lines == [
        {"event": "correcting", **PLACE},
        {"event": "correcting", **PLACE, "done": "50%"},
        {"event": "corrected", **PLACE, "refused": 2, "took_s": 20.0},
    ]
    reports = CorrectionReports(log, lambda: 0.0)
    assert reports.progress(1) == 1.0
    reports.progressed("eu", 1, 90, 0.25)
    reports.progressed("us", 2, 40, 1.0)
    assert [reports.progress(p) for p in (0, 1, 2)] == [1.0, 0.25, MAX_UNFINISHED]
    reports.keep_only({2})
    reports.done("us", 2, 40, 0)
    assert [reports.progress(p) for p in (1, 2)] == [1.0, 1.0]


@cases("interrupted", [False, True])
def test_a_correction_is_counted_once_it_is_finished(interrupted: bool) -> None:
    """A correction that starts over reports no progress."""
    metrics, lag, log = Metrics(), Lag(), structlog.get_logger()
    observer = ServiceObserver(metrics, "estimator", log)
    metrics.registry.register(lag)
    lag.add("rounds", lambda: {1: 95}, observer, corrections=True)
    lag.add("parts", lambda: {1: 95}, observer, corrections=False)

    def progress(topic: str) -> float | None:
        labels = {"topic": topic, "partition": "1"}
        return metrics.registry.get_sample_value("stream_rater_correction_progress", labels)

    observer.correcting("eu", 1, 90, 0.5)
    assert (progress("rounds"), progress("parts")) == (0.5, None)
    if interrupted:
        observer.started_over(LogTrouble("kafka: gone"))
    else:
        observer.corrected("eu", 1, 90, 0)
    assert progress("rounds") == 1.0
    found = metrics.registry.get_sample_value("stream_rater_corrections_total")
    assert found == float(not interrupted)
