"""How long records wait: one of each poll is followed. The engine in memory waits for no clock."""

import time
from typing import Any

import pytest

from stream_rater.contract.record import Record
from stream_rater.runtime import embedded
from stream_rater.runtime.latency import MOST_FOLLOWED, LatencyTracker
from tests.rounds import as_json, day


class Rig:
    """A tracker with a clock that stands still until it is set, and the values it reports."""

    def __init__(self) -> None:
        self.now_s = 1000.0
        self.waited: list[float] = []
        self.ahead: list[float] = []
        self.waits = LatencyTracker(self.waited.append, self.ahead.append, lambda: self.now_s)

    def poll(self, *records: tuple[int, int, float], finished: int = 0) -> None:
        """Records as (partition, offset, arrival)."""
        reported = [Record(p, o, b"", received_s=arrival) for p, o, arrival in records]
        self.waits.polled(reported, {0: finished})


def test_from_arrival_until_finished() -> None:
    """The first of a poll is followed; finished is what lies before the committed offset."""
    rig = Rig()
    rig.poll((0, 7, 998.0), (0, 8, 999.0))
    rig.poll((0, 9, 999.5))
    rig.now_s = 1001.0
    rig.waits.finished({0: 7, 1: 100})
    assert rig.waited == []
    rig.waits.finished({0: 9})
    assert rig.waited == [3.0]
    rig.waits.finished({0: 10})
    assert rig.waited == [3.0, 1.5]


def test_what_is_followed() -> None:
    """Not what is finished already, nor a record without an arrival time. A record that comes again
    after trouble waited since its arrival; lost partitions are forgotten."""
    rig = Rig()
    rig.poll((0, 7, 10.0), finished=8)
    rig.poll((0, 9, -0.001))
    rig.poll()
    rig.waits.finished({0: 100})
    assert rig.waited == []
    rig = Rig()
    rig.poll((0, 7, 999.0))
    rig.poll((0, 7, 999.0))
    rig.waits.finished({0: 8})
    assert rig.waited == [1.0]
    rig = Rig()
    rig.poll((0, 7, 999.0))
    rig.poll((1, 7, 998.0))
    rig.waits.keep_only({1})
    rig.waits.finished({0: 8, 1: 8})
    assert rig.waited == [2.0]


def test_no_more_are_followed_than_so_many() -> None:
    """However long nothing is finished. A record from the future shows that clocks disagree; it
    waited for no negative time."""
    rig = Rig()
    for offset in range(MOST_FOLLOWED + 5):
        rig.poll((0, offset, 999.0))
    rig.waits.finished({0: MOST_FOLLOWED + 5})
    assert len(rig.waited) == MOST_FOLLOWED
    rig = Rig()
    rig.poll((0, 1, 1002.5))
    rig.poll((0, 2, 999.0))
    rig.waits.finished({0: 3})
    assert rig.ahead == [0.0, 2.5, 0.0]
    assert rig.waited == [0.0, 1.0]


# --- the engine in memory waits for no clock ------------------------------------------------------


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
