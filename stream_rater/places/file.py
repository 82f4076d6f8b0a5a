"""The place of a standalone process: a data file, and the files beside it.

A file is read by a connection of its own, while the process that rates by it may write. To write to
it, a command takes the lock of that process (`names.Hold`).
"""

import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from functools import cached_property, partial
from itertools import chain, groupby
from pathlib import Path

import msgspec

from stream_rater.adapters.kafka import envelopes
from stream_rater.adapters.sqlite import events, names, reading
from stream_rater.adapters.sqlite.database import Database, check_window
from stream_rater.adapters.sqlite.log import FileSubmitter, NewRound, SqliteLog
from stream_rater.adapters.sqlite.season_file import SeasonFile
from stream_rater.adapters.sqlite.store import SqliteStore, set_position
from stream_rater.columns.kernels import KERNEL_VERSION
from stream_rater.columns.sharding import partition_of
from stream_rater.config.errors import BadConfiguration, Failed
from stream_rater.config.ladders import ANY_LADDER, BETTER_LADDER, Ladders
from stream_rater.config.settings import Settings
from stream_rater.contract.errors import Denied, LogTrouble, StoreTrouble
from stream_rater.contract.events import ESTIMATORS, ROUND_COMPLETED, UPDATERS
from stream_rater.contract.record import REJECTIONS_BACK, Record, RejectedRecord, WorkersProgress
from stream_rater.index import folder
from stream_rater.pipeline import ports
from stream_rater.places.checks import still_behind
from stream_rater.places.port import CHANGED, Cures, Place, Section, event_record
from stream_rater.replay.log_reading import LogReader
from stream_rater.runtime.progress import counted

LOOK_S = 0.2  # The longest time between two looks at whether the file has changed.
AT_ONCE = 5000  # The most records that are read again, or written, together.
LARGEST = 1 << 40  # A number of bytes that no record has: a record in a file is never cut.


def ladders_within(path: Path) -> Ladders:
    """The ladders of a data file, if there is no ladders file: those that are stored in it. A file
    of earlier releases has none, and its rounds are rated by elo-mmr. A file without rounds, or no
    file, has the parameters that suit most games. Raises as FilePlace does."""
    if not names.real(path).is_file():
        return BETTER_LADDER
    with closing(reading.DataFile(path)) as file:
        if stored := file.meta("ladders"):
            return msgspec.json.decode(stored, type=Ladders)
        return ANY_LADDER if any(file.ends()) else BETTER_LADDER


class FilePlace(reading.DataFile, Place):
    """A data file (`port.Place`)."""

    partitions = shards = 0  # read when the file is opened
    keeps_offsets = True
    out_of_reach = (
        "out of reach, and to be done by hand: backups and snapshots of the file and its index; "
        "what subscribers have stored; logs. A game backend that reports the old id again makes a "
        "new player"
    )

    def __init__(self, settings: Settings, path: Path, database: Database | None = None) -> None:
        """Open the file to read it. `database`, if given, writes to it, and is closed with it."""
        super().__init__(path)
        self.settings, self._database = settings, database
        self.name = str(self.path)
        self.later = f"; rated at the next start of `stream-rater standalone {path}`"
        self.notes = f"in {path}"
        self.blame = f"`stream-rater verify --data {self.path}` says whether the file was right"
        self._pruned_before: Sequence[int] = ()
        """By shard, in a copy: of events before this offset, only each player's last is there."""

    @classmethod
    def of(cls, settings: Settings, path: Path, *, writes: bool) -> "FilePlace":
        """Open a data file, and lock it if `writes`."""
        database = Database.open_existing(path) if writes else None
        try:
            return cls(settings, path, database)
        except BaseException:
            if database is not None:
                database.close()
            raise

    def close(self) -> None:
        super().close()
        if self._database is not None:
            self._database.close()

    @property
    def database(self) -> Database:
        """The connection that writes."""
        assert self._database is not None, "it was opened to write"
        return self._database

    @cached_property
    def _log(self) -> SqliteLog:
        return SqliteLog(self.database)

    @cached_property
    def _store(self) -> SqliteStore:
        return SqliteStore(self.database)

    @property
    def id(self) -> str:
        """The id of the file. No other file has it."""
        return str(self.meta("id"))

    # --- what can be read of the log ---

    def rounds(self, partition: int, end: int) -> Iterator[Record]:
        return self.records_of(partition, end)

    def log_reader(self, ends: Mapping[int, int] | None = None) -> LogReader:
        found = dict(enumerate(self.ends())) if ends is None else ends
        return LogReader(partial(reading.rounds_in, self.path), found)

    def read_again(self, partition: int, first: int, end: int) -> Sequence[Record]:
        return list(self.records_of(partition, min(end, first + AT_ONCE), first))

    def parts(self) -> Iterator[Sequence[Record]]:
        """Yield the parts that are kept, shard by shard."""
        for shard in range(self.shards):
            yield self.parts_of(shard)

    def events(self) -> Iterator[Record]:
        for shard in range(self.shards):
            for offset, event in self.all_events(shard):
                yield event_record(event, offset)

    def standings(self, ladder: str | None = None, *, marks: bool = False) -> Iterator[Record]:
        names.settle(self.path)
        return SeasonFile(names.seasons_path(self.path), self.id).records(marks=marks)

    def follow(self, topic: str, *, from_start: bool) -> Iterator[Record | None]:
        """Of the oldest events, only the last one of each player is there."""
        if topic == CHANGED:
            look, nexts = self._new_events, self.changed_ends()
        else:
            look, nexts = self._new_rejections, [self.last_rejection() + 1]
        nexts = [0] * len(nexts) if from_start else nexts
        while True:
            came = False
            for record in look(nexts):
                came, nexts[record.partition] = True, record.offset + 1
                yield record
            if not came:
                self.await_change(LOOK_S)
                yield None

    def _new_events(self, nexts: Sequence[int]) -> Iterator[Record]:
        for shard, first in enumerate(nexts):
            for offset, event in self.events_from(shard, first):
                yield event_record(event, offset)

    def _new_rejections(self, nexts: Sequence[int]) -> Iterator[Record]:
        for number, rejection in self.rejections(nexts[0] - 1):
            message = envelopes.rejected_message(rejection, ROUND_COMPLETED, LARGEST)
            yield Record(0, number, message["value"], message["headers"], key=message["key"])

    def follow_rejections(self, positions: list[int]) -> Iterator[Sequence[RejectedRecord]]:
        """The numbers of the rejections are the offsets of a single partition."""
        positions[:] = positions or [max(0, self.last_rejection() - REJECTIONS_BACK) + 1]
        yield ()
        while True:
            some = self.rejections(positions[0] - 1)
            positions[0] = some[-1][0] + 1 if some else positions[0]
            yield [envelopes.rejected_record(rejection) for _, rejection in some]
            if not some:
                self.await_change(LOOK_S)

    def topic(self, topic: str) -> str:
        return self.name

    def sections(self) -> Iterator[Section]:
        holder, size = names.holder_of(self.path), self.path.stat().st_size / 1e6
        title = (
            f"{self.path}: {size:,.1f} MB, created {self.meta('created_at')}, partitions "
            f"{self.partitions}, {f'in use by {holder}' if holder else 'not in use'}"
        )
        yield Section(title, {}, ())
        progress, (_, part_ends) = self.progress(), self.part_bounds()
        for what, starts, to, done in (
            ("rounds", self.starts(), self.ends(), progress.rated),
            ("parts", [0] * len(part_ends), part_ends, progress.applied),
        ):
            behind = [end - each for end, each in zip(to, done, strict=True)]
            columns = {"from": starts, "to": to, "done": done, "behind": behind}
            yield Section(f"{what}:", columns, [p for p, end in enumerate(to) if end])
        changes, rejections = sum(progress.change_ends), progress.rejection_ends[0] - 1
        yield Section(f"rating changes: {changes:,}; rejections: {rejections:,}", {}, ())

    # --- how far the process is that rates ---

    def progress(self) -> WorkersProgress:
        return WorkersProgress(
            self.committed(ESTIMATORS, self.partitions), self.part_ends(),
            self.committed(UPDATERS, self.shards), self.changed_ends(),
            [self.last_rejection() + 1],
        )  # fmt: skip

    def check_settings(self) -> None:
        check_window(self.path, self.meta("duplicate_window"), self.settings)

    def check_rated(self, ladder: str, wait_s: float) -> None:
        partition, until_s = partition_of(ladder, self.partitions), time.monotonic() + wait_s
        end = self.ends()[partition]
        while (left := end - self.committed(ESTIMATORS, self.partitions)[partition]) > 0:
            if time.monotonic() > until_s:
                raise still_behind(left)
            self.await_change(LOOK_S)

    @contextmanager
    def at_rest(self, wait_s: float) -> Iterator[Place]:
        deadline_s, announced = time.monotonic() + wait_s, False
        while True:
            if not (behind := sum(self.behind())):
                with self._frozen() as instant:
                    if not (behind := sum(instant.behind())):
                        yield instant
                        return
            if not announced and (holder := names.holder_of(self.path)):
                print(f"waiting for {holder}, which is {counted(behind, 'record')} behind, for "
                      f"{wait_s:g} s at most", file=sys.stderr)  # fmt: skip
                announced = True
            if not announced or time.monotonic() > deadline_s:
                raise self._unfinished(behind, ": nothing was compared")
            self.await_change(LOOK_S)

    @contextmanager
    def _frozen(self) -> Iterator["FilePlace"]:
        """Within the block, the file as it is at one instant. For a large file this is a copy
        beside it: a long transaction would let the write-ahead log grow."""
        if self._database is not None or sum(self.changed_ends()) <= reading.LARGE:
            with self.snapshot():
                yield self
            return
        with names.copying(self.path) as copy:
            self.copy_to(copy)
            with closing(FilePlace(self.settings, copy)) as found, found.snapshot():
                yield found

    def _unfinished(self, behind: int, rest: str) -> Failed:
        return Failed(
            f"{self.path}: {counted(behind, 'record')} not rated yet: let `stream-rater "
            f"standalone {self.path}` rate them{rest}"
        )

    @contextmanager
    def copied_to(self, to: Path) -> Iterator["FilePlace"]:
        """Within the block, a copy of the file at one instant. At the end it is renamed to `to`."""
        with names.copying(to) as part:
            self.copy_to(part)
            with closing(FilePlace(self.settings, part)) as copy:
                yield copy
            part.rename(to)
            names.sync(to.parent)

    def check_finished(self) -> Sequence[int]:
        self.check_whole()
        if behind := sum(self.behind()):
            raise self._unfinished(behind, ", stop it, and run it again")
        return self.ends()

    # --- the beliefs ---

    def kernel(self) -> int:
        return int(self.meta("kernel") or KERNEL_VERSION)

    def events_of(self, shard: int) -> str:
        return "the events that are kept"

    def where(self, ladder: str, player: str, shard: int, size: int) -> str:
        return f"in {self.path}: {size} bytes"

    # --- appending ---

    def submitter(self, *, create: bool = True) -> FileSubmitter:
        return FileSubmitter(self.database)

    @contextmanager
    def season_writer(self, ladder: str, season: int) -> Iterator[SeasonFile]:
        with closing(SeasonFile(names.seasons_path(self.path), self.id)) as writer:
            yield writer

    def append(self, records: Iterable[Record]) -> None:
        """The records keep the times at which they were received."""
        self._log.submit_all([
            NewRound(each.partition, each.value, each.headers, each.received_s, each.key)
            for each in records
        ])  # fmt: skip

    def publish(self, events: Iterable[ports.Event]) -> None:
        raise AssertionError("a file loses no records")

    def write_standings(self, records: Iterable[Record]) -> None:
        """This file is going to replace another one, and so are the standings (`names.settle`)."""
        left = iter(records)
        for first in left:  # without any, there is no file
            with closing(SeasonFile(names.new_seasons_path(self.path), self.id)) as file:
                file.write(chain([first], left))

    def note(self, messages: Sequence[bytes]) -> None:
        self._log.write(messages)

    # --- a rebuild of the beliefs ---

    def commits(self) -> Mapping[int, ports.SourceCommit | None]:
        found = self.committed(ESTIMATORS, self.partitions)
        return {p: ports.SourceCommit(offset, None) for p, offset in enumerate(found)}

    def tails(self, offsets: Mapping[int, int]) -> Mapping[int, ports.SourceTail]:
        ends = self.ends()
        return {p: ports.SourceTail(ends[p], None) for p in offsets}

    def applied(self) -> Mapping[int, int | None]:
        return dict(enumerate(self.committed(UPDATERS, self.shards)))

    def part_bounds(self) -> tuple[Sequence[int], Sequence[int]]:
        return self.part_starts(), self.part_ends()

    def commit_rounds(self, offsets: Mapping[int, int], tails: ports.Tails | None = None) -> None:
        self._commit(ESTIMATORS, offsets)

    def commit_parts(self, offsets: Mapping[int, int]) -> None:
        self._commit(UPDATERS, offsets)

    def _commit(self, group: str, offsets: Mapping[int, int]) -> None:
        with self.database.write(LogTrouble) as connection:
            connection.executemany(
                "INSERT OR REPLACE INTO committed VALUES (?, ?, ?)",
                [(group, partition, offset) for partition, offset in offsets.items()],
            )

    def write_marks(self, marks: Sequence[bytes]) -> dict[int, int]:
        log = self._log
        with self.database.turn():
            return {shard: log.append_part(shard, each) for shard, each in enumerate(marks)}

    def ratings(self) -> str:
        return self.name if any(self.beliefs()) else ""

    @contextmanager
    def rebuilding(self, check: Callable[[Place], None]) -> Iterator[Place]:
        """The yielded place is a copy. Raises Unusable if another program reads the file."""
        self._be_alone()
        self.check_settings()
        self.check_whole()
        check(self)
        new = names.real(self.path, names.NEW)
        try:
            remove(new)
            self.copy_to(new)
            with closing(FilePlace(self.settings, new, Database.open(new))) as copy:
                yield copy
                copy.end_rebuild()
            super().close()
            self.database.replace_by(new)
        finally:
            remove(new)

    def _be_alone(self) -> None:
        """Open the file again. Raises Unusable if another program reads it."""
        self.close()
        self._database = Database.open_unread(self.path)
        super().__init__(self.path)

    def begin_rebuild(self, epoch: bytes) -> None:
        with self.database.write(StoreTrouble) as connection:
            connection.execute("DELETE FROM beliefs")
            connection.execute("DELETE FROM recent")
            for shard in range(self.shards):
                set_position(
                    connection,
                    shard,
                    ports.Position(ports.UNFINISHED, ports.UNFINISHED, epoch=epoch),
                )

    def apply(self, applications: Mapping[int, ports.Application]) -> Mapping[int, bool]:
        return {shard: self._store.apply(shard, each) for shard, each in applications.items()}

    def end_rebuild(self) -> None:
        self.database.set_meta("kernel", KERNEL_VERSION)

    def heads(self, ladder: str) -> Mapping[str, bytes]:
        return self._store.heads(ladder)

    # --- a copy of the log ---

    def check_erasable(self, prefix: str, *, delete: bool) -> None:
        if prefix or delete:
            raise BadConfiguration("--to and --delete-old are for Kafka: leave them out")

    def check_new(self, option: str, source: Place) -> None:
        raise BadConfiguration(f"{self.path}: a log is moved to Kafka and Redis only")

    @contextmanager
    def successor(self, prefix: str) -> Iterator[Place]:
        """At the end every index of the file is deleted: the one beside it, and that of the
        settings. Raises Unusable if another program reads this file, BadConfiguration, and Denied
        if an index cannot be deleted; then this file stays as it was."""
        self._be_alone()
        self.check_settings()
        new, beside = names.real(self.path, names.NEW), names.index_path(self.path)
        indexes = {beside, Path(self.settings.index or beside)}
        for index in indexes:
            names.check_index(index)
        try:
            remove(new)
            database = Database.open(new, partitions=self.partitions, shards=self.shards)
            with closing(FilePlace(self.settings, new, database)) as made:
                yield made
                made.end_rebuild()
            super().close()
            for index in indexes:
                names.drop_old_index(index)
                if left := folder.discard(index):
                    raise Denied(f"{left[0]} may have the id, and cannot be deleted: delete it")
            self.database.replace_by(new)
        finally:
            remove(new)

    def begin_copy(self, source: Place) -> None:
        assert isinstance(source, FilePlace), "a log is moved to Kafka only"
        for name in ("duplicate_window", "created_at", "ladders"):
            self.database.set_meta(name, source.meta(name))
        self._pruned_before = source.changed_starts()

    def copy_events(self, records: Iterable[Record]) -> None:
        for shard, own in groupby(records, lambda each: each.partition):
            found = ((each.offset, envelopes.event_of(each)) for each in own)
            with self.database.write(LogTrouble) as connection:
                events.restore(connection, shard, found, self._pruned_before[shard])

    def begin_parts(self, source: Place) -> None:
        """The parts begin where those of the old file end."""
        _, ends = source.part_bounds()
        with self.database.write(LogTrouble) as connection:
            connection.executemany(
                "INSERT INTO starts VALUES ('parts', ?, ?)", list(enumerate(ends))
            )
        self.__dict__.pop("_log", None)  # it has read where the parts begin
        self.commit_parts(dict(enumerate(ends)))

    def mark_moved(self, where: str) -> None:
        self.database.mark_moved(where)

    def cures(self, target: Place) -> Cures:
        as_it_was = f"{self.path} is as it was: run it again"
        return Cures(as_it_was, as_it_was, "")


def remove(new: Path) -> None:
    """Remove a new file that a command left behind, and new standings for it before."""
    if new.exists():
        for end in ("", "-journal"):
            names.real(names.new_seasons_path(new), end).unlink(missing_ok=True)
    for end in ("", "-wal", "-shm", ".lock"):
        new.with_name(new.name + end).unlink(missing_ok=True)
