"""The names of the index's keys in Redis. The braces keep a ladder in one slot of a cluster."""

from typing import NamedTuple

from stream_rater.contract.events import escape

INDEX = "stream-rater:index"

LADDERS = f"{{{INDEX}}}:ladders"
"""A set: every ladder that has an index."""
POSITIONS = f"{{{INDEX}}}:positions"
"""A hash by partition: before this offset every ladder of every event is in LADDERS."""


class LadderKeys(NamedTuple):
    """The keys of one ladder."""

    players: str
    """Hash: player to IndexedPlayer."""
    ranks: str
    """Sorted set of those listed; the score is minus the displayed rating, so that equal ones are
    in order of id."""
    bins: str
    """Hash: bin of the histogram to how many are in it."""
    histories: str
    """Hash: player to History."""
    summary: str
    """LadderSummary."""
    positions: str
    """Hash by partition of `rating-changed`: the index has every event before this offset."""


def keys_of(ladder: str) -> LadderKeys:
    """The keys of a ladder's index."""
    start = f"{INDEX}:{{{escape(ladder)}}}:"
    return LadderKeys(*(start + name for name in LadderKeys._fields))
