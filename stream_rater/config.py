"""What can be set: ladders (one TOML file) and the service's settings (environment or TOML)."""

import difflib
import hashlib
import math
import os
import re
import tomllib
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal, get_args
from urllib.parse import urlsplit, urlunsplit

import msgspec
from msgspec import Meta

from stream_rater.rating.parameters import EloMMR, RatingConfig, for_fingerprint
from stream_rater.serve_settings import Serve

TEMPLATE = "*"
"""The ladder id that stands for every ladder not named."""

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


class BadConfiguration(ValueError):
    """A configuration that makes no sense: one line, with the file and the place in it."""


class Limits(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What a round may be at most; beyond it is rejected."""

    max_bytes: Annotated[int, Meta(gt=0)] = 8 * 2**20
    max_depth: Annotated[int, Meta(ge=3, le=64)] = 16
    max_entries: Annotated[int, Meta(ge=2)] = 1_000_000
    max_weight: Annotated[float, Meta(gt=0)] = 1000.0
    max_skew_s: Annotated[int, Meta(ge=0)] = 86_400
    """How far a round's completion may lie ahead of the time the log received it."""
    unknown_fields: Literal["count", "reject"] = "count"
    """What becomes of a round with a field that we do not know, or with a rank beside `dnf`."""
    corrections: Literal["accepted", "refused"] = "accepted"
    """What becomes of the ladder's corrections."""


class Terms(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """What holds for a ladder's rounds at one offset of the log. Made anew for each round."""

    rating: RatingConfig
    limits: Limits


class Change(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What is to hold for a ladder from an offset on; a table that is absent stays as it was."""

    from_offset: Annotated[int, Meta(ge=1)]
    """In the ladder's partition of round-completed."""
    rating: RatingConfig | None = None
    limits: Limits | None = None


class Ladder(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One independent rating pool, and how it is rated from which offset on."""

    rating: RatingConfig
    limits: Limits = Limits()
    from_offset: Annotated[int, Meta(ge=0)] = 0
    """Before it the ladder is as if it were not named."""
    changes: tuple[Change, ...] = ()

    def __post_init__(self) -> None:
        after = self.from_offset
        for i, change in enumerate(self.changes):
            if change.from_offset <= after:
                raise ValueError(f"changes[{i}]: from_offset must be over {after}")
            if change.rating is None and change.limits is None:
                raise ValueError(f"changes[{i}]: neither rating nor limits")
            if change.rating is not None and type(change.rating) is not type(self.rating):
                raise ValueError(f"changes[{i}]: another system is another ladder")
            after = change.from_offset

    def at(self, offset: float) -> Terms:
        """What holds at an offset that is not before `from_offset`."""
        rating, limits = self.rating, self.limits
        for change in self.changes:
            if offset < change.from_offset:
                break
            rating, limits = change.rating or rating, change.limits or limits
        return Terms(rating, limits)

    @property
    def offsets(self) -> tuple[int, ...]:
        """From where on something else holds."""
        return (self.from_offset, *(change.from_offset for change in self.changes))


DEFAULT_RATING = EloMMR(weight_limit=0.2, sigma_limit=80.0, rho=1.0)
"""The parameters of the paper's reference implementation."""


class Ladders(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Every ladder, by id; `*` is a template for all others. Without it they are rejected."""

    ladders: dict[str, Ladder]
    limits: Limits = Limits()
    """Size and depth, which are checked before the ladder is known."""

    def __post_init__(self) -> None:
        template = self.ladders.get(TEMPLATE)
        if template is None:
            return
        if template.from_offset or template.changes:
            raise ValueError(
                f"ladder {TEMPLATE!r}: offsets are those of one ladder: name it to change it"
            )
        for name, each in self.ladders.items():
            if each.from_offset and type(each.rating) is not type(template.rating):
                raise ValueError(
                    f"ladder {name!r}: from_offset with another system than {TEMPLATE!r} has: "
                    "another system is another ladder"
                )

    def find(self, ladder: str, offset: float = math.inf) -> Terms | None:
        """What holds for the ladder of this id at an offset, the template's where it has none of
        its own there, or None."""
        named = self.ladders.get(ladder)
        if named is None or offset < named.from_offset:
            named = self.ladders.get(TEMPLATE)
        return None if named is None else named.at(offset)

    def history(self, ladder: str) -> tuple[str, ...]:
        """How a ladder is rated from which offset on, an entry `offset:fingerprint` each."""
        named = self.ladders.get(ladder)
        offsets = sorted({0, *(named.offsets if named is not None else ())})
        held = ((offset, self.find(ladder, offset)) for offset in offsets)
        return tuple(f"{at}:{_fingerprint(terms)}" for at, terms in held if terms is not None)


def _fingerprint(terms: Terms) -> str:
    """A short hash of all that decides how rounds are rated, the same on every machine.

    Options that are newer than the first release count only where they are not the default, so that
    workers of older releases agree.
    """
    rating = for_fingerprint(terms.rating)
    limits = msgspec.to_builtins(terms.limits, order="deterministic")
    for newer in ("unknown_fields", "corrections"):
        if limits[newer] == getattr(Limits(), newer):
            del limits[newer]
    return hashlib.sha256(msgspec.json.encode((rating, limits))).hexdigest()[:16]


ANY_LADDER = Ladders(ladders={TEMPLATE: Ladder(rating=DEFAULT_RATING)})
"""What holds without a ladders file."""


def one_ladder(rating: RatingConfig) -> Ladders:
    """Every ladder rated by the same parameters, as the offline commands do."""
    return Ladders(ladders={TEMPLATE: Ladder(rating=rating)})


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
    kafka_options: dict[str, str] = {}  # noqa: RUF012  # a struct: each has its own
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


def _named(path: Path | str, action: Any) -> Any:
    try:
        return action()
    except FileNotFoundError:
        raise BadConfiguration(f"{path}: no such file") from None
    except OSError as error:
        raise BadConfiguration(f"{path}: {error.strerror}") from None
    except RecursionError:
        raise BadConfiguration(f"{path}: nested too deeply") from None
    except (tomllib.TOMLDecodeError, msgspec.DecodeError, UnicodeDecodeError, ValueError) as error:
        raise BadConfiguration(f"{path}: {with_systems(str(error))}") from None


NO_SYSTEM = re.compile(r"at `\$\S*\bsystem`$|required field `system`")


def with_systems(mistake: str) -> str:
    """The mistake, and where it is about the rating system, the systems that there are."""
    if not NO_SYSTEM.search(mistake):
        return mistake
    names = sorted(str(each.__struct_config__.tag) for each in get_args(RatingConfig))
    return f"{mistake}; the systems are {', '.join(names)}"


def check_readable(path: str) -> None:
    """BadConfiguration where a file that a client library will read cannot be read."""
    _named(path, Path(path).read_bytes)


def read_table(path: Path) -> dict[str, Any]:
    """A JSON or TOML file, by its suffix, as a table."""

    def read() -> dict[str, Any]:
        data = path.read_bytes()
        if path.suffix == ".json":
            return msgspec.json.decode(data, type=dict[str, Any])
        return tomllib.loads(data.decode())

    table: dict[str, Any] = _named(path, read)
    return table


def read_rating(path: Path) -> RatingConfig:
    """A rating configuration from a JSON or TOML file."""
    table = read_table(path)
    rating: RatingConfig = _named(path, lambda: msgspec.convert(table, RatingConfig))
    return rating


def read_ladders(path: Path) -> Ladders:
    """The ladders file."""
    table = read_table(path)
    each_ladder = table.get("ladders")
    if isinstance(each_ladder, dict):  # one by one first: msgspec does not name keys of a table
        for name, ladder in each_ladder.items():
            _named(f"{path}: ladder {name!r}", partial(msgspec.convert, ladder, Ladder))
    ladders: Ladders = _named(path, lambda: msgspec.convert(table, Ladders))
    return ladders


def read_settings(
    path: Path | None = None, environment: Mapping[str, str] = os.environ
) -> Settings:
    """Settings from a TOML file, if any, with the environment's on top."""
    table = read_table(path) if path is not None else {}
    table |= _from_environment(environment)
    where = path or "environment"
    settings: Settings = _named(where, lambda: msgspec.convert(table, Settings, strict=False))
    return _with_secrets(settings, where)


def _from_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """Settings by name; BadConfiguration for a variable with our prefix that is none of ours."""
    known = {PREFIX + name.upper(): name for name in Settings.__struct_fields__}
    del known[PREFIX + "KAFKA_OPTIONS"]
    found = {}
    for name, value in environment.items():
        if name in known:
            found[known[name]] = value
        elif name.startswith(PREFIX) and not (
            name in NOT_SETTINGS or OF_KUBERNETES.fullmatch(name)
        ):
            (nearest,) = difflib.get_close_matches(name.upper(), known, n=1, cutoff=0.0)
            raise BadConfiguration(f"environment: {name} is no setting; the nearest is {nearest}")
    return found


def _with_secrets(settings: Settings, where: Path | str) -> Settings:
    """With the secrets that stand in files of their own, read once, at the start."""
    found = {}
    for name in SECRETS:
        file = getattr(settings, f"{name}_file")
        if not file:
            continue
        if getattr(settings, name):
            raise BadConfiguration(f"{where}: give {name} or {name}_file, not both")
        found[name] = _named(file, Path(file).read_text).rstrip("\r\n")
        if not found[name]:
            raise BadConfiguration(f"{file}: empty")
    return msgspec.structs.replace(settings, **found)


def ladders_of(environment: Mapping[str, str]) -> Ladders:
    """The ladders that the environment names, for a command that takes no settings. Every ladder by
    default parameters if it names none."""
    variable = f"{PREFIX}LADDERS"
    if not (path := environment.get(variable)):
        return ANY_LADDER
    try:
        return read_ladders(Path(path))
    except BadConfiguration as error:
        raise BadConfiguration(f"{variable}: {error}") from None


def service_ladders(settings: Settings) -> Ladders:
    """The ladders that these settings name; each with a history that a record can hold."""
    if not settings.ladders:
        return ANY_LADDER
    found = read_ladders(Path(settings.ladders))
    for name, ladder in found.ladders.items():
        ratings = [ladder.rating, *(change.rating for change in ladder.changes)]
        if any(rating is not None and rating.kept == 0 for rating in ratings):
            raise BadConfiguration(
                f'{settings.ladders}: ladder {name!r}: history "full" is for offline commands; '
                "here it is the number of factors that a record keeps"
            )
    return found
