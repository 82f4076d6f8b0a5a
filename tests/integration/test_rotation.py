"""Redis' password changes while workers rate: no process is started again, and nothing is lost."""

from collections.abc import Callable
from pathlib import Path

import pytest

from local.servers import start_redis
from local.tools import REDIS_VARIABLE, find_redis_server, given_address
from stream_rater.adapters.kafka.topics import Topics
from stream_rater.operations import verify
from tests import real
from tests.builders.lines import a_message, a_round
from tests.contract.test_redis_login import Account
from tests.integration.castle import LONG_AGO
from tests.integration.processes import WorkerProcess, wait_until
from tests.integration.topics import Finished, produce, read_topic
from tests.waits import STILL_S

pytestmark = pytest.mark.skipif(
    given_address(REDIS_VARIABLE) is not None and find_redis_server() is None,
    reason="Redis is given, and none is installed here",
)

ROUNDS = 60
"""How many rounds wait when the password changes."""


def test_a_password_that_changes_under_load(
    settings: real.SettingsFactory, worker_process: Callable[..., WorkerProcess], tmp_path: Path
) -> None:
    """Redis closes the connections of the user whose password changed. The worker logs in again
    with what the file has then, whether the file or Redis changed first, and goes on."""
    with start_redis(tmp_path / "redis") as server:
        account = Account(tmp_path / "password", server)
        at = account.settings(redis=server.address)
        given = {name: getattr(at, name) for name in ("redis", "redis_username")}
        file = {"redis_password": "", "redis_password_file": str(account.file)}
        worker = worker_process(settings(**given, **file))
        at = settings(**given, redis_password="third")

        def more(first: int) -> None:
            produce(
                at, [a_message(a_round(first + n, completed_at=LONG_AGO)) for n in range(ROUNDS)]
            )

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
