"""Answers from the index. Each answer is read in one transaction, which then ends (I4)."""

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import copy
from itertools import chain, islice, takewhile
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from stream_rater.config.ladders import ANY_LADDER, Ladders
from stream_rater.contract.season_ended import SeasonKept
from stream_rater.index import entries, tables
from stream_rater.index.entries import IndexedPlayer, LadderSummary
from stream_rater.index.folder import Store, closed, failures, opened
from stream_rater.index.tables import LadderRow


class Incomplete(Exception):
    """The index is not known to be complete, so nothing is answered from it."""

    def __init__(self, why: str = "the index is still being made") -> None:
        super().__init__(f"{why}: try again")


class AbsentLadder(Incomplete):
    """The index has nothing of the ladder."""


class RowPlace(NamedTuple):
    """The place of a row on a leaderboard. Greater ratings come first; equal ones by id."""

    rating: float
    player: str


class RankedRow(NamedTuple):
    """A row of the leaderboard."""

    rank: int  # 1 plus the number of players with a greater rating.
    player: str
    rating: float


class LadderView(NamedTuple):
    """The data about a ladder in the index."""

    summary: LadderSummary
    listed: int  # The number of players on the leaderboard.
    bins: dict[int, int]  # By lower end, the listed players in a bin of the histogram.


class PlayerView(NamedTuple):
    """The data about a player in the index."""

    player: IndexedPlayer
    rank: int | None  # It is None if the player is not listed.
    listed: int  # The number of players on the leaderboard.


class PageView(NamedTuple):
    """A page of the leaderboard."""

    rows: list[RankedRow]
    more: bool  # Whether another page follows.
    listed: int
    players: Sequence[IndexedPlayer | None] = ()
    """The players of the rows, if the ladder has tiers, or if they are those of a season."""
    recent: Sequence[entries.History] = ()  # The last changes of each, oldest first, if asked for.


class PastRound(NamedTuple):
    """A round, with the changes that the histories of its players still have."""

    offset: int
    changes: list[tuple[str, entries.IndexedChange]]  # At most MOST_IN_ROUND, in order of the ids.


PastChange = tuple[bytes, str, entries.IndexedChange, entries.IndexedChange | None]
"""The key of a change in its ladder, the player, the change, and the one before it, if kept."""
MOST_IN_ROUND = 100  # The most changes that are read of a round.
MOST_SKIPPED = 1_000  # The most players without a counted round that a search passes over.
Places = list[tuple[float, str]]
"""The places of the rows of a page. They are plain tuples, which are made faster than RowPlaces."""


class IndexReader:
    """Answers from the index of this process; each answer is of one instant. It is for one thread.

    The methods raise StoreTrouble if the index cannot be read, Incomplete if it is not known to be
    complete, and AbsentLadder if it has nothing of the ladder. `ladder` returns None then.
    """

    def __init__(self, max_changes: int, ladders: Ladders = ANY_LADDER) -> None:
        """`max_changes`: the most in a history. `ladders` has the views of the index."""
        self._max_changes = max_changes
        self._views = ladders.by_table(ladders.views)
        self._needed: Mapping[int, int] = {}
        self._stores: list[Store] = []
        """The environment, once the follower has opened it. Copies of this reader share it."""

    def use(self, path: Path) -> None:
        """Answer from the environment in this folder."""
        self.close()
        self._stores.append(opened(path))

    def after(self, needed: Mapping[int, int]) -> "IndexReader":
        """A copy that answers only if the index has all before these positions, by partition."""
        found = copy(self)
        found._needed = needed
        return found

    def close(self) -> None:
        """Close the environment."""
        if self._stores:
            closed(self._stores.pop())

    async def check_complete(self) -> None:
        """Raise Incomplete if the index lacks events that it is known to have."""
        with self._instant():
            pass

    async def ladders(self) -> list[str]:
        """The ids of all ladders, sorted."""
        with self._instant() as at:
            return [key.decode() for key in at.cursor("ladders").iternext(values=False)]

    async def ladder(self, ladder: str) -> LadderView | None:
        """The data about a ladder; None if it has no event."""
        with self._instant() as at:
            row = at.row(ladder)
            return None if row is None else LadderView(row.summary, row.listed, at.bins(row))

    async def players(self, ladder: str, players: Sequence[str]) -> list[IndexedPlayer | None]:
        """The players in the given order; None for a player without an event."""
        with self._instant() as at:
            return [*map(at.players(at.known(ladder), players).get, players)]

    async def player(self, ladder: str, player: str) -> PlayerView | None:
        """A player with rank; None for a player without an event."""
        with self._instant() as at:
            row = at.known(ladder)
            found = at.players(row, [player]).get(player)
            if found is None:
                return None
            listed = found.is_listed(player, row.swept)
            rank = 1 + at.better(row, found.rating) if listed else None
            return PlayerView(found, rank, row.listed)

    async def history(self, ladder: str, player: str) -> entries.History:
        """A player's last changes, oldest first."""
        with self._instant() as at:
            row = at.known(ladder)
            found = at.stored(row, [player]).get(player)
            offsets = [] if found is None else tables.offsets_in(found.offsets)
            keys = [row.prefix + offset + player.encode() for offset in offsets]
            changes = [each for _, each in at.cursor("changes").getmulti(keys)]
        newest = changes[max(0, len(changes) - self._max_changes) :]
        return tuple(map(tables.decode_change, newest))

    async def past_changes(self, ladder: str, limit: int, last: bytes) -> list[PastChange]:
        """The newest changes of a ladder whose keys are before `last`, newest first."""
        with self._instant() as at:
            row, cursor = at.known(ladder), at.cursor("changes")
            begun = cursor.prev() if cursor.set_range(row.prefix + last) else cursor.last()
            some = islice(cursor.iterprev(), limit) if begun else ()
            rows = [(k[4:], k[12:].decode(), v) for k, v in some if k.startswith(row.prefix)]
            stored = at.stored(row, [who for _, who, _ in rows])
            before: dict[bytes, bytes] = {}  # By key, that of the change before it.
            for key, who, _ in rows:
                offsets = tables.offsets_in(stored[who].offsets)
                if i := offsets.index(key[:8]):
                    before[key] = row.prefix + offsets[i - 1] + key[8:]
            found = dict(cursor.getmulti(sorted(before.values())))
        made = {key: tables.decode_change(found[other]) for key, other in before.items()}
        return [(key, who, tables.decode_change(each), made.get(key)) for key, who, each in rows]

    async def begun_by(
        self, ladder: str, start: str, limit: int
    ) -> list[tuple[str, IndexedPlayer]]:
        """At most `limit` players who have a counted round, and whose ids begin with `start`, in
        order. It may be written in small, capital or title letters in the ids."""
        spelled = {start, start.lower(), start.upper(), start.title()}
        found: dict[str, IndexedPlayer] = {}
        with self._instant() as at:
            row = at.known(ladder)
            for each in spelled if not start or tables.is_id(start) else ():
                prefix = row.prefix + each.encode()
                keys = tables.rows_from(at.cursor("players"), prefix, values=False)
                names = (key[4:].decode() for key in islice(keys, limit + MOST_SKIPPED))
                own: dict[str, IndexedPlayer] = {}
                while len(own) < limit and (some := [*islice(names, limit)]):
                    known = at.players(row, some)
                    own |= {name: known[name] for name in some if known[name].rounds}
                found |= own
        return sorted(found.items(), key=lambda each: each[0].encode())[:limit]

    async def rounds(
        self, ladder: str, limit: int, before: int | None, player: str | None
    ) -> tuple[list[PastRound], int | None]:
        """The rounds among the last `limit` offsets before `before` that changed ratings of the
        ladder or a player, newest first; and the last of these offsets, if older ones follow."""
        with self._instant() as at:
            row = at.known(ladder)
            last = b"\xff" * 9 if before is None else tables.number_key(before)
            if player is None:
                offsets = at.offsets_before(row, last, limit + 1)
            else:
                known = at.stored(row, [player]).get(player)
                kept = [] if known is None else tables.offsets_in(known.offsets)
                kept = kept[max(0, len(kept) - self._max_changes) :]
                offsets = [each for each in reversed(kept) if each < last][: limit + 1]
            found = [at.round(row, each, player) for each in offsets[:limit]]
        more = tables.number_in(offsets[limit - 1]) if len(offsets) > limit else None
        return [each for each in found if each.changes[0][1].cause is None], more

    # --- the leaderboard ---

    async def page(
        self, ladder: str, after: RowPlace | None, limit: int, season: int | None = None,
        recent: int = 0,
    ) -> PageView:  # fmt: skip
        """At most `limit` rows after a place, or the first ones. `season`: a season that is kept,
        whose standings are the leaderboard. `recent`: so many last changes of each player."""
        with self._instant() as at:
            row = at.known(ladder, season)
            places = at.after(row.prefix, after, limit + 1)
            return self._page(at, ladder, row, places, limit, recent)

    async def around(
        self, ladder: str, player: str, limit: int, season: int | None = None, recent: int = 0
    ) -> PageView | None:
        """At most `limit` rows with the player in the middle; None if the player is not listed."""
        with self._instant() as at:
            row = at.known(ladder, season)
            found = at.players(row, [player]).get(player)
            if found is None or not found.is_listed(player, row.swept):
                return None
            places = at.around(row.prefix, RowPlace(found.rating, player), limit)
            return self._page(at, ladder, row, places, limit, recent)

    def _page(
        self, at: "_Instant", ladder: str, row: LadderRow, places: Places, limit: int, recent: int
    ) -> PageView:
        rows = at.ranked(row, places[:limit])
        with_players = row.kept is not None or self._views(ladder).tiers or recent
        names = [each.player for each in rows] if with_players else []
        stored = at.stored(row, names) if names else {}
        players = [stored[name].player if name in stored else None for name in names]
        histories = at.recent(row, stored, names, recent) if recent else []
        return PageView(rows, len(places) > limit, row.listed, players, histories)

    async def kept(self, ladder: str) -> Sequence[SeasonKept]:
        """The seasons of a ladder whose standings are kept, in order."""
        with self._instant() as at:
            if not tables.is_id(ladder):
                return []
            rows = tables.rows_from(at.cursor("seasons"), tables.season_key(ladder, 0)[:-8])
            kept = (tables.decode_ladder(value).kept for _, value in rows)
            return [each for each in kept if each is not None]

    @contextmanager
    def _instant(self) -> Iterator["_Instant"]:
        """A block that reads the index at one instant. Raises Incomplete."""
        if not self._stores:
            raise Incomplete
        store = self._stores[0]
        with failures(), store.begin() as transaction:
            at = _Instant(transaction, store)
            state = tables.decode_state(at.get("state", tables.STATE))
            ends = dict(enumerate(state.positions))
            if not state.complete or any(ends.get(p, 0) < end for p, end in self._needed.items()):
                raise Incomplete
            yield at


class _Instant:
    """The index at an instant."""

    def __init__(self, transaction: Any, store: Store) -> None:
        self._transaction, self._tables = transaction, store.tables

    def get(self, table: str, key: bytes) -> Any:
        return self._transaction.get(key, db=getattr(self._tables, table))

    def cursor(self, table: str) -> Any:
        return self._transaction.cursor(getattr(self._tables, table))

    def row(self, ladder: str, season: int | None = None) -> LadderRow | None:
        """The row of a ladder, or of a season of it; None if there is none."""
        if not tables.is_id(ladder):
            return None
        if season is None:
            found = self.get("ladders", ladder.encode())
        else:
            found = self.get("seasons", tables.season_key(ladder, season))
        return None if found is None else tables.decode_ladder(found)

    def known(self, ladder: str, season: int | None = None) -> LadderRow:
        """The same. Raises AbsentLadder if there is none."""
        if (found := self.row(ladder, season)) is None:
            raise AbsentLadder(f"the index has nothing of ladder {ladder!r}")
        return found

    def stored(self, row: LadderRow, names: Sequence[str]) -> dict[str, tables.StoredPlayer]:
        """The rows of these players, without those whom the index does not have."""
        ids = filter(tables.is_id, names)
        return tables.stored_players(self.cursor("players"), row.prefix, ids)

    def players(self, row: LadderRow, names: Sequence[str]) -> dict[str, IndexedPlayer]:
        """These players, without those whom the index does not have."""
        return {name: each.player for name, each in self.stored(row, names).items()}

    def recent(
        self, row: LadderRow, stored: Mapping[str, tables.StoredPlayer], names: Sequence[str],
        count: int,
    ) -> list[entries.History]:  # fmt: skip
        """The last `count` changes of each of these players, oldest first."""
        keys = [
            [row.prefix + at + name.encode() for at in tables.offsets_in(known.offsets)[-count:]]
            if (known := stored.get(name)) is not None else []
            for name in names
        ]  # fmt: skip
        found = dict(self.cursor("changes").getmulti(sorted(chain.from_iterable(keys))))
        return [tuple(tables.decode_change(found[key]) for key in own) for own in keys]

    def offsets_before(self, row: LadderRow, last: bytes, limit: int) -> list[bytes]:
        """At most `limit` offsets with changes, before the offset `last`, newest first."""
        found, cursor = list[bytes](), self.cursor("changes")
        while len(found) < limit:
            begun = cursor.prev() if cursor.set_range(row.prefix + last) else cursor.last()
            if not begun or not cursor.key().startswith(row.prefix):
                break
            last = cursor.key()[4:12]
            found.append(last)
        return found

    def round(self, row: LadderRow, offset: bytes, player: str | None) -> PastRound:
        """The changes at an offset; among them that of the player, if one is given."""
        prefix = row.prefix + offset
        rows = [*islice(tables.rows_from(self.cursor("changes"), prefix), MOST_IN_ROUND)]
        if player is not None and len(rows) == MOST_IN_ROUND:
            own = prefix + player.encode()
            rows = [*(each for each in rows if each[0] != own), (own, self.get("changes", own))]
        changes = [(key[12:].decode(), tables.decode_change(value)) for key, value in rows]
        return PastRound(tables.number_in(offset), changes)

    def bins(self, row: LadderRow) -> dict[int, int]:
        """The number of players in each bin of the histogram, by its lower end."""
        return {
            entries.BIN * tables.number_in(key[4:]): sum(tables.counts_in(value))
            for key, value in tables.rows_from(self.cursor("points"), row.prefix)
        }

    def better(self, row: LadderRow, rating: float) -> int:
        """The number of listed players with a greater rating."""
        number, within = divmod(math.floor(rating), entries.BIN)
        rows = tables.rows_from(self.cursor("points"), row.prefix, tables.number_key(number))
        counts = np.frombuffer(b"".join([value for _, value in rows]), "<u4")
        # `points` has whole numbers: players within the rating's own point are counted one by one.
        top, score = tables.scores_of([math.floor(rating) + 1.0, rating])
        behind = top + b"\xff"  # no id begins with this byte
        keys = tables.rows_from(self.cursor("ranks"), row.prefix, behind, values=False)
        same = sum(1 for _ in takewhile((row.prefix + score).__gt__, keys))
        return int(counts[within + 1 :].sum()) + same

    def ranked(self, row: LadderRow, places: Places) -> list[RankedRow]:
        """Rank the rows of a page."""
        found: list[RankedRow] = []
        first = None  # The rows before the page; known once a rating differs from the first.
        for i, (rating, player) in enumerate(places):
            if found and rating == found[-1].rating:
                rank = found[-1].rank
            elif not found:
                rank = 1 + self.better(row, rating)
            else:
                first = self.better(row, rating) - i if first is None else first
                rank = 1 + first + i
            found.append(RankedRow(rank, player, rating))
        return found

    def after(self, prefix: bytes, place: RowPlace | None, limit: int) -> Places:
        """At most `limit` rows of a leaderboard after a place, or the first ones."""
        first = b"" if place is None else _key_of(b"", place) + b"\0"
        keys = tables.rows_from(self.cursor("ranks"), prefix, first, values=False)
        return _places(keys, prefix, limit)

    def around(self, prefix: bytes, place: RowPlace, limit: int) -> Places:
        """At most `limit` rows of a leaderboard, this one in the middle, and one row after them."""
        cursor, before = self.cursor("ranks"), Places()
        if cursor.set_key(_key_of(prefix, place)) and cursor.prev():
            keys = cursor.iterprev(values=False)
            own = takewhile(lambda key: key.startswith(prefix), keys)
            before = _places(own, prefix, limit // 2)
        return [*reversed(before), place, *self.after(prefix, place, limit - len(before))]


def _key_of(prefix: bytes, place: RowPlace) -> bytes:
    """The key of a row of a leaderboard."""
    return prefix + tables.scores_of([place.rating])[0] + place.player.encode()


def _places(keys: Iterator[bytes], prefix: bytes, limit: int) -> Places:
    """The places of the first `limit` of these rows of a leaderboard."""
    at, some = len(prefix), islice(keys, limit)
    return [(tables.rating_of(key[at : at + 8]), key[at + 8 :].decode()) for key in some]
