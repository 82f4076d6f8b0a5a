"""What an image and the chart run, on real servers: the commands of deploy/Dockerfile in a clean
folder (only `make image-check` also compiles), the container's, and the chart's as in a pod."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from local.tools import ROOT
from stream_rater.config.settings import PREFIX, Settings
from tests import image
from tests.builders.lines import a_message, a_round
from tests.helm import chart
from tests.image import Building, Stage
from tests.integration.processes import WorkerProcess, wait_until
from tests.integration.topics import rated
from tests.real import SettingsFactory
from tests.waits import HANGS_S

pytestmark = pytest.mark.slow  # what the Dockerfile says is in unit/test_image


@pytest.fixture(scope="module")
def building(tmp_path_factory: pytest.TempPathFactory) -> Building:
    """The build stage after its steps. /opt/stream-rater is read-only."""
    build, _ = image.stages()
    building = Building(tmp_path_factory.mktemp("image"), build, brief=True)
    for step, took_s in building.run():
        print(f"{took_s:6.1f} s  {' '.join(step.split())[:80]}")
    image.lock_up(building.installed)
    return building


@pytest.fixture(scope="module")
def built(building: Building) -> tuple[Path, Stage]:
    """The image's /opt/stream-rater, and its last stage."""
    return building.installed, image.stages()[-1]


def test_the_container_starts_warm_and_rates(
    built: tuple[Path, Stage], settings: SettingsFactory, tmp_path: Path
) -> None:
    """The container's command gets ready, rates by the image's kernels, and ends on SIGTERM."""
    installed, final = built
    words = [json.loads(final.all(name)[-1]) for name in ("ENTRYPOINT", "CMD")]
    command, variables = image.in_the_image([*words[0], *words[1]], installed, final)
    at = settings()
    more = {"STREAM_RATER_HTTP": at.http, "PYTHONPATH": "", "NUMBA_DEBUG_CACHE": "1"}
    log = tmp_path / "log"
    with closing(WorkerProcess(at, log, variables=variables | more, command=command)) as worker:
        worker.wait_ready()
        rated(at, a_message(a_round(1, "ann", "bob")))
        assert worker.metric("stream_rater_updates_total", outcome="applied") > 0
        worker.terminate()
        assert worker.wait() == 0
    assert image.LOADED in worker.log()
    assert image.SAVED not in worker.log(), "a kernel is compiled at the start"


def test_the_image_holds_what_it_should(built: tuple[Path, Stage]) -> None:
    """The image holds the locked packages, no build tools, and the bill of materials."""
    installed, final = built
    image.check_contents(installed, final)


def test_every_module_and_every_command_run_in_the_images_root(building: Building) -> None:
    """What the image's root leaves out is needed by no module and by no command's help."""
    image.check_root(building, image.stages()[-1])


# --- a pod of the chart ---

CONFIG = "/etc/stream-rater/config"


def changes_of(at: Settings) -> list[str]:
    """The chart values for this test's servers, topics and database."""
    return [
        "role=all", f"kafka.bootstrapServers={at.kafka}", f"kafka.topicPrefix={at.topic_prefix}",
        f"redis.url={at.redis}", f"settings.partitions={at.partitions}",
        f"settings.shards={at.shards}", f"settings.buckets={at.buckets}", "settings.replication=1",
        "ladders=[ladders.eu.rating]\nsystem = 'elo-mmr'\nweight_limit = 0.2\nsigma_limit = 80\n",
    ]  # fmt: skip


@contextmanager
def running(pod: dict[str, Any], folder: Path) -> Iterator["subprocess.Popen[bytes]"]:
    """Run the pod's container on another port, because many tests share a machine."""
    (container,) = pod["spec"]["containers"]
    ours = {name: value for name, value in os.environ.items() if not name.startswith(PREFIX)}
    named = {each["name"]: each.get("value", "rater-0") for each in container["env"]}
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "stream_rater"]
            + [each.replace(CONFIG, str(folder)) for each in container["args"]],
            cwd=ROOT, env=ours | named | {f"{PREFIX}HTTP": "127.0.0.1:0"}, stderr=log,
        )  # fmt: skip
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def port_of(log: Path) -> int:
    """The port that it listens on; 0 before it does."""
    lines = [json.loads(line) for line in log.read_text().splitlines() if line.endswith("}")]
    return next((int(line["port"]) for line in lines if line["event"] == "http"), 0)


def test_a_pods_command_rates_and_drains_in_time(settings: SettingsFactory, tmp_path: Path) -> None:
    """It has the rendered files. `helm test` says it is ready. SIGTERM ends it in time."""
    at = settings()
    changes = changes_of(at)
    for name, text in chart.files("separate", *changes).items():
        (tmp_path / name).write_text(text.replace(CONFIG, str(tmp_path)))
    pod = chart.worker_pods("separate", *changes)["all"]
    (tester,) = chart.the("Pod", "separate", "all.replicas=1", *changes)["spec"]["containers"]
    script, _, pods = tester["args"]
    with running(pod, tmp_path) as process:
        wait_until(lambda: port_of(tmp_path / "log") > 0, "it listens")
        helm_test = [sys.executable, "-c", script, f"127.0.0.1:{port_of(tmp_path / 'log')}", pods]
        assert subprocess.run([*helm_test, str(HANGS_S)], check=False).returncode == 0
        rated(at, a_message(a_round(1, "ann", "bob", ladder="eu")))
        process.send_signal(signal.SIGTERM)
        assert process.wait(pod["spec"]["terminationGracePeriodSeconds"]) == 0
