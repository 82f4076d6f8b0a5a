"""The place of a service: the topics of a prefix on Kafka, and the Redis that belongs to them."""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from functools import cache, cached_property, partial
from typing import Any

from msgspec import structs

from stream_rater.adapters.kafka import reader, season_topic, topics
from stream_rater.adapters.kafka.envelopes import next_offset_of
from stream_rater.adapters.kafka.ladder_events import LadderEvents
from stream_rater.adapters.kafka.producers import Copier, KafkaSubmitter, PartsProducer
from stream_rater.adapters.kafka.topics import delete_topics
from stream_rater.adapters.redis.encoding import belief_key
from stream_rater.adapters.redis.metadata import drop_index
from stream_rater.adapters.redis.store import RedisStore
from stream_rater.columns.kernels import KERNEL_VERSION
from stream_rater.columns.player_column import PlayerColumn
from stream_rater.columns.sharding import partition_of
from stream_rater.config.errors import BadConfiguration, Failed, with_cure
from stream_rater.config.settings import PREFIX, Settings
from stream_rater.contract import season_ended
from stream_rater.contract.errors import LogTrouble
from stream_rater.contract.events import ESTIMATORS, UPDATERS, shown
from stream_rater.contract.record import ANY_OFFSET, Record, RejectedRecord, WorkersProgress
from stream_rater.pipeline import ports
from stream_rater.pipeline.ladder_history import LadderLog
from stream_rater.pipeline.same_history import REBUILD, lost_rounds
from stream_rater.places.checks import LOOK_S, still_behind, wait_until_idle
from stream_rater.places.kafka_topics import (
    OUT_OF_REACH,
    UnfinishedRounds,
    answered,
    check_free,
    check_sizes,
    section_of,
)
from stream_rater.places.port import CHANGED, Actions, Beliefs, Cures, Place, Section
from stream_rater.replay.log_reading import LogReader
from stream_rater.runtime.progress import counted
from stream_rater.runtime.service import layout_of


class KafkaPlace(Place):
    """The topics of a prefix, and a Redis (`port.Place`)."""

    later, notes = "", "on Kafka"
    keeps_offsets = False
    blame = "Redis was not what the log says before"
    out_of_reach = OUT_OF_REACH

    def __init__(self, settings: Settings, timeout_s: float) -> None:
        """Make no request. `timeout_s`: how long a request to Kafka may take."""
        self.settings, self._timeout_s = settings, timeout_s
        self.admin = topics.Admin(settings, request_timeout_s=timeout_s)
        self.topics = self.admin.topics
        self.name = f"{self.topics.rounds} on {settings.kafka}"
        self._notes = LadderEvents(settings, self.admin)
        self._counts: dict[str, int] = {}
        self._ends_at_rest: Sequence[int] | None = None

    @cached_property
    def store(self) -> RedisStore:
        return RedisStore(self.settings)

    @cached_property
    def _rereader(self) -> reader.Rereader:
        return reader.Rereader(self.settings, self.topics.rounds)

    @property
    def partitions(self) -> int:
        return self._count(self.topics.rounds)

    @property
    def shards(self) -> int:
        # Not every role may see both topics with shards.
        known = self.topics.parts in self._counts
        return self._count(self.topics.parts if known else self.topics.changed)

    def _count(self, topic: str) -> int:
        self._find(topic)
        return self._counts[topic]

    def _find(self, *topics: str) -> None:
        """Count the partitions of these topics, once each. Raises TopicMismatch."""
        if not self._counts.keys() >= set(topics):
            self._counts |= zip(topics, self.admin.partitions_of(*topics), strict=True)

    def close(self) -> None:
        self._notes.close()
        for name in ("store", "_rereader"):
            if name in self.__dict__:
                self.__dict__.pop(name).close()

    # --- what can be read of the log ---

    def starts(self) -> Sequence[int]:
        return self.admin.starts(self.topics.rounds, self.partitions)

    def ends(self) -> Sequence[int]:
        return self._ends_at_rest or self.admin.ends(self.topics.rounds, self.partitions)

    def end_of(self, ladder: str) -> int:
        ends = self._first_ends
        return ends[partition_of(ladder, len(ends))]

    @cached_property
    def _first_ends(self) -> Sequence[int]:
        return self.ends()

    def stable_end(self, partition: int) -> int:
        return self.admin.stable_ends(self.topics.rounds, self.partitions)[partition]

    def rounds(self, partition: int, end: int) -> Iterator[Record]:
        return reader.read_partition(self.settings, self.topics.rounds, partition, end)

    def all_rounds(self) -> Iterator[Record]:
        return self._all(self.topics.rounds)

    def _all(self, topic: str) -> Iterator[Record]:
        return reader.read_all(self.settings, topic, self._count(topic))

    def log_reader(self, ends: Mapping[int, int] | None = None) -> LogReader:
        source = partial(reader.read_rounds, self.settings, self.topics.rounds)
        return LogReader(source, dict(enumerate(self.ends())) if ends is None else ends)

    def read_again(self, partition: int, first: int, end: int) -> Sequence[Record]:
        return self._rereader.read(partition, first, end)

    def parts(self) -> Iterator[Sequence[Record]]:
        topic = self.topics.parts
        return reader.read_batches(self.settings, topic, range(self._count(topic)))

    def events(self) -> Iterator[Record]:
        return self._all(self.topics.changed)

    def last_events(
        self, shard: int, key: bytes, count: int, within_s: float
    ) -> tuple[list[bytes | None], int]:
        found, begin = reader.read_back(
            self.settings, self.topics.changed, shard, key, count=count, within_s=within_s
        )
        return [each.value for each in found], begin

    def ladder_log(self) -> LadderLog:
        for topic in (self.topics.rounds, self.topics.ladder_events):
            self._count(topic)  # raises TopicMismatch
        try:
            return self._notes.read()
        finally:
            self._notes.close()  # the next read continues where this one ended

    def ladder_events(self) -> Iterator[bytes]:
        return (each.value or b"" for each in self._all(self.topics.ladder_events))

    def rejected_to(self) -> Iterator[tuple[int, int]]:
        found = (next_offset_of(each.headers) for each in self._all(self.topics.rejected))
        return filter(None, found)

    def standings(self, ladder: str | None = None, *, marks: bool = False) -> Iterator[Record]:
        found = season_topic.records(self.settings, self.admin, ladder)
        return (each for each in found if season_ended.is_mark(each) or not marks)

    def follow(self, topic: str, *, from_start: bool) -> Iterator[Record | None]:
        name = self.topic(topic)
        return reader.follow(self.settings, name, self._count(name), from_start=from_start)

    def follow_rejections(self, positions: list[int]) -> Iterator[Sequence[RejectedRecord]]:
        topic = self.topics.rejected
        return reader.follow_rejections(self.settings, topic, self._count(topic), positions)

    def topic(self, topic: str) -> str:
        return self.topics.changed if topic == CHANGED else self.topics.rejected

    def sections(self) -> Iterator[Section]:
        """Says what one server knows before it raises why the other does not answer."""
        names = self.topics.names
        try:
            counts = dict(zip(names, self.admin.partitions_of(*names), strict=True))
        except LogTrouble:
            answer = answered(self.kernel)
            yield Section(str(answer) if isinstance(answer, Exception) else "redis answers", {}, ())
            raise
        asked = dict.fromkeys(range(counts[self.topics.parts]), ports.NO_PLAYERS)
        found = answered(lambda: [e.position.applied for e in self.store.read(asked).values()])
        applied = () if isinstance(found, Exception) else found
        read_by = {self.topics.rounds: (ESTIMATORS, ()), self.topics.parts: (UPDATERS, applied)}
        for name in names:
            yield section_of(self.admin, name, *read_by.get(name, ("", ())))
        if isinstance(found, Exception):
            raise found

    # --- how far the workers are ---

    def progress(self) -> WorkersProgress:
        admin, names = self.admin, self.topics
        self._find(names.rounds, names.parts, names.changed, names.rejected)
        rated = admin.committed(ESTIMATORS, names.rounds, self.partitions)
        # Shards may have been added. Whoever rated by their new number knew it before.
        part_ends = admin.all_ends(names.parts)
        applied = admin.committed(UPDATERS, names.parts, len(part_ends))
        change_ends = admin.all_ends(names.changed)
        if len(part_ends) != len(change_ends):
            raise LogTrouble(f"kafka: {names.parts} and {names.changed} differ in partitions")
        return WorkersProgress(
            [rated[p] or 0 for p in range(self.partitions)], part_ends,
            [applied[s] or 0 for s in range(len(part_ends))], change_ends,
            admin.all_ends(names.rejected),
        )  # fmt: skip

    def check_ratings(self) -> None:
        self._counts |= self.admin.check_topics()
        self.store.prepare()
        self.store.layout.check_stored(self._layout())

    def check_settings(self) -> None:
        self.store.layout.check_window(self.settings.duplicate_window)

    def check_whole(self) -> None:
        known = {p: each for p, each in self.commits().items() if each and each.offset}
        found = self.tails({p: each.offset for p, each in known.items()})
        for why in lost_rounds(known, found).values():
            raise Failed(f"{self.topics.rounds} lost records: {why}: {REBUILD}")
        self.check_complete()

    def check_rated(self, ladder: str, wait_s: float) -> None:
        partition, until_s = partition_of(ladder, self.partitions), time.monotonic() + wait_s
        end, unfinished = self.ends()[partition], UnfinishedRounds(self.settings, self.admin)
        while left := unfinished.look({partition: end}):
            if time.monotonic() > until_s:
                raise still_behind(len(left[partition]))
            time.sleep(LOOK_S)

    @contextmanager
    def at_rest(self, wait_s: float) -> Iterator[Place]:
        ends = self.ends()
        wait_until_idle(self._left(ends), self.admin.members, wait_s)
        self._ends_at_rest = ends
        yield self
        self._ends_at_rest = None

    def _left(self, ends: Sequence[int]) -> Iterator[tuple[int, int]]:
        """Yield, at each look, the number of offsets before these ends that are not rated, and of
        parts of them that are not applied."""
        unfinished, rounds = UnfinishedRounds(self.settings, self.admin), {0: range(1)}
        while True:
            if any(rounds.values()):
                rounds = unfinished.look(dict(enumerate(ends)))
                # Read after the rounds: the parts of a finished round are before these ends.
                part_ends = dict(enumerate(self.part_bounds()[1]))
            parts = self.admin.left(UPDATERS, self.topics.parts, part_ends)
            yield sum(map(len, rounds.values())), sum(map(len, parts.values()))

    def check_idle(self) -> None:
        for group in (ESTIMATORS, UPDATERS):
            if members := self.admin.members(group):
                raise Failed(
                    f"{members} workers are in the group {self.settings.topic_prefix}{group}: stop "
                    "them first (one that was killed leaves after "
                    f"{self.settings.session_timeout_ms} ms)"
                )

    def check_finished(self) -> Sequence[int]:
        self.check_whole()
        ends, names = self.ends(), self.topics
        rounds = UnfinishedRounds(self.settings, self.admin).look(dict(enumerate(ends)))
        part_ends = dict(enumerate(self.part_bounds()[1]))
        parts = self.admin.left(UPDATERS, names.parts, part_ends)
        for topic, left in ((names.rounds, rounds), (names.parts, parts)):
            for p, offsets in left.items():
                if offsets:
                    raise Failed(
                        f"{topic}, partition {p}: {counted(len(offsets), 'record')} not finished: "
                        "stop the reports of rounds, start workers, wait until `stream-rater "
                        "verify` finds all equal, stop them, and run it again"
                    )
        return ends

    def check_unchanged(self, ends: Sequence[int]) -> None:
        self.check_idle()
        for partition, (end, before) in enumerate(zip(self.ends(), ends, strict=True)):
            if end != before:
                raise Failed(
                    f"{self.topics.rounds}, partition {partition}: "
                    f"{counted(end - before, 'record')} came after the command began: stop the "
                    "reports of rounds, and let workers of these topics finish them"
                )

    # --- the beliefs ---

    def look(self) -> None:
        names = self.topics.changed, self.topics.rounds, self.topics.ladder_events
        self._counts |= zip(names, self.admin.partitions_of(*names), strict=True)
        self.check_layout()

    def check_layout(self) -> None:
        layout = {"shards": str(self.shards), "buckets": str(self.settings.buckets)}
        self.store.layout.check_stored(layout)

    def read(self, players: Mapping[int, PlayerColumn]) -> Mapping[int, ports.StoredShard]:
        return self.store.read(players)

    def beliefs(self) -> Beliefs:
        return self.store.beliefs()

    def kernel(self) -> int:
        return self.store.layout.begun_by(KERNEL_VERSION)

    def events_of(self, shard: int) -> str:
        return f"{self.topics.changed}, partition {shard}"

    def where(self, ladder: str, player: str, shard: int, size: int) -> str:
        key = belief_key(shard, ladder, player.encode(), self.settings.buckets)
        encoding = self.store.encoding(shard, (ladder, player)) or "unknown encoding"
        return f"in Redis: shard {shard}, {size} bytes in the hash {shown(key)} ({encoding})"

    def checkpoint_actions(self, failed: Callable[[str], None] | None) -> Actions:
        checkpoints = self.store.checkpoints
        found: dict[str, Callable[..., Any]] = {
            **super().checkpoint_actions(None),
            "checkpoints": checkpoints.heads, "read_piece": checkpoints.read,
        }  # fmt: skip
        if failed is not None:
            checkpoints.on_failure = failed
            found |= {
                "write_piece": checkpoints.write, "keep_checkpoint": checkpoints.keep,
                "drop_checkpoint": checkpoints.drop,
            }  # fmt: skip
        return found

    # --- appending ---

    def submitter(self, *, create: bool = True) -> KafkaSubmitter:
        rounds = self.topics.rounds
        if not create:
            self._count(rounds)  # fails if the topic does not exist
        elif rounds not in self.admin.partitions():
            self.admin.create_topics()
        return KafkaSubmitter(self.settings, rounds)

    @contextmanager
    def season_writer(self, ladder: str, season: int) -> Iterator[season_topic.SeasonTopic]:
        yield season_topic.SeasonTopic(self.settings, self.admin, ladder, season)

    def append(self, records: Iterable[Record]) -> None:
        Copier(self.settings, self.topics.rounds).write(records)

    def note(self, messages: Sequence[bytes]) -> None:
        self._notes.write(messages)

    def write_standings(self, records: Iterable[Record]) -> None:
        topic = season_topic.topic_of(self.settings)

        @cache
        def count() -> int:  # asked for once there is a record
            return self.admin.partitions_if_any(topic) or self.admin.create_season_topic(topic)

        def homed(record: Record) -> Record:
            found = season_ended.decoded(record)
            assert found is not None, "it is of the topic"
            home = partition_of(found.ladder, count())
            return structs.replace(record, partition=home, offset=ANY_OFFSET)

        Copier(self.settings, topic).write(map(homed, records))

    # --- a rebuild of the beliefs ---

    def commits(self) -> Mapping[int, ports.SourceCommit | None]:
        return self.admin.source_commits(ESTIMATORS, self.topics.rounds, self.partitions)

    def tails(self, offsets: Mapping[int, int]) -> Mapping[int, ports.SourceTail]:
        return reader.source_tails(self.settings, self.admin, offsets)

    def applied(self) -> Mapping[int, int | None]:
        topic = self.topics.parts
        return self.admin.committed(UPDATERS, topic, self._count(topic))

    def part_bounds(self) -> tuple[Sequence[int], Sequence[int]]:
        topic = self.topics.parts
        count = self._count(topic)
        return self.admin.starts(topic, count), self.admin.ends(topic, count)

    def commit_rounds(self, offsets: Mapping[int, int], tails: ports.Tails | None = None) -> None:
        tails = self.tails_before(offsets) if tails is None else tails
        self.admin.commit(ESTIMATORS, self.topics.rounds, offsets, tails)

    def commit_parts(self, offsets: Mapping[int, int]) -> None:
        self.admin.commit(UPDATERS, self.topics.parts, offsets)

    def write_marks(self, marks: Sequence[bytes]) -> dict[int, int]:
        producer = PartsProducer(self.settings, self.topics.parts)
        return dict(enumerate(producer.scatter([*enumerate(marks)])))

    def ratings(self) -> str:
        return "" if self.store.layout.is_empty() else "the store"

    @contextmanager
    def rebuilding(self, check: Callable[[Place], None]) -> Iterator[Place]:
        """The yielded place is this one. Missing topics are created at the start."""
        self.admin.create_topics()
        self._counts |= self.admin.check_topics()
        self.store.prepare()
        self.check_idle()
        self.store.layout.check_rebuildable(self._layout())
        check(self)
        yield self
        self.end_rebuild()

    def _layout(self) -> dict[str, str]:
        names = self.topics.rounds, self.topics.parts
        counts = {name: self._count(name) for name in names}
        return layout_of(self.settings, self.admin, counts)

    def begin_rebuild(self, epoch: bytes) -> None:
        self.store.layout.begin_rebuild(self._count(self.topics.parts), epoch)

    def apply(self, applications: Mapping[int, ports.Application]) -> Mapping[int, bool]:
        return self.store.apply(applications)

    def end_rebuild(self) -> None:
        self.store.layout.end_rebuild(self._layout(), KERNEL_VERSION)

    def drop_checkpoints(self) -> None:
        self.store.checkpoints.drop_all()

    def heads(self, ladder: str) -> Mapping[str, bytes]:
        return self.store.checkpoints.heads(ladder)

    # --- a copy of the log ---

    def _generation(self, prefix: str) -> "KafkaPlace":
        """The place of another prefix, with as many partitions, beside the same Redis."""
        counts = self.admin.check_topics()
        settings = structs.replace(
            self.settings, topic_prefix=prefix, partitions=counts[self.topics.rounds],
            shards=counts[self.topics.parts],
        )  # fmt: skip
        return KafkaPlace(settings, self._timeout_s)

    def check_erasable(self, prefix: str, *, delete: bool) -> None:
        if not prefix:
            raise BadConfiguration("give --to: the prefix of the new topics")
        if prefix == self.settings.topic_prefix:
            raise BadConfiguration(
                f"--to: {prefix!r} is the prefix of the present topics: name another one"
            )
        new, counts = self._generation(prefix), self.admin.check_topics()
        names = zip(new.topics.names, self.topics.names, strict=True)
        needed = {own: counts[old] for own, old in names}
        check_free(new.settings, new.admin, "--to", needed, "its old one")

    def check_new(self, option: str, source: Place) -> None:
        needed = {self.topics.rounds: source.partitions}
        check_free(self.settings, self.admin, option, needed, source.name)
        self.store.prepare()
        self.check_idle()
        if not self.store.layout.is_unused():
            raise BadConfiguration(
                f"the Redis of {PREFIX}REDIS holds ratings: name another one, or empty it"
            )

    @contextmanager
    def successor(self, prefix: str) -> Iterator[Place]:
        """Raises LayoutMismatch if a rebuild is unfinished."""
        self.store.prepare()
        self.store.check_layout(self._layout())
        with closing(self._generation(prefix)) as new:
            yield new
            with with_cure(self.cures(new).rebuilding):
                new.end_rebuild()

    def begin_copy(self, source: Place) -> None:
        """Create the topics. If the Redis is another one, mark it as an unfinished move."""
        old = source if isinstance(source, KafkaPlace) else None
        if old is None or old.settings.redis != self.settings.redis:
            self.store.layout.mark_unfinished(source.name)
        self.admin.create_topics()
        if old is not None:
            check_sizes(self.settings, self.admin, old.admin)
        self._counts |= self.admin.check_topics()

    def copy_events(self, records: Iterable[Record]) -> None:
        copies = (structs.replace(each, offset=ANY_OFFSET) for each in records)
        Copier(self.settings, self.topics.changed).write(copies)

    def drop_derived(self) -> None:
        self.drop_checkpoints()
        drop_index(self.settings)

    def end_copy(self) -> None:
        """Mark Redis as an unfinished rebuild, no longer as an unfinished move."""
        self.store.layout.mark_unfinished()

    def mark_moved(self, where: str) -> None:
        self.store.layout.mark_moved(where)

    def cures(self, target: Place) -> Cures:
        return Cures(
            "the old topics and Redis are as they were: delete the topics of "
            f"{target.settings.topic_prefix!r}, or name another prefix, and run it again",
            "the old topics are as they were: run `stream-rater rebuild --replace` with "
            f"{PREFIX}TOPIC_PREFIX={self.settings.topic_prefix!r} to have the ratings back",
            "all else is done, and the old topics hold the id: "
            f"{self._next_step(target, self._old_names())}",
        )

    def retire(
        self, target: Place, keys: Iterable[tuple[int, bytes | None]], *, delete: bool
    ) -> Iterator[str]:
        """Write tombstones to the old `rating-changed`. Delete the old topics, or say how."""
        tombstones = (Record(partition, ANY_OFFSET, None, key=key) for partition, key in keys)
        count = Copier(self.settings, self.topics.changed).write(tombstones)
        yield f"{self.topics.changed}: {counted(count, 'tombstone')} written for the player"
        names = self._old_names()
        if not delete:
            yield f"the old topics still hold the id. Next: {self._next_step(target, names)}"
            return
        delete_topics(self.settings, names)
        yield f"deleted: {', '.join(names)}"
        yield f"next: {self._new_prefix(target)}"

    def _next_step(self, target: Place, names: Sequence[str]) -> str:
        pattern = "|".join(names).replace(".", r"\.")
        return (
            f"{self._new_prefix(target)}, then run `kafka-topics.sh --bootstrap-server "
            f"{self.settings.kafka} --delete --topic '{pattern}'`"
        )

    def _new_prefix(self, target: Place) -> str:
        prefix = target.settings.topic_prefix
        return f"give game backends, workers and subscribers {PREFIX}TOPIC_PREFIX={prefix!r}"

    def _old_names(self) -> list[str]:
        """The names of the topics, with that of past seasons if it exists."""
        seasons = season_topic.topic_of(self.settings)
        exists = self.admin.partitions_if_any(seasons) is not None
        return [*self.topics.names, *([seasons] if exists else ())]
