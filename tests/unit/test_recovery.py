"""The log says when a role works again after trouble, and what of the store was filled again."""

import io
import json
import sys
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import structlog

from stream_rater.adapters.kafka.topics import Topics
from stream_rater.config.settings import Settings
from stream_rater.contract.errors import StoreTrouble
from stream_rater.pipeline.ports import Effect, Poll, ReadPriors
from stream_rater.runtime import log
from stream_rater.runtime.metrics import Metrics, ServiceObserver
from stream_rater.runtime.recovery import QUIET_S, Recovery
from stream_rater.runtime.service import Role, other_counts

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


def test_a_role_works_again_once_what_failed_has_succeeded() -> None:
    """The polls in between do not matter, since Kafka answers while Redis is down."""
    watch, priors = Watch(), ReadPriors({})
    watch.effects((READ, True), (priors, False), (PAUSE, True), (READ, True), (priors, False))
    watch.effects((PAUSE, True), (READ, True), (priors, True))
    assert watch.reported == []
    watch.effects((READ, True), (READ, True))
    assert watch.reported == [7.0], "from the first trouble on, and once"


def test_a_role_that_has_nothing_to_do_works_again_after_a_while() -> None:
    """What failed may never be tried again, for its partition has another owner."""
    watch = Watch()
    watch.effects((ReadPriors({}), False), *[(READ, True)] * int(QUIET_S))
    assert watch.reported == [QUIET_S]


@pytest.fixture
def lines(monkeypatch: pytest.MonkeyPatch) -> Iterator[io.StringIO]:
    """What is logged."""
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
