"""Reads the index of `serve` from Redis. Every answer shows the index at one instant, and only if
the index has all events that it is known to have (`ReadPositions`)."""

from collections.abc import Iterator, Mapping, Sequence
from copy import copy
from operator import gt
from typing import Any

from stream_rater.adapters.redis import index_keys
from stream_rater.adapters.redis.connection import async_client
from stream_rater.config.ladders import ANY_LADDER, Ladders
from stream_rater.config.settings import Settings
from stream_rater.index import entries
from stream_rater.serve.cursors import AfterRow, ranked
from stream_rater.serve.feed import later
from stream_rater.serve.index import scripts
from stream_rater.serve.index.evaluation import Evaluation
from stream_rater.serve.index.seasons import RedisSeasons
from stream_rater.serve.questions import AbsentLadder, Incomplete, LadderView, PageView, PlayerView


class IndexReader:
    """Answers from the index. It is for one event loop.

    Its methods raise StoreTrouble or Denied if Redis fails, and Incomplete or AbsentLadder if the
    index lacks events that it is known to have.
    """

    def __init__(
        self, settings: Settings, positions: "ReadPositions | None" = None,
        ladders: Ladders = ANY_LADDER,
    ) -> None:  # fmt: skip
        """`positions` are those before which the index is known to have all events. Without them,
        the index is not checked. `ladders` has the views by which the index was made."""
        self._redis, self._positions = async_client(settings), positions
        self._run = Evaluation(self._redis)
        self._views = ladders.by_table(ladders.views)

    def after(self, needed: Mapping[int, int]) -> "IndexReader":
        """The same, but it answers only if the index has also everything before these positions, by
        partition. It shares the connections."""
        found = copy(self)
        found._positions = AtLeast(self._positions or ReadPositions(), needed)
        return found

    async def check(self) -> None:
        """Try all rights that reading needs. Raises Denied."""
        await self.ladders()
        await self._root_has("")
        await self.ladder(index_keys.NO_LADDER)
        await self.players(index_keys.NO_LADDER, [""])
        await self.player(index_keys.NO_LADDER, "")
        await self.history(index_keys.NO_LADDER, "")
        await self.page(index_keys.NO_LADDER, AfterRow(0.0, ""), 1)
        await self.around(index_keys.NO_LADDER, "", 1)

    async def check_complete(self) -> None:
        """Raise Incomplete if the index as a whole lacks events that it is known to have."""
        await self._root_has("")

    async def ladders(self) -> list[str]:
        """The ids of all ladders, sorted."""
        needed = [] if self._positions is None else self._positions.of_all()
        found = await self._run(scripts.ROOT, 1, index_keys.ROOT)
        root = index_keys.root_of((member, float(score)) for member, score in _pairs(found))
        if any(root.positions.get(p, 0) < at for p, at in enumerate(needed)):
            raise Incomplete
        return root.ladders

    async def ladder(self, ladder: str) -> LadderView | None:
        """A ladder; None if it has no event."""
        try:
            found = await self._answer(ladder, scripts.LADDER, index_keys.SUMMARY.decode())
        except AbsentLadder:
            # The ladder is lost, or never existed: its index is made only after the root names it.
            named = await self._root_has(index_keys.member_of(ladder))
            if named or (self._positions is not None and self._positions.knows(ladder)):
                raise
            return None
        summary, listed, bins = found
        if summary is None:
            return None
        counts = {int(at): int(n) for at, n in _pairs(bins)}
        return LadderView(entries.decode_summary(summary), listed, dict(sorted(counts.items())))

    async def players(
        self, ladder: str, players: Sequence[str]
    ) -> list[entries.IndexedPlayer | None]:
        """The players in the given order; None for a player without an event."""
        return entries.decode_players(await self._answer(ladder, scripts.PLAYERS, *players))

    async def player(self, ladder: str, player: str) -> PlayerView | None:
        """A player with rank; None for a player without an event."""
        found, better, listed = await self._answer(ladder, scripts.PLAYER, player)
        if found is None:
            return None
        return PlayerView(
            entries.decode_player(found), None if better is None else better + 1, listed
        )

    async def history(self, ladder: str, player: str) -> entries.History:
        """A player's last changes, oldest first."""
        found = await self._answer(ladder, scripts.HISTORY, player)
        return () if found is None else entries.decode_history(found)

    # --- the leaderboard ---

    async def page(self, ladder: str, after: AfterRow | None, limit: int) -> PageView:
        """At most `limit` rows after a place, or the first ones."""
        with_players = self._with_players(ladder)
        if after is None:
            return _page(await self._answer(ladder, scripts.TOP, limit, with_players), limit)
        given = after.player, repr(-after.rating), limit, with_players
        return _page(await self._answer(ladder, scripts.AFTER, *given), limit)

    async def around(self, ladder: str, player: str, limit: int) -> PageView | None:
        """At most `limit` rows with the player in the middle, as far as there are rows; None if the
        player is not listed."""
        given = player, limit, self._with_players(ladder)
        found = await self._answer(ladder, scripts.AROUND, *given)
        return None if found is None else _page(found, limit)

    @property
    def seasons(self) -> RedisSeasons:
        """The standings of past seasons, on the same connections."""
        return RedisSeasons(self._run)

    async def close(self) -> None:
        """Close the connections."""
        await self._redis.close()

    async def _answer(self, ladder: str, script: str, *given: Any) -> Any:
        """Run a script about a ladder, and return its answer. Raises Incomplete or AbsentLadder."""
        needed = [] if self._positions is None else self._positions.of(ladder)
        keys = index_keys.keys_of(ladder, self._views(ladder).id)
        status, *answer = await self._run(script, len(keys), *keys, len(needed), *needed, *given)
        if status != scripts.ANSWERED:
            error = AbsentLadder if status == scripts.ABSENT else Incomplete
            raise error(f"the index of ladder {ladder!r} is not complete")
        found, seen = answer
        if self._positions is not None:
            self._positions.answered(ladder, [*map(int, seen)])
        return found

    def _with_players(self, ladder: str) -> int:
        """1 if the rows of a page need the players, because the ladder has tiers; else 0."""
        return int(bool(self._views(ladder).tiers))

    async def _root_has(self, member: str) -> bool:
        """Whether the root has a member. Raises Incomplete if the root lacks events that it is
        known to have."""
        needed = [] if self._positions is None else self._positions.of_all()
        asked_for = [member, *map(index_keys.partition_member, range(len(needed)))]
        named, *offsets = await self._run(scripts.NAMED, 1, index_keys.ROOT, *asked_for)
        if any(float(has or 0) < at for has, at in zip(offsets, needed, strict=True)):
            raise Incomplete
        return named is not None


class ReadPositions:
    """The positions in `rating-changed` before which the index is known to have every event.

    Each question carries these positions, and Redis compares them with those of the ladder in the
    very call that answers. So an index that Redis has lost or set back never answers. This is for
    one thread.
    """

    def __init__(self) -> None:
        self._all: list[int] | None = None
        self._ladders: dict[str, dict[int, int]] = {}
        """For each ladder with an event since `all_read` was called, the next offset of each
        partition with such an event."""
        self._answered: dict[str, list[int]] = {}
        """For each ladder, the positions of the index in the answers so far, if another process
        has made the index newer than this one knows it to be."""

    def all_read(self, positions: Sequence[int]) -> None:
        """Record that the index has every event of every ladder before these positions."""
        self._all = list(positions)
        self._ladders.clear()
        self._answered = {
            ladder: at for ladder, at in self._answered.items() if later(at, positions) != self._all
        }

    def event_read(self, ladder: str, partition: int, offset: int) -> None:
        """Record that the ladder's index has this event, and all events before it in this
        partition."""
        of_ladder = self._ladders.setdefault(ladder, {})
        of_ladder[partition] = max(of_ladder.get(partition, 0), offset + 1)

    def answered(self, ladder: str, positions: Sequence[int]) -> None:
        """Record that an answer about a ladder was given from an index at these positions. So no
        later answer is older, even if Redis goes back to a state that this process has not made."""
        known = self.of(ladder)
        if len(positions) > len(known) or any(map(gt, positions, known)):
            self._answered[ladder] = later(known, positions)

    def knows(self, ladder: str) -> bool:
        """Whether the ladder is known to have an index."""
        return ladder in self._ladders

    def of_all(self) -> list[int]:
        """The positions of every ladder. Raises Incomplete while they are unknown."""
        if self._all is None:
            raise Incomplete
        return self._all

    def of(self, ladder: str) -> list[int]:
        """The positions of a ladder. Raises Incomplete while they are unknown."""
        found = self.of_all()
        if of_ladder := self._ladders.get(ladder):
            found = later(found, _listed(of_ladder))
        if (answered := self._answered.get(ladder)) is not None:
            found = later(found, answered)
        return found


class AtLeast(ReadPositions):
    """Other positions, or greater ones where greater ones are needed."""

    def __init__(self, base: ReadPositions, needed: Mapping[int, int]) -> None:
        self._base, self._needed = base, needed

    def answered(self, ladder: str, positions: Sequence[int]) -> None:
        """Record the positions of an answer."""
        self._base.answered(ladder, positions)

    def knows(self, ladder: str) -> bool:
        """Whether the ladder is known to have an index."""
        return self._base.knows(ladder)

    def of_all(self) -> list[int]:
        """The positions of every ladder."""
        return self._raised(self._base.of_all())

    def of(self, ladder: str) -> list[int]:
        """The positions of a ladder."""
        return self._raised(self._base.of(ladder))

    def _raised(self, positions: list[int]) -> list[int]:
        return later(positions, _listed(self._needed))


def _listed(positions: Mapping[int, int]) -> list[int]:
    """Positions by partition as a list, with 0 for a partition that has none."""
    return [positions.get(p, 0) for p in range(max(positions, default=-1) + 1)]


def _pairs(flat: Sequence[Any]) -> Iterator[tuple[Any, Any]]:
    """Yield pairs of consecutive elements, such as member and score, or field and value."""
    return zip(flat[::2], flat[1::2], strict=True)


def _page(found: Sequence[Any], limit: int) -> PageView:
    """Convert the answer of a script that returns a page."""
    start, flat, better, listed, players = found
    rows = [(member.decode(), -float(score)) for member, score in _pairs(flat)]
    return PageView(
        ranked(rows[:limit], start, better), len(rows) > limit, listed,
        entries.decode_players(players[:limit]),
    )  # fmt: skip
