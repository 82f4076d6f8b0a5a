"""Replays the log of one ladder to an offset, for a command that writes nothing to the log or the
store. It begins at a checkpoint of the ladder, if there is one that fits."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from stream_rater.columns.sharding import partition_of
from stream_rater.config.errors import BadConfiguration, Failed
from stream_rater.config.ladders import Ladders
from stream_rater.contract.events import shown
from stream_rater.contract.record import Record
from stream_rater.pipeline import ports
from stream_rater.pipeline.corrections.correction_job import CorrectionJob
from stream_rater.pipeline.corrections.correction_validator import LogContext
from stream_rater.pipeline.corrections.edits_in_force import LadderEdits
from stream_rater.pipeline.ladder_history import LadderLog
from stream_rater.pipeline.ports import LogStarts
from stream_rater.places import checks
from stream_rater.places.port import FailureHook, Place
from stream_rater.rating.stages import RatingRule
from stream_rater.replay.edits import StartedSeason
from stream_rater.replay.pool import Pool
from stream_rater.runtime.progress import progress


class Replayed(NamedTuple):
    """A ladder at an offset of its log."""

    pool: Pool  # The beliefs about its players.
    rule: RatingRule  # The rule of the next round, with the seasons that have started.
    time_s: int
    """The latest time at which a round was completed, in Unix seconds; 0 if there is none."""


class LadderReplay:
    """Replays one ladder of a place."""

    def __init__(
        self, place: Place, ladders: Ladders, ladder_log: LadderLog, ladder: str, outcome: str
    ) -> None:
        """Raises BadConfiguration if the ladder has no rounds, or if the ladders file is not that
        of the workers; `outcome` ends the text."""
        if ladder not in ladder_log.ladders:
            raise BadConfiguration(f"ladder {ladder!r} has no rounds: name one that has")
        if why := checks.disagreement(place, ladders, ladder_log, only=ladder):
            raise BadConfiguration(f"{why}: {outcome}")
        self.ladder, self.partition = ladder, partition_of(ladder, place.partitions)
        self._place, self._ladders = place, ladders
        self._edits = LadderEdits(ladder_log.corrections.get(ladder, ()))

    def seasons(self) -> tuple[StartedSeason, ...]:
        """The seasons that have started, in order."""
        return self._edits.last.seasons

    def run(self, end: int, failed: FailureHook | None = None) -> CorrectionJob:
        """The job that has replayed the ladder's rounds before this offset, as the corrections edit
        them that were applied before it. It shows a progress bar. `failed`: as in
        `Place.checkpoint_actions`. Raises Failed if the log's first records were deleted."""
        place = self._place
        log = LogContext(self._ladders, place.settings.duplicate_window, place.partitions)
        accepted = self._edits.accepted(end)
        job = CorrectionJob(self.ladder, self.partition, end, None, (), accepted, log)
        _perform(job, {
            LogStarts: lambda _: dict(enumerate(place.starts())),
            ports.ReadAgain: lambda e: place.read_again(e.partition, e.first, e.end),
            **place.checkpoint_actions(failed),
        })  # fmt: skip
        if job.deleted_before:
            raise Failed(
                f"partition {job.partition} of round-completed starts at {job.deleted_before}: the "
                "rounds before it were deleted, and ratings cannot be computed without them"
            )
        return job

    def to(self, end: int) -> Replayed:
        """The ladder after its rounds before this offset."""
        job = self.run(end)
        return Replayed(job.replayed_pool, job.rule, job.latest_time_s)

    def record(self, offset: int) -> Record:
        """A record of the ladder's partition. Raises Failed if there is none."""
        found = self._place.read_again(self.partition, offset, offset + 1)
        for each in found:
            if each.offset == offset:
                return each
        raise Failed(f"the log has no record at offset {offset} of partition {self.partition}")


def _perform(job: CorrectionJob, actions: Mapping[type, Callable[[Any], Any]]) -> None:
    """Run a job to its end. `actions`: by the type of an effect, a function that performs it."""
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
