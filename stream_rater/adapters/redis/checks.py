"""Checks how a Redis server is configured: whether it may delete ratings or waste memory.

A server with an eviction policy deletes ratings once its memory is full. No command fails then,
nothing is reported, and the players start again as newcomers. So such a server is refused at the
start. `CONFIG GET` returns the settings. Hosted servers often deny it; then `INFO` returns the
settings that decide.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import redis

from stream_rater.adapters.redis.client import Client
from stream_rater.contract.errors import StoreMismatch

SMALL_HASH_BYTES = 512
"""The longest belief in bytes for which Redis must still keep a hash in its compact encoding."""

EVICTS_ANY_KEY = "allkeys-"
"""The prefix of policies that evict keys without an expiry. Our keys have no expiry, so policies
that begin with `volatile-` evict none of them; writes then fail as with `noeviction`."""

REMEDY = (
    "run `CONFIG SET maxmemory-policy noeviction` on it, and set the same in redis.conf or in "
    "the settings of the hosted server"
)


class Memory(NamedTuple):
    """The settings of a server for the case that its memory is full."""

    policy: str
    limit_bytes: int
    """The limit in bytes; 0 means none."""


def check(server: Client) -> list[str]:
    """Warnings about one server's settings, one line each. Raises StoreMismatch if it evicts
    ratings."""
    found = _configured(server)
    return hash_warnings(found) + memory_warnings(_place(server), _memory(server, found))


def _configured(server: Client) -> dict[str, str]:
    """The settings that are checked here, from `CONFIG GET`; empty if that is denied."""
    found: dict[str, str] = {}
    try:
        for pattern in ("hash-max-listpack-*", "maxmemory*"):
            found |= server.config_get(pattern)
    except redis.ResponseError:
        return {}
    return found


def _memory(server: Client, configured: Mapping[str, str]) -> Memory | None:
    """The memory settings from `CONFIG GET`, or else from `INFO`; None if both are denied."""
    if {"maxmemory-policy", "maxmemory"} <= configured.keys():
        return Memory(configured["maxmemory-policy"], int(configured["maxmemory"]))
    try:
        reply: dict[str, Any] = server.info("memory")
    except redis.ResponseError:
        return None
    if {"maxmemory_policy", "maxmemory"} <= reply.keys():
        return Memory(reply["maxmemory_policy"], reply["maxmemory"])
    return None


def hash_warnings(configured: Mapping[str, str]) -> list[str]:
    """A warning if hashes of beliefs take more memory than they need."""
    value = int(configured.get("hash-max-listpack-value", SMALL_HASH_BYTES))
    if value >= SMALL_HASH_BYTES:
        return []
    return [
        f"redis: hash-max-listpack-value is {value}. Beliefs are longer, so Redis stores hashes "
        f"of them as tables, which take more memory: set it to {SMALL_HASH_BYTES} or more"
    ]


def memory_warnings(place: str, memory: Memory | None) -> list[str]:
    """A warning if a server might delete ratings. Raises StoreMismatch if it would."""
    if memory is None:
        return [
            "redis: this service's user may run neither CONFIG GET nor INFO, so it is unknown "
            "whether ratings are deleted when memory is full: allow `+info`, or make sure that "
            "maxmemory-policy is noeviction"
        ]
    if not memory.policy.startswith(EVICTS_ANY_KEY):
        return []
    if memory.limit_bytes > 0:
        raise StoreMismatch(
            f"redis at {place}: maxmemory-policy is {memory.policy} and maxmemory is "
            f"{memory.limit_bytes}, so Redis deletes ratings when memory is full: {REMEDY}"
        )
    return [
        f"redis at {place}: maxmemory-policy is {memory.policy}, so Redis deletes ratings once a "
        f"maxmemory is set and memory is full: {REMEDY}"
    ]


def _place(server: Client) -> str:
    """The address of a server."""
    if master := getattr(server.connection_pool, "master_address", None):  # named by sentinels
        return ":".join(map(str, master))
    given = server.connection_pool.connection_kwargs
    return given.get("path") or f"{given.get('host')}:{given.get('port')}"
