"""Workers that hang, as a whole or in a call: nothing is lost, nothing is doubled."""

from local.servers import Addresses
from tests import real
from tests.integration.processes import wait_until
from tests.integration.test_outages import at_work
from tests.integration.test_service import Start, a_round, assert_all_rated_once
from tests.integration.topics import Finished, produce


def test_a_hung_worker_does_no_harm(settings: real.SettingsFactory, worker_process: Start) -> None:
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


def test_a_call_that_never_returns_ends_the_worker(
    addresses: Addresses, worker_process: Start
) -> None:
    """It ends with one line. If a role fails, the worker ends although the client library hangs
    while the other role leaves, and says why. A worker that is started in its place rates
    everything."""
    with real.a_place(addresses) as one, real.a_place(addresses) as other:
        never = worker_process(one, module="tests.integration.hung_client")
        failed = worker_process(other, module="tests.integration.hung_close")
        for at in (one, other):
            produce(at, [a_round(number) for number in range(20)])
        # Not by its time on a processor: the client's own threads go on.
        wait_until(lambda: not failed.running, "it ends", moves=lambda: len(failed.log()))
        assert failed.wait() == never.wait() == 1
        # The watchdog's dump may follow, where a busy machine takes long to end the process.
        said = [line for line in never.log().splitlines() if line.startswith("stream-rater")]
        assert said == ["stream-rater: updater: in a call that does not return"]
        (why,) = failed.events("role failed")
        assert (why["failed"], why["reason"]) == ("updater", "fenced")
        assert "hung_close.py" in failed.log()
        for at in (one, other):
            worker_process(at, ready=False)
        for at in (one, other):
            wait_until(Finished(at), "all is rated")
            assert_all_rated_once(at, 20)
