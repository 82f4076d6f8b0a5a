"""Reads the index of `serve` from Redis. Every answer is of one instant."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from stream_rater.adapters.index_keys import NO_LADDER, ROOT, SUMMARY, keys_of, root_of
from stream_rater.adapters.redis_client import connect, failures_named
from stream_rater.config import Settings
from stream_rater.pipeline.ports import StoreTrouble
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

ATTEMPTS = 50
"""So often a page is read anew because ranks moved meanwhile."""


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
        keys, rating = keys_of(ladder), 0.0
        for _ in range(ATTEMPTS):
            with self._asked() as pipe:
                pipe.hget(keys.players, player)
                pipe.zcount(keys.ranks, "-inf", f"({-rating!r}")
                pipe.zcard(keys.ranks)
                found, better, listed = pipe.execute()
            if found is None:
                return None
            known = player_from(found)
            if not known.listed or known.rating == rating:
                return PlayerView(known, better + 1 if known.listed else None, listed)
            rating = known.rating  # the rank is asked for again, with the player
        raise _moving()

    def history(self, ladder: str, player: str) -> History:
        """A player's last changes, oldest first."""
        with failures_named():
            found = self._client.hget(keys_of(ladder).histories, player)
        return () if found is None else history_from(found)

    # --- the leaderboard ---

    def page(self, ladder: str, behind: Place | None, limit: int) -> PageView:
        """So many rows behind a place, or the first ones."""
        key = keys_of(ladder).ranks
        for _ in range(ATTEMPTS):
            with failures_named():
                start = 0 if behind is None else self._index_behind(key, behind)
            view = self._rows(key, start, limit, None if behind is None else behind.rating)
            if view is None:
                continue
            before, page = view
            first = page.rows[0] if page.rows else None
            if behind is None:
                return page
            fits = before is None or _is_not_behind(before, behind)
            if fits and (first is None or not _is_not_behind((first.player, first.rating), behind)):
                return page
        raise _moving()

    def around(self, ladder: str, player: str, limit: int) -> PageView | None:
        """So many rows with the player in their middle, as far as there are rows; None if the
        player is not listed."""
        key, rating = keys_of(ladder).ranks, None
        for _ in range(ATTEMPTS):
            with failures_named():
                index = self._client.zrank(key, player)
            if index is None:
                return None
            view = self._rows(key, max(0, index - limit // 2), limit, rating)
            if view is not None and any(row.player == player for row in view[1].rows):
                return view[1]
        raise _moving()

    def _rows(
        self, key: str, start: int, limit: int, rating: float | None
    ) -> tuple[tuple[str, float] | None, PageView] | None:
        """The row before `start`, and so many from there on; None if ranks moved meanwhile.

        `rating` is the one that the first row probably has.
        """
        for _ in range(ATTEMPTS):
            with self._asked() as pipe:
                pipe.zrange(key, max(0, start - 1), start + limit, withscores=True)
                pipe.zcount(key, "-inf", "(0" if rating is None else f"({-rating!r}")
                pipe.zcard(key)
                found, better, listed = pipe.execute()
            rows = [(name.decode(), -score) for name, score in found]
            before = rows.pop(0) if start and rows else None
            first = rows[0] if rows else None
            if first is not None and before is not None and first[1] == before[1] != rating:
                rating = first[1]  # of a tie that begins before the page: where it begins
                continue
            if first is None or before is None or first[1] != before[1]:
                better = start
            shown = ranked(rows[:limit], start, better)
            return before, PageView(shown, len(rows) > limit, listed)
        return None

    def _index_behind(self, key: str, place: Place) -> int:
        """How many stand before a place, as far as nothing moves meanwhile."""
        with self._asked() as pipe:
            pipe.zrank(key, place.player)
            pipe.zscore(key, place.player)
            pipe.zcount(key, "-inf", f"({-place.rating!r}")
            pipe.zcount(key, "-inf", repr(-place.rating))
            rank, score, low, high = pipe.execute()
        if score == -place.rating:
            return int(rank) + 1
        wanted = place.player.encode()
        while low < high:  # among those with this rating
            middle = (low + high) // 2
            found = self._client.zrange(key, middle, middle)
            if found and found[0] <= wanted:
                low = middle + 1
            else:
                high = middle
        return int(low)

    @contextmanager
    def _asked(self) -> Iterator[Any]:
        """Commands that read at one instant."""
        with failures_named(), self._client.pipeline(transaction=True) as pipe:
            yield pipe


def _is_not_behind(row: tuple[str, float], place: Place) -> bool:
    """Whether a row stands at a place or before it."""
    player, rating = row
    return (-rating, player.encode()) <= (-place.rating, place.player.encode())


def _moving() -> StoreTrouble:
    return StoreTrouble(f"redis: ranks moved during {ATTEMPTS} attempts to read a page")
