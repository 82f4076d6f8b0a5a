"""`make setup`: which packages and tools are installed, and from where."""

import re
import subprocess
import sys
from pathlib import Path

from local import python_env
from local.tools import ROOT

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
