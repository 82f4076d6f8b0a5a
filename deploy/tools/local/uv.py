"""uv, which installs the Python packages: its own version comes from the lock, by pip.

uv reads none of pip's settings. `settings_of` translates those that say which index is asked and
which host is trusted, so that nobody has to set them twice.
"""

import ast
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from local.tools import LocalServerError

WHEELS: Final = ("--only-binary", ":all:")
"""Only wheels: a source package would run a build by tools whose hashes are not checked."""

_SECTIONS: Final = ("global", "install", ":env:")
"""Sections of pip's settings, in rising precedence."""
_VARIABLES: Final = {
    "index-url": "UV_DEFAULT_INDEX",
    "extra-index-url": "UV_INDEX",
    "find-links": "UV_FIND_LINKS",
    "no-index": "UV_NO_INDEX",
    "trusted-host": "UV_INSECURE_HOST",
    "cert": "SSL_CERT_FILE",
    "proxy": "ALL_PROXY",
    "timeout": "UV_HTTP_TIMEOUT",
    "default-timeout": "UV_HTTP_TIMEOUT",
}
"""uv's names of those settings of pip that say where packages come from."""


def requirement_of(name: str, lock: Path) -> str:
    """The lines of a lock that are about one package: its version and its hashes.

    Raises LocalServerError if the lock does not have the package.
    """
    entry = re.compile(rf"^{re.escape(name)}==.*\n(?:[ \t].*\n)*", re.MULTILINE)
    found = entry.search(lock.read_text(encoding="utf-8"))
    if found is None:
        raise LocalServerError(f"{lock.name} has no {name}: write it again with `make lock`")
    return found[0]


def settings_of(listed: str, given: Mapping[str, str]) -> dict[str, str]:
    """The variables for uv that follow from what `pip config list` prints.

    A variable that is given already is left as it is.
    """
    found: dict[str, tuple[int, str]] = {}
    for section, name, value in _settings(listed):
        rank = _SECTIONS.index(section)
        if rank >= found.get(name, (0, ""))[0]:
            found[name] = rank, value
    variables = {
        _VARIABLES[name]: _several(_VARIABLES[name], value) for name, (_, value) in found.items()
    }
    # As pip does: take the best of all indexes. Its hash must be that of the lock in any case.
    variables["UV_INDEX_STRATEGY"] = "unsafe-best-match"
    return {name: value for name, value in variables.items() if value and name not in given}


def _settings(listed: str) -> Iterator[tuple[str, str, str]]:
    """Section, name and value of those of pip's settings that uv knows."""
    for line in listed.splitlines():
        key, _, value = line.partition("=")
        section, _, name = key.rpartition(".")
        if section in _SECTIONS and name in _VARIABLES:
            yield section, name, str(ast.literal_eval(value))


def _several(variable: str, value: str) -> str:
    """Several values, separated as uv wants it; pip allows any white space."""
    return ("," if variable == "UV_FIND_LINKS" else " ").join(value.split())


def install_command(python: Path, *arguments: str) -> list[str]:
    """The command that installs into the environment of `python`, which has uv."""
    return [str(python), "-m", "uv", "pip", "install", "--quiet", "--python", str(python),
            *arguments]  # fmt: skip
