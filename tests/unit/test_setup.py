"""`make setup` and its relatives: which packages and tools are installed and from where, and what
is said where that fails."""

import hashlib
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import dist
import pytest
import yaml

from local import docs, go_tools, python_env, steps
from local.go_tools import (
    HELM,
    TOOLS,
    ensure_tools,
    find_go,
)
from local.tools import ROOT, LocalServerError


@pytest.fixture(autouse=True)
def own_lock(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A lock that no set-up of this tree holds."""
    monkeypatch.setattr(steps, "SERVERS", tmp_path)


def fail(reason: str) -> None:
    """A step that cannot be done."""
    raise LocalServerError(reason)


def test_a_failure_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    """And exit code 1."""
    assert steps.run(lambda: fail("no Java")) == 1
    assert steps.run(lambda: None) == 0
    assert capsys.readouterr().err == "setup: no Java\n"


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
    unwanted = {"pytest", "mypy", "scipy", "matplotlib", "playwright", "kubernetes-validate"}
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


def a_go(folder: Path, answer: str) -> Path:
    """A program of that name which answers."""
    go = folder / "go"
    go.write_text(f"#!/bin/sh\n{answer}\n")
    go.chmod(0o755)
    return go


@pytest.fixture
def only(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A folder that alone is searched for Go, and where tools are put."""
    monkeypatch.setattr(go_tools, "_candidates", lambda: [*tmp_path.glob("go")])
    monkeypatch.setattr(go_tools, "SERVERS", tmp_path)
    monkeypatch.delenv("CI", raising=False)
    return tmp_path


def test_an_older_go_is_named(only: Path) -> None:
    """And the tools are gone without."""
    go, said = a_go(only, "echo go1.24.4"), list[str]()
    assert find_go() is None
    ensure_tools(said.append)
    assert said == [
        f"no Go 1.26 or newer ({go}: 1.24): no Helm, no Toxiproxy; tests that need them will be "
        "skipped"
    ]


STAND_IN = """
[ "$1" = env ] && { echo go1.27.0; exit; }
echo "$1 $2 $GOTOOLCHAIN" >> "${0%/*}/calls"
tool="${2##*/}"
mkdir -p "$GOBIN" && cp "${0%/*}/built" "$GOBIN/${tool%@*}"
"""


@pytest.mark.parametrize("change", [{"version": "v4.99.0"}, {"hash": "h1:another="}])
def test_other_sources_are_refused(
    change: dict[str, str], only: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And what was built of them is not used."""
    a_go(only, STAND_IN)
    (only / "built").write_bytes(b"".join(tool.origin for tool in TOOLS))
    other = replace(HELM, **change)
    monkeypatch.setattr(go_tools, "TOOLS", (other,))
    with pytest.raises(LocalServerError, match="built from other sources than expected"):
        ensure_tools(lambda _: None)
    assert not other.path.exists()


def test_a_build_that_fails_says_why(only: Path) -> None:
    """In one line, Go's last."""
    a_go(only, 'case "$1" in env) echo go1.26.0;; *) echo first; echo no network; exit 1;; esac')
    with pytest.raises(LocalServerError, match=r"^Go could not build helm v[\d.]+: no network$"):
        ensure_tools(lambda _: None)


def test_a_python_counts_if_it_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not the shim of a version that was not chosen, nor one that is not there."""
    for name, script in (
        ("python9.1", f'exec {sys.executable} "$@"'),
        ("python9.2", "echo 'not chosen' >&2; exit 127"),
    ):
        path = tmp_path / name
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    assert dist.interpreter("9.1") == sys.executable
    assert dist.interpreter("9.2") is None
    assert dist.interpreter("9.3") is None


HOOKS = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"]


def test_ruff_is_that_of_the_lock() -> None:
    """A commit is checked by the same ruff as `make lint`."""
    (locked,) = re.findall(r"^ruff==(\S+)", (ROOT / "requirements.lock").read_text(), re.MULTILINE)
    (hook,) = (each for each in HOOKS if each["repo"].endswith("/ruff-pre-commit"))
    assert hook["rev"] == f"v{locked}"


def test_every_hook_is_pinned() -> None:
    """A hook has a release, never a branch."""
    assert HOOKS
    assert [each["repo"] for each in HOOKS if not re.fullmatch(r"v[\d.]+", each["rev"])] == []


SCRIPT = b"export default 1;"


def test_another_script_is_not_kept(tmp_path: Path, monkeypatch: Any) -> None:
    """By its hash; the pinned one is written down whole."""
    path = tmp_path / "mermaid.js"
    with pytest.raises(LocalServerError, match="another SHA-256"):
        docs.keep(SCRIPT, path)
    assert not path.exists()
    monkeypatch.setattr(docs, "MERMAID_SHA256", hashlib.sha256(SCRIPT).hexdigest())
    docs.keep(SCRIPT, path)
    assert path.read_bytes() == SCRIPT


def test_the_lock_has_what_builds_the_site() -> None:
    """Each with its hashes; and nothing of the service's."""
    text = python_env.DOCS_LOCK.read_text()
    assert "mkdocs-material==" in text and "mkdocstrings-python==" in text
    assert "numba" not in text and text.count("--hash=sha256:") > text.count("==")
