"""How long records wait, from their arrival in Kafka until they are finished.

One record of each poll is followed, the first: it has waited longest. That costs nothing, and under
little load it is every record. Arrival is the record's time in the log: the broker's clock where
the topic has LogAppendTime, as round-completed does, else the producer's.
"""

from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence

from stream_rater.contract.record import Record

MOST = 1000
"""Records followed at once, of a partition."""

Told = Callable[[float], None]


class Waits:
    """Follows records of one role; `clock` gives Unix seconds.

    `waited` is told the seconds of each that is finished, `ahead` by how much a record's time lay
    ahead of the clock when it was read: 0 unless the clocks disagree.
    """

    def __init__(self, waited: Told, ahead: Told, clock: Callable[[], float]) -> None:
        self._waited = waited
        self._ahead = ahead
        self._clock = clock
        self._followed: dict[int, deque[tuple[int, float]]] = {}
        """(offset, arrival), by partition."""
        ahead(0.0)

    def polled(self, records: Sequence[Record], next_offsets: Mapping[int, int]) -> None:
        """Follow the first of these, unless it is finished: read again for its round id only."""
        if not records:
            return
        first = records[0]
        if first.received_s <= 0.0 or first.offset < next_offsets.get(first.partition, 0):
            return
        self._ahead(max(0.0, first.received_s - self._clock()))
        followed = self._followed.setdefault(first.partition, deque())
        if len(followed) < MOST and (not followed or followed[-1][0] < first.offset):
            followed.append((first.offset, first.received_s))

    def finished(self, next_offsets: Mapping[int, int]) -> None:
        """All before these offsets is finished."""
        for partition, end in next_offsets.items():
            followed = self._followed.get(partition, ())
            while followed and followed[0][0] < end:
                self._waited(max(0.0, self._clock() - followed.popleft()[1]))

    def keep(self, partitions: Collection[int]) -> None:
        """Others finish what is in the other partitions."""
        self._followed = {p: each for p, each in self._followed.items() if p in partitions}
