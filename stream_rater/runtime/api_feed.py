"""Server-sent events: what the follower reads goes to each client that follows its ladder."""

import asyncio
from collections.abc import AsyncIterator, Sequence

from stream_rater.adapters.index_follower import NewEvent
from stream_rater.serving.feed import BadEventId, Feed, FeedEvent
from stream_rater.serving.problems import Refused

MOST_FOLLOWERS = 500
MOST_WAITING = 1000
"""Events that wait for one client. Of more the client is told nothing: the stream ends, and the
client resumes it."""
HEARTBEAT_S = 15.0
RESET = b"event: reset\ndata: {}\n\n"
"""Told first if events between were missed: ask for the ratings anew."""


class _Client:
    """A client that follows a ladder."""

    def __init__(self, ladder: str) -> None:
        self.ladder = ladder
        self.waiting: asyncio.Queue[FeedEvent | None] = asyncio.Queue(MOST_WAITING + 1)
        """None: the stream ends."""
        self.late = False

    def give(self, event: FeedEvent | None) -> None:
        """The next event, or the end."""
        if self.late:
            return
        if event is not None and self.waiting.qsize() >= MOST_WAITING:
            event = None
        self.late = event is None
        self.waiting.put_nowait(event)


class Hub:
    """The feed and who follows it. It is for the event loop's thread."""

    def __init__(self) -> None:
        self._feed = Feed()
        self._clients: set[_Client] = set()
        self._told: list[int] = []
        """The next offset of each partition that clients were not told of."""
        self._closed = False

    def __len__(self) -> int:
        """How many clients follow."""
        return len(self._clients)

    def begin(self, positions: Sequence[int]) -> None:
        """Reading begins here, perhaps anew. Clients are told nothing twice."""
        self._feed.begin(positions)
        self._told += positions[len(self._told) :]

    def publish(self, events: Sequence[NewEvent]) -> None:
        """Events that are in the index now."""
        for each in events:
            event = self._feed.add(each.partition, each.offset, each.ladder, each.value)
            if each.offset < self._told[each.partition]:
                continue
            self._told[each.partition] = each.offset + 1
            for client in self._clients:
                if client.ladder == event.ladder:
                    client.give(event)

    def close(self) -> None:
        """End all streams, and begin none."""
        self._closed = True
        for client in self._clients:
            client.give(None)

    def follow(self, ladder: str, last_id: str | None) -> AsyncIterator[bytes]:
        """A ladder's events behind an id, or from now on, as a stream. Raises Refused."""
        if len(self._clients) >= MOST_FOLLOWERS or self._closed:
            raise Refused(
                "too-many-followers", f"{len(self)} clients follow changes here: ask another "
                "process, or later",
            )  # fmt: skip
        missed: list[FeedEvent] | None = []
        if last_id:
            try:
                missed = self._feed.since(last_id, ladder)
            except BadEventId as error:
                raise Refused("bad-event-id", str(error), "header.Last-Event-ID") from None
        client = _Client(ladder)
        self._clients.add(client)
        return self._stream(client, self._feed.id, missed)

    async def _stream(
        self, client: _Client, here: str, missed: list[FeedEvent] | None
    ) -> AsyncIterator[bytes]:
        try:
            if missed is None:
                yield RESET
            for event in missed or ():
                yield _written(event)
            yield b"id: %b\n\n" % here.encode()
            while True:
                try:
                    async with asyncio.timeout(HEARTBEAT_S):
                        event_or_end = await client.waiting.get()
                except TimeoutError:
                    yield b": still here\n\n"
                    continue
                if event_or_end is None:
                    return
                yield _written(event_or_end)
        finally:
            self._clients.discard(client)


def _written(event: FeedEvent) -> bytes:
    # JSON of one line: msgspec writes no line breaks, and escapes those in texts.
    return b"id: %b\nevent: rating-changed\ndata: %b\n\n" % (event.id.encode(), event.value)
