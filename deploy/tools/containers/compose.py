"""`make compose`: deploy/compose.yaml on docker or podman, with the demo's season through it.

Images that no registry gives are made here where `containers.servers` knows how; a service whose
image cannot be had is left out, and its row says so.
"""

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import yaml

from containers import base, engine, servers
from containers.engine import Engine
from containers.load import Load
from containers.report import Failed, Report, wait_for
from local.processes import http_ok
from local.tools import ROOT, LocalServerError

FILE: Final = ROOT / "deploy" / "compose.yaml"
KAFKA: Final = "127.0.0.1:9092"
API: Final = "http://127.0.0.1:9109"
PROMETHEUS: Final = "http://127.0.0.1:9090"
LADDER: Final = "ranked-eu"
UP_S, SCRAPED_S, SEASON_S, BEFORE_S = 120.0, 60.0, 20.0, 8.0
TIMEOUT_S, PROBE_S = 600.0, 5.0
UPDATES: Final = "sum(stream_rater_updates_total)"


class Compose:
    """The project of deploy/compose.yaml."""

    def __init__(self, at: Engine) -> None:
        self._at = at
        docker = at.name == "docker"
        self._command = (
            ("docker", "compose") if docker else (sys.executable, "-m", "podman_compose")
        )
        self.services: Mapping[str, Any] = yaml.safe_load(FILE.read_text("utf-8"))["services"]
        self.absent: list[str] = []
        """Services whose image can neither be pulled nor made."""

    @property
    def present(self) -> list[str]:
        """The services whose image is there."""
        return [name for name in self.services if name not in self.absent]

    def run(self, *arguments: str) -> str:
        """What a command of compose prints. Raises Failed with its last lines if it fails."""
        done = subprocess.run(
            [*self._command, "--file", str(FILE), *arguments],
            env={**os.environ, **self._at.environment}, stdin=subprocess.DEVNULL,
            capture_output=True, text=True, errors="replace", timeout=TIMEOUT_S, check=False,
        )  # fmt: skip
        if done.returncode != 0:
            raise Failed(f"{arguments[0]}: {(done.stderr or done.stdout).strip()[-400:]}")
        return done.stdout

    def containers(self) -> dict[str, str]:
        """The state of each container of the project, by name."""
        output = self._at.run(
            "ps", "--all", "--filter=label=com.docker.compose.project=stream-rater",
            "--format={{.Names}}\t{{.State}}",
        )  # fmt: skip
        return dict(line.split("\t") for line in output.splitlines())

    def container(self, service: str) -> str:
        """The name of a service's container."""
        endings = (f"_{service}_1", f"-{service}-1")
        return next(name for name in self.containers() if name.endswith(endings))


class Checks:
    """The checks of the project. Each makes a row of the table."""

    def __init__(self, at: Engine, report: Report, folder: Path) -> None:
        self._at = at
        self._report = report
        self._folder = folder
        self._compose = Compose(at)

    def all(self) -> None:
        """Run all checks, in this order."""
        check = self._report.check
        if not check("images", self._images):
            return
        if running := self._compose.containers():
            raise LocalServerError(f"it runs already: {', '.join(running)}: stop it first")
        try:
            if check("up", self._up):
                check("health checks", self._healthy)
                check("season", self._season)
                check("verify", self._verify)
                check("API and page", self._answers)
                check("Prometheus", self._scraped)
                check("a worker killed", self._killed)
                check("verify, again", self._verify)
        finally:
            check("down", self._down)

    def _images(self) -> str:
        """Pull, build or make all images. Says which services have none."""
        recipes = {recipe.name: recipe for recipe in servers.RECIPES}
        lines = []
        for name, service in self._compose.services.items():
            image = service["image"]
            if image in recipes or self._at.has(image):
                lines.append(f"{name}: {self._had(image, recipes.get(image))}")
            elif "build" in service or image in self._own():
                raise Failed(f"no image {image}: run `make image`")
            elif (why := base.pulled(self._at, image)) is None:
                lines.append(f"{name}: pulled")
            else:
                self._compose.absent.append(name)
                lines.append(f"{name}: left out, its image cannot be had ({why})")
        return "; ".join(lines)

    def _had(self, image: str, recipe: servers.Recipe | None) -> str:
        if recipe is None:
            return "made here"
        if self._at.has(image) or base.pulled(self._at, image) is not None:
            servers.ensure(self._at, recipe, self._report.say)
        made = base.made_here(self._at, image)
        return "made of this machine's programs" if made else "from a registry"

    def _own(self) -> set[str]:
        """The images that are built for services."""
        return {each["image"] for each in self._compose.services.values() if "build" in each}

    def _up(self) -> str:
        began_s = time.monotonic()
        self._compose.run("up", "--no-build", "--detach", *self._compose.present)
        wait_for(lambda: answered(f"{API}/readyz"), "serve is ready", UP_S)
        wait_for(lambda: answered(f"{PROMETHEUS}/-/ready"), "Prometheus is ready", UP_S)
        count = len(self._compose.present)
        return f"{count} services, ready after {time.monotonic() - began_s:.0f} s"

    def _healthy(self) -> str:
        """The health checks of compose.yaml pass in the containers."""
        seen = []
        for name, service in self._compose.services.items():
            if test := service.get("healthcheck", {}).get("test"):
                done = self._at.tried("exec", self._compose.container(name), *test[1:])
                if done.returncode != 0:
                    raise Failed(f"{name}: {(done.stderr or done.stdout).strip()[-200:]}")
                seen.append(name)
        return f"{', '.join(seen)}: well"

    def _season(self) -> str:
        with Load(KAFKA, self._folder) as load:
            time.sleep(SEASON_S)
            return load.finish()

    def _verify(self) -> str:
        output = self._compose.run("run", "--rm", "-T", "--no-deps", "stream-rater", "verify",
                                 "--wait", "60")  # fmt: skip
        last = output.strip().splitlines()[-1]
        if "all equal" not in last:
            raise Failed(last)
        return last

    def _answers(self) -> str:
        """The API answers with the leaderboard, and the page is there."""
        rows = fetched(f"{API}/v1/ladders/{LADDER}/leaderboard?limit=3")["rows"]
        with urllib.request.urlopen(f"{API}/", timeout=10.0) as page:
            kind = page.headers.get_content_type()
        if len(rows) != 3 or kind != "text/html":
            raise Failed(f"{len(rows)} rows of 3, a page of {kind}")
        return f"the first of {LADDER}: {', '.join(row['player'] for row in rows)}; a page"

    def _scraped(self) -> str:
        """Prometheus sees every target up, counts rounds, and has loaded the rules."""

        def up() -> bool:
            found = queried("up")
            return len(found) == 2 and all(value == 1.0 for value in found)

        wait_for(up, "Prometheus scrapes both", SCRAPED_S)
        wait_for(lambda: sum(queried(UPDATES)) > 0, "it has counted updates", SCRAPED_S)
        groups = fetched(f"{PROMETHEUS}/api/v1/rules")["data"]["groups"]
        rules = sum(len(group["rules"]) for group in groups)
        if not rules:
            raise Failed("no rules")
        return f"2 targets up, {sum(queried(UPDATES)):.0f} updates counted, {rules} rules"

    def _killed(self) -> str:
        """Kill the worker while rounds arrive. Its restart policy starts it again."""
        name = self._compose.container("stream-rater")
        first = self._process(name)
        with Load(KAFKA, self._folder) as load:
            time.sleep(BEFORE_S)
            os.kill(first, signal.SIGKILL)
            wait_for(lambda: self._process(name) not in (0, first), "it is started again", UP_S)
            return f"started again by its restart policy; {load.finish()}"

    def _process(self, container: str) -> int:
        """The process id of a container, 0 while it has none."""
        return int(self._at.run("inspect", "--format={{.State.Pid}}", container))

    def _down(self) -> str:
        self._compose.run("down", "--volumes")
        if left := self._compose.containers():
            raise Failed(f"left: {', '.join(left)}")
        return "no container, volume or network left"


def played(report: Report) -> None:
    """Start the project, run all checks, and remove it."""
    with tempfile.TemporaryDirectory(prefix="stream-rater-compose-") as folder:
        Checks(engine.find(report.say), report, Path(folder)).all()


def answered(url: str) -> bool:
    """Whether a URL answers with a status of success."""
    with suppress(OSError):
        return http_ok(url, PROBE_S)
    return False


def fetched(url: str) -> Any:
    """The JSON value at a URL."""
    try:
        with urllib.request.urlopen(url, timeout=10.0) as answer:
            return json.load(answer)
    except (urllib.error.URLError, OSError, ValueError) as error:
        raise Failed(f"{url}: {error}") from None


def queried(expression: str) -> list[float]:
    """The values that Prometheus now has for an expression."""
    url = f"{PROMETHEUS}/api/v1/query?{urllib.parse.urlencode({'query': expression})}"
    return [float(row["value"][1]) for row in fetched(url)["data"]["result"]]
