"""A Redis that a sentinel watches, both with TLS and users of their own: the service logs in to
both, and needs one right on the sentinel."""

import re
import ssl
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import NamedTuple

import msgspec
import pytest

from local.processes import LOOPBACK, Launch, Server, start_on
from local.redis_node import START_TIMEOUT_S, answers
from local.stores import chosen
from stream_rater.adapters.redis.store import RedisStore
from stream_rater.config.settings import Settings
from stream_rater.operations import verify
from tests import real
from tests.builders.lines import a_message, a_round
from tests.integration.castle import LONG_AGO
from tests.integration.processes import WorkerProcess, wait_until
from tests.integration.role_runs import in_one_line
from tests.integration.secured import (
    ADMIN,
    Certificates,
    SecuredRedis,
    make_certificates,
    password_of,
    secured_redis,
)
from tests.integration.topics import Finished, produce
from tests.waits import STILL_S

Start = Callable[..., WorkerProcess]

NAME = "ratings"
RATER, WATCHER = "rater", "watcher"
"""The service's users on Redis and on the sentinel."""
REFUSED = "invalid username-password pair .* disabled: it is asked as STREAM_RATER_REDIS_SENTINEL_"


class Watched(NamedTuple):
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
    produce(at, [a_message(a_round(n, completed_at=LONG_AGO)) for n in range(6)])
    wait_until(Finished(at), "all is rated")
    assert verify.verify(at, STILL_S).startswith("6 rounds replayed")


def test_wrong_access_is_one_line(watched: Watched) -> None:
    """With the place that refused."""
    ways: list[tuple[dict[str, str], str]] = [
        ({"redis_sentinel_password": "wrong"}, REFUSED),
        ({"redis_sentinel_username": "", "redis_sentinel_password": ""}, REFUSED),
        ({"redis_password": "wrong"}, "redis: invalid username-password pair"),
        ({"redis_ca": ""}, "certificate verify failed"),
    ]
    for changes, why in ways:
        at = watched.settings(Settings(), **changes)
        ended = in_one_line(partial(prepare, at))
        assert ended.code in (1, 2), changes
        assert re.fullmatch(f"stream-rater: .*{why}.*\n", ended.err), ended.err


def prepare(at: Settings) -> None:
    """Do what each process does first."""
    RedisStore(at).prepare()
