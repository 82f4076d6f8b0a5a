"""What all tests share: golden numbers, real data and servers, Hypothesis' profiles, how tests are
spread over processes, which of the slow tests are played, and how long each file took."""

import gc
import os
from collections import defaultdict
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import hypothesis
import msgspec
import pytest

from local.servers import Addresses
from tests import eighths, real

# The same examples on every run, so that a red build is never a matter of luck. To look for new
# ones: pytest --hypothesis-profile=wild
hypothesis.settings.register_profile("ci", derandomize=True, database=None, deadline=None)
hypothesis.settings.register_profile("wild", max_examples=2000, deadline=None, print_blob=True)
hypothesis.settings.load_profile("ci")

HERE = Path(__file__).parent
LONG_FIRST = (
    "integration/test_access.py", "integration/test_image_runs.py", "integration/test_seasons.py",
    "integration/test_erase.py", "integration/test_move_kafka.py", "integration/test_rebuild.py",
    "integration/test_outages.py", "integration/test_erase_refusals.py",
    "integration/test_service.py", "integration/test_log_ends.py", "integration/test_readme.py",
    "integration/", "simulation/", "contract/", "property/", "helm/", "fuzz/", "golden/",
)  # fmt: skip
"""These run first: a long file that begins last would leave all processes but one without work."""


PROCESSES = 3  # Test processes for each processor, if tests use servers: they mostly wait.
GIB_EACH = 2  # The memory of a test process and of what it starts, in GiB, rounded up.

SERVERS = pytest.StashKey[ExitStack]()
KAFKA = pytest.StashKey[str]()  # The Kafka that all test processes of a run share.
CHOSEN = pytest.StashKey[set[int]]()  # The eighths of the test files that a run plays; absent: all.

SECONDS = defaultdict[str, float](float)  # Seconds that each test file took, over all processes.
DEAREST = 40


def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """For `-n auto`: one process a processor; with servers PROCESSES, if the memory allows it."""
    processors = len(os.sched_getaffinity(0))
    if not _has_servers(config):
        return processors
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2**30
    return max(processors, min(PROCESSES * processors, memory // GIB_EACH))


def _has_servers(config: pytest.Config) -> bool:
    """Whether a run has more than a few of the tests with servers."""
    chosen = {Path(each).resolve() for each in config.args}
    everything = chosen <= {HERE, HERE.parent} or not chosen.isdisjoint({HERE / "integration"})
    return everything and "not integration" not in config.option.markexpr


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_setupnodes(config: pytest.Config) -> None:
    """Start the shared Kafka. Each process has its own Redis, whose settings tests change."""
    if _has_servers(config):
        stack = config.stash[SERVERS] = ExitStack()
        config.stash[KAFKA] = stack.enter_context(real.a_kafka())


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Give a test process the address of the shared Kafka, and the chosen eighths."""
    node.workerinput["kafka"] = node.config.stash.get(KAFKA, None)
    if numbers := node.config.stash.get(CHOSEN, None):
        node.workerinput["eighths"] = sorted(numbers)


def pytest_unconfigure(config: pytest.Config) -> None:
    config.stash.get(SERVERS, ExitStack()).close()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--eighth", default="", help="0 to 7, or commit: only these test files")


def pytest_configure(config: pytest.Config) -> None:
    """Choose the eighths, or take those that the main process has chosen."""
    of_run: dict[str, Any] = getattr(config, "workerinput", {})
    if "eighths" in of_run:
        config.stash[CHOSEN] = set(of_run["eighths"])
    elif asked := config.getoption("--eighth"):
        config.stash[CHOSEN] = eighths.chosen(asked)


def pytest_report_header(config: pytest.Config) -> list[str]:
    numbers = sorted(config.stash.get(CHOSEN, ()))
    names = ", ".join(str(each) for each in numbers)
    return [f"eighth: {names} of 0 to 7, and files that this commit changes"] if numbers else []


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keep only files of the chosen eighths and changed files, and put long files first."""
    if numbers := config.stash.get(CHOSEN, set[int]()):
        changed = eighths.changed_files()
        files = {item.path: item.path.relative_to(HERE.parent).as_posix() for item in items}
        kept = {
            path for path, file in files.items()
            if eighths.eighth_of(file) in numbers or file in changed
        }  # fmt: skip
        config.hook.pytest_deselected(items=[each for each in items if each.path not in kept])
        items[:] = [each for each in items if each.path in kept]

    def rank(item: pytest.Item) -> int:
        path = item.path.relative_to(HERE).as_posix()
        ranks = (i for i, start in enumerate(LONG_FIRST) if path.startswith(start))
        return next(ranks, len(LONG_FIRST))

    items.sort(key=rank)


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    SECONDS[report.nodeid.partition("::")[0]] += report.duration


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """Print the files that took longest, and remember an eighth that failed."""
    if len(SECONDS) > DEAREST:
        terminalreporter.section(f"the {DEAREST} dearest files, in seconds of test processes")
        for file in sorted(SECONDS, key=SECONDS.__getitem__, reverse=True)[:DEAREST]:
            terminalreporter.write_line(f"{SECONDS[file]:7.1f} {file}")
        terminalreporter.write_line(f"{sum(SECONDS.values()):7.1f} all {len(SECONDS)} files")
    if numbers := config.stash.get(CHOSEN, set[int]()):
        stats = terminalreporter.stats
        eighths.remember(numbers, not stats.get("failed") and not stats.get("error"))


@pytest.fixture(autouse=True)
def collector() -> Iterator[None]:
    """Restore the thresholds of gc, which some commands raise: else connections would pile up."""
    before = gc.get_threshold()
    yield
    gc.set_threshold(*before)


@pytest.fixture(scope="session")
def shared() -> Path:
    """The shared folder (golden numbers, data); where there is none, the test is skipped."""
    beside = Path(__file__).resolve().parents[2] / "shared"
    folder = Path(os.environ.get("STREAM_RATER_SHARED") or beside)
    if not (folder / "golden").is_dir():
        reason = f"no shared folder at {folder}: set STREAM_RATER_SHARED"
        if os.environ.get("CI"):
            pytest.fail(reason)
        pytest.skip(reason)
    return folder


@pytest.fixture(scope="session")
def addresses(request: pytest.FixtureRequest) -> Iterator[Addresses]:
    """Real servers: each test process has a Redis of its own, and all of them share one Kafka."""
    of_run: dict[str, Any] = getattr(request.config, "workerinput", {})
    with real.a_pair(of_run.get("kafka")) as found:
        yield found


@pytest.fixture
def settings(addresses: Addresses) -> Iterator[real.SettingsFactory]:
    """A factory of settings: real servers, with topics and a Redis database for this test only."""
    with real.a_place(addresses) as place:
        yield lambda **changes: msgspec.structs.replace(place, **changes)
