"""Reads the index of `serve` from Redis. Every answer is of one instant."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from stream_rater.adapters import index_scripts as scripts
from stream_rater.adapters.index_keys import NO_LADDER, ROOT, SUMMARY, keys_of, root_of
from stream_rater.adapters.redis_client import connect, failures_named
from stream_rater.config import Settings
from stream_rater.serving.cursors import Place
from stream_rater.serving.entries import (
    History,
    IndexedPlayer,
    history_from,
    player_from,
    summary_from,
)
from stream_rater.serving.pages import ranked
from stream_rater.serving.questions import LadderView, PageView, PlayerView


class IndexReader:
    """Answers from the index. It is for many threads. Raises StoreTrouble or Denied where Redis
    fails."""

    def __init__(self, settings: Settings) -> None:
        self._client = connect(settings)

    def check(self) -> None:
        """Try all rights that reading needs. Raises Denied."""
        self.ladders()
        self.ladder(NO_LADDER)
        self.players(NO_LADDER, [""])
        self.player(NO_LADDER, "")
        self.history(NO_LADDER, "")
        self.page(NO_LADDER, Place(0.0, ""), 1)
        self.around(NO_LADDER, "", 1)

    def ladders(self) -> list[str]:
        """The ids of all ladders, sorted."""
        with failures_named():
            return root_of(self._client.zrange(ROOT, 0, -1, withscores=True)).ladders

    def ladder(self, ladder: str) -> LadderView | None:
        """A ladder; None if no event was about it."""
        keys = keys_of(ladder)
        with self._asked() as pipe:
            pipe.hget(keys.state, SUMMARY)
            pipe.zcard(keys.ranks)
            pipe.hgetall(keys.bins)
            summary, listed, bins = pipe.execute()
        if summary is None:
            return None
        counts = {int(at): int(n) for at, n in bins.items()}
        return LadderView(summary_from(summary), listed, dict(sorted(counts.items())))

    def players(self, ladder: str, players: Sequence[str]) -> list[IndexedPlayer | None]:
        """These players; None for whom no event was about."""
        with failures_named():
            found = self._client.hmget(keys_of(ladder).players, list(players))
        return [None if each is None else player_from(each) for each in found]

    def player(self, ladder: str, player: str) -> PlayerView | None:
        """A player with rank; None if no event was about them."""
        keys = keys_of(ladder)
        found, better, listed = self._run(scripts.PLAYER, [keys.players, keys.ranks], player)
        if found is None:
            return None
        return PlayerView(player_from(found), None if better is None else better + 1, listed)

    def history(self, ladder: str, player: str) -> History:
        """A player's last changes, oldest first."""
        with failures_named():
            found = self._client.hget(keys_of(ladder).histories, player)
        return () if found is None else history_from(found)

    # --- the leaderboard ---

    def page(self, ladder: str, behind: Place | None, limit: int) -> PageView:
        """So many rows behind a place, or the first ones."""
        keys = [keys_of(ladder).ranks]
        if behind is None:
            return _page(self._run(scripts.TOP, keys, limit), limit)
        score = repr(-behind.rating)
        return _page(self._run(scripts.BEHIND, keys, behind.player, score, limit), limit)

    def around(self, ladder: str, player: str, limit: int) -> PageView | None:
        """So many rows with the player in their middle, as far as there are rows; None if the
        player is not listed."""
        found = self._run(scripts.AROUND, [keys_of(ladder).ranks], player, limit)
        return None if found is None else _page(found, limit)

    def _run(self, script: str, keys: Sequence[str], *given: Any) -> Any:
        with failures_named():
            return self._client.eval_ro(script, len(keys), *keys, *given)

    @contextmanager
    def _asked(self) -> Iterator[Any]:
        """Commands that read at one instant."""
        with failures_named(), self._client.pipeline(transaction=True) as pipe:
            yield pipe


def _page(found: Sequence[Any], limit: int) -> PageView:
    """What a script of `index_scripts` returned."""
    start, told, better, listed = found
    rows = [(told[i].decode(), -float(told[i + 1])) for i in range(0, len(told), 2)]
    return PageView(ranked(rows[:limit], start, better), len(rows) > limit, listed)
