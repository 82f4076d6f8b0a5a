"""`stream-rater rebuild --data`: computes the ratings in a data file again from its log.

They are written to a new file, and compared with a replay of the log. Only then the new file takes
the place of the old one. The process that uses the file must be stopped.
"""

import secrets
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path

from stream_rater.adapters.redis.metadata import EPOCH_BYTES
from stream_rater.adapters.sqlite.database import Database
from stream_rater.adapters.sqlite.log import SqliteLog
from stream_rater.adapters.sqlite.names import NEW, real, seasons_path
from stream_rater.adapters.sqlite.reading import DataFile, data_file
from stream_rater.adapters.sqlite.store import SqliteStore, set_position
from stream_rater.columns.kernels import KERNEL_VERSION
from stream_rater.config.errors import BadConfiguration, Failed
from stream_rater.config.files import ladders_of_settings
from stream_rater.config.ladders import Ladders
from stream_rater.config.settings import Settings
from stream_rater.contract.errors import StoreTrouble
from stream_rater.contract.events import RatingChanged, rating_changed_from_json
from stream_rater.contract.groups import ESTIMATORS, UPDATERS
from stream_rater.operations import rebuild, verify
from stream_rater.operations.corrected_rebuild import last_published
from stream_rater.operations.cutoff import Cutoff, Misplaced
from stream_rater.operations.rebuild_store import Rebuilds, fill_store, past_marks, tails_at
from stream_rater.pipeline.parts.schema import UnknownPart, mark
from stream_rater.pipeline.ports import UNFINISHED, Application, Position
from stream_rater.replay.cores import ONE_CORE, Cores
from stream_rater.runtime import malloc, selfcheck
from stream_rater.runtime.failures import named_failures
from stream_rater.runtime.progress import counted, track_batches


def rebuild_file(settings: Settings, *, replace: bool, cores: int | None = None) -> None:
    """Replay the log of the settings' data file, and replace its ratings, of which there must be
    none unless `replace` is given. `cores`: how many to use; None: all. Raises BadConfiguration or
    Failed."""
    ladders, path = ladders_of_settings(settings), Path(settings.data)
    began_s = time.monotonic()
    malloc.configure()
    with named_failures():
        selfcheck.check()
        with closing(Database.open_unread(path)) as old:
            new = real(old.path, NEW)
            try:
                with data_file(settings.data) as file:
                    _check(settings, ladders, file, replace=replace)
                    remove(new)
                    file.copy_to(new)
                work = fill(settings, ladders, new, Cores.of(cores))
                with data_file(str(new)) as file:
                    if behind := sum(file.behind()):
                        print(
                            f"{path}: {counted(behind, 'record')} not rated yet, so the ratings "
                            "were not compared: run `stream-rater verify` after the next start",
                            file=sys.stderr,
                        )
                    else:
                        with file.snapshot():  # what was written lately is read once
                            verify.compared_with_replay(
                                settings, ladders, file, verify.Options(cores=cores)
                            )
                old.replace_by(new)
            finally:
                remove(new)
    rebuild.report(work, began_s)


def remove(new: Path) -> None:
    """Remove a new file that a command left behind, and new standings for it before."""
    if new.exists():
        for end in ("", "-journal"):
            real(seasons_path(new.with_suffix("")), f"{NEW}{end}").unlink(missing_ok=True)
    for end in ("", "-wal", "-shm", ".lock"):
        new.with_name(new.name + end).unlink(missing_ok=True)


def _check(settings: Settings, ladders: Ladders, file: DataFile, *, replace: bool) -> None:
    verify.check_window(settings, file)
    rebuild.check_rounds_complete(file.starts())
    if replace:
        return
    if file.count_beliefs():
        raise BadConfiguration(f"{file.path} holds ratings: give --replace to rebuild them")
    verify.check_ladders_file(settings, ladders, file)


def fill(settings: Settings, ladders: Ladders, new: Path, cores: Cores = ONE_CORE) -> Rebuilds:
    """Replace the ratings in a file that nobody else uses."""
    with closing(Database.open(new)) as database, data_file(str(new)) as file:
        log, window = SqliteLog(database), settings.duplicate_window
        applied = dict(enumerate(file.committed(UPDATERS, file.shards)))
        sent = dict(enumerate(file.committed(ESTIMATORS, file.partitions)))
        cutoff = Cutoff(applied, sent, file.shards)
        try:
            for shard in range(file.shards):
                cutoff.add(file.parts(shard))
            cutoff.check()
        except (UnknownPart, Misplaced) as error:
            raise Failed(f"{settings.data}: {error}") from None
        if any(file.part_starts()):
            cutoff.add_published(_published(file))
        work = rebuild.replayed(
            file.log_reader(), lambda wanted: last_published(_published(file), wanted),
            ladders, window, file.partitions, cutoff, cores,
        )  # fmt: skip
        _write(log, work, applied, cutoff, cores)
        rebuild.restate(log, work, ladders, file.all_rounds, window, file.partitions)
        database.set_meta("kernel", KERNEL_VERSION)
        return work


def _write(
    log: SqliteLog, work: Rebuilds, applied: dict[int, int], cutoff: Cutoff, cores: Cores
) -> None:
    """Write a mark to each shard's parts, and the beliefs in the place of those that are there."""
    database, shards = log.database, range(len(log.parts))
    store, epoch = SqliteStore(database), secrets.token_hex(EPOCH_BYTES).encode()
    with database.turn():
        marks = {shard: log.append_part(shard, mark(len(shards))) for shard in shards}
        moved = past_marks(applied, marks)
        with database.write(StoreTrouble) as connection:
            connection.executemany(
                "INSERT OR REPLACE INTO committed VALUES (?, ?, ?)",
                [(UPDATERS, shard, offset) for shard, offset in moved.items()],
            )
            for table in ("beliefs", "recent"):
                connection.execute(f"DELETE FROM {table}")
            for shard in shards:
                set_position(connection, shard, Position(UNFINISHED, UNFINISHED, epoch=epoch))

    def apply(applications: Mapping[int, Application]) -> Mapping[int, bool]:
        return {shard: store.apply(shard, each) for shard, each in applications.items()}

    tails = tails_at(applied, moved, cutoff)
    beliefs = track_batches(cores.ahead(work.beliefs(), rebuild.MOST_AHEAD), "beliefs")
    fill_store(beliefs, applied | moved, marks, tails, epoch, apply)


def _published(file: DataFile) -> Iterator[RatingChanged]:
    """Yield each event that is kept."""
    for shard in range(file.shards):
        yield from (rating_changed_from_json(each.value) for _, each in file.all_events(shard))
