"""A process has a secret key, and no byte that it stores, sends or shows depends on that key."""

import subprocess
import sys
from pathlib import Path

from local.tools import ROOT


def outputs(folder: Path) -> list[str]:
    """The lines that a new process prints."""
    folder.mkdir()
    done = subprocess.run(
        [sys.executable, "-m", "tests.outputs", str(folder)],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_two_processes_have_the_same_outputs_under_different_keys(tmp_path: Path) -> None:
    """Parts, events, rejections, beliefs and `rate --records` are the same bytes, although a name
    has another hash in each process."""
    (one_hash, *some), (other_hash, *others) = (outputs(tmp_path / each) for each in "ab")
    assert one_hash.startswith("hash ") and one_hash != other_hash
    assert some == others
