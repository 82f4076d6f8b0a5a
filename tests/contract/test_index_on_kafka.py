"""The index made from real topics: the standings of past seasons; the keys of an older index."""

import time
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import msgspec
import pytest

from stream_rater.adapters.kafka.producers import Copier
from stream_rater.adapters.kafka.round_log import KafkaLog
from stream_rater.adapters.kafka.season_topic import topic_of
from stream_rater.adapters.kafka.topics import Admin
from stream_rater.adapters.redis.client import connect
from stream_rater.adapters.redis.metadata import INDEX, KEEP_S, VIEWS, drop_index
from stream_rater.config.errors import BadConfiguration
from stream_rater.config.settings import Settings
from stream_rater.contract.record import ANY_OFFSET, Record
from stream_rater.contract.season_ended import Message, message_of
from stream_rater.index.follower import LOOK_S, SeasonFollower
from tests import real
from tests.builders.indexes import LADDER, Index
from tests.contract.test_index import standings_of, summary_of

pytestmark = pytest.mark.integration


def messages_of(season: int) -> list[Message]:
    return [*map(message_of, standings_of(season)), message_of(summary_of(season))]


def publish(at: Settings, given: Sequence[Message]) -> None:
    """Write records to the topic, as a job does."""
    admin = Admin(at)
    topic = topic_of(at)
    if admin.partitions_if_any(topic) is None:
        admin.create_season_topic(topic)
    Copier(at, topic).write(Record(0, ANY_OFFSET, e.value, (), key=e.key) for e in given)


def test_seasons_are_followed(settings: real.SettingsFactory, tmp_path: Path) -> None:
    """Without a topic none; then once a season is whole. Another topic replaces them."""
    at, now, troubles = settings(), [0.0], list[str]()
    with closing(Index(tmp_path / "index")) as index:

        def follow(at: Settings, wanted: list[int]) -> None:
            with closing(KafkaLog(at)) as log:
                follower = SeasonFollower(log, index.writer, troubles.append, lambda: now[0])
                with closing(follower):
                    for _ in range(100):
                        now[0] += LOOK_S
                        follower.poll()
                        if [each.season for each in index.ask("kept", LADDER)] == wanted:
                            break
            assert [each.season for each in index.ask("kept", LADDER)] == wanted
            assert follower.caught_up and troubles == []

        follow(at, [])
        *standings, summary = messages_of(0)
        publish(at, standings)
        follow(at, [])
        publish(at, [summary, *messages_of(2)])
        follow(at, [0, 2])
        other = msgspec.structs.replace(at, topic_prefix=f"{at.topic_prefix}v2.")
        publish(other, messages_of(4))
        follow(other, [4])


def test_the_old_index_in_redis_is_deleted(settings: real.SettingsFactory) -> None:
    """Not while a process of an earlier release keeps it. Nothing else is deleted."""
    at, now_s = settings(), time.time()
    with connect(at) as client:
        client.zadd(VIEWS, {"views:eu": now_s - KEEP_S + 60})
        client.hset(f"{INDEX}:{{eu}}:players", "ann", "-")
        client.hset("{0}:position", "applied", 1)
        with pytest.raises(BadConfiguration, match="keeps the index in Redis: stop all of them"):
            drop_index(at, now_s)
        before = {*client.scan_iter("*")}
        assert len(before) >= 3
        assert drop_index(at, now_s + 120) == 2
        gone = before - {*client.scan_iter("*")}
        assert gone == {VIEWS.encode(), f"{INDEX}:{{eu}}:players".encode()}
