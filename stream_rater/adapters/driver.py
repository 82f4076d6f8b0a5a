"""Performs a machine's effects on Kafka and Redis."""

import threading
import time
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from functools import cache
from typing import Any, NamedTuple

from confluent_kafka import Producer

from stream_rater.adapters.kafka.consumer import Input
from stream_rater.adapters.kafka.envelopes import (
    change_headers,
    place_of,
    rejected_message,
    round_headers,
)
from stream_rater.adapters.kafka.ladder_events import LadderEvents
from stream_rater.adapters.kafka.producers import Parts, Transactions
from stream_rater.adapters.kafka.reader import Rereader, part_sums, read_all
from stream_rater.adapters.kafka.topics import Admin
from stream_rater.adapters.redis.store import RedisStore
from stream_rater.config.settings import Settings
from stream_rater.contract.errors import Denied, LogTrouble
from stream_rater.pipeline.corrections.correction_ports import (
    Checkpoints,
    DropCheckpoint,
    KeepCheckpoint,
    NoteCorrections,
    NotedCorrections,
    ReadAgain,
    ReadPiece,
    WritePiece,
)
from stream_rater.pipeline.ports import (
    Agree,
    Apply,
    CommitSource,
    Committed,
    Effect,
    Event,
    LogStarts,
    LookForOffsets,
    NewProducer,
    PartSums,
    Poll,
    Polled,
    Publish,
    ReadBeliefs,
    ReadPriors,
    Remains,
    Scatter,
    Seek,
    ShardEnds,
)

SAMPLE_EVERY_S = 10.0
"""How often the driver asks Redis in which encoding it holds a hash that was just written."""


class Stopping(Exception):
    """The worker was asked to stop; it is at a poll, where no work is in hand."""


class OpenTransaction(NamedTuple):
    """A transaction that was begun while Redis applied, before its Publish."""

    events: Collection[Event]
    took_s: float


class Driver:
    """Performs the effects of one group member until it is asked to stop.

    `on_effect` receives the name of each effect and the seconds that it took.
    """

    def __init__(
        self,
        settings: Settings,
        input_: Input,
        admin: Admin,
        store: RedisStore,
        role: str,
        *,
        stop: threading.Event,
        on_effect: Callable[[str, float], None],
    ) -> None:
        self.input = input_
        self._settings = settings
        self._admin = admin
        self._store = store
        self._stop = stop
        self._on_effect = on_effect
        self._parts = Parts(settings, admin.topics.parts, stop)
        self._transactions = Transactions(settings, role, input_, stop)
        self._notes = LadderEvents(settings, admin, stop)
        self._again = Rereader(settings, admin.topics.rounds)
        self._estimates = role == "estimator"
        self._prepared = False
        self._open: OpenTransaction | None = None
        self.polled_s = time.monotonic()
        """When the machine last polled, monotonic seconds."""
        self.on_polled: Callable[[Polled], None] = lambda _: None
        """Receives the outcome of each poll."""
        self.on_encoding: Callable[[str], None] = lambda _: None
        """Receives, at most every SAMPLE_EVERY_S, the encoding in which Redis holds a hash of
        beliefs."""
        self._sample_due_s = 0.0
        self._actions: dict[type, Callable[[Any], Any]] = {
            Poll: self._poll,
            Committed: self._committed,
            LookForOffsets: self._look_for_offsets,
            LogStarts: self._log_starts,
            Seek: lambda e: self.input.seek(e.offsets),
            NewProducer: self._new_producer,
            ShardEnds: lambda _: admin.all_ends(admin.topics.parts),
            PartSums: self._part_sums,
            Agree: lambda e: self._notes.agree(e.histories),
            ReadPriors: lambda e: store.read_priors(e.players),
            ReadBeliefs: lambda e: store.read(e.players),
            Scatter: lambda e: self._parts.scatter(e.parts),
            Apply: self._apply,
            CommitSource: self._commit_source,
            Publish: self._publish,
            ReadAgain: lambda e: self._again.read(e.partition, e.first, e.end),
            NoteCorrections: lambda e: self._notes.correct(e.noted),
            NotedCorrections: lambda _: self._notes.read().corrections,
            Checkpoints: lambda e: store.checkpoints.heads(e.ladder),
            ReadPiece: lambda e: store.checkpoints.read(e.ladder, e.name, e.number),
            WritePiece: lambda e: store.checkpoints.write(e.ladder, e.name, e.number, e.data),
            KeepCheckpoint: lambda e: store.checkpoints.keep(e.ladder, e.name, e.head),
            DropCheckpoint: lambda e: store.checkpoints.drop(e.ladder, e.name, e.pieces),
        }

    def perform(self, effect: Effect[Any]) -> Any:
        """Perform an effect and return its outcome. Raises Trouble, Denied or Stopping."""
        began_s = time.perf_counter()
        if not isinstance(effect, Publish | NewProducer):
            self._abort_open()
        before = self._open
        try:
            outcome = self._actions[type(effect)](effect)
        except Denied as error:
            with suppress(LogTrouble):  # this is the last effect
                self._abort_open()
            raise Denied(f"{self._doing(effect)}: {error}") from None
        # The time to send events while Redis applies is counted as part of their Publish.
        took_s = time.perf_counter() - began_s + _took_s(before) - _took_s(self._open)
        self._on_effect(type(effect).__name__, took_s)
        return outcome

    def _abort_open(self) -> None:
        """Abort the transaction that was begun before its Publish."""
        if self._open is not None:
            self._open = None
            self._transactions.undo()

    def _doing(self, effect: Effect[Any]) -> str:
        """What an effect does, in words for an error message."""
        topics = self._admin.topics
        words: dict[type, str] = {
            Poll: f"reading {self.input.topic}" if self._prepared else "getting a producer",
            Scatter: f"writing {topics.parts}",
            CommitSource: f"writing {topics.rejected} or committing",
            Apply: f"changing beliefs or writing {topics.changed}",
            Publish: f"writing {topics.changed} or committing",
        }
        return words.get(type(effect), type(effect).__name__)

    def _poll(self, effect: Poll) -> Polled:
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

    def _apply(self, effect: Apply) -> Mapping[int, bool]:
        def meanwhile() -> None:
            if effect.events:
                began_s = time.perf_counter()
                self._begin(effect.events)
                self._open = OpenTransaction(effect.events, time.perf_counter() - began_s)

        applied = self._store.apply(effect.applications, meanwhile)
        if time.monotonic() >= self._sample_due_s:
            self._sample(effect)
        return applied

    def _sample(self, effect: Apply) -> None:
        shard, application = next(iter(effect.applications.items()))
        if application.beliefs:
            self._sample_due_s = time.monotonic() + SAMPLE_EVERY_S
            player, _ = application.beliefs[0]
            if encoding := self._store.encoding(shard, player):
                self.on_encoding(encoding)

    def _committed(self, effect: Committed) -> Mapping[int, int | None]:
        # A former process of this instance may have left a transaction open. Only a producer of
        # the same transactional id can abort it.
        self._transactions.ready()
        return self.input.committed(effect.partitions)

    def _look_for_offsets(self, effect: LookForOffsets) -> Remains:
        after: dict[int, int] = {}
        topics = self._admin.topics
        (count,) = self._admin.partitions_of(topics.rejected)
        for record in read_all(self._settings, topics.rejected, count):
            place = place_of(record.headers)
            if place is not None and place[0] in effect.partitions:
                after[place[0]] = max(place[1] + 1, after.get(place[0], 0))
        ends = self._admin.all_ends(topics.rounds)
        parts, _ = self._admin.partitions_of(topics.parts, topics.rounds)
        return Remains(after, dict(enumerate(ends)), any(self._admin.starts(topics.parts, parts)))

    def _part_sums(self, effect: PartSums) -> Mapping[int, int | None]:
        return part_sums(self._settings, self._admin, effect.offsets)

    def _log_starts(self, effect: LogStarts) -> Mapping[int, int]:
        found = self._admin.starts(self.input.topic, max(effect.partitions) + 1)
        return {p: found[p] for p in effect.partitions}

    def _new_producer(self, _: NewProducer) -> None:
        if self._stop.is_set():
            raise Stopping
        self._parts.renew()
        self._open = None
        self._transactions.renew()

    def _commit_source(self, effect: CommitSource) -> None:
        def send(producer: Producer) -> None:
            for rejection in effect.rejections:
                self._transactions.produce(
                    producer,
                    self._admin.topics.rejected,
                    **rejected_message(rejection, self.input.topic, self._admin.largest_rejection),
                )

        self._transactions.run(send, effect.offsets)

    def _begin(self, events: Collection[Event]) -> None:
        """Begin a transaction and send the events."""
        common = cache(round_headers)

        def send(producer: Producer) -> None:
            topic, produce = self._admin.topics.changed, self._transactions.produce
            for event in events:
                headers = change_headers(event, common)
                produce(producer, topic, event.value, event.key, headers, event.shard)

        self._transactions.begin(send)

    def _publish(self, effect: Publish) -> None:
        if self._open is not None and self._open.events != effect.events:
            self._abort_open()
        if self._open is None:
            self._begin(effect.events)
        self._open = None
        self._transactions.end(effect.offsets)


def _took_s(open_: OpenTransaction | None) -> float:
    return open_.took_s if open_ else 0.0
