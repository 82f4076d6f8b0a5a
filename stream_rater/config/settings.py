"""The service's settings, each with its default."""

import re
from pathlib import Path
from typing import Annotated, Literal
from urllib.parse import urlsplit, urlunsplit

import msgspec
from msgspec import Meta

PREFIX = "STREAM_RATER_"

NOT_SETTINGS = frozenset({
    "STREAM_RATER_SHARED", "STREAM_RATER_TEST_KAFKA", "STREAM_RATER_TEST_STORE",
    "STREAM_RATER_TEST_GROUP_PROTOCOL",
})  # fmt: skip
"""Variables with our prefix that tests and benchmarks read."""

OF_KUBERNETES = re.compile(
    r"STREAM_RATER_(?:\w+_)?"
    r"(?:SERVICE_HOST|SERVICE_PORT(?:_\w+)?|PORT(?:_\d+_(?:TCP|UDP|SCTP)\w*)?)"
)
"""Variables that Kubernetes sets in every pod of a namespace for a service named stream-rater."""

SECRETS = (
    "kafka_sasl_password", "redis_password", "redis_sentinel_password", "serve_token",
    "serve_write_token",
)  # fmt: skip
"""Settings that nobody may see; each can be read from the file that `<name>_file` names."""

HIDDEN = "***"


class ServeSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The settings that only `serve` reads. (It is a base of Settings only to divide the list.)"""

    serve: str = "127.0.0.1:9109"
    """Address of [`stream-rater serve`](api.md). Port 0 picks a free port. Only `serve` reads the
    settings whose names begin with it."""
    serve_token: str = ""
    """Bearer token that requests must have; empty: no token is needed."""
    serve_token_file: str = ""
    """File that holds the token, instead."""
    serve_write_token: str = ""
    """Bearer token of requests that send rounds and corrections. It also allows reading. Empty:
    `serve` takes neither rounds nor corrections."""
    serve_write_token_file: str = ""
    """File that holds the token for writing, instead."""
    serve_probes: str = ""
    """Address where `/healthz`, `/readyz` and `/metrics` are answered by themselves, out of reach
    of the API's clients; they are answered with the API in any case."""
    serve_connections: Annotated[int, Meta(ge=0, le=100_000)] = 1000
    """Connections that one address may have; 0: no limit."""
    serve_rate: Annotated[float, Meta(ge=0, le=1e6)] = 100.0
    """Requests per second that one address may send in the long run; 0: no limit."""
    serve_history: Annotated[int, Meta(ge=0, le=1000)] = 20
    """Changes that the index keeps of each player; 0: none."""
    serve_lag: Annotated[int, Meta(ge=0)] = 100_000
    """Records of `rating-changed` that the index may be behind before `/readyz` answers 503, until
    it is behind by half as many; 0: no limit."""
    serve_cors: str = ""
    """Origins whose pages may send requests, separated by commas; `*`: any. On the loopback
    interface, readers without a token may use the names of these origins."""


class AccessSettings(ServeSettings, frozen=True, kw_only=True):
    """How the service shows who it is, and knows whom it talks to."""

    kafka_security_protocol: str = "plaintext"
    """`plaintext`, `ssl`, `sasl_plaintext` or `sasl_ssl`."""
    kafka_sasl_mechanism: str = "SCRAM-SHA-512"
    """SASL mechanism."""
    kafka_sasl_username: str = ""
    """SASL user."""
    kafka_sasl_password: str = ""
    """SASL password."""
    kafka_sasl_password_file: str = ""
    """File that holds the password, instead."""
    kafka_token: str = ""
    """Python function that returns tokens for the mechanism `OAUTHBEARER`, as `module:function`;
    see [Tokens](access.md#tokens)."""
    kafka_ssl_ca: str = ""
    """PEM file of the certificate authorities to trust; empty: the system's."""
    kafka_ssl_certificate: str = ""
    """PEM file of the client's certificate, if Kafka requires one."""
    kafka_ssl_key: str = ""
    """PEM file of the key of `STREAM_RATER_KAFKA_SSL_CERTIFICATE`."""
    redis_username: str = ""
    """Redis user, unless the URL names it."""
    redis_password: str = ""
    """Redis password, unless the URL has it."""
    redis_password_file: str = ""
    """File that holds the password, instead. It is read for each connection, so it may
    [change](access.md#tls-and-passwords)."""
    redis_sentinel_username: str = ""
    """User of the sentinels. Empty: `default` if they have a password of their own, else that of
    Redis."""
    redis_sentinel_password: str = ""
    """Password of the sentinels; empty: that of Redis. A sentinel without a password accepts any
    one of the user `default`."""
    redis_sentinel_password_file: str = ""
    """File that holds the password of the sentinels, instead."""
    redis_ca: str = ""
    """PEM file of the certificate authorities to trust; empty: the system's."""
    redis_certificate: str = ""
    """PEM file of the client's certificate, if Redis requires one."""
    redis_key: str = ""
    """PEM file of the key of `STREAM_RATER_REDIS_CERTIFICATE`."""


class Settings(AccessSettings, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The service's settings. Each is `STREAM_RATER_<NAME>` in the environment, or in TOML."""

    kafka: str = "127.0.0.1:9092"
    """Bootstrap servers of Kafka."""
    redis: str = "redis://127.0.0.1:6379/0"
    """URL, or host:port; `rediss://` switches TLS on. Of a Redis Cluster several nodes, as
    URL,host:port,host:port. `redis+sentinel://host:port,host:port/NAME` names
    [sentinels](../operations/sentinel.md) and their master; `rediss+sentinel://` switches TLS on.
    The URL must not set `protocol` or `decode_responses`."""
    redis_cluster: bool = False
    """Whether Redis is a Redis Cluster."""
    data: str = ""
    """Path of the data file of [`stream-rater standalone`](../operations/standalone.md), which
    commands use in place of Kafka and Redis, as `--data` does. Empty: they use the servers."""
    index: str = ""
    """Folder of the [index](api.md#the-index) of `serve` or `standalone`; each process needs one of
    its own. Empty: a folder in `/var/tmp` that is named for the user and the address, or
    `FILE-index` beside a data file."""
    ladders: str = ""
    """Path of the [ladders file](ladders.md), the same for workers, `serve` and commands. Empty:
    every ladder, by default parameters."""
    instance_id: str = ""
    """Name of this worker that survives a restart; see
    [Static membership](settings.md#static-membership). Empty: a random name, so a killed worker's
    partitions wait until its session times out."""
    http: str = "127.0.0.1:9108"
    """Address of the [endpoints](endpoints.md). Port 0 picks a free port; empty: no endpoints."""
    topic_prefix: str = ""
    """Prefix of all topics, groups and transactional ids, to run several services on one Kafka."""
    partitions: Annotated[int, Meta(ge=1, le=10_000)] = 4
    """Partitions of `round-completed`, when the service creates it."""
    shards: Annotated[int, Meta(ge=1, le=10_000)] = 4
    """Partitions of the two topics by player, when the service creates them; the largest useful
    number of updaters."""
    buckets: Annotated[int, Meta(ge=1, le=10_000_000)] = 2048
    """Redis hashes per ladder and shard; about 50 players each is best."""
    replication: Annotated[int, Meta(ge=1, le=7)] = 1
    """Replication factor of topics that the service creates."""
    session_timeout_ms: Annotated[int, Meta(ge=1000)] = 6000
    """Time after which the partitions of a silent worker are assigned to others. With the group
    protocol `consumer` it is the brokers' setting."""
    group_protocol: Literal["classic", "consumer"] = "classic"
    """How Kafka shares partitions among workers; see [Group protocol](settings.md#group-protocol).
    """
    transaction_timeout_ms: Annotated[int, Meta(ge=1000)] = 10_000
    """Time after which Kafka aborts a transaction. It includes the time that Redis takes to apply a
    batch. Below 5 s, a slow Redis may cost an abort and a new start."""
    duplicate_window: Annotated[int, Meta(ge=0)] = 100_000
    """Number of offsets within which a round id counts once."""
    wave_players: Annotated[int, Meta(ge=1)] = 20_000
    """Approximate number of players that are rated in one wave; more is faster, and slower to
    answer."""
    cache_mb: Annotated[int, Meta(ge=0, le=1_000_000)] = 256
    """MiB of memory of a worker for beliefs that it need not read again, because it has written
    them: at most about 5,000 players per MiB. A process with both roles gives one half to each. 0:
    none."""
    rejects_per_second: Annotated[int, Meta(ge=0)] = 1000
    """Rejections per partition and second, on average, above which the worker stops reading the
    partition for a while; see [Untrusted input](../operations/untrusted-input.md). 0: no limit."""
    correction_threshold: Annotated[float, Meta(ge=0, le=1e9)] = 0.5
    """Points by which a [correction](events.md#corrections) must move a displayed rating to be
    published at once; a smaller change is published with the player's next event. 0: every change
    is published."""
    checkpoint_every: Annotated[int, Meta(ge=0)] = 100_000
    """A correction makes a [checkpoint](../operations/runbook.md#checkpoints) if the last one is
    this many records behind. 0: corrections neither make checkpoints nor use them."""
    ready_lag: Annotated[int, Meta(ge=0)] = 10_000
    """Lag of a partition, in records, above which `/readyz` answers 503; 0: no limit."""
    log_level: str = "info"
    """`debug`, `info`, `warning` or `error`."""
    kafka_options: dict[str, str] = {}  # a struct: each has its own
    """Further librdkafka properties (TOML only)."""

    @property
    def files(self) -> tuple[Path, ...]:
        """The files that commands read, and must not write over."""
        return tuple(Path(each) for each in (self.data, self.ladders) if each)

    def __repr__(self) -> str:
        """Whatever prints the settings prints no secret."""
        values = msgspec.structs.asdict(self)
        values |= {name: HIDDEN for name in SECRETS if values[name]}
        values["redis"] = without_password(self.redis)
        values["kafka_options"] = dict.fromkeys(self.kafka_options, HIDDEN)
        return f"Settings({', '.join(f'{name}={value!r}' for name, value in values.items())})"


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
        return f"(the default address; {variable} names another; `standalone FILE` needs none)"
    return f"(the address is that of {variable}: is the server running?)"
