"""Writes the index. `entries` decides its contents; this module stores them.

Each call is one transaction, which also stores the positions that belong to the data. So a reader
sees both or neither, and after a kill the index is as after some call. If a transaction fails, for
example because the disk is full, nothing of it has happened, and the caller tries again.
"""

import math
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import islice, takewhile
from typing import Any

from stream_rater.config.ladders import ANY_LADDER, Ladders
from stream_rater.contract.events import RatingChanged
from stream_rater.contract.season_ended import SeasonKept, SeasonRecord, Standing
from stream_rater.index import entries, tables
from stream_rater.index.entries import IndexedPlayer, LadderIndex, PlayerErased
from stream_rater.index.folder import Store, failures
from stream_rater.index.tables import LadderRow, StoredPlayer, Tail

AT_ONCE = 5_000
"""The most events in a transaction, and the most players whom one transaction places again. LMDB
keeps the pages that it changes in memory: about five of 4 KiB for each."""
SWEPT_TOGETHER = 1_000  # The most players whom one sweep takes off all leaderboards.
UNPLACED = "-"  # Stored as the id of a ladder's views while its players are placed again.

NO_TAILS: Mapping[int, Tail] = {}

PlacedEvent = tuple[tuple[int, int], entries.IndexEvent]  # An event with its partition and offset.
Stored = Mapping[str, StoredPlayer]
Made = dict[entries.EntryKey, IndexedPlayer]  # For ladders with tiers, the player after an event.


class IndexWriter:
    """Changes the index. Only one thread may do so. The methods raise StoreTrouble or Damaged."""

    def __init__(
        self, store: Store, max_changes: int, ladders: Ladders = ANY_LADDER,
        now: Callable[[], float] = time.time,
    ) -> None:  # fmt: skip
        """`max_changes`: the most in a history. `ladders` has the views. `now`: Unix seconds."""
        self._store, self._max_changes, self._now = store, max_changes, now
        self._tables = store.tables
        self._views = ladders.by_table(ladders.views)
        self._load()
        with self._transaction():
            self.state.complete = False  # until the index has what was published since
        self._adopt_views()

    def _load(self) -> None:
        """Read the data of the index that this object keeps in memory."""
        with failures(), self._store.begin() as t:
            self.state = tables.decode_state(t.get(tables.STATE, db=self._tables.state))
            self._rows = {
                ladder.decode(): tables.decode_ladder(row)
                for ladder, row in t.cursor(self._tables.ladders)
            }
            self._seasons = {
                key: tables.decode_ladder(row) for key, row in t.cursor(self._tables.seasons)
            }
        self._ladders = {row.number: ladder for ladder, row in self._rows.items()}

    @contextmanager
    def _transaction(self) -> Iterator[Any]:
        """A block whose changes of the index are made all at once, or not at all."""
        try:
            with failures(), self._store.begin(write=True) as t:
                yield t
                t.put(tables.STATE, tables.encode_entry(self.state), db=self._tables.state)
        except BaseException:
            self._load()
            raise

    def positions(self, partitions: int) -> list[int]:
        """The offset from which each partition must be read."""
        known = self.state.positions
        return [*known, *[0] * (partitions - len(known))]

    def apply(
        self, events: Sequence[PlacedEvent], positions: Sequence[int],
        tails: Mapping[int, Tail] = NO_TAILS,
    ) -> Made:  # fmt: skip
        """Apply events, except those that the index has. After that, it has every event before
        these positions. `tails`: by partition, the last record that was read."""
        made: Made = {}
        known_to = self.positions(len(positions))
        by_ladder: dict[tuple[bool, str], list[entries.IndexEvent]] = {}
        for (partition, offset), event in events:
            key = offset >= known_to[partition], event.ladder
            by_ladder.setdefault(key, []).append(event)
        with self._transaction() as t:
            for (is_new, ladder), own in sorted(by_ladder.items(), key=lambda each: each[0][0]):
                made |= (self._apply if is_new else self._made)(t, ladder, own)
            self._reach(positions, tails)
        return made

    def reached(self, positions: Sequence[int], *, current: bool = False) -> None:
        """Store that the index has all before these positions; `current`: all that there is."""
        with self._transaction():
            self._reach(positions)
            if current:
                self.state.complete, self.state.current_s = True, self._now()

    def _reach(self, positions: Sequence[int], tails: Mapping[int, Tail] = NO_TAILS) -> None:
        both = zip(positions, self.positions(len(positions)), strict=True)
        self.state.positions = [max(pair) for pair in both]
        self.state.tails |= tails

    def _made(
        self, t: Any, ladder: str, known: Sequence[entries.IndexEvent]
    ) -> Mapping[entries.EntryKey, IndexedPlayer]:
        """The players of known events by their newest event; those of ladders with tiers only."""
        if ladder not in self._rows or not self._views(ladder).tiers:
            return {}
        found = self._stored(t, self._rows[ladder].prefix, {event.player for event in known})
        return {(ladder, name, each.player.offset): each.player for name, each in found.items()}

    def _apply(
        self, t: Any, ladder: str, events: Sequence[entries.IndexEvent]
    ) -> Mapping[entries.EntryKey, IndexedPlayer]:
        views, row = self._views(ladder), self._rows.get(ladder)
        if row is None:
            if all(isinstance(each, PlayerErased) for each in events):
                return {}
            row = self._new_row(ladder)
        stored = self._stored(t, row.prefix, {event.player for event in events})
        before = _part_of(row, stored)
        after = entries.apply_events(before, events, views)
        kept = self._write_changes(t, row.prefix, stored, events)
        self._write(t, row, before, after, stored, kept)
        row.summary = after.summary
        self._put_row(t, ladder, row)
        return after.made

    # --- players who leave a leaderboard by the clock, or by other views ---

    def sweep(self) -> bool:
        """Take players off the leaderboards whose moment has come. Returns whether there are
        more."""
        now_s = self._now()
        self._adopt_views(now_s + entries.WRONG_CLOCK_S)
        with failures(), self._store.begin() as t:
            keys = islice(t.cursor(self._tables.dues).iternext(values=False), SWEPT_TOGETHER)
            due = [*takewhile(lambda key: tables.value_of(key[:8]) <= now_s, keys)]
        if not due:
            return False
        by_ladder: dict[bytes, list[bytes]] = {}
        for key in due:
            by_ladder.setdefault(key[8:12], []).append(key)
        with self._transaction() as t:
            for prefix, own in by_ladder.items():
                ladder = self._ladders[int.from_bytes(prefix)]
                row = self._rows[ladder]
                stored = self._stored(t, row.prefix, {key[12:].decode() for key in own})
                before = _part_of(row, stored)
                after = before._replace(swept=(tables.value_of(own[-1][:8]), own[-1][12:]))
                self._write(t, row, before, after, stored, {})
                row.swept = after.swept
                self._put_row(t, ladder, row)
        return len(due) == SWEPT_TOGETHER

    def _adopt_views(self, ahead_s: float = math.inf) -> None:
        """Place all players of a ladder again if it has other views than when they were placed, or
        if a wrong clock has taken players out at a time after `ahead_s`."""
        for ladder, row in self._rows.items():
            if row.views != self._views(ladder).id or row.swept[0] > ahead_s:
                self._place_again(ladder)

    def _place_again(self, ladder: str) -> None:
        """Place all players of a ladder again, in several transactions. Until the last one, the
        index is not complete. After a kill, the next start begins again."""
        complete = self.state.complete
        last: bytes | None = b""
        with self._transaction() as t:
            self.state.complete = False
            row = self._rows[ladder]
            row.views, row.listed = UNPLACED, 0
            row.swept = self._first_swept(ladder)
            _delete_all(t.cursor(self._tables.points), row.prefix)
            self._put_row(t, ladder, row)
        while last is not None:
            with self._transaction() as t:
                row = self._rows[ladder]
                last = self._place_some_again(t, ladder, row, last)
                if last is None:
                    row.views, self.state.complete = self._views(ladder).id, complete
                self._put_row(t, ladder, row)

    def _place_some_again(self, t: Any, ladder: str, row: LadderRow, last: bytes) -> bytes | None:
        """Place players behind the id `last`. Returns the last one's id; None once all are
        placed."""
        players = t.cursor(self._tables.players)
        keys = tables.rows_from(players, row.prefix, last + b"\0", values=False)
        names = [key[4:].decode() for key in islice(keys, AT_ONCE)]
        placed, views = self._stored(t, row.prefix, names), self._views(ladder)
        old = _part_of(row, placed)
        self._change_lists(t, row.prefix, old.players, listed=False)
        again = {name: entries.replaced(name, each, views) for name, each in old.players.items()}
        before, after = old._replace(players={}), old._replace(players=again)
        self._write(t, row, before, after, placed, {})
        return names[-1].encode() if len(names) == AT_ONCE else None

    # --- seasons ---

    def begin_seasons(self, log: str, ends: Sequence[int]) -> Sequence[int]:
        """The offset from which each partition of the standings must be read. `ends`: the end of
        each. If the index has standings of another log, or of a longer one, it drops them."""
        state = self.state
        known = state.seasons + [0] * (len(ends) - len(state.seasons))
        if state.seasons_log == log and all(at <= end for at, end in zip(known, ends, strict=True)):
            return known
        with self._transaction() as t:
            for row in self._seasons.values():
                for table in (self._tables.players, self._tables.ranks, self._tables.points):
                    _delete_all(t.cursor(table), row.prefix)
            t.drop(self._tables.seasons, delete=False)
            self._seasons.clear()
            state.seasons_log, state.seasons = log, [0] * len(ends)
        return list(self.state.seasons)

    def apply_seasons(
        self, records: Sequence[SeasonRecord | None], positions: Sequence[int]
    ) -> None:
        """Write standings and summaries. The index then has all records before these positions."""
        standings: dict[bytes, list[Standing]] = {}
        kept: dict[bytes, SeasonKept] = {}
        for each in records:
            if isinstance(each, Standing):
                standings.setdefault(tables.season_key(each.ladder, each.season), []).append(each)
            elif isinstance(each, SeasonKept):
                kept[tables.season_key(each.ladder, each.season)] = each
        with self._transaction() as t:
            for key in sorted({*standings, *kept}):
                row = self._seasons.get(key)
                if row is None:
                    row = LadderRow(self._next_number(), entries.LadderSummary(), 0)
                    self._seasons[key] = row
                players = {e.player: entries.player_in(e) for e in standings.get(key, ())}
                stored = self._stored(t, row.prefix, players)
                before = _part_of(row, stored)
                after = before._replace(players={**before.players, **players})
                self._write(t, row, before, after, stored, dict.fromkeys(players, b""))
                row.kept = kept.get(key, row.kept)
                t.put(key, tables.encode_entry(row), db=self._tables.seasons)
            self.state.seasons = list(positions)

    # --- tables ---

    def _new_row(self, ladder: str) -> LadderRow:
        row = self._rows[ladder] = LadderRow(
            self._next_number(), entries.LadderSummary(), 0, self._views(ladder).id,
            self._first_swept(ladder),
        )  # fmt: skip
        self._ladders[row.number] = ladder
        return row

    def _next_number(self) -> int:
        rows = *self._rows.values(), *self._seasons.values()
        return 1 + max((row.number for row in rows), default=-1)

    def _first_swept(self, ladder: str) -> entries.Swept:
        """The first value of `swept`: players whose moment has come count as taken out already."""
        return (self._now(), b"") if self._views(ladder).depend_on_time else entries.NOT_SWEPT

    def _put_row(self, t: Any, ladder: str, row: LadderRow) -> None:
        t.put(ladder.encode(), tables.encode_entry(row), db=self._tables.ladders)

    def _stored(self, t: Any, prefix: bytes, names: Collection[str]) -> Stored:
        """These players, without those whom the index does not have."""
        return tables.stored_players(t.cursor(self._tables.players), prefix, names)

    def _write(
        self, t: Any, row: LadderRow, before: LadderIndex, after: LadderIndex, stored: Stored,
        kept: Mapping[str, bytes],
    ) -> None:  # fmt: skip
        """Change the stored players from `before` to `after`. `kept` has the offsets of those
        histories that have changed; `stored` has those of the others."""
        prefix, gone, come = row.prefix, before.listed(), after.listed()
        changed: list[tuple[bytes, bytes]] = []
        for name, new in after.players.items():
            if new is not before.players.get(name) or name in kept:
                offsets = kept[name] if name in kept else stored[name].offsets
                value = tables.encode_entry(StoredPlayer(new, offsets))
                changed.append((prefix + name.encode(), value))
        for name in before.players.keys() - after.players.keys():
            t.delete(prefix + name.encode(), db=self._tables.players)
        t.cursor(self._tables.players).putmulti(sorted(changed))
        self._change_lists(t, prefix, gone, listed=False)
        self._change_lists(t, prefix, come, listed=True)
        points = Counter([math.floor(each.rating) for each in come.values()])
        points.subtract([math.floor(each.rating) for each in gone.values()])
        self._add_points(t, row, points)

    def _change_lists(
        self, t: Any, prefix: bytes, some: Mapping[str, IndexedPlayer], *, listed: bool
    ) -> None:
        """Add players to the tables `ranks` and `dues`, or take them out."""
        scores = tables.scores_of([each.rating for each in some.values()])
        ranks = [prefix + at + name.encode() for at, name in zip(scores, some, strict=True)]
        timed = {name: each.until_s for name, each in some.items() if each.until_s < math.inf}
        moments = tables.ordered([*timed.values()])
        dues = [at + prefix + name.encode() for at, name in zip(moments, timed, strict=True)]
        for keys, table in ((ranks, self._tables.ranks), (dues, self._tables.dues)):
            keys.sort()
            if listed:
                t.cursor(table).putmulti([(key, b"") for key in keys])
            else:
                for key in keys:
                    t.delete(key, db=table)

    def _add_points(self, t: Any, row: LadderRow, added: Mapping[int, int]) -> None:
        """Add to the numbers of listed players at these points of rating."""
        by_bin: dict[int, list[tuple[int, int]]] = {}
        for point, count in added.items():
            if count:
                number, at = divmod(point, entries.BIN)
                by_bin.setdefault(number, []).append((at, count))
                row.listed += count
        for number, some in by_bin.items():
            key = row.prefix + tables.number_key(number)
            counts = tables.counts_in(t.get(key, db=self._tables.points))
            for at, count in some:
                counts[at] += count
            if any(counts):
                t.put(key, tables.pack_counts(*counts), db=self._tables.points)
            else:
                t.delete(key, db=self._tables.points)

    def _write_changes(
        self, t: Any, prefix: bytes, stored: Stored, events: Sequence[entries.IndexEvent]
    ) -> dict[str, bytes]:
        """Add events to the histories, each of which keeps its newest changes. Returns the offsets
        of the histories that have changed, by player."""
        kept: dict[str, bytes] = {}
        added: dict[bytes, bytes] = {}
        for event in events:
            name, player = event.player, event.player.encode()
            known = stored.get(name)
            offsets = kept.get(name, b"" if known is None else known.offsets)
            most = 0
            if isinstance(event, RatingChanged):
                offset, most = tables.number_key(event.offset), 8 * self._max_changes
                offsets = _with_offset(offsets, offset)
                added[prefix + offset + player] = tables.encode_entry(entries.change_of(event))
            too_many = max(0, len(offsets) - most)
            for each in tables.offsets_in(offsets[:too_many]):
                key = prefix + each + player
                added.pop(key, None)
                t.delete(key, db=self._tables.changes)
            kept[name] = offsets[too_many:]
        t.cursor(self._tables.changes).putmulti(sorted(added.items()))
        return kept


def _part_of(row: LadderRow, stored: Stored) -> LadderIndex:
    """The part of a ladder's index for these players."""
    players = {name: each.player for name, each in stored.items()}
    return LadderIndex(players, row.summary, row.swept)


def _delete_all(cursor: Any, prefix: bytes) -> None:
    """Delete the rows whose keys begin with `prefix`."""
    while cursor.set_range(prefix) and cursor.key().startswith(prefix):
        cursor.delete()


def _with_offset(offsets: bytes, offset: bytes) -> bytes:
    """The offsets of a history with one more, unless it has that already."""
    if offsets[-8:] < offset:
        return offsets + offset
    return b"".join(sorted({*tables.offsets_in(offsets), offset}))
