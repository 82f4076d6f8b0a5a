"""The metrics that are computed when they are scraped: how far each owned partition has come."""

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from stream_rater.runtime.metrics import ServiceObserver


class Source(NamedTuple):
    """A topic of which a role reads partitions."""

    topic: str
    ends: Callable[[], Mapping[int, int]]
    """The end offsets of the owned partitions."""
    observer: ServiceObserver
    corrections: bool
    """Whether there may be corrections in it."""


class Lag(Collector):
    """How far each owned partition has come, when scraped."""

    def __init__(self) -> None:
        self._sources: list[Source] = []

    def add(
        self, topic: str, ends: Callable[[], Mapping[int, int]], observer: ServiceObserver, *,
        corrections: bool,
    ) -> None:  # fmt: skip
        """A topic whose owned partitions' end offsets `ends` knows, and whether there may be
        corrections in it."""
        self._sources.append(Source(topic, ends, observer, corrections))

    def collect(self) -> Iterable[Metric]:
        lag = GaugeMetricFamily(
            "stream_rater_lag_records",
            "Records not yet finished, by topic and partition",
            labels=["topic", "partition"],
        )
        position = GaugeMetricFamily(
            "stream_rater_next_offset",
            "The next offset to be finished, by topic and partition",
            labels=["topic", "partition"],
        )
        correction = GaugeMetricFamily(
            "stream_rater_correction_progress",
            "Share of the work on the correction that an estimator works in; 1: there is none",
            labels=["topic", "partition"],
        )
        for topic, ends, observer, corrections in self._sources:
            for partition, end in ends().items():
                finished = observer.finished.get(partition, end)
                if corrections:
                    done = observer.corrections.progress(partition)
                    correction.add_metric([topic, str(partition)], done)
                lag.add_metric([topic, str(partition)], max(0, end - finished))
                position.add_metric([topic, str(partition)], finished)
        return [lag, position, correction]
