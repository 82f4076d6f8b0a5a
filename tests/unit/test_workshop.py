"""What would be wrong in silence: an environment that `make audit` passes, slow tests that no
eighth plays, and checks that `make compose` and `make kubernetes` do not count."""

import io
import json
import shutil
import subprocess
import sys
from dataclasses import dataclass
from importlib.metadata import PathDistribution
from pathlib import Path

import audit
import pytest
import yaml
from packaging.utils import canonicalize_name

from cluster import inside
from containers.load import Load
from containers.report import Failed, Report
from demonstration.figures import Phase
from local.tools import ROOT
from tests import eighths

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


# --- eighths: each slow test is in one, and none is lost by another commit ---

GIT = ("-c", "user.name=ann", "-c", "user.email=ann@example.org", "-c", "commit.gpgsign=false")


@pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")
def test_commits_take_turns(tmp_path: Path) -> None:
    """Eight commits in a row play all eighths, and the files of the last one are always played."""
    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True)
    turns = set[int]()
    for number in range(eighths.PARTS):
        (tmp_path / f"test_{number}.py").write_text("x")
        for words in (["add", "."], ["commit", "-qm", "more"]):
            subprocess.run(["git", *GIT, *words], cwd=tmp_path, check=True)
        turns.add(eighths.eighth_of_commit(tmp_path))
    assert turns == set(range(eighths.PARTS))
    assert eighths.changed_files(tmp_path) == {f"test_{eighths.PARTS - 1}.py"}
    shallow = tmp_path / "shallow"
    clone = ["git", "clone", "-q", "--depth=1", f"file://{tmp_path}", str(shallow)]
    subprocess.run(clone, check=True)
    assert eighths.changed_files(shallow) == set()
    head = subprocess.check_output(["git", "rev-parse", "HEAD"], cwd=tmp_path, text=True)
    assert eighths.eighth_of_commit(shallow) == int(head, 16) % eighths.PARTS


def test_a_failed_eighth_is_played_until_it_passes(tmp_path: Path) -> None:
    """Another commit's turn does not lose it."""
    failed = tmp_path / "build" / "failed"
    assert eighths.chosen("3", failed) == {3}
    eighths.remember({3}, False, failed)
    assert eighths.chosen("5", failed) == {3, 5}
    eighths.remember({5}, True, failed)
    assert eighths.chosen("5", failed) == {3, 5}
    eighths.remember({3, 5}, True, failed)
    assert eighths.chosen("5", failed) == {5}
    with pytest.raises(ValueError, match="no such eighth: 8"):
        eighths.chosen("8", failed)


# --- checks on an engine or a cluster ---


def test_a_failed_check_is_reported_and_counted() -> None:
    """And the next one is still made."""
    report = Report("test", out=io.StringIO())

    def fails() -> str:
        raise Failed("not so")

    assert not report.check("one", fails)
    assert report.check("two", lambda: "as it should be")
    assert report.failed == 1
    reported = [row[:2] for row in report.rows]
    assert reported == [("one", "FAILED: not so"), ("two", "as it should be")]


def test_games_are_under_the_restricted_standard() -> None:
    """The API server enforces it."""
    files = [file.read_text() for file in inside.MANIFESTS.glob("*.yaml")]
    applied = [each for text in files for each in yaml.safe_load_all(text)]
    spaces = [each["metadata"] for each in applied if each["kind"] == "Namespace"]
    standard = "pod-security.kubernetes.io/enforce"
    enforced = {each["name"]: each.get("labels", {}).get(standard) for each in spaces}
    assert enforced["games"] == enforced["servers"] == "restricted"


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
