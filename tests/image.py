"""Checks deploy/Dockerfile without a container engine (`make image-check`).

It runs the commands of the build stage by the stage's shell, below a new folder, then what the
image runs, with no right to write there. A traced round's span must reach a collector. In the
image's root, every module must be imported and every command must run. Left out are the base image
and the copy between stages. `make test-all` copies this tree's kernels, and compiles Elo-MMR."""

import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

from dockerfile_parse import DockerfileParser

from containers.image import COMMANDS, IMPORTS, LOADED, OF_THE_LAB, SAVED, WARM_S, commands_in
from local.tools import ROOT
from stream_rater.columns import kernel_files, kernels  # noqa: F401  # which sets the level
from tests.helm.chart import worker_pods

DOCKERFILE = ROOT / "deploy" / "Dockerfile"
PREFIX = "/opt/stream-rater"
COMPILING = "stream_rater.cli.compile_kernels --all"  # The long part of the build.
LEVEL = "x86-64-v3"  # The CPU level of the kernels in the image.
DISTRIBUTIONS = (
    "from importlib import metadata as m; print(*(d.metadata['Name'] for d in m.distributions()))"
)


@dataclass
class Stage:
    """What a stage of the Dockerfile says, in order."""

    steps: list[tuple[str, str]] = field(default_factory=list)  # (instruction, value).

    def all(self, instruction: str) -> list[str]:
        return [value for name, value in self.steps if name == instruction]


def stages(path: Path = DOCKERFILE) -> list[Stage]:
    """The stages, the last being the image's."""
    parser = DockerfileParser(fileobj=path.open("rb"))
    found: list[Stage] = []
    steps: list[dict[str, Any]] = parser.structure
    for step in steps:
        if step["instruction"] == "FROM":
            found.append(Stage())
        if found and step["instruction"] != "COMMENT":
            found[-1].steps.append((step["instruction"], step["value"]))
    return found


def variables(stage: Stage) -> dict[str, str]:
    """What the ENV instructions (in the form NAME=value) set."""
    pairs = [each.partition("=") for value in stage.all("ENV") for each in value.split()]
    return {name: value for name, _, value in pairs}


class Building:
    """The build stage, below a folder instead of /. `brief`: take this tree's compiled kernels."""

    def __init__(self, root: Path, stage: Stage, *, brief: bool = False) -> None:
        self.installed = root / PREFIX.lstrip("/")
        self._work = root / "work"
        self.root = self._work / "root"  # The image's root, without what is installed.
        self._work.mkdir(parents=True)
        self._environment = {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
        self._environment |= variables(stage)
        self._environment |= {n: v for n, v in os.environ.items() if n.startswith("PIP_")}
        self._stage = stage
        self._brief = brief

    def run(self) -> Iterator[tuple[str, float]]:
        """Run the steps. Yields each with its seconds; raises if a command fails."""
        assert not self._brief or any(COMPILING in each for each in self._stage.all("RUN"))
        for instruction, value in self._stage.steps:
            began_s = time.monotonic()
            if instruction == "COPY":
                self._copy(value.split())
            elif instruction == "RUN":
                command = value.replace(PREFIX, str(self.installed))
                if self._brief and COMPILING in command:
                    assert LEVEL in command
                    lend_kernels(self.installed)
                    command = command.replace(COMPILING, COMPILING.removesuffix(" --all"))
                    command = command.replace(LEVEL, kernel_files.level())
                subprocess.run(
                    ["/bin/sh", "-euc", command], cwd=self._work, env=self._environment, check=True
                )
            else:
                continue
            yield f"{instruction} {value}", time.monotonic() - began_s

    def _copy(self, words: Sequence[str]) -> None:
        *sources, target = words
        for source in sources:
            path, to = ROOT / source, self._work / target
            if path.is_dir():
                shutil.copytree(path, to, ignore=shutil.ignore_patterns("__pycache__"))
            else:
                shutil.copy(path, to)


def lend_kernels(installed: Path) -> None:
    """Copy this tree's compiled kernels to where the installed package looks for its own."""
    (package,) = installed.glob("lib/*/site-packages/stream_rater")
    ours = kernel_files.written() / kernel_files.level()
    lent = package / "compiled" / kernel_files.STATE / kernel_files.level()
    shutil.copytree(ours, lent, dirs_exist_ok=True)


def as_the_image(command: Sequence[str], installed: Path, image: Stage, **more: str) -> str:
    """What a command prints with the image's variables, and with no right to write into it."""
    words, environment = in_the_image(command, installed, image)
    done = subprocess.run(
        words, env=environment | more, cwd="/", stdout=subprocess.PIPE, text=True, check=True
    )
    return done.stdout


def in_the_image(
    command: Sequence[str], installed: Path, image: Stage
) -> tuple[list[str], dict[str, str]]:
    """The same command as words and variables of a process that is to be started."""
    environment = variables(image)
    path = environment["PATH"].replace(PREFIX, str(installed)).replace("$PATH", os.environ["PATH"])
    setpriv = shutil.which("setpriv") or "setpriv"  # the image's PATH leads to its own programs
    powerless = [setpriv, "--bounding-set=-all"] if os.geteuid() == 0 else []
    program, *arguments = command
    found = shutil.which(program, path=path)
    assert found is not None, f"no {program} in the image"
    return [*powerless, found, *arguments], environment | {"PATH": path}


def in_the_root(command: Sequence[str], building: Building, image: Stage) -> str:
    """What a command prints in the image's root, run by the image's Python as the image's user."""
    inside = Path(f"{building.root}{building.installed}")
    if not inside.exists():
        shutil.copytree(building.installed, inside, symlinks=True, copy_function=os.link)
        shared = building.root / "dev" / "shm"  # a container engine mounts it; a file is /dev/null
        shared.mkdir(parents=True)
        shared.chmod(0o1777)
        (building.root / "dev" / "null").touch(0o666)
    user = ["chroot", f"--userspec={image.all('USER')[-1]}"]
    if os.geteuid():
        user = ["unshare", "--map-root-user", "chroot"]
    environment = variables(image)
    environment["PATH"] = environment["PATH"].replace(PREFIX, str(building.installed))
    program = f"{building.installed}/bin/{command[0]}"
    found = [shutil.which(user[0]) or user[0], *user[1:], str(building.root)]
    done = subprocess.run(
        [*found, program, *command[1:]], env=environment, check=False,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-3000:]
    return done.stdout


def check_root(building: Building, image: Stage) -> None:
    """In the root, all modules but the laboratory's are imported, and every command runs."""
    _, lacking = in_the_root(["python", "-c", IMPORTS], building, image).split()[-2:]
    assert set(lacking.split(",")) <= OF_THE_LAB | {"-"}, lacking
    output = in_the_root(["python", "-c", COMMANDS], building, image)
    count, wrong = commands_in(output)
    assert count and not wrong, output[-3000:]


class Collector(BaseHTTPRequestHandler):
    """Takes what is sent by OTLP over HTTP."""

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        reported: Any = self.server
        reported.decoded.append((self.path, body))
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_: Any) -> None:
        """Print nothing."""


TRACE_ID = "0af7651916cd43dd8448eb211c80319c"
SPAN = f"""
from stream_rater.pipeline.observer import Traced
from stream_rater.runtime.observer import spans_of
from stream_rater.contract.record import Trace
trace = Trace("00-{TRACE_ID}-b7ad6b7169203331-01")
with spans_of("updater", "parts")([Traced(trace, "eu", "r", 0, 0)]):
    pass
"""


def check_spans(run: Callable[..., str]) -> None:
    """A span reaches a collector. `run` runs the chart's command with the chart's variables."""
    server: Any = HTTPServer(("127.0.0.1", 0), Collector)
    server.decoded = []
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        (container,) = worker_pods("secured")["updater"]["spec"]["containers"]
        given = {each["name"]: each.get("value", "") for each in container["env"]}
        variables = {name: value for name, value in given.items() if name.startswith("OTEL_")}
        variables["OTEL_EXPORTER_OTLP_ENDPOINT"] = f"http://127.0.0.1:{server.server_port}"
        run([*container["command"][:-1], "python", "-c", SPAN], **variables)
    finally:
        server.shutdown()
    ((path, body),) = server.decoded
    assert path == "/v1/traces", path
    assert bytes.fromhex(TRACE_ID) in body and b"update" in body, body


def lock_up(folder: Path) -> None:
    """Take all rights to write below a folder, as on a read-only root."""
    for path in (folder, *folder.rglob("*")):
        if not path.is_symlink():
            path.chmod(path.stat().st_mode & ~0o222)


def main() -> int:
    """Build, then look at what was built; raises where something is not as it must be."""
    build, image = stages()
    with tempfile.TemporaryDirectory(prefix="stream-rater-image-") as folder:
        building = Building(Path(folder), build)
        for step, took_s in building.run():
            print(f"{took_s:6.1f} s  {' '.join(step.split())[:80]}", file=sys.stderr)
        lock_up(building.installed)
        check(building.installed, image)
        check_root(building, image)
    print("the image builds; what it runs starts warm and writes nothing into it", file=sys.stderr)
    return 0


def check(installed: Path, image: Stage) -> None:
    """The image starts with compiled kernels, sends spans, and has the contents that it must."""
    warm = ["python", "-m", "stream_rater.runtime.selfcheck", "--all"]
    cached = as_the_image(warm, installed, image, NUMBA_DEBUG_CACHE="1")
    assert LOADED in cached, "no kernel was compiled at the build"
    assert SAVED not in cached, "a kernel is compiled at the start"
    for system, took in re.findall(r"^([a-z-]+): ([\d.]+) s$", cached, re.MULTILINE):
        print(f"{system}: {took} s until the first rounds are rated", file=sys.stderr)
        assert float(took) < WARM_S, f"{system}: {took} s"
    check_spans(partial(as_the_image, installed=installed, image=image))
    check_contents(installed, image)


def check_contents(installed: Path, image: Stage) -> None:
    """It has the command, what the lock names, no build tools, and the bill of materials."""
    reported = as_the_image(["stream-rater", "--version"], installed, image)
    assert reported.startswith("stream-rater, version"), reported
    listed = as_the_image(["python", "-c", DISTRIBUTIONS], installed, image).split()
    assert {"numba", "confluent-kafka", "stream-rater"} <= set(listed), listed
    assert {"hatchling", "pip", "setuptools"} & set(listed) == set(), listed
    assert b'"CycloneDX"' in (installed / "sbom.cdx.json").read_bytes()


if __name__ == "__main__":
    sys.exit(main())
