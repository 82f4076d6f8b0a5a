"""The service's settings, each with its default."""

import re
from typing import Annotated
from urllib.parse import urlsplit, urlunsplit

import msgspec
from msgspec import Meta

PREFIX = "STREAM_RATER_"


NOT_SETTINGS = frozenset({"STREAM_RATER_SHARED"})
"""Variables with our prefix that tests and benchmarks read."""


OF_KUBERNETES = re.compile(
    r"STREAM_RATER_(?:\w+_)?"
    r"(?:SERVICE_HOST|SERVICE_PORT(?:_\w+)?|PORT(?:_\d+_(?:TCP|UDP|SCTP)\w*)?)"
)
"""Variables that Kubernetes sets in every pod of a namespace for a service named stream-rater."""


SECRETS = ("kafka_sasl_password", "redis_password", "serve_token")
"""Settings that nobody may see; each can be read from the file that `<name>_file` names."""


HIDDEN = "***"


class Serve(msgspec.Struct, frozen=True, kw_only=True):
    """The settings that only `serve` reads."""

    serve: str = "127.0.0.1:9109"
    """Where the API listens; port 0 picks a free one."""
    serve_token: str = ""
    """The bearer token that requests must have; empty: none."""
    serve_token_file: str = ""
    serve_probes: str = ""
    """Where `/healthz`, `/readyz` and `/metrics` are answered by themselves, as well as with the
    API; empty: nowhere."""
    serve_connections: Annotated[int, Meta(ge=0, le=100_000)] = 1000
    """Connections of one address. 0: no limit."""
    serve_rate: Annotated[float, Meta(ge=0, le=1e6)] = 100.0
    """Requests a second of one address in the long run. 0: no limit."""
    serve_history: Annotated[int, Meta(ge=0, le=1000)] = 20
    """The changes that are kept of each player. 0: none."""
    serve_cors: str = ""
    """Origins whose pages may ask, with commas between; `*`: any; empty: none."""


class Access(Serve, frozen=True, kw_only=True):
    """How the service shows who it is, and knows whom it talks to."""

    kafka_security_protocol: str = "plaintext"
    """plaintext, ssl, sasl_plaintext or sasl_ssl."""
    kafka_sasl_mechanism: str = "SCRAM-SHA-512"
    kafka_sasl_username: str = ""
    kafka_sasl_password: str = ""
    kafka_sasl_password_file: str = ""
    kafka_ssl_ca: str = ""
    """PEM file of the authorities to trust; empty: the system's."""
    kafka_ssl_certificate: str = ""
    """PEM file of our own certificate, with `kafka_ssl_key`."""
    kafka_ssl_key: str = ""
    redis_username: str = ""
    """Instead of one in the URL, as the password."""
    redis_password: str = ""
    redis_password_file: str = ""
    redis_ca: str = ""
    """PEM file of the authorities to trust, for rediss://; empty: the system's."""
    redis_certificate: str = ""
    redis_key: str = ""


class Settings(Access, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The service's settings. Each is `STREAM_RATER_<NAME>` in the environment, or in TOML."""

    kafka: str = "127.0.0.1:9092"
    """Bootstrap servers."""
    redis: str = "redis://127.0.0.1:6379/0"
    """URL (rediss:// for TLS), or host:port; of a cluster several, as URL,host:port,host:port."""
    redis_cluster: bool = False
    """Whether it is a Redis Cluster."""
    ladders: str = ""
    """Path of the ladders file; empty: every ladder, by default parameters."""
    instance_id: str = ""
    """A name that survives a restart: static group membership and the transactional id. Empty: a
    random one, so that a killed worker's shards wait for its session to time out."""
    http: str = "127.0.0.1:9108"
    """Where /healthz, /readyz and /metrics listen; port 0 picks a free one, empty turns it off."""
    topic_prefix: str = ""
    """Before every topic name and consumer group: several services on one Kafka."""
    partitions: Annotated[int, Meta(ge=1, le=10_000)] = 4
    """Partitions of round-completed where the service creates it."""
    shards: Annotated[int, Meta(ge=1, le=10_000)] = 4
    """Partitions of performance-estimated and rating-changed where the service creates them."""
    buckets: Annotated[int, Meta(ge=1, le=10_000_000)] = 2048
    """Hashes that hold a ladder's beliefs, per shard: about 50 players each is best."""
    replication: Annotated[int, Meta(ge=1, le=7)] = 1
    """Replication factor of the topics that the service creates."""
    session_timeout_ms: Annotated[int, Meta(ge=1000)] = 6000
    transaction_timeout_ms: Annotated[int, Meta(ge=1000)] = 10_000
    duplicate_window: Annotated[int, Meta(ge=0)] = 100_000
    """Offsets of round-completed in which a round id is accepted once."""
    wave_players: Annotated[int, Meta(ge=1)] = 20_000
    """Players rated in one go, about; more is faster but slower to answer."""
    rejects_per_second: Annotated[int, Meta(ge=0)] = 1000
    """Rejections of a partition a second, in the long run: beyond, it rests. 0: no limit."""
    correction_threshold: Annotated[float, Meta(ge=0, le=1e9)] = 0.5
    """Points by which a correction must move a displayed rating to be told at once."""
    checkpoint_every: Annotated[int, Meta(ge=0)] = 100_000
    """A correction makes a checkpoint if the last one is this many records behind. 0: it neither
    makes one nor uses one."""
    ready_lag: Annotated[int, Meta(ge=0)] = 10_000
    """Records of a partition not yet finished, beyond which a worker is not ready. 0: no limit."""
    log_level: str = "info"
    kafka_options: dict[str, str] = {}  # a struct: each has its own
    """Further librdkafka properties (TOML only)."""

    def __repr__(self) -> str:
        """Whatever prints the settings prints no secret."""
        told = msgspec.structs.asdict(self)
        told |= {name: HIDDEN for name in SECRETS if told[name]}
        told["redis"] = without_password(self.redis)
        told["kafka_options"] = dict.fromkeys(self.kafka_options, HIDDEN)
        return f"Settings({', '.join(f'{name}={value!r}' for name, value in told.items())})"


def without_password(address: str) -> str:
    """A URL as it may be shown."""
    try:
        parts = urlsplit(address)
    except ValueError:
        return HIDDEN
    before, at, host = parts.netloc.rpartition("@")
    if parts.query or (not at and "@" in address):  # a password may stand anywhere
        return HIDDEN
    name = before.partition(":")[0]
    return urlunsplit(parts._replace(netloc=f"{name}:{HIDDEN}@{host}")) if at else address


def origin(setting: str, address: str) -> str:
    """Where the address of a server that does not answer comes from, in parentheses."""
    variable = PREFIX + setting.upper()
    if address == getattr(Settings(), setting):
        return f"(the default address; {variable} names another)"
    return f"(the address is that of {variable}: is the server running?)"
