"""Performs a machine's effects on the log and the store of one data file."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from stream_rater.adapters.local_driver import LocalDriver
from stream_rater.adapters.local_log import Group
from stream_rater.adapters.sqlite.log import SqliteLog, SqliteTopic
from stream_rater.adapters.sqlite.store import SqliteStore
from stream_rater.contract.errors import Regrouped, StoreTrouble
from stream_rater.pipeline.corrections.correction_ports import (
    DropCheckpoint,
    KeepCheckpoint,
    NoteCorrections,
    WritePiece,
)
from stream_rater.pipeline.ports import (
    POLL_RECORDS,
    Apply,
    CommitSource,
    Effect,
    Event,
    Publish,
    Scatter,
)

WRITES = (
    Scatter, CommitSource, Publish, NoteCorrections, WritePiece, KeepCheckpoint, DropCheckpoint,
)  # fmt: skip
"""The effects that write, except Apply and Agree, which writes one message."""


class SqliteDriver(LocalDriver):
    """A group member on a data file.

    Within `Database.turn` all effects of all machines belong to the transaction of the turn.
    Outside of it each effect is a transaction of its own, except that Apply and the Publish after
    it are one: any other effect of this machine, or a write of somebody else, takes the Apply back.
    """

    log: SqliteLog
    store: SqliteStore
    poll_records = POLL_RECORDS

    def __init__(
        self, log: SqliteLog, store: SqliteStore, group: Group, source: SqliteTopic
    ) -> None:
        super().__init__(log, store, group, source)
        self._database = log.database
        self._applied = False
        """Whether an Apply waits for its Publish."""

    def perform(self, effect: Effect[Any]) -> Any:
        """Perform an effect. Raises Trouble, Denied or Unrecoverable."""
        if self._database.in_turn:
            return super().perform(effect)
        applied, self._applied = self._applied, False
        mine = self._database.owner is self
        if isinstance(effect, Apply):
            return self._apply(effect)
        if isinstance(effect, Publish) and applied:
            if not mine:
                raise StoreTrouble("sqlite: another machine wrote before this one could publish")
            return self._publish(effect)
        if mine:
            self._database.roll_back_owner()
        if isinstance(effect, WRITES):
            with self._database.turn():
                return super().perform(effect)
        return super().perform(effect)

    def _apply(self, effect: Apply) -> Mapping[int, bool]:
        self._database.begin_for(self)
        try:
            with self._database.joined():
                done: Mapping[int, bool] = super().perform(effect)
        except BaseException:
            self._database.roll_back_owner()
            raise
        self._applied = True
        return done

    def _publish(self, effect: Publish) -> None:
        try:
            with self._database.joined():
                super().perform(effect)
        except Regrouped:
            # The beliefs alone are committed: the events are built again from them (step 11).
            self._database.commit_owner()
            raise
        except BaseException:
            self._database.roll_back_owner()
            raise
        self._database.commit_owner()

    def _batches(self, events: Collection[Event]) -> Sequence[Collection[Event]]:
        """The events as they are: nobody sees them before the transaction ends."""
        return (events,)


def estimator_worker(log: SqliteLog, store: SqliteStore) -> SqliteDriver:
    """A member of the estimators' group."""
    return SqliteDriver(log, store, log.estimators, log.rounds)


def updater_worker(log: SqliteLog, store: SqliteStore) -> SqliteDriver:
    """A member of the updaters' group."""
    return SqliteDriver(log, store, log.updaters, log.parts)
