"""Performs a machine's effects on Kafka and Redis."""

import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

from confluent_kafka import Producer

from stream_rater.adapters.kafka import envelopes, ladder_events, reader
from stream_rater.adapters.kafka.consumer import Input
from stream_rater.adapters.kafka.producers import ANY, PartsProducer, Transactions
from stream_rater.adapters.kafka.topics import Admin
from stream_rater.adapters.redis.store import RedisStore
from stream_rater.config.settings import Settings
from stream_rater.contract.errors import Denied, LogTrouble
from stream_rater.pipeline import ports
from stream_rater.pipeline.updater.rating_events import Events

SAMPLE_EVERY_S = 10.0
"""The interval at which the driver asks Redis for the encoding of a hash that was just written."""


class Stopping(Exception):
    """The worker was asked to stop, and has reached a poll, where no work is in progress."""


class OpenTransaction(NamedTuple):
    """A transaction that was begun before its Publish, while Redis applied; or none."""

    events: Collection[ports.Event] | None = None
    took_s: float = 0.0


NOT_OPEN = OpenTransaction()


class Driver:
    """Performs the effects of one group member until it is asked to stop. `on_effect` receives the
    name of each effect and the seconds that it took."""

    def __init__(
        self, settings: Settings, input_: Input, admin: Admin, store: RedisStore, role: str,
        *, stop: threading.Event, on_effect: Callable[[str, float], None],
    ) -> None:  # fmt: skip
        self.input = input_
        self._settings, self._admin, self._store = settings, admin, store
        self._stop, self._on_effect = stop, on_effect
        self._parts = PartsProducer(settings, admin.topics.parts, stop)
        self._transactions = Transactions(settings, role, input_, stop)
        self._ladder_events = ladder_events.LadderEvents(settings, admin, stop)
        self._rereader = reader.Rereader(settings, admin.topics.rounds)
        self._estimates = role == "estimator"
        self._prepared = False
        self._open = NOT_OPEN
        self.polled_s = time.monotonic()
        """When the machine last polled, monotonic seconds."""
        self.on_polled: Callable[[ports.Polled], None] = lambda _: None
        """Receives the outcome of each poll."""
        self.on_encoding: Callable[[str], None] = lambda _: None
        """Receives Redis' encoding of a hash of beliefs, at most every SAMPLE_EVERY_S."""
        self._sample_due_s = 0.0
        # Each of these effects is one call of a client. The other effects are the methods below.
        self.seek = input_.seek
        self.agree = self._ladder_events.agree
        self.note_corrections = self._ladder_events.correct
        self.scatter = self._parts.scatter
        self.read_again = self._rereader.read
        self.read_priors = store.read_priors
        self.read_beliefs = store.read
        self.checkpoints = store.checkpoints.heads
        self.read_piece = store.checkpoints.read
        self.write_piece = store.checkpoints.write
        self.keep_checkpoint = store.checkpoints.keep
        self.drop_checkpoint = store.checkpoints.drop

    def perform(self, effect: ports.Effect[Any]) -> Any:
        """Perform an effect and return its outcome. Raises Trouble, Denied or Stopping."""
        began_s = time.perf_counter()
        if not isinstance(effect, ports.Publish | ports.NewProducer):
            self._abort_open()
        before_s = self._open.took_s
        try:
            outcome: Any = effect.perform(self)
        except Denied as error:
            with suppress(LogTrouble):  # this is the last effect
                self._abort_open()
            raise Denied(f"{self._describe(effect)}: {error}") from None
        # The time to send events while Redis applies is counted as part of their Publish.
        took_s = time.perf_counter() - began_s + before_s - self._open.took_s
        self._on_effect(type(effect).__name__, took_s)
        return outcome

    def _abort_open(self) -> None:
        if self._open.events is not None:
            self._open = NOT_OPEN
            self._transactions.abort()

    def _describe(self, effect: ports.Effect[Any]) -> str:
        """Describe an effect in words for an error message."""
        topics = self._admin.topics
        words: dict[type, str] = {
            ports.Poll: f"reading {self.input.topic}" if self._prepared else "getting a producer",
            ports.Scatter: f"writing {topics.parts}",
            ports.CommitSource: f"writing {topics.rejected} or committing",
            ports.Apply: f"changing beliefs or writing {topics.changed}",
            ports.Publish: f"writing {topics.changed} or committing",
        }
        return words.get(type(effect), type(effect).__name__)

    def poll(self, effect: ports.Poll) -> ports.Polled:
        if self._stop.is_set():
            raise Stopping
        self.polled_s = time.monotonic()
        self._prepare()
        polled = self.input.poll(effect)
        self.on_polled(polled)
        return polled

    def _prepare(self) -> None:
        """Get the producers before the first poll joins the group, because that takes time."""
        if not self._prepared:
            if self._estimates:
                self._parts.ready()
            self._transactions.ready()
            self._prepared = True

    def apply(
        self, applications: Mapping[int, ports.Application], events: Collection[ports.Event]
    ) -> Mapping[int, bool]:
        def on_sent() -> None:
            if events:
                began_s = time.perf_counter()
                self._begin(events)
                self._open = OpenTransaction(events, time.perf_counter() - began_s)

        applied = self._store.apply(applications, on_sent)
        is_due = time.monotonic() >= self._sample_due_s
        shard, application = next(iter(applications.items())) if is_due else (0, None)
        if application is not None and application.beliefs:
            self._sample_due_s = time.monotonic() + SAMPLE_EVERY_S
            player, _ = application.beliefs[0]
            if encoding := self._store.encoding(shard, player):
                self.on_encoding(encoding)
        return applied

    def committed(self, partitions: frozenset[int]) -> Mapping[int, int | None]:
        # A former process of this instance may have left a transaction open. Only a producer of
        # the same transactional id can abort it.
        self._transactions.ready()
        return self.input.committed(partitions)

    def committed_source(
        self, partitions: frozenset[int]
    ) -> Mapping[int, ports.SourceCommit | None]:
        self._transactions.ready()  # as above
        return self.input.committed_source(partitions)

    def source_tails(self, offsets: Mapping[int, int]) -> Mapping[int, ports.SourceTail]:
        return reader.source_tails(self._settings, self._admin, offsets)

    def look_for_offsets(self, partitions: frozenset[int]) -> ports.OffsetEvidence:
        after: dict[int, int] = {}
        admin, topics = self._admin, self._admin.topics
        (count,) = admin.partitions_of(topics.rejected)
        for record in reader.read_all(self._settings, topics.rejected, count):
            found = envelopes.next_offset_of(record.headers)
            if found is not None and found[0] in partitions:
                after[found[0]] = max(found[1], after.get(found[0], 0))
        ends = dict(enumerate(admin.all_ends(topics.rounds)))
        parts, _ = admin.partitions_of(topics.parts, topics.rounds)
        cut = (any(admin.starts(*of)) for of in ((topics.parts, parts), (topics.rejected, count)))
        return ports.OffsetEvidence(after, ends, *cut)

    def shard_ends(self) -> Sequence[int]:
        return self._admin.all_ends(self._admin.topics.parts)

    def noted_corrections(self) -> ports.CorrectionsByLadder:
        return self._ladder_events.read().corrections

    def part_sums(self, offsets: Mapping[int, int]) -> Mapping[int, int | None]:
        return reader.record_sums(self._settings, self._admin, self._admin.topics.parts, offsets)

    def log_starts(self, partitions: frozenset[int]) -> Mapping[int, int]:
        found = self._admin.starts(self.input.topic, max(partitions) + 1)
        return {p: found[p] for p in partitions}

    def new_producer(self) -> None:
        if self._stop.is_set():
            raise Stopping
        self._parts.renew()
        self._open = NOT_OPEN
        self._transactions.renew()

    def commit_source(
        self, offsets: Mapping[int, int], rejections: Sequence[ports.Rejection], tails: ports.Tails
    ) -> None:
        def send(producer: Producer) -> None:
            topic, largest = self._admin.topics.rejected, self._admin.largest_rejection
            made = (envelopes.rejected_message(r, self.input.topic, largest) for r in rejections)
            messages = ((ANY, each["key"], each["value"], each["headers"]) for each in made)
            self._transactions.produce_all(producer, topic, messages)

        self._transactions.run(send, offsets, tails)

    def _begin(self, events: Collection[ports.Event]) -> None:
        messages = envelopes.change_messages(Events.encoded(events))
        topic, produce_all = self._admin.topics.changed, self._transactions.produce_all
        self._transactions.begin(lambda producer: produce_all(producer, topic, messages))

    def publish(self, events: Collection[ports.Event], offsets: Mapping[int, int]) -> None:
        if self._open.events is None or self._open.events != events:
            self._abort_open()
            self._begin(events)
        self._open = NOT_OPEN
        self._transactions.end(offsets)
