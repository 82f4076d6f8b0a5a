"""Passwords (SCRAM) and tokens (OAUTHBEARER, unsecured JWS) that change while a worker runs, on a
Kafka that makes each connection authenticate again every few seconds."""

import base64
import json
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count
from pathlib import Path
from typing import NamedTuple

import msgspec
import pytest
from confluent_kafka.admin import (
    AdminClient,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from local.kafka_node import FORMATTED, start_kafka
from local.processes import LOOPBACK, free_port
from local.servers import Addresses, start_redis
from local.tools import find_redis_server
from stream_rater.adapters.access import CLIENT_LOGGER
from stream_rater.config.settings import Settings
from stream_rater.operations import verify
from tests import real
from tests.integration import signer
from tests.integration.castle import rounds_from
from tests.integration.processes import WorkerProcess, wait_until
from tests.integration.topics import Finished, produce
from tests.waits import STILL_S

Start = Callable[..., WorkerProcess]

pytestmark = pytest.mark.skipif(
    not FORMATTED.is_dir() or find_redis_server() is None, reason="no servers are installed here"
)

USER = signer.USER
AGAIN_MS = "2000"  # After so long, a connection must authenticate again.


class Place(NamedTuple):
    """Settings of the listener where everything is allowed, and the secured listener's address."""

    opened: Settings
    secured: str

    def settings(self, **changes: str) -> Settings:
        given = {"kafka": self.secured, "kafka_security_protocol": "sasl_plaintext", **changes}
        return msgspec.structs.replace(self.opened, **given)

    def give_password(self, password: str) -> None:
        """Let the broker accept this password and no other one."""
        admin = AdminClient({"bootstrap.servers": self.opened.kafka}, logger=CLIENT_LOGGER)
        info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096)
        change = UserScramCredentialUpsertion(USER, info, password.encode())
        for future in admin.alter_user_scram_credentials([change]).values():
            future.result(STILL_S)


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Addresses, str]]:
    """Both servers, and the address of Kafka's secured listener."""
    folder = tmp_path_factory.mktemp("logins")
    port, secured, controller = (f"{LOOPBACK}:{free_port()}" for _ in range(3))
    listeners = f"BROKER://{port},SECURED://{secured}"
    login = "required"
    properties = {
        "listeners": f"{listeners},CONTROLLER://{controller}",
        "advertised.listeners": listeners,
        "controller.quorum.voters": f"1@{controller}",
        "listener.security.protocol.map": (
            "BROKER:PLAINTEXT,CONTROLLER:PLAINTEXT,SECURED:SASL_PLAINTEXT"
        ),
        "sasl.enabled.mechanisms": "SCRAM-SHA-512,OAUTHBEARER",
        "listener.name.secured.scram-sha-512.sasl.jaas.config": (
            f"org.apache.kafka.common.security.scram.ScramLoginModule {login};"
        ),
        "listener.name.secured.oauthbearer.sasl.jaas.config": (
            f"org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule {login};"
        ),
        "connections.max.reauth.ms": AGAIN_MS,
    }
    with (
        start_redis(folder / "redis") as redis,
        start_kafka(
            folder / "kafka", port=int(port.rpartition(":")[2]), properties=properties
        ) as kafka,
    ):
        yield Addresses(kafka.address, redis.address), secured


@pytest.fixture
def place(servers: tuple[Addresses, str]) -> Iterator[Place]:
    """Topics and a database that no other test uses."""
    addresses, secured = servers
    with real.a_place(addresses, ours=True) as at:
        yield Place(at, secured)


other_place = place  # A second place, for tests that need two.


# --- passwords -----------------------------------------------------------------------------------


@contextmanager
def load(at: Settings) -> Iterator[None]:
    """Rounds are sent all the time in the block."""
    stop = threading.Event()

    def report() -> None:
        for first in count(0, 4):
            if stop.wait(0.05):
                return
            produce(at, rounds_from(first, 4))

    thread = threading.Thread(target=report)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def says(worker: WorkerProcess, text: str, times: int = 1) -> bool:
    """Whether a running worker has logged this text at least so many times."""
    assert worker.running, worker.log()
    return worker.log().count(text) >= times


def applied(worker: WorkerProcess) -> float:
    return worker.metric("stream_rater_updates_total", outcome="applied")


def test_a_password_changes_under_load(place: Place, worker_process: Start, tmp_path: Path) -> None:
    """Each round is rated once, whether the file or the server gets the new password first."""
    file = tmp_path / "password"
    file.write_text("SECRET-one")
    place.give_password("SECRET-one")
    worker = worker_process(
        place.settings(kafka_sasl_username=USER, kafka_sasl_password_file=str(file))
    )
    with load(place.opened):
        wait_until(lambda: applied(worker) > 0, "it rates", moves=worker.moves)
        place.give_password("SECRET-two")
        unchanged = partial(says, worker, f"{file} has not changed")
        wait_until(unchanged, "it is refused", moves=worker.moves)
        file.write_text("SECRET-two")
        before = applied(worker)
        wait_until(lambda: applied(worker) > before, "it rates again", moves=worker.moves)
        file.write_text("SECRET-three")
        place.give_password("SECRET-three")
        again_s = time.monotonic() + 2 * int(AGAIN_MS) / 1000
        wait_until(lambda: time.monotonic() > again_s, "each connection was asked again")
        before = applied(worker)
        wait_until(lambda: applied(worker) > before, "it rates again", moves=worker.moves)
    finished = Finished(place.opened)
    wait_until(finished, "all is rated", moves=finished.moves)
    assert "all equal, bit for bit" in verify.verify(place.opened, STILL_S)
    assert worker.running
    assert "SECRET" not in worker.log()


# --- tokens --------------------------------------------------------------------------------------


SIGNED = f"{signer.__name__}:token"


class Issuer(ThreadingHTTPServer):
    """A stub of an OpenID Connect provider: its token endpoint."""

    def __init__(self) -> None:
        super().__init__((LOOPBACK, 0), TokenRequest)
        self.issued = 0  # The number of tokens that it has issued.
        self.refuses = False

    @property
    def url(self) -> str:
        return f"http://{LOOPBACK}:{self.server_port}/token"


class TokenRequest(BaseHTTPRequestHandler):
    """Answers a request for a token, if it has the client's id and secret."""

    server: Issuer

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["content-length"]))
        expected = "Basic " + base64.b64encode(f"{USER}:SECRET".encode()).decode()
        if self.server.refuses or self.headers["authorization"] != expected:
            self.send_error(401)
            return
        self.server.issued += 1
        token, _ = signer.signed()
        answer = {"access_token": token, "token_type": "Bearer", "expires_in": signer.TOKEN_S}
        body = json.dumps(answer).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Print nothing."""


@pytest.fixture
def issuer() -> Iterator[Issuer]:
    with Issuer() as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def test_tokens(
    place: Place, other_place: Place, issuer: Issuer, worker_process: Start, tmp_path: Path
) -> None:
    """Workers get new tokens before the old ones expire. One has an issuer (`kafka_options`) that
    answers nobody for a while; the other has a function, which is called again."""
    options = tmp_path / "settings.toml"
    options.write_text(
        "[kafka_options]\n"
        '"sasl.oauthbearer.method" = "oidc"\n'
        f'"sasl.oauthbearer.token.endpoint.url" = "{issuer.url}"\n'
        f'"sasl.oauthbearer.client.id" = "{USER}"\n'
        '"sasl.oauthbearer.client.secret" = "SECRET"\n'
    )
    at = place.settings(kafka_sasl_mechanism="OAUTHBEARER")
    command = sys.executable, "-m", "stream_rater", "run", "--settings", str(options)
    with closing(WorkerProcess(at, tmp_path / "log", command=command)) as worker:
        calls = tmp_path / "calls"
        signed = worker_process(
            other_place.settings(kafka_sasl_mechanism="OAUTHBEARER", kafka_token=SIGNED),
            **{signer.CALLS: str(calls)},
        )
        worker.wait_ready()
        finished, others = Finished(place.opened), Finished(other_place.opened)
        for each in (place, other_place):
            produce(each.opened, rounds_from(0, 8))
        wait_until(finished, "all is rated", moves=finished.moves)
        wait_until(others, "all is rated", moves=others.moves)
        before = calls.stat().st_size
        issuer.refuses = True
        wait_until(partial(says, worker, "token"), "it gets no token", moves=worker.moves)
        issuer.refuses = False
        produce(place.opened, rounds_from(8, 8))
        wait_until(finished, "all is rated", moves=finished.moves)
        issued = issuer.issued
        wait_until(lambda: issuer.issued > issued, "it gets new tokens", moves=worker.moves)
        wait_until(lambda: calls.stat().st_size > before + 4, "it asks again", moves=signed.moves)
        assert "SECRET" not in worker.log()
        assert worker.running and signed.running
    for each, number in ((place, 16), (other_place, 8)):
        assert verify.verify(each.opened, STILL_S).startswith(f"{number} rounds replayed")
