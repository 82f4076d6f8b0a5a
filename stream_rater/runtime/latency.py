"""Measures the latency of records, from their arrival in Kafka until they are finished.

The first record of each poll is followed, because it has waited longest. That costs nothing, and
under little load it is every record. A record arrives at its time in the log: by the broker's clock
if the topic has LogAppendTime, as round-completed does, else by the producer's.
"""

from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence

from stream_rater.contract.record import Record

MOST_FOLLOWED = 1000
"""The number of records of a partition that are followed at the same time."""

Observe = Callable[[float], None]


class LatencyTracker:
    """Follows records of one role; `clock` gives Unix seconds.

    `waited` is called with the seconds that each finished record waited. `ahead` is called with the
    seconds by which a record's time was ahead of the clock when it was read: 0 unless the clocks
    disagree.
    """

    def __init__(self, waited: Observe, ahead: Observe, clock: Callable[[], float]) -> None:
        self._waited = waited
        self._ahead = ahead
        self._clock = clock
        self._followed: dict[int, deque[tuple[int, float]]] = {}
        """By partition, (offset, arrival) of the followed records."""
        ahead(0.0)

    def polled(self, records: Sequence[Record], next_offsets: Mapping[int, int]) -> None:
        """Follow the first of these records, unless it is finished and was only read again for its
        round id."""
        if not records:
            return
        first = records[0]
        if first.received_s <= 0.0 or first.offset < next_offsets.get(first.partition, 0):
            return
        self._ahead(max(0.0, first.received_s - self._clock()))
        followed = self._followed.setdefault(first.partition, deque())
        if len(followed) < MOST_FOLLOWED and (not followed or followed[-1][0] < first.offset):
            followed.append((first.offset, first.received_s))

    def finished(self, next_offsets: Mapping[int, int]) -> None:
        """All records before these offsets are finished."""
        for partition, end in next_offsets.items():
            followed = self._followed.get(partition, ())
            while followed and followed[0][0] < end:
                self._waited(max(0.0, self._clock() - followed.popleft()[1]))

    def keep_only(self, partitions: Collection[int]) -> None:
        """Forget the records of all other partitions: other workers finish them."""
        self._followed = {p: each for p, each in self._followed.items() if p in partitions}
