"""The engine in memory: rated in full, and waiting for no clock."""

import time
from typing import Any

import pytest

from stream_rater.runtime import embedded
from tests.rounds import as_json, day

ROUNDS = 20


def test_nobody_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """However long offsets may wait for their commit, the machines take few turns a round, and time
    does not pass in between: it is the polls that move it."""
    monkeypatch.setattr(time, "monotonic", lambda: pytest.fail("it looked at a clock"))
    engine = embedded.Engine()
    turns = 0

    def turn(*machine: Any) -> object:
        nonlocal turns
        turns += 1
        return taken(*machine)

    taken = engine._step
    monkeypatch.setattr(engine, "_step", turn)
    for number in range(ROUNDS):
        engine.log.submit(
            0, as_json(round_id=f"r{number}", completed_at=day(number)), received_s=2e9
        )
        engine.settle()
    assert sum(map(len, engine.log.changed)) == 2 * ROUNDS
    assert engine.log.estimators.committed == {0: ROUNDS}
    assert turns < 40 * ROUNDS
