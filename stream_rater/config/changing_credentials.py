"""A user and a password that may change while a process runs: they are rotated, or are a token
that expires.

Somebody replaces the files while processes run. So the files are read whenever
somebody logs in. A server that refuses the login may not know the new password yet, or no longer
know the old one. `is_final` decides which refusals end a process:

1. Nothing comes from a file: the refusal is final.
2. The files have changed since the login: it is not, and a retry at once may succeed.
3. They have not: it becomes final once the server has refused the same login again and again, for
   PATIENCE_S.
"""

import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from stream_rater.config.errors import BadConfiguration

PATIENCE_S = 60.0
"""How long a server may refuse the present contents of the files, in seconds: it may learn a new
password later than the files do."""


class Credentials(NamedTuple):
    """A user and a password that belong together."""

    username: str
    password: str

    def __repr__(self) -> str:
        """Whatever prints them prints no secret."""
        return f"Credentials(username={self.username!r})"


class _Refusals(NamedTuple):
    """Refusals of the same login, with the times of the first and of the last one."""

    used: Credentials
    first_s: float
    last_s: float


class ChangingCredentials:
    """The user and the password of one server, from the settings or from files."""

    def __init__(
        self, given: Credentials, username_file: str = "", password_file: str = "",
        clock: Callable[[], float] = time.monotonic,
    ) -> None:  # fmt: skip
        """`given`: what the settings say; a file takes precedence over it. `clock`: a time in
        seconds. Reads nothing."""
        self._given = given
        self._files = username_file, password_file
        self._clock = clock
        self._last: Credentials | None = None
        self._refused: _Refusals | None = None

    @property
    def may_change(self) -> bool:
        """Whether anything comes from a file."""
        return any(self._files)

    def read(self) -> Credentials:
        """The present user and password, from one state of the files.

        While a file is absent or empty, as it may be in the midst of a change, this is what was
        read last. Raises BadConfiguration if nothing was.
        """
        try:
            self._last = self._read()
        except BadConfiguration:
            if self._last is None:
                raise
        return self._last

    def _read(self) -> Credentials:
        """Read both files. If the user changed between, the password may be of another one."""
        username_file, password_file = self._files
        while True:
            username = _contents(username_file) if username_file else self._given.username
            password = _contents(password_file) if password_file else self._given.password
            if not username_file or _contents(username_file) == username:
                return Credentials(username, password)

    def is_final(self, used: Credentials) -> bool:
        """Whether a process should end because a server refused this login."""
        if not self.may_change:
            return True
        if self.read() != used:
            self._refused = None
            return False
        now_s = self._clock()
        before = self._refused
        if before is None or before.used != used or now_s - before.last_s > PATIENCE_S:
            before = _Refusals(used, now_s, now_s)
        self._refused = before._replace(last_s=now_s)
        return now_s - before.first_s >= PATIENCE_S

    def accepted(self) -> None:
        """A server has accepted a login: a later refusal is a new one."""
        self._refused = None


def _contents(path: str) -> str:
    """The secret in a file, without the end of its line. Raises BadConfiguration."""
    try:
        found = Path(path).read_text(encoding="utf-8").rstrip("\r\n")
    except FileNotFoundError:
        raise BadConfiguration(f"{path}: no such file") from None
    except UnicodeDecodeError:
        raise BadConfiguration(f"{path}: not UTF-8") from None
    except OSError as error:
        raise BadConfiguration(f"{path}: {error.strerror}") from None
    if not found:
        raise BadConfiguration(f"{path}: empty")
    return found
