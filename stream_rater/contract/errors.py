"""The errors of effects and state machines. After trouble a machine starts over; others end it."""

from collections.abc import Mapping
from typing import Literal, get_args

Cause = Literal["kafka", "redis", "tls", "denied"]
"""What made a state machine start over, or end: Kafka or Redis failed; a TLS handshake with one of
them failed; one of them refused access, because of a wrong password or a missing right."""
CAUSES: tuple[Cause, ...] = get_args(Cause)


class Trouble(Exception):
    """An effect failed, or its outcome is unknown. The machine forgets all its state and starts
    over."""

    cause: Cause = "kafka"

    def __init__(self, reason: str = "", cause: Cause | None = None) -> None:
        """`cause`: the cause, if it is not the usual one of this class."""
        super().__init__(reason)
        if cause is not None:
            self.cause = cause


class LogTrouble(Trouble):
    """Kafka failed: a delivery, commit or transaction failed, is in doubt, or was fenced."""


class Regrouped(LogTrouble):
    """The consumer group has a new generation since the last poll. Nothing of the commit took
    effect, and the producer is still usable. After another poll, which says what the worker still
    owns, the worker may commit again."""


class StoreTrouble(Trouble):
    """Redis failed: a call failed, or its outcome is unknown."""

    cause = "redis"


class Denied(Exception):
    """Kafka or Redis refused access. The machines do not retry after this: the worker ends."""

    cause: Cause = "denied"


class CannotGoOn(Exception):
    """The worker cannot repair this state. It ends with one line that names the remedy."""


class Resharded(CannotGoOn):
    """The number of shards changed while the worker ran. The worker ends, because it places parts
    by the former number."""

    def __init__(self, shards: int, found: int) -> None:
        super().__init__(
            f"performance-estimated has {found} partitions and had {shards} when this worker "
            "started: stop all workers, run `stream-rater rebuild --replace`, and start them again"
        )


class OffsetsForgotten(CannotGoOn):
    """Kafka no longer holds the estimators' committed offsets, and they cannot be derived
    otherwise."""

    def __init__(self, least: Mapping[int, int]) -> None:
        lowest = ", ".join(f"partition {p} (not below {least[p]})" for p in sorted(least))
        super().__init__(
            "the estimators' group has no committed offset of round-completed any more for "
            f"{lowest}: Kafka deletes offsets some days after the last worker left "
            "(offsets.retention.minutes). Commit the offset after the last finished record, "
            "the last value of the metric stream_rater_next_offset, and start the workers again"
        )


class NotesOfAnotherLog(CannotGoOn):
    """`ladders-noted` has a correction that `round-completed` does not have."""

    def __init__(self, ladder: str, offset: int) -> None:
        super().__init__(
            f"ladders-noted has a correction of ladder {ladder!r} at offset {offset} of "
            "round-completed, which has no such correction there: the two topics may come from "
            "copies of different age. Stop all workers, run `stream-rater rebuild --replace`, "
            "which notes the corrections that round-completed has, and start them again"
        )


class Repartitioned(CannotGoOn):
    """Partitions were added to `round-completed`. A ladder's rounds no longer have one certain
    partition."""

    def __init__(self, partition: int, partitions: int) -> None:
        super().__init__(
            f"round-completed has a partition {partition} now and had {partitions} partitions when "
            "this worker started. A ladder's rounds would be split over two partitions. Begin with "
            "another topic_prefix and an empty database, and submit the rounds again"
        )
