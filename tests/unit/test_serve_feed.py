"""Changes for clients that follow: each is sent once, in order, wherever a client was before."""

import asyncio
import functools
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from stream_rater.serve.feed import RING_SIZE, Feed
from stream_rater.serve.http import event_stream
from stream_rater.serve.http.event_stream import HEARTBEAT_S, MOST_WAITING, Hub
from stream_rater.serve.index.follower import NewEvent
from stream_rater.serve.problems import Refused


def events(partition: int, *offsets: int, ladder: str = "l") -> list[NewEvent]:
    """Events whose JSON is their place."""
    return [NewEvent(partition, o, ladder, b"%d:%d" % (partition, o)) for o in offsets]


def in_a_loop(story: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """A test that runs in an event loop."""

    @functools.wraps(story)
    def test(*given: Any, **named: Any) -> None:
        asyncio.run(story(*given, **named))

    return test


class Followed:
    """A client that reads all that there is when asked, and its stream."""

    def __init__(self, hub: Hub, last_id: str | None = None, who: str = "") -> None:
        self._stream = hub.follow("l", last_id, who)
        self._task: asyncio.Task[bytes] | None = None

    async def read(self) -> list[str]:
        """All that is there. An unfinished wait is kept: to cancel it would end the stream."""
        found = list[str]()
        while True:
            if self._task is None:
                self._task = asyncio.ensure_future(anext(self._stream))
            for _ in range(3):
                await asyncio.sleep(0)
            if not self._task.done():
                return found
            task, self._task = self._task, None
            try:
                found.append(_short(task.result()))
            except StopAsyncIteration:
                return [*found, "end"]

    async def close(self) -> None:
        """Hang up."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])


def _short(text: bytes) -> str:
    lines = dict(line.split(": ", 1) for line in text.decode().split("\n") if ": " in line)
    if lines.get("event") == "reset":
        return "reset"
    return f"{lines['data']}@{lines['id']}" if "data" in lines else f"id:{lines['id']}"


@in_a_loop
async def test_a_client_that_is_ahead_of_this_process() -> None:
    """Another process has sent it more. What it knows is not sent again, and no id is lower in any
    partition than its own."""
    hub = Hub()
    hub.begin([100, 50])
    client = Followed(hub, "103.40")
    assert await client.read() == ["reset", "id:100.50"]  # 40 to 50 may have been missed
    await client.close()
    client = Followed(hub, "103.50")
    assert await client.read() == ["id:103.50"]
    hub.publish([*events(0, 100, 101), *events(1, 50), *events(0, 102, 103, 104)])
    assert await client.read() == ["1:50@103.51", "0:103@104.51", "0:104@105.51"]


@in_a_loop
async def test_what_was_missed_has_ids_that_do_not_go_back() -> None:
    """A client that is cut off while it gets what it missed continues where it was, in each
    partition."""
    hub = Hub()
    hub.begin([0, 0])
    hub.publish([*events(1, 0), *events(0, 0, 1), *events(1, 1)])
    client = Followed(hub, "1.0")
    assert await client.read() == ["1:0@1.1", "0:1@2.1", "1:1@2.2", "id:2.2"]


@in_a_loop
async def test_reading_that_begins_again() -> None:
    """No client gets an event twice, and none misses an event in between. One client follows all
    the time, one comes back during the second reading, and one is new."""
    hub = Hub()
    hub.begin([0])
    old = Followed(hub)
    hub.publish(events(0, 0, 1, 2, 3))
    hub.begin([0])
    back, new = Followed(hub, "2"), Followed(hub)
    hub.publish(events(0, 0, 1, 2, 3))
    hub.publish(events(0, 4))
    assert await old.read() == ["id:0", "0:0@1", "0:1@2", "0:2@3", "0:3@4", "0:4@5"]
    assert await back.read() == ["id:2", "0:2@3", "0:3@4", "0:4@5"]
    assert await new.read() == ["id:4", "0:4@5"]


@in_a_loop
async def test_ids_do_not_go_back_when_reading_begins_again() -> None:
    """Another partition has an event while this one is behind what the client got."""
    hub = Hub()
    hub.begin([0, 0])
    client = Followed(hub)
    hub.publish(events(0, 0, 1))
    hub.begin([0, 0])
    hub.publish([*events(1, 0), *events(0, 0, 1, 2), *events(1, 1)])
    reported = await client.read()
    assert reported == ["id:0.0", "0:0@1.0", "0:1@2.0", "1:0@2.1", "0:2@3.1", "1:1@3.2"]


@in_a_loop
async def test_an_id_beyond_the_end_of_the_topic() -> None:
    """It is of another topic. Once the end must have been seen, the client begins again, once. A
    client that is ahead of a process that lags does not."""
    now = [0.0]
    hub = Hub(lambda: now[0])
    hub.begin([0])
    lost, ahead = Followed(hub, "1000"), Followed(hub, "10")
    hub.checkpointed([10])
    assert await lost.read() == ["id:1000"]
    now[0] = HEARTBEAT_S
    hub.checkpointed([10])
    hub.checkpointed([10])
    assert await lost.read() == ["reset", "id:0"]
    assert await ahead.read() == ["id:10"]
    hub.publish(events(0, 3, 10))
    assert await lost.read() == ["0:3@4", "0:10@11"]
    assert await ahead.read() == ["0:10@11"]


@in_a_loop
async def test_other_ladders_are_not_streamed() -> None:
    """But ids count them."""
    hub = Hub()
    hub.begin([0])
    client = Followed(hub)
    hub.publish([*events(0, 0, ladder="other"), *events(0, 1)])
    assert await client.read() == ["id:0", "0:1@2"]


def test_the_ring_reaches_back_so_far() -> None:
    """To the event after the one that was dropped last, and no further."""
    feed = Feed(3)
    feed.begin([0])
    for offset in range(5):
        feed.add(0, offset, "l", b"")
    assert feed.since([1], "l") is None
    assert [each.offset for each in feed.since([2], "l") or ()] == [2, 3, 4]
    assert feed.since([5], "l") == []


@in_a_loop
async def test_who_takes_too_little_is_cut_off() -> None:
    """After MOST_WAITING events; of what was missed before, more may come than that."""
    hub = Hub()
    hub.begin([0])
    hub.publish(events(0, *range(MOST_WAITING + 10)))
    client = Followed(hub, "0")
    assert len(await client.read()) == MOST_WAITING + 11
    hub.publish(events(0, *range(MOST_WAITING + 10, 2 * MOST_WAITING + 10)))
    assert len(await client.read()) == MOST_WAITING
    hub.publish(events(0, *range(2 * MOST_WAITING + 10, 3 * MOST_WAITING + 11)))
    found = await client.read()
    assert (len(found), found[-1]) == (MOST_WAITING + 1, "end") and not len(hub)
    assert RING_SIZE > 3 * MOST_WAITING


@in_a_loop
async def test_places_for_followers_are_shared(monkeypatch: pytest.MonkeyPatch) -> None:
    """If there are none, the address with the most gives up its newest for one with fewer."""
    monkeypatch.setattr(event_stream, "MOST_FOLLOWERS", 3)
    hub = Hub()
    hub.begin([0])
    greedy = [Followed(hub, who="a") for _ in range(3)]
    with pytest.raises(Refused) as refused:
        Followed(hub, who="a")
    assert refused.value.problem.code == "too-many-followers"
    other = Followed(hub, who="b")
    assert await greedy[2].read() == ["id:0", "end"]
    with pytest.raises(Refused):
        Followed(hub, who="b")  # both would have two, or one
    assert await greedy[1].read() == await other.read() == ["id:0"]
    assert len(hub) == 3


@in_a_loop
async def test_who_hangs_up_at_once_holds_no_place() -> None:
    """Though nothing of the stream was ever asked for."""
    hub = Hub()
    hub.begin([0])
    stream = hub.follow("l", None)
    assert len(hub) == 1
    del stream
    assert not len(hub)
