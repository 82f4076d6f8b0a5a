"""The states and transitions of the two machines: the diagrams of docs/internals/protocol.md as
data (`mermaid`; a test compares them). The simulator checks that machines take no others."""

from collections.abc import Sequence
from enum import StrEnum
from typing import NamedTuple


class PartitionState(StrEnum):
    """The states of a partition of `round-completed` that an estimator owns."""

    OPENING = "Opening"
    READING_BACK = "ReadingBack"
    RATING = "Rating"
    STARTING_OVER = "StartingOver"


class ShardState(StrEnum):
    """States of an updater's shard; a is `applied`, and c is the committed offset."""

    OPENING = "Opening"
    REFILLING = "Refilling"  # a < c: Redis has lost writes.
    SETTLING = "Settling"  # a > c: events of the last call may not be published.
    WORKING = "Working"  # a = c.
    REFUSED = "Refused"
    STARTING_OVER = "StartingOver"


class Transition(NamedTuple):
    """An arrow of a state diagram; None: the partition or shard is not owned."""

    source: PartitionState | ShardState | None
    target: PartitionState | ShardState | None
    why: str  # The label of the arrow: the step's number, if it has one, and the cause.


_P, _S = PartitionState, ShardState

ESTIMATOR = (
    Transition(None, _P.OPENING, "partitions assigned"),
    Transition(_P.OPENING, _P.READING_BACK, "1 committed offset c and floors known"),
    Transition(_P.READING_BACK, _P.RATING, "round ids of [c - W, c) read"),
    Transition(
        _P.RATING, _P.RATING, "2 to 6 validate, form a wave, read priors, estimate, send parts"
    ),
    Transition(_P.RATING, _P.RATING, "7 commit"),
    Transition(_P.RATING, _P.RATING, "22 send seeds and resets"),
    Transition(_P.OPENING, _P.STARTING_OVER, "any failure"),
    Transition(_P.READING_BACK, _P.STARTING_OVER, "any failure"),
    Transition(_P.RATING, _P.STARTING_OVER, "any failure"),
    Transition(_P.STARTING_OVER, _P.OPENING, "forget everything, new producer"),
)
"""The transitions of each partition of `round-completed`. A partition may be lost in any state."""

UPDATER = (
    Transition(None, _S.OPENING, "shard assigned"),
    Transition(_S.OPENING, _S.REFUSED, "the log and Redis do not fit together"),
    Transition(_S.REFUSED, _S.OPENING, "every 5 s"),
    Transition(_S.OPENING, _S.REFILLING, "10 a < c"),
    Transition(_S.OPENING, _S.SETTLING, "11 a > c"),
    Transition(_S.OPENING, _S.WORKING, "12 a = c"),
    Transition(_S.REFILLING, _S.WORKING, "applied up to c, without events"),
    Transition(_S.SETTLING, _S.WORKING, "events of [c, a) published"),
    Transition(_S.WORKING, _S.WORKING, "12 to 14 cut, apply, publish and commit"),
    Transition(_S.REFILLING, _S.OPENING, "mismatch"),
    Transition(_S.SETTLING, _S.OPENING, "mismatch"),
    Transition(_S.WORKING, _S.OPENING, "mismatch"),
    Transition(_S.WORKING, _S.REFUSED, "a part that must not be applied"),
    Transition(_S.REFILLING, _S.REFUSED, "the mark of a rebuild, or a lost part"),
    Transition(_S.SETTLING, _S.REFUSED, "its events cannot be built again"),
    Transition(_S.WORKING, None, "shard revoked"),
    Transition(_S.OPENING, _S.STARTING_OVER, "any failure"),
    Transition(_S.WORKING, _S.STARTING_OVER, "any failure"),
    Transition(_S.SETTLING, _S.STARTING_OVER, "any failure"),
    Transition(_S.REFILLING, _S.STARTING_OVER, "any failure"),
    Transition(_S.STARTING_OVER, _S.OPENING, "forget everything, new producer"),
)
"""The transitions of each shard. It may be revoked in any state; the diagram has one of them."""


def mermaid(transitions: Sequence[Transition]) -> str:
    """Convert transitions to the text of a Mermaid state diagram."""
    arrows = (f"    {s or '[*]'} --> {t or '[*]'}: {why}\n" for s, t, why in transitions)
    return "stateDiagram-v2\n" + "".join(arrows)
