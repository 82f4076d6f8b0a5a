"""Causes of failures: errors of the clients, as they really are, and the metric that counts."""

import pickle
import socket
import ssl
import threading
from types import SimpleNamespace
from typing import Any

import pytest
import redis
from confluent_kafka import KafkaError
from redis.exceptions import NoPermissionError

from stream_rater.adapters.access import cause_in, trouble_of
from stream_rater.adapters.redis.client import connect, translated_failures
from stream_rater.config.settings import Settings
from stream_rater.contract.errors import CAUSES, Cause, Denied, LogTrouble, StoreTrouble
from stream_rater.pipeline.ports import Poll
from stream_rater.runtime import log
from stream_rater.runtime.metrics import Metrics, ServiceObserver
from stream_rater.runtime.service import Role
from tests.builders.cases import cases

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
def test_errors_of_redis_carry_their_cause(
    error: Exception, under: Exception | None, cause: Cause
) -> None:
    """By the error that the client's error follows from."""
    error.__context__ = under
    with pytest.raises((StoreTrouble, Denied)) as found, translated_failures():
        raise error
    assert isinstance(found.value, StoreTrouble | Denied) and found.value.cause == cause


def test_redis_py_keeps_the_error_that_its_own_follows_from() -> None:
    """Here that of a handshake with a server that does not speak TLS."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer() -> None:
            with server.accept()[0] as connection:
                connection.sendall(b"-ERR this is no TLS\r\n" * 100)
                connection.recv(1000)

        threading.Thread(target=answer, daemon=True).start()
        client = connect(Settings(redis=f"rediss://127.0.0.1:{server.getsockname()[1]}"))
        with pytest.raises(StoreTrouble) as found, translated_failures():
            client.ping()
    assert found.value.cause == "tls"


def test_our_own_errors_have_a_cause() -> None:
    """Each is one for which the metric has a label."""
    assert {LogTrouble("x").cause, StoreTrouble("x").cause, Denied("x").cause} < set(CAUSES)
    assert LogTrouble("3/3 brokers are down").cause == "kafka"
    assert cause_in("SASL authentication error: no such user") == "denied", "from a log line"
    assert pickle.loads(pickle.dumps(LogTrouble("x", "tls"))).cause == "tls", "to another process"


def test_a_role_that_is_denied_is_counted() -> None:
    """Before the process ends, for whoever scrapes it until then."""

    def denied(_: object) -> None:
        raise Denied("kafka: Broker: Topic authorization failed")

    metrics, ended = Metrics(), threading.Event()
    observer = ServiceObserver(metrics, "updater", log.logger("updater"))
    worker: Any = SimpleNamespace(perform=denied, input=SimpleNamespace(close=lambda: None))

    def machine() -> Any:
        yield Poll(0.0)

    role = Role("updater", worker, observer, machine())
    role.drive(lambda _: ended.set())
    assert isinstance(role.failure, Denied) and ended.is_set()
    labels = {"role": "updater", "cause": "denied"}
    assert metrics.registry.get_sample_value("stream_rater_restarts_total", labels) == 1.0
