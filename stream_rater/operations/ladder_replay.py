"""Replays the log of one ladder to an offset, for a command that writes nothing to the log or the
store. The replay begins at a checkpoint, if there is one that fits. Also makes checkpoints ahead of
time (`checkpoint`)."""

import time
from collections.abc import Callable, Iterator, Sequence
from types import SimpleNamespace
from typing import Any

from stream_rater import places
from stream_rater.columns.sharding import partition_of
from stream_rater.config.errors import BadConfiguration, Failed, named_failures
from stream_rater.config.ladders import Ladders
from stream_rater.config.settings import Settings
from stream_rater.contract.events import shown
from stream_rater.contract.record import Record
from stream_rater.pipeline.corrections.correction_job import CorrectionJob
from stream_rater.pipeline.corrections.correction_validator import LogContext
from stream_rater.pipeline.corrections.edits_in_force import LadderEdits
from stream_rater.pipeline.ladder_history import LadderLog
from stream_rater.places import checks
from stream_rater.places.port import FailureHook, Place
from stream_rater.replay.edits import StartedSeason
from stream_rater.runtime import selfcheck
from stream_rater.runtime.progress import progress, track


class LadderReplay:
    """Replays one ladder of a place up to an offset."""

    def __init__(
        self, place: Place, ladders: Ladders, ladder_log: LadderLog, ladder: str, outcome: str
    ) -> None:
        """Raises BadConfiguration if the ladder has no rounds, or if the ladders file is not that
        of the workers. `outcome` ends the text of the latter."""
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
        """Replay the rounds before offset `end`, as the corrections before it edit them, with a
        progress bar. Returns the job that did it. `failed`: as in `Place.checkpoint_actions`.
        Raises Failed if the log's first records were deleted."""
        place = self._place
        log = LogContext(self._ladders, place.settings.duplicate_window, place.partitions)
        accepted = self._edits.accepted(end)
        job = CorrectionJob(self.ladder, self.partition, end, None, (), accepted, log)
        _perform(job, SimpleNamespace(
            log_starts=lambda _: dict(enumerate(place.starts())), read_again=place.read_again,
            **place.checkpoint_actions(failed),
        ))  # fmt: skip
        if job.deleted_before:
            raise Failed(
                f"partition {job.partition} of round-completed starts at {job.deleted_before}: the "
                "rounds before it were deleted, and ratings cannot be computed without them"
            )
        return job

    def record(self, offset: int) -> Record:
        """The record at an offset of the ladder's partition. Raises Failed if there is none."""
        for each in self._place.read_again(self.partition, offset, offset + 1):
            if each.offset == offset:
                return each
        raise Failed(f"the log has no record at offset {offset} of partition {self.partition}")


def _perform(job: CorrectionJob, handler: Any) -> None:
    """Run a job to its end. `handler` has the methods that its effects call."""
    with progress(percent=True) as bar:
        task, done = bar.add_task(shown(job.ladder), total=1.0), False
        while not done:
            step, outcome = job.step(), None
            try:
                while True:
                    effect = step.send(outcome)
                    outcome = effect.perform(handler)
            except StopIteration as ended:
                done = ended.value
            bar.update(task, completed=job.progress)


def live_log(
    place: Place, ladders: Ladders, ladder: str, cure: str = "give a file that has them, by --file"
) -> tuple[Callable[[], Iterator[Record]], int]:
    """A function, and the ladder's partition. At each call, the function yields all records that
    the partition has now. Raises BadConfiguration if the ladders file is not that of the workers,
    and Failed if rounds were deleted, with the `cure` in its text."""
    checks.agreed(place, ladders, "nothing was rated", only=ladder)
    partition = partition_of(ladder, place.partitions)
    if (start := place.starts()[partition]) > 0:
        raise Failed(
            f"{place.name}, partition {partition} starts at {start}: the rounds before it were "
            f"deleted, and ratings cannot be computed without them: {cure}"
        )
    end = place.stable_end(partition)
    return lambda: track(place.rounds(partition, end), place.name, end), partition


def checkpoint(settings: Settings, named: Sequence[str]) -> None:
    """Make a checkpoint of each of these ladders; if none is named, of each ladder that has rounds.
    A checkpoint includes all rounds that are finished now. Workers may go on during this. Raises
    BadConfiguration or Failed."""
    ladders = places.ladders_of(settings)
    with named_failures(), places.opened(settings) as place:
        selfcheck.check()
        place.check_whole()
        finished = {p: each.offset or 0 if each else 0 for p, each in place.commits().items()}
        # Read last, so that it covers everything before the offsets.
        ladder_log = place.ladder_log()
        for ladder in named or sorted(ladder_log.ladders):
            replay = LadderReplay(place, ladders, ladder_log, ladder, "no checkpoint was made")
            _make(replay, finished[partition_of(ladder, place.partitions)])


def _make(replay: LadderReplay, end: int) -> None:
    """Make a checkpoint at this offset of the partition, and print a line. Raises Failed."""
    began_s, failures, ladder = time.monotonic(), list[str](), shown(replay.ladder)
    job = replay.run(end, failures.append)
    if job.checkpoint_players is None and failures:
        raise Failed(f"ladder {ladder!r}: no checkpoint was made: {failures[0]}")
    result = f"there is one of all rounds before offset {end} of partition {replay.partition}"
    if job.checkpoint_players is not None:
        took_s = time.monotonic() - began_s
        result = (
            f"{job.checkpoint_players:,} players, of the rounds before offset {end} of partition "
            f"{replay.partition}, in {took_s:.1f} s"
        )
    print(f"ladder {ladder!r}: {result}")
