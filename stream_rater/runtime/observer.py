"""Feeds metrics, log and spans with what a state machine does, including latency and lag."""

import re
import time
from collections import Counter as Counts
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from logging import DEBUG
from typing import Final

import structlog
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from stream_rater.contract.errors import CAUSES, Denied, Trouble
from stream_rater.contract.record import Record, trace_of
from stream_rater.pipeline.observer import Observer, Published, Traced, no_spans
from stream_rater.pipeline.ports import Polled, Rejection
from stream_rater.rounds.batch import RoundBatch
from stream_rater.runtime.metrics import Metrics

LOG_EVERY_S = 1.0
"""The least time between two lines of one kind of warning. Counters count all warnings."""
PROGRESS_EVERY_S = 10.0  # The least interval between two lines about the progress of a correction.
MAX_UNFINISHED = 0.99  # The greatest progress of a correction before all of its parts are sent.
MOST_REASONS = 100  # The number of reasons to start over that are logged in one outage.
MOST_FOLLOWED = 1000  # The number of records of a partition that are followed at the same time.
Clock = Callable[[], float]
Seconds = Callable[[float], None]
Ends = Callable[[], Mapping[int, int]]


class LatencyTracker:
    """Follows some records of one role, from their arrival in Kafka until they are finished: the
    first record of each poll, which has waited longest. This costs nothing, and with little load it
    is every record. A record's arrival is its time in the log, which is by the broker's clock if
    the topic has LogAppendTime, as round-completed has, and otherwise by the producer's. `clock`
    returns Unix seconds. `waited` is called with the seconds that each finished record waited.
    `ahead` is called with the seconds by which a record's time was ahead of the clock when it was
    read: 0 unless the clocks disagree."""

    def __init__(self, waited: Seconds, ahead: Seconds, clock: Clock) -> None:
        self._waited, self._ahead, self._clock = waited, ahead, clock
        self._followed: dict[int, deque[tuple[int, float]]] = {}
        """By partition, (offset, arrival) of the followed records."""
        ahead(0.0)

    def polled(self, records: Sequence[Record], next_offsets: Mapping[int, int]) -> None:
        """Follow the first of these records, unless it was only read again for its round id."""
        if not records:
            return
        first = records[0]
        if first.received_s <= 0.0 or first.offset < next_offsets.get(first.partition, 0):
            return
        self._ahead(max(0.0, first.received_s - self._clock()))
        followed = self._followed.setdefault(first.partition, deque())
        if len(followed) < MOST_FOLLOWED and (not followed or followed[-1][0] < first.offset):
            followed.append((first.offset, first.received_s))

    def finished(self, next_offsets: Mapping[int, int]) -> None:
        """All records before these offsets are finished."""
        for partition, end in next_offsets.items():
            followed = self._followed.get(partition, ())
            while followed and followed[0][0] < end:
                self._waited(max(0.0, self._clock() - followed.popleft()[1]))

    def keep_only(self, partitions: Collection[int]) -> None:
        """Forget the records of all other partitions: other workers finish them."""
        self._followed = {p: each for p, each in self._followed.items() if p in partitions}


@dataclass(slots=True)
class _CorrectionProgress:
    offset: int
    begun_s: float
    logged_s: float
    progress: float = 0.0


class CorrectionReports:
    """The corrections that one estimator is applying, at most one per partition."""

    def __init__(self, log: structlog.stdlib.BoundLogger, clock: Clock) -> None:
        self._log, self._clock = log, clock
        self._in_progress: dict[int, _CorrectionProgress] = {}  # By partition, its correction.

    def progress(self, partition: int) -> float:
        """The share of the work on a partition's correction that is done; 1 if it has none."""
        work = self._in_progress.get(partition)
        return 1.0 if work is None else work.progress

    def progressed(self, ladder: str, partition: int, offset: int, progress: float) -> None:
        """The work on a correction has reached this share."""
        now_s, work = self._clock(), self._in_progress.get(partition)
        of = {"ladder": ladder, "partition": partition, "offset": offset}
        if work is None or work.offset != offset:
            work = self._in_progress[partition] = _CorrectionProgress(offset, now_s, now_s)
            self._log.info("correcting", **of)
        elif now_s - work.logged_s >= PROGRESS_EVERY_S:
            work.logged_s = now_s
            self._log.info("correcting", **of, done=f"{progress:.0%}")
        work.progress = min(progress, MAX_UNFINISHED)

    def done(self, ladder: str, partition: int, offset: int, refused: int) -> None:
        """The work is done; `refused` corrections were rejected."""
        work = self._in_progress.pop(partition, None)
        took_s = 0.0 if work is None else self._clock() - work.begun_s
        self._log.info(
            "corrected", ladder=ladder, partition=partition, offset=offset, refused=refused,
            took_s=round(took_s, 3),
        )  # fmt: skip

    def keep_only(self, partitions: Collection[int]) -> None:
        """Forget the work on all other partitions: other workers do it."""
        self._in_progress = {p: work for p, work in self._in_progress.items() if p in partitions}


def _traced(record: Record) -> dict[str, str]:
    """The field of log lines that names the record's trace; empty without a trace."""
    trace = trace_of(record.headers)
    return {} if trace is None else {"trace_id": trace.id}


class ServiceObserver(Observer):
    """Counts and logs the reports of one state machine."""

    def __init__(
        self, metrics: Metrics, role: str, log: structlog.stdlib.BoundLogger,
        spans: Callable[[Iterable[Traced]], AbstractContextManager[object]] = no_spans,
    ) -> None:  # fmt: skip
        self._metrics, self._role, self._log, self._spans = metrics, role, log, spans
        self._logged_s: dict[str, float] = {}
        self._reasons = set[str]()  # Why the role started over, without numbers, until it works.
        self._refilled: Counts[int] = Counts()
        """By shard that is being refilled, the number of updates that were applied again."""
        self.finished: dict[int, int] = {}  # By partition, the next offset to be finished.
        self.reading_ids: Collection[int] = ()
        """Partitions whose round ids before the committed offset are still being read."""
        self.refused: dict[int, str] = {}  # The reason for each shard that is refused.
        self.refused_ladders: dict[str, str] = {}  # The reason for each ladder that is refused.
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

    def events_published(self, events: int, parts: Iterable[Published], *, settled: bool) -> None:
        self._metrics.events.labels("settled" if settled else "published").inc(events)
        now_s = time.time()
        for each in parts:
            waited_s = max(0.0, now_s - each.arrived_s)
            self._metrics.event_latency.observe(waited_s, each.events, each.trace_id)

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
        reason = re.sub(r"\d+", "", str(trouble))
        if reason not in self._reasons and len(self._reasons) < MOST_REASONS:
            self._reasons.add(reason)
            self._log.warning("started over", reason=str(trouble))

    def recovered(self, after_s: float) -> None:
        """The role works again, `after_s` seconds after the first trouble."""
        self._reasons.clear()
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


class Lag(Collector):
    """The lag and position of each owned partition, computed at each scrape."""

    def __init__(self) -> None:
        self._sources: list[tuple[str, Ends, ServiceObserver, bool]] = []

    def add(self, topic: str, ends: Ends, observer: ServiceObserver, *, corrections: bool) -> None:
        """Add a topic. `ends` returns the ends of its owned partitions. `corrections`: whether it
        may have corrections."""
        self._sources.append((topic, ends, observer, corrections))

    def collect(self) -> Iterable[Metric]:
        lag = _by_partition("stream_rater_lag_records", "Unfinished records, in owned partitions.")
        position = _by_partition("stream_rater_next_offset", "The next offset to be finished.")
        correction = _by_partition(
            "stream_rater_correction_progress",
            "Share of the work on the current correction that is done; 1 if there is none.",
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


def _by_partition(name: str, text: str) -> GaugeMetricFamily:
    return GaugeMetricFamily(name, text, labels=["topic", "partition"])


NAMES: Final = {"estimator": "estimate", "updater": "update"}  # By role, the name of its spans.


def spans_of(
    role: str, topic: str, group: str = "", client: str = ""
) -> Callable[[Iterable[Traced]], AbstractContextManager[object]]:
    """A context manager that records, for each traced round of a topic, a span of the block, with
    the exception if the block raises one. `group` and `client`: the ids of the Kafka consumer.
    The attributes have the names of OpenTelemetry's conventions for Kafka."""
    try:
        from opentelemetry import trace
        from opentelemetry.trace.propagation import tracecontext
    except ImportError:
        return no_spans
    tracer = trace.get_tracer("stream-rater")
    reader = tracecontext.TraceContextTextMapPropagator()

    def started(traced: Traced) -> "trace.Span":
        carried = {name: value.decode() for name, value in traced.trace.headers()}
        attributes: dict[str, str | int] = {
            "messaging.system": "kafka",
            "messaging.operation.name": NAMES[role],
            "messaging.operation.type": "process",
            "messaging.consumer.group.name": group,
            "messaging.client.id": client,
            "messaging.destination.name": topic,
            "messaging.destination.partition.id": str(traced.partition),
            "messaging.kafka.offset": traced.offset,
            "stream_rater.ladder": traced.ladder,
            "stream_rater.round_id": traced.round_id,
        }
        context = reader.extract(carried)
        return tracer.start_span(NAMES[role], context, trace.SpanKind.CONSUMER, attributes)

    @contextmanager
    def around(rounds: Iterable[Traced]) -> Iterator[None]:
        spans = [started(each) for each in rounds]
        try:
            yield
        except Exception as error:
            for span in spans:
                span.set_attribute("error.type", type(error).__qualname__)
                span.record_exception(error)
                span.set_status(trace.StatusCode.ERROR, str(error))
            raise
        finally:
            for span in spans:
                span.end()

    return around
