"""Corrections while workers of two kernel versions run, which compute other bits."""

from collections.abc import Callable

from tests import real
from tests.chaos.tally import differing
from tests.integration.processes import NEXT_RELEASE, WorkerProcess, wait_until
from tests.integration.test_corrections import (
    RANKED,
    correct,
    corrections,
    published_events,
    rated,
    season,
    verified,
)
from tests.integration.test_rebuild import gone, rebuild

Start = Callable[..., WorkerProcess]


def test_corrections_of_two_kernel_versions(
    settings: real.SettingsFactory, worker_process: Start
) -> None:
    """Estimators of both replay corrections, each with checkpoints of its own, and a newer updater
    applies them. Each event begins where the last one ended, and Redis has the last published
    values. Then the operator goes back: the older release's rebuild reads what the newer one has
    applied."""
    at = settings(partitions=1, correction_threshold=0.0, checkpoint_every=5)
    older = worker_process(at, "estimator")
    newer = [worker_process(at, "updater", module=NEXT_RELEASE)]
    rated(at, *season(0, 60))
    assert corrections(at, correct(at, "void", RANKED, "r41"))

    older.terminate()
    older.wait()
    newer.append(worker_process(at, "estimator", ready=False, module=NEXT_RELEASE))
    assert corrections(at, correct(at, "void", RANKED, "r43"))
    assert corrections(at, correct(at, "void", RANKED, "r45"))
    rated(at, *season(60, 20))
    last = {who: events[-1] for who, events in published_events(at).items()}
    assert [*differing(last, at)] == []

    for worker in newer:
        worker.terminate()
        worker.wait()
    wait_until(gone(at), "all have left")
    done = rebuild(at, "--replace")
    assert done.returncode == 0, done.stderr
    worker_process(at)
    assert corrections(at, correct(at, "void", RANKED, "r47"))
    rated(at, *season(80, 20))
    verified(at)
