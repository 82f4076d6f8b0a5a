"""Redis' password changes while workers rate: no process is started again, and nothing is lost."""

from collections.abc import Callable
from pathlib import Path

import pytest

from local.servers import start_redis
from local.tools import REDIS_VARIABLE, find_redis_server, given_address
from tests import real
from tests.contract.test_redis_login import Account
from tests.integration.processes import WorkerProcess, wait_until
from tests.integration.test_service import a_round, assert_all_rated_once
from tests.integration.topics import Finished, produce

pytestmark = pytest.mark.skipif(
    given_address(REDIS_VARIABLE) is not None and find_redis_server() is None,
    reason="Redis is given, and none is installed here",
)

ROUNDS = 200
"""How many rounds wait when the password changes."""


@pytest.mark.parametrize("ahead", ["the file", "Redis"])
def test_a_password_that_changes_under_load(
    settings: real.SettingsFactory, worker_process: Callable[..., WorkerProcess], tmp_path: Path,
    ahead: str,
) -> None:  # fmt: skip
    """Redis closes the connections of the user whose password changed. The worker logs in again
    with what the file has then, whether the file or Redis changed first, and goes on."""
    with start_redis(tmp_path / "redis") as server:
        account = Account(tmp_path / "password", server)
        at = account.settings(redis=server.address)
        given = {name: getattr(at, name) for name in ("redis", "redis_username")}
        file = {"redis_password": "", "redis_password_file": str(account.file)}
        worker = worker_process(settings(**given, **file))
        at = settings(**given, redis_password="second")
        produce(at, [a_round(number) for number in range(ROUNDS)])
        wait_until(lambda: worker.metric("stream_rater_events_total") > 20, "it is at work")
        if ahead == "the file":
            account.write("second")
        account.rotate("second", in_the_file=False)
        produce(at, [a_round(number) for number in range(ROUNDS, 2 * ROUNDS)])
        if ahead == "Redis":
            wait_until(lambda: restarts(worker) > 0, "it is refused")
            account.write("second")
        wait_until(Finished(at), "all is rated")
        assert_all_rated_once(at, 2 * ROUNDS)
        assert worker.running
        assert "first" not in worker.log() and "second" not in worker.log()


def restarts(worker: WorkerProcess) -> float:
    """How often a machine of the worker started over."""
    return worker.metric("stream_rater_restarts_total")
