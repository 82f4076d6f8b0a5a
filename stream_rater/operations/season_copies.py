"""Copies the standings of past seasons to a new topic, for `erase` and `move`."""

from collections.abc import Iterable, Iterator

from stream_rater.adapters.kafka.copier import ANYWHERE, Copier
from stream_rater.adapters.kafka.envelopes import cloud_event_headers
from stream_rater.adapters.kafka.reader import read_all
from stream_rater.adapters.kafka.season_topic import topic_of
from stream_rater.adapters.kafka.topics import Admin
from stream_rater.columns.sharding import partition_of
from stream_rater.config.errors import Failed
from stream_rater.config.settings import Settings
from stream_rater.contract import season_ended
from stream_rater.contract.record import Record, header


def write_copies(
    settings: Settings, admin: Admin, messages: Iterable[tuple[season_ended.Message, str]]
) -> int:
    """Write records to the topic of past seasons, each with its time, and create the topic if there
    is any record. Returns their number. Raises LogTrouble or Denied."""
    topic, left = topic_of(settings), iter(messages)
    first = next(left, None)
    if first is None:
        return 0
    count = admin.partitions_if_any(topic) or admin.create_season_topic(topic)

    def records() -> Iterator[Record]:
        yield _record(*first, count)
        for each in left:
            yield _record(*each, count)

    return Copier(settings, topic).write(records())


def _record(message: season_ended.Message, time_: str, partitions: int) -> Record:
    found = season_ended.record_of(message.key, message.value)
    assert found is not None, "it is of the topic"
    headers = cloud_event_headers(message.key.decode(), message.kind, time_)
    partition = partition_of(found.ladder, partitions)
    return Record(partition, ANYWHERE, message.value, headers, key=message.key)


def read_copies(
    settings: Settings, admin: Admin, player: str = "", name: str = ""
) -> Iterator[tuple[season_ended.Message, str]]:
    """Yield the records of the topic of past seasons, with `name` in the place of the id `player`,
    and their times. Raises Failed if only a part of a season's standings is written: with another
    name in it, the rest would be part of other standings."""
    begun, kept = set[tuple[str, int]](), set[tuple[str, int]]()
    for found, time_ in read_seasons(settings, admin):
        (kept if isinstance(found, season_ended.SeasonKept) else begun).add(
            (found.ladder, found.season)
        )
        if isinstance(found, season_ended.Standing) and found.player == player:
            yield season_ended.message_of(season_ended.renamed(found, name)), time_
        else:
            yield season_ended.message_of(found), time_
    for season in begun - kept:
        raise Failed(season_ended.unfinished(*season))


def check_finished(settings: Settings, admin: Admin) -> None:
    """Raise Failed if only a part of a season's standings is written."""
    for _ in read_copies(settings, admin):
        pass


def read_seasons(
    settings: Settings, admin: Admin
) -> Iterator[tuple[season_ended.SeasonRecord, str]]:
    """Yield the records of the topic of past seasons, and their times. There are none if there is
    no topic."""
    topic = topic_of(settings)
    count = admin.partitions_if_any(topic)
    for record in read_all(settings, topic, count) if count else ():
        if (found := season_ended.record_of(record.key or b"", record.value)) is not None:
            yield found, header(record.headers, "ce_time")
