"""Which rounds of a log on Kafka the workers have not finished."""

import time
from collections.abc import Mapping
from contextlib import closing

from stream_rater.adapters.kafka.reader import Reader
from stream_rater.adapters.kafka.topics import Admin
from stream_rater.config.settings import Settings
from stream_rater.contract.events import ESTIMATORS

READ_S = 30.0  # How long one partition is read.
LOOK_S = 1.0  # The longest time that one call waits for a record.


class UnfinishedRounds:
    """Which offsets of `round-completed` the workers have not finished.

    The ends of a game backend's transactions take offsets, and so do the records that it aborted.
    No worker commits those at the end of a log, and only a reader sees what is a round. So
    partitions with offsets left are read, but only while nothing moves: reading costs a busy
    broker more than the answer is worth.
    """

    def __init__(self, settings: Settings, admin: Admin) -> None:
        self._settings, self._admin = settings, admin
        self._last: dict[int, range] | None = None
        """The offsets that were left at the last look."""

    def look(self, ends: Mapping[int, int]) -> dict[int, range]:
        """By partition, the offsets before these ends that the estimators have not committed;
        nothing if no partition has a record among them.

        If these offsets are those of the last look, or this is the first one, partitions are read,
        one by one, until a first record is found. Those without one are left out. Nothing can be
        read behind the beginning of an open transaction; there, all offsets count, and so they do
        where reading takes too long. Waits for transactions of the workers. Raises LogTrouble or
        Denied.
        """
        found = self._admin.left(ESTIMATORS, self._admin.topics.rounds, ends)
        left = {p: each for p, each in found.items() if each}
        has_moved = self._last not in (None, left)
        self._last = left
        return left if has_moved or not left else self._with_records(left)

    def _with_records(self, left: Mapping[int, range]) -> dict[int, range]:
        topic, found = self._admin.topics.rounds, dict(left)
        stable = self._admin.stable_ends(topic, max(left) + 1)
        with closing(Reader(self._settings, topic, placeholders=True)) as reader:
            for p, each in left.items():
                if stable[p] < each.stop or _may_have_record(reader, p, each):
                    break
                del found[p]
        return found


def _may_have_record(reader: Reader, partition: int, offsets: range) -> bool:
    """Whether one of these offsets has a record, or could not be read in READ_S."""
    reader.start_at({partition: offsets.start})
    until_s = time.monotonic() + READ_S
    while time.monotonic() < until_s:
        if records := reader.read(LOOK_S, at_most=1):
            return records[0].offset < offsets.stop
        if reader.ends.get(partition, -1) >= offsets.stop:
            return False
    return True
