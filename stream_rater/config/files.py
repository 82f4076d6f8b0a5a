"""Reads the ladders (one TOML file), the settings (environment or TOML), and passwords."""

import difflib
import os
import re
import time
import tomllib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple, get_args

import msgspec

from stream_rater.config.errors import BadConfiguration
from stream_rater.config.ladders import ANY_LADDER, DEFAULT_RATING, Ladder, Ladders
from stream_rater.config.settings import NOT_SETTINGS, OF_KUBERNETES, PREFIX, SECRETS, Settings
from stream_rater.rating.parameters import SYSTEMS, BadParameters, RatingConfig, from_builtins


@contextmanager
def _naming(place: Path | str) -> Iterator[None]:
    """A context that raises the errors of its block as BadConfiguration, with the place."""
    try:
        yield
    except FileNotFoundError:
        raise BadConfiguration(f"{place}: no such file") from None
    except OSError as error:
        raise BadConfiguration(f"{place}: {error.strerror}") from None
    except RecursionError:
        raise BadConfiguration(f"{place}: nested too deeply") from None
    except (tomllib.TOMLDecodeError, msgspec.DecodeError, UnicodeDecodeError, ValueError) as error:
        raise BadConfiguration(f"{place}: {with_systems(str(error))}") from None


NO_SYSTEM = re.compile(r"at `\$\S*\bsystem`$|required field `system`")


def with_systems(mistake: str) -> str:
    """The mistake, with a list of the rating systems if it is about the rating system."""
    if not NO_SYSTEM.search(mistake):
        return mistake
    names = sorted(str(each.__struct_config__.tag) for each in get_args(RatingConfig))
    return f"{mistake}; the systems are {', '.join(names)}"


def check_readable(path: str) -> None:
    """Raise BadConfiguration if a file that a client library will read cannot be read."""
    with _naming(path):
        Path(path).read_bytes()


def read_table(path: Path) -> dict[str, Any]:
    """Read a table from a file: JSON if its suffix is `.json`, else TOML."""
    with _naming(path):
        data = path.read_bytes()
        if path.suffix == ".json":
            return msgspec.json.decode(data, type=dict[str, Any])
        return tomllib.loads(data.decode())


def rating_by_name(system: str) -> RatingConfig:
    """A system with its defaults; with the first guess of `tune` if it has none for some
    parameter. Raises BadParameters."""
    if system == "elo-mmr":
        return DEFAULT_RATING
    try:
        return from_builtins({"system": system})
    except BadParameters:
        if (found := SYSTEMS.get(system)) is None:
            raise
        guess = found.from_dimensions({each.name: each.start for each in found.space})
        return from_builtins({"system": system, **guess})


def read_rating(path: Path) -> RatingConfig:
    """Read a rating configuration from a JSON or TOML file, or that of a system by its name."""
    if str(path) in SYSTEMS and not path.exists():
        return rating_by_name(str(path))
    table = read_table(path)
    with _naming(path):
        rating: RatingConfig = msgspec.convert(table, RatingConfig)
        return rating


def read_ladders(path: Path) -> Ladders:
    """Read a ladders file."""
    table = read_table(path)
    ladders = table.get("ladders")
    if isinstance(ladders, dict):  # checked one by one: msgspec does not name a table's keys
        for name, ladder in ladders.items():
            with _naming(f"{path}: ladder {name!r}"):
                msgspec.convert(ladder, Ladder)
    with _naming(path):
        return msgspec.convert(table, Ladders)


def read_settings(
    path: Path | None = None, environment: Mapping[str, str] = os.environ
) -> Settings:
    """Read the settings from a TOML file, if any. Those of the environment take precedence."""
    table = read_table(path) if path is not None else {}
    table |= _from_environment(environment)
    where = path or "environment"
    with _naming(where):
        settings = msgspec.convert(table, Settings, strict=False)
    return _with_secrets(settings, where)


def _from_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """The settings by name. Raises BadConfiguration for an unknown variable with our prefix."""
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
    """The settings with the secrets that have files of their own, which are read here once."""
    found = {}
    for name in SECRETS:
        file = getattr(settings, f"{name}_file")
        if not file:
            continue
        if getattr(settings, name):
            raise BadConfiguration(f"{where}: give {name} or {name}_file, not both")
        with _naming(file):
            found[name] = _line(Path(file).read_text())
    settings = msgspec.structs.replace(settings, **found)
    _check_tokens(settings, where)
    return settings


def _line(text: str) -> str:
    """The secret in the text of its file. Raises ValueError if there is none."""
    if secret := text.rstrip("\r\n"):
        return secret
    raise ValueError("empty")


def _check_tokens(settings: Settings, where: Path | str) -> None:
    """Raise BadConfiguration for a token that no request can send, and if two are one."""
    for name in ("serve_token", "serve_write_token"):
        token = getattr(settings, name)
        if not re.fullmatch(r"([!-~]([ -~]{0,4094}[!-~])?)?", token):
            raise BadConfiguration(
                f"{where}: {name}: no request can send this token: give at most 4,096 visible "
                "ASCII characters"
            )
    if settings.serve_token and settings.serve_token == settings.serve_write_token:
        raise BadConfiguration(
            f"{where}: serve_token and serve_write_token are the same, so whoever may read could "
            "write: give two"
        )


def ladders_of_settings(settings: Settings, without: Ladders = ANY_LADDER) -> Ladders:
    """The ladders of the file that these settings name, or those `without` one. Raises
    BadConfiguration if a ladder keeps full histories, which do not fit into a record."""
    if not settings.ladders:
        return without
    ladders = read_ladders(Path(settings.ladders))
    for name, ladder in ladders.ladders.items():
        if any(rating.kept == 0 for rating in ladder.ratings):
            raise BadConfiguration(
                f'{settings.ladders}: ladder {name!r}: history "full" is for offline commands; '
                "here it is the number of factors that a record keeps"
            )
    return ladders


# --- a password that changes while a process runs: it is rotated, or is a token that expires -----

# Somebody replaces its file at any time. So the file is read whenever somebody logs in. A server
# that refuses the login may not know the new password yet, or no longer know the old one.

PATIENCE_S = 60.0
"""How long a server may refuse the present password, in seconds: it may learn a new one late."""


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
    """The user and the password of one server. If a file is given, the password comes from it."""

    def __init__(
        self, given: Credentials, password_file: str = "",
        clock: Callable[[], float] = time.monotonic,
    ) -> None:  # fmt: skip
        """`given`: what the settings say. `clock`: a time in seconds. Reads nothing."""
        self._given, self._file, self._clock = given, password_file, clock
        self._last = None if password_file else given
        self._refused: _Refusals | None = None

    def read(self) -> Credentials:
        """The present user and password. While the file is absent or empty, as it may be in the
        midst of a change, this is what was read last. Raises BadConfiguration if nothing was."""
        if self._file:
            try:
                with _naming(self._file):
                    self._last = self._given._replace(password=_line(_utf8(self._file)))
            except BadConfiguration:
                if self._last is None:
                    raise
        assert self._last is not None
        return self._last

    def is_final(self, used: Credentials) -> bool:
        """Whether a process should end because a server refused this login. It should if no part of
        the login comes from a file. If the login has changed since, a retry may succeed. Otherwise
        the refusal is final once the server has refused the same login for PATIENCE_S."""
        if not self._file:
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


def _utf8(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise ValueError("not UTF-8") from None
