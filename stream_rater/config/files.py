"""Reads the ladders (one TOML file) and the service's settings (environment or TOML)."""

import difflib
import os
import re
import tomllib
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any, get_args

import msgspec

from stream_rater.config.errors import BadConfiguration
from stream_rater.config.ladders import ANY_LADDER, Ladder, Ladders
from stream_rater.config.settings import NOT_SETTINGS, OF_KUBERNETES, PREFIX, SECRETS, Settings
from stream_rater.rating.parameters import RatingConfig


def _naming_place(path: Path | str, action: Any) -> Any:
    """The result of `action()`. Raises its errors as BadConfiguration, with the path."""
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
    """The mistake, with a list of the rating systems if it is about the rating system."""
    if not NO_SYSTEM.search(mistake):
        return mistake
    names = sorted(str(each.__struct_config__.tag) for each in get_args(RatingConfig))
    return f"{mistake}; the systems are {', '.join(names)}"


def check_readable(path: str) -> None:
    """Raise BadConfiguration if a file that a client library will read cannot be read."""
    _naming_place(path, Path(path).read_bytes)


def read_table(path: Path) -> dict[str, Any]:
    """Read a table from a file: JSON if its suffix is `.json`, else TOML."""

    def read() -> dict[str, Any]:
        data = path.read_bytes()
        if path.suffix == ".json":
            return msgspec.json.decode(data, type=dict[str, Any])
        return tomllib.loads(data.decode())

    table: dict[str, Any] = _naming_place(path, read)
    return table


def read_rating(path: Path) -> RatingConfig:
    """Read a rating configuration from a JSON or TOML file."""
    table = read_table(path)
    rating: RatingConfig = _naming_place(path, lambda: msgspec.convert(table, RatingConfig))
    return rating


def read_ladders(path: Path) -> Ladders:
    """Read a ladders file."""
    table = read_table(path)
    each_ladder = table.get("ladders")
    if isinstance(each_ladder, dict):  # checked one by one: msgspec does not name a table's keys
        for name, ladder in each_ladder.items():
            _naming_place(f"{path}: ladder {name!r}", partial(msgspec.convert, ladder, Ladder))
    ladders: Ladders = _naming_place(path, lambda: msgspec.convert(table, Ladders))
    return ladders


def read_settings(
    path: Path | None = None, environment: Mapping[str, str] = os.environ
) -> Settings:
    """Read the settings from a TOML file, if any. Those of the environment take precedence."""
    table = read_table(path) if path is not None else {}
    table |= _from_environment(environment)
    where = path or "environment"
    settings: Settings = _naming_place(
        where, lambda: msgspec.convert(table, Settings, strict=False)
    )
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
        found[name] = _naming_place(file, Path(file).read_text).rstrip("\r\n")
        if not found[name]:
            raise BadConfiguration(f"{file}: empty")
    settings = msgspec.structs.replace(settings, **found)
    _check_tokens(settings, where)
    return settings


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


def ladders_of_environment(environment: Mapping[str, str]) -> Ladders:
    """The ladders of the file that the environment names, for a command that takes no settings. If
    it names none, every ladder has default parameters."""
    variable = f"{PREFIX}LADDERS"
    if not (path := environment.get(variable)):
        return ANY_LADDER
    try:
        return read_ladders(Path(path))
    except BadConfiguration as error:
        raise BadConfiguration(f"{variable}: {error}") from None


def ladders_of_settings(settings: Settings) -> Ladders:
    """The ladders of the file that these settings name. Raises BadConfiguration if a ladder keeps
    full histories, which do not fit into a record."""
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
