"""The metrics of a worker, and the observer that feeds them and the log.

No metric has a label by player, round or ladder, so the number of series stays small. Every counter
exists from the start, at zero: one that appears with its first event hides that event from `rate`.
"""

import time
from collections import Counter as Counts
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import partial
from logging import DEBUG
from typing import NamedTuple

import structlog
from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    Info,
    ProcessCollector,
    disable_created_metrics,
)
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from stream_rater.contract.errors import CAUSES, Denied, Trouble
from stream_rater.contract.record import Record, trace_of
from stream_rater.pipeline.observer import Observer, Traced, no_spans
from stream_rater.pipeline.ports import Polled, Rejection
from stream_rater.rounds.batch import RoundBatch
from stream_rater.rounds.validation import CODES
from stream_rater.runtime.measuring import CorrectionReports, LatencyTracker

FAST_S = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0)

WAITS_S = (0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 120.0, 600.0)

ENCODINGS = ("listpack", "hashtable")
"""The encodings of a Redis hash. A hashtable takes about twice the memory of a listpack."""

LOG_EVERY_S = 1.0
"""The least interval between two log lines of one kind of warning. The counters count them all."""


class Metrics:
    """The metrics of the state machines in one process."""

    def __init__(self, registry: CollectorRegistry | None = None) -> None:
        """`registry`: the one of the process, if it has other metrics, too."""
        disable_created_metrics()  # type: ignore[no-untyped-call]  # nobody reads these series
        self.registry = CollectorRegistry() if registry is None else registry
        if registry is None:
            ProcessCollector(registry=self.registry)
        self._counter = partial(Counter, registry=self.registry)
        self._gauge = partial(Gauge, registry=self.registry)
        self._histogram = partial(Histogram, registry=self.registry)
        self._declare_work()
        self._declare_cache()
        self._declare_health()
        self._declare_environment()
        for labelled, values in (
            (self.rounds, ("accepted", "rejected", "scattered", "resumed")),
            (self.rejected, CODES),
            (self.updates, ("applied", "repeated", "replayed")),
            (self.events, ("published", "settled")),
            (self.hashes, ENCODINGS),
        ):
            for value in values:
                labelled.labels(value)

    def _declare_work(self) -> None:
        self.rounds = self._counter(
            "stream_rater_rounds_total",
            "Rounds by outcome: accepted; rejected; scattered (estimated, and their parts "
            "acknowledged by Kafka); resumed (sent by a previous owner of the partition).",
            ["outcome"],
        )
        self.rejected = self._counter(
            "stream_rater_rejected_total", "Rejected records by error code.", ["code"]
        )
        self.unknown_fields = self._counter(
            "stream_rater_unknown_fields_total",
            "Accepted rounds with a field that this release does not know, or a rank beside dnf.",
        )
        self.corrections = self._counter(
            "stream_rater_corrections_total",
            "Corrections finished: applied, or deferred until corrections-applied. Rejected ones "
            "also count as rejected.",
        )
        self.seeds = self._counter(
            "stream_rater_seeds_total", "Seeds and resets whose parts Kafka has acknowledged."
        )
        self.seeds_without_effect = self._counter(
            "stream_rater_seed_rows_without_effect_total",
            "Rows of seeds and resets that changed nothing: the player of a seed already had a "
            "round, or the player of a reset had none.",
        )
        self.checkpoints = self._counter(
            "stream_rater_checkpoint_failures_total",
            "Checkpoints that could not be read, written or deleted. Corrections take longer; "
            "nothing else is affected.",
        )
        self.paused = self._gauge(
            "stream_rater_resting_partitions",
            "Partitions of round-completed that are paused after too many rejected records.",
        )
        self.updates = self._counter(
            "stream_rater_updates_total",
            "Updates of beliefs by outcome: applied; repeated (already in Redis); replayed (Redis "
            "had lost them).",
            ["outcome"],
        )
        self.events = self._counter(
            "stream_rater_events_total",
            "rating-changed events by outcome: published; settled (published for a previous owner "
            "of the shard).",
            ["outcome"],
        )
        self.latency = self._histogram(
            "stream_rater_latency_seconds",
            "Time from the arrival of a record in Kafka until it is finished, for one record of "
            "each poll: a round until its parts are in the log (estimator), a part until its "
            "events are committed (updater).",
            ["role"],
            buckets=WAITS_S,
        )
        self.seconds = self._histogram(
            "stream_rater_stage_seconds",
            "Duration of each effect. Poll includes waiting for records.",
            ["role", "stage"],
            buckets=FAST_S,
        )

    def _declare_cache(self) -> None:
        self.cached = self._counter(
            "stream_rater_cache_lookups_total",
            "Beliefs that a batch needed, by outcome: hit (kept in memory, see "
            "STREAM_RATER_CACHE_MB); miss (read from Redis).",
            ["role", "outcome"],
        )
        self.evictions = self._counter(
            "stream_rater_cache_evictions_total",
            "Beliefs that were kept in memory and gave way to others.",
            ["role"],
        )
        self.cache_bytes = self._gauge(
            "stream_rater_cache_bytes", "Bytes of the beliefs that are kept in memory.", ["role"]
        )

    def _declare_health(self) -> None:
        self.ready = self._gauge("stream_rater_ready", "1 while /readyz answers 200, else 0.")
        self.owned = self._gauge(
            "stream_rater_owned",
            "Partitions of round-completed (estimator) or shards (updater) that this worker owns.",
            ["role"],
        )
        self.partitions = self._gauge(
            "stream_rater_partitions",
            "Partitions of round-completed (estimator) or shards (updater) that exist.",
            ["role"],
        )
        self.unattended = self._gauge(
            "stream_rater_unattended",
            "Partitions of round-completed (estimator) or shards (updater) that this worker does "
            "not own, in which records have come and none was finished since.",
            ["role"],
        )
        self.log_ends = self._gauge(
            "stream_rater_log_end_offset",
            "The sum of the ends of all partitions of a topic, whoever owns them.",
            ["topic"],
        )
        self.answers = self._gauge(
            "stream_rater_dependency_up",
            "1 while kafka or redis answers this worker, else 0.",
            ["dependency"],
        )
        self.assignments = self._counter(
            "stream_rater_assignments_total",
            "Changes of the set of partitions or shards that a role owns.",
            ["role"],
        )
        self.refused = self._gauge(
            "stream_rater_refused_shards",
            "Shards that wait for an operator, or for workers of a newer release.",
        )
        self.refused_ladders = self._gauge(
            "stream_rater_refused_ladders",
            "Ladders that wait until all workers have the same ladders file.",
        )
        self.troubles = self._counter(
            "stream_rater_restarts_total",
            "Failures after which a role started over, by cause: kafka, redis, file (that of a "
            "standalone process), or tls (a TLS handshake). "
            "After denied, a wrong password or a missing right, the role ended.",
            ["role", "cause"],
        )

    def _declare_environment(self) -> None:
        self.info = Info(
            "stream_rater",
            "Release and kernel version. Different kernel versions compute different bits.",
            registry=self.registry,
        )
        self.hashes = self._counter(
            "stream_rater_sampled_hashes_total",
            "Sampled hashes of beliefs by their encoding in Redis: a hashtable takes twice the "
            "memory of a listpack.",
            ["encoding"],
        )
        self.certificates = self._gauge(
            "stream_rater_certificate_expiry_timestamp_seconds",
            "When the first certificate of a file that the settings name expires, as Unix seconds.",
            ["server", "use"],
        )
        self.clock = self._gauge(
            "stream_rater_clock_timestamp_seconds",
            "This worker's clock at the scrape, to compare with the scraper's.",
        )
        self.clock.set_function(time.time)
        self.ahead = self._gauge(
            "stream_rater_clock_ahead_seconds",
            "How far the time of the last sampled record is ahead of this worker's clock.",
            ["role"],
        )


def _traced(record: Record) -> dict[str, str]:
    """The field of log lines that names the record's trace; empty without a trace."""
    trace = trace_of(record.headers)
    return {} if trace is None else {"trace_id": trace.id}


class ServiceObserver(Observer):
    """Counts and logs the reports of one state machine."""

    def __init__(
        self,
        metrics: Metrics,
        role: str,
        log: structlog.stdlib.BoundLogger,
        spans: Callable[[Iterable[Traced]], AbstractContextManager[object]] = no_spans,
    ) -> None:
        self._spans = spans
        self._metrics = metrics
        self._role = role
        self._log = log
        self._logged_s: dict[str, float] = {}
        self._reason = ""
        """Why the role started over last, until it works again."""
        self._refilled: Counts[int] = Counts()
        """By shard that is being refilled, the number of updates that were applied again."""
        self.advice = ""
        """A hint to log once, when duels or rounds of teams are accepted."""
        self.finished: dict[int, int] = {}
        """By partition, the next offset to be finished."""
        self.reading_ids: Collection[int] = ()
        """Partitions whose round ids before the committed offset are still being read."""
        self.refused: dict[int, str] = {}
        """The reason for each shard that is refused."""
        self.refused_ladders: dict[str, str] = {}
        """The reason for each ladder that is refused."""
        self._latency = LatencyTracker(
            metrics.latency.labels(role).observe, metrics.ahead.labels(role).set, time.time
        )
        self.corrections = CorrectionReports(log, time.monotonic)
        self._accepted = metrics.rounds.labels("accepted")  # looked up once, not for each round
        self._hits, self._misses = (metrics.cached.labels(role, each) for each in ("hit", "miss"))
        self._evictions = metrics.evictions.labels(role)
        self._cache_bytes = metrics.cache_bytes.labels(role)
        metrics.assignments.labels(role)
        for cause in CAUSES:
            metrics.troubles.labels(role, cause)

    def polled(self, polled: Polled) -> None:
        """A poll has returned records."""
        self._latency.polled(polled.records, self.finished)

    def owned(self, partitions: frozenset[int]) -> None:
        self._metrics.owned.labels(self._role).set(len(partitions))
        self._metrics.assignments.labels(self._role).inc()
        self._latency.keep_only(partitions)
        self.corrections.keep_only(partitions)
        self.refused = {s: why for s, why in self.refused.items() if s in partitions}
        if not partitions:
            self.refused_ladders = {}
            self._metrics.refused_ladders.set(0)
        self._metrics.refused.set(len(self.refused))
        self._log.info("owned", partitions=sorted(partitions))

    def reading_back(self, partitions: Collection[int]) -> None:
        self.reading_ids = partitions

    def rounds_accepted(self, records: Sequence[Record], rounds: RoundBatch) -> None:
        self._accepted.inc(len(rounds))
        if self.advice and rounds.are_duels:
            self._log.warning(self.advice)
            self.advice = ""
        if not self._log.is_enabled_for(DEBUG):  # even disabled debug logging costs time
            return
        for record, head in zip(records, rounds.heads, strict=True):
            self._log.debug(
                "round accepted", ladder=head.ladder, round=head.round_id,
                partition=record.partition, offset=record.offset, **_traced(record),
            )  # fmt: skip

    def unknown_fields(self, rounds: int) -> None:
        self._metrics.unknown_fields.inc(rounds)

    def round_rejected(self, rejection: Rejection) -> None:
        code, record = rejection.code, rejection.record
        self._metrics.rounds.labels("rejected").inc()
        self._metrics.rejected.labels(code).inc()
        ids = {"ladder": rejection.ladder, "round": rejection.round_id}
        self._warn_seldom(
            code, "round rejected", code=code, error=rejection.message, partition=record.partition,
            offset=record.offset, **{name: known for name, known in ids.items() if known},
            **_traced(record),
        )  # fmt: skip

    def partitions_paused(self, partitions: frozenset[int]) -> None:
        self._metrics.paused.set(len(partitions))
        if partitions:
            self._warn_seldom(
                "paused", "partitions paused: too many rejections", partitions=sorted(partitions)
            )
        else:
            self._log.info("no partition is paused")

    def working_on(self, rounds: Iterable[Traced]) -> AbstractContextManager[object]:
        return self._spans(rounds)

    def rounds_sent(self, rounds: int, players: int) -> None:
        self._metrics.rounds.labels("scattered").inc(rounds)
        self._log.debug("wave sent", rounds=rounds, players=players)

    def rounds_resumed(self, rounds: int) -> None:
        self._metrics.rounds.labels("resumed").inc(rounds)

    def beliefs_applied(
        self, shard: int, end: int, applied: int, repeated: int, *, refilled: bool
    ) -> None:
        self._log.debug(
            "beliefs applied", shard=shard, offset=end, applied=applied, repeated=repeated
        )
        self._metrics.updates.labels("replayed" if refilled else "applied").inc(applied)
        if refilled:
            self._refilled[shard] += applied
        self._metrics.updates.labels("repeated").inc(repeated)

    def records_looked_up(self, cached: int, read: int) -> None:
        self._hits.inc(cached)
        self._misses.inc(read)

    def records_cached(self, evicted: int, bytes_used: int) -> None:
        self._evictions.inc(evicted)
        self._cache_bytes.set(bytes_used)

    def events_published(self, events: int, *, settled: bool) -> None:
        self._metrics.events.labels("settled" if settled else "published").inc(events)

    def correcting(self, ladder: str, partition: int, offset: int, progress: float) -> None:
        self.corrections.progressed(ladder, partition, offset, progress)

    def corrected(self, ladder: str, partition: int, offset: int, refused: int) -> None:
        self._metrics.corrections.inc()
        self.corrections.done(ladder, partition, offset, refused)

    def seeded(self, ladder: str, partition: int, offset: int, rows: int) -> None:
        self._metrics.seeds.inc()
        self._log.info("seeded", ladder=ladder, partition=partition, offset=offset, players=rows)

    def seeds_without_effect(self, shard: int, end: int, rows: int) -> None:
        self._metrics.seeds_without_effect.inc(rows)
        self._warn_seldom(
            "without effect", "seeds or resets changed nothing for some players",
            shard=shard, offset=end, players=rows,
        )  # fmt: skip

    def checkpoint_failed(self, reason: str) -> None:
        """A checkpoint could not be read, written or deleted. Nothing waits for it."""
        self._metrics.checkpoints.inc()
        self._warn_seldom("checkpoint", "checkpoint not written, or not read", reason=reason)

    def positions(self, next_offsets: Mapping[int, int]) -> None:
        self.finished.update(next_offsets)
        self._latency.finished(next_offsets)

    def rounds_missing(self, partition: int, committed: int, start: int) -> None:
        self._log.error(
            "rounds were deleted from the log before they were read",
            partition=partition, from_offset=committed, to_offset=start,
        )  # fmt: skip

    def started_over(self, trouble: Trouble) -> None:
        self._metrics.troubles.labels(self._role, trouble.cause).inc()
        self.corrections.keep_only(())  # their work begins again
        if str(trouble) != self._reason:
            self._reason = str(trouble)
            self._log.warning("started over", reason=self._reason)

    def recovered(self, after_s: float) -> None:
        """The role works again, `after_s` seconds after the first trouble."""
        self._reason = ""
        self._log.info("recovered", after_s=round(after_s, 3))

    def shard_refilled(self, shard: int, offset: int) -> None:
        updates = self._refilled.pop(shard, 0)
        self._log.info("shard refilled from the log", shard=shard, offset=offset, updates=updates)

    def denied(self, error: Denied) -> None:
        """The role ends because Kafka or Redis denies it access."""
        self._metrics.troubles.labels(self._role, error.cause).inc()

    def shard_opened(self, shard: int) -> None:
        if self.refused.pop(shard, None) is not None:
            self._metrics.refused.set(len(self.refused))
            self._log.info("shard resumed", shard=shard)

    def part_ignored(self, shard: int, offset: int, reason: str) -> None:
        self._warn_seldom(
            "foreign", "foreign message among the parts", shard=shard, offset=offset, reason=reason
        )

    def shard_refused(self, shard: int, reason: str, offset: int | None = None) -> None:
        if self.refused.get(shard) != reason:
            place = {} if offset is None else {"offset": offset}
            self._log.error("shard refused", shard=shard, **place, reason=reason)
        self.refused[shard] = reason
        self._metrics.refused.set(len(self.refused))

    def ladder_refused(self, ladder: str, offset: float, reason: str) -> None:
        if self.refused_ladders.get(ladder) != reason:
            self._log.error("ladder refused", ladder=ladder, offset=offset, reason=reason)
        self.refused_ladders[ladder] = reason
        self._metrics.refused_ladders.set(len(self.refused_ladders))

    def ladders_agreed(self, ladders: Iterable[str]) -> None:
        for ladder in self.refused_ladders.keys() & set(ladders):
            del self.refused_ladders[ladder]
            self._metrics.refused_ladders.set(len(self.refused_ladders))
            self._log.info("ladder resumed", ladder=ladder)

    def _warn_seldom(self, kind: str, event: str, **fields: object) -> None:
        now_s = time.monotonic()
        if now_s - self._logged_s.get(kind, -LOG_EVERY_S) >= LOG_EVERY_S:
            self._logged_s[kind] = now_s
            self._log.warning(event, **fields)


class LagSource(NamedTuple):
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
        self._sources: list[LagSource] = []

    def add(
        self, topic: str, ends: Callable[[], Mapping[int, int]], observer: ServiceObserver, *,
        corrections: bool,
    ) -> None:  # fmt: skip
        """Add a topic. `ends` returns the end offsets of its owned partitions; `corrections` says
        whether it may contain corrections."""
        self._sources.append(LagSource(topic, ends, observer, corrections))

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
