"""The slow tests that CI plays: each in some eighth, and none is lost by another commit."""

import shutil
import subprocess
from pathlib import Path

import pytest

from tests import eighths

GIT = ("-c", "user.name=ann", "-c", "user.email=ann@example.org", "-c", "commit.gpgsign=false")


pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")


def commit(root: Path, file: str) -> None:
    """A commit that writes a file."""
    (root / file).write_text("x")
    for words in (["add", "."], ["commit", "-qm", "more"]):
        subprocess.run(["git", *GIT, *words], cwd=root, check=True)


def test_commits_take_turns(tmp_path: Path) -> None:
    """Eight commits in a row play all eighths, and the files of the last one are always played."""
    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True)
    turns = set[int]()
    for number in range(eighths.PARTS):
        commit(tmp_path, f"test_{number}.py")
        turns.add(eighths.eighth_of_commit(tmp_path))
    assert turns == set(range(eighths.PARTS))
    assert eighths.changed_files(tmp_path) == {f"test_{eighths.PARTS - 1}.py"}
    shallow = tmp_path / "shallow"
    clone = ["git", "clone", "-q", "--depth=1", f"file://{tmp_path}", str(shallow)]
    subprocess.run(clone, check=True)
    assert eighths.changed_files(shallow) == set()
    head = subprocess.check_output(["git", "rev-parse", "HEAD"], cwd=tmp_path, text=True)
    assert eighths.eighth_of_commit(shallow) == int(head, 16) % eighths.PARTS


def test_a_tree_that_git_does_not_know_has_an_eighth(tmp_path: Path) -> None:
    """By what its tests say."""
    (tmp_path / ".git").write_text("gitdir: /nowhere\n")
    (tmp_path / "tests").mkdir()
    found = set()
    for text in "abcdefgh":
        (tmp_path / "tests" / "test_a.py").write_text(text)
        found.add(eighths.eighth_of_commit(tmp_path))
    assert len(found) > 1 and found <= set(range(eighths.PARTS))
    assert eighths.changed_files(tmp_path) == set()


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
