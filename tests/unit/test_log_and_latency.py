"""Log lines name their round, ladder or shard in fields. How long records wait."""

import io
import json
import sys
import time
from collections.abc import Iterator
from typing import Any

import pytest
import structlog
from prometheus_client.openmetrics.exposition import generate_latest

from stream_rater.adapters.local_driver import LocalDriver
from stream_rater.contract.record import Headers, Record
from stream_rater.runtime import log
from stream_rater.runtime.engine import EmbeddedEngine
from stream_rater.runtime.metrics import Metrics
from stream_rater.runtime.observer import MOST_FOLLOWED, LatencyTracker, ServiceObserver
from tests.builders.commands import Terminal
from tests.rounds import as_json, day

NASTY = '\x1b[2J\r\n{"event": "shard refused", "shard": 1}\n\u2028'


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    """Structlog is configured once a process."""
    yield
    structlog.reset_defaults()


@pytest.fixture
def out(monkeypatch: pytest.MonkeyPatch) -> io.StringIO:
    """What is logged, at debug level."""
    written = io.StringIO()
    monkeypatch.setattr(sys, "stderr", written)
    log.configure("debug")
    return written


def an_observer(role: str = "estimator") -> ServiceObserver:
    return ServiceObserver(Metrics(), role, log.logger(role))


def lines(out: io.StringIO, event: str) -> list[dict[str, Any]]:
    """Fields of the lines of this event, but for what every line has."""
    logged = [json.loads(line) for line in out.getvalue().split("\n")[:-1]]
    common = {"event", "level", "timestamp"}
    return [
        {name: each[name] for name in each.keys() - common}
        for each in logged
        if each["event"] == event
    ]


def rated(*records: bytes, headers: Headers = ()) -> None:
    """Let records through both machines, watched."""
    engine = EmbeddedEngine(estimating=an_observer(), updating=an_observer("updater"))
    for record in records:
        engine.log.submit(0, record, headers, received_s=2e9)
    engine.settle()


def test_a_rounds_way_through_the_log(out: io.StringIO) -> None:
    """Where it stands in round-completed, and up to where its shard is applied."""
    rated(as_json(), as_json(round_id="r-2"))
    assert lines(out, "round accepted") == [
        {"role": "estimator", "ladder": "ranked-eu", "round": name, "partition": 0, "offset": i}
        for i, name in enumerate(("r-1", "r-2"))
    ]
    assert lines(out, "beliefs applied") == [
        {"role": "updater", "shard": 2, "offset": i, "applied": 2, "repeated": 0} for i in (1, 2)
    ]


def test_a_rejection_says_whose_round_it_is(out: io.StringIO) -> None:
    """As far as it could be read, and no longer than an id may be; a repetition was read whole."""
    expected = [
        (as_json(ladder="l", round_id="r", weight=0), {"ladder": "l", "round": "r"}),
        (as_json(ladder="l" * 200, round_id=""), {"ladder": "l" * 128}),
        (as_json(ladder=NASTY, weight=0), {"ladder": NASTY, "round": "r-1"}),
        (b"no round", {}),
    ]
    for record, logged in expected:
        rated(record)
        line = lines(out, "round rejected")[-1]
        assert (line["partition"], line["offset"]) == (0, 0)
        assert {name: line[name] for name in ("ladder", "round") if name in line} == logged
    rated(as_json(), as_json())
    line = lines(out, "round rejected")[-1]
    assert (line["ladder"], line["round"], line["offset"]) == ("ranked-eu", "r-1", 1)


def test_lines_about_a_traced_round_carry_its_trace(out: io.StringIO) -> None:
    """Whether it is rated or not; without a trace they have no such field (above)."""
    trace_id = "0af7651916cd43dd8448eb211c80319c"
    parent = f"00-{trace_id}-b7ad6b7169203331-01".encode()
    rated(as_json(), b"no round", headers=[("traceparent", parent)])
    for event in ("round accepted", "round rejected"):
        (line,) = lines(out, event)
        assert line["trace_id"] == trace_id


def test_what_waits_says_where(out: io.StringIO) -> None:
    """A shard, a ladder, and their offsets."""
    observer = an_observer("updater")
    observer.shard_refused(3, "why", 17)
    observer.shard_refused(4, "why")
    observer.ladder_refused(NASTY, 60, "why")
    observer.part_ignored(5, 18, "why")
    common = {"role": "updater", "reason": "why"}
    assert lines(out, "shard refused") == [
        {**common, "shard": 3, "offset": 17},
        {**common, "shard": 4},
    ]
    assert lines(out, "ladder refused") == [{**common, "ladder": NASTY, "offset": 60}]
    assert lines(out, "foreign message among the parts") == [{**common, "shard": 5, "offset": 18}]


def test_no_id_commands_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """A line for people is one line, of what can be printed."""
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    log.configure()
    an_observer().ladder_refused(NASTY, 60, NASTY)
    text = terminal.getvalue()
    assert "\\x1b[2J" in text and text.count("\n") == 1
    assert "\x1b[2J" not in text and "\u2028" not in text and "\r" not in text


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
    """Not what is finished or has no arrival. What comes again has waited since it arrived."""
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
    """However long nothing is finished. A record from the future has no negative wait."""
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


def test_latency_is_of_the_whole_way(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each event counts, from its round's arrival on. Its bucket has the last trace."""
    monkeypatch.setattr(time, "time", lambda: 2e9)
    metrics = Metrics()
    engine = EmbeddedEngine(updating=ServiceObserver(metrics, "updater", log.logger("updater")))
    traced = [("traceparent", f"00-{7:032x}-{7:016x}-01".encode())]
    for number, (waited_s, headers) in enumerate([(0.75, traced), (4.0, []), (-9.0, [])]):
        value = as_json(round_id=f"r{number}", completed_at=day(number))
        engine.log.submit(0, value, headers, received_s=2e9 - waited_s)
        engine.settle()
    page = generate_latest(metrics.registry).decode().splitlines()
    for end in (
        'bucket{le="0.02"} 2.0', 'bucket{le="0.7"} 2.0', 'bucket{le="2.0"} 4.0',
        f'bucket{{le="1.0"}} 4.0 # {{trace_id="{7:032x}"}} 0.75 2000000000.0',
        'bucket{le="5.0"} 6.0', 'bucket{le="+Inf"} 6.0', "count 6.0", "sum 9.5",
    ):  # fmt: skip
        assert f"stream_rater_event_latency_seconds_{end}" in page


ROUNDS = 20


def test_nobody_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """There are few turns a round, whatever waits for a commit. Only polls move the time."""
    monkeypatch.setattr(time, "monotonic", lambda: pytest.fail("it looked at a clock"))
    engine = EmbeddedEngine()
    turns = 0

    def performed(worker: LocalDriver, effect: Any) -> Any:
        nonlocal turns
        turns += 1
        return perform(worker, effect)

    perform = LocalDriver.perform
    monkeypatch.setattr(LocalDriver, "perform", performed)
    for number in range(ROUNDS):
        engine.log.submit(
            0, as_json(round_id=f"r{number}", completed_at=day(number)), received_s=2e9
        )
        engine.settle()
    assert sum(map(len, engine.log.changed)) == 2 * ROUNDS
    assert engine.log.estimators.committed == {0: ROUNDS}
    assert turns < 40 * ROUNDS
