"""Why an estimator ends by itself: the log does not say from where it may go on."""

from collections.abc import Mapping

from stream_rater.pipeline.ports import CannotGoOn


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
