"""Programs of the system's that tests run: absent they are skipped, in CI that is a failure."""

import os
from pathlib import Path

import pytest

from local.tools import find_prometheus, find_promtool


def needed(found: Path | None, name: str, hint: str = ": run `make setup`") -> str:
    """The path of a program, that `make setup` installs unless the hint says something else."""
    if found is None:
        reason = f"no {name} on PATH{hint}"
        if os.environ.get("CI"):
            pytest.fail(reason)
        pytest.skip(reason)
    return str(found)


def promtool() -> str:
    return needed(find_promtool(), "promtool")


def prometheus() -> str:
    return needed(find_prometheus(), "prometheus")
