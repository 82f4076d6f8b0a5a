"""The places where a log and its results are kept: Kafka and Redis, or a data file. `port` says
what a place does. `opened` returns the place that the settings name. Tests have one in memory."""

import sqlite3
from contextlib import closing, suppress
from pathlib import Path

from stream_rater.config.errors import named_failures
from stream_rater.config.files import ladders_of_settings
from stream_rater.config.ladders import Ladders
from stream_rater.config.settings import Settings
from stream_rater.contract.errors import Denied, StoreTrouble
from stream_rater.index.log import FollowedLog
from stream_rater.places.port import Place

COMMAND_TIMEOUT_S = 30.0
"""The time-out of a command's requests. A command ends if one fails, so it waits longer for a busy
broker than a service does, which asks again."""


def place_of(
    settings: Settings, *, writes: bool = False, timeout_s: float = COMMAND_TIMEOUT_S
) -> Place:
    """The place that the settings name. Makes no request to a server, unless Redis is a cluster.
    `writes`: lock a data file, so that no process rates by it. Raises Unusable or Denied."""
    if settings.data:
        from stream_rater.places.file import FilePlace

        return FilePlace.of(settings, Path(settings.data), writes=writes)
    from stream_rater.places.kafka import KafkaPlace

    return KafkaPlace(settings, timeout_s)


def opened(settings: Settings, *, writes: bool = False) -> "closing[Place]":
    """The same as `place_of`, closed at the end of the block."""
    return closing(place_of(settings, writes=writes))


def ladders_of(settings: Settings) -> Ladders:
    """The ladders of the place: those of the ladders file that the settings name. Without one, a
    data file has those with which its first round was rated. Raises BadConfiguration or Failed."""
    if settings.data and not settings.ladders:
        from stream_rater.places.file import ladders_within

        with named_failures():
            return ladders_within(Path(settings.data))
    return ladders_of_settings(settings)


def log_to_follow(settings: Settings, data: Path | None = None) -> FollowedLog:
    """The log that an index follows: that of a data file, or that of the settings."""
    if data is not None:
        from stream_rater.adapters.sqlite.followed import FileLog

        return FileLog(data)
    from stream_rater.adapters.kafka.round_log import KafkaLog

    return KafkaLog(settings)


def check_not_half(settings: Settings) -> None:
    """Raise LayoutMismatch if a move to this place is unfinished. Without access to Redis, returns
    without a check: `serve` needs no Redis, and may have no rights there."""
    from stream_rater.adapters.redis.store import RedisStore

    with suppress(Denied, StoreTrouble), closing(RedisStore(settings)) as store:
        store.layout.check_not_half()


def is_data_file(connection: sqlite3.Connection) -> bool:
    """Whether a connection is to a data file."""
    from stream_rater.adapters.sqlite.schema import APPLICATION_ID

    return bool(connection.execute("PRAGMA application_id").fetchone() == (APPLICATION_ID,))
