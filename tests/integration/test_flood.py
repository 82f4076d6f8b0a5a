"""A faulty producer: its partition is paused, the metric says so, it costs nothing, and the others
continue."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests import real
from tests.integration.bad_rounds import a_round
from tests.integration.processes import WorkerProcess, wait_until
from tests.integration.topics import Bytes, Finished, produce

FLOOD = 8000
FOR_LONG, A_WHILE = 100, 400
"""The allowed rejections per second. A burst is ten seconds' worth: 1000 or 4000 of them. The
partition is then paused for 70 seconds, which suffices on any machine, or for 10."""
REST_METRIC, EVENTS_METRIC = "stream_rater_resting_partitions", "stream_rater_events_total"
PAUSED = "partitions paused: too many rejections"


def cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / 100.0


def flooded(
    settings: real.SettingsFactory, worker_process: Callable[..., WorkerProcess], per_second: int
) -> WorkerProcess:
    """A worker of two partitions, the first of which is paused, with a round at its end."""
    at = settings(partitions=2, rejects_per_second=per_second)
    worker = worker_process(at)
    produce(at, [Bytes(b"junk %d" % n, partition=0) for n in range(FLOOD)])
    wait_until(lambda: bool(worker.events(PAUSED)), "the partition rests")
    produce(at, [Bytes(a_round(round_id="behind"), partition=0)])
    return worker


def test_the_neighbours_of_a_flood_are_rated(
    settings: real.SettingsFactory, worker_process: Callable[..., WorkerProcess]
) -> None:
    """The metric says that the partition is paused, and the worker is healthy."""
    worker = flooded(settings, worker_process, FOR_LONG)
    produce(worker.settings, [Bytes(a_round(round_id="beside", ladder="us"), partition=1)])
    wait_until(lambda: worker.metric(EVENTS_METRIC) >= 2, "the neighbour's round is rated")
    assert worker.metric(EVENTS_METRIC) == 2
    wait_until(lambda: worker.metric(REST_METRIC) == 1, "the metric shows that one rests")
    assert worker.get("/healthz")[0] == worker.get("/readyz")[0] == 200


@pytest.mark.slow
def test_a_flood_costs_little_and_what_is_behind_it_is_rated_later(
    settings: real.SettingsFactory, worker_process: Callable[..., WorkerProcess]
) -> None:
    """Each of its records is rejected once, with a pause in between that the metric shows."""
    worker = flooded(settings, worker_process, A_WHILE)
    used_s = cpu_s(worker.pid)
    wait_until(lambda: worker.metric(REST_METRIC) == 1, "the metric shows it")
    wait_until(lambda: worker.metric(REST_METRIC) == 0, "it goes on", every_s=0.2)
    assert cpu_s(worker.pid) - used_s < 4.0  # of the ten seconds or more that it rested
    wait_until(lambda: worker.metric(EVENTS_METRIC) == 2, "the round behind the flood is rated")
    wait_until(Finished(worker.settings), "all is finished")
    assert worker.metric("stream_rater_rejected_total", code="malformed") == FLOOD
    assert worker.metric("stream_rater_restarts_total") == 0
