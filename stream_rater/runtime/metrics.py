"""The metrics of a worker, except those of `observer.Lag`. No metric has a label by player, round
or ladder, so the number of series stays small. Every counter exists from the start, at zero: one
that appears with its first event hides that event from `rate`."""

import ssl
import time
from bisect import bisect_left
from collections.abc import Callable, Iterable
from functools import partial
from itertools import accumulate
from typing import Any

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    Info,
    ProcessCollector,
    disable_created_metrics,
)
from prometheus_client.core import HistogramMetricFamily, Metric
from prometheus_client.registry import Collector
from prometheus_client.samples import Exemplar

from stream_rater.contract.errors import REJECTIONS

FAST_S = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0)
WAITS_S = (0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 120.0, 600.0)
EVENTS_S = (0.02, 0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 1.0, 1.5, 2.0, 5.0, 10.0, 30.0, 120.0, 600.0)
"""The chart's `prometheusRule.objective.seconds` is one of these."""
ENCODINGS = ("listpack", "hashtable")  # Redis encodings; a hashtable takes twice the memory.


class RegisteredMetrics:
    """The metrics of a process, whose names begin with the same prefix."""

    def __init__(self, prefix: str, registry: CollectorRegistry | None = None) -> None:
        """`registry`: the one of the process, if it has other metrics, too."""
        self.registry = CollectorRegistry() if registry is None else registry
        if registry is None:
            ProcessCollector(registry=self.registry)
        common: dict[str, Any] = {"namespace": prefix, "registry": self.registry}
        self._counter: Callable[..., Counter] = partial(Counter, **common)
        self._gauge: Callable[..., Gauge] = partial(Gauge, **common)
        self._histogram: Callable[..., Histogram] = partial(Histogram, **common, buckets=FAST_S)


class EventLatency(Collector):
    """A histogram whose values count several times, which `prometheus_client.Histogram` cannot do:
    an event each. One thread observes."""

    def __init__(self) -> None:
        self._counts, self._sum_s = [0] * (len(EVENTS_S) + 1), 0.0
        self._exemplars: list[Exemplar | None] = [None] * len(self._counts)

    def observe(self, waited_s: float, events: int, trace_id: str = "") -> None:
        """So many events were committed, this long after their round had arrived."""
        bucket = bisect_left(EVENTS_S, waited_s)
        self._counts[bucket] += events
        self._sum_s += events * waited_s
        if trace_id:
            self._exemplars[bucket] = Exemplar({"trace_id": trace_id}, waited_s, time.time())

    def collect(self) -> Iterable[Metric]:
        bounds, counts = (*map(str, EVENTS_S), "+Inf"), accumulate(self._counts)
        family = HistogramMetricFamily(
            "stream_rater_event_latency_seconds",
            "Time from the arrival of a round's record in Kafka until its rating-changed events "
            "are committed, for each event, with trace ids. A wave's rounds count as the one that "
            "waited longest, and corrections and seeds not at all.",
        )  # fmt: skip
        buckets: Any = [*zip(bounds, counts, self._exemplars, strict=True)]
        family.add_metric([], buckets, self._sum_s)
        return [family]


class Metrics(RegisteredMetrics):
    """The metrics of the state machines in one process."""

    def __init__(self, registry: CollectorRegistry | None = None) -> None:
        """`registry`: the one of the process, if it has other metrics, too."""
        disable_created_metrics()  # type: ignore[no-untyped-call]  # nobody reads these series
        super().__init__("stream_rater", registry)
        self._declare_work()
        self._declare_cache()
        self._declare_health()
        self._declare_environment()
        for labelled, values in (
            (self.rounds, ("accepted", "rejected", "scattered", "resumed")),
            (self.rejected, REJECTIONS),
            (self.updates, ("applied", "repeated", "replayed")),
            (self.events, ("published", "settled")),
            (self.hashes, ENCODINGS),
        ):
            for value in values:
                labelled.labels(value)

    def _declare_work(self) -> None:
        self.rounds = self._counter(
            "rounds_total",
            "Rounds by outcome: accepted; rejected; scattered (estimated, and their parts "
            "acknowledged by Kafka); resumed (sent by a previous owner of the partition).",
            ["outcome"],
        )  # fmt: skip
        self.rejected = self._counter("rejected_total", "Rejected records by error code.", ["code"])
        self.unknown_fields = self._counter(
            "unknown_fields_total",
            "Accepted rounds with a field that this release does not know, or a rank beside dnf.",
        )
        self.corrections = self._counter(
            "corrections_total",
            "Corrections finished: applied, or deferred until corrections-applied. Rejected ones "
            "also count as rejected.",
        )
        self.seeds = self._counter(
            "seeds_total", "Seeds and resets whose parts Kafka has acknowledged."
        )
        self.seeds_without_effect = self._counter(
            "seed_rows_without_effect_total",
            "Rows of seeds and resets that changed nothing: the player of a seed already had a "
            "round, or the player of a reset had none.",
        )
        self.checkpoints = self._counter(
            "checkpoint_failures_total",
            "Checkpoints that could not be read, written or deleted. Corrections take longer; "
            "nothing else is affected.",
        )
        self.paused = self._gauge(
            "resting_partitions",
            "Partitions of round-completed that are paused after too many rejected records.",
        )
        self.updates = self._counter(
            "updates_total",
            "Updates of beliefs by outcome: applied; repeated (already in Redis); replayed (Redis "
            "had lost them).", ["outcome"],
        )  # fmt: skip
        self.events = self._counter(
            "events_total",
            "rating-changed events by outcome: published; settled (published for a previous owner "
            "of the shard).", ["outcome"],
        )  # fmt: skip
        self.latency = self._histogram(
            "latency_seconds",
            "Time from the arrival of a record in Kafka until it is finished, for one record of "
            "each poll: a round until its parts are in the log (estimator), a part until its "
            "events are committed (updater).", ["role"], buckets=WAITS_S,
        )  # fmt: skip
        self.event_latency = EventLatency()
        self.registry.register(self.event_latency)
        self.seconds = self._histogram(
            "stage_seconds", "Duration of each effect. Poll includes waiting for records.",
            ["role", "stage"],
        )  # fmt: skip

    def _declare_cache(self) -> None:
        self.cached = self._counter(
            "cache_lookups_total",
            "Beliefs that a batch needed, by outcome: hit (kept in memory, see "
            "STREAM_RATER_CACHE_MB); miss (read from Redis).", ["role", "outcome"],
        )  # fmt: skip
        self.evictions = self._counter(
            "cache_evictions_total",
            "Beliefs that were kept in memory and gave way to others.", ["role"],
        )  # fmt: skip
        self.cache_bytes = self._gauge(
            "cache_bytes", "Bytes of the beliefs that are kept in memory.", ["role"]
        )

    def _declare_health(self) -> None:
        self.ready = self._gauge("ready", "1 while /readyz answers 200, else 0.")
        self.owned = self._gauge(
            "owned",
            "Partitions of round-completed (estimator) or shards (updater) that this worker owns.",
            ["role"],
        )  # fmt: skip
        self.partitions = self._gauge(
            "partitions",
            "Partitions of round-completed (estimator) or shards (updater) that exist.", ["role"],
        )  # fmt: skip
        self.unattended = self._gauge(
            "unattended",
            "Partitions of round-completed (estimator) or shards (updater) that this worker does "
            "not own, in which records have come and none was finished since.", ["role"],
        )  # fmt: skip
        self.oldest = self._gauge(
            "oldest_waiting_seconds",
            "For how long the oldest round (estimator) or part (updater) of any partition has been "
            "seen to wait, whoever owns it. 0 if at most one record waits.", ["role"],
        )  # fmt: skip
        self.log_ends = self._gauge(
            "log_end_offset",
            "The sum of the ends of all partitions of a topic, whoever owns them.", ["topic"],
        )  # fmt: skip
        self.answers = self._gauge(
            "dependency_up", "1 while kafka or redis answers this worker, else 0.", ["dependency"]
        )
        self.assignments = self._counter(
            "assignments_total",
            "Changes of the set of partitions or shards that a role owns.", ["role"],
        )  # fmt: skip
        self.refused = self._gauge(
            "refused_shards", "Shards that wait for an operator, or for workers of a newer release."
        )
        self.refused_ladders = self._gauge(
            "refused_ladders", "Ladders that wait until all workers have the same ladders file."
        )
        self.troubles = self._counter(
            "restarts_total",
            "Failures after which a role started over, by cause: kafka, redis, file (that of a "
            "standalone process), or tls (a TLS handshake). After denied, a wrong password or a "
            "missing right, the role ended.", ["role", "cause"],
        )  # fmt: skip

    def _declare_environment(self) -> None:
        self.info = Info(
            "stream_rater",
            "Release and kernel version. Different kernel versions compute different bits.",
            registry=self.registry,
        )
        self.hashes = self._counter(
            "sampled_hashes_total",
            "Sampled hashes of beliefs by their encoding in Redis: a hashtable takes twice the "
            "memory of a listpack.", ["encoding"],
        )  # fmt: skip
        self.certificates = self._gauge(
            "certificate_expiry_timestamp_seconds",
            "When the first certificate of a file that the settings name expires, as Unix "
            "seconds.", ["server", "use"],
        )  # fmt: skip
        self.clock = self._gauge(
            "clock_timestamp_seconds",
            "This worker's clock at the scrape, to compare with the scraper's.",
        )
        self.clock.set_function(time.time)
        self.ahead = self._gauge(
            "clock_ahead_seconds",
            "How far the time of the last sampled record is ahead of this worker's clock.",
            ["role"],
        )  # fmt: skip


# --- certificates --------------------------------------------------------------------------------

_decoded: Any = ssl._ssl._test_decode_cert  # type: ignore[attr-defined]
"""The fields of a PEM file's first certificate. Python has no public function for certificates that
are not an authority's."""


def not_after(path: str) -> float | None:
    """The Unix seconds at which the first certificate of a PEM file expires; None if it has no
    readable one. Only a valid file is watched; the client libraries report an invalid one."""
    try:
        return float(ssl.cert_time_to_seconds(_decoded(path)["notAfter"]))
    except (OSError, ValueError, KeyError):
        return None
