"""The virtual environment `.venv`: exactly the lock's packages, and the project itself."""

import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final

from local.stamps import Stamp, digest
from local.system import VENV, Package
from local.tools import ROOT, LocalServerError

VENV_DIRECTORY: Final = ROOT / ".venv"
VENV_PYTHON: Final = VENV_DIRECTORY / "bin" / "python"
LOCK: Final = ROOT / "requirements.lock"
PEERS: Final = VENV_DIRECTORY / "peers"
PEERS_LOCK: Final = ROOT / "tests" / "benchmarks" / "peers.lock"
DOCS: Final = VENV_DIRECTORY / "docs"
DOCS_LOCK: Final = ROOT / "deploy" / "docs.lock"
PROJECT: Final = ROOT / "pyproject.toml"
PACKAGE: Final = ROOT / "stream_rater"
_STAMPS: Final = VENV_DIRECTORY / "stamps"
_VENV_STAMP: Final = Stamp(_STAMPS / "venv")


def needed_packages() -> list[Package]:
    """What has to be there before ensure_venv."""
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
    """A venv is good for one minor version of one Python, and for one place."""
    return digest(f"{sys.version_info[:2]}", sys.base_prefix, str(ROOT))


def ensure_python_packages(say: Callable[[str], None]) -> None:
    """Install the lock's packages, each checked by its hash."""
    stamp, wanted = Stamp(_STAMPS / "packages"), digest(LOCK)
    if stamp.is_current(wanted):
        return
    say(f"installing the Python packages of {LOCK.name}")
    # Wheels only: a source package would run a build with tools that no hash was checked for.
    _pip("--require-hashes", "--only-binary", ":all:", "--requirement", str(LOCK))
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


def ensure_project(say: Callable[[str], None]) -> None:
    """Install the project in place; its build backend is in the lock, so no network is needed."""
    stamp, wanted = Stamp(_STAMPS / "project"), digest(PROJECT, LOCK)
    if stamp.is_current(wanted):
        return
    say("installing stream-rater in place")
    _pip("--no-deps", "--no-build-isolation", "--editable", str(ROOT))
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


def _run(command: list[str]) -> None:
    """Run a step; what it prints goes to standard error."""
    code = subprocess.run(command, cwd=Path(ROOT), stdout=sys.stderr, check=False).returncode
    if code != 0:
        line = " ".join(command).replace(f"{ROOT}/", "")
        raise LocalServerError(f"this failed with exit code {code} (see above): {line}")
