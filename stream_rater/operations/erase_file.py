"""`stream-rater erase --data`: writes a data file again with a pseudonym in the place of a player's
id.

The new file is written from nothing, so no page of it can hold the id. It has the accepted records,
the events that are kept and the ladder events. Its ratings are computed from them, and compared
with those before. Then it takes the place of the old file, which is deleted, and at last the new
file of standings that of the old one: after a kill in between, whoever opens the data file to write
does this (`names.settle`). The process that uses the file must be stopped.
"""

from collections.abc import Iterator
from contextlib import closing
from itertools import islice
from pathlib import Path

from stream_rater.adapters.sqlite import events
from stream_rater.adapters.sqlite.database import Database
from stream_rater.adapters.sqlite.log import NewRound, SqliteLog
from stream_rater.adapters.sqlite.names import LOG_ENDS, NEW, check_index, index_path, real
from stream_rater.adapters.sqlite.reading import DataFile, data_file
from stream_rater.adapters.sqlite.season_file import copy_renamed
from stream_rater.columns.kernels import KERNEL_VERSION
from stream_rater.config.errors import Failed
from stream_rater.config.files import ladders_of_settings
from stream_rater.config.ladders import Ladders
from stream_rater.config.settings import Settings
from stream_rater.contract.errors import LogTrouble
from stream_rater.contract.events import shown
from stream_rater.contract.groups import ESTIMATORS, UPDATERS
from stream_rater.contract.record import Record
from stream_rater.index import folder
from stream_rater.operations.digests import difference, digests_of
from stream_rater.operations.erase import pseudonym_of
from stream_rater.operations.erasure_checks import (
    check_kernel,
    check_mentions,
    check_none_deferred,
)
from stream_rater.operations.rebuild import check_rounds_complete
from stream_rater.operations.rebuild_file import fill, remove
from stream_rater.operations.rewriting import AcceptedRecords, LogRewriter, Mentions, Pseudonym
from stream_rater.operations.verify import check_ladders_file, check_window
from stream_rater.pipeline.ports import Event
from stream_rater.replay.corrected import with_verdicts
from stream_rater.replay.edited_log import Verdicts
from stream_rater.runtime import malloc, selfcheck
from stream_rater.runtime.failures import named_failures
from stream_rater.runtime.progress import counted, track

AT_ONCE = 5000
"""The number of records or events that are copied together."""
OUT_OF_REACH = (
    "out of reach, and to be done by hand: backups and snapshots of the file and its index; what "
    "subscribers have stored; logs. A game backend that reports the old id again makes a new player"
)


def erase_file(settings: Settings, player: str, name: str | None, *, dry_run: bool) -> None:
    """Replace a player's id by a pseudonym in the settings' data file.

    `name`: the pseudonym; None chooses a random one. With `dry_run`, only report the records that
    name the player. Raises BadConfiguration or Failed.
    """
    pseudonym = pseudonym_of(player, name)
    ladders, path = ladders_of_settings(settings), Path(settings.data)
    malloc.configure()
    with named_failures():
        selfcheck.check()
        if dry_run:
            with data_file(settings.data) as file:
                _announce(_Erasure(settings, ladders, file, pseudonym).search(), pseudonym)
            print("--dry-run: nothing was written")
            return
        with closing(Database.open_unread(path)) as old:
            count = _erase(settings, ladders, old, pseudonym)
    print(f"{counted(count, 'belief')}, all equal to those before, bit for bit")
    print(OUT_OF_REACH)


def _erase(settings: Settings, ladders: Ladders, old: Database, pseudonym: Pseudonym) -> int:
    """Write new files, and put them in the place of the old ones. Returns the number of beliefs.
    What can fail comes before the first file changes."""
    path = old.path
    index = Path(settings.index) if settings.index else index_path(path)
    new = real(path, NEW)
    check_index(index)
    try:
        remove(new)
        with data_file(str(path)) as file:
            work = _Erasure(settings, ladders, file, pseudonym)
            work.check()
            mentions = work.search()
            _announce(mentions, pseudonym)
            work.copy(new, mentions.verdicts)
            fill(settings, ladders, new)
            count = work.compare(new)
        with data_file(str(new)) as made:
            ids = str(old.meta("id")), str(made.meta("id"))
        copy_renamed(path, *ids, pseudonym.player, pseudonym.name)
        if index.is_dir():
            folder.discard(index)
        old.replace_by(new, [Path(f"{path}-index{end}") for end in ("", *LOG_ENDS)])
    finally:
        remove(new)
    return count


def _announce(mentions: Mentions, pseudonym: Pseudonym) -> None:
    """Print the numbers of records that name the player. Warn of places where the id stays."""
    print(
        f"player {shown(pseudonym.player)!r} is to be {shown(pseudonym.name)!r}: {mentions} name "
        f"the player; {counted(mentions.rejected, 'record')} were rejected and are emptied"
    )
    mentions.warn()


class _Erasure:
    """The steps of an erasure."""

    def __init__(
        self, settings: Settings, ladders: Ladders, file: DataFile, pseudonym: Pseudonym
    ) -> None:
        self._settings, self._ladders, self._file = settings, ladders, file
        self._pseudonym = pseudonym

    def check(self) -> None:
        """Check that all of the file is rated, by these settings. Raises an error if not."""
        file = self._file
        check_window(self._settings, file)
        check_kernel(file.meta("kernel") or KERNEL_VERSION)
        check_ladders_file(self._settings, self._ladders, file)
        check_none_deferred(file.ladder_log().corrections)
        check_rounds_complete(file.starts())
        if behind := sum(file.behind()):
            raise Failed(
                f"{file.path}: {counted(behind, 'record')} not rated yet: let `stream-rater "
                f"standalone {file.path}` rate them, stop it, and run it again"
            )

    def search(self) -> Mentions:
        """Count the records that name the player. Raises Failed if there are none, and
        BadConfiguration if the pseudonym is in use."""
        file, window = self._file, self._settings.duplicate_window
        found = with_verdicts(
            self._count_mentions, file.all_rounds, self._ladders, window, file.partitions
        )
        check_mentions(found, self._pseudonym)
        return found

    def _count_mentions(self, verdicts: Verdicts | None) -> Mentions:
        mentions, accepted = Mentions(verdicts), self._accepted(verdicts)
        for batch in self._batches("rounds"):
            mentions.read(batch, accepted.of(batch), self._pseudonym)
        return mentions

    def _accepted(self, verdicts: Verdicts | None) -> AcceptedRecords:
        window = self._settings.duplicate_window
        return AcceptedRecords(self._ladders, window, self._file.partitions, verdicts)

    def _batches(self, label: str) -> Iterator[list[Record]]:
        records = iter(track(self._file.all_rounds(), label, sum(self._file.ends())))
        return iter(lambda: [*islice(records, AT_ONCE)], [])

    def copy(self, new: Path, verdicts: Verdicts | None) -> None:
        """Write a new file without the id, and without ratings."""
        file = self._file
        with closing(Database.open(new, partitions=file.partitions, shards=file.shards)) as made:
            log = SqliteLog(made)
            for name in ("duplicate_window", "created_at"):
                made.set_meta(name, file.meta(name))
            accepted, rewriter = self._accepted(verdicts), LogRewriter(self._pseudonym)
            for batch in self._batches("copying rounds"):
                log.submit_all([
                    NewRound(each.partition, each.value, each.headers, each.received_s, each.key)
                    for each in rewriter.feed(batch, accepted.of(batch))
                ])  # fmt: skip
            log.write([
                each
                for message in file.ladder_events()
                for each in self._pseudonym.ladder_events(message)
            ])  # fmt: skip
            with made.write(LogTrouble) as connection:
                for group, count in ((ESTIMATORS, file.partitions), (UPDATERS, file.shards)):
                    rows = enumerate(file.committed(group, count))
                    connection.executemany(
                        "INSERT INTO committed VALUES (?, ?, ?)", [(group, *row) for row in rows]
                    )
                for shard, end in enumerate(file.part_ends()):
                    connection.execute("INSERT INTO starts VALUES ('parts', ?, ?)", (shard, end))
                    found = ((at, self._renamed(event)) for at, event in file.all_events(shard))
                    events.restore(connection, shard, found, file.changed_starts()[shard])

    def _renamed(self, event: Event) -> Event:
        if not self._pseudonym.is_key(event.key):
            return event
        found = self._pseudonym.event(
            Record(0, 0, event.value, [("ce_id", event.event_id)], key=event.key)
        )
        event_id = dict(found.headers)["ce_id"] or b""
        value, key = found.value or b"", found.key or b""
        return Event(event.shard, key, value, event_id, event.time, event.trace)

    def compare(self, new: Path) -> int:
        """Return the number of beliefs in the new file. Raises Failed if one differs."""
        corrected = frozenset(self._file.ladder_log().corrections)
        player, name = self._pseudonym.player, self._pseudonym.name
        before = {
            (of, name if who == player else who): each
            for (of, who), each in digests_of(self._file.beliefs(), corrected).items()
        }
        with data_file(str(new)) as file:
            after = digests_of(file.beliefs(), corrected)
        found = difference(before, after)
        if found.first is not None:
            raise Failed(
                f"{found}: `stream-rater verify --data {self._file.path}` says whether the file "
                "was right: nothing was erased"
            )
        return len(after)
