"""The topic `season-ended` on Kafka: reads it, and writes the pages of a season, each once. The
writer's transactional id names the ladder and the season, so a new writer ends every older one. It
reads the topic only after that, up to the end that it has then, and writes the pages whose marks
are not there. So each page is written once, whoever writes it, and whenever a writer is killed."""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing
from typing import Any
from urllib.parse import quote

import msgspec
from confluent_kafka import KafkaError, KafkaException, Producer

from stream_rater.adapters import access
from stream_rater.adapters.kafka.producers import Transactions
from stream_rater.adapters.kafka.reader import Reader
from stream_rater.adapters.kafka.topics import ABANDONED_S, Admin
from stream_rater.columns.sharding import partition_of
from stream_rater.config.settings import Settings
from stream_rater.contract import events, season_ended
from stream_rater.contract.errors import Denied, LogTrouble, Outdone

FENCED = {KafkaError._FENCED, KafkaError.INVALID_PRODUCER_EPOCH, KafkaError.PRODUCER_FENCED}
"""The errors of a writer that a newer one has ended."""

ROLE = "season"
TIMEOUT_S = 30.0
"""How long a read may go without a record; longer, if a transaction may stay open for longer."""

Mark = season_ended.PageWritten | season_ended.SeasonKept
"""A record which says that a page, or a whole season, is written."""


def topic_of(settings: Settings) -> str:
    """The name of the topic, with the prefix."""
    return settings.topic_prefix + season_ended.SEASON_ENDED


def kept_seasons(settings: Settings, admin: Admin, ladder: str) -> list[season_ended.SeasonKept]:
    """The summaries of a ladder's written seasons. Raises LogTrouble or Denied."""
    topic = topic_of(settings)
    partitions = admin.partitions_if_any(topic)
    if partitions is None:
        return []
    end = admin.stable_ends(topic, partitions)[partition_of(ladder, partitions)]
    found = _marks(settings, ladder, partitions, end)
    return [each for each in found if isinstance(each, season_ended.SeasonKept)]


class SeasonTopic:
    """Writes the standings of a ladder's season. The methods raise LogTrouble or Denied."""

    def __init__(self, settings: Settings, admin: Admin, ladder: str, season: int) -> None:
        """Create the topic if it does not exist. Raises TopicMismatch if it would lose records."""
        self._settings, self._admin = settings, admin
        self._ladder, self._season, self._topic = ladder, season, topic_of(settings)
        existing = admin.partitions_if_any(self._topic)
        self._partitions = existing or admin.create_season_topic(self._topic)
        # The new one, too: a broker may list a topic late, and so it may be somebody else's.
        admin.check_season_topic(self._topic)
        self._partition = partition_of(ladder, self._partitions)
        self._transactions: _SeasonTransactions | None = None
        self._name = f"{season}-{quote(ladder, safe='')}"

    def begin(self) -> Mapping[int, season_ended.PageWritten]:
        """End every other writer of this season. Returns the marks of written pages, by number."""
        if self._transactions is None:
            settings = msgspec.structs.replace(self._settings, instance_id=self._name)
            self._transactions = _SeasonTransactions(settings, ROLE, None)
        self._transactions.renew()
        # Up to the end of the log: open transactions of other ladders may hide a mark.
        end = self._admin.ends(self._topic, self._partitions)[self._partition]
        marks = _marks(self._settings, self._ladder, self._partitions, end)
        return {
            each.page: each for each in marks
            if isinstance(each, season_ended.PageWritten) and each.season == self._season
        }  # fmt: skip

    def write(self, messages: Iterable[season_ended.Message], time_: str) -> None:
        """Write records in one transaction, as events of this time (RFC 3339). Raises Outdone if
        another writer has begun. After LogTrouble they may be written: begin again."""
        transactions = self._transactions
        assert transactions is not None, "it has begun"

        def send(producer: Producer) -> None:
            transactions.produce_all(producer, self._topic, (
                (self._partition, each.key, each.value,
                 events.cloud_event_headers(each.key.decode(), each.kind, time_))
                for each in messages
            ))  # fmt: skip

        try:
            transactions.begin(send)
            transactions.commit()
        except (LogTrouble, Denied) as trouble:
            if transactions.outdone or access.code_of(trouble.__context__) in FENCED:
                raise Outdone from None
            raise


def _marks(settings: Settings, ladder: str, partitions: int, end: int) -> Iterator[Mark]:
    """Yield a ladder's marks before the offset `end`. Waits for open transactions before it."""
    topic, partition = topic_of(settings), partition_of(ladder, partitions)
    longest_s = max(TIMEOUT_S, settings.transaction_timeout_ms / 1000.0 + ABANDONED_S)
    position, quiet_s = 0, time.monotonic() + longest_s
    with closing(Reader(settings, topic)) as reader:
        reader.start_at({partition: 0})
        while position < end:
            records = reader.read(1.0)
            for each in records:
                key = each.key or b""
                if season_ended.is_standing(key):
                    continue
                found = season_ended.record_of(key, each.value)
                if isinstance(found, Mark) and found.ladder == ladder:
                    yield found
            before = position
            if records:
                position = records[-1].offset + 1
            position = max(position, reader.ends.get(partition, 0))
            if position > before:
                quiet_s = time.monotonic() + longest_s
            elif time.monotonic() > quiet_s:
                raise LogTrouble(
                    f"kafka: {topic} could not be read to its end: is a transaction open?"
                )


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
