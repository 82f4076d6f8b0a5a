"""Looks for what the system's packages must bring, and installs what is missing by apt-get.

A package that brings a service must not start it: nobody expects the system's Redis on port 6379.
A service that ran before is left alone.
"""

import importlib
import importlib.util
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from local.tools import (
    JAVA_MINIMUM,
    REDIS_MINIMUM,
    LocalServerError,
    find_java,
    find_prometheus,
    find_promtool,
    find_redis_server,
)

POLICY: Final = Path("/usr/sbin/policy-rc.d")
_POLICY_TEXT: Final = "#!/bin/sh\n# stream-rater setup: start no service\nexit 101\n"


@dataclass(frozen=True)
class Package:
    """A package of Debian, and what it is needed for."""

    name: str
    gives: str
    present: Callable[[], bool]
    service: str | None = None  # the systemd unit that it brings


REDIS: Final = Package(
    "redis-server",
    f"redis-server {REDIS_MINIMUM} or newer",
    lambda: find_redis_server() is not None,
    service="redis-server",
)
JAVA: Final = Package(
    "default-jre-headless",
    f"Java {JAVA_MINIMUM} or newer",
    lambda: find_java() is not None,
)
PROMETHEUS: Final = Package(
    "prometheus",
    "Prometheus with promtool",
    lambda: find_prometheus() is not None and find_promtool() is not None,
    service="prometheus",
)
CHROMIUM: Final = Package(
    "chromium", "Chromium, for tests of the page", lambda: shutil.which("chromium") is not None
)
MAVEN: Final = Package("maven", "Maven (mvn)", lambda: shutil.which("mvn") is not None)


def _has_ensurepip() -> bool:
    importlib.invalidate_caches()
    return importlib.util.find_spec("ensurepip") is not None


# Debian splits ensurepip off from Python; without it `python -m venv` makes no pip.
VENV: Final = Package(
    f"python{sys.version_info.major}.{sys.version_info.minor}-venv",
    "Python's venv module with pip",
    _has_ensurepip,
)


def ensure_packages(wanted: Sequence[Package], say: Callable[[str], None]) -> None:
    """Install those of the wanted packages whose purpose nothing on this machine fulfils."""
    missing = [package for package in wanted if not package.present()]
    if not missing:
        return
    if os.geteuid() != 0:
        raise LocalServerError(describe(missing, "not root"))
    if shutil.which("apt-get") is None:
        raise LocalServerError(describe(missing, "no apt-get here"))
    say(f"installing {', '.join(package.name for package in missing)} with apt-get")
    with services_not_started(missing):
        failure = _apt_install([package.name for package in missing])
    still_missing = [package for package in missing if not package.present()]
    if still_missing:
        raise LocalServerError(describe(still_missing, failure or "apt-get did not bring it"))


def describe(missing: Sequence[Package], reason: str) -> str:
    """One line: what is missing, why it is not installed here, and what installs it."""
    gives = ", ".join(package.gives for package in missing)
    names = " ".join(package.name for package in missing)
    return f"missing: {gives} ({reason}); install with: {_install_command(names)}"


def _install_command(names: str) -> str:
    sudo = "" if os.geteuid() == 0 else "sudo "
    return f"{sudo}apt-get update && {sudo}apt-get install -y {names}"


def _apt_install(names: Sequence[str]) -> str | None:
    """Install packages. Returns why apt-get failed, or None."""
    # A failed update may not matter: older lists may be enough, and if not, install says so.
    _apt("update")
    return _apt("install", "--yes", "--no-install-recommends", *names)


def _apt(*arguments: str) -> str | None:
    """Run a command of apt-get. Returns why it failed, or None."""
    done = subprocess.run(
        ["apt-get", "-q", "-o", "DPkg::Lock::Timeout=300", *arguments],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        env={**os.environ, "DEBIAN_FRONTEND": "noninteractive", "LC_ALL": "C.UTF-8"},
        check=False,
    )
    if done.returncode == 0:
        return None
    errors = [line for line in done.stdout.splitlines() if line.startswith("E: ")]
    first = errors[0].removeprefix("E: ") if errors else "no reason given"
    return f"apt-get {arguments[0]}: {first}"


@contextmanager
def services_not_started(packages: Sequence[Package]) -> Iterator[None]:
    """Keep Debian from starting the packages' services, now and at the next boot."""
    services = [package.service for package in packages if package.service is not None]
    # An existing policy is the administrator's, and stays.
    ours = bool(services) and not POLICY.exists()
    if ours:
        POLICY.write_text(_POLICY_TEXT, encoding="ascii")
        POLICY.chmod(0o755)
    try:
        yield
    finally:
        if ours:
            POLICY.unlink(missing_ok=True)
    if services and Path("/run/systemd/system").is_dir():
        subprocess.run(["systemctl", "--quiet", "disable", *services], check=False)
