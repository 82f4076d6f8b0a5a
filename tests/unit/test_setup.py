"""`make setup`: which packages and tools are installed, and from where."""

import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from local import go_tools, python_env, steps
from local.go_tools import HELM, TOOLS, ensure_tools
from local.tools import ROOT, LocalServerError


@pytest.fixture(autouse=True)
def own_lock(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A lock that no set-up of this tree holds."""
    monkeypatch.setattr(steps, "SERVERS", tmp_path)


def test_another_trees_environment_is_left_alone(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A link in place of .venv is refused, and nothing behind it is removed."""
    theirs, ours = tmp_path / "theirs", tmp_path / "ours"
    theirs.mkdir()
    (theirs / "pyvenv.cfg").touch()
    ours.symlink_to(theirs)
    monkeypatch.setattr(python_env, "VENV_DIRECTORY", ours)
    monkeypatch.setattr(python_env, "_have_venv", lambda: False)
    with pytest.raises(LocalServerError, match=r"is a link to .*: remove the link"):
        python_env.ensure_venv(lambda _: None)
    assert (theirs / "pyvenv.cfg").exists()


ENTRY = re.compile(r"^([\w.-]+)==([^\s;]+).*\n((?:    --hash.*\n)+)", re.MULTILINE)


def pins(lock: Path) -> dict[str, tuple[str, str]]:
    """The version and the hashes of each package."""
    return {name: (version, hashes) for name, version, hashes in ENTRY.findall(lock.read_text())}


SERVICE, ALL = pins(python_env.SERVICE_LOCK), pins(python_env.LOCK)


def test_the_services_lock_is_a_part_of_the_whole() -> None:
    """The same versions and hashes; what builds the project, and nothing that only tests need."""
    assert {name: pin for name, pin in SERVICE.items() if ALL.get(name) != pin} == {}
    assert {"numba", "redis", "confluent-kafka", "starlette", "hatchling", "uv"} <= SERVICE.keys()
    unwanted = {"pytest", "mypy", "pandas", "playwright", "kubernetes-validate"}
    assert SERVICE.keys() & unwanted == set()


IMPORTS = """
import importlib, pkgutil, sys
from importlib.metadata import packages_distributions

class Absent:
    # Finds no module of the packages that are installed beside those of the service.
    names = {
        module for module, packages in packages_distributions().items()
        if not {each.lower().replace("_", "-") for each in packages} & set(sys.argv[1:])
    }

    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in self.names:
            raise ModuleNotFoundError(f"{name} is absent", name=name)

assert "pytest" in Absent.names and "numba" not in Absent.names
sys.meta_path.insert(0, Absent())
import demo, demonstration, stream_rater.cli, stream_rater.operations, stream_rater.serve.http
for package in (demonstration, stream_rater.cli, stream_rater.operations, stream_rater.serve.http):
    for found in pkgutil.iter_modules(package.__path__, package.__name__ + "."):
        importlib.import_module(found.name)
assert {"numba", "confluent_kafka", "rich", "starlette"} <= sys.modules.keys()
"""


def test_the_demo_and_the_commands_need_no_other_package() -> None:
    """Every module of theirs can be imported where the others are absent."""
    path = ":".join(str(ROOT / part) for part in ("deploy", "deploy/tools"))
    done = subprocess.run(
        [sys.executable, "-c", IMPORTS, "stream-rater", *SERVICE], cwd=ROOT,
        env={"PYTHONPATH": path}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr


STAND_IN = """#!/bin/sh
[ "$1" = env ] && { echo go1.27.0; exit; }
tool="${2##*/}"
mkdir -p "$GOBIN" && cp "${0%/*}/built" "$GOBIN/${tool%@*}"
"""


@pytest.mark.parametrize("change", [{"version": "v4.99.0"}, {"hash": "h1:another="}])
def test_other_sources_are_refused(
    change: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And what was built of them is not used."""
    go = tmp_path / "go"
    monkeypatch.setattr(go_tools, "_candidates", lambda: [go])
    monkeypatch.setattr(go_tools, "SERVERS", tmp_path)
    monkeypatch.delenv("CI", raising=False)
    go.write_text(STAND_IN)
    go.chmod(0o755)
    (tmp_path / "built").write_bytes(b"".join(tool.origin for tool in TOOLS))
    other = replace(HELM, **change)
    monkeypatch.setattr(go_tools, "TOOLS", (other,))
    with pytest.raises(LocalServerError, match="built from other sources than expected"):
        ensure_tools(lambda _: None)
    assert not other.path.exists()
