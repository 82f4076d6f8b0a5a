"""Reads the index of `serve` from Redis. Every answer is of one instant."""

from collections.abc import Iterator, Sequence
from typing import Any

from stream_rater.adapters import index_scripts as scripts
from stream_rater.adapters.index_keys import NO_LADDER, ROOT, SUMMARY, keys_of, root_of
from stream_rater.adapters.index_lines import asked
from stream_rater.config import Settings
from stream_rater.serving.cursors import Place
from stream_rater.serving.entries import (
    History,
    IndexedPlayer,
    history_from,
    player_from,
    players_from,
    summary_from,
)
from stream_rater.serving.pages import ranked
from stream_rater.serving.questions import LadderView, PageView, PlayerView


class IndexReader:
    """Answers from the index. It is for one event loop. Raises StoreTrouble or Denied where Redis
    fails."""

    def __init__(self, settings: Settings) -> None:
        self._redis = asked(settings)

    async def check(self) -> None:
        """Try all rights that reading needs. Raises Denied."""
        await self.ladders()
        await self.ladder(NO_LADDER)
        await self.players(NO_LADDER, [""])
        await self.player(NO_LADDER, "")
        await self.history(NO_LADDER, "")
        await self.page(NO_LADDER, Place(0.0, ""), 1)
        await self.around(NO_LADDER, "", 1)

    async def ladders(self) -> list[str]:
        """The ids of all ladders, sorted."""
        found = await self._run(scripts.ROOT, [ROOT])
        return root_of((member, float(score)) for member, score in _pairs(found)).ladders

    async def ladder(self, ladder: str) -> LadderView | None:
        """A ladder; None if no event was about it."""
        keys = keys_of(ladder)
        found = await self._run(
            scripts.LADDER, [keys.state, keys.ranks, keys.bins], SUMMARY.decode()
        )
        summary, listed, bins = found
        if summary is None:
            return None
        counts = {int(at): int(n) for at, n in _pairs(bins)}
        return LadderView(summary_from(summary), listed, dict(sorted(counts.items())))

    async def players(self, ladder: str, players: Sequence[str]) -> list[IndexedPlayer | None]:
        """These players; None for whom no event was about."""
        found = await self._redis.ask("HMGET", keys_of(ladder).players, *players)
        return players_from(found)

    async def player(self, ladder: str, player: str) -> PlayerView | None:
        """A player with rank; None if no event was about them."""
        keys = keys_of(ladder)
        found, better, listed = await self._run(scripts.PLAYER, [keys.players, keys.ranks], player)
        if found is None:
            return None
        return PlayerView(player_from(found), None if better is None else better + 1, listed)

    async def history(self, ladder: str, player: str) -> History:
        """A player's last changes, oldest first."""
        found = await self._redis.ask("HGET", keys_of(ladder).histories, player)
        return () if found is None else history_from(found)

    # --- the leaderboard ---

    async def page(self, ladder: str, behind: Place | None, limit: int) -> PageView:
        """So many rows behind a place, or the first ones."""
        keys = [keys_of(ladder).ranks]
        if behind is None:
            return _page(await self._run(scripts.TOP, keys, limit), limit)
        score = repr(-behind.rating)
        return _page(await self._run(scripts.BEHIND, keys, behind.player, score, limit), limit)

    async def around(self, ladder: str, player: str, limit: int) -> PageView | None:
        """So many rows with the player in their middle, as far as there are rows; None if the
        player is not listed."""
        found = await self._run(scripts.AROUND, [keys_of(ladder).ranks], player, limit)
        return None if found is None else _page(found, limit)

    async def close(self) -> None:
        """Close the connections."""
        await self._redis.close()

    async def _run(self, script: str, keys: Sequence[str], *given: Any) -> Any:
        return await self._redis.ask("EVAL_RO", script, len(keys), *keys, *given)


def _pairs(flat: Sequence[Any]) -> Iterator[tuple[Any, Any]]:
    """Two elements at a time: members and scores, or fields and values."""
    return zip(flat[::2], flat[1::2], strict=True)


def _page(found: Sequence[Any], limit: int) -> PageView:
    """What a script of `index_scripts` returned."""
    start, told, better, listed = found
    rows = [(member.decode(), -float(score)) for member, score in _pairs(told)]
    return PageView(ranked(rows[:limit], start, better), len(rows) > limit, listed)
