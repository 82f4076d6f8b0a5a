"""`make dist` finds the Pythons that run here."""

import sys
from pathlib import Path

import dist
import pytest


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
