"""A Redis that a sentinel watches, both with TLS and users of their own: the service logs in to
both, and needs one right on the sentinel."""

import re
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import NamedTuple

import msgspec
import pytest

from local.processes import LOOPBACK, Launch, Server, start_on
from local.redis_node import START_TIMEOUT_S, answers
from local.stores import chosen
from stream_rater.adapters.kafka.topics import Admin
from stream_rater.config.settings import Settings
from tests import real
from tests.integration.erasing import Start, season
from tests.integration.processes import complaints, stream_rater
from tests.integration.secured import (
    ADMIN,
    Certificates,
    SecuredRedis,
    make_certificates,
    password_of,
    secured_redis,
)
from tests.integration.test_corrections import rated, verified

NAME = "ratings"
RATER, WATCHER = "rater", "watcher"
"""The service's users on Redis and on the sentinel."""
REFUSED = "invalid username-password pair .* disabled: it is asked as STREAM_RATER_REDIS_SENTINEL_"


class Watched(NamedTuple):
    """A secured Redis, and the sentinel that watches it."""

    redis: SecuredRedis
    sentinel: Server
    certificates: Certificates

    def settings(self, at: Settings, **changes: str) -> Settings:
        """The settings of the service that uses both; Kafka is that of `at`."""
        own = {
            "redis": f"rediss+sentinel://{self.sentinel.address}/{NAME}",
            "redis_ca": str(self.certificates.authority),
            "redis_username": RATER, "redis_password": password_of(RATER),
            "redis_sentinel_username": WATCHER, "redis_sentinel_password": password_of(WATCHER),
        }  # fmt: skip
        return msgspec.structs.replace(at, **own | changes)


@contextmanager
def a_sentinel(folder: Path, redis: SecuredRedis, certificates: Certificates) -> Iterator[Server]:
    """A sentinel with TLS only, whose one user may do nothing but ask for the masters."""
    program = chosen().find()
    assert program is not None
    trusting = ssl.create_default_context(cafile=str(certificates.authority))
    watched = redis.url.rpartition(":")[2]

    def start(port: int) -> Server:
        folder.mkdir(exist_ok=True)
        file = folder / "sentinel.conf"
        file.write_text(
            f"port 0\ntls-port {port}\nbind {LOOPBACK}\ndir {folder.resolve()}\n"
            f"tls-cert-file {certificates.certificate}\ntls-key-file {certificates.key}\n"
            f"tls-ca-cert-file {certificates.authority}\ntls-auth-clients no\n"
            "tls-replication yes\n"
            f"user default off\nuser {WATCHER} on >{password_of(WATCHER)} +sentinel|masters\n"
            f"sentinel monitor {NAME} {LOOPBACK} {watched} 1\n"
            f"sentinel auth-user {NAME} {ADMIN}\nsentinel auth-pass {NAME} {password_of(ADMIN)}\n"
        )
        command = (str(program), str(file.resolve()), "--sentinel")
        probe = partial(answers, tls=trusting)
        return Server(Launch("sentinel", command, folder, port, probe, START_TIMEOUT_S)).start()

    with start_on(None, start) as server:
        yield server


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Watched]:
    """Both servers."""
    folder = tmp_path_factory.mktemp("watched")
    certificates = make_certificates(folder)
    with secured_redis(folder / "redis", certificates) as redis:
        redis.allow(RATER, "~*", "&*", "+@all")
        with a_sentinel(folder / "sentinel", redis, certificates) as sentinel:
            yield Watched(redis, sentinel, certificates)


def test_a_worker_rates(
    watched: Watched, settings: real.SettingsFactory, worker_process: Start
) -> None:
    """It finds the master by one right on the sentinel, and logs in there as another user."""
    at = watched.settings(settings())
    worker_process(at)
    rated(at, *season(0, 6))
    verified(at)


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"redis_sentinel_password": "wrong"},
         REFUSED),
        ({"redis_sentinel_username": "", "redis_sentinel_password": ""},
         REFUSED),
        ({"redis_password": "wrong"}, "redis: invalid username-password pair"),
        ({"redis_ca": ""}, "certificate verify failed"),
    ],
    ids=["sentinel", "login of Redis", "Redis", "TLS"],
)  # fmt: skip
def test_wrong_access_is_one_line(
    changes: dict[str, str], why: str, watched: Watched, settings: real.SettingsFactory
) -> None:
    """With the place that refused."""
    at = watched.settings(settings(), **changes)
    Admin(at).create_topics()
    ended = stream_rater("verify", "--wait", "0", settings=at)
    (line,) = complaints(ended.stderr)
    assert ended.returncode in (1, 2)
    assert re.search(why, line), line
