"""The container engine: docker if its daemon answers, else podman, which needs no daemon."""

import os
import resource
import shutil
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from local.system import Package, ensure_packages
from local.tools import SERVERS, LocalServerError

FOLDER: Final = SERVERS / "containers"
MOST_FILES: Final = 65_536
MOST_PROCESSES: Final = 1024
"""The most processes of a user in a container: more than any of our programs has threads."""
PODMAN: Final = Package("podman", "podman", lambda: shutil.which("podman") is not None)
RUNC: Final = Package("runc", "runc", lambda: shutil.which("runc") is not None)
HELPERS: Final = (Path("/usr/lib/podman"), Path("/usr/libexec/podman"))
NETAVARK: Final = Package("netavark", "netavark (networks of podman)", lambda: _helper("netavark"))
AARDVARK: Final = Package(
    "aardvark-dns", "aardvark-dns (names on networks of podman)", lambda: _helper("aardvark-dns")
)


@dataclass(frozen=True)
class Engine:
    """An engine, by the command that calls it."""

    command: tuple[str, ...]
    environment: Mapping[str, str]
    building: tuple[str, ...] = ()
    """Further arguments of `build`."""

    @property
    def name(self) -> str:
        """`docker` or `podman`."""
        return self.command[0]

    def run(self, *arguments: str, timeout_s: float = 1800.0) -> str:
        """What a command prints. Raises LocalServerError with its last lines if it fails."""
        done = self.tried(*arguments, timeout_s=timeout_s)
        if done.returncode != 0:
            lines = (done.stderr.strip() or done.stdout.strip()).splitlines() or ["no reason given"]
            raise LocalServerError("\n".join([f"{self.name} {arguments[0]}: {lines[-1]}", *lines]))
        return done.stdout

    def tried(self, *arguments: str, timeout_s: float = 1800.0) -> subprocess.CompletedProcess[str]:
        """Run a command that may fail."""
        return subprocess.run(
            [*self.command, *arguments],
            env={**os.environ, **self.environment},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=timeout_s,
            check=False,
        )

    def has(self, image: str) -> bool:
        """Whether this machine has an image of that name."""
        return self.tried("image", "inspect", image).returncode == 0


def _helper(name: str) -> bool:
    return any((folder / name).exists() for folder in HELPERS)


def find(say: Callable[[str], None]) -> Engine:
    """The engine of this machine. Installs podman if there is none."""
    if shutil.which("docker") and _docker_answers():
        return Engine(("docker",), {})
    ensure_packages([PODMAN, RUNC, NETAVARK, AARDVARK], say)
    FOLDER.mkdir(parents=True, exist_ok=True)
    settings = FOLDER / "containers.conf"
    settings.write_text(podman_settings(*_hard_limits()), encoding="ascii")
    # Neither systemd nor a network of its own is needed to build.
    building = ("--isolation=chroot", "--format=docker")
    return Engine(("podman",), {"CONTAINERS_CONF": str(settings)}, building)


def podman_settings(files: int, processes: int) -> str:
    """podman's settings, with limits no higher than ours: raising them may not be allowed."""
    limits = f'"nofile={files}:{files}", "nproc={processes}:{processes}"'
    return (
        f"[containers]\ndefault_ulimits = [{limits}]\n"
        '[engine]\nevents_logger = "file"\ncgroup_manager = "cgroupfs"\nruntime = "runc"\n'
        '[network]\nnetwork_backend = "netavark"\n'
    )


def _hard_limits() -> tuple[int, int]:
    most = {resource.RLIMIT_NOFILE: MOST_FILES, resource.RLIMIT_NPROC: MOST_PROCESSES}
    hard = {kind: resource.getrlimit(kind)[1] for kind in most}
    files, processes = (
        most[kind] if limit == resource.RLIM_INFINITY else min(limit, most[kind])
        for kind, limit in hard.items()
    )
    return files, processes


def _docker_answers() -> bool:
    command = ["docker", "version", "--format", "{{.Server.Version}}"]
    try:
        done = subprocess.run(command, capture_output=True, timeout=20, check=False)
    except subprocess.TimeoutExpired:
        return False
    return done.returncode == 0


def mounts(pairs: Sequence[tuple[Path, str]]) -> list[str]:
    """Arguments that mount files of this machine, read-only, at paths of a container."""
    return [f"--volume={source}:{inside}:ro" for source, inside in pairs]
