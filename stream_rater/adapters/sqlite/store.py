"""The store in a data file: positions, beliefs and checkpoints."""

import sqlite3

from stream_rater.adapters.sqlite.beliefs import Beliefs
from stream_rater.adapters.sqlite.database import Database
from stream_rater.columns.player_column import PlayerColumn
from stream_rater.contract.errors import StoreTrouble
from stream_rater.pipeline.ports import VANISHED, Application, Position, Priors, StoredShard
from stream_rater.rating.record import header_bytes


class SqliteStore:
    """The position and the beliefs of each shard, and the ladders' checkpoints, in a data file (a
    `local_driver.LocalStore`)."""

    def __init__(self, database: Database) -> None:
        self.database = database
        self._beliefs: dict[int, Beliefs] = {}
        self._data_version = database.data_version
        database.on_rollback.append(self.forget)

    def forget(self) -> None:
        """Forget what is known of the file, and read it again when it is needed."""
        self._beliefs = {}

    def _of(self, shard: int) -> Beliefs:
        """The beliefs of a shard. If a foreign program has changed the file, they are read
        again, so that what it did is noticed."""
        version = self.database.data_version
        if version != self._data_version:
            self._data_version = version
            self.forget()
        return self._beliefs.setdefault(shard, Beliefs(shard))

    def read_priors(self, shard: int, players: PlayerColumn) -> Priors:
        """The `applied` of a shard and the players' belief headers."""
        stored = self.read(shard, players)
        return Priors(stored.position.applied, header_bytes(stored.column))

    def read(self, shard: int, players: PlayerColumn) -> StoredShard:
        """The position of a shard and the players' records."""
        with self.database.reading(StoreTrouble) as connection:
            position = position_of(connection, shard)
            return StoredShard(position, self._of(shard).read(connection, players))

    def apply(self, shard: int, application: Application) -> bool:
        """Write beliefs and position by compare-and-set. Returns False, and writes nothing, if
        `applied` is not `position.start` or the epoch differs. It also returns False if the number
        of new beliefs differs from the number of absent ones; then the shard is VANISHED."""
        position, written = application.position, application.beliefs
        with self.database.write(StoreTrouble) as connection:
            stored = position_of(connection, shard)
            if (stored.applied, stored.epoch) != (position.start, position.epoch):
                return False
            counts = application.absent is not None
            absent = self._of(shard).write(connection, written, count=counts)
            vanished = absent != application.absent
            if vanished:
                position = Position(VANISHED, VANISHED, epoch=position.epoch)
            set_position(connection, shard, position)
        return not vanished

    # --- checkpoints ---

    def heads(self, ladder: str) -> dict[str, bytes]:
        """The heads of a ladder's checkpoints by name."""
        sql = "SELECT name, head FROM checkpoints WHERE ladder = ?"
        with self.database.reading(StoreTrouble) as connection:
            return dict(connection.execute(sql, (ladder,)))

    def read_piece(self, ladder: str, name: str, number: int) -> bytes | None:
        """A piece of a checkpoint; None if there is none."""
        sql = "SELECT data FROM pieces WHERE ladder = ? AND name = ? AND number = ?"
        with self.database.reading(StoreTrouble) as connection:
            found = connection.execute(sql, (ladder, name, number)).fetchone()
        return found and bytes(found[0])

    def write_piece(self, ladder: str, name: str, number: int, data: bytes) -> None:
        """Write a piece of a checkpoint."""
        self._execute(
            "INSERT OR REPLACE INTO pieces VALUES (?, ?, ?, ?)", ladder, name, number, data
        )

    def keep_head(self, ladder: str, name: str, head: bytes) -> None:
        """Write the head of a checkpoint."""
        self._execute("INSERT OR REPLACE INTO checkpoints VALUES (?, ?, ?)", ladder, name, head)

    def drop_piece(self, ladder: str, name: str, number: int) -> None:
        """Delete a piece, if it is there."""
        where = "ladder = ? AND name = ? AND number = ?"
        self._execute(f"DELETE FROM pieces WHERE {where}", ladder, name, number)

    def drop_head(self, ladder: str, name: str) -> None:
        """Delete the head of a checkpoint, if it is there."""
        self._execute("DELETE FROM checkpoints WHERE ladder = ? AND name = ?", ladder, name)

    def _execute(self, sql: str, *values: str | int | bytes) -> None:
        with self.database.write(StoreTrouble) as connection:
            connection.execute(sql, values)


# --- what any connection can read ----------------------------------------------------------------


def position_of(connection: sqlite3.Connection, shard: int) -> Position:
    """The position of a shard."""
    sql = "SELECT applied, start, fresh, epoch, tail FROM positions WHERE shard = ?"
    found = connection.execute(sql, (shard,)).fetchone()
    return Position() if found is None else Position(*found)


def set_position(connection: sqlite3.Connection, shard: int, position: Position) -> None:
    """Write the position of a shard."""
    connection.execute(
        "INSERT OR REPLACE INTO positions VALUES (?, ?, ?, ?, ?, ?)",
        (shard, position.applied, position.start, position.fresh, position.epoch, position.tail),
    )
