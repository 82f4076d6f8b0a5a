"""Sends each event of `rating-changed`, as a server-sent event, to the clients that follow its
ladder. The id of an event is the position in `rating-changed` after it: the next offset of each
partition, joined by dots. A client can resume from it at any `serve` process, as far back as the
process keeps events."""

import asyncio
import itertools
import operator
import time
import weakref
from collections import Counter, deque
from collections.abc import AsyncIterator, Callable, Sequence
from functools import lru_cache
from typing import NamedTuple

from stream_rater.index.log import NewEvent
from stream_rater.serve.problems import Refused

MOST_FOLLOWERS = 500
MOST_WAITING = 1000  # The most events that wait for a client. With more, the stream ends.
HEARTBEAT_S = 15.0
RESET = b"event: reset\ndata: {}\n\n"
"""Sent if the client missed events that are no longer kept. It must ask for ratings again."""


RING_SIZE = 10_000  # The most events that a process keeps: the newest of all ladders.
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
    """Decode an event id to its position, the next offset of each partition. Raises BadEventId."""
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
        self.positions: list[int] = []  # The next offset of each partition.
        self._first: list[int] = []  # By partition, the ring has all events from here on.

    def begin(self, positions: Sequence[int]) -> None:
        """Empty the ring. The next event of each partition is at these positions."""
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
        """The same as `positions_in`, but with an offset for each partition that exists."""
        return later(positions_in(event_id), [0] * len(self._first))

    def since(self, wanted: Sequence[int], ladder: str) -> list[FeedEvent] | None:
        """A ladder's events from a position on, in order; None if the ring no longer has all of
        them, or if the position has partitions that are not read yet."""
        if later(wanted, self._first) != wanted or len(wanted) > len(self._first):
            return None
        own = (event for event in self._ring if event.ladder == ladder)
        return [event for event in own if event.offset >= wanted[event.partition]]


class _Client:
    """A client that follows a ladder."""

    def __init__(self, ladder: str, address: str, next_offsets: Sequence[int]) -> None:
        self.ladder, self.address = ladder, address
        self.next_offsets = list(next_offsets)  # By partition, the next offset to send.
        self.queue: asyncio.Queue[bytes | None] = asyncio.Queue(MOST_WAITING + 1)
        """The texts to send; None ends the stream."""
        self.ended = False
        self.ahead = True  # Whether the client may know events that this process has not read.

    def publish(self, event: FeedEvent, positions: Sequence[int]) -> None:
        """Queue an event, unless the client knows it. `positions`: the position after the event."""
        if event.offset < self.next_offsets[event.partition]:
            return
        self.next_offsets[event.partition] = event.offset + 1
        if self.ahead:
            pairs = zip(self.next_offsets, positions, strict=True)
            self.ahead = any(mine > at for mine, at in pairs)
        place = id_of(later(self.next_offsets, positions)) if self.ahead else event.id
        self.put(_event_message(event, place))

    def put(self, text: bytes | None) -> None:
        """Queue a text; None ends the stream. Too many waiting texts end it, too."""
        if self.ended:
            return
        if text is not None and self.queue.qsize() >= MOST_WAITING:
            text = None
        self.ended = text is None
        self.queue.put_nowait(text)


class Hub:
    """The feed and the clients that follow it. It is for the event loop's thread."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._feed, self._clock = Feed(), clock
        self._clients: dict[_Client, float] = {}  # The clients in order of arrival, with its time.
        self._published: list[int] = []  # By partition, the next offset to publish.
        self._closed = False

    def __len__(self) -> int:
        """The number of clients."""
        return len(self._clients)

    def begin(self, positions: Sequence[int]) -> None:
        """Record that reading begins at these positions. It may begin again, maybe with more
        partitions: no client receives an event twice, and one that misses some receives RESET."""
        self._feed.begin(positions)
        added = [0] * (len(positions) - len(self._published))  # nothing of them was published
        self._published += added if self._published else positions
        for client in self._clients:
            client.ahead = True
            client.next_offsets = later(client.next_offsets, self._published)
            if any(map(operator.lt, client.next_offsets, positions)):
                self._reset(client)

    def publish(self, events: Sequence[NewEvent]) -> None:
        """Send events that are in the index now."""
        for each in events:
            event = self._feed.add(each.partition, each.offset, each.ladder, each.value)
            if each.offset >= self._published[each.partition]:
                self._published[each.partition] = each.offset + 1
            for client in self._clients:
                if client.ladder == event.ladder:
                    client.publish(event, self._feed.positions)

    def checkpointed(self, ends: Sequence[int]) -> None:
        """Record that the partitions end at these offsets, or did so recently. If a client that
        arrived long ago claims to know later events, its id is from another topic: it receives
        RESET. A client that is only ahead of this process waits."""
        long_ago_s = self._clock() - HEARTBEAT_S
        for client, arrived_s in self._clients.items():
            if arrived_s > long_ago_s:
                break
            if client.ahead and any(map(operator.gt, client.next_offsets, ends)):
                self._reset(client)

    def _reset(self, client: _Client) -> None:
        """Let a client ask for the ratings again, and go on from now."""
        client.next_offsets = self._live_position()
        client.put(RESET)
        client.put(_id_message(client.next_offsets))

    def close(self) -> None:
        """End all streams, and accept no more."""
        self._closed = True
        for client in self._clients:
            client.put(None)

    def follow(self, ladder: str, last_id: str | None, address: str = "") -> AsyncIterator[bytes]:
        """Stream a ladder's events after `last_id`; without it, from now on. Raises Refused."""
        if self._closed or not self._has_room(address):
            raise Refused(
                "too-many-followers", f"{len(self)} clients follow changes here: ask another "
                "process, or later",
            )  # fmt: skip
        live, first = self._live_position(), list[bytes]()
        client = _Client(ladder, address, live)
        if last_id:
            try:
                wanted = self._feed.position_of(last_id)
            except BadEventId as error:
                raise Refused("bad-event-id", str(error), "header.Last-Event-ID") from None
            missed = self._feed.since(wanted, ladder)
            if missed is None:
                first.append(RESET)
            else:
                # A greater id: this process lags behind the one that gave it.
                first += [
                    _event_message(each, id_of(later(wanted, each.positions))) for each in missed
                ]
                client.next_offsets = later(wanted, self._feed.positions)
        first.append(_id_message(client.next_offsets))
        self._clients[client] = self._clock()
        stream = self._stream(client, first)
        # If the client hangs up at once, nothing of `_stream` runs.
        weakref.finalize(stream, self._clients.pop, client, None)
        return stream

    def _live_position(self) -> list[int]:
        """The position from which a new client receives events."""
        return later(self._feed.positions, self._published)

    def _has_room(self, address: str) -> bool:
        """Whether one more client may follow. To make room, the newest stream of the address with
        the most clients ends, if these are at least two more than this address has."""
        if len(self._clients) < MOST_FOLLOWERS:
            return True
        counts = Counter(client.address for client in self._clients)
        greediest, most = counts.most_common(1)[0]
        if most <= counts[address] + 1:
            return False
        newest = next(each for each in reversed(self._clients) if each.address == greediest)
        newest.put(None)
        del self._clients[newest]
        return True

    async def _stream(self, client: _Client, first: Sequence[bytes]) -> AsyncIterator[bytes]:
        try:
            for text in first:
                yield text
            while True:
                try:
                    async with asyncio.timeout(HEARTBEAT_S):
                        text_or_end = await client.queue.get()
                except TimeoutError:
                    yield b": still here\n\n"
                    continue
                if text_or_end is None:
                    return
                yield text_or_end
        finally:
            self._clients.pop(client, None)


def _id_message(positions: Sequence[int]) -> bytes:
    return b"id: %b\n\n" % id_of(positions).encode()


@lru_cache(maxsize=16)  # so that the clients of a ladder share it
def _event_message(event: FeedEvent, event_id: str) -> bytes:
    # JSON of one line: msgspec writes no line breaks, and escapes those in texts.
    return b"id: %b\nevent: rating-changed\ndata: %b\n\n" % (event_id.encode(), event.value)
