"""Performs a machine's effects on the log and the store of one data file."""

from collections.abc import Collection, Sequence
from typing import Any

from stream_rater.adapters.local_driver import LocalDriver
from stream_rater.adapters.sqlite.log import SqliteLog
from stream_rater.adapters.sqlite.store import SqliteStore
from stream_rater.pipeline import ports
from stream_rater.pipeline.corrections import correction_ports

WRITES = (
    ports.Apply, ports.Scatter, ports.CommitSource, ports.Publish,
    correction_ports.NoteCorrections, correction_ports.WritePiece, correction_ports.KeepCheckpoint,
    correction_ports.DropCheckpoint,
)  # fmt: skip
"""The effects that write, except Agree, which writes one message."""


class SqliteDriver(LocalDriver):
    """A group member on a data file.

    Within `Database.turn` all effects of all machines belong to the transaction of the turn.
    Outside of it each effect is a transaction of its own.
    """

    log: SqliteLog
    poll_records = ports.POLL_RECORDS

    def perform(self, effect: ports.Effect[Any]) -> Any:
        """Perform an effect. Raises Trouble, Denied or Unrecoverable."""
        if self.log.database.in_turn or not isinstance(effect, WRITES):
            return super().perform(effect)
        with self.log.database.turn():
            return super().perform(effect)

    def _batches(self, events: Collection[ports.Event]) -> Sequence[Collection[ports.Event]]:
        """The events as they are: nobody sees them before the transaction ends."""
        return (events,)


def estimator_worker(log: SqliteLog, store: SqliteStore) -> SqliteDriver:
    """A member of the estimators' group."""
    return SqliteDriver(log, store, log.estimators, log.rounds)


def updater_worker(log: SqliteLog, store: SqliteStore) -> SqliteDriver:
    """A member of the updaters' group."""
    return SqliteDriver(log, store, log.updaters, log.parts)
