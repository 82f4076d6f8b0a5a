"""How Kafka's clients show who they are, where that may change while they run.

A password comes from a file that may change. The file is read again when Kafka refuses the
password, and all clients of the process get the new one. A token comes from an issuer or from a
function of the operator's, which may fail for a while. So a refusal ends the process only if
refusals go on for PATIENCE_S, although nothing has changed: the server may learn of a new password
later than the file.

Connections that are open stay as they are. A client shows its new password at the next connection,
and whenever the broker asks for it again.
"""

import importlib
import math
import threading
import time
import weakref
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

from stream_rater.config.errors import BadConfiguration
from stream_rater.config.files import PATIENCE_S, ChangingCredentials, Credentials
from stream_rater.config.settings import PREFIX, Settings

SETTLE_S = 5.0  # For so long after a new password was read, refusals may be those of the old one.
TOKEN_SETTING = f"{PREFIX}KAFKA_TOKEN"
WITH_PASSWORD = ("PLAIN", "SCRAM-")
WITH_TOKEN = "OAUTHBEARER"


class TokenFailure(Exception):
    """The function for tokens has failed. The text is one line with its name."""


def in_a_thread(action: Callable[[], object]) -> None:
    """Call this soon, in another thread. A refusal may be reported by a callback of a client. A
    call of the same client within it ends the process, with a failed assertion of confluent-kafka
    (`CallState_get`)."""
    threading.Thread(target=action, name="password", daemon=True).start()


class Login:
    """What the clients of one Kafka show, and since when Kafka refuses it. For all threads."""

    def __init__(
        self, username: str, password: str, file: str,
        clock: Callable[[], float] = time.monotonic,
        soon: Callable[[Callable[[], object]], object] = in_a_thread,
    ) -> None:  # fmt: skip
        """`file`: the password's file; empty if a token is shown. `soon` calls what it is given."""
        self._username, self._password, self._file = username, password, file
        self._present = ChangingCredentials(Credentials(username, password), password_file=file)
        self._clock, self._soon = clock, soon
        self._clients: weakref.WeakSet[Any] = weakref.WeakSet()
        self._lock = threading.RLock()
        self._began_s = self._last_s = 0.0
        """When the present series of refusals began, and its last refusal."""
        self._refused = False  # Whether there has been a refusal since the password changed.
        self._changed_s = -math.inf  # When the password last changed.

    def adopt(self, client: Any, password: str) -> None:
        """Let a new client, made with this password, use the present one and all later ones."""
        client.login = self
        with self._lock:
            self._clients.add(client)
            changed = password != self._password
        if changed:
            self._hand_out(client)

    def after_refusal(self) -> str:
        """What is done after Kafka refused the login, in words; empty if a retry is useless."""
        now_s = self._clock()
        with self._lock:
            changed = self._read_again()
            clients = tuple(self._clients) if changed else ()
            words = self._words(now_s, changed=changed)
        for client in clients:
            self._soon(partial(self._hand_out, client))
        return words

    def _words(self, now_s: float, *, changed: bool) -> str:
        """What is done after a refusal at this time. `changed`: whether the password just has."""
        if changed:
            self._refused, self._changed_s = False, now_s
        if now_s < self._changed_s + SETTLE_S:
            return f"{self._file} has changed: the new password is used from now on"
        if not self._refused or now_s > self._last_s + PATIENCE_S:
            self._refused, self._began_s = True, now_s
        self._last_s = now_s
        if now_s >= self._began_s + PATIENCE_S:
            return ""
        what = f"{self._file} has not changed" if self._file else "the token is asked for again"
        return f"{what}: this goes on for at most {PATIENCE_S:.0f} s"

    def _read_again(self) -> bool:
        """Read the file again. Returns whether all clients must get another password."""
        if not self._file:
            return False
        before = self._password
        with suppress(BadConfiguration):  # it is being replaced
            self._password = self._present.read().password
        return self._password != before

    def _hand_out(self, client: Any) -> None:
        """Let a client have the present password. This waits until no other thread is in a call of
        the client. Such a thread may itself wait for the lock, in a callback, so this must not hold
        it."""
        with self._lock:
            password = self._password
        client.set_sasl_credentials(self._username, password)


_logins: weakref.WeakValueDictionary[tuple[str, ...], Login] = weakref.WeakValueDictionary()
"""The logins that a client of this process has, by address, user, file and mechanism."""
_lock = threading.RLock()


def login_of(settings: Settings) -> Login | None:
    """The login for these settings; None if what is shown cannot change."""
    options = settings.kafka_options
    mechanism = options.get("sasl.mechanism") or options.get("sasl.mechanisms")
    mechanism = (mechanism or settings.kafka_sasl_mechanism).upper()
    protocol = options.get("security.protocol", settings.kafka_security_protocol)
    file = settings.kafka_sasl_password_file if mechanism.startswith(WITH_PASSWORD) else ""
    if not (protocol.lower().startswith("sasl") and (file or mechanism == WITH_TOKEN)):
        return None
    key = settings.kafka, settings.kafka_sasl_username, file, mechanism
    with _lock:
        if (found := _logins.get(key)) is None:
            found = Login(settings.kafka_sasl_username, settings.kafka_sasl_password, file)
            _logins[key] = found
        return found


def after_refusal() -> str:
    """The same as `Login.after_refusal`, if a Kafka has refused any login of this process."""
    with _lock:
        logins = tuple(_logins.values())
    return next(filter(None, [each.after_refusal() for each in logins]), "")


# --- tokens from a function -----------------------------------------------------------------------


def token_function(name: str) -> Callable[[str], Any]:
    """The function that returns tokens, as confluent-kafka's `oauth_cb` does. `name`: module and
    function, with a colon between them. Raises BadConfiguration. What it raises, and any other
    result, becomes a TokenFailure."""
    module_name, _, function_name = name.partition(":")
    if not (module_name and function_name):
        raise BadConfiguration(f"{TOKEN_SETTING} is {name!r}: name a function as module:function")
    try:
        function = getattr(importlib.import_module(module_name), function_name, None)
    except Exception as error:
        raise BadConfiguration(
            f"{TOKEN_SETTING}: module {module_name!r} cannot be imported: {in_words(error)}: "
            "install it, or name its folder in PYTHONPATH"
        ) from None
    if not callable(function):
        raise BadConfiguration(
            f"{TOKEN_SETTING}: module {module_name!r} has no function {function_name!r}"
        )

    def token(config: str) -> Any:
        try:
            found = function(config)
        except Exception as error:
            raise TokenFailure(f"{TOKEN_SETTING}: {name} raised {in_words(error)}") from None
        if not is_token(found):
            raise TokenFailure(
                f"{TOKEN_SETTING}: {name} must return a token and the Unix time in seconds at "
                f"which it expires, and returned a {type(found).__name__}"
            )
        return found

    return token


def is_token(found: Any) -> bool:
    """Whether this is a token and its expiry, with or without the principal and extensions."""
    match found:
        case (str(), float() | int()) | (str(), float() | int(), str()):
            return True
        case (str(), float() | int(), str(), dict()):
            return True
    return False


def in_words(error: Exception) -> str:
    """An exception in one line."""
    return " ".join(f"{type(error).__name__}: {error}".split()).rstrip(": ")
