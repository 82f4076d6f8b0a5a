"""Finds the tools of the local servers. Installs nothing."""

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[3]
SERVERS: Final = ROOT / ".servers"

KAFKA_VERSION: Final = "4.4.0"  # the same as in pom.xml; a test compares them
KAFKA_CHOICE: Final = "STREAM_RATER_TEST_KAFKA"
"""The variable that names another release of Kafka for tests."""
KAFKA_CHOSEN: Final = os.environ.get(KAFKA_CHOICE) or KAFKA_VERSION
KAFKA_HOME: Final = SERVERS / f"kafka-{KAFKA_CHOSEN}"
JAVA_MINIMUM: Final = 17  # Kafka 4 brokers
REDIS_MINIMUM: Final = 7  # Redis Functions

KAFKA_VARIABLE: Final = "STREAM_RATER_KAFKA"
REDIS_VARIABLE: Final = "STREAM_RATER_REDIS"
PROMETHEUS_VARIABLE: Final = "PROMETHEUS"

FORGET: Final = f"unset {KAFKA_VARIABLE} {REDIS_VARIABLE}"
"""The command for a shell after `make down`, if it exported the addresses of `make up`."""

PLAIN_URL: Final = re.compile(r"redis://([^/@?,]+:\d+)(?:/0?)?")
"""A Redis on its own, without a password or any database but the first."""


class LocalServerError(Exception):
    """A local server or its set-up failed. The message is for the person at the terminal.

    Its first line is complete by itself. Further lines, if any, are the end of the server's log.
    """


def given_address(variable: str) -> str | None:
    """The address of a running server in an environment variable; None if it is not set.

    A URL of only host and port, as `make up` exports for Redis, is returned as host:port.
    """
    text = os.environ.get(variable, "").strip()
    plain = PLAIN_URL.fullmatch(text)
    return (plain[1] if plain else text) or None


def find_java() -> Path | None:
    """A `java` of at least JAVA_MINIMUM: JAVA_HOME's, else the one on PATH, else Debian's."""
    return next((java for java in _java_candidates() if java_major(java) >= JAVA_MINIMUM), None)


def _java_candidates() -> Iterator[Path]:
    if home := os.environ.get("JAVA_HOME"):
        yield Path(home, "bin", "java")
    if on_path := shutil.which("java"):
        yield Path(on_path)
    yield from sorted(Path("/usr/lib/jvm").glob("*/bin/java"))


def java_major(java: Path) -> int:
    """Major version of a `java`; 0 if unknown.

    It is read from the `release` file beside it, because starting a JVM takes long.
    """
    release = java.resolve().parent.parent / "release"
    try:
        text = release.read_text(encoding="utf-8")
    except OSError:
        text = _output_of(str(java), "-version") if java.exists() else ""
    found = re.search(r'(?:JAVA_VERSION=|version )"(?:1\.)?(\d+)', text)
    return int(found[1]) if found else 0


def find_redis_server() -> Path | None:
    """A `redis-server` on PATH of at least REDIS_MINIMUM."""
    on_path = shutil.which("redis-server")
    if on_path is None or redis_major(Path(on_path)) < REDIS_MINIMUM:
        return None
    return Path(on_path)


def redis_major(redis_server: Path) -> int:
    """Major version of a `redis-server`, 0 when it is unknown."""
    found = re.search(r"\bv=(\d+)\.", _output_of(str(redis_server), "--version"))
    return int(found[1]) if found else 0


def find_prometheus() -> Path | None:
    """A `prometheus` on PATH. Its version is not checked: any since 2 is enough."""
    return _on_path("prometheus")


def find_promtool() -> Path | None:
    """The `promtool` of Prometheus, which checks rules."""
    return _on_path("promtool")


def _on_path(name: str) -> Path | None:
    found = shutil.which(name)
    return None if found is None else Path(found)


def _output_of(*command: str) -> str:
    """What a short command prints on both streams; empty if it cannot run."""
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, errors="replace", timeout=30, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout + done.stderr
