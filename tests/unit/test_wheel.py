"""`make dist`: the wheels, which pip alone installs into an environment with nothing else in it."""

import os
import subprocess
import sys
import tarfile
import zipfile
from importlib.metadata import version
from pathlib import Path

import audit
import dist
import pytest
from packaging.utils import canonicalize_name

from local.tools import ROOT
from stream_rater.columns import compiling, kernel_files, kernels  # noqa: F401  # sets the level
from tests import image

pytestmark = pytest.mark.slow  # it downloads some 70 MB


def run(words: list[str], at: Path) -> str:
    alone = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    done = subprocess.run(words, cwd=at, env=alone, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the source package and the pure wheel."""
    folder = tmp_path_factory.mktemp("dist")
    dist.build(sys.executable, folder)
    return folder


@pytest.fixture(scope="module")
def carrying(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel with kernels for this Python: those that this tree compiled for this machine."""
    folder = tmp_path_factory.mktemp("dist")
    ours = str(kernel_files.written().parent)
    dist.build_with_kernels(
        sys.executable, folder, NUMBA_CACHE_DIR=ours, NUMBA_CPU_NAME=kernel_files.level()
    )
    (wheel,) = folder.iterdir()
    return wheel


@pytest.fixture(scope="module")
def pins(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file that constrains packages to the versions of the lock."""
    file = tmp_path_factory.mktemp("pins") / "pins.txt"
    locked = audit.read_lock(audit.LOCK.read_text()).values()
    file.write_text("".join(f"{each.name}=={each.version}\n" for each in locked))
    return file


@pytest.fixture(scope="module")
def installed(built: Path, pins: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment with the wheel, in the versions of the lock, and the kernels of this tree."""
    folder = tmp_path_factory.mktemp("clean")
    (wheel,) = built.glob("*.whl")
    run([sys.executable, "-m", "venv", str(folder / "venv")], folder)
    pip = [str(folder / "venv" / "bin" / "python"), "-m", "pip"]
    run([*pip, "install", "--quiet", "--constraint", str(pins), str(wheel)], folder)
    image.lend_kernels(folder / "venv")
    return folder / "venv"


COUNTED = """
import sys
from numba.core.registry import CPUDispatcher
from stream_rater.columns.compiling import Watcher, watchers

reports = []
watchers.append(Watcher())
watchers[-1].compiling = lambda *report: reports.append(report)

import stream_rater
ladder = stream_rater.Ladder()
ladder.rate(["ann", "bob"])

ours = [module for name, module in sys.modules.items() if name.startswith("stream_rater.")]
kernels = {each for module in ours for each in vars(module).values() if type(each) is CPUDispatcher}
compiled = [each for each in kernels if each._cache_misses]
loaded = [each for each in kernels if each._cache_hits]
print(ladder["ann"].mu > 1400.0, len(loaded) > 5, compiled, reports)
"""
"""The first round of a notebook, and what numba and our own reports say of compiling."""

CHECK = "from stream_rater.runtime import selfcheck; selfcheck.check(); print('the same bits')"


def test_a_wheel_with_kernels_compiles_nothing(carrying: Path, pins: Path, tmp_path: Path) -> None:
    """Wherever and whenever it is unpacked, and it writes nothing."""
    for place in ("here", "there/at/another/place"):
        home, python = tmp_path / place / "home", str(tmp_path / place / "venv" / "bin" / "python")
        home.mkdir(parents=True)
        uv = [sys.executable, "-m", "uv", "--quiet"]
        run([*uv, "venv", str(tmp_path / place / "venv")], tmp_path)
        run([*uv, "pip", "install", "--python", python, "-c", str(pins), str(carrying)], tmp_path)
        (package,) = (tmp_path / place).glob("venv/lib/*/site-packages/stream_rater")
        for path in package.rglob("*"):
            os.utime(path, (1, 1))
        alone = ["env", f"HOME={home}", "NUMBA_CACHE_DIR=", "NUMBA_DEBUG_CACHE=0"]
        assert run([*alone, python, "-c", COUNTED], tmp_path) == "True True [] []\n"
        rounds = str(ROOT / "deploy" / "examples" / "rounds.jsonl")
        speaking = [*alone[:-1], "NUMBA_DEBUG_CACHE=1", python]
        said = run([*speaking, "-m", "stream_rater", "rate", rounds], tmp_path)
        said += run([*speaking, "-c", CHECK], tmp_path)
        assert image.LOADED in said and '"player":"ann"' in said and "the same bits" in said
        assert image.SAVED not in said
        assert list(home.iterdir()) == []
        assert list(package.rglob("kernels-*")) == [package / "compiled" / kernel_files.STATE]
        assert list(package.rglob(compiling.LOCK_FILE)) == []


def test_a_wheel_with_kernels_requires_what_compiled_them(carrying: Path, built: Path) -> None:
    """It names its Python. All else is as in the pure wheel, whose source can be built."""
    python = f"cp{sys.version_info.major}{sys.version_info.minor}"
    assert carrying.name.endswith(f"-{python}-{python}-manylinux_2_28_x86_64.whl")
    (pure,) = built.glob("*.whl")
    with zipfile.ZipFile(carrying) as ours, zipfile.ZipFile(pure) as other:
        kernels = {name for name in ours.namelist() if name.endswith(".kernel")}
        names = set(ours.namelist()) - kernels
        (metadata,) = (ours.read(name).decode() for name in names if name.endswith("/METADATA"))
        assert names == set(other.namelist())
    assert kernels
    for package in ("numba", "llvmlite"):
        assert f"Requires-Dist: {package}=={version(package)}\n" in metadata
    (wheel,), (source,) = built.glob("*.whl"), built.glob("*.tar.gz")
    with zipfile.ZipFile(wheel) as files:
        names = {name for name in files.namelist() if ".dist-info/" not in name}
    sources = [path for path in (ROOT / "stream_rater").rglob("*") if path.is_file()]
    made = {path for path in sources if "__pycache__" in path.parts}
    assert names == {str(path.relative_to(ROOT)) for path in set(sources) - made}
    with tarfile.open(source) as files:
        inside = {name.partition("/")[2] for name in files.getnames()}
    assert inside >= {*names, "pyproject.toml", "README.md", "LICENSE"}


def test_the_front_door_brings_no_client(installed: Path, tmp_path: Path) -> None:
    """Only what rates, and the terminal; what talks to servers says what brings it."""
    python = str(installed / "bin" / "python")
    listed = run([python, "-m", "pip", "list", "--format", "freeze"], tmp_path)
    there = {canonicalize_name(line.partition("==")[0]) for line in listed.splitlines()}
    assert there - {"pip", "setuptools"} == {
        "click", "llvmlite", "markdown-it-py", "mdurl", "msgspec", "numba", "numpy", "pygments",
        "rich", "stream-rater",
    }  # fmt: skip
    run([python, "-m", "pip", "check"], tmp_path)
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
