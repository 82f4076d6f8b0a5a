"""Workers and topics for tests on real servers (`tests/conftest.py` starts those).

def test_something(settings, worker_process):
    at = settings(shards=4)                 # own topics, own Redis database
    worker = worker_process(at)             # ready; also .pid .kill() .terminate() .wait() .log()
    produce(at, [a_message(...)])           # tests.integration.topics
    api = serve(at)                         # a thread of this process; `serve_process`: a process
"""

from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from stream_rater.adapters.kafka.season_topic import topic_of
from stream_rater.adapters.kafka.topics import Admin, delete_topics
from stream_rater.config.settings import Settings
from tests.builders.serves import ServeHere, serves_here
from tests.integration.processes import Start, WorkerProcess, workers
from tests.integration.serving import Serve, serves
from tests.real import SettingsFactory


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Every test here starts real servers."""
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.integration)


STARTED = pytest.StashKey[list[WorkerProcess]]()  # The workers of a test that became ready.


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Add the state and the log of its workers to a failed test's report."""
    report = yield
    if report.when == "call" and report.failed:
        for worker in item.stash.get(STARTED, ()):
            report.sections.append((f"worker {worker.pid}", worker.report()))
    return report


@pytest.fixture
def worker_process(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Start]:
    """Starts `stream-rater run`: `worker_process(settings, role="all", ready=True, **variables)`.

    Returns once the worker is ready, or at once with `ready=False`. Workers that still run at the
    end are killed. Those of this release are forks (`forks`), unless `forked=False` is given."""
    started = request.node.stash[STARTED] = []

    def start_recorded(*given: Any, forked: bool = True, **named: Any) -> WorkerProcess:
        started.append(start(*given, forked=forked, **named))
        return started[-1]

    with workers(tmp_path) as start:
        yield start_recorded


@pytest.fixture
def serve() -> Iterator[ServeHere]:
    """Starts `serve` in threads of this process (`tests.builders.serves`)."""
    with serves_here() as start:
        yield start


@pytest.fixture
def serve_process(tmp_path: Path) -> Iterator[Serve]:
    with serves(tmp_path) as start:
        yield start


@pytest.fixture
def generation(settings: SettingsFactory) -> Iterator[Callable[..., Settings]]:
    """Makes settings of another generation of topics of `at`, which are deleted at the end."""
    made: list[Settings] = []

    def of(at: Settings, name: str = "v2") -> Settings:
        made.append(msgspec.structs.replace(at, topic_prefix=f"{at.topic_prefix}{name}."))
        return made[-1]

    yield of
    for each in made:
        admin = Admin(each)
        if there := list(admin.partitions()):
            seasons = topic_of(each)
            delete_topics(each, there + [seasons] * bool(admin.partitions_if_any(seasons)))
