"""Reads the log of a ladder on Kafka for a command, more than once if necessary."""

from collections.abc import Callable, Iterator, Sequence
from functools import cache

from stream_rater.adapters.kafka.ladder_events import disagreement, read_ladder_events
from stream_rater.adapters.kafka.reader import read_partition
from stream_rater.adapters.kafka.topics import Admin
from stream_rater.adapters.sqlite.reading import data_file
from stream_rater.columns.sharding import partition_of
from stream_rater.config.errors import BadConfiguration, Failed
from stream_rater.config.ladders import TEMPLATE, Ladders
from stream_rater.config.settings import Settings
from stream_rater.contract.record import Record
from stream_rater.runtime.progress import track

BY_FILE = "give a file that has them, by --file"


def ends_of(admin: Admin) -> Callable[[str], int]:
    """A function that gives the end offset of a ladder's partition, as of its first call."""

    @cache
    def ends() -> Sequence[int]:
        (partitions,) = admin.partitions_of(admin.topics.rounds)
        return admin.ends(admin.topics.rounds, partitions)

    return lambda ladder: ends()[partition_of(ladder, len(ends()))]


def ends_now(settings: Settings) -> Callable[[str], int]:
    """A function that gives the end offset of a ladder's partition in the log of the settings."""
    if not settings.data:
        return ends_of(Admin(settings))
    with data_file(settings.data) as file:
        ends = file.ends()
    return lambda ladder: ends[partition_of(ladder, len(ends))]


def live_log(
    settings: Settings, ladders: Ladders, ladder: str, cure: str = BY_FILE
) -> tuple[Callable[[], Iterator[Record]], int, int]:
    """Return a function, the ladder's partition, and the number of partitions. At each call, the
    function yields all records that the partition has now. It does not read later records.

    `cure`: the way out if rounds were deleted. Raises BadConfiguration if the ladders file is not
    that of the workers, and Failed with the cure if rounds were deleted.
    """
    if settings.data:
        return _log_in_file(settings, ladders, ladder)
    admin = Admin(settings)
    topic = admin.topics.rounds
    (partitions,) = admin.partitions_of(topic)
    if why := disagreement(settings, ladders, read_ladder_events(settings, admin), only=ladder):
        raise BadConfiguration(f"{why}: nothing was rated")
    partition = partition_of(ladder, partitions)
    start = admin.starts(topic, partitions)[partition]
    end = admin.stable_ends(topic, partitions)[partition]
    if start > 0:
        raise Failed(
            f"{topic}, partition {partition} starts at {start}: the rounds before it were deleted, "
            f"and ratings cannot be computed without them: {cure}"
        )

    def read_log() -> Iterator[Record]:
        return track(read_partition(settings, topic, partition, end), topic, end)

    return read_log, partition, partitions


def _log_in_file(
    settings: Settings, ladders: Ladders, ladder: str
) -> tuple[Callable[[], Iterator[Record]], int, int]:
    """`live_log` of a data file."""
    with data_file(settings.data) as file:
        if why := disagreement(settings, ladders, file.ladder_log(), only=ladder):
            raise BadConfiguration(f"{why}: nothing was rated")
        partition, partitions = partition_of(ladder, file.partitions), file.partitions
        end = file.ends()[partition]

    def read_log() -> Iterator[Record]:
        with data_file(settings.data) as file:
            yield from track(file.rounds(partition, end), settings.data, end)

    return read_log, partition, partitions


def known_ladders(settings: Settings, ladders: Ladders) -> list[str]:
    """The ladders that were rated, and those that the ladders file names."""
    if settings.data:
        with data_file(settings.data) as file:
            rated = file.ladder_log().ladders
    else:
        rated = read_ladder_events(settings, Admin(settings)).ladders
    return sorted({*rated, *ladders.ladders} - {TEMPLATE})
