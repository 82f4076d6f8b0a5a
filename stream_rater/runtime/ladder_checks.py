"""Checks the ladders file of a process that starts against the ladder events."""

import uuid
from collections.abc import Callable, Mapping, Sequence

from stream_rater.columns.sharding import partition_of
from stream_rater.config.errors import BadConfiguration
from stream_rater.config.ladders import FILE_LIMITS, TEMPLATE, Ladders
from stream_rater.contract.errors import LadderEventsMismatch
from stream_rater.pipeline import ladder_history


def removed_ladders(ladders: Ladders, ladder_log: ladder_history.LadderLog) -> str:
    """A message about rated ladders that the ladders file does not rate; empty if there are none.

    After a rebuild with a file that lacks a ladder, the ladder has no ladder events. Then the file
    may lack it.
    """
    missing = [each for each in ladder_log.ladders if not ladders.find(each)]
    if not missing:
        return ""
    others = {1: "", 2: " (and 1 other)"}.get(len(missing), f" (and {len(missing) - 1} others)")
    return (
        f"ladder {missing[0]!r}{others} was rated and is not in the ladders file: its rounds would "
        "be rejected and its ratings stay as they are; put it back, or, to remove it with its "
        "ratings, stop all workers and run `stream-rater rebuild --replace`"
    )


def check_ladders(
    ladders: Ladders, ladder_events: ladder_history.LadderEventLog,
    ends: Callable[[], Sequence[int]], committed: Callable[[], Mapping[int, int | None]],
) -> None:  # fmt: skip
    """Check the ladders file against the ladder events, and these against the log of rounds. Then
    announce the file's changes. `ends` returns the end offsets of the log of rounds, and
    `committed` the committed offsets there, both by partition. Raises BadConfiguration if anything
    is contradictory."""
    ladder_log = ladder_events.read()
    if TEMPLATE not in ladders.ladders and (missing := removed_ladders(ladders, ladder_log)):
        raise BadConfiguration(missing)
    named = (each for each in ladders.ladders if each != TEMPLATE)
    every = dict.fromkeys((*named, *ladder_log.unknown, FILE_LIMITS))
    histories = dict(zip(every, map(ladders.by_table(ladders.history), every), strict=True))

    def end_of(ladder: str, known: Sequence[int] = ()) -> int:
        known = known or ends()
        return known[partition_of(ladder, len(known))]

    def finished_of(ladder: str) -> int:
        return committed().get(partition_of(ladder, len(ends()))) or 0

    now = ends()
    for ladder, corrections in ladder_log.corrections.items():
        last = max((max(each.place) for each in corrections), default=-1)
        if last >= end_of(ladder, now):
            raise BadConfiguration(str(LadderEventsMismatch(ladder, last)))
    try:
        ladder_history.announce(histories, ladder_events, end_of, uuid.uuid4().hex, finished_of)
    except ladder_history.LadderContradiction as error:
        raise BadConfiguration(str(error)) from None
