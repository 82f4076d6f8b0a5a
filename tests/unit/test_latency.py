"""How long records wait: one of each poll is followed until it is finished."""

from stream_rater.contract.record import Record
from stream_rater.runtime.latency import MOST_FOLLOWED, LatencyTracker


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


def test_what_is_finished_already_is_not_followed() -> None:
    """Rounds that are read again for their ids were rated long ago. A record without an arrival
    time is not followed either."""
    rig = Rig()
    rig.poll((0, 7, 10.0), finished=8)
    rig.poll((0, 9, -0.001))
    rig.poll()
    rig.waits.finished({0: 100})
    assert rig.waited == []


def test_read_again_is_followed_once() -> None:
    """After trouble a record comes again; it waited since its arrival all the same."""
    rig = Rig()
    rig.poll((0, 7, 999.0))
    rig.poll((0, 7, 999.0))
    rig.waits.finished({0: 8})
    assert rig.waited == [1.0]


def test_lost_partitions_are_forgotten() -> None:
    """Whoever owns them next finishes what is there."""
    rig = Rig()
    rig.poll((0, 7, 999.0))
    rig.poll((1, 7, 998.0))
    rig.waits.keep_only({1})
    rig.waits.finished({0: 8, 1: 8})
    assert rig.waited == [2.0]


def test_no_more_are_followed_than_so_many() -> None:
    """However long nothing is finished."""
    rig = Rig()
    for offset in range(MOST_FOLLOWED + 5):
        rig.poll((0, offset, 999.0))
    rig.waits.finished({0: MOST_FOLLOWED + 5})
    assert len(rig.waited) == MOST_FOLLOWED


def test_a_clock_ahead_of_ours() -> None:
    """A record from the future shows that clocks disagree; it waited for no negative time."""
    rig = Rig()
    rig.poll((0, 1, 1002.5))
    rig.poll((0, 2, 999.0))
    rig.waits.finished({0: 3})
    assert rig.ahead == [0.0, 2.5, 0.0]
    assert rig.waited == [0.0, 1.0]
