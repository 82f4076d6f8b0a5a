"""`stream-rater checkpoint`: makes checkpoints ahead of time. Corrections of recent rounds replay
the log from a checkpoint."""

import time
from collections.abc import Callable, Sequence
from typing import Any

from stream_rater.adapters.kafka.ladder_events import disagreement, read_ladder_events
from stream_rater.adapters.kafka.reader import Rereader
from stream_rater.adapters.kafka.topics import Admin
from stream_rater.adapters.redis.store import RedisStore
from stream_rater.columns.sharding import partition_of
from stream_rater.config.errors import BadConfiguration, Failed
from stream_rater.config.files import ladders_of_settings
from stream_rater.config.ladders import Ladders
from stream_rater.config.settings import Settings
from stream_rater.contract.events import shown
from stream_rater.contract.groups import ESTIMATORS
from stream_rater.operations.ladder_replay import run_job
from stream_rater.operations.unfinished import check_not_torn
from stream_rater.pipeline.corrections import correction_ports
from stream_rater.pipeline.corrections.correction_job import CorrectionJob
from stream_rater.pipeline.corrections.edits_in_force import LadderEdits
from stream_rater.pipeline.corrections.log_context import LogContext
from stream_rater.pipeline.ladder_history import LadderLog
from stream_rater.pipeline.ports import LogStarts
from stream_rater.runtime import selfcheck
from stream_rater.runtime.failures import named_failures


def checkpoint(settings: Settings, named: Sequence[str]) -> None:
    """Make a checkpoint of each of these ladders; if none is named, of each ladder that has rounds.

    A checkpoint includes all rounds that are finished now. Workers may run at the same time. Raises
    BadConfiguration or Failed.
    """
    ladders = ladders_of_settings(settings)
    with named_failures():
        selfcheck.check()
        admin = Admin(settings)
        topic = admin.topics.rounds
        (partitions,) = admin.partitions_of(topic)
        check_not_torn(settings, admin, partitions)
        finished = admin.committed(ESTIMATORS, topic, partitions)
        # Read last, so that it covers everything before the offsets.
        ladder_log = read_ladder_events(settings, admin)
        maker = _CheckpointMaker(settings, admin, ladders, ladder_log, partitions)
        try:
            for ladder in named or sorted(ladder_log.ladders):
                if ladder not in ladder_log.ladders:
                    raise BadConfiguration(f"ladder {ladder!r} has no rounds: name one that has")
                maker.make(ladder, finished[partition_of(ladder, partitions)] or 0)
        finally:
            maker.close()


class _CheckpointMaker:
    """Makes checkpoints of ladders, one after the other."""

    def __init__(
        self,
        settings: Settings,
        admin: Admin,
        ladders: Ladders,
        ladder_log: LadderLog,
        partitions: int,
    ) -> None:
        self._settings = settings
        self._ladders = ladders
        self._ladder_log = ladder_log
        self._partitions = partitions
        self._store = RedisStore(settings)
        self._failures: list[str] = []
        self._store.checkpoints.on_failure = self._failures.append
        self._log = Rereader(settings, admin.topics.rounds)
        checkpoints, topic = self._store.checkpoints, admin.topics.rounds
        self._actions: dict[type, Callable[[Any], Any]] = {
            LogStarts: lambda _: admin.starts(topic, partitions),
            correction_ports.ReadAgain: lambda e: self._log.read(e.partition, e.first, e.end),
            correction_ports.Checkpoints: lambda e: checkpoints.heads(e.ladder),
            correction_ports.ReadPiece: lambda e: checkpoints.read(e.ladder, e.name, e.number),
            correction_ports.WritePiece: lambda e: checkpoints.write(
                e.ladder, e.name, e.number, e.data
            ),
            correction_ports.KeepCheckpoint: lambda e: checkpoints.keep(e.ladder, e.name, e.head),
            correction_ports.DropCheckpoint: lambda e: checkpoints.drop(e.ladder, e.name, e.pieces),
        }

    def make(self, ladder: str, end: int) -> None:
        """Make a checkpoint at this offset of the ladder's partition, and print a line about it.

        Raises BadConfiguration or Failed.
        """
        if why := disagreement(self._settings, self._ladders, self._ladder_log, only=ladder):
            raise BadConfiguration(f"{why}: no checkpoint was made")
        self._failures.clear()
        began_s = time.monotonic()
        partition = partition_of(ladder, self._partitions)
        accepted = LadderEdits(self._ladder_log.corrections.get(ladder, ())).accepted(end)
        log = LogContext(self._ladders, self._settings.duplicate_window, self._partitions)
        job = CorrectionJob(ladder, partition, end, None, (), accepted, log)
        run_job(job, self._actions)
        if job.checkpoint_players is None and self._failures:
            raise Failed(f"ladder {shown(ladder)!r}: no checkpoint was made: {self._failures[0]}")
        place = f"before offset {end} of partition {partition}"
        if job.checkpoint_players is None:
            result = f"there is one of all rounds {place}"
        else:
            took_s = time.monotonic() - began_s
            result = f"{job.checkpoint_players:,} players, of the rounds {place}, in {took_s:.1f} s"
        print(f"ladder {shown(ladder)!r}: {result}")

    def close(self) -> None:
        """Close the connections."""
        self._log.close()
        self._store.close()
