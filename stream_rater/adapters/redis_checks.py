"""How a Redis server must be configured to hold ratings, and what is said of one that is not.

A server that evicts keys deletes ratings once its memory is full. No command fails then, and nobody
is told: the players begin anew. So it is refused at the start. `CONFIG GET` tells the settings;
where it is denied, as hosted servers do, `INFO` tells those that decide.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import redis

from stream_rater.adapters.redis_client import Client

SMALL_HASH_BYTES = 512
"""Beliefs may be so long; Redis must still keep hashes of them in its compact encoding."""

EVICTS_ANY_KEY = "allkeys-"
"""How the names of policies begin that delete keys without an expiry. No key of ours has one: those
that begin with `volatile-` delete none of ours, and writes fail as with `noeviction`."""

MENDED = (
    "run `CONFIG SET maxmemory-policy noeviction` there, and set it in redis.conf or where the "
    "server is hosted"
)


class StoreMismatch(Exception):
    """Redis is there and cannot serve: one line with the server and the way out."""


class Memory(NamedTuple):
    """What a server does when its memory is full."""

    policy: str
    limit_bytes: int
    """0: it has no limit of its own."""


def check(server: Client) -> list[str]:
    """Warnings about one server's settings, a line each; StoreMismatch where it evicts ratings."""
    found = _configured(server)
    return hash_warnings(found) + memory_warnings(_place(server), _memory(server, found))


def _configured(server: Client) -> dict[str, str]:
    """What `CONFIG GET` tells of what is looked at here; nothing where that is denied."""
    found: dict[str, str] = {}
    try:
        for pattern in ("hash-max-listpack-*", "maxmemory*"):
            found |= server.config_get(pattern)
    except redis.ResponseError:
        return {}
    return found


def _memory(server: Client, configured: Mapping[str, str]) -> Memory | None:
    """By `CONFIG GET`, else by `INFO`; None where neither tells."""
    if {"maxmemory-policy", "maxmemory"} <= configured.keys():
        return Memory(configured["maxmemory-policy"], int(configured["maxmemory"]))
    try:
        told: dict[str, Any] = server.info("memory")
    except redis.ResponseError:
        return None
    if {"maxmemory_policy", "maxmemory"} <= told.keys():
        return Memory(told["maxmemory_policy"], told["maxmemory"])
    return None


def hash_warnings(configured: Mapping[str, str]) -> list[str]:
    """That beliefs take more memory than they need."""
    value = int(configured.get("hash-max-listpack-value", SMALL_HASH_BYTES))
    if value >= SMALL_HASH_BYTES:
        return []
    return [
        f"redis: hash-max-listpack-value is {value}; beliefs are longer, so hashes turn "
        f"into tables and take more memory: set it to {SMALL_HASH_BYTES} or more"
    ]


def memory_warnings(place: str, memory: Memory | None) -> list[str]:
    """That a server may delete ratings; StoreMismatch where it does."""
    if memory is None:
        return [
            "redis: our user may run neither CONFIG GET nor INFO, so it cannot be known whether "
            "ratings are deleted when memory is full: allow `+info`, or see yourself that "
            "maxmemory-policy is noeviction"
        ]
    if not memory.policy.startswith(EVICTS_ANY_KEY):
        return []
    if memory.limit_bytes > 0:
        raise StoreMismatch(
            f"redis at {place}: maxmemory-policy is {memory.policy} and maxmemory "
            f"{memory.limit_bytes}: ratings are deleted when memory is full: {MENDED}"
        )
    return [
        f"redis at {place}: maxmemory-policy is {memory.policy}: ratings are deleted once a "
        f"maxmemory is set and memory is full: {MENDED}"
    ]


def _place(server: Client) -> str:
    """A server's address."""
    given = server.connection_pool.connection_kwargs
    return given.get("path") or f"{given.get('host')}:{given.get('port')}"
