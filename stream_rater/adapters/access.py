"""Security options of the Kafka and Redis clients, and the mapping of Kafka's errors to the
machines' exceptions."""

import logging
import ssl
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import parse_qs

from confluent_kafka import KafkaError, KafkaException, TopicPartition

from stream_rater.config.errors import BadConfiguration
from stream_rater.config.files import check_readable
from stream_rater.config.settings import Settings
from stream_rater.contract.errors import Cause, Denied, LogTrouble, Regrouped

CLIENT_LOGGER = logging.getLogger("stream_rater.librdkafka")
"""The logger of librdkafka. It prints nothing. Important failures return as errors, which the
service logs once."""
CLIENT_LOGGER.addHandler(logging.NullHandler())
CLIENT_LOGGER.propagate = False

PROTOCOLS = ("plaintext", "ssl", "sasl_plaintext", "sasl_ssl")
WITH_PASSWORD = ("PLAIN", "SCRAM-")

DENIALS = frozenset(
    {
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.GROUP_AUTHORIZATION_FAILED,
        KafkaError.CLUSTER_AUTHORIZATION_FAILED,
        KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        KafkaError.SASL_AUTHENTICATION_FAILED,
        KafkaError._AUTHENTICATION,
    }
)
"""Errors that a retry does not cure."""

REGROUPED = frozenset({KafkaError.ILLEGAL_GENERATION, KafkaError.REBALANCE_IN_PROGRESS})
"""Errors after which the group still knows this member. For an unknown member, the broker returns
`UNKNOWN_MEMBER_ID`."""

TOO_LARGE = frozenset({KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.RECORD_LIST_TOO_LARGE})
"""Errors that a retry cures only after the topic accepts larger messages."""

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
    inner = error.args[0] if isinstance(error, KafkaException) else error
    if not isinstance(inner, KafkaError):
        return LogTrouble(f"kafka: {inner}")
    cure = ": raise max.message.bytes of the topic" if inner.code() in TOO_LARGE else ""
    reason = f"kafka: {inner.str()}{cure}"
    if inner.code() in DENIALS:
        return Denied(reason)
    kind = Regrouped if inner.code() in REGROUPED else LogTrouble
    return kind(reason, cause_in(inner.str()))


TLS_WORDS = "certificate", "ssl alert", "ssl routines::"
DENIAL_WORDS = "authenticat", "authoriz"


def cause_in(text: str) -> Cause:
    """The cause of a failed connection, from librdkafka's text about it.

    The code of the error does not show the cause. A certificate that the broker rejects in TLS 1.3
    is reported as `_TRANSPORT`. If all brokers are down, the last failure is only in the text of
    `_ALL_BROKERS_DOWN`. A log line has no code. OpenSSL reports the end of a connection as an error
    of its own, which does not concern certificates. Addresses (`sasl_ssl://...`) are ignored.
    """
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


def client_options(settings: Settings) -> dict[str, Any]:
    """The librdkafka properties of every client."""
    return {
        "bootstrap.servers": settings.kafka,
        "client.id": f"stream-rater-{settings.instance_id or 'worker'}",
        "retry.backoff.ms": 5,  # delays a transaction right after another; default 100
        "reconnect.backoff.ms": 50,
        "reconnect.backoff.max.ms": 1000,
        "log_level": 3,
        **_security(settings),
        **settings.kafka_options,
        "receive.message.max.bytes": LARGEST_RESPONSE_BYTES,
    }


def _security(settings: Settings) -> dict[str, str]:
    protocol = settings.kafka_security_protocol.lower()
    if protocol not in PROTOCOLS:
        raise BadConfiguration(f"kafka_security_protocol must be one of {', '.join(PROTOCOLS)}")
    sasl, tls = protocol.startswith("sasl"), protocol.endswith("ssl")
    _check_complete(settings, sasl=sasl, tls=tls)
    given = {"security.protocol": protocol if sasl or tls else ""}
    if sasl:
        given |= {
            "sasl.mechanism": settings.kafka_sasl_mechanism,
            "sasl.username": settings.kafka_sasl_username,
            "sasl.password": settings.kafka_sasl_password,
        }
    if tls:
        given |= {
            "ssl.ca.location": settings.kafka_ssl_ca,
            "ssl.certificate.location": settings.kafka_ssl_certificate,
            "ssl.key.location": settings.kafka_ssl_key,
        }
    return {name: value for name, value in given.items() if value}


def _check_complete(settings: Settings, *, sasl: bool, tls: bool) -> None:
    """Raise BadConfiguration for contradictory settings, which would connect in an unintended
    way."""
    named = bool(settings.kafka_sasl_username), bool(settings.kafka_sasl_password)
    if sasl and settings.kafka_sasl_mechanism.upper().startswith(WITH_PASSWORD) and not all(named):
        raise BadConfiguration("SASL needs kafka_sasl_username and kafka_sasl_password")
    if any(named) and not (sasl or "security.protocol" in settings.kafka_options):
        raise BadConfiguration(
            "kafka_sasl_username is set, but kafka_security_protocol has no SASL"
        )
    if settings.kafka_ssl_ca and not (tls or "security.protocol" in settings.kafka_options):
        raise BadConfiguration("kafka_ssl_ca is set, but kafka_security_protocol has no TLS")


RESERVED_OPTIONS = frozenset({"protocol", "decode_responses"})
"""Client options that the reading of replies depends on. No URL may set them."""


def redis_options(settings: Settings, address: str) -> dict[str, Any]:
    """Arguments of the Redis client besides the URL. The URL's scheme decides on TLS."""
    tls = address.startswith("rediss://")
    files = {
        "ssl_ca_certs": settings.redis_ca,
        "ssl_certfile": settings.redis_certificate,
        "ssl_keyfile": settings.redis_key,
    }
    if any(files.values()) and not tls:
        raise BadConfiguration(
            "redis_ca is set, but the URL in redis does not begin with rediss://"
        )
    if "@" in address and (settings.redis_username or settings.redis_password):
        raise BadConfiguration(
            "redis_username or redis_password is set, and the URL in redis names a user, too: "
            "give one of them"
        )
    if taken := RESERVED_OPTIONS & parse_qs(address.partition("?")[2]).keys():
        raise BadConfiguration(f"the URL in redis must not set {', '.join(sorted(taken))}")
    given = {"username": settings.redis_username, "password": settings.redis_password, **files}
    for path in filter(None, files.values()):
        check_readable(path)
    options: dict[str, Any] = {name: value for name, value in given.items() if value}
    return options | ({"ssl_min_version": ssl.TLSVersion.TLSv1_2} if tls else {})
