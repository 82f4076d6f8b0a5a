"""The metrics that are computed at each scrape: the lag and position of each owned partition."""

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from stream_rater.runtime.metrics import ServiceObserver


class Source(NamedTuple):
    """A topic that a role reads."""

    topic: str
    ends: Callable[[], Mapping[int, int]]
    """The end offsets of the owned partitions."""
    observer: ServiceObserver
    corrections: bool
    """Whether the topic may contain corrections."""


class Lag(Collector):
    """The lag and position of each owned partition, at each scrape."""

    def __init__(self) -> None:
        self._sources: list[Source] = []

    def add(
        self, topic: str, ends: Callable[[], Mapping[int, int]], observer: ServiceObserver, *,
        corrections: bool,
    ) -> None:  # fmt: skip
        """Add a topic. `ends` returns the end offsets of its owned partitions; `corrections` says
        whether it may contain corrections."""
        self._sources.append(Source(topic, ends, observer, corrections))

    def collect(self) -> Iterable[Metric]:
        lag = GaugeMetricFamily(
            "stream_rater_lag_records",
            "Records that are not finished yet.",
            labels=["topic", "partition"],
        )
        position = GaugeMetricFamily(
            "stream_rater_next_offset",
            "The next offset to be finished.",
            labels=["topic", "partition"],
        )
        correction = GaugeMetricFamily(
            "stream_rater_correction_progress",
            "Share of the work on the current correction that is done; 1 if there is none.",
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
