"""How functions.lua is run: as a Redis Function, or as a script where functions are refused.

Some stores do not know Redis Functions (Redis 6, Dragonfly, KeyDB), and some hosted ones deny them.
EVALSHA then runs the same code, with the same keys and arguments. Both are the same compare-and-set
on the same hash, so workers of both kinds may work side by side on one store.

A function is part of the data. A script is not: a restart, a fail-over or SCRIPT FLUSH may forget
it. The server then answers NOSCRIPT and has run nothing, so the script is loaded and the call is
repeated within the same effect.
"""

import hashlib
from importlib import resources
from typing import Any

import redis
from redis.exceptions import NoPermissionError, NoScriptError

from stream_rater.adapters.redis.client import Client
from stream_rater.contract.errors import LayoutMismatch

LIBRARY = "stream_rater_6"
APPLY = f"{LIBRARY}_apply"
CODE = resources.files(__package__).joinpath("functions.lua").read_text(encoding="utf-8")
"""The library, as FUNCTION LOAD takes it."""

REGISTRATION = f"redis.register_function{{function_name = '{APPLY}', callback = apply}}"
"""The last line of CODE."""

ABSENT = "unknown command", "unsupported command", "command is not available"
"""Parts of the answers, in lower case, of servers and proxies that do not know a command."""


def _script() -> str:
    """CODE without its first line, which names the library, and with a call in the place of the
    registration."""
    first, _, rest = CODE.partition("\n")
    body, registered, after = rest.rpartition(REGISTRATION)
    assert first.startswith("#!lua ") and registered and not after.strip(), "functions.lua"
    return f"{body}return apply(KEYS, ARGV)\n"


SCRIPT = _script()
"""CODE, as SCRIPT LOAD takes it."""

SHA = hashlib.sha1(SCRIPT.encode(), usedforsecurity=False).hexdigest()
"""By which EVALSHA names SCRIPT."""


class Functions:
    """The way in which a store runs functions.lua. It begins with FCALL, and keeps to EVALSHA once
    a server has refused functions."""

    def __init__(self) -> None:
        self.refusal = ""
        """Why functions are not used, as a server said it; empty while they are."""

    @property
    def command(self) -> tuple[str, str]:
        """The words with which a call begins."""
        return ("EVALSHA", SHA) if self.refusal else ("FCALL", APPLY)

    def load(self, server: Client) -> None:
        """Load the code into one server, unless it has it.

        Raises LayoutMismatch if it has other functions of this name, and redis.RedisError.
        """
        if not self.refusal:
            try:
                _load_library(server)
            except redis.ResponseError as error:
                if not is_refused(error):
                    raise
                self.refusal = _said(error)
            else:
                return
        try:
            server.script_load(SCRIPT)
        except redis.ResponseError as error:
            raise self.failure(error) from None

    def not_run(self, error: Exception) -> bool:
        """Whether the server certainly has not run the call that it answered so, and another try
        may succeed: the script must be loaded, or used in the place of the function."""
        if is_refused(error):
            self.refusal = self.refusal or _said(error)
            return True
        return isinstance(error, NoScriptError)

    def failure(self, error: Exception) -> Exception:
        """The error of a call, with the reason why no function was called if the user may not run
        scripts, either."""
        if not self.refusal or not _is_denied(error, "'evalsha", "'script"):
            return error
        return NoPermissionError(f"{self.refusal}; in its place: {_said(error)}")


def _said(error: Exception) -> str:
    """The text of an error without the beginning of the command's arguments, which are data."""
    return str(error).partition(", with args")[0]


def is_refused(error: Exception) -> bool:
    """Whether a server refused a command about functions, and so did nothing: it does not know
    them, or the user may not use them."""
    return _is_denied(error, "'fcall", "'function")


def _is_denied(error: Exception, *commands: str) -> bool:
    """Whether a server does not know a command, or the user may not run one of these."""
    text = str(error).lower()
    if isinstance(error, NoPermissionError):
        return any(each in text for each in commands)
    return isinstance(error, redis.ResponseError) and any(each in text for each in ABSENT)


def _load_library(server: Client) -> None:
    if _loaded_code(server) is None:
        try:
            server.function_load(CODE, replace=False)
        except redis.ResponseError as error:
            if "already exists" not in str(error):  # another worker loaded them first
                raise
    if _loaded_code(server) != CODE:
        raise LayoutMismatch(
            f"Redis has a function library {LIBRARY} that differs from this release's: "
            f"stop the other workers and run `redis-cli FUNCTION DELETE {LIBRARY}`"
        )


def _loaded_code(server: Client) -> str | None:
    libraries = server.function_list(library=LIBRARY, withcode=True)
    if not libraries:
        return None
    fields: list[Any] = libraries[0]
    code: bytes = dict(zip(fields[::2], fields[1::2], strict=True))[b"library_code"]
    return code.decode()
