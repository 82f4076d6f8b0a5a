"""Finds the master of a Redis that Sentinel watches.

The setting is `redis+sentinel://host:port,host:port/NAME`, with the addresses of sentinels and the
name of the master. Each new connection goes to the master that the sentinels name at that moment.
While connections are in use, the sentinels are asked again every LOOK_S: an old master that is cut
off from the sentinels closes no connection, and refuses nothing.

All sentinels are asked, and the answer with the greatest configuration epoch counts, which each
failover raises. A sentinel that is cut off together with the old master goes on naming it.
"""

import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from typing import Any, NamedTuple
from urllib.parse import unquote

import redis
import redis.asyncio
from redis.backoff import NoBackoff
from redis.connection import ConnectionPool, SSLConnection
from redis.exceptions import NoPermissionError
from redis.retry import Retry
from redis.sentinel import MasterNotFoundError, Sentinel, SentinelConnectionPool

from stream_rater.adapters.redis.login import RedisLogin, sentinel_login_of
from stream_rater.config.settings import Settings

LOOK_S = 5.0  # The interval at which the sentinels are asked while a connection is in use.
ANSWER_S = 1.0  # The time in which a sentinel must answer.
SILENT_S = 60.0
"""How long a sentinel that did not answer is asked only where a connection is to be made."""
FORM = "redis+sentinel://host:port,host:port/NAME, where NAME is the name of the master"
SCHEME = re.compile(r"(rediss?)\+sentinel://")
_AFTER_SCHEME = re.compile(
    r"(?P<login>[^@/]*@)?(?P<places>[^@/?]+)/"
    r"(?P<name>[^/?,:]+)(?P<database>/[0-9]+)?(?P<more>\?.*)?"
)

Place = tuple[str, int]  # Host and port of a server.

SSL_CONNECTIONS = SSLConnection, redis.asyncio.SSLConnection

DENIED = (
    "sentinel {}: {}: it is asked as STREAM_RATER_REDIS_SENTINEL_USERNAME with "
    "STREAM_RATER_REDIS_SENTINEL_PASSWORD, without which the login is that of Redis"
)


class SentinelAddress(NamedTuple):
    """What a URL of sentinels says."""

    places: tuple[Place, ...]  # The sentinels.
    name: str  # The master's name.
    url: str
    """The URL of a client of the master, with the first sentinel's host and port in their place."""


def is_sentinel(address: str) -> bool:
    """Whether a setting has the addresses of sentinels."""
    return SCHEME.match(address) is not None


def parsed(address: str) -> SentinelAddress:
    """Parse a URL of sentinels. Raises ValueError."""
    scheme = SCHEME.match(address)
    assert scheme is not None
    found = _AFTER_SCHEME.fullmatch(address, scheme.end())
    if found is None:
        raise ValueError(f"write {FORM}")
    places = tuple(_place(each) for each in found["places"].split(","))
    parts = found["login"] or "", _authority(places[0]), found["database"] or "/0"
    url = f"{scheme[1]}://{''.join(parts)}{found['more'] or ''}"
    return SentinelAddress(places, unquote(found["name"]), url)


def _place(text: str) -> Place:
    host, colon, port = text.rpartition(":")
    host = host.strip("[]")
    if not (colon and host and port.isdecimal() and 0 < int(port) < 2**16):
        raise ValueError(f"{text!r} is no host:port of a sentinel: write {FORM}")
    return host, int(port)


def _authority(place: Place) -> str:
    host, port = place
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


class MasterFinder(Sentinel):
    """Asks the sentinels for their master. Its methods may be called by any thread. A connection to
    a sentinel is closed after its answer."""

    def __init__(
        self, settings: Settings, address: SentinelAddress, pool: Any,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:  # fmt: skip
        """`pool`: the pool of connections to the master, made from the address."""
        self._login = sentinel_login_of(settings)
        self.tls = {"ssl": True} if issubclass(pool.connection_class, SSL_CONNECTIONS) else {}
        """The option that makes a client use TLS, if the pool uses it."""
        given = _sentinel_options(settings, pool.connection_kwargs, self._login) | self.tls
        super().__init__(address.places, sentinel_kwargs=given)  # type: ignore[no-untyped-call]
        self._name, self._clock = address.name, clock
        self._due_s = self._clock() + LOOK_S
        self._silent_until_s: dict[Place, float] = {}

    def find(self) -> Place:
        """The master's place. Raises redis.RedisError if no sentinel names one that is up."""
        return self._found(self.sentinels)

    def discover_master(self, service_name: str) -> Place:
        """The master's host and port, for redis-py's connections."""
        assert service_name == self._name
        return self.find()

    @property
    def is_due(self) -> bool:
        """Whether the sentinels were not asked for LOOK_S, by `names_another`."""
        return self._clock() >= self._due_s

    def names_another(self, place: Place) -> bool:
        """Whether the sentinels name another master. They are asked only if this is due."""
        if not self.is_due:
            return False
        try:
            now_s = self._clock()
            asked = [s for s in self.sentinels if self._silent_until_s.get(_of(s), 0.0) <= now_s]
            return self._found(asked) != place
        except redis.RedisError:
            return False  # none is named: a failover may be in progress
        finally:
            self._due_s = self._clock() + LOOK_S

    def _found(self, sentinels: Sequence["redis.Redis"]) -> Place:
        errors: list[Exception] = []
        states = [*self._states(sentinels, errors)]
        newest = max((state["config-epoch"] for state in states), default=0)
        for state in states:
            if state["config-epoch"] == newest and _is_up(state):
                return state["ip"], state["port"]
        for each in errors:
            refused = isinstance(each, redis.AuthenticationError)
            final = refused and (self._login is None or self._login.is_final())
            if final or isinstance(each, NoPermissionError):
                raise each
        why = "; ".join(map(str, errors)) or "the sentinels find it down"
        raise MasterNotFoundError(f"no sentinel names a master {self._name!r} that is up: {why}")

    def _states(
        self, sentinels: Sequence["redis.Redis"], errors: list[Exception]
    ) -> Iterator[dict[str, Any]]:
        """Yield what each sentinel knows of the master. Errors are appended to `errors`."""
        for sentinel in sentinels:
            place = _of(sentinel)
            try:
                with closing(sentinel):
                    masters: Any = sentinel.sentinel_masters()
            except (redis.AuthenticationError, NoPermissionError) as error:
                said = DENIED.format(_authority(place), str(error).rstrip("."))
                errors.append(type(error)(said))
            except redis.RedisError as error:
                self._silent_until_s[place] = self._clock() + SILENT_S
                errors.append(redis.ConnectionError(f"sentinel {_authority(place)}: {error}"))
            else:
                self._silent_until_s.pop(place, None)
                if self._login:
                    self._login.accepted()
                if (state := masters.get(self._name)) is None:
                    known = ", ".join(sorted(masters)) or "none"
                    errors.append(
                        redis.ConnectionError(
                            f"sentinel {_authority(place)} knows no such name (it knows: {known})"
                        )
                    )
                else:
                    yield state


def _is_up(state: Mapping[str, Any]) -> bool:
    return state["is_master"] and not (state["is_sdown"] or state["is_odown"])


def _of(sentinel: "redis.Redis") -> Place:
    given = sentinel.connection_pool.connection_kwargs
    return given["host"], given["port"]


def _sentinel_options(
    settings: Settings, options: Mapping[str, Any], login: RedisLogin | None
) -> dict[str, Any]:
    """The options of connections to sentinels: TLS as for the master, and the login. A sentinel
    without a password accepts any one of the user `default`."""
    found = {name: value for name, value in options.items() if name.startswith("ssl_")}
    if login is not None:
        found["credential_provider"] = login
    elif password := settings.redis_sentinel_password or options.get("password"):
        own = bool(settings.redis_sentinel_password)
        username = settings.redis_sentinel_username or (not own and options.get("username"))
        found |= {"username": username or "default", "password": password}
    return found | {
        "socket_timeout": ANSWER_S, "socket_connect_timeout": ANSWER_S, "protocol": 2,
        "retry": Retry(NoBackoff(), 0),
    }  # fmt: skip


class MasterPool(SentinelConnectionPool):
    """Connections to the master. Those that are idle are closed once the sentinels name another."""

    def get_connection(self, *given: Any, **named: Any) -> Any:
        """Take a connection from the pool."""
        if self.master_address and self.sentinel_manager.names_another(self.master_address):
            self.disconnect(inuse_connections=False)
        return super().get_connection(*given, **named)


def master_client(settings: Settings, address: SentinelAddress, options: Mapping[str, Any]) -> Any:
    """A client of the master. Makes no request. `options`: those of a client, besides the URL."""
    pool = ConnectionPool.from_url(address.url, **options)
    found: Any = MasterFinder(settings, address, pool)
    ours = {n: v for n, v in pool.connection_kwargs.items() if n not in ("host", "port")}
    return found.master_for(address.name, connection_pool_class=MasterPool, **ours, **found.tls)
