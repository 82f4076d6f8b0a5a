"""The virtual environment `.venv`: the lock's packages, or those that the service needs, and the
project itself."""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from local import uv
from local.stamps import Stamp, digest
from local.system import VENV, Package
from local.tools import ROOT, LocalServerError

VENV_DIRECTORY: Final = ROOT / ".venv"
VENV_PYTHON: Final = VENV_DIRECTORY / "bin" / "python"
LOCK: Final = ROOT / "requirements.lock"
SERVICE_LOCK: Final = ROOT / "deploy" / "service.lock"
"""The lock of what the service, the demo and an installation in place need: a part of LOCK."""
PEERS: Final = VENV_DIRECTORY / "peers"
PEERS_LOCK: Final = ROOT / "tests" / "benchmarks" / "peers.lock"
DOCS: Final = VENV_DIRECTORY / "docs"
DOCS_LOCK: Final = ROOT / "deploy" / "docs.lock"
STORES: Final = VENV_DIRECTORY / "stores"
STORES_LOCK: Final = ROOT / "tests" / "stores.lock"
PROJECT: Final = ROOT / "pyproject.toml"
PACKAGE: Final = ROOT / "stream_rater"
_STAMPS: Final = VENV_DIRECTORY / "stamps"
_VENV_STAMP: Final = Stamp(_STAMPS / "venv")
_PACKAGES: Final = Stamp(_STAMPS / "packages")
"""The stamp of the lock that was installed last."""


def needed_packages() -> list[Package]:
    """The system's packages that ensure_venv needs."""
    return [] if _have_venv() else [VENV]


def ensure_venv(say: Callable[[str], None]) -> None:
    """Make `.venv` for this Python and this folder. An environment that was moved, or that belongs
    to another Python, is replaced.

    Raises LocalServerError if `.venv` is a link: replacing it would empty another tree's
    environment.
    """
    if _have_venv():
        return
    if VENV_DIRECTORY.is_symlink():
        raise LocalServerError(
            f"{VENV_DIRECTORY.name} is a link to {VENV_DIRECTORY.readlink()}, the environment of "
            "another tree: remove the link and run this again"
        )
    say(f"making {VENV_DIRECTORY.name} with Python {sys.version.split()[0]}")
    _run([sys.executable, "-m", "venv", "--clear", str(VENV_DIRECTORY)])
    _VENV_STAMP.write(_venv_identity())


def _have_venv() -> bool:
    return VENV_PYTHON.exists() and _VENV_STAMP.is_current(_venv_identity())


def _venv_identity() -> str:
    """What a venv depends on: one minor version of one Python, and its place."""
    return digest(f"{sys.version_info[:2]}", sys.base_prefix, str(ROOT))


def ensure_service_packages(say: Callable[[str], None]) -> None:
    """Install the packages that the service and the demo need, unless all are there."""
    if not _PACKAGES.is_current(digest(LOCK)):
        _ensure_packages(SERVICE_LOCK, say)


def ensure_python_packages(say: Callable[[str], None]) -> None:
    """Install all packages of the lock; others stay."""
    _ensure_packages(LOCK, say)


def _ensure_packages(lock: Path, say: Callable[[str], None]) -> None:
    """Install the packages of a lock, each checked by its hash."""
    wanted = digest(lock)
    if _PACKAGES.is_current(wanted):
        return
    say(f"installing the Python packages of {lock.name}")
    # Until the end, the installed packages are neither those of this lock nor those from before.
    _PACKAGES.path.unlink(missing_ok=True)
    _uv("--require-hashes", *uv.WHEELS, "--requirement", str(lock))
    _PACKAGES.write(wanted)


def _ensure_uv() -> None:
    """Install uv in the version of LOCK, checked by its hash."""
    entry = uv.requirement_of("uv", LOCK)
    stamp, wanted = Stamp(_STAMPS / "uv"), digest(entry)
    if stamp.is_current(wanted):
        return
    with tempfile.TemporaryDirectory(prefix="stream-rater-") as folder:
        requirement = Path(folder, "uv.txt")
        requirement.write_text(entry, encoding="utf-8")
        _pip("--require-hashes", *uv.WHEELS, "--requirement", str(requirement))
    stamp.write(wanted)


def ensure_peers(say: Callable[[str], None]) -> None:
    """Install what the benchmarks compare with beside the environment's packages, not among them.

    trueskill is a source package only: its hash is checked, and so was that of setuptools, which
    builds it.
    """
    stamp, wanted = Stamp(_STAMPS / "peers"), digest(PEERS_LOCK, LOCK)
    if stamp.is_current(wanted):
        return
    say(f"installing the packages of {PEERS_LOCK.name}")
    shutil.rmtree(PEERS, ignore_errors=True)
    wheels = ("--only-binary", ":all:", "--no-binary", "trueskill", "--no-build-isolation")
    _pip("--target", str(PEERS), "--require-hashes", *wheels, "--requirement", str(PEERS_LOCK))
    stamp.write(wanted)


def ensure_docs(say: Callable[[str], None]) -> None:
    """Install what builds the site beside the environment's packages, not among them."""
    stamp, wanted = Stamp(_STAMPS / "docs"), digest(DOCS_LOCK)
    if stamp.is_current(wanted):
        return
    say(f"installing the packages of {DOCS_LOCK.name}")
    shutil.rmtree(DOCS, ignore_errors=True)
    wheels = ("--only-binary", ":all:")
    _pip("--target", str(DOCS), "--require-hashes", *wheels, "--requirement", str(DOCS_LOCK))
    stamp.write(wanted)


def ensure_stores(say: Callable[[str], None]) -> None:
    """Install the packages that contain other stores than Debian's Redis.

    They have programs for Linux on x86_64 and for some releases of Python. Elsewhere tests of them
    are skipped: a failure is printed and does not fail the set-up.
    """
    stamp, wanted = Stamp(_STAMPS / "stores"), digest(STORES_LOCK)
    if stamp.is_current(wanted):
        return
    say(f"installing the packages of {STORES_LOCK.name}")
    shutil.rmtree(STORES, ignore_errors=True)
    wheels = ("--only-binary", ":all:", "--no-deps")
    try:
        _pip(
            "--target", str(STORES), "--require-hashes", *wheels, "--requirement", str(STORES_LOCK)
        )
    except LocalServerError as error:
        say(f"other stores are not installed: {str(error).splitlines()[0]}")
        return
    stamp.write(wanted)


def ensure_project(say: Callable[[str], None]) -> None:
    """Install the project in place; its build backend is in both locks, so no network is needed."""
    stamp, wanted = Stamp(_STAMPS / "project"), digest(PROJECT, LOCK)
    if stamp.is_current(wanted):
        return
    say("installing stream-rater in place")
    _uv("--no-deps", "--no-build-isolation", "--editable", str(ROOT))
    stamp.write(wanted)


def ensure_warm_kernels(say: Callable[[str], None]) -> None:
    """Compile the numba kernels into their cache, so that the first run does not wait for it.

    A failure is printed but does not fail the set-up: the tests say more about it.
    """
    sources = [part for path in sorted(PACKAGE.rglob("*.py")) for part in (path.name, path)]
    stamp, wanted = Stamp(_STAMPS / "kernels"), digest(LOCK, *sources)
    if stamp.is_current(wanted):
        return
    say("compiling the kernels")
    command = [str(VENV_PYTHON), "-m", "stream_rater.cli.compile_kernels"]
    if subprocess.run(command, cwd=ROOT, stdout=sys.stderr, check=False).returncode == 0:
        stamp.write(wanted)
    else:
        say("the kernels could not be compiled (see above); they will be when first used")


def _pip(*arguments: str) -> None:
    options = ("--quiet", "--no-input", "--disable-pip-version-check")
    _run([str(VENV_PYTHON), "-m", "pip", "install", *options, *arguments])


def _uv(*arguments: str) -> None:
    """Install by uv, with pip's settings of indexes."""
    _ensure_uv()
    command = [str(VENV_PYTHON), "-m", "pip", "config", "list"]
    listed = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout
    environment = os.environ | uv.settings_of(listed, os.environ)
    _run(uv.install_command(VENV_PYTHON, *arguments), environment)


def _run(command: list[str], environment: Mapping[str, str] | None = None) -> None:
    """Run a command; its output goes to standard error."""
    code = subprocess.run(
        command, cwd=Path(ROOT), env=environment, stdout=sys.stderr, check=False
    ).returncode
    if code != 0:
        line = " ".join(command).replace(f"{ROOT}/", "")
        raise LocalServerError(f"this failed with exit code {code} (see above): {line}")
