"""deploy/tools/local/python_env.py and uv.py: which packages are installed, and from where."""

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from local import python_env, uv
from local.stamps import Stamp
from local.tools import ROOT, LocalServerError

ENTRY = re.compile(r"^([\w.-]+)==([^\s;]+).*\n((?:    --hash.*\n)+)", re.MULTILINE)


def pins(lock: Path) -> dict[str, tuple[str, str]]:
    """The version and the hashes of each package."""
    return {name: (version, hashes) for name, version, hashes in ENTRY.findall(lock.read_text())}


SERVICE, ALL = pins(python_env.SERVICE_LOCK), pins(python_env.LOCK)


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[str]:
    """The names of the files from which packages are installed; nothing really is. Both locks are
    copies."""
    names: list[str] = []

    def record(command: list[str], environment: object = None) -> None:
        names.append(Path(command[command.index("--requirement") + 1]).name)

    monkeypatch.setattr(python_env, "_run", record)
    monkeypatch.setattr(python_env, "_STAMPS", tmp_path)
    monkeypatch.setattr(python_env, "_PACKAGES", Stamp(tmp_path / "packages"))
    for name in ("LOCK", "SERVICE_LOCK"):
        lock: Path = getattr(python_env, name)
        copy = tmp_path / lock.name
        copy.write_text(lock.read_text())
        monkeypatch.setattr(python_env, name, copy)
    return names


def ensure(*steps: Callable[[Callable[[str], None]], None]) -> None:
    for step in steps:
        step(lambda _: None)


service, everything = python_env.ensure_service_packages, python_env.ensure_python_packages


def test_the_service_needs_only_its_packages(installed: list[str]) -> None:
    """`make demo` installs those, and `make test` later the others, each once; uv comes first."""
    ensure(service, service)
    assert installed == ["uv.txt", "service.lock"]
    ensure(everything, everything, service)
    assert installed[2:] == ["requirements.lock"]


def test_another_lock_is_installed_again(installed: list[str]) -> None:
    """So is the former one, when it is back: `make demo` has installed a part of the other."""
    lock, part = python_env.LOCK, python_env.SERVICE_LOCK
    ensure(everything)
    before = lock.read_text(), part.read_text()
    for path in (lock, part):
        path.write_text("# another\n" + path.read_text())
    ensure(service)
    assert installed[2:] == ["service.lock"]
    for path, text in zip((lock, part), before, strict=True):
        path.write_text(text)
    ensure(everything)
    assert installed[3:] == ["requirements.lock"]


def test_an_installation_that_failed_is_repeated(
    installed: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Even if the lock is then the one of before."""
    ensure(everything)
    before = python_env.LOCK.read_text()
    python_env.LOCK.write_text("# another\n" + before)

    def fail(*_: object) -> None:
        raise LocalServerError("no network")

    with monkeypatch.context() as later:
        later.setattr(python_env, "_run", fail)
        with pytest.raises(LocalServerError):
            ensure(everything)
    python_env.LOCK.write_text(before)
    ensure(everything)
    assert installed == ["uv.txt", "requirements.lock", "requirements.lock"]


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


def test_a_package_of_the_lock_is_found_with_its_hashes(tmp_path: Path) -> None:
    """And no line of its neighbours. A lock without it is named."""
    lock = tmp_path / "some.lock"
    lock.write_text("a==1 \\\n    --hash=sha256:0\n    # via b\nuv==2 \\\n    --hash=sha256:1\n"
                    "uvicorn==3 \\\n    --hash=sha256:2\n")  # fmt: skip
    assert uv.requirement_of("uv", lock) == "uv==2 \\\n    --hash=sha256:1\n"
    with pytest.raises(LocalServerError, match=r"some\.lock has no rich"):
        uv.requirement_of("rich", lock)


def test_uv_has_pips_settings() -> None:
    """A variable wins over a file, a file's section `install` over `global`; what was set for uv
    itself stays; what is not about an index is left out."""
    listed = "\n".join(
        [
            ":env:.cert='ca.pem'",
            ":env:.no-input='1'",
            "global.index-url='one.example'",
            "install.index-url='two.example'",
            "global.cert='other.pem'",
            "global.find-links='\\nwheels\\nmore'",
            "global.extra-index-url='a.example b.example'",
            "global.timeout='60'",
            "freeze.timeout='10'",
        ]
    )
    assert uv.settings_of(listed, {"UV_HTTP_TIMEOUT": "5"}) == {
        "SSL_CERT_FILE": "ca.pem",
        "UV_DEFAULT_INDEX": "two.example",
        "UV_FIND_LINKS": "wheels,more",
        "UV_INDEX": "a.example b.example",
        "UV_INDEX_STRATEGY": "unsafe-best-match",
    }
