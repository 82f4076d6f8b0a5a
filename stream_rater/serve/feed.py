"""Stores the last changes of all ladders, for clients that follow them.

The id of an event is the position in `rating-changed` after it: the next offset of each partition,
joined by dots. Any `serve` process can resume from it, as far back as its ring reaches.
"""

import itertools
from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

RING_SIZE = 10_000
"""The number of events that a process keeps: the last ones of all ladders together."""

MOST_PARTITIONS = 10_000


class FeedEvent(NamedTuple):
    """An event of `rating-changed`, as it was published."""

    partition: int
    offset: int  # The offset in `rating-changed`.
    ladder: str
    value: bytes  # The event, encoded as JSON.
    positions: tuple[int, ...]  # The position after the event.

    @property
    def id(self) -> str:
        """The id of that position. It is made only for those who follow the event's ladder."""
        return id_of(self.positions)


class BadEventId(ValueError):
    """The text is not an event id of this API."""


def id_of(positions: Sequence[int]) -> str:
    """Encode a position, the next offset of each partition, as an event id."""
    return ".".join(map(str, positions))


def positions_in(event_id: str) -> list[int]:
    """Decode an event id to its position, the next offset of each partition. Raises BadEventId if
    the text is not an event id."""
    parts = event_id.split(".")
    if len(parts) > MOST_PARTITIONS or not all(
        each.isascii() and each.isdecimal() and len(each) < 20 for each in parts
    ):
        raise BadEventId("send the last `id` as it came, or none")
    return [int(each) for each in parts]


def later(one: Sequence[int], other: Sequence[int]) -> list[int]:
    """The greater offset of the two in each partition. One may lack partitions that were added."""
    return [max(pair) for pair in itertools.zip_longest(one, other, fillvalue=0)]


class Feed:
    """A ring of the last events, for one thread."""

    def __init__(self, size: int = RING_SIZE) -> None:
        self._ring: deque[FeedEvent] = deque()
        self._size = size
        self.positions: list[int] = []
        """The next offset of each partition."""
        self._first: list[int] = []
        """For each partition, the offset from which on the ring has every event."""

    def begin(self, positions: Sequence[int]) -> None:
        """Empty the ring, and begin again at these positions: the next offset of each partition."""
        self._ring.clear()
        self.positions, self._first = list(positions), list(positions)

    def add(self, partition: int, offset: int, ladder: str, value: bytes) -> FeedEvent:
        """Add the next event of a partition to the ring, and return it."""
        self.positions[partition] = offset + 1
        event = FeedEvent(partition, offset, ladder, value, tuple(self.positions))
        self._ring.append(event)
        if len(self._ring) > self._size:
            oldest = self._ring.popleft()
            self._first[oldest.partition] = oldest.offset + 1
        return event

    def position_of(self, event_id: str) -> list[int]:
        """Decode an event id as `positions_in` does, with an offset for each partition that exists.
        Raises BadEventId."""
        return later(positions_in(event_id), [0] * len(self._first))

    def since(self, wanted: Sequence[int], ladder: str) -> list[FeedEvent] | None:
        """A ladder's events from a position on, in order; None if the ring no longer has all of
        them, or if the position has partitions that are not read yet."""
        if later(wanted, self._first) != wanted or len(wanted) > len(self._first):
            return None
        return [
            event
            for event in self._ring
            if event.ladder == ladder and event.offset >= wanted[event.partition]
        ]
