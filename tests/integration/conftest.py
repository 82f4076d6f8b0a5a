"""Workers and topics for tests on real servers (`tests/conftest.py` starts those).

def test_something(settings, worker_process):
    at = settings(shards=4)                 # own topics, own Redis database
    worker = worker_process(at)             # ready; also .pid .kill() .terminate() .wait() .log()
    produce(at, [a_message(...)])           # tests.integration.topics
"""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.integration.processes import WorkerProcess, workers


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Every test here starts real servers."""
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.integration)


@pytest.fixture
def worker_process(tmp_path: Path) -> Iterator[Callable[..., WorkerProcess]]:
    """Starts `stream-rater run`: `worker_process(settings, role="all", ready=True, **variables)`.

    Returns once it is ready (unless told not to wait); whatever still runs is killed in the end.
    """
    with workers(tmp_path) as start:
        yield start
