"""The errors of effects and state machines. A machine starts over after a Trouble; the other errors
end it."""

from collections.abc import Iterable, Mapping
from typing import Literal, get_args

Cause = Literal["kafka", "redis", "tls", "denied", "file"]
"""Why a state machine started over or ended. `kafka` or `redis`: that system failed. `tls`: a TLS
handshake with one of them failed. `denied`: one of them denied access, because of a wrong password
or a missing right. `file`: the data file of a standalone process could not be written."""
CAUSES: tuple[Cause, ...] = get_args(Cause)


class Trouble(Exception):
    """An effect failed, or its outcome is unknown. The machine forgets all, and starts over."""

    cause: Cause = "kafka"

    def __init__(self, reason: str = "", cause: Cause | None = None) -> None:
        """`cause`: the cause, if it is not the default cause of this class."""
        super().__init__(reason)
        if cause is not None:
            self.cause = cause


class LogTrouble(Trouble):
    """Kafka failed: a delivery, commit or transaction failed, has an unknown outcome, or was
    fenced."""


class Regrouped(LogTrouble):
    """The consumer group has a new generation since the last poll. The commit had no effect, and
    the producer is still usable. The next poll says which partitions the worker still owns; after
    it the worker may commit again."""


class Unled(LogTrouble):
    """A partition has no leader that answers, or a broker does not know its topic: this passes."""


class StoreTrouble(Trouble):
    """Redis failed: a call failed, or its outcome is unknown."""

    cause = "redis"


class Rebuilt(StoreTrouble):
    """A rebuild has replaced the store that the worker has read."""


class Denied(Exception):
    """Kafka or Redis denied access. The machines do not retry after this: the worker ends."""

    cause: Cause = "denied"


class Unrecoverable(Exception):
    """The worker cannot repair this state. It ends with one line that names the remedy."""


class Resharded(Unrecoverable):
    """The number of shards changed while the worker ran. The worker ends, because it assigns parts
    to shards by the old number."""

    def __init__(self, shards: int, found: int) -> None:
        super().__init__(
            f"performance-estimated has {found} partitions and had {shards} when this worker "
            "started: stop all workers, run `stream-rater rebuild --replace`, and start them again"
        )


class OffsetsForgotten(Unrecoverable):
    """Kafka no longer stores the estimators' committed offsets, and they cannot be derived from
    anything else."""

    def __init__(self, least: Mapping[int, int]) -> None:
        lowest = ", ".join(f"partition {p} (not below {least[p]})" for p in sorted(least))
        super().__init__(
            "the estimators' group has no committed offset of round-completed any more for "
            f"{lowest}: Kafka deletes offsets some days after the last worker left "
            "(offsets.retention.minutes). Commit the offset after the last finished record, "
            "the last value of the metric stream_rater_next_offset, and start the workers again"
        )


class RoundsLost(Unrecoverable):
    """`round-completed` no longer has the records that were finished. New records would take their
    offsets, and would be left out."""

    def __init__(self, reasons: Iterable[str]) -> None:
        """`reasons`: one for each partition."""
        super().__init__(
            f"round-completed lost records that were acknowledged: {', '.join(reasons)}. Kafka "
            "elected a replica that lacked them, or was restored from an older copy than its "
            "committed offsets: stop all workers, run `stream-rater rebuild --replace`, and report "
            "the lost rounds again"
        )


class UnratedRound(Unrecoverable):
    """A valid round of which this release cannot compute the evidence. Later rounds of the ladder
    depend on it, so the worker ends. Nothing of the round was sent."""

    def __init__(
        self, ladder: str, round_id: str, place: tuple[int, int], system: str, reason: str
    ) -> None:
        """`place`: the partition and the offset of the round."""
        partition, offset = place
        super().__init__(
            f"round {round_id!r} of ladder {ladder!r}, at offset {offset} of partition {partition} "
            f"of round-completed, cannot be rated by system {system}: {reason}. This is a fault of "
            "this release: report it with the round and the ladder's parameters. Nothing is lost, "
            "and a release without the fault goes on from this round"
        )


class LadderEventsMismatch(Unrecoverable):
    """`ladders-noted` has the ladder event of a correction that `round-completed` does not have."""

    def __init__(self, ladder: str, offset: int) -> None:
        super().__init__(
            f"ladders-noted has a correction of ladder {ladder!r} at offset {offset} of "
            "round-completed, which has no such correction there: the two topics may come from "
            "copies of different age. Stop all workers, run `stream-rater rebuild --replace`, "
            "which notes the corrections that round-completed has, and start them again"
        )


class Repartitioned(Unrecoverable):
    """Partitions were added to `round-completed`: a ladder's rounds would be split over two."""

    def __init__(self, partition: int, partitions: int) -> None:
        super().__init__(
            f"round-completed has a partition {partition} now and had {partitions} partitions when "
            "this worker started. A ladder's rounds would be split over two partitions. Begin with "
            "another topic_prefix and an empty database, and submit the rounds again"
        )


ROUND_REJECTIONS: Mapping[str, str] = {
    "malformed": "it is not valid JSON or MessagePack, or does not have the shape of a round; for "
        "a correction or a seed also: `event-type` names no kind, or it has an unknown field",
    "too-large": "it is larger than `max_bytes`, or Kafka's client refused to decompress it",
    "too-deep": "its nesting is deeper than `max_depth`",
    "unknown-ladder": "its ladder is not in the ladders file (or only from a later offset on), "
        'and there is no template `"*"`',
    "too-few-entries": "it has fewer than two entries",
    "too-many-entries": "it has more than `max_entries` entries",
    "duplicate-player": "a player appears in it twice",
    "bad-rank": "an entry has neither a rank of at least 1 nor `dnf`",
    "bad-weight": "its weight is not greater than 0, or is over `max_weight`",
    "bad-shares": "there is not one share for each member, or a share is not in (0, 1]",
    "bad-seat": "its ladder uses seats, and a seat is not a text of 1 to 8 printable characters "
        "of ASCII",
    "bad-score": "its ladder uses scores, and a score is not a finite number",
    "bad-id": "an id is empty, has the wrong type, or is over 128 bytes; or a player stands in a "
        "seed twice",
    "bad-time": "`completed_at` is not an RFC 3339 time with a zone (such as "
        "`2026-11-20T20:15:05Z`), is before 1900, or lies too far ahead of the record's arrival; "
        "of a removal: `from` or `until` is not such a time, or `from` is not before `until`; of "
        "a seed or a reset: `at` is not such a time, is before 1900, or lies too far ahead",
    "duplicate-round": "a valid record with the same ladder and round id lies within the "
        "duplicate window before it",
    "wrong-partition": "it does not lie in its ladder's partition, murmur2(ladder) mod partitions",
}  # fmt: skip
"""Why a round is rejected, by error code. A correction, seed or reset has some of these codes, too.
Each text continues the words "The record was rejected because"."""

REJECTIONS: Mapping[str, str] = {
    **ROUND_REJECTIONS,
    "corrections-refused": "it is a correction, seed or reset of a ladder that takes none at its "
        "offset ([`corrections`](ladders.md#limits))",
    "unknown-round": "it corrects a round that is not an accepted round of its ladder before it",
    "unknown-player": "it removes or merges a player without a counted round on its ladder",
    "already-voided": "it voids a round that is already voided",
    "bad-amend": "it amends a seed or a reset, which can only be voided",
    "bad-merge": "it merges a player into itself, or two players who met in a round",
    "bad-season": "its `season` is not greater than the last one's, or `season`, `keep` or "
        "`sigma` is out of bounds",
    "bad-seed": "it is a seed or a reset with a `mu` or `sigma` that the ladder cannot have, with "
        "`rounds` out of bounds, or with no player or more than 5,000",
}  # fmt: skip
"""Why a record is rejected, by error code: all codes that there are. `corrections-refused` is for
corrections, seeds and resets. `bad-seed` is for seeds and resets, and the codes between them are
for corrections."""


class Outdone(Exception):
    """Another process writes the standings of this season now."""


class TopicMismatch(Exception):
    """A topic cannot be used. The text is one line with its name and the remedy."""


class LayoutMismatch(Exception):
    """The store was laid out for other shards, buckets or topics. The text names the remedy."""


class StoreMismatch(Exception):
    """The Redis server is reachable, but must not be used. The text: its address and the remedy."""


class Unusable(Unrecoverable):
    """A data file that cannot be opened, or must not be used any more. The text is one line."""
