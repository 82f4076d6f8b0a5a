"""How clients log in to Redis, by the settings. If the password is in a file, they log in with what
the file has at that moment. All clients of a process that log in the same way share one object, so
that they agree on when a refusal is final (`config.files`)."""

import ssl
from functools import cache
from typing import Any
from urllib.parse import parse_qs

import redis

from stream_rater.config.errors import BadConfiguration
from stream_rater.config.files import ChangingCredentials, Credentials, check_readable
from stream_rater.config.settings import Settings


class RedisLogin(redis.CredentialProvider):
    """Reads user and password for each new connection, also for those of redis-py's clients."""

    def __init__(self, credentials: ChangingCredentials) -> None:
        self._credentials = credentials
        self._used: Credentials | None = None

    def get_credentials(self) -> tuple[str] | tuple[str, str]:
        """The user, if any, and the password. Raises BadConfiguration if none was ever read."""
        self._used = self._credentials.read()
        username, password = self._used
        return (username, password) if username else (password,)

    def is_final(self) -> bool:
        """Whether the last refusal ends the process: see `ChangingCredentials.is_final`."""
        return self._used is None or self._credentials.is_final(self._used)

    def accepted(self) -> None:
        """A server has accepted a login."""
        self._credentials.accepted()


def login_of(settings: Settings) -> RedisLogin | None:
    """How to log in; None if the settings have the password themselves, or there is none."""
    if not settings.redis_password_file:
        return None
    return _login(settings.redis_username, settings.redis_password_file)


def sentinel_login_of(settings: Settings) -> RedisLogin | None:
    """How to log in to sentinels, with a password from a file; None if it is in no file. Without
    settings of its own, this is the login of Redis."""
    own = settings.redis_sentinel_password or settings.redis_sentinel_password_file
    file = settings.redis_sentinel_password_file if own else settings.redis_password_file
    if not file:
        return None
    username = settings.redis_sentinel_username or ("" if own else settings.redis_username)
    return _login(username or "default", file)


@cache
def _login(username: str, file: str) -> RedisLogin:
    return RedisLogin(ChangingCredentials(Credentials(username, ""), password_file=file))


# --- options of the clients -----------------------------------------------------------------------

RESERVED_OPTIONS = frozenset({"protocol", "decode_responses"})
"""Client options that the reading of replies depends on. No URL may set them."""


def redis_options(settings: Settings, address: str) -> dict[str, Any]:
    """Arguments of the Redis client besides the URL. The URL's scheme decides on TLS."""
    tls = address.startswith("rediss://")
    files = {
        "ssl_ca_certs": settings.redis_ca, "ssl_certfile": settings.redis_certificate,
        "ssl_keyfile": settings.redis_key,
    }  # fmt: skip
    if any(files.values()) and not tls:
        raise BadConfiguration("redis_ca is set, but the URL in redis does not begin with rediss")
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
