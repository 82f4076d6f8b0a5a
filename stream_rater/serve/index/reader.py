"""Reads the index of `serve` from Redis. Every answer is of one instant, and of an index that has
come as far as it is known to have come."""

from collections.abc import Iterator, Sequence
from typing import Any

from stream_rater.adapters.redis.connection import asked
from stream_rater.adapters.redis.index_keys import (
    NO_LADDER,
    ROOT,
    SUMMARY,
    keys_of,
    member_of,
    partition_member,
    root_of,
)
from stream_rater.config.settings import Settings
from stream_rater.serve.cursors import Place
from stream_rater.serve.entries import (
    History,
    IndexedPlayer,
    history_from,
    player_from,
    players_from,
    summary_from,
)
from stream_rater.serve.index import scripts
from stream_rater.serve.pages import ranked
from stream_rater.serve.questions import LadderView, PageView, PlayerView
from stream_rater.serve.reached import AbsentLadder, Incomplete, Reached


class IndexReader:
    """Answers from the index. It is for one event loop.

    Its methods raise StoreTrouble or Denied where Redis fails, and Incomplete, or AbsentLadder,
    where the index is not what it is known to be.
    """

    def __init__(self, settings: Settings, reached: Reached | None = None) -> None:
        """`reached`: what the index is known to have. Without it, all that is there is told."""
        self._redis, self._reached = asked(settings), reached

    async def check(self) -> None:
        """Try all rights that reading needs. Raises Denied."""
        await self.ladders()
        await self._root_has("")
        await self.ladder(NO_LADDER)
        await self.players(NO_LADDER, [""])
        await self.player(NO_LADDER, "")
        await self.history(NO_LADDER, "")
        await self.page(NO_LADDER, Place(0.0, ""), 1)
        await self.around(NO_LADDER, "", 1)

    async def check_complete(self) -> None:
        """Raises Incomplete if the index as a whole is not as far as it is known to be."""
        await self._root_has("")

    async def ladders(self) -> list[str]:
        """The ids of all ladders, sorted."""
        needed = [] if self._reached is None else self._reached.everywhere()
        found = await self._redis.ask("EVAL_RO", scripts.ROOT, 1, ROOT)
        root = root_of((member, float(score)) for member, score in _pairs(found))
        if any(root.positions.get(p, 0) < at for p, at in enumerate(needed)):
            raise Incomplete
        return root.ladders

    async def ladder(self, ladder: str) -> LadderView | None:
        """A ladder; None if no event was about it."""
        try:
            found = await self._answer(ladder, scripts.LADDER, SUMMARY.decode())
        except AbsentLadder:
            # Lost, or never there: whoever makes the index of a ladder first names it in the root.
            named = await self._root_has(member_of(ladder))
            if named or (self._reached is not None and self._reached.knows(ladder)):
                raise
            return None
        summary, listed, bins = found
        if summary is None:
            return None
        counts = {int(at): int(n) for at, n in _pairs(bins)}
        return LadderView(summary_from(summary), listed, dict(sorted(counts.items())))

    async def players(self, ladder: str, players: Sequence[str]) -> list[IndexedPlayer | None]:
        """These players; None for whom no event was about."""
        return players_from(await self._answer(ladder, scripts.PLAYERS, *players))

    async def player(self, ladder: str, player: str) -> PlayerView | None:
        """A player with rank; None if no event was about them."""
        found, better, listed = await self._answer(ladder, scripts.PLAYER, player)
        if found is None:
            return None
        return PlayerView(player_from(found), None if better is None else better + 1, listed)

    async def history(self, ladder: str, player: str) -> History:
        """A player's last changes, oldest first."""
        found = await self._answer(ladder, scripts.HISTORY, player)
        return () if found is None else history_from(found)

    # --- the leaderboard ---

    async def page(self, ladder: str, behind: Place | None, limit: int) -> PageView:
        """So many rows behind a place, or the first ones."""
        if behind is None:
            return _page(await self._answer(ladder, scripts.TOP, limit), limit)
        given = behind.player, repr(-behind.rating), limit
        return _page(await self._answer(ladder, scripts.BEHIND, *given), limit)

    async def around(self, ladder: str, player: str, limit: int) -> PageView | None:
        """So many rows with the player in their middle, as far as there are rows; None if the
        player is not listed."""
        found = await self._answer(ladder, scripts.AROUND, player, limit)
        return None if found is None else _page(found, limit)

    async def close(self) -> None:
        """Close the connections."""
        await self._redis.close()

    async def _answer(self, ladder: str, script: str, *given: Any) -> Any:
        """What a script about a ladder answers."""
        needed = [] if self._reached is None else self._reached.of(ladder)
        keys = keys_of(ladder)
        status, *answer = await self._redis.ask(
            "EVAL_RO", script, len(keys), *keys, len(needed), *needed, *given
        )
        if status != scripts.ANSWERED:
            what = AbsentLadder if status == scripts.ABSENT else Incomplete
            raise what(f"the index of ladder {ladder!r} is not complete")
        return answer[0]

    async def _root_has(self, member: str) -> bool:
        """Whether this stands in the root. Raises Incomplete if the root is not as far as it is
        known to be."""
        needed = [] if self._reached is None else self._reached.everywhere()
        asked_for = [member, *map(partition_member, range(len(needed)))]
        named, *there = await self._redis.ask("EVAL_RO", scripts.NAMED, 1, ROOT, *asked_for)
        if any(float(has or 0) < at for has, at in zip(there, needed, strict=True)):
            raise Incomplete
        return named is not None


def _pairs(flat: Sequence[Any]) -> Iterator[tuple[Any, Any]]:
    """Two elements at a time: members and scores, or fields and values."""
    return zip(flat[::2], flat[1::2], strict=True)


def _page(found: Sequence[Any], limit: int) -> PageView:
    """What a script of `index_scripts` returned."""
    start, told, better, listed = found
    rows = [(member.decode(), -float(score)) for member, score in _pairs(told)]
    return PageView(ranked(rows[:limit], start, better), len(rows) > limit, listed)
