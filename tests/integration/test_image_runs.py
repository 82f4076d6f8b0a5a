"""Runs the commands of deploy/Dockerfile in a clean folder, and then the container's command, on
real servers.

Each RUN is executed as it is, except for compiling (`tests.image`); `make image-check` does that,
too.
"""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import image
from tests.builders.lines import a_message, a_round
from tests.image import Building, Stage
from tests.integration.processes import WorkerProcess, wait_until
from tests.integration.topics import Finished, produce
from tests.real import SettingsFactory

pytestmark = pytest.mark.slow  # what the Dockerfile says is in unit/test_image


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, Stage]]:
    """The image's /opt/stream-rater, which is read-only, and its last stage."""
    build, final = image.stages()
    building = Building(tmp_path_factory.mktemp("image"), build, brief=True)
    for step, took_s in building.run():
        print(f"{took_s:6.1f} s  {' '.join(step.split())[:80]}")
    image.lock_up(building.installed)
    yield building.installed, final


def test_the_container_starts_warm_and_rates(
    built: tuple[Path, Stage], settings: SettingsFactory, tmp_path: Path
) -> None:
    """ENTRYPOINT and CMD become ready, rate a round with the kernels of the image, and end on
    SIGTERM."""
    installed, final = built
    words = [json.loads(final.all(name)[-1]) for name in ("ENTRYPOINT", "CMD")]
    command, variables = image.in_the_image([*words[0], *words[1]], installed, final)
    at = settings()
    environment = variables | {
        "STREAM_RATER_HTTP": at.http,
        "PYTHONPATH": "",
        "NUMBA_DEBUG_CACHE": "1",
    }
    worker = WorkerProcess(at, tmp_path / "log", variables=environment, command=command)
    try:
        worker.wait_ready()
        produce(at, [a_message(a_round(1, "ann", "bob"))])
        wait_until(Finished(at), "it is rated")
        assert worker.metric("stream_rater_updates_total", outcome="applied") > 0
        worker.terminate()
        assert worker.wait() == 0
    finally:
        worker.close()
    assert image.LOADED in worker.log()
    assert image.SAVED not in worker.log(), "a kernel is compiled at the start"


def test_the_image_holds_what_it_should(built: tuple[Path, Stage]) -> None:
    """The image holds the locked packages, no build tools, and the bill of materials."""
    installed, final = built
    image.check_contents(installed, final)
