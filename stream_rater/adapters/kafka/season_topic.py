"""The topic `season-ended` on Kafka: reads it, and writes the pages of a season, each once. The
writer's transactional id names the ladder and the season, so a new writer ends every older one. It
reads the topic only after that, up to the end that it has then, and writes the pages whose marks
are not there. So each page is written once, whoever writes it, and whenever a writer is killed."""

import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any
from urllib.parse import quote

import msgspec
from confluent_kafka import KafkaError, KafkaException, Producer

from stream_rater.adapters import access
from stream_rater.adapters.kafka import reader
from stream_rater.adapters.kafka.producers import Transactions
from stream_rater.adapters.kafka.topics import ABANDONED_S, Admin
from stream_rater.columns.sharding import partition_of
from stream_rater.config.settings import Settings
from stream_rater.contract import season_ended
from stream_rater.contract.errors import Denied, LogTrouble, Outdone
from stream_rater.contract.record import Record

FENCED = {KafkaError._FENCED, KafkaError.INVALID_PRODUCER_EPOCH, KafkaError.PRODUCER_FENCED}
"""The errors of a writer that a newer one has ended."""

ROLE = "season"
TIMEOUT_S = 30.0
"""How long a writer waits for open transactions; longer, if one may stay open for longer."""
LOOK_S = 0.1  # The time between two looks at whether they have ended.


def topic_of(settings: Settings) -> str:
    """The name of the topic, with the prefix."""
    return settings.topic_prefix + season_ended.SEASON_ENDED


def records(settings: Settings, admin: Admin, ladder: str | None) -> Iterator[Record]:
    """Yield the records of the topic, if it exists, or those of a ladder's partition. Raises
    LogTrouble or Denied."""
    topic = topic_of(settings)
    if (count := admin.partitions_if_any(topic)) is not None:
        some = range(count) if ladder is None else [partition_of(ladder, count)]
        for batch in reader.read_batches(settings, topic, some):
            yield from batch


class SeasonTopic:
    """Writes the standings of a ladder's season (`places.port.SeasonWriter`). The methods raise
    LogTrouble or Denied."""

    def __init__(self, settings: Settings, admin: Admin, ladder: str, season: int) -> None:
        """Create the topic if it does not exist. Raises TopicMismatch if it would lose records."""
        self._settings, self._admin, self._topic = settings, admin, topic_of(settings)
        existing = admin.partitions_if_any(self._topic)
        self._partitions = existing or admin.create_season_topic(self._topic)
        # The new one, too: a broker may list a topic late, and so it may be somebody else's.
        admin.check_season_topic(self._topic)
        self._partition = partition_of(ladder, self._partitions)
        self._transactions: _SeasonTransactions | None = None
        self._name = f"{season}-{quote(ladder, safe='')}"

    def begin(self) -> Iterator[Record]:
        """End every other writer of this season. Returns the records of the ladder's partition."""
        if self._transactions is None:
            settings = msgspec.structs.replace(self._settings, instance_id=self._name)
            self._transactions = _SeasonTransactions(settings, ROLE, None)
        self._transactions.renew()
        # Up to the end of the log: open transactions of other ladders may hide a mark.
        end = self._admin.ends(self._topic, self._partitions)[self._partition]
        self._await_stable(end)
        return reader.read_partition(self._settings, self._topic, self._partition, end)

    def _await_stable(self, end: int) -> None:
        """Wait until no transaction that began before this offset is open."""
        longest_s = max(TIMEOUT_S, self._settings.transaction_timeout_ms / 1000.0 + ABANDONED_S)
        until_s = time.monotonic() + longest_s
        while self._admin.stable_ends(self._topic, self._partitions)[self._partition] < end:
            if time.monotonic() > until_s:
                raise LogTrouble(
                    f"kafka: {self._topic} could not be read to its end: is a transaction open?"
                )
            time.sleep(LOOK_S)

    def write(self, found: Iterable[Record]) -> None:
        """Write records in one transaction. Raises Outdone if another writer has begun. After
        LogTrouble they may be written: begin again."""
        transactions = self._transactions
        assert transactions is not None, "it has begun"

        def send(producer: Producer) -> None:
            transactions.produce_all(producer, self._topic, (
                (self._partition, each.key, each.value, list(each.headers)) for each in found
            ))  # fmt: skip

        try:
            transactions.begin(send)
            transactions.commit()
        except (LogTrouble, Denied) as trouble:
            if transactions.outdone or access.code_of(trouble.__context__) in FENCED:
                raise Outdone from None
            raise


class _SeasonTransactions(Transactions):
    """Transactions without offsets. They know whether a newer writer has ended them."""

    outdone = False

    def ready(self) -> Producer:
        """The producer. Unlike that of a worker it is not replaced here: a new one ends other
        writers, after which the topic must be read again."""
        if self._producer is not None:
            with access.translated_failures():
                self._producer.poll(0)  # calls back about broken connections
        if self._producer is None or self._doubt:
            raise LogTrouble(f"kafka: {self._doubt or 'the writer has not begun'}")
        return self._producer

    def _conclude(self, producer: Producer, action: Callable[[float], Any]) -> None:
        def noticed(slice_s: float) -> None:
            try:
                action(slice_s)
            except KafkaException as error:
                self.outdone |= access.code_of(error) in FENCED
                raise

        super()._conclude(producer, noticed)
