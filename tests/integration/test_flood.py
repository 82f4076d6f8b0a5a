"""A producer gone mad: its partition rests, tells so, and costs nothing; the others go on."""

from collections.abc import Callable
from pathlib import Path

from tests import real
from tests.integration.bad_rounds import a_round
from tests.integration.processes import WorkerProcess, wait_until
from tests.integration.topics import Bytes, Finished, produce

PER_SECOND = 400
FLOOD = 8000
"""A burst is ten seconds' worth: then it takes ten more seconds until the partition is read on."""
REST_METRIC = "stream_rater_resting_partitions"


def cpu_s(pid: int) -> float:
    """Seconds of CPU that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / 100.0


def test_a_flood_rests_its_partition_and_no_other(
    settings: real.SettingsFactory, worker_process: Callable[..., WorkerProcess]
) -> None:
    """The metric says so; valid rounds elsewhere are rated meanwhile, behind the flood later."""
    at = settings(partitions=2, rejects_per_second=PER_SECOND)
    worker = worker_process(at)
    produce(at, [Bytes(b"junk %d" % n, partition=0) for n in range(FLOOD)])
    wait_until(lambda: worker.metric(REST_METRIC) == 1, "the partition rests")
    produce(at, [Bytes(a_round(round_id="behind"), partition=0)])
    used_s = cpu_s(worker.pid)
    produce(at, [Bytes(a_round(round_id="beside", ladder="us"), partition=1)])
    published = "stream_rater_events_total"
    wait_until(lambda: worker.metric(published) == 2, "the neighbour's round is rated", 8.0)
    assert worker.metric(REST_METRIC) == 1
    assert worker.get("/healthz")[0] == worker.get("/readyz")[0] == 200
    wait_until(lambda: worker.metric(REST_METRIC) == 0, "it goes on", 40.0, 0.2)
    assert cpu_s(worker.pid) - used_s < 4.0  # of the ten seconds or more that it rested
    wait_until(lambda: worker.metric(published) == 4, "the round behind the flood is rated")
    wait_until(Finished(at), "all is finished")
    assert worker.metric("stream_rater_rejected_total", code="malformed") == FLOOD
    assert worker.metric("stream_rater_restarts_total") == 0
    assert worker.events("partitions rest: too many rejections")
