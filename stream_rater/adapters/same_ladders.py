"""Whether a command's ladders file says of each rated ladder what the notes on Kafka say.

A worker with another file rates nothing. A command with another file would tell of differences that
are not there, or show numbers that nobody was shown.
"""

import math

from stream_rater.adapters.kafka.ladder_notes import LadderNotes
from stream_rater.adapters.kafka.topics import Admin
from stream_rater.config.ladders import Ladders
from stream_rater.config.settings import PREFIX, Settings
from stream_rater.pipeline.ladder_history import LadderLog, odds


def noted_ladders(settings: Settings, admin: Admin) -> LadderLog:
    """What the notes on Kafka say now. Raises LogTrouble, Denied, or TopicMismatch."""
    admin.partitions_of(admin.topics.notes)  # a topic that does not exist is told by its name
    notes = LadderNotes(settings, admin)
    try:
        return notes.read()
    finally:
        notes.close()


def disagreement(
    settings: Settings, ladders: Ladders, ladder_log: LadderLog, only: str | None = None
) -> str:
    """Where the ladders file contradicts the notes on a ladder (of all, or of `only` this one), and
    the cure, in one line; empty if it does not."""
    found = {
        ladder: offset
        for ladder in ladder_log.ladders
        if only in (None, ladder)
        and (offset := odds(ladders.history(ladder), ladder_log.noted(ladder))) < math.inf
    }
    if not found:
        return ""
    ladder, offset = next(iter(found.items()))
    others = {1: "", 2: " (and 1 other)"}.get(len(found), f" (and {len(found) - 1} others)")
    variable = f"{PREFIX}LADDERS"
    ours = (
        f"the ladders file {settings.ladders}"
        if settings.ladders
        else f"the default parameters ({variable} is not set)"
    )
    return (
        f"ladder {ladder!r}{others}: {ours} and the notes on Kafka differ from offset "
        f"{offset:.0f} on: set {variable} to the ladders file of the workers"
    )
