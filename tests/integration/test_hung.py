"""Workers that hang, as a whole or in a call: nothing is lost, nothing is doubled."""

from tests.integration.processes import wait_until
from tests.integration.test_outages import at_work
from tests.integration.test_service import Start, a_round, assert_all_rated_once
from tests.integration.topics import Finished, produce
from tests.real import SettingsFactory


def test_a_hung_worker_does_no_harm(settings: SettingsFactory, worker_process: Start) -> None:
    """A worker that wakes up after others took its shards continues as a member, and nothing is
    doubled."""
    at = settings()
    worker = at_work(at, worker_process, 300)
    worker.pause()
    produce(at, [a_round(number) for number in range(300, 600)])
    successor = worker_process(at)
    wait_until(lambda: successor.metric("stream_rater_events_total") > 100, "it takes over")
    worker.go_on()
    wait_until(Finished(at), "all is rated")
    assert_all_rated_once(at, 600)
    assert worker.running


def test_a_role_that_fails_ends_the_worker(
    settings: SettingsFactory, worker_process: Start
) -> None:
    """It ends although the client library hangs while the other role leaves, and says why."""
    at = settings()
    hung = worker_process(at, module="tests.integration.hung_close")
    produce(at, [a_round(number) for number in range(20)])
    # Not by its time on a processor: the client's own threads go on.
    wait_until(lambda: not hung.running, "it ends", moves=lambda: len(hung.log()))
    assert hung.wait() == 1
    (failed,) = hung.events("role failed")
    assert (failed["failed"], failed["reason"]) == ("updater", "fenced")
    assert "hung_close.py" in hung.log()
    worker_process(at)
    wait_until(Finished(at), "all is rated")
    assert_all_rated_once(at, 20)


def test_a_call_that_never_returns_ends_the_worker(
    settings: SettingsFactory, worker_process: Start
) -> None:
    """It ends with one line. A worker that is started in its place rates everything."""
    at = settings()
    hung = worker_process(at, module="tests.integration.hung_client")
    produce(at, [a_round(number) for number in range(20)])
    assert hung.wait() == 1
    assert hung.log().splitlines()[-1] == ("stream-rater: updater: in a call that does not return")
    worker_process(at)
    wait_until(Finished(at), "all is rated")
    assert_all_rated_once(at, 20)
