"""The stop watch around a worker's steps."""

import importlib
import json
from pathlib import Path
from typing import Any

import pytest

from tests.benchmarks.stream import steps
from tests.benchmarks.stream.steps import STEPS, Watch


@pytest.mark.parametrize("place", [each for places in STEPS.values() for each in places])
def test_every_step_is_there(place: str) -> None:
    """A step that was renamed would be left out in silence."""
    module, _, name = place.partition(":")
    found: Any = importlib.import_module(module)
    for each in name.split("."):
        found = getattr(found, each)
    assert callable(found)


def test_a_step_has_its_own_time(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """What a step within it takes counts there; so does the time until a failure."""
    now_s = [0.0]
    monkeypatch.setattr(steps.time, "thread_time", lambda: now_s[0])

    def takes(seconds: float) -> None:
        now_s[0] += seconds

    def fails() -> None:
        takes(4.0)
        raise ValueError

    watch = Watch()
    inner = watch.around("stage 2", fails)

    def outer() -> str:
        takes(1.0)
        with pytest.raises(ValueError):
            inner()
        takes(2.0)
        return "done"

    assert watch.around("apply", outer)() == "done"
    assert (watch.spent_s["apply"], watch.spent_s["stage 2"]) == (3.0, 4.0)
    watch.write(tmp_path / "steps.json")
    assert json.loads((tmp_path / "steps.json").read_text()) == watch.spent_s
