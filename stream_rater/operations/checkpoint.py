"""`stream-rater checkpoint`: makes checkpoints ahead of time. Corrections of recent rounds replay
the log from a checkpoint."""

import time
from collections.abc import Sequence

from stream_rater import places
from stream_rater.columns.sharding import partition_of
from stream_rater.config.errors import Failed, named_failures
from stream_rater.config.files import ladders_of_settings
from stream_rater.config.settings import Settings
from stream_rater.contract.events import shown
from stream_rater.operations.ladder_replay import LadderReplay
from stream_rater.runtime import selfcheck


def checkpoint(settings: Settings, named: Sequence[str]) -> None:
    """Make a checkpoint of each of these ladders; if none is named, of each ladder that has rounds.

    A checkpoint includes all rounds that are finished now. Workers may run at the same time. Raises
    BadConfiguration or Failed.
    """
    ladders = ladders_of_settings(settings)
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
    """Make a checkpoint at this offset of the ladder's partition, and print a line about it. Raises
    Failed."""
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
