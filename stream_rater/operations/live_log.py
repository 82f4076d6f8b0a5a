"""Reads the log of a ladder for a command, more than once if necessary."""

from collections.abc import Callable, Iterator

from stream_rater.columns.sharding import partition_of
from stream_rater.config.errors import Failed
from stream_rater.config.ladders import TEMPLATE, Ladders
from stream_rater.contract.record import Record
from stream_rater.places import checks
from stream_rater.places.port import Place
from stream_rater.runtime.progress import track

BY_FILE = "give a file that has them, by --file"


def live_log(
    place: Place, ladders: Ladders, ladder: str, cure: str = BY_FILE
) -> tuple[Callable[[], Iterator[Record]], int]:
    """A function, and the ladder's partition. At each call, the function yields all records that
    the partition has now. It does not read later records.

    `cure`: the way out if rounds were deleted. Raises BadConfiguration if the ladders file is not
    that of the workers, and Failed with the cure if rounds were deleted.
    """
    checks.agreed(place, ladders, "nothing was rated", only=ladder)
    partition = partition_of(ladder, place.partitions)
    if (start := place.starts()[partition]) > 0:
        raise Failed(
            f"{place.name}, partition {partition} starts at {start}: the rounds before it were "
            f"deleted, and ratings cannot be computed without them: {cure}"
        )
    end = place.stable_end(partition)
    return lambda: track(place.rounds(partition, end), place.name, end), partition


def known_ladders(place: Place, ladders: Ladders) -> list[str]:
    """The ladders that were rated, and those that the ladders file names."""
    return sorted({*place.ladder_log().ladders, *ladders.ladders} - {TEMPLATE})
