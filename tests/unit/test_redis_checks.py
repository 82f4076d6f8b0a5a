"""What is reported about a Redis server's settings, whatever command showed them."""

from typing import Any

import pytest
import redis

from stream_rater.adapters.redis.checks import Memory, StoreMismatch, check, memory_warnings

EVICTING = ("allkeys-lru", "allkeys-lfu", "allkeys-random", "allkeys-lrm")
KEEPING = ("noeviction", "volatile-lru", "volatile-lfu", "volatile-random", "volatile-ttl")
PLACE = "h:1"


class Server:
    """One that answers CONFIG GET and INFO with these, and denies what is None."""

    def __init__(self, config: dict[str, str] | None, info: dict[str, Any] | None) -> None:
        self._config, self._info = config, info
        kwargs = {"host": "h", "port": 1}
        self.connection_pool = type("Pool", (), {"connection_kwargs": kwargs})

    def config_get(self, pattern: str) -> dict[str, str]:
        if self._config is None:
            raise redis.ResponseError("unknown command 'CONFIG'")
        return {k: v for k, v in self._config.items() if k.startswith(pattern.rstrip("*"))}

    def info(self, section: str) -> dict[str, Any]:
        assert section == "memory"
        if self._info is None:
            raise redis.exceptions.NoPermissionError("no permissions to run the 'info' command")
        return self._info


def configured(policy: str, limit_bytes: int) -> dict[str, str]:
    return {"maxmemory-policy": policy, "maxmemory": str(limit_bytes)}


def informed(policy: str, limit_bytes: int) -> dict[str, Any]:
    return {"maxmemory_policy": policy, "maxmemory": limit_bytes, "used_memory": 1}


@pytest.mark.parametrize("policy", EVICTING)
def test_a_server_that_evicts_any_key_is_refused(policy: str) -> None:
    """In one line: the server, its settings, what they do, and the command that mends it."""
    with pytest.raises(StoreMismatch) as refused:
        memory_warnings(PLACE, Memory(policy, 1000))
    assert str(refused.value).startswith(
        f"redis at h:1: maxmemory-policy is {policy} and maxmemory is 1000, so Redis deletes "
        "ratings when memory is full: run `CONFIG SET maxmemory-policy noeviction`"
    )
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("policy", EVICTING)
def test_one_that_has_no_limit_yet_is_warned_of(policy: str) -> None:
    """It evicts nothing as it is."""
    (line,) = memory_warnings(PLACE, Memory(policy, 0))
    assert line.startswith(
        f"redis at h:1: maxmemory-policy is {policy}, so Redis deletes ratings once "
    )
    assert "run `CONFIG SET maxmemory-policy noeviction`" in line and "\n" not in line


@pytest.mark.parametrize("policy", KEEPING)
@pytest.mark.parametrize("limit_bytes", [0, 1000])
def test_one_that_evicts_none_of_our_keys_is_accepted(policy: str, limit_bytes: int) -> None:
    """Without a word: no key of ours has an expiry, which `volatile-` policies look for."""
    assert memory_warnings(PLACE, Memory(policy, limit_bytes)) == []


@pytest.mark.parametrize("config", [None, {}, {"maxmemory": "0"}])
def test_info_shows_what_config_does_not(config: dict[str, str] | None) -> None:
    """Hosted servers deny CONFIG, or answer it with less."""
    server: Any = Server(config, informed("allkeys-lru", 1000))
    with pytest.raises(
        StoreMismatch, match="maxmemory-policy is allkeys-lru and maxmemory is 1000"
    ):
        check(server)
    kept: Any = Server(config, informed("volatile-lru", 1000))
    assert check(kept) == []


def test_config_is_enough() -> None:
    """INFO may be denied then."""
    server: Any = Server(configured("allkeys-lru", 1000), None)
    with pytest.raises(StoreMismatch):
        check(server)
    kept: Any = Server(configured("noeviction", 1000), None)
    assert check(kept) == []


@pytest.mark.parametrize("info", [None, {}])
def test_what_cannot_be_known_is_said(info: dict[str, Any] | None) -> None:
    """One line says so, and names the right to give."""
    server: Any = Server(None, info)
    (line,) = check(server)
    assert "it is unknown" in line and "`+info`" in line and "\n" not in line


def test_small_hashes_are_warned_of() -> None:
    """Beside what is said of memory."""
    server: Any = Server({"hash-max-listpack-value": "64"} | configured("noeviction", 0), None)
    (line,) = check(server)
    assert line.startswith("redis: hash-max-listpack-value is 64. ")
