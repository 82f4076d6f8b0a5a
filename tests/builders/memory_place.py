"""A place in this process, for tests: the log and the store of `adapters.memory`. It has no locks,
and no other process uses it. A test may put a log with any history into it, and may interrupt a
command before any method that writes (`on_write`)."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import NoReturn

from stream_rater.adapters.kafka.envelopes import event_of, rejected_record
from stream_rater.adapters.memory import Log, Store
from stream_rater.columns.kernels import KERNEL_VERSION
from stream_rater.columns.player_column import PlayerColumn
from stream_rater.config.errors import BadConfiguration, Failed
from stream_rater.config.settings import Settings
from stream_rater.contract import season_ended
from stream_rater.contract.record import (
    REJECTIONS_BACK,
    Record,
    RejectedRecord,
    WorkersProgress,
    checksum,
)
from stream_rater.pipeline import ports
from stream_rater.pipeline.ladder_history import LadderLog
from stream_rater.places.port import Beliefs, Cures, Place, Section, event_record
from stream_rater.replay.log_reading import LogReader

NO_SENDERS = "records are put into the log itself"


class MemoryPlace(Place):
    """A log and a store in memory (`port.Place`)."""

    name = "memory"
    later, notes = "", "in memory"
    keeps_offsets = False
    blame = "the store was not what the log says before"
    out_of_reach = ""

    def __init__(
        self, log: Log, store: Store, settings: Settings | None = None,
        on_write: Callable[[str], None] = lambda _: None,
    ) -> None:  # fmt: skip
        """`on_write` is called with the name of each method that writes, before it does."""
        self.log, self.store = log, store
        self.settings = Settings() if settings is None else settings
        self.past: list[Record] = []  # The records of `season-ended`.
        self.moved, self._on_write = "", on_write

    @property
    def partitions(self) -> int:
        return len(self.log.rounds)

    @property
    def shards(self) -> int:
        return len(self.log.parts)

    # --- what can be read of the log ---

    def starts(self) -> Sequence[int]:
        return [each.start for each in self.log.rounds]

    def ends(self) -> Sequence[int]:
        return [*map(len, self.log.rounds)]

    def rounds(self, partition: int, end: int) -> Iterator[Record]:
        log = self.log.rounds[partition]
        return iter(log[log.start : end])

    def log_reader(self, ends: Mapping[int, int] | None = None) -> LogReader:
        wanted = dict(enumerate(self.ends())) if ends is None else ends
        return LogReader(lambda asked: [[*self.rounds(p, end)] for p, end in asked.items()], wanted)

    def read_again(self, partition: int, first: int, end: int) -> Sequence[Record]:
        return self.log.rounds[partition][first:end]

    def parts(self) -> Iterator[Sequence[Record]]:
        return (each[each.start :] for each in self.log.parts)

    def events(self) -> Iterator[Record]:
        for events in self.log.changed:
            for offset, event in enumerate(events):
                yield event_record(event, offset)

    def last_events(
        self, shard: int, key: bytes, count: int, within_s: float
    ) -> tuple[list[bytes | None], int]:
        found: list[bytes | None] = [e.value for e in self.log.changed[shard] if e.key == key]
        return found[-count:], 0

    def ladder_log(self) -> LadderLog:
        return self.log.read()

    def ladder_events(self) -> Iterable[bytes]:
        return list(self.log.ladder_events)

    def rejected_to(self) -> Iterator[tuple[int, int]]:
        return iter(self.log.after_rejected())

    def standings(self, ladder: str | None = None, *, marks: bool = False) -> Iterator[Record]:
        return (each for each in [*self.past] if season_ended.is_mark(each) or not marks)

    def follow(self, topic: str, *, from_start: bool) -> Iterator[Record | None]:
        yield from self.events() if from_start else ()
        while True:
            yield None

    def follow_rejections(self, positions: list[int]) -> Iterator[Sequence[RejectedRecord]]:
        positions[:] = positions or [max(0, len(self.log.rejected) - REJECTIONS_BACK)]
        yield ()
        while True:
            some = self.log.rejected[positions[0] :]
            positions[0] += len(some)
            yield [*map(rejected_record, some)]

    def topic(self, topic: str) -> str:
        return topic

    def sections(self) -> Iterator[Section]:
        return iter(())

    # --- how far the workers are ---

    def progress(self) -> WorkersProgress:
        log = self.log
        return WorkersProgress(
            [log.estimators.committed.get(p, 0) for p in range(self.partitions)],
            [*map(len, log.parts)],
            [log.updaters.committed.get(s, 0) for s in range(self.shards)],
            [*map(len, log.changed)], [len(log.rejected)],
        )  # fmt: skip

    def check_rated(self, ladder: str, wait_s: float) -> None:
        self.check_finished()

    @contextmanager
    def at_rest(self, wait_s: float) -> Iterator[Place]:
        self.check_finished()
        yield self

    def check_finished(self) -> Sequence[int]:
        self.check_whole()
        done = self.progress()
        if (self.ends(), done.part_ends) != (done.rated, done.applied):
            raise Failed(f"{self.name}: not all is rated")
        return self.ends()

    def check_unchanged(self, ends: Sequence[int]) -> None:
        if self.ends() != ends:
            raise Failed(f"{self.name}: a record has come")

    # --- the beliefs ---

    def read(self, players: Mapping[int, PlayerColumn]) -> Mapping[int, ports.StoredShard]:
        return {shard: self.store.read(shard, wanted) for shard, wanted in players.items()}

    def beliefs(self) -> Beliefs:
        for shard in self.store.beliefs.values():
            yield [each for each in shard.items() if each[0] != ports.REBUILT]

    def kernel(self) -> int:
        return KERNEL_VERSION

    def events_of(self, shard: int) -> str:
        return f"shard {shard}"

    def where(self, ladder: str, player: str, shard: int, size: int) -> str:
        return f"in memory: {size} bytes"

    # --- appending ---

    def submitter(self, *, create: bool = True) -> NoReturn:
        raise AssertionError(NO_SENDERS)

    def season_writer(self, ladder: str, season: int) -> NoReturn:
        raise AssertionError(NO_SENDERS)

    def append(self, records: Iterable[Record]) -> None:
        self._on_write("append")
        for each in records:
            self.log.submit(each.partition, each.value, each.headers, each.received_s, each.key)

    def note(self, messages: Sequence[bytes]) -> None:
        self._on_write("note")
        self.log.write(messages)

    def write_standings(self, records: Iterable[Record]) -> None:
        self._on_write("write_standings")
        self.past += records

    # --- a rebuild of the beliefs ---

    def commits(self) -> Mapping[int, ports.SourceCommit | None]:
        group = self.log.estimators
        found = {p: ports.SourceCommit(at, group.tails.get(p)) for p, at in group.committed.items()}
        return {p: found.get(p) for p in range(self.partitions)}

    def tails(self, offsets: Mapping[int, int]) -> Mapping[int, ports.SourceTail]:
        ends, found = self.ends(), {}
        for p, offset in offsets.items():
            tail = next((checksum(e.value) for e in self.log.rounds[p][offset - 1 : offset]), None)
            found[p] = ports.SourceTail(ends[p], tail)
        return found

    def applied(self) -> Mapping[int, int | None]:
        return {shard: self.log.updaters.committed.get(shard) for shard in range(self.shards)}

    def part_bounds(self) -> tuple[Sequence[int], Sequence[int]]:
        return [each.start for each in self.log.parts], [*map(len, self.log.parts)]

    def commit_rounds(self, offsets: Mapping[int, int], tails: ports.Tails | None = None) -> None:
        self._on_write("commit_rounds")
        self.log.estimators.committed |= offsets
        self.log.estimators.tails |= self.tails_before(offsets) if tails is None else tails

    def commit_parts(self, offsets: Mapping[int, int]) -> None:
        self._on_write("commit_parts")
        self.log.updaters.committed |= offsets

    def write_marks(self, marks: Sequence[bytes]) -> dict[int, int]:
        self._on_write("write_marks")
        return {shard: self.log.append_part(shard, each) for shard, each in enumerate(marks)}

    def ratings(self) -> str:
        return "the store" if any(self.beliefs()) else ""

    @contextmanager
    def rebuilding(self, check: Callable[[Place], None]) -> Iterator[Place]:
        check(self)
        yield self
        self.end_rebuild()

    def begin_rebuild(self, epoch: bytes) -> None:
        self._on_write("begin_rebuild")
        self.store.beliefs.clear()
        for shard in range(self.shards):
            self.store.positions[shard] = ports.Position(
                ports.UNFINISHED, ports.UNFINISHED, epoch=epoch
            )

    def apply(self, applications: Mapping[int, ports.Application]) -> Mapping[int, bool]:
        self._on_write("apply")
        return {shard: self.store.apply(shard, each) for shard, each in applications.items()}

    def end_rebuild(self) -> None:
        self._on_write("end_rebuild")

    def drop_checkpoints(self) -> None:
        self._on_write("drop_checkpoints")
        self.store.checkpoints.clear()
        self.store.pieces.clear()

    def heads(self, ladder: str) -> Mapping[str, bytes]:
        return self.store.heads(ladder)

    # --- a copy of the log ---

    def check_new(self, option: str, source: Place) -> None:
        if any(self.ends()):
            raise BadConfiguration(f"{self.name} holds records")

    @contextmanager
    def successor(self, prefix: str) -> Iterator[Place]:
        log = Log(self.partitions, self.shards)
        new = MemoryPlace(log, self.store, self.settings, self._on_write)
        yield new
        new.end_rebuild()
        self.log, self.past = new.log, new.past

    def begin_copy(self, source: Place) -> None:
        self._on_write("begin_copy")

    def copy_events(self, records: Iterable[Record]) -> None:
        self._on_write("copy_events")
        for each in records:
            self.log.changed[each.partition].append(event_of(each))

    def mark_moved(self, where: str) -> None:
        self._on_write("mark_moved")
        self.moved = where

    def cures(self, target: Place) -> Cures:
        return Cures("run it again", "rebuild it", "run it again")
