"""A Redis password changes while the service rates. A sentinel, on which the service needs one
right, leads to the master, where the service is another user."""

import re
import ssl
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import NamedTuple

import msgspec
import pytest

from local.processes import LOOPBACK, Server
from local.redis_node import answers
from local.servers import start_redis
from local.tools import REDIS_VARIABLE, find_redis_server, given_address
from stream_rater.adapters.kafka.topics import Topics
from stream_rater.adapters.redis.store import RedisStore
from stream_rater.config.settings import Settings
from stream_rater.operations import verify
from tests.contract.test_redis_connections import Account
from tests.integration import secured
from tests.integration.castle import rounds_from
from tests.integration.processes import Start, wait_until
from tests.integration.role_runs import in_one_line
from tests.integration.secured import ADMIN, Certificates, SecuredRedis, password_of
from tests.integration.topics import Finished, produce, rated, read_topic
from tests.real import SettingsFactory
from tests.sentinels import NAME, start_sentinel
from tests.waits import STILL_S

OWN_REDIS = pytest.mark.skipif(
    given_address(REDIS_VARIABLE) is not None and find_redis_server() is None,
    reason="Redis is given, and none is installed here",
)


# --- a password that changes ---

ROUNDS = 60  # How many rounds wait when the password changes.


@OWN_REDIS
def test_a_password_that_changes_under_load(
    settings: SettingsFactory, worker_process: Start, tmp_path: Path
) -> None:
    """Redis closes the connections. The worker logs in again, whichever changed first."""
    with start_redis(tmp_path / "redis") as server:
        account = Account(tmp_path / "password", server)
        at = account.settings(redis=server.address)
        given = {name: getattr(at, name) for name in ("redis", "redis_username")}
        file = {"redis_password": "", "redis_password_file": str(account.file)}
        worker = worker_process(settings(**given, **file))
        at = settings(**given, redis_password="third")

        def more(first: int) -> None:
            produce(at, rounds_from(first, ROUNDS))

        more(0)
        wait_until(lambda: worker.metric("stream_rater_events_total") > 20, "it is at work")
        account.write("second")
        account.rotate("second", in_the_file=False)
        more(ROUNDS)
        wait_until(Finished(at), "all is rated: the file was ahead")
        restarts = worker.metric("stream_rater_restarts_total")
        account.rotate("third", in_the_file=False)
        more(2 * ROUNDS)
        refused = "it is refused: Redis is ahead"
        wait_until(lambda: worker.metric("stream_rater_restarts_total") > restarts, refused)
        account.write("third")
        wait_until(Finished(at), "all is rated: Redis was ahead")
        report = verify.verify(at, STILL_S)
        assert report.startswith(f"{3 * ROUNDS} rounds replayed")
        assert len(read_topic(at, Topics.of(at).changed)) == 2 * 3 * ROUNDS
        assert worker.running
        assert not any(word in worker.log() for word in ("first", "second", "third"))


# --- a sentinel ---

RATER, WATCHER = "rater", "watcher"  # The service's users on Redis and on the sentinel.
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


def a_sentinel(folder: Path, redis: SecuredRedis, certificates: Certificates) -> Server:
    """A sentinel with TLS only, whose one user may do nothing but ask for the masters."""
    settings = (
        f"port 0\ntls-port PORT\ntls-cert-file {certificates.certificate}\n"
        f"tls-key-file {certificates.key}\ntls-ca-cert-file {certificates.authority}\n"
        "tls-auth-clients no\ntls-replication yes\n"
        f"user default off\nuser {WATCHER} on >{password_of(WATCHER)} +sentinel|masters\n"
        f"sentinel monitor {NAME} {LOOPBACK} {redis.url.rpartition(':')[2]} 1\n"
        f"sentinel auth-user {NAME} {ADMIN}\nsentinel auth-pass {NAME} {password_of(ADMIN)}\n"
    )
    trusting = ssl.create_default_context(cafile=str(certificates.authority))
    return start_sentinel(folder, settings, partial(answers, tls=trusting))


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Watched]:
    folder = tmp_path_factory.mktemp("watched")
    certificates = secured.make_certificates(folder)
    with secured.secured_redis(folder / "redis", certificates) as redis:
        redis.allow(RATER, "~*", "&*", "+@all")
        with a_sentinel(folder / "sentinel", redis, certificates) as sentinel:
            yield Watched(redis, sentinel, certificates)


def test_a_worker_rates(watched: Watched, settings: SettingsFactory, worker_process: Start) -> None:
    """It finds the master by one right on the sentinel, and logs in there as another user."""
    at = watched.settings(settings())
    worker_process(at)
    rated(at, *rounds_from(0, 6))
    assert verify.verify(at, STILL_S).startswith("6 rounds replayed")


def test_wrong_access_is_one_line(watched: Watched) -> None:
    """The line names the server that refused."""
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
    """Prepare Redis, as each process does first."""
    RedisStore(at).prepare()
