"""The hooks of pre-commit are those of the lock."""

import re
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parents[2]
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
