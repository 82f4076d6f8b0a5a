"""Makes Kafka's clients with their options, translates their errors to the exceptions that the
state machines handle, and waits for their calls."""

import logging
import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any, TypeVar

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from stream_rater.adapters import logins
from stream_rater.adapters.logins import TOKEN_SETTING, WITH_PASSWORD, WITH_TOKEN, TokenFailure
from stream_rater.config.errors import BadConfiguration
from stream_rater.config.settings import PREFIX, Settings
from stream_rater.contract.errors import Cause, Denied, LogTrouble, Regrouped, Unled

CLIENT_LOGGER = logging.getLogger("stream_rater.librdkafka")
"""The logger of librdkafka. It prints nothing: important failures return as errors."""
CLIENT_LOGGER.addHandler(logging.NullHandler())
CLIENT_LOGGER.propagate = False

PROTOCOLS = ("plaintext", "ssl", "sasl_plaintext", "sasl_ssl")
UNAUTHENTICATED = frozenset({KafkaError.SASL_AUTHENTICATION_FAILED, KafkaError._AUTHENTICATION})
"""Errors of a wrong password or token. A retry may cure them if what is shown can change."""

DENIALS = UNAUTHENTICATED | {
    KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.GROUP_AUTHORIZATION_FAILED,
    KafkaError.CLUSTER_AUTHORIZATION_FAILED, KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    KafkaError.INVALID_TRANSACTION_TIMEOUT, KafkaError.INVALID_SESSION_TIMEOUT,
}  # fmt: skip
"""Errors that a retry does not cure, unless they are of UNAUTHENTICATED."""

REGROUPED = frozenset({KafkaError.ILLEGAL_GENERATION, KafkaError.REBALANCE_IN_PROGRESS})
"""Errors to a member that the group still knows; an unknown one gets `UNKNOWN_MEMBER_ID`."""
UNLED = frozenset({
    KafkaError.LEADER_NOT_AVAILABLE, KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError.REPLICA_NOT_AVAILABLE,
    KafkaError.OFFSET_NOT_AVAILABLE, KafkaError.FENCED_LEADER_EPOCH,
    KafkaError.UNKNOWN_LEADER_EPOCH, KafkaError.KAFKA_STORAGE_ERROR,
})  # fmt: skip
"""Errors while a partition has no leader, or while a broker does not know the leader or topic."""
TOO_LARGE = frozenset({KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.RECORD_LIST_TOO_LARGE})
"""Errors that a retry cures only after the topic accepts larger messages."""

CURES: Mapping[int, str] = {
    **dict.fromkeys(TOO_LARGE, "raise max.message.bytes of the topic"),
    KafkaError.INVALID_REPLICATION_FACTOR: f"{PREFIX}REPLICATION must not exceed the brokers",
    KafkaError.INVALID_TRANSACTION_TIMEOUT: f"lower {PREFIX}TRANSACTION_TIMEOUT_MS, or raise "
    "transaction.max.timeout.ms of the brokers to it",
    KafkaError.INVALID_SESSION_TIMEOUT: f"{PREFIX}SESSION_TIMEOUT_MS must lie within "
    "group.min.session.timeout.ms and group.max.session.timeout.ms of the brokers",
}
"""What helps where a setting of ours and one of the brokers do not fit together."""

LARGEST_RESPONSE_BYTES = 100_000_000
"""The most bytes of one fetch response, and of one batch after decompression. A larger batch cannot
be read. The limit decides verdicts on records, so every reader of the log uses the same one."""

CALLBACK_FAILURES = (KafkaException, SystemError)
"""The exceptions of a call that serves callbacks. If the client has already set its exception when
it calls back, the callback ends with a SystemError whose cause is that exception."""


def trouble_of(error: BaseException | KafkaError | None) -> LogTrouble | Denied:
    """Translate a client's error into the exception that a state machine handles."""
    if isinstance(error, SystemError):
        return trouble_of(error.__cause__)
    if isinstance(error, TokenFailure):
        return refused(f"kafka: {error}")
    inner = error.args[0] if isinstance(error, KafkaException) else error
    if not isinstance(inner, KafkaError):
        return LogTrouble(f"kafka: {inner}")
    cure = f": {CURES[inner.code()]}" if inner.code() in CURES else ""
    reason = f"kafka: {inner.str()}{cure}"
    if inner.code() in UNAUTHENTICATED:
        return refused(reason)
    if inner.code() in DENIALS:
        return Denied(reason)
    kind = Regrouped if inner.code() in REGROUPED else LogTrouble
    kind = Unled if inner.code() in UNLED else kind
    return kind(reason, cause_in(inner.str()))


def code_of(error: BaseException | None) -> int | None:
    """The code of an exception of the client; None for any other exception."""
    code: int | None = error.args[0].code() if isinstance(error, KafkaException) else None
    return code


def refused(reason: str) -> LogTrouble | Denied:
    """The exception after Kafka has refused what this process has shown."""
    done = logins.after_refusal()
    return LogTrouble(f"{reason}: {done}", "denied") if done else Denied(reason)


TLS_WORDS = "certificate", "ssl alert", "ssl routines::"
DENIAL_WORDS = "authenticat", "authoriz"


def cause_in(text: str) -> Cause:
    """The cause of a failed connection, from librdkafka's text about it. The code of the error does
    not show the cause. A certificate that the broker rejects in TLS 1.3 is reported as
    `_TRANSPORT`. If all brokers are down, the last failure is only in the text of
    `_ALL_BROKERS_DOWN`. A log line has no code. OpenSSL reports the end of a connection as an error
    of its own, which does not concern certificates. Addresses (`sasl_ssl://...`) are ignored."""
    words = " ".join(word for word in text.lower().split() if "://" not in word)
    if any(each in words for each in TLS_WORDS) and "unexpected eof" not in words:
        return "tls"
    return "denied" if any(each in words for each in DENIAL_WORDS) else "kafka"


def raise_first(partitions: Iterable[TopicPartition]) -> None:
    """Raise the first error of a call that succeeded but failed for single partitions."""
    for each in partitions:
        if each.error is not None:
            raise trouble_of(each.error)


@contextmanager
def translated_failures() -> Iterator[None]:
    """Convert the exceptions of a Kafka client into LogTrouble and Denied."""
    try:
        yield
    except CALLBACK_FAILURES as error:
        raise trouble_of(error) from None


# --- clients --------------------------------------------------------------------------------------

T = TypeVar("T")
Client = TypeVar("Client", Producer, Consumer, AdminClient)


class _Producer(Producer):
    """A producer that can be referred to weakly."""


class _Consumer(Consumer):
    """A consumer that can be referred to weakly."""


def new_producer(
    settings: Settings, options: Mapping[str, Any], logger: logging.Logger = CLIENT_LOGGER
) -> Producer:
    """A producer with these properties. Raises as all of these functions do: BadConfiguration, or
    LogTrouble or Denied if there is no token."""
    return _new(_Producer, settings, options, logger)


def new_consumer(settings: Settings, options: Mapping[str, Any]) -> Consumer:
    """A consumer with these properties."""
    return _new(_Consumer, settings, options, CLIENT_LOGGER)


def new_admin(settings: Settings, options: Mapping[str, Any]) -> AdminClient:
    """A client for Kafka's admin API with these properties."""
    return _new(AdminClient, settings, options, CLIENT_LOGGER)


def _new(
    kind: Callable[..., Client], settings: Settings, options: Mapping[str, Any],
    logger: logging.Logger,
) -> Client:  # fmt: skip
    """A client that shows who it is by the present password or token."""
    login, given = logins.login_of(settings), dict(options)
    if login is not None:
        given["error_cb"] = noting_refusals(options.get("error_cb"))
    try:
        if token := given.get("oauth_cb"):
            # The client waits 10 s for its first token, and does not say why there is none.
            token(given.get("sasl.oauthbearer.config", ""))
        client = kind(given, logger=logger)
    except TokenFailure as failure:
        raise trouble_of(failure) from None
    except KafkaException as error:
        if error.args[0].code() in UNAUTHENTICATED:  # no token came within 10 s
            raise trouble_of(error) from None
        raise BadConfiguration(f"kafka: {error.args[0].str()}") from None
    if login is not None:
        login.adopt(client, settings.kafka_sasl_password)
    return client


def noting_refusals(then: Callable[[KafkaError], None] | None) -> Callable[[KafkaError], None]:
    """A callback that lets the password be read again if Kafka has refused it, and passes the error
    on. It waits for no lock: a client calls back in whatever thread uses it or deletes it, which
    may hold one."""

    def on_error(error: KafkaError) -> None:
        if error.code() in UNAUTHENTICATED:
            logins.in_a_thread(logins.after_refusal)
        if then is not None:
            then(error)

    return on_error


def client_options(settings: Settings) -> dict[str, Any]:
    """The librdkafka properties of every client."""
    port = settings.http.rpartition(":")[2]
    name = settings.instance_id or f"worker-{port if port.strip('0') else os.getpid()}"
    return {
        "bootstrap.servers": settings.kafka,
        "client.id": f"stream-rater-{name}",
        "retry.backoff.ms": 5,  # delays a transaction right after another; default 100
        "reconnect.backoff.ms": 50,
        "reconnect.backoff.max.ms": 1000,
        "log_level": 3,
        **_security(settings),
        **settings.kafka_options,
        "receive.message.max.bytes": LARGEST_RESPONSE_BYTES,
    }


def _security(settings: Settings) -> dict[str, Any]:
    protocol = settings.kafka_security_protocol.lower()
    if protocol not in PROTOCOLS:
        raise BadConfiguration(f"kafka_security_protocol must be one of {', '.join(PROTOCOLS)}")
    sasl, tls = protocol.startswith("sasl"), protocol.endswith("ssl")
    _check_complete(settings, sasl=sasl, tls=tls)
    given: dict[str, Any] = {"security.protocol": protocol if sasl or tls else ""}
    if settings.kafka_token:
        given["oauth_cb"] = logins.token_function(settings.kafka_token)
    if sasl:
        given |= {
            "sasl.mechanism": settings.kafka_sasl_mechanism,
            "sasl.username": settings.kafka_sasl_username,
            "sasl.password": settings.kafka_sasl_password,
        }
    if tls:
        given |= {
            "ssl.ca.location": settings.kafka_ssl_ca, "ssl.key.location": settings.kafka_ssl_key,
            "ssl.certificate.location": settings.kafka_ssl_certificate,
        }  # fmt: skip
    return {name: value for name, value in given.items() if value}


def _check_complete(settings: Settings, *, sasl: bool, tls: bool) -> None:
    """Raise BadConfiguration for settings that contradict each other."""
    named = bool(settings.kafka_sasl_username), bool(settings.kafka_sasl_password)
    if sasl and settings.kafka_sasl_mechanism.upper().startswith(WITH_PASSWORD) and not all(named):
        raise BadConfiguration("SASL needs kafka_sasl_username and kafka_sasl_password")
    if any(named) and not (sasl or "security.protocol" in settings.kafka_options):
        raise BadConfiguration(
            "kafka_sasl_username is set, but kafka_security_protocol has no SASL"
        )
    with_token = sasl and settings.kafka_sasl_mechanism.upper() == WITH_TOKEN
    if settings.kafka_token and not with_token:
        raise BadConfiguration(
            f"{TOKEN_SETTING} is set: give kafka_security_protocol with SASL, and "
            f"kafka_sasl_mechanism={WITH_TOKEN}"
        )
    if settings.kafka_ssl_ca and not (tls or "security.protocol" in settings.kafka_options):
        raise BadConfiguration("kafka_ssl_ca is set, but kafka_security_protocol has no TLS")


# --- waits in slices ------------------------------------------------------------------------------
# A worker that is asked to stop does not wait for the whole time-out: at most for STOP_GRACE_S.

SLICE_S = 0.25  # The length of a slice. A wait notices a request to stop after each slice.
STOP_GRACE_S = 3.0  # The longest time that a wait continues after the worker is asked to stop.
ABANDON_S = 10.0  # How far a call may exceed its time-out before it counts as hanging.


def call_or_abandon(action: Callable[[], T], timeout_s: float) -> T:
    """Call `action` in a thread of its own, which is left behind if it does not return within
    `timeout_s` and ABANDON_S. Raises LogTrouble then, and what `action` raises. librdkafka's
    `send_offsets_to_transaction` may hang after a broken connection (its issue 5456), whatever
    time-out it is given. Its producer must not be used again."""
    outcome: Future[T] = Future()

    def run() -> None:
        try:
            outcome.set_result(action())
        except BaseException as error:
            outcome.set_exception(error)

    threading.Thread(target=run, name="send-offsets", daemon=True).start()
    most_s = timeout_s + ABANDON_S
    try:
        return outcome.result(most_s)
    except TimeoutError:
        raise LogTrouble(f"kafka: a call did not return within {most_s:g} s") from None


class Deadlines:
    """Waits up to a time-out, or up to STOP_GRACE_S once the worker is asked to stop."""

    def __init__(self, stop: threading.Event | None = None) -> None:
        self._stop = stop or threading.Event()

    def slices(self, timeout_s: float) -> Iterator[float]:
        """Yield the seconds of each slice until the time-out is over."""
        end_s = time.monotonic() + timeout_s
        is_stopping = False
        while (left_s := end_s - time.monotonic()) > 0.0:
            if self._stop.is_set() and not is_stopping:
                is_stopping = True
                left_s = min(left_s, STOP_GRACE_S)
                end_s = time.monotonic() + left_s
            yield min(SLICE_S, left_s)

    def call(self, timeout_s: float, action: Callable[[float], T]) -> T:
        """Call `action` with a slice until it succeeds. Raises LogTrouble or Denied."""
        trouble: Exception = LogTrouble("kafka: no time was left for the call")
        for slice_s in self.slices(timeout_s):
            next_s = time.monotonic() + slice_s
            try:
                return action(slice_s)
            except KafkaException as error:
                trouble, inner = trouble_of(error), error.args[0]
                if not isinstance(inner, KafkaError) or not (
                    inner.code() == KafkaError._TIMED_OUT or inner.retriable()
                ):
                    break
            time.sleep(max(0.0, next_s - time.monotonic()))  # where the call returned early
        raise trouble
