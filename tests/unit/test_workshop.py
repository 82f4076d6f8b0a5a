"""What would silently be wrong: an environment that differs, and rounds that are lost."""

import json
import shutil
import subprocess
import sys
from dataclasses import dataclass
from importlib.metadata import PathDistribution
from pathlib import Path

import audit
import pytest
from packaging.utils import canonicalize_name

from containers.load import Load
from containers.report import Failed
from demonstration.figures import Phase
from local import python_env
from local.tools import ROOT

# --- `make audit`: this environment is the lock's, and what is not is found ---

LOCK = audit.LOCK.read_text()


@pytest.mark.slow
def test_this_environment_is_the_locks(tmp_path: Path) -> None:
    """Nothing is found, offline; the bill of materials has every package, in CycloneDX."""
    command = [sys.executable, str(ROOT / "deploy/tools/audit.py"), "--out", str(tmp_path)]
    nowhere = {"HTTPS_PROXY": "http://127.0.0.1:1", "PIP_NO_INDEX": "1",
               "PYTHONPATH": "deploy:deploy/tools"}  # fmt: skip
    done = subprocess.run(
        command, cwd=ROOT, env=nowhere, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    bill = json.loads((tmp_path / "sbom.cdx.json").read_text())
    assert bill["bomFormat"] == "CycloneDX"
    named = {canonicalize_name(each["name"]) for each in bill["components"]}
    assert audit.installed().keys() - {audit.PROJECT} - named == set()
    (numba,) = (each for each in bill["components"] if each["name"] == "numba")
    assert "BSD" in json.dumps(numba["licenses"])


def findings(lock: str) -> list[str]:
    return list(audit.compare(audit.read_lock(lock), audit.installed()))


def test_what_differs_from_the_lock_is_found() -> None:
    """Another version, a missing or superfluous package, and one without a hash."""
    version = audit.read_lock(LOCK)["click"].version
    (found,) = findings(LOCK.replace(f"click=={version}", "click==0.1"))
    assert found == f"click: locked at 0.1, installed is {version}"
    start = LOCK.index("\nrich==") + 1
    end = LOCK.index("\n", LOCK.rindex("--hash", start, LOCK.index("\n    # via", start)))
    assert findings(LOCK[:start] + "nowhere==1.0" + LOCK[end:]) == [
        "nowhere: the lock has no hash for it",
        "nowhere: locked at 1.0, not installed",
        "rich: installed, not in the lock",
    ]


def test_a_changed_file_is_found(tmp_path: Path) -> None:
    """One byte, or a whole file, of an installed package."""
    whole = audit.installed()["click"]
    for path in whole.files or ():
        if path.hash is not None:
            (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(str(path.locate()), tmp_path / path)
    (info,) = {path.parts[0] for path in whole.files or () if path.name == "RECORD"}
    shutil.copy(str(whole.locate_file(f"{info}/RECORD")), tmp_path / info / "RECORD")
    copy, changed = PathDistribution(tmp_path / info), tmp_path / "click/core.py"
    assert list(audit.changed_files(copy)) == []
    changed.write_bytes(changed.read_bytes() + b"\n")
    (found,) = audit.changed_files(copy)
    assert found.startswith("click: click/core.py ") and "changed" in found
    changed.unlink()
    (found,) = audit.changed_files(copy)
    assert found.startswith("click: click/core.py ") and "gone" in found


# --- `make setup`: what the service and its demo need ---

SERVICE, ALL = (
    audit.read_lock(each.read_text()) for each in (python_env.SERVICE_LOCK, python_env.LOCK)
)


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


# --- checks on an engine or a cluster ---


@dataclass
class Played(Load):
    """Reports nothing and follows nothing: rounds and events are given."""

    def _report(self) -> None:
        self._reported.set()

    def _follow(self) -> None:
        self._ready.set()


def events(*names: str) -> list[dict[str, str]]:
    """Of one round each."""
    return [{"event_id": n, "round_id": n, "completed_at": "2026-01-01T00:00:00Z"} for n in names]


def test_what_is_lost_or_doubled_fails(tmp_path: Path) -> None:
    """And what is neither does not. No rounds are no proof."""
    for names, problem in (
        (("a", "b"), "0 lost, 0 doubled"),
        (("a",), "1 lost, 0 doubled"),
        (("a", "b", "b"), "0 lost, 1 doubled"),
    ):
        with Played("nowhere:1", tmp_path, rounds=2, expected=2, phase=Phase(0.0)) as load:
            load.phase.take(events(*names), 1.8e9)
            if names == ("a", "b"):
                assert problem in load.finish()
            else:
                with pytest.raises(Failed, match=problem):
                    load.finish()
    with Played("nowhere:1", tmp_path) as load, pytest.raises(Failed):
        load.finish()
