"""Rounds as they were reported, in columns, with all that the rules of `validation` look at."""

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from stream_rater.columns import timestamps
from stream_rater.columns.arrays import Flags, Floats, Ints
from stream_rater.columns.strings import StringColumn
from stream_rater.contract import events
from stream_rater.contract.events import Round
from stream_rater.rating.model import Places

MAX_TIME_LENGTH = 64
"""More digits than any clock has; the text goes into every event of the round."""
OUT_OF_RANGE, NO_RANK = -1, -2
"""Places of entries with a rank that is none, and with neither rank nor dnf."""


class Reported(NamedTuple):
    """R rounds with E entries and P players in all, as they were reported: nothing is checked yet.

    Entries are in the order of their message.
    """

    heads: Sequence[Round]
    """(R,)"""
    entries: Ints
    """(R,) number of entries."""
    sizes: Ints
    """(R,) number of players."""
    place: Places
    """(E,) rank, DID_NOT_FINISH, OUT_OF_RANGE or NO_RANK."""
    members: Ints
    """(E,) number of players; none, if the entry is neither a player nor a team, or both."""
    shares: Ints
    """(E,) number of shares; as many as players, if the entry has none."""
    share: Floats
    """(P,) part of the round that each player played."""
    names: StringColumn
    """(P,) ids of the players."""
    unknown: Flags
    """(R,) whether there are fields that we do not know, or a rank beside `dnf`."""


class Bounds(NamedTuple):
    """(R,) each: what rounds are measured by, from the configuration of their ladders."""

    named: Floats
    """Whether the ladder's id is one."""
    known: Floats
    """Whether the ladder is configured; else the limits are 0."""
    most_entries: Floats
    most_weight: Floats
    most_ahead_s: Floats
    strict: Floats
    """Whether unknown fields are a mistake."""
    home: Floats
    """The partition that the ladder's rounds belong in, or ANYWHERE where any will do."""


class Candidates(NamedTuple):
    """Rounds as reported, with all that the rules look at."""

    reported: Reported
    time: Ints
    """(R,) Unix seconds; UNUSUAL where there is none."""
    weight: Floats
    """(R,)"""
    ceiling: Floats
    """(R,) infinite for none."""
    bounds: Bounds
    received_s: Floats
    """(R,) when the log received the round, Unix seconds."""
    partition: Ints
    """(R,) where it was found."""
    partitions: int
    """Of the topic, or ANYWHERE."""
    unknown_field: Callable[[int], str]
    """The unknown field of a round that has one, and where it is."""


def times_of(heads: Sequence[Round]) -> Ints:
    """(R,) when each round was completed, Unix seconds; UNUSUAL where that is no time."""
    found = timestamps.seconds(StringColumn.of([head.completed_at for head in heads]))
    for i in np.flatnonzero(found == timestamps.UNUSUAL).tolist():
        if not time_mistake(heads[i].completed_at):
            found[i] = events.parse_time(heads[i].completed_at)
    return found


def time_mistake(completed_at: str) -> str:
    """Why this is no time; empty if it is one."""
    if len(completed_at) > MAX_TIME_LENGTH:
        return f"over {MAX_TIME_LENGTH} characters"
    try:
        events.parse_time(completed_at)
    except (ValueError, OverflowError) as error:
        return str(error)
    return ""


def ceilings_of(heads: Sequence[Round]) -> Floats:
    """(R,) cap on performances; infinite for none."""
    reported = [head.performance_ceiling for head in heads]
    return np.array([math.inf if each is None else each for each in reported], np.float64)


def rounds_with(broken: npt.ArrayLike, sizes: Ints) -> Flags:
    """(R,) rounds with a broken row, where each has so many rows."""
    found, broken = np.zeros(len(sizes), np.bool_), np.asarray(broken)
    if broken.any():
        found[np.searchsorted(np.cumsum(sizes), np.flatnonzero(broken), "right")] = True
    return found
