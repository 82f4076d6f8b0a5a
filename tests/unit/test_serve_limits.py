"""Questions that take long: by turns, no more than so many, and nobody pays for another's."""

import asyncio
import threading
from collections.abc import Awaitable, Callable

import pytest

from stream_rater.serve.http.limits import FairExecutor, client_address
from stream_rater.serve.problems import Refused

Story = Callable[[FairExecutor, threading.Event, list[str]], Awaitable[None]]


def played(story: Story, most: int = 4, threads: int = 1) -> list[str]:
    """What was worked on, in order; work by the name of `hold` waits for the event."""

    async def play() -> list[str]:
        turns, free, done = FairExecutor("test", threads, most), threading.Event(), list[str]()
        try:
            await story(turns, free, done)
        finally:
            free.set()
        return done

    return asyncio.run(play())


def ask(
    turns: FairExecutor, who: str, name: str, free: threading.Event, done: list[str]
) -> asyncio.Task[str]:
    """A question of an address, as a task."""

    def work() -> str:
        free.wait(30.0)
        done.append(name)
        return name

    async def asked() -> str:
        client_address.set(who)
        return await turns.run(work)

    return asyncio.create_task(asked())


async def begun() -> None:
    """Let all tasks come as far as they can."""
    for _ in range(5):
        await asyncio.sleep(0)


def test_addresses_take_turns() -> None:
    """Whoever asks much waits for itself: another one's question comes after one of theirs."""

    async def story(turns: FairExecutor, free: threading.Event, done: list[str]) -> None:
        asked = [ask(turns, "a", f"a{i}", free, done) for i in range(4)]
        await begun()
        asked += [ask(turns, "b", "b0", free, done)]
        await begun()
        free.set()
        assert await asyncio.gather(*asked) == ["a0", "a1", "a2", "a3", "b0"]

    assert played(story) == ["a0", "a1", "b0", "a2", "a3"]


def test_a_full_queue_refuses_the_greediest() -> None:
    """Its own question, or its newest, if another address asks; and that only while it has more
    waiting than the other would have."""

    async def story(turns: FairExecutor, free: threading.Event, done: list[str]) -> None:
        greedy = [ask(turns, "a", f"a{i}", free, done) for i in range(6)]
        await begun()
        with pytest.raises(Refused, match=r"4 questions .*try again") as refused:
            await greedy[5]
        assert refused.value.problem.code == "busy"
        assert int(refused.value.headers["Retry-After"]) >= 1
        both = [ask(turns, "b", f"b{i}", free, done) for i in range(2)]
        await begun()
        for gone in greedy[3:5]:
            with pytest.raises(Refused):
                await gone
        late = ask(turns, "b", "b2", free, done)
        with pytest.raises(Refused):  # both have two
            await late
        third = ask(turns, "c", "c0", free, done)
        await begun()
        with pytest.raises(Refused):  # of two that have as many, the one whose turn is sooner
            await greedy[2]
        free.set()
        await asyncio.gather(third, *both)

    assert "c0" in played(story)


def test_a_question_that_was_given_up_takes_no_turn() -> None:
    """A question for which nobody waits any more is dropped, and there is room again."""

    async def story(turns: FairExecutor, free: threading.Event, done: list[str]) -> None:
        asked = [ask(turns, "a", f"a{i}", free, done) for i in range(5)]
        await begun()
        asked[2].cancel()
        await begun()
        more = ask(turns, "a", "more", free, done)
        await begun()
        free.set()
        await more

    assert played(story) == ["a0", "a1", "a3", "a4", "more"]


def test_what_goes_wrong_is_reported_and_the_next_has_its_turn() -> None:
    """The question gets the error."""

    async def story(turns: FairExecutor, free: threading.Event, done: list[str]) -> None:
        def wrong() -> None:
            raise ValueError("wrong")

        free.set()
        for _ in range(3):
            with pytest.raises(ValueError, match="wrong"):
                await turns.run(wrong)
        await ask(turns, "a", "next", free, done)

    assert played(story) == ["next"]
