"""Replays the log of one ladder to an offset, for a command that writes nothing to the log or the
store. It begins at a checkpoint of the ladder, if there is one that fits."""

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from stream_rater.adapters.kafka.ladder_events import disagreement, read_ladder_events
from stream_rater.adapters.kafka.reader import Rereader
from stream_rater.adapters.kafka.topics import Admin
from stream_rater.adapters.redis.store import RedisStore
from stream_rater.adapters.sqlite.reading import DataFile
from stream_rater.columns.sharding import partition_of
from stream_rater.config.errors import BadConfiguration, Failed
from stream_rater.config.ladders import Ladders
from stream_rater.config.settings import Settings
from stream_rater.contract.events import shown
from stream_rater.contract.groups import ESTIMATORS
from stream_rater.contract.record import Record
from stream_rater.operations.unfinished import UnfinishedRounds
from stream_rater.pipeline.corrections import correction_ports
from stream_rater.pipeline.corrections.correction_job import CorrectionJob
from stream_rater.pipeline.corrections.edits_in_force import LadderEdits
from stream_rater.pipeline.corrections.log_context import LogContext
from stream_rater.pipeline.ladder_history import LadderLog
from stream_rater.pipeline.ports import LogStarts
from stream_rater.rating.stages import RatingRule
from stream_rater.replay.edits import StartedSeason
from stream_rater.replay.pool import Pool
from stream_rater.runtime.progress import counted, progress

AT_ONCE = 5000
"""The most records that are read from a data file at a time."""
LOOK_S = 0.2


class Replayed(NamedTuple):
    """A ladder at an offset of its log."""

    pool: Pool
    """The beliefs about its players."""
    rule: RatingRule
    """The rule of the next round, with the seasons that have started."""
    time_s: int
    """The latest time at which a round was completed, in Unix seconds; 0 if there is none."""


Actions = Mapping[type, Callable[[Any], Any]]
"""By the type of an effect, a function that performs it."""


def run_job(job: CorrectionJob, actions: Actions) -> None:
    """Run a job to its end, with a progress bar. Raises Failed if the log's first records were
    deleted."""
    with progress(percent=True) as bar:
        task, done = bar.add_task(shown(job.ladder), total=1.0), False
        while not done:
            step, outcome = job.step(), None
            try:
                while True:
                    effect = step.send(outcome)
                    outcome = actions[type(effect)](effect)
            except StopIteration as ended:
                done = ended.value
            bar.update(task, completed=job.progress)
    if job.deleted_before:
        raise Failed(
            f"partition {job.partition} of round-completed starts at {job.deleted_before}: the "
            "rounds before it were deleted, and ratings cannot be computed without them"
        )


class LadderSource(Protocol):
    """The log of one ladder. The methods raise LogTrouble, Denied, BadConfiguration or Failed."""

    ladder: str

    def wait(self, wait_s: float) -> None:
        """Wait until the workers have rated all that is in the ladder's partition now."""

    def seasons(self) -> tuple[StartedSeason, ...]:
        """The seasons that have started, in order."""

    def replay(self, end: int) -> Replayed:
        """The ladder after its rounds before this offset, as the corrections edit them that were
        applied before it."""

    def record(self, offset: int) -> Record:
        """A record of the ladder's partition."""

    def close(self) -> None:
        """Close the connections."""


class _Log:
    """What both sources share."""

    def __init__(self, settings: Settings, ladders: Ladders, ladder: str, partitions: int) -> None:
        self._settings, self._ladders, self.ladder = settings, ladders, ladder
        self._partitions = partitions
        self.partition = partition_of(ladder, partitions)
        self._edits = LadderEdits()
        self._actions: dict[type, Callable[[Any], Any]] = {
            LogStarts: lambda _: self._starts(),
            correction_ports.ReadAgain: lambda e: self._read(e.first, e.end),
            correction_ports.Checkpoints: lambda _: {},
            correction_ports.ReadPiece: lambda _: None,
            # Nothing is written: the job may believe that it is.
            correction_ports.WritePiece: lambda _: True,
            correction_ports.KeepCheckpoint: lambda _: True,
            correction_ports.DropCheckpoint: lambda _: True,
        }

    def _starts(self) -> Mapping[int, int]:
        """The first offset of the partition, by partition."""
        raise NotImplementedError

    def _read(self, first: int, end: int) -> list[Record]:
        """Records of the partition from `first` to before `end`; at least one, if there is any."""
        raise NotImplementedError

    def _note(self, ladder_log: LadderLog) -> None:
        """Take the ladder's corrections from the ladder events. Raises BadConfiguration."""
        if self.ladder not in ladder_log.ladders:
            raise BadConfiguration(f"ladder {self.ladder!r} has no rounds: name one that has")
        if why := disagreement(self._settings, self._ladders, ladder_log, only=self.ladder):
            raise BadConfiguration(f"{why}: nothing was written")
        self._edits = LadderEdits(ladder_log.corrections.get(self.ladder, ()))

    def seasons(self) -> tuple[StartedSeason, ...]:
        """The seasons that have started, in order."""
        return self._edits.last.seasons

    def replay(self, end: int) -> Replayed:
        """The ladder after its rounds before this offset, as the corrections edit them that were
        applied before it."""
        log = LogContext(self._ladders, self._settings.duplicate_window, self._partitions)
        job = CorrectionJob(
            self.ladder, self.partition, end, None, (), self._edits.accepted(end), log
        )
        run_job(job, self._actions)
        return Replayed(job.replayed_pool, job.rule, job.latest_time_s)

    def record(self, offset: int) -> Record:
        """A record of the ladder's partition."""
        found = [each for each in self._read(offset, offset + 1) if each.offset == offset]
        if not found:
            raise Failed(f"the log has no record at offset {offset} of partition {self.partition}")
        return found[0]


class KafkaLog(_Log):
    """The log on Kafka, with the checkpoints in Redis."""

    def __init__(self, settings: Settings, ladders: Ladders, ladder: str) -> None:
        self.admin = Admin(settings)
        self._topic = self.admin.topics.rounds
        (partitions,) = self.admin.partitions_of(self._topic)
        super().__init__(settings, ladders, ladder, partitions)
        self._log, self._store = Rereader(settings, self._topic), RedisStore(settings)
        checkpoints = self._store.checkpoints
        self._actions[correction_ports.Checkpoints] = lambda e: checkpoints.heads(e.ladder)
        self._actions[correction_ports.ReadPiece] = lambda e: checkpoints.read(
            e.ladder, e.name, e.number
        )

    def wait(self, wait_s: float) -> None:
        """Wait until the workers have rated all that is in the ladder's partition now. Raises
        Failed, or BadConfiguration if the ladders file is not that of the workers."""
        end = self.admin.ends(self._topic, self._partitions)[self.partition]
        until_s = time.monotonic() + wait_s
        unfinished = UnfinishedRounds(self._settings, self.admin)
        while left := unfinished.look({self.partition: end}):
            if time.monotonic() > until_s:
                raise _behind(len(left[self.partition]))
            time.sleep(LOOK_S)
        self._note(read_ladder_events(self._settings, self.admin))

    def _starts(self) -> Mapping[int, int]:
        return dict(enumerate(self.admin.starts(self._topic, self._partitions)))

    def _read(self, first: int, end: int) -> list[Record]:
        return list(self._log.read(self.partition, first, end))

    def close(self) -> None:
        """Close the connections."""
        self._log.close()
        self._store.close()


class FileLog(_Log):
    """The log in a data file, whose process may run."""

    def __init__(self, settings: Settings, ladders: Ladders, ladder: str) -> None:
        self._file = DataFile(Path(settings.data))
        super().__init__(settings, ladders, ladder, self._file.partitions)

    @property
    def id(self) -> str:
        """The id of the data file, which no other one has."""
        return str(self._file.meta("id"))

    def wait(self, wait_s: float) -> None:
        """Wait until the process has rated all that is in the ladder's partition now. Raises
        Failed, or BadConfiguration if the ladders file is not that of the process."""
        end, until_s = self._file.ends()[self.partition], time.monotonic() + wait_s
        while (left := end - self._committed()) > 0:
            if time.monotonic() > until_s:
                raise _behind(left)
            self._file.await_change(LOOK_S)
        self._note(self._file.ladder_log())

    def _committed(self) -> int:
        return self._file.committed(ESTIMATORS, self._partitions)[self.partition]

    def _starts(self) -> Mapping[int, int]:
        return dict(enumerate(self._file.starts()))

    def _read(self, first: int, end: int) -> list[Record]:
        return list(self._file.rounds(self.partition, min(end, first + AT_ONCE), first))

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def _behind(records: int) -> Failed:
    return Failed(
        f"the workers are {counted(records, 'record')} behind: nothing was written: run it again "
        "once they have caught up, or let it wait longer, by --wait"
    )
