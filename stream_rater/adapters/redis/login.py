"""How clients log in to Redis if the password is in a file: with what the file has at that moment.

All clients of a process that log in the same way share one object, so that they agree on when a
refusal is final (`config.files`).
"""

from functools import cache

import redis

from stream_rater.config.files import ChangingCredentials, Credentials
from stream_rater.config.settings import Settings


class Login(redis.CredentialProvider):
    """Reads user and password for each new connection, also for those of redis-py's clients."""

    def __init__(self, credentials: ChangingCredentials) -> None:
        self._credentials = credentials
        self._used: Credentials | None = None

    def get_credentials(self) -> tuple[str] | tuple[str, str]:
        """The password, or the user and the password. Raises BadConfiguration if the file could
        never be read."""
        self._used = self._credentials.read()
        username, password = self._used
        return (username, password) if username else (password,)

    def is_final(self) -> bool:
        """Whether the last refusal ends the process: see `ChangingCredentials.is_final`."""
        return self._used is None or self._credentials.is_final(self._used)

    def accepted(self) -> None:
        """A server has accepted a login."""
        self._credentials.accepted()


def login_of(settings: Settings) -> Login | None:
    """How to log in; None if the settings have the password themselves, or there is none."""
    if not settings.redis_password_file:
        return None
    return _login(settings.redis_username, settings.redis_password_file)


def sentinel_login_of(settings: Settings) -> Login | None:
    """How to log in to sentinels, with a password from a file; None if it is in no file. Without
    settings of its own, this is the login of Redis."""
    own = settings.redis_sentinel_password or settings.redis_sentinel_password_file
    file = settings.redis_sentinel_password_file if own else settings.redis_password_file
    if not file:
        return None
    username = settings.redis_sentinel_username or ("" if own else settings.redis_username)
    return _login(username or "default", file)


@cache
def _login(username: str, file: str) -> Login:
    return Login(ChangingCredentials(Credentials(username, ""), password_file=file))
