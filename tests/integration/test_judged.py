"""The judge on real Kafka: it finds nothing in a run of real workers, and each fault that is
planted in a worker. Two recorders see the same. (In memory: `simulation/test_judged.py`.)"""

import itertools
import sys
from pathlib import Path

import msgspec
import pytest

from stream_rater.config.settings import Settings
from tests import real
from tests.chaos.judging import judge_twice, recording, words_of
from tests.chaos.season import lobbies
from tests.integration.processes import WorkerProcess, wait_until
from tests.integration.topics import Bytes, Finished, produce
from tests.judge.findings import Findings

ROUNDS = 60
IN_MEMORY_TOO = ("event-skipped", "duplicate-rated", "invalid-rated", "rejection-twice")
SLOW = [pytest.param(fault, marks=pytest.mark.slow) for fault in IN_MEMORY_TOO]
ON_KAFKA = ["aborted-is-committed", *SLOW]
"""Faults that are planted in a worker; the first of them needs a broker."""


def run(at: Settings, folder: Path, *words: str) -> Findings:
    """Rate rounds, some of which are repeated or invalid, by one worker, and judge the run."""
    worker = WorkerProcess(at, folder / "worker.log", command=words, forked=not words)
    try:
        with recording(folder / "live.jsonl.gz", "--name", "live", *words_of(at)) as live:
            worker.wait_ready()
            some = [*itertools.islice(lobbies(), ROUNDS)]
            some += [some[3], some[4] | {"round_id": "bad", "standings": some[4]["standings"][:1]}]
            produce(at, [Bytes(msgspec.json.encode(e), e["ladder"].encode()) for e in some])
            wait_until(finished := Finished(at), "all is rated", moves=finished.moves)
            return judge_twice(live, at)
    finally:
        worker.close()


def test_it_finds_nothing_in_a_run_of_real_workers(
    settings: real.SettingsFactory, tmp_path: Path
) -> None:
    """All is judged, and both readers saw the same."""
    found = run(settings(), tmp_path)
    assert found.clean, found.lines
    assert found.checked["changes"] == 8 * ROUNDS
    assert found.checked["rejections"] == 2
    records = 8 * ROUNDS + ROUNDS + 2 + 2
    assert found.checked["records compared between readers"] == records


@pytest.mark.parametrize("fault", ON_KAFKA)
def test_it_finds_a_fault_that_is_planted_in_a_worker(
    settings: real.SettingsFactory, tmp_path: Path, fault: str
) -> None:
    """Whatever the worker did to its own state."""
    words = (sys.executable, "-m", "tests.chaos.planted", fault, "run", "--role", "all")
    found = run(settings(), tmp_path, *words)
    assert found.violations, found.checked
