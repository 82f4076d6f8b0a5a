"""`make audit`: this environment is the lock's, and what is not is found."""

import json
import shutil
import subprocess
import sys
from importlib.metadata import PathDistribution
from pathlib import Path

import audit
import pytest
from packaging.utils import canonicalize_name

from local.tools import ROOT

LOCK = audit.LOCK.read_text()


@pytest.mark.slow
def test_this_environment_is_the_locks(tmp_path: Path) -> None:
    """Nothing is found, offline; the bill of materials has every package, in CycloneDX."""
    command = [sys.executable, str(ROOT / "deploy/tools/audit.py"), "--out", str(tmp_path)]
    nowhere = {
        "HTTPS_PROXY": "http://127.0.0.1:1",
        "PIP_NO_INDEX": "1",
        "PYTHONPATH": "deploy:deploy/tools",
    }
    done = subprocess.run(
        command, cwd=ROOT, env=nowhere, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    bill = json.loads((tmp_path / "sbom.cdx.json").read_text())
    assert bill["bomFormat"] == "CycloneDX"
    named = {canonicalize_name(each["name"]) for each in bill["components"]}
    there = audit.installed()
    assert there.keys() - {audit.PROJECT} - named == set()
    (numba,) = (each for each in bill["components"] if each["name"] == "numba")
    assert "BSD" in json.dumps(numba["licenses"])


def findings(lock: str) -> list[str]:
    return list(audit.compare(audit.read_lock(lock), audit.installed()))


def test_the_locks_requirements_are_understood() -> None:
    """Pins, markers and hashes: what holds here is what is installed."""
    locked = audit.read_lock(LOCK)
    assert all(each.hashes for each in locked.values())
    assert locked.keys() <= audit.installed().keys()
    foreign = LOCK + '\nnowhere==1.0 ; sys_platform == "plan9" \\\n    --hash=sha256:00\n'
    assert audit.read_lock(foreign).keys() == locked.keys()


def test_what_differs_from_the_lock_is_found() -> None:
    """Another version, by name, with both versions; a package that is not installed, one that is
    not locked, one without a hash."""
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
