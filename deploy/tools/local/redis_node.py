"""A Redis server with its defaults, or with the settings that the service advises."""

import socket
import ssl
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Final

from local.processes import LOOPBACK, PROBE_TIMEOUT_S, Launch, Server, start_on
from local.stores import Store, chosen, why_missing
from local.tools import REDIS_MINIMUM, LocalServerError

START_TIMEOUT_S: Final = 30.0  # a large append-only file is read first
NO_SETTINGS: Final[Mapping[str, str]] = MappingProxyType({})

SETTINGS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "bind": LOOPBACK,
        "protected-mode": "yes",
    }
)
"""Where it listens. All other settings are Redis' defaults."""

ADVISED: Final[Mapping[str, str]] = MappingProxyType(
    {
        # Beliefs are longer than the default of 64 bytes, past which a hash silently becomes a
        # table of twice the size.
        "hash-max-listpack-value": "4096",
        "hash-max-listpack-entries": "128",
        "maxmemory-policy": "noeviction",
        "appendonly": "yes",
        "appendfsync": "everysec",
        "save": '""',
    }
)
"""The advised settings, which `deploy/compose.yaml` has, too."""


def start_redis(
    directory: Path,
    *,
    port: int | None = None,
    settings: Mapping[str, str] = NO_SETTINGS,
    outlive: bool = False,
    tls: ssl.SSLContext | None = None,
    store: Store | None = None,
) -> Server:
    """Start Redis with its data in `directory` and return once it answers.

    `settings` are those of redis.conf, and override SETTINGS; a key that redis.conf may repeat
    (`save`) has one value here. With `outlive` it runs on after this process. `tls`: a context that
    trusts its certificate; then `settings` must make the port one for TLS. `store`: the store to
    start, in place of the one that the environment names.
    """
    which = store or chosen()
    redis_server = which.find()
    if redis_server is None and which.program:
        raise LocalServerError(why_missing(which))
    if redis_server is None:
        raise LocalServerError(
            f"no redis-server {REDIS_MINIMUM} or newer on PATH: run `make setup`"
        )

    def start(on_port: int) -> Server:
        configuration = directory / "redis.conf"
        directory.mkdir(parents=True, exist_ok=True)
        given = which.renamed({**which.settings, **settings})
        configuration.write_text(render_conf(directory, on_port, given), encoding="utf-8")
        return Server(
            Launch(
                name="redis",
                command=(str(redis_server), str(configuration.resolve())),
                directory=directory,
                port=on_port,
                answers=partial(answers, tls=tls),
                start_timeout_s=START_TIMEOUT_S,
                outlive=outlive,
            )
        ).start()

    return start_on(port, start)


def render_conf(directory: Path, port: int, settings: Mapping[str, str]) -> str:
    """The text of redis.conf."""
    merged = {"port": str(port), "dir": f'"{directory.resolve()}"', **SETTINGS, **settings}
    return "".join(f"{key} {value}\n" for key, value in merged.items())


def answers(port: int, tls: ssl.SSLContext | None = None) -> bool:
    """Whether Redis answers PING (while it still loads its data it answers with an error)."""
    connection = socket.create_connection((LOOPBACK, port), timeout=PROBE_TIMEOUT_S)
    with tls.wrap_socket(connection, server_hostname=LOOPBACK) if tls else connection as connection:
        connection.sendall(b"PING\r\n")
        return connection.recv(64).startswith((b"+PONG", b"-NOAUTH"))
