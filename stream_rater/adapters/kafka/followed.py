"""`rating-changed` and `season-ended` on Kafka, as an index follows them (`index.log`)."""

from collections.abc import Mapping, Sequence
from contextlib import suppress

from stream_rater.adapters.kafka.reader import Reader, record_sums
from stream_rater.adapters.kafka.season_topic import topic_of
from stream_rater.adapters.kafka.topics import REQUEST_TIMEOUT_S, Admin
from stream_rater.config.settings import Settings
from stream_rater.contract.errors import Denied, LogTrouble
from stream_rater.contract.record import Record

KEEPS_TOMBSTONES_MS = 86_400_000
"""The default of delete.retention.ms, for whoever may not ask for the topic's own."""


class KafkaLog:
    """The topics of a service."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._admin = Admin(settings, request_timeout_s=REQUEST_TIMEOUT_S)

    def changed(self) -> "KafkaTopic":
        """The events of `rating-changed`."""
        topic = self._admin.topics.changed
        (partitions,) = self._admin.partitions_of(topic)
        return KafkaTopic(self._settings, self._admin, topic, partitions)

    def standings(self) -> "KafkaTopic | None":
        """The records of `season-ended`; None if there is no such topic yet."""
        topic = topic_of(self._settings)
        partitions = self._admin.partitions_if_any(topic)
        if partitions is None:
            return None
        return KafkaTopic(self._settings, self._admin, topic, partitions)

    def close(self) -> None:
        """Nothing: each topic has its own connections."""


class KafkaTopic:
    """A topic. The methods raise LogTrouble or Denied."""

    def __init__(self, settings: Settings, admin: Admin, topic: str, partitions: int) -> None:
        self._settings, self._admin, self._topic = settings, admin, topic
        self.id, self.partitions = f"{topic}:{admin.topic_id(topic)}", partitions
        self._reader = Reader(settings, topic)

    @property
    def forgets_s(self) -> float:
        """The time after which Kafka may delete a record without a value."""
        found = None
        with suppress(Denied):
            found = self._admin.configuration(self._topic).get("delete.retention.ms")
        return int(found or KEEPS_TOMBSTONES_MS) / 1000.0

    @property
    def reached(self) -> Mapping[int, int]:
        """By partition, the end, if the last call of `gather` has reached it."""
        return self._reader.ends

    def ends(self) -> Sequence[int]:
        """The end of each partition."""
        return [self._reader.bounds(partition)[1] for partition in range(self.partitions)]

    def checksums(self, offsets: Mapping[int, int]) -> Mapping[int, int | None]:
        """By partition, the checksum of the record at an offset before the end; None if there is
        none."""
        return record_sums(self._settings, self._admin, self._topic, offsets)

    def start_at(self, positions: Sequence[int]) -> None:
        """Let `gather` begin at these offsets."""
        self._reader.start_at(dict(enumerate(positions)))

    def gather(self, wait_s: float) -> Sequence[Record]:
        """The records that arrive within `wait_s`, or earlier, once there are many. Raises
        LogTrouble if partitions were added."""
        if added := self._reader.added(self.partitions):
            raise LogTrouble(
                f"kafka: {self._topic} has {added.stop} partitions now: reading begins again"
            )
        return self._reader.gather(wait_s)

    def wake(self) -> None:
        """Nothing: `gather` returns soon by itself."""

    def known_end(self, partition: int) -> int:
        """The end of a partition as the last response said."""
        return self._reader.known_end(partition)

    def close(self) -> None:
        """Close the connections."""
        self._reader.close()
