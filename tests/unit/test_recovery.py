"""What log and metrics say: ready, works again, filled again, how far a correction is."""

import io
import json
import sys
import threading
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import structlog

from stream_rater.adapters.kafka.topics import Topics
from stream_rater.config.settings import Settings
from stream_rater.contract.errors import LogTrouble, StoreTrouble
from stream_rater.pipeline.ports import Effect, Poll, ReadPriors
from stream_rater.runtime import log
from stream_rater.runtime.correction_reports import LOG_EVERY_S, MAX_UNFINISHED, CorrectionReports
from stream_rater.runtime.lag import Lag
from stream_rater.runtime.metrics import Metrics, ServiceObserver
from stream_rater.runtime.recovery import QUIET_S, Recovery
from stream_rater.runtime.service import Role, Service, other_counts
from tests.builders.cases import cases

READ = Poll(0.0)
PAUSE = Poll(0.0, no_fetch=True)


class Watch:
    """A recovery with a clock that a test moves, and what it reported."""

    def __init__(self) -> None:
        self.now_s = 100.0
        self.reported: list[float] = []
        self.recovery = Recovery(lambda: self.now_s, self.reported.append)

    def effects(self, *outcomes: tuple[Effect[Any], bool]) -> None:
        """A second apart, each a success or not."""
        for effect, works in outcomes:
            self.now_s += 1.0
            (self.recovery.succeeded if works else self.recovery.failed)(effect)


def test_when_a_role_works_again() -> None:
    """Once what failed has succeeded: the polls in between do not matter, since Kafka answers while
    Redis is down. Or after a while: what failed may never be tried again, for its partition has
    another owner."""
    watch, priors = Watch(), ReadPriors({})
    watch.effects((READ, True), (priors, False), (PAUSE, True), (READ, True), (priors, False))
    watch.effects((PAUSE, True), (READ, True), (priors, True))
    assert watch.reported == []
    watch.effects((READ, True), (READ, True))
    assert watch.reported == [7.0], "from the first trouble on, and once"
    watch = Watch()
    watch.effects((ReadPriors({}), False), *[(READ, True)] * int(QUIET_S))
    assert watch.reported == [QUIET_S]


@pytest.fixture
def lines(monkeypatch: pytest.MonkeyPatch) -> Iterator[io.StringIO]:
    written = io.StringIO()
    monkeypatch.setattr(sys, "stderr", written)
    log.configure()
    yield written
    structlog.reset_defaults()


def an_observer() -> ServiceObserver:
    return ServiceObserver(Metrics(), "updater", log.logger("updater"))


def test_the_log_says_that_a_role_recovered(lines: io.StringIO) -> None:
    """One line, after those about the trouble."""
    outcomes = [StoreTrouble("redis: gone"), None, None]

    def perform(_: object) -> None:
        if not outcomes:
            raise KeyboardInterrupt
        if (outcome := outcomes.pop(0)) is not None:
            raise outcome

    def machine() -> Any:
        try:
            yield ReadPriors({})
        except StoreTrouble:
            yield ReadPriors({})
        while True:
            yield READ

    worker: Any = SimpleNamespace(perform=perform, input=SimpleNamespace(close=lambda: None))
    Role("updater", worker, an_observer(), machine()).drive(lambda _: None)
    reported = [json.loads(line) for line in lines.getvalue().splitlines()]
    assert [each["event"] for each in reported] == ["recovered"]
    assert reported[0]["after_s"] >= 0.0


def test_the_log_says_what_a_wiped_redis_was_filled_with(lines: io.StringIO) -> None:
    """A line for each shard, with all that was applied again."""
    observer = an_observer()
    for end, rows in ((5, 40), (9, 2)):
        observer.beliefs_applied(3, end, rows, 0, refilled=True)
    observer.shard_refilled(3, 9)
    (reported,) = [json.loads(line) for line in lines.getvalue().splitlines()]
    assert reported["event"] == "shard refilled from the log"
    assert (reported["shard"], reported["offset"], reported["updates"]) == (3, 9, 42)


def test_a_count_that_is_not_the_topics_is_reported() -> None:
    """Where it was set: who says nothing takes what there is."""
    topics = Topics.of(Settings())
    there = {topics.rounds: 4, topics.parts: 4}
    (line,) = other_counts(Settings(shards=8), topics, there)
    assert line.startswith("STREAM_RATER_SHARDS is 8, but performance-estimated has 4 partitions")
    assert list(other_counts(Settings(shards=4, partitions=4), topics, there)) == []
    assert list(other_counts(Settings(), topics, {topics.rounds: 9, topics.parts: 9})) == []
    (line,) = other_counts(Settings(partitions=2), topics, there)
    assert line.startswith("STREAM_RATER_PARTITIONS is 2, but round-completed has 4")


class Starting(Service):
    """A service without roles, ready when it is asked for the third time."""

    def __init__(self) -> None:
        self._stop = threading.Event()
        self._roles = []
        self.said: list[tuple[int, str]] = []
        """How often it had been asked, and what it said then."""
        self.asked = 0
        log: Any = SimpleNamespace(info=lambda event: self.said.append((self.asked, event)))
        self.log = log

    def unready(self) -> list[str]:
        self.asked += 1
        return ["updater: not opened yet: [1]"] if self.asked < 3 else []


def test_ready_is_logged_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """When /readyz would say so for the first time, and not before."""
    starting = Starting()
    left = iter(range(10))
    monkeypatch.setattr(starting._stop, "wait", lambda _: next(left, None) is None)
    assert starting._wait_for([]) == []
    assert starting.said == [(3, "ready")]


# --- the progress of a correction -----------------------------------------------------------------


PLACE = {"ladder": "eu", "partition": 1, "offset": 90}


def test_a_correction_has_lines_and_progress() -> None:
    """One line at each end and few between, with the share that is done and the seconds it took.
    Progress is below one until all is sent; it is one where no correction is applied, and where
    another worker owns the partition."""
    now, lines = [100.0], list[dict[str, Any]]()
    log: Any = SimpleNamespace(info=lambda event, **more: lines.append({"event": event, **more}))
    reports = CorrectionReports(log, lambda: now[0])
    for progress in (0.0, 0.1, 0.2, 0.5, 0.6):
        reports.progressed("eu", 1, 90, progress)
        now[0] += 0.4 * LOG_EVERY_S
    reports.done("eu", 1, 90, 2)
    assert lines == [
        {"event": "correcting", **PLACE},
        {"event": "correcting", **PLACE, "done": "50%"},
        {"event": "corrected", **PLACE, "refused": 2, "took_s": 20.0},
    ]
    reports = CorrectionReports(log, lambda: 0.0)
    assert reports.progress(1) == 1.0
    reports.progressed("eu", 1, 90, 0.25)
    reports.progressed("us", 2, 40, 1.0)
    assert [reports.progress(p) for p in (0, 1, 2)] == [1.0, 0.25, MAX_UNFINISHED]
    reports.keep_only({2})
    reports.done("us", 2, 40, 0)
    assert [reports.progress(p) for p in (1, 2)] == [1.0, 1.0]


@cases("interrupted", [False, True])
def test_a_correction_is_counted_once_it_is_finished(interrupted: bool) -> None:
    """A correction that starts over reports no progress."""
    metrics, lag, log = Metrics(), Lag(), structlog.get_logger()
    observer = ServiceObserver(metrics, "estimator", log)
    metrics.registry.register(lag)
    lag.add("rounds", lambda: {1: 95}, observer, corrections=True)
    lag.add("parts", lambda: {1: 95}, observer, corrections=False)

    def progress(topic: str) -> float | None:
        labels = {"topic": topic, "partition": "1"}
        return metrics.registry.get_sample_value("stream_rater_correction_progress", labels)

    observer.correcting("eu", 1, 90, 0.5)
    assert (progress("rounds"), progress("parts")) == (0.5, None)
    if interrupted:
        observer.started_over(LogTrouble("kafka: gone"))
    else:
        observer.corrected("eu", 1, 90, 0)
    assert progress("rounds") == 1.0
    found = metrics.registry.get_sample_value("stream_rater_corrections_total")
    assert found == float(not interrupted)
