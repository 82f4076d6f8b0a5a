"""The index of a standalone process, in a SQLite file of its own beside the data file.

It follows from the events in the data file, and can be deleted at any time: the next start makes it
again. So a transaction does not wait for the disk, and the last ones are lost with the power. Each
has the position before which the index then has every event. `serve.entries` defines the contents,
as it does for the index in Redis.

The table of ladders with views (`index_views`) names the views by which each one was made. If the
ladders file has others, the placements of all players of the ladder are made again at the next
start. A ladder without views has no row there.

A player's changes are rows of their own, so that a change costs one insertion. A history is cut
back at each correction, and when the player's number of rounds is a multiple of the number of
changes that are kept. So the table has at most twice as many.
"""

import math
import sqlite3
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from copy import copy
from pathlib import Path
from typing import TypeVar

from stream_rater.adapters.sqlite.names import Unusable, check_index
from stream_rater.adapters.sqlite.schema import private_files
from stream_rater.config.ladders import ANY_LADDER, Ladders
from stream_rater.contract.errors import Denied, StoreTrouble
from stream_rater.contract.events import RatingChanged
from stream_rater.index import entries
from stream_rater.serve import questions
from stream_rater.serve.cursors import AfterRow, ranked
from stream_rater.serve.index.reader import AtLeast, ReadPositions

FORMAT = 2
"""The format of the tables. If a file has another one, the index is made again."""

TABLES = """
CREATE TABLE IF NOT EXISTS index_state (
    one INTEGER PRIMARY KEY CHECK (one = 1), format INTEGER NOT NULL, data TEXT NOT NULL,
    next INTEGER NOT NULL, tail INTEGER NOT NULL
);
CREATE TABLE IF NOT EXISTS index_ladders (
    ladder TEXT PRIMARY KEY, summary BLOB NOT NULL, listed INTEGER NOT NULL
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS index_players (
    ladder TEXT, player TEXT, entry BLOB NOT NULL, score REAL, PRIMARY KEY (ladder, player)
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS index_ranks ON index_players (ladder, score, player)
    WHERE score IS NOT NULL;
CREATE TABLE IF NOT EXISTS index_bins (
    ladder TEXT, bin INTEGER, players INTEGER NOT NULL, PRIMARY KEY (ladder, bin)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS index_changes (
    ladder TEXT, player TEXT, source INTEGER, change BLOB NOT NULL,
    PRIMARY KEY (ladder, player, source)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS index_dues (
    ladder TEXT, player TEXT, due REAL NOT NULL, PRIMARY KEY (ladder, player)
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS index_all_dues ON index_dues (due, player);
CREATE TABLE IF NOT EXISTS index_views (
    ladder TEXT PRIMARY KEY, views TEXT NOT NULL, moment REAL NOT NULL, player TEXT NOT NULL
) WITHOUT ROWID;
"""
"""`score` is minus the displayed rating of a listed player, and null for others. `source` is the
offset in `round-completed`. `data` names the data file. `next` is the offset of `rating-changed`
before which the index has every event, and `tail` the checksum of the last one of them. `due` is
the moment in Unix seconds at which a listed player leaves the list. `moment` and `player` of
`index_views` are those of `LadderIndex.swept`."""

NAMES = (
    "index_ladders", "index_players", "index_bins", "index_changes", "index_dues", "index_views",
)  # fmt: skip
SWEPT_TOGETHER = 1_000
"""The most players whom one sweep takes off all leaderboards."""
AT_ONCE = 500
"""The most players that one statement names."""

T = TypeVar("T")


class Damaged(StoreTrouble):
    """A file is damaged, or no file of SQLite."""


class FileIndexWriter:
    """Writes the index. Nothing else writes to the file."""

    def __init__(
        self, path: Path, max_changes: int, ladders: Ladders = ANY_LADDER,
        now: Callable[[], float] = time.time,
    ) -> None:  # fmt: skip
        """`max_changes`: the number of changes that are kept of each player. `ladders` has the
        views by which the index is made. `now` returns Unix seconds. Creates the file and its
        tables where they are missing."""
        self._max_changes, self._now = max_changes, now
        self._views = ladders.by_table(ladders.views)
        with private_files():
            self._do = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
            self._do.execute("PRAGMA journal_mode = WAL").fetchall()
        self._do.execute("PRAGMA synchronous = NORMAL")  # with OFF, a power cut damages the file
        self._do.executescript(TABLES)

    def begin(self, data: str, end: int, tail_at: Callable[[int], int] = lambda _: 0) -> int:
        """The offset of `rating-changed` from which the events must be applied.

        `data`: a name of the data file that no other one has. `end`: the end of its events.
        `tail_at`: the checksum of the event before an offset. An index of another file, of another
        format, or of events that the file no longer has, because a backup was restored, is made
        again.
        """
        found = self._do.execute("SELECT format, data, next, tail FROM index_state").fetchone()
        same = found is not None and found[:2] == (FORMAT, data) and found[2] <= end
        if same and tail_at(found[2]) == found[3]:
            for (ladder,) in self._do.execute("SELECT ladder FROM index_ladders").fetchall():
                self._adopt(ladder)
            return int(found[2])
        with self._transaction():
            for name in NAMES:
                self._do.execute(f"DELETE FROM {name}")
            self._do.execute("REPLACE INTO index_state VALUES (1, ?, ?, 0, 0)", (FORMAT, data))
        return 0

    def _adopt(self, ladder: str) -> None:
        """Make the placements of all players of a ladder again if its views are others than those
        by which they were made, or if a wrong clock has taken out who is to be listed."""
        views = self._views(ladder)
        own = "SELECT views, moment FROM index_views WHERE ladder = ?"
        made_by, moment_s = self._do.execute(own, (ladder,)).fetchone() or ("", -math.inf)
        if made_by == views.id and moment_s <= self._now() + entries.WRONG_CLOCK_S:
            return
        with self._transaction():
            for table in ("index_views", "index_dues", "index_bins"):
                self._do.execute(f"DELETE FROM {table} WHERE ladder = ?", (ladder,))
            swept, last = self._swept(ladder), ""
            while some := self._do.execute(
                "SELECT player, entry FROM index_players WHERE ladder = ? AND player > ? "
                "ORDER BY player LIMIT ?", (ladder, last, AT_ONCE),
            ).fetchall():  # fmt: skip
                last = some[-1][0]
                before = self._before(ladder, ())._replace(swept=swept)
                players = {
                    name: entries.replaced(entries.decode_player(entry), views)
                    for name, entry in some
                }
                self._write(ladder, before, entries.relisted(before, players))
            summary = self._before(ladder, ())
            self._write_ladder(ladder, summary)

    def sweep(self) -> bool:
        """Take players off the leaderboards whose moment has come. Returns whether there are
        more."""
        now_s, due_by_ladder = self._now(), dict[str, list[tuple[str, float]]]()
        ahead = "SELECT ladder FROM index_views WHERE moment > ?"
        for (ladder,) in self._do.execute(ahead, (now_s + entries.WRONG_CLOCK_S,)).fetchall():
            self._adopt(ladder)
        found = self._do.execute(
            "SELECT ladder, player, due FROM index_dues WHERE due <= ? ORDER BY due, player "
            "LIMIT ?", (now_s, SWEPT_TOGETHER),
        ).fetchall()  # fmt: skip
        for ladder, player, due_s in found:
            due_by_ladder.setdefault(ladder, []).append((player, due_s))
        for ladder, dues in due_by_ladder.items():
            with self._transaction():
                before = self._before(ladder, [player for player, _ in dues])
                last, moment_s = dues[-1]
                after = entries.sweep(before, (moment_s, last.encode()))
                self._write(ladder, before, after)
                self._do.execute(
                    "UPDATE index_views SET moment = ?, player = ? WHERE ladder = ?",
                    (moment_s, last, ladder),
                )
        return len(found) == SWEPT_TOGETHER

    def _swept(self, ladder: str) -> entries.Swept:
        """The place of the last player of a ladder who was taken out. If the ladder has views and
        the index does not know them, it does afterwards, and nobody is listed whose moment has
        come."""
        views = self._views(ladder)
        if not views.id:
            return entries.NOT_SWEPT
        stored = self._do.execute(
            "SELECT moment, player FROM index_views WHERE ladder = ?", (ladder,)
        ).fetchone()
        if stored is not None:
            return stored[0], stored[1].encode()
        moment_s = self._now() if views.depend_on_time else -math.inf
        self._do.execute(
            "INSERT INTO index_views VALUES (?, ?, ?, '')", (ladder, views.id, moment_s)
        )
        return moment_s, b""

    def apply(
        self, events: Sequence[entries.IndexEvent], end: int, tail: int = 0
    ) -> Mapping[entries.EntryKey, entries.IndexedPlayer]:
        """Apply the next events. `end`: the offset before which the index then has every event, and
        `tail` the checksum of the last one. Returns the player after each event of a ladder with
        tiers, by the ladder, the player and the event's `offset`."""
        made: dict[entries.EntryKey, entries.IndexedPlayer] = {}
        by_ladder: dict[str, list[entries.IndexEvent]] = {}
        for event in events:
            by_ladder.setdefault(event.ladder, []).append(event)
        with self._transaction():
            for ladder, own in by_ladder.items():
                before = self._before(ladder, sorted({event.player for event in own}))
                after = entries.apply_events(before, own, 0, self._views(ladder))
                self._write(ladder, before, after)
                self._write_changes(ladder, own)
                made |= {(ladder, *key): player for key, player in after.made.items()}
            self._do.execute("UPDATE index_state SET next = ?, tail = ?", (end, tail))
        return made

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        self._do.execute("BEGIN IMMEDIATE")
        try:
            yield
        except BaseException:
            self._do.rollback()
            raise
        self._do.execute("COMMIT")

    def close(self) -> None:
        """Close the file."""
        self._do.close()

    def _before(self, ladder: str, names: Sequence[str]) -> entries.LadderIndex:
        """The part of a ladder's index that events of these players may change."""
        found = self._do.execute("SELECT summary FROM index_ladders WHERE ladder = ?", (ladder,))
        summary = found.fetchone()
        bins = self._do.execute("SELECT bin, players FROM index_bins WHERE ladder = ?", (ladder,))
        return entries.LadderIndex(
            _players(self._do, ladder, names), {}, dict(bins.fetchall()),
            entries.LadderSummary() if summary is None else entries.decode_summary(summary[0]),
            self._swept(ladder),
        )  # fmt: skip

    def _write(self, ladder: str, before: entries.LadderIndex, after: entries.LadderIndex) -> None:
        changed = [
            (ladder, name, entries.encode_entry(each), -each.rating if after.lists(name) else None)
            for name, each in after.players.items()
            if before.players.get(name) is not each or before.lists(name) != after.lists(name)
        ]
        self._do.executemany("REPLACE INTO index_players VALUES (?, ?, ?, ?)", changed)
        erased = [(ladder, name) for name in before.players if name not in after.players]
        was, now = entries.dues_of(before), entries.dues_of(after)
        self._do.executemany(
            "REPLACE INTO index_dues VALUES (?, ?, ?)",
            [(ladder, name, at) for name, at in now.items() if at != was.get(name)],
        )
        gone = [(ladder, name) for name in was if name not in now]
        self._do.executemany("DELETE FROM index_dues WHERE ladder = ? AND player = ?", gone)
        for table in ("index_players", "index_changes"):
            self._do.executemany(f"DELETE FROM {table} WHERE ladder = ? AND player = ?", erased)
        bins = [(ladder, at, n) for at, n in after.bins.items() if n != before.bins.get(at)]
        self._do.executemany("REPLACE INTO index_bins VALUES (?, ?, ?)", bins)
        if bins or after.summary != before.summary:
            self._write_ladder(ladder, after)

    def _write_ladder(self, ladder: str, index: entries.LadderIndex) -> None:
        self._do.execute(
            "REPLACE INTO index_ladders VALUES (?, ?, ?)",
            (ladder, entries.encode_entry(index.summary), sum(index.bins.values())),
        )

    def _write_changes(self, ladder: str, events: Sequence[entries.IndexEvent]) -> None:
        if not self._max_changes:
            return
        changes = [each for each in events if isinstance(each, RatingChanged)]
        self._do.executemany(
            "REPLACE INTO index_changes VALUES (?, ?, ?, ?)",
            [
                (ladder, each.player, each.offset, entries.encode_entry(entries.change_of(each)))
                for each in changes
            ],
        )
        self._do.executemany(
            "DELETE FROM index_changes WHERE ladder = ?1 AND player = ?2 AND source <= ("
            "SELECT source FROM index_changes WHERE ladder = ?1 AND player = ?2 "
            "ORDER BY source DESC LIMIT 1 OFFSET ?3)",
            [
                (ladder, each.player, self._max_changes)
                for each in changes
                if each.rounds % self._max_changes == 0 or each.correction is not None
            ],
        )


def _players(
    connection: sqlite3.Connection, ladder: str, names: Sequence[str]
) -> dict[str, entries.IndexedPlayer]:
    """Those of the players that the index has."""
    found: dict[str, entries.IndexedPlayer] = {}
    for first in range(0, len(names), AT_ONCE):
        some = names[first : first + AT_ONCE]
        marks = ", ".join("?" * len(some))
        rows = connection.execute(
            f"SELECT player, entry FROM index_players WHERE ladder = ? AND player IN ({marks})",
            (ladder, *some),
        )
        found |= {player: entries.decode_player(entry) for player, entry in rows}
    return found


class FileIndexReader:
    """Answers from the index, as `questions.Index` describes. It is for one thread, and has a
    connection of its own, which cannot write.

    Its methods raise StoreTrouble if the file cannot be read, and Incomplete or AbsentLadder if the
    index lacks events that it is known to have.
    """

    def __init__(
        self, path: Path, max_changes: int, positions: ReadPositions | None = None,
        ladders: Ladders = ANY_LADDER,
    ) -> None:  # fmt: skip
        """`max_changes`: the number of changes that a history has. `positions` are those before
        which the index is known to have all events. Without them, the index is not checked.
        `ladders` has the views by which the index was made."""
        self._path, self._max_changes, self._positions = path, max_changes, positions
        self._views = ladders.by_table(ladders.views)
        self._connections: list[sqlite3.Connection] = []
        """The connection, once it was needed."""

    @property
    def _ask(self) -> sqlite3.Connection:
        if not self._connections:
            uri = f"{self._path.absolute().as_uri()}?mode=ro"
            self._connections.append(sqlite3.connect(uri, uri=True, isolation_level=None))
        return self._connections[0]

    def after(self, needed: Mapping[int, int]) -> "FileIndexReader":
        """The same, but it answers only if the index has also everything before these positions, by
        partition. It shares the connection."""
        found = copy(self)
        found._positions = AtLeast(self._positions or ReadPositions(), needed)
        return found

    async def check_complete(self) -> None:
        """Raise Incomplete if the index lacks events that it is known to have."""
        await self.ladders()

    async def close(self) -> None:
        """Close the connection."""
        for each in self._connections:
            each.close()

    async def ladders(self) -> list[str]:
        return self._read(lambda: [each for (each,) in self._rows("ladder FROM index_ladders")])

    async def ladder(self, ladder: str) -> questions.LadderView | None:
        def read() -> questions.LadderView | None:
            found = self._rows("summary, listed FROM index_ladders WHERE ladder = ?", ladder)
            if not found:
                return None
            bins = self._rows(
                "bin, players FROM index_bins WHERE ladder = ? AND players > 0 ORDER BY bin", ladder
            )
            return questions.LadderView(
                entries.decode_summary(found[0][0]), found[0][1], dict(bins)
            )

        return self._read(read)

    async def players(
        self, ladder: str, players: Sequence[str]
    ) -> list[entries.IndexedPlayer | None]:
        def read() -> list[entries.IndexedPlayer | None]:
            self._check(ladder)
            found = _players(self._ask, ladder, sorted(set(players)))
            return [found.get(name) for name in players]

        return self._read(read)

    async def player(self, ladder: str, player: str) -> questions.PlayerView | None:
        def read() -> questions.PlayerView | None:
            listed = self._check(ladder)
            found = _players(self._ask, ladder, [player]).get(player)
            if found is None:
                return None
            ((score,),) = self._rows(
                "score FROM index_players WHERE ladder = ? AND player = ?", ladder, player
            )
            rank = None if score is None else 1 + self._better(ladder, score)
            return questions.PlayerView(found, rank, listed)

        return self._read(read)

    async def history(self, ladder: str, player: str) -> entries.History:
        def read() -> entries.History:
            self._check(ladder)
            rows = self._rows(
                "change FROM index_changes WHERE ladder = ? AND player = ? "
                "ORDER BY source DESC LIMIT ?", ladder, player, self._max_changes,
            )  # fmt: skip
            return tuple(entries.decode_change(each) for (each,) in reversed(rows))

        return self._read(read)

    # --- the leaderboard ---

    async def page(self, ladder: str, after: AfterRow | None, limit: int) -> questions.PageView:
        place = (float("-inf"), "") if after is None else (-after.rating, after.player)

        def read() -> questions.PageView:
            listed = self._check(ladder)
            return self._page(ladder, self._after(ladder, place, limit + 1), limit, listed)

        return self._read(read)

    async def around(self, ladder: str, player: str, limit: int) -> questions.PageView | None:
        def read() -> questions.PageView | None:
            listed = self._check(ladder)
            own = self._rows(
                "score FROM index_players WHERE ladder = ? AND player = ? AND score IS NOT NULL",
                ladder, player,
            )  # fmt: skip
            if not own:
                return None
            ((score,),) = own
            before = self._rows(
                "player, score FROM index_players WHERE ladder = ? AND score IS NOT NULL "
                "AND (score, player) < (?, ?) ORDER BY score DESC, player DESC LIMIT ?",
                ladder, score, player, limit // 2,
            )  # fmt: skip
            after = self._after(ladder, (score, player), limit - len(before))
            rows = [*reversed(before), (player, score), *after]
            return self._page(ladder, rows, limit, listed)

        return self._read(read)

    def _after(self, ladder: str, place: tuple[float, str], limit: int) -> list[tuple[str, float]]:
        """At most `limit` rows of the leaderboard after a place, as player and score."""
        return self._rows(
            "player, score FROM index_players WHERE ladder = ? AND score IS NOT NULL "
            "AND (score, player) > (?, ?) ORDER BY score, player LIMIT ?", ladder, *place, limit,
        )  # fmt: skip

    def _page(
        self, ladder: str, rows: list[tuple[str, float]], limit: int, listed: int
    ) -> questions.PageView:
        if not rows:
            return questions.PageView([], more=False, listed=listed)
        first, score = rows[0]
        better = self._better(ladder, score)
        ((equal,),) = self._rows(
            "count(*) FROM index_players WHERE ladder = ? AND score = ? AND player < ?",
            ladder, score, first,
        )  # fmt: skip
        shown = [(player, -each) for player, each in rows[:limit]]
        players: list[entries.IndexedPlayer | None] = []
        if self._views(ladder).tiers:
            known = _players(self._ask, ladder, [player for player, _ in shown])
            players = [known.get(player) for player, _ in shown]
        found = ranked(shown, better + equal, better)
        return questions.PageView(found, len(rows) > limit, listed, players)

    def _better(self, ladder: str, score: float) -> int:
        """The number of listed players with a greater rating than minus this score."""
        own = entries.bin_of(-score)
        ((above, within),) = self._rows(
            "(SELECT coalesce(sum(players), 0) FROM index_bins WHERE ladder = ?1 AND bin > ?2), "
            "(SELECT count(*) FROM index_players WHERE ladder = ?1 AND score < ?3 AND score > ?4)",
            ladder, own, score, -float(own + entries.BIN),
        )  # fmt: skip
        return int(above) + int(within)

    # --- one instant ---

    def _read(self, read: Callable[[], T]) -> T:
        """Read at one instant."""
        needed = 0 if self._positions is None else self._positions.of_all()[0]
        with failures(), instant(self._ask):
            if needed and self._rows("next FROM index_state")[0][0] < needed:
                raise questions.Incomplete
            return read()

    def _rows(self, query: str, *given: object) -> list[tuple]:  # type: ignore[type-arg]
        return self._ask.execute(f"SELECT {query}", given).fetchall()

    def _check(self, ladder: str) -> int:
        """The number of listed players. Raises AbsentLadder."""
        found = self._rows("listed FROM index_ladders WHERE ladder = ?", ladder)
        if not found:
            raise questions.AbsentLadder(f"the index has nothing of ladder {ladder!r}")
        return int(found[0][0])


def make_room(path: Path, data_id: str = "", end: int = 0) -> None:
    """Delete an index of another format, and whatever else cannot be an index. Nobody may have it
    open. Raises Denied if that is not allowed, and Unusable if another program made it, or if it
    has events of this data file behind the `end` of those that are there."""
    check_index(path)
    found, uri = (0, "", 0), f"{path.as_uri()}?mode=rw"  # creates none
    with suppress(sqlite3.DatabaseError), closing(sqlite3.connect(uri, uri=True)) as connection:
        sql = "SELECT format, data, next FROM index_state"
        found = connection.execute(sql).fetchone() or (FORMAT, "", 0)
    if found[0] != FORMAT:
        delete(path)
    elif found[1] == data_id and found[2] > end:
        data = path.name.removesuffix("-index")
        raise Unusable(
            f"{data} has lost rounds that {path} knows: put back {data}-wal or a backup; to go on "
            "without them, remove the index"
        )


def delete(path: Path) -> None:
    """Delete an index. Raises Denied if that is not allowed."""
    for suffix in ("", "-wal", "-shm"):
        try:
            path.with_name(path.name + suffix).unlink(missing_ok=True)
        except OSError as error:
            raise Denied(f"{path}{suffix}: {error.strerror}: delete it") from None


def is_damaged(path: Path) -> bool:
    """Whether the index is damaged. This reads all of it."""
    try:
        with closing(sqlite3.connect(path)) as connection:
            return bool(connection.execute("PRAGMA quick_check(1)").fetchone()[0] != "ok")
    except sqlite3.DatabaseError:
        return True


@contextmanager
def instant(connection: sqlite3.Connection) -> Iterator[None]:
    """Everything that is read within shows the file at one instant."""
    connection.execute("BEGIN")
    try:
        yield
    finally:
        connection.rollback()


@contextmanager
def failures() -> Iterator[None]:
    """Convert the exceptions of SQLite to StoreTrouble."""
    try:
        yield
    except sqlite3.Error as error:
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF
        damaged = code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
        raise (Damaged if damaged else StoreTrouble)(f"sqlite: {error}") from None
