"""`make dist`: the wheel, which pip alone installs into an environment with nothing else in it."""

import os
import re
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import audit
import pytest
from packaging.utils import canonicalize_name

from local.tools import ROOT
from tests import image, pages
from tests.unit.test_notebook_page import cells

pytestmark = pytest.mark.slow  # it downloads some 70 MB


def run(words: list[str], at: Path) -> str:
    """What a command prints in a folder; it ends well."""
    alone = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    done = subprocess.run(words, cwd=at, env=alone, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with what the command of the Makefile builds."""
    folder = tmp_path_factory.mktemp("dist")
    makefile = (ROOT / "Makefile").read_text()
    (built,) = re.findall(r"^\t@\$\(VENV_PYTHON\) (-m hatchling .*) build/dist$", makefile, re.M)
    run([sys.executable, *built.split(), str(folder)], ROOT)
    return folder


@pytest.fixture(scope="module")
def installed(dist: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment into which pip has installed the wheel, in the versions of the lock; with the
    kernels of this tree."""
    folder = tmp_path_factory.mktemp("clean")
    (wheel,) = dist.glob("*.whl")
    locked = audit.read_lock(audit.LOCK.read_text()).values()
    pins = folder / "pins.txt"
    pins.write_text("".join(f"{each.name}=={each.version}\n" for each in locked))
    run([sys.executable, "-m", "venv", str(folder / "venv")], folder)
    pip = [str(folder / "venv" / "bin" / "python"), "-m", "pip"]
    run([*pip, "install", "--quiet", "--constraint", str(pins), str(wheel)], folder)
    image.lend_kernels(folder / "venv")
    return folder / "venv"


def test_the_wheel_is_the_package(dist: Path) -> None:
    """All of its files, and nothing that was made of them; the source package can be built."""
    (wheel,), (source,) = dist.glob("*.whl"), dist.glob("*.tar.gz")
    with zipfile.ZipFile(wheel) as files:
        names = {name for name in files.namelist() if ".dist-info/" not in name}
    ours = [path for path in (ROOT / "stream_rater").rglob("*") if path.is_file()]
    made = {path for path in ours if "__pycache__" in path.parts}
    assert names == {str(path.relative_to(ROOT)) for path in set(ours) - made}
    with tarfile.open(source) as files:
        inside = {name.partition("/")[2] for name in files.getnames()}
    assert inside >= {*names, "pyproject.toml", "README.md", "LICENSE"}


def test_the_tutorial_begins_in_a_clean_environment(installed: Path, tmp_path: Path) -> None:
    """Its first cell shows what the page says."""
    code, shown = cells(pages.text("notebook.md"))[0]
    *lines, last = code.splitlines()
    script = "\n".join([*lines, f"print(repr({last}))"])
    assert run([str(installed / "bin" / "python"), "-c", script], tmp_path) == shown


def test_the_front_door_brings_no_client(installed: Path, tmp_path: Path) -> None:
    """Only what rates, and the terminal; what there is fits together."""
    python = str(installed / "bin" / "python")
    listed = run([python, "-m", "pip", "list", "--format", "freeze"], tmp_path)
    there = {canonicalize_name(line.partition("==")[0]) for line in listed.splitlines()}
    assert there - {"pip", "setuptools"} == {
        "click", "llvmlite", "markdown-it-py", "mdurl", "msgspec", "numba", "numpy", "pygments",
        "rich", "stream-rater",
    }  # fmt: skip
    run([python, "-m", "pip", "check"], tmp_path)


def test_its_command_rates_and_names_the_extra(installed: Path, tmp_path: Path) -> None:
    """What talks to servers says what brings it."""
    command = str(installed / "bin" / "stream-rater")
    rounds = str(ROOT / "deploy" / "examples" / "rounds.jsonl")
    assert '"player":"ann"' in run([command, "rate", rounds], tmp_path)
    done = subprocess.run(
        [command, "run"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == (
        "stream-rater: structlog is not installed: stream-rater[service] brings it\n"
    )
