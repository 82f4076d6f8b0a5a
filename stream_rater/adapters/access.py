"""How our clients show who they are, and which answers say that they may not do what they ask."""

import logging
import ssl
from typing import Any
from urllib.parse import parse_qs

from confluent_kafka import KafkaError, KafkaException

from stream_rater.config import BadConfiguration, Settings, check_readable
from stream_rater.pipeline.ports import Denied, LogTrouble, Regrouped

QUIET = logging.getLogger("stream_rater.librdkafka")
"""librdkafka's own log: whatever matters comes back as an error, which we log once."""
QUIET.addHandler(logging.NullHandler())
QUIET.propagate = False

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
"""What asking again does not help."""

REGROUPED = frozenset({KafkaError.ILLEGAL_GENERATION, KafkaError.REBALANCE_IN_PROGRESS})
"""Of a member that its group still knows: what it says of another is `UNKNOWN_MEMBER_ID`."""

LARGEST_RESPONSE_BYTES = 100_000_000
"""Of one answer to a fetch, and of one batch decompressed: a larger batch cannot be read. It
decides verdicts, so all that reads the log must have the same."""


CALLBACK_FAILURES = (KafkaException, SystemError)
"""What a call that serves callbacks raises. Where the client has its exception already set when it
calls back, what the callback does first ends in a SystemError, with that exception as its cause."""


def trouble_of(error: BaseException | KafkaError | None) -> LogTrouble | Denied:
    """What a client's error is to a state machine."""
    if isinstance(error, SystemError):
        return trouble_of(error.__cause__)
    inner = error.args[0] if isinstance(error, KafkaException) else error
    if not isinstance(inner, KafkaError):
        return LogTrouble(f"kafka: {inner}")
    return _kind(inner.code())(f"kafka: {inner.str()}")


def _kind(code: int) -> type[LogTrouble | Denied]:
    if code in DENIALS:
        return Denied
    return Regrouped if code in REGROUPED else LogTrouble


def client_options(settings: Settings) -> dict[str, Any]:
    """librdkafka properties that every client of ours has."""
    return {
        "bootstrap.servers": settings.kafka,
        "client.id": f"stream-rater-{settings.instance_id or 'worker'}",
        "retry.backoff.ms": 5,  # back-to-back transactions wait for this: 100 ms by default
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
        raise BadConfiguration(f"kafka_security_protocol: not one of {', '.join(PROTOCOLS)}")
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
    """Refuse what would connect in another way than is meant."""
    named = bool(settings.kafka_sasl_username), bool(settings.kafka_sasl_password)
    if sasl and settings.kafka_sasl_mechanism.upper().startswith(WITH_PASSWORD) and not all(named):
        raise BadConfiguration("kafka_sasl_username and its password are needed for SASL")
    if any(named) and not (sasl or "security.protocol" in settings.kafka_options):
        raise BadConfiguration("kafka_sasl_username: kafka_security_protocol is without SASL")
    if settings.kafka_ssl_ca and not (tls or "security.protocol" in settings.kafka_options):
        raise BadConfiguration("kafka_ssl_ca: kafka_security_protocol is without TLS")


OURS = frozenset({"protocol", "decode_responses"})
"""What replies are read by: no URL may set it."""


def redis_options(settings: Settings, address: str) -> dict[str, Any]:
    """Arguments of the Redis client beside the URL's; TLS is the URL's to say."""
    tls = address.startswith("rediss://")
    files = {
        "ssl_ca_certs": settings.redis_ca,
        "ssl_certfile": settings.redis_certificate,
        "ssl_keyfile": settings.redis_key,
    }
    if any(files.values()) and not tls:
        raise BadConfiguration("redis_ca: the URL does not begin with rediss://")
    if "@" in address and (settings.redis_username or settings.redis_password):
        raise BadConfiguration("redis_username, redis_password: the URL has its own; give one")
    if taken := OURS & parse_qs(address.partition("?")[2]).keys():
        raise BadConfiguration(f"redis: the URL must not set {', '.join(sorted(taken))}")
    given = {"username": settings.redis_username, "password": settings.redis_password, **files}
    for path in filter(None, files.values()):
        check_readable(path)
    options: dict[str, Any] = {name: value for name, value in given.items() if value}
    return options | ({"ssl_min_version": ssl.TLSVersion.TLSv1_2} if tls else {})
