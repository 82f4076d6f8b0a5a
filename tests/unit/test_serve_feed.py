"""Changes for clients, each once and in order; and long questions, in turns and limited."""

import asyncio
import functools
import threading
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from stream_rater.index.log import NewEvent
from stream_rater.serve.http import event_stream
from stream_rater.serve.http.event_stream import HEARTBEAT_S, MOST_WAITING, RING_SIZE, Feed, Hub
from stream_rater.serve.http.limits import FairExecutor, client_address
from stream_rater.serve.problems import Refused


def events(partition: int, *offsets: int, ladder: str = "l") -> list[NewEvent]:
    """Events whose JSON is their place."""
    return [NewEvent(partition, o, ladder, b"%d:%d" % (partition, o)) for o in offsets]


def in_a_loop(story: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:

    @functools.wraps(story)
    def test(*given: Any, **named: Any) -> None:
        asyncio.run(story(*given, **named))

    return test


def a_hub(*positions: int) -> Hub:
    """A hub whose reading has begun at these positions, or at the start of one partition."""
    hub = Hub()
    hub.begin(positions or [0])
    return hub


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


def _short(text: bytes) -> str:
    lines = dict(line.split(": ", 1) for line in text.decode().split("\n") if ": " in line)
    if lines.get("event") == "reset":
        return "reset"
    return f"{lines['data']}@{lines['id']}" if "data" in lines else f"id:{lines['id']}"


@in_a_loop
async def test_a_client_that_is_ahead_of_this_process() -> None:
    """Nothing is sent again, no id goes back, and a cut-off client continues where it was."""
    hub = a_hub(100, 50)
    client = Followed(hub, "103.40")
    assert await client.read() == ["reset", "id:100.50"]  # 40 to 50 may have been missed
    client = Followed(hub, "103.50")
    assert await client.read() == ["id:103.50"]
    hub.publish([*events(0, 100, 101), *events(1, 50), *events(0, 102, 103, 104)])
    assert await client.read() == ["1:50@103.51", "0:103@104.51", "0:104@105.51"]
    hub = a_hub(0, 0)
    hub.publish([*events(1, 0), *events(0, 0, 1), *events(1, 1)])
    client = Followed(hub, "1.0")
    assert await client.read() == ["1:0@1.1", "0:1@2.1", "1:1@2.2", "id:2.2"]


@in_a_loop
async def test_reading_that_begins_again() -> None:
    """No client gets an event twice, and none misses one. Ids do not go back."""
    hub = a_hub()
    old = Followed(hub)
    hub.publish(events(0, 0, 1, 2, 3))
    hub.begin([0])
    back, new = Followed(hub, "2"), Followed(hub)
    hub.publish(events(0, 0, 1, 2, 3))
    hub.publish(events(0, 4))
    assert await old.read() == ["id:0", "0:0@1", "0:1@2", "0:2@3", "0:3@4", "0:4@5"]
    assert await back.read() == ["id:2", "0:2@3", "0:3@4", "0:4@5"]
    assert await new.read() == ["id:4", "0:4@5"]
    hub = a_hub(0, 0)
    client = Followed(hub)
    hub.publish(events(0, 0, 1))
    hub.begin([0, 0])
    hub.publish([*events(1, 0), *events(0, 0, 1, 2), *events(1, 1)])
    reported = await client.read()
    assert reported == ["id:0.0", "0:0@1.0", "0:1@2.0", "1:0@2.1", "0:2@3.1", "1:1@3.2"]


@in_a_loop
async def test_an_id_beyond_the_end_of_the_topic() -> None:
    """It is of another topic: the client begins again, once. A client ahead of us does not."""
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
    """But ids count them. Who hangs up before anything was asked for holds no place."""
    hub = a_hub()
    client = Followed(hub)
    hub.publish([*events(0, 0, ladder="other"), *events(0, 1)])
    assert await client.read() == ["id:0", "0:1@2"]
    hub = a_hub()
    stream = hub.follow("l", None)
    assert len(hub) == 1
    del stream
    assert not len(hub)


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
    hub = a_hub()
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
    hub = a_hub()
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


# --- questions that take long: nobody pays for those of another -----------------------------------


class Queue:
    """An executor of one thread and a queue of four; work waits until it is `free`."""

    def __init__(self) -> None:
        self.turns, self.free = FairExecutor("test", 1, 4), threading.Event()
        self.done = list[str]()

    def ask(self, who: str, *names: str) -> list[asyncio.Task[str]]:
        return [asyncio.create_task(self._asked(who, name)) for name in names]

    async def _asked(self, who: str, name: str) -> str:
        client_address.set(who)
        return await self.turns.run(lambda: self._work(name))

    def _work(self, name: str) -> str:
        self.free.wait(30.0)
        self.done.append(name)
        return name


async def begun() -> None:
    """Let all tasks come as far as they can."""
    for _ in range(5):
        await asyncio.sleep(0)


@in_a_loop
async def test_addresses_take_turns() -> None:
    """Whoever asks much waits for itself: another one's question comes after one of theirs."""
    queue = Queue()
    asked = queue.ask("a", "a0", "a1", "a2", "a3")
    await begun()
    asked += queue.ask("b", "b0")
    await begun()
    queue.free.set()
    assert await asyncio.gather(*asked) == ["a0", "a1", "a2", "a3", "b0"]
    assert queue.done == ["a0", "a1", "b0", "a2", "a3"]


@in_a_loop
async def test_a_full_queue_refuses_the_greediest() -> None:
    """One of its questions is computed and four wait. Others have half of what is left."""
    queue = Queue()
    greedy = queue.ask("a", "a0", "a1", "a2", "a3", "a4", "a5")
    await begun()
    with pytest.raises(Refused, match=r"5 questions .*try again") as refused:
        await greedy.pop()
    assert refused.value.problem.code == "busy"
    assert int(refused.value.headers["Retry-After"]) >= 1
    others = queue.ask("b", "b0", "b1")
    await begun()
    with pytest.raises(Refused):
        await queue.ask("b", "b2")[0]
    others += queue.ask("c", "c0")
    queue.free.set()
    assert len(await asyncio.gather(*greedy, *others)) == len(queue.done) == 8


@in_a_loop
async def test_a_question_that_was_given_up_takes_no_turn() -> None:
    """A question for which nobody waits any more is dropped, and there is room again."""
    queue = Queue()
    asked = queue.ask("a", "a0", "a1", "a2", "a3", "a4")
    await begun()
    asked[2].cancel()
    await begun()
    more = queue.ask("a", "more")
    await begun()
    queue.free.set()
    await more[0]
    assert queue.done == ["a0", "a1", "a3", "a4", "more"]


@in_a_loop
async def test_what_goes_wrong_is_reported_and_the_next_has_its_turn() -> None:
    queue = Queue()
    queue.free.set()
    for _ in range(3):
        with pytest.raises(ZeroDivisionError):
            await queue.turns.run(lambda: 1 / 0)
    assert await queue.ask("a", "next")[0] == "next"
