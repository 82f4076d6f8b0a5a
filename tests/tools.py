"""Programs that tests run. If one is missing, its tests are skipped; in CI, they fail."""

import os
from pathlib import Path

import pytest

from local.tools import find_prometheus, find_promtool


def needed(found: Path | None, name: str, hint: str = ": run `make setup`") -> str:
    """The path of a program, which `make setup` installs if the hint does not say otherwise."""
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
