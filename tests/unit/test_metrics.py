"""stream_rater.runtime.metrics: whose trouble it is, by what the clients really say."""

import threading
from types import SimpleNamespace
from typing import Any

import pytest

from stream_rater.contract.errors import Denied
from stream_rater.pipeline.ports import Poll
from stream_rater.runtime import log
from stream_rater.runtime.causes import CAUSES, cause_of
from stream_rater.runtime.metrics import Metrics, ServiceObserver
from stream_rater.runtime.service import Role

AT = "sasl_ssl://127.0.0.1:9093/bootstrap"
REASONS = {
    # librdkafka 2.x at a TLS listener that was stopped, that broke off, that was cut off
    f"kafka: 1/1 brokers are down: {AT}: Connect to ipv4#127.0.0.1:9093 failed: Connection "
    "refused (after 0ms in state CONNECT)": "kafka",
    "kafka: ssl://127.0.0.1:9093/1: Disconnected: SSL connection closed by peer (after 0ms in "
    "state SSL_HANDSHAKE)": "kafka",
    "kafka: ssl://127.0.0.1:9093/1: SSL handshake failed: Disconnected: connection reset by peer: "
    "connecting to a PLAINTEXT broker listener? (after 28ms in state SSL_HANDSHAKE)": "kafka",
    "kafka: a transaction's end is in doubt: 3/3 brokers are down": "kafka",
    f"kafka: {AT}: 5 request(s) timed out: disconnect (after 9ms in state UP)": "kafka",
    # ... whose certificate is another authority's, and that wants one of ours
    f"kafka: 1/1 brokers are down: {AT}: SSL handshake failed: error:0A000086:SSL routines::"
    "certificate verify failed: broker certificate could not be verified, verify that "
    "ssl.ca.location is correctly configured (after 1ms in state SSL_HANDSHAKE)": "tls",
    "kafka: ssl://127.0.0.1:9093/1: Receive failed: error:0A00045C:SSL routines::tlsv13 alert "
    "certificate required: SSL alert number 116 (after 13ms in state APIVERSION_QUERY)": "tls",
    # ... that does not know the user, and that knows too well what they may not
    f"kafka: {AT}: SASL authentication error: Authentication failed during authentication due to "
    "invalid credentials with SASL mechanism SCRAM-SHA-512 (after 305ms in state AUTH_REQ)":
        "denied",
    "kafka: Broker: Topic authorization failed": "denied",
    # redis-py at the same kinds of server
    "redis: Error 111 connecting to 127.0.0.1:6379. Connection refused.": "redis",
    "redis: Connection closed by server.": "redis",
    "redis: Error 8 connecting to 127.0.0.1:6379. [SSL: UNEXPECTED_EOF_WHILE_READING] EOF occurred "
    "in violation of protocol (_ssl.c:1006).": "redis",
    "redis: Error 8 while writing to socket. EOF occurred in violation of protocol (_ssl.c:2427).":
        "redis",
    "redis: Error 1 connecting to 127.0.0.1:6379. [SSL: CERTIFICATE_VERIFY_FAILED] certificate "
    "verify failed: unable to get local issuer certificate (_ssl.c:1006).": "tls",
    "redis: Error 1 connecting to 127.0.0.1:6379. [SSL: TLSV13_ALERT_CERTIFICATE_REQUIRED] tlsv13 "
    "alert certificate required (_ssl.c:2580).": "tls",
    "redis: invalid username-password pair or user is disabled.": "denied",
    "redis: NOAUTH Authentication required.": "denied",
    "redis: User u has no permissions to run the 'fcall' command": "denied",
    # our own
    "kafka: no member of the group any more": "kafka",
    "fenced: the producer has a successor, or its transaction timed out": "kafka",
}  # fmt: skip


@pytest.mark.parametrize("reason", REASONS)
def test_whose_trouble_it_is(reason: str) -> None:
    """A connection that breaks is no matter of certificates, however it was secured."""
    assert cause_of(reason) == REASONS[reason]
    assert REASONS[reason] in CAUSES


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
    role.drive(ended.set)
    assert isinstance(role.failure, Denied) and ended.is_set()
    told = {"role": "updater", "cause": "denied"}
    assert metrics.registry.get_sample_value("stream_rater_restarts_total", told) == 1.0
