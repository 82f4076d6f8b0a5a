"""Writes the index of `serve` to Redis, by a compare-and-set for each ladder and batch.

Every `serve` process follows `rating-changed`, because its clients follow the events, and every
`serve` process writes the index. So no leader is needed: if a process is killed, another one writes
the rest.

1. Names: all ladders of the batch are added to ROOT.
2. Apply: for some ladders together (in a cluster, one by one), WATCH their keys, read the data that
   the events change, and write that data and the new positions in one MULTI/EXEC. If another
   process wrote since WATCH, nothing is written, and the step is repeated. An event before the
   ladder's position in its partition is in the index already. It is left out, because later events
   may have been applied, too.
3. Checkpoint, at intervals: raise the positions of ladders without events, then those of ROOT.

Reading starts at the least of all positions. So Redis may lose its last writes, or all of them, on
any of its servers: the data before a position is never lost without the position. A process that
finds a position lower than before raises IndexLost, and reads again from there.

A single key may also be lost, by eviction or by hand. So each write stores how many members the
other keys have. A process that finds another number deletes the ladder's index, which is then made
again.

The topic may be another one than it was, or Kafka may have lost its last records. So before each
checkpoint the offset and the checksum of each partition's last record are stored, and a process
that begins to read compares them with the topic (`Tail`).

If players may leave a leaderboard without an event, a fourth step takes them out:

4. Sweep, about once a second: for each of the next LADDERS_SWEPT ladders, take out players whose
   moment has come, in order of moment and player, and write the place of the last one with them. At
   most SWEPT_TOGETHER leave in one MULTI/EXEC. If that place is ahead of the clock, the ladder's
   index is made again.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import chain, islice
from typing import Any, NamedTuple

from stream_rater.adapters.redis import index_keys
from stream_rater.adapters.redis.client import connect, executed, is_cluster, translated_failures
from stream_rater.adapters.redis.login import login_of
from stream_rater.adapters.redis.metadata import LAYOUT_KEY, REBUILDING, check_not_half
from stream_rater.config.ladders import ANY_LADDER, Ladders
from stream_rater.config.settings import Settings
from stream_rater.contract.errors import Denied, StoreTrouble, Unrecoverable
from stream_rater.index import entries

ATTEMPTS = 100
"""The most times that a write is tried if other processes write first each time."""
LADDERS_TOGETHER = 200
"""The most ladders that one transaction writes."""
LADDERS_SWEPT = 2_000
"""The most ladders that one sweep looks at."""
SWEPT_TOGETHER = 1_000
"""The most players whom one write takes off a leaderboard."""
KEPT_S = 86_400.0
"""How long an index is kept whose views no process has."""
KEEP_S = 600.0
"""The interval at which a process records that it keeps its indexes."""

Positions = dict[int, int]
"""The next offset by partition. An absent partition was not read: its next offset is 0."""

EventPlace = tuple[int, int]
"""The partition and the offset of an event."""

PlacedEvents = Sequence[tuple[EventPlace | None, entries.IndexEvent]]
"""Events with their places, as far as these are known."""


class Tail(NamedTuple):
    """A record of a partition: the last one that was read."""

    offset: int
    checksum: int


class IndexLost(Exception):
    """Redis lost a part of the index. Reading begins again where the remaining part ends."""


class IndexWriter:
    """Changes the index. It is for one thread. Its methods raise StoreTrouble or Denied if Redis
    fails."""

    def __init__(
        self, settings: Settings, ladders: Ladders = ANY_LADDER,
        now: Callable[[], float] = time.time,
    ) -> None:  # fmt: skip
        """`ladders` has the views by which the index is made. `now` returns Unix seconds."""
        self._client = connect(settings)
        self._login = login_of(settings)
        self._history = settings.serve_history
        self._views, self._now, self._kept_s = ladders.by_table(ladders.views), now, 0.0
        self._ladders: dict[str, Positions] = {}
        """The positions that each ladder had when this process last saw them."""
        self._positions: Positions = {}
        """The positions of ROOT."""
        self._swept = 0
        """The number of ladders that were looked at since the sweep last began with the first."""

    def check(self) -> None:
        """Try all rights that writing needs. Raises Denied, or LayoutMismatch if a move to this
        place is unfinished."""
        with suppress(Denied), translated_failures(self._login):  # not every `serve` may read it
            check_not_half(self._client.hget(LAYOUT_KEY, REBUILDING))
        keys = self._keys(index_keys.NO_LADDER)
        with translated_failures(self._login), self._client.pipeline(transaction=True) as pipe:
            pipe.watch(*keys)
            pipe.hmget(keys.players, [""])
            pipe.hlen(keys.players)
            pipe.unwatch()
            pipe.multi()
            pipe.hset(keys.state, "", "")
            pipe.hdel(keys.state, "")
            pipe.zadd(keys.ranks, {"": 0})
            pipe.zrem(keys.ranks, "")
            pipe.unlink(keys.bins)
            pipe.execute()

    def begin(self, topic: str, partitions: int) -> list[int]:
        """The offset from which each partition must be read. Raises Unrecoverable if the index was
        made from another topic."""
        with translated_failures(self._login):
            root = index_keys.root_of(self._client.zrange(index_keys.ROOT, 0, -1, withscores=True))
            if others := [each for each in root.topics if each != topic]:
                raise other_topic_error(topic, f"it was made from {others[0]!r}")
            self._client.zadd(index_keys.ROOT, {index_keys.topic_member(topic): 0})
            self._positions = root.positions
            with self._client.pipeline(transaction=False) as pipe:
                for name in root.ladders:
                    pipe.hgetall(self._keys(name).state)
                found = map(_positions, pipe.execute())
            self._ladders = dict(zip(root.ladders, found, strict=True))
        all_positions = [self._positions, *self._ladders.values()]
        return [min(each.get(p, 0) for each in all_positions) for p in range(partitions)]

    def tails(self) -> dict[int, Tail]:
        """By partition, the last record that any process had read at its last checkpoint. A
        partition is absent if this is unknown."""
        with translated_failures(self._login):
            found = self._client.hgetall(index_keys.TAILS)
        return {int(p): Tail(*map(int, tail.split())) for p, tail in found.items()}

    def apply(
        self, events: Sequence[entries.IndexEvent], positions: Sequence[int],
        places: Sequence[EventPlace] | None = None,
    ) -> Mapping[entries.EntryKey, entries.IndexedPlayer]:  # fmt: skip
        """Apply a batch of events, after which everything before these positions is applied. Raises
        IndexLost.

        `places` has the place of each event. Events before the ladder's position in their partition
        are left out. Without `places`, no event is left out.

        Returns the player after each event of a ladder with tiers. An event is absent if another
        process has applied it, and also a newer one of the player.
        """
        after: dict[entries.EntryKey, entries.IndexedPlayer] = {}
        by_ladder: dict[str, list[tuple[EventPlace | None, entries.IndexEvent]]] = {}
        for i, event in enumerate(events):
            placed = None if places is None else places[i], event
            by_ladder.setdefault(event.ladder, []).append(placed)
        with translated_failures(self._login):
            if new := by_ladder.keys() - self._ladders.keys():
                self._client.zadd(
                    index_keys.ROOT, dict.fromkeys(map(index_keys.member_of, sorted(new)), 0)
                )
            for batch in self._batches(by_ladder):
                after |= self._apply(batch, positions)
        return after

    def sweep(self) -> bool:
        """Take players off some leaderboards whose moment has come; the next call begins with the
        next leaderboard. Returns whether there are more. Raises IndexLost."""
        now_s, more = self._now(), False
        timed = [each for each in self._ladders if self._views(each).depend_on_time]
        ladders = timed[self._swept : self._swept + LADDERS_SWEPT]
        self._swept = 0 if ladders[-1:] == timed[-1:] else self._swept + LADDERS_SWEPT
        with translated_failures(self._login), self._client.pipeline(transaction=False) as pipe:
            for ladder in ladders:
                pipe.zcount(self._keys(ladder).dues, "-inf", now_s)
                pipe.hget(self._keys(ladder).state, index_keys.SWEPT)
            found = pipe.execute()
            for ladder, due, swept in zip(ladders, found[::2], found[1::2], strict=True):
                if swept and _decode_swept(swept)[0] > now_s + entries.WRONG_CLOCK_S:
                    self._client.unlink(*self._keys(ladder))
                    raise IndexLost(f"{ladder!r}: a clock was ahead, and players left too early")
                if due:
                    more |= self._sweep(ladder, now_s)
        return more

    def store_tails(self, tails: Mapping[int, Tail]) -> None:
        """Store the last record that was read of each of these partitions."""
        if tails:
            last = {p: f"{tail.offset} {tail.checksum}" for p, tail in tails.items()}
            with translated_failures(self._login):
                self._client.hset(index_keys.TAILS, mapping=last)

    def checkpoint(self, positions: Sequence[int]) -> None:
        """Store that everything before these positions is applied, and check that the index still
        exists. Raises IndexLost."""
        with translated_failures(self._login):
            if not 0.0 <= self._now() - self._kept_s < KEEP_S:  # or the clock was set back
                self._keep()
            for batch in self._batches(dict.fromkeys(self._ladders, ())):
                self._apply(batch, positions)
            with self._client.pipeline(transaction=True) as pipe:
                for _ in range(ATTEMPTS):
                    pipe.watch(index_keys.ROOT)
                    root = index_keys.root_of(pipe.zrange(index_keys.ROOT, 0, -1, withscores=True))
                    stored = _checked(index_keys.ROOT, root.positions, self._positions)
                    if not self._ladders.keys() <= set(root.ladders):
                        raise IndexLost(f"{index_keys.ROOT} lacks ladders")
                    if not (advanced := _advanced(stored, positions)):
                        self._positions = stored
                        return
                    pipe.multi()
                    pipe.zadd(
                        index_keys.ROOT,
                        {index_keys.partition_member(p): at for p, at in advanced.items()},
                    )
                    if not executed(pipe):
                        continue  # another process did it, or added a ladder
                    self._positions = stored | advanced
                    return
        raise StoreTrouble(f"redis: others wrote {index_keys.ROOT} {ATTEMPTS} times")

    def _batches(self, events: Mapping[str, PlacedEvents]) -> Iterator[Mapping[str, PlacedEvents]]:
        """Ladders that are written together: in a cluster they are in different slots."""
        left, most = iter(events.items()), 1 if is_cluster(self._client) else LADDERS_TOGETHER
        while batch := dict(islice(left, most)):
            yield batch

    def _apply(
        self, batch: Mapping[str, PlacedEvents], positions: Sequence[int]
    ) -> dict[entries.EntryKey, entries.IndexedPlayer]:
        """Apply the events of some ladders in one MULTI/EXEC. Returns what `apply` does."""
        keys = {ladder: self._keys(ladder) for ladder in batch}
        with self._client.pipeline(transaction=True) as pipe:
            for _ in range(ATTEMPTS):
                pipe.watch(*chain.from_iterable(keys.values()))
                names = [sorted({event.player for _, event in own}) for own in batch.values()]
                all_found = _read(self._client, [*zip(keys.values(), names, strict=True)])
                pipe.multi()
                made, reached, lost = (
                    dict[entries.EntryKey, entries.IndexedPlayer](),
                    dict[str, Positions](),
                    "",
                )
                for (ladder, own), found in zip(batch.items(), all_found, strict=True):
                    state = keys[ladder].state
                    stored = _checked(state, _positions(found.state), self._ladders.get(ladder, {}))
                    reached[ladder], players = stored, found.made
                    if not found.intact:
                        lost = state
                        pipe.unlink(*keys[ladder])
                    elif advanced := _advanced(stored, positions):  # else another wrote first
                        fresh = [each for at, each in own if _is_fresh(at, stored)]
                        players = {**players, **self._queue(pipe, ladder, found, fresh, advanced)}
                        reached[ladder] = stored | advanced
                    if self._views(ladder).tiers:
                        made |= {(ladder, *key): player for key, player in players.items()}
                if len(pipe) and not executed(pipe):
                    continue
                if lost:
                    raise IndexLost(f"{lost}: a part of this ladder's index was lost")
                self._ladders |= reached
                return made
        raise _too_often(min(batch))

    def _queue(
        self, pipe: Any, ladder: str, found: "_StoredIndex", fresh: Sequence[entries.IndexEvent],
        advanced: Positions,
    ) -> Mapping[tuple[str, int], entries.IndexedPlayer]:  # fmt: skip
        """Queue what applies fresh events of a ladder. Returns the players after them."""
        before, state, views = found.before, self._keys(ladder).state, self._views(ladder)
        if views.depend_on_time and index_keys.SWEPT not in found.state:
            before = before._replace(swept=(self._now(), b""))
            pipe.hset(state, index_keys.SWEPT, _encode_swept(before.swept))
        after = entries.apply_events(before, fresh, self._history, views)
        _write(pipe, self._keys(ladder), before, after)
        pipe.hset(state, index_keys.SIZES, _sizes_after(found, before, after), mapping=advanced)
        return after.made

    def _sweep(self, ladder: str, now_s: float) -> bool:
        """Take players off the leaderboard of a ladder. Returns whether there are more."""
        keys = self._keys(ladder)
        with self._client.pipeline(transaction=True) as pipe:
            for _ in range(ATTEMPTS):
                pipe.watch(*keys)
                due = self._client.zrange(
                    keys.dues, "-inf", now_s, byscore=True, offset=0, num=SWEPT_TOGETHER,
                    withscores=True,
                )  # fmt: skip
                if not due:
                    return False
                names = [member.decode() for member, _ in due]
                (found,) = _read(self._client, [(keys, names)])
                _checked(keys.state, _positions(found.state), self._ladders[ladder])
                if not found.intact:
                    raise IndexLost(f"{keys.state}: a part of this ladder's index was lost")
                last, moment_s = due[-1]
                after = entries.sweep(found.before, (moment_s, last))
                pipe.multi()
                _write(pipe, keys, found.before, after)
                sizes = {index_keys.SIZES: _sizes_after(found, found.before, after)}
                pipe.hset(keys.state, index_keys.SWEPT, _encode_swept(after.swept), mapping=sizes)
                if executed(pipe):
                    return len(due) == SWEPT_TOGETHER
        raise _too_often(ladder)

    def _keep(self) -> None:
        """Record that this process keeps its indexes. Delete those that nobody has kept for
        KEPT_S."""
        now_s = self._now()
        with_views = {name: found for name in self._ladders if (found := self._views(name).id)}
        if without := {f":{name}": now_s for name in self._ladders if name not in with_views}:
            self._client.zadd(index_keys.VIEWS, without, xx=True)
        if with_views:
            # An index without views has an age from when there is another one beside it.
            self._client.zadd(index_keys.VIEWS, {f":{name}": now_s for name in with_views}, nx=True)
            own = {f"{found}:{name}": now_s for name, found in with_views.items()}
            self._client.zadd(index_keys.VIEWS, own)
        if ahead := self._client.zrange(
            index_keys.VIEWS, now_s + entries.WRONG_CLOCK_S, "+inf", byscore=True
        ):
            self._client.zadd(
                index_keys.VIEWS, dict.fromkeys(ahead, now_s), xx=True
            )  # of a wrong clock
        for member in self._client.zrange(index_keys.VIEWS, "-inf", now_s - KEPT_S, byscore=True):
            views, _, ladder = member.decode().partition(":")
            self._client.unlink(*index_keys.keys_of(ladder, views))
            self._client.zrem(index_keys.VIEWS, member)
        self._kept_s = now_s

    def _keys(self, ladder: str) -> index_keys.LadderKeys:
        return index_keys.keys_of(ladder, self._views(ladder).id)


def _too_often(ladder: str) -> StoreTrouble:
    return StoreTrouble(f"redis: ladder {ladder!r}: others wrote its index {ATTEMPTS} times")


def other_topic_error(topic: str, why: str) -> Unrecoverable:
    """The error for an index that was not made from this topic, as it is now."""
    return Unrecoverable(
        f"the index in Redis was not made from {topic!r} as it is now: {why}: delete the keys that "
        f"begin with {index_keys.INDEX!r} or {index_keys.ROOT!r}, or give `serve` another database "
        "of Redis"
    )


def _positions(found: Mapping[bytes, bytes]) -> Positions:
    others = index_keys.SUMMARY, index_keys.SIZES, index_keys.SWEPT
    return {int(name): int(at) for name, at in found.items() if name not in others}


def _checked(key: str, stored: Positions, last_seen: Positions) -> Positions:
    """Return the stored positions. Raises IndexLost if one is lower than when last seen."""
    if any(stored.get(p, 0) < at for p, at in last_seen.items()):
        raise IndexLost(f"{key} went back")
    return stored


def _advanced(stored: Positions, positions: Sequence[int]) -> Positions:
    """Those of `positions`, by partition, that are greater than the stored ones."""
    return {p: at for p, at in enumerate(positions) if at > stored.get(p, 0)}


def _is_fresh(place: EventPlace | None, stored: Positions) -> bool:
    """Whether an event is not in the index yet."""
    return place is None or place[1] >= stored.get(place[0], 0)


class _StoredIndex(NamedTuple):
    """The data about a ladder that Redis has."""

    state: Mapping[bytes, bytes]
    sizes: Sequence[int]
    """The numbers of members of players, ranks, bins, histories and dues."""
    before: entries.LadderIndex
    """The part that the events may change."""

    @property
    def intact(self) -> bool:
        """Whether no key was lost."""
        return self.state.get(index_keys.SIZES, _sizes(0, 0, 0, 0, 0)) == _sizes(*self.sizes)

    @property
    def made(self) -> Mapping[tuple[str, int], entries.IndexedPlayer]:
        """The players after their newest events."""
        return {(name, each.offset): each for name, each in self.before.players.items()}


def _read(
    client: Any, wanted: Sequence[tuple[index_keys.LadderKeys, Sequence[str]]]
) -> list[_StoredIndex]:
    """Read of each ladder these players, and the data about all players. The values are not read at
    one instant, so the caller must watch the keys before it writes."""
    with client.pipeline(transaction=False) as pipe:
        for keys, names in wanted:
            pipe.hgetall(keys.state)
            pipe.hlen(keys.players)
            pipe.zcard(keys.ranks)
            pipe.hlen(keys.bins)
            pipe.hlen(keys.histories)
            pipe.zcard(keys.dues)
            if names:
                pipe.hgetall(keys.bins)
                pipe.hmget(keys.players, names)
                pipe.hmget(keys.histories, names)
        replies = iter(pipe.execute())
    return [_stored([*islice(replies, 9 if names else 6)], names) for _, names in wanted]


def _stored(replies: Sequence[Any], names: Sequence[str]) -> _StoredIndex:
    """Decode the replies about a ladder."""
    state, sizes = replies[0], replies[1:6]
    bins, players, histories = replies[6:] or ({}, (), ())
    summary = state.get(index_keys.SUMMARY)
    before = entries.LadderIndex(
        {name: entries.decode_player(data) for name, data in zip(names, players,
        strict=True) if data},
        {name: entries.decode_history(data) for name, data in zip(names, histories,
        strict=True) if data},
        {int(at): int(n) for at, n in bins.items()},
        entries.LadderSummary() if summary is None else entries.decode_summary(summary),
        _decode_swept(state[index_keys.SWEPT]) if index_keys.SWEPT in state else entries.NOT_SWEPT,
    )  # fmt: skip
    return _StoredIndex(state, sizes, before)


def _encode_swept(swept: entries.Swept) -> bytes:
    return repr(swept[0]).encode() + b" " + swept[1]


def _decode_swept(stored: bytes) -> entries.Swept:
    moment_s, _, player = stored.partition(b" ")
    return float(moment_s), player


def _sizes(players: int, ranks: int, bins: int, histories: int, dues: int) -> bytes:
    """Encode the sizes, as the scripts of `serve.index.scripts` do in Redis."""
    sizes = (players, ranks, bins, histories, *((dues,) if dues else ()))
    return b" ".join(b"%d" % size for size in sizes)


def _sizes_after(
    found: _StoredIndex, before: entries.LadderIndex, after: entries.LadderIndex
) -> bytes:
    """The encoded sizes of the keys once `after` has replaced `before`, the part that was found."""
    listed = [sum(map(index.lists, index.players)) for index in (before, after)]
    waiting = [len(entries.dues_of(index)) for index in (before, after)]
    filled = [sum(n > 0 for n in index.bins.values()) for index in (before, after)]
    players, ranks, bins, histories, dues = found.sizes
    return _sizes(
        players + len(after.players) - len(before.players), ranks + listed[1] - listed[0],
        bins + filled[1] - filled[0], histories + len(after.histories) - len(before.histories),
        dues + waiting[1] - waiting[0],
    )  # fmt: skip


def _write_list(
    pipe: Any, keys: index_keys.LadderKeys, before: entries.LadderIndex, after: entries.LadderIndex
) -> None:
    """Queue the commands that change who is listed."""
    was, now = entries.dues_of(before), entries.dues_of(after)
    if dues := {name: at for name, at in now.items() if at != was.get(name)}:
        pipe.zadd(keys.dues, dues)
    if done := [name for name in was if name not in now]:
        pipe.zrem(keys.dues, *done)
    names = [
        name
        for name, each in after.players.items()
        if after.lists(name) and (before.players.get(name) != each or not before.lists(name))
    ]
    if names:
        pipe.zadd(keys.ranks, {name: -after.players[name].rating for name in names})
    if gone := [name for name in before.players if before.lists(name) and not after.lists(name)]:
        pipe.zrem(keys.ranks, *gone)


def _write(
    pipe: Any, keys: index_keys.LadderKeys, before: entries.LadderIndex, after: entries.LadderIndex
) -> None:
    """Queue the commands that change the index from `before` to `after`."""
    _write_list(pipe, keys, before, after)
    changed = {
        name: player for name, player in after.players.items() if before.players.get(name) != player
    }
    erased = [name for name in before.players if name not in after.players]
    if changed:
        pipe.hset(
            keys.players,
            mapping={name: entries.encode_entry(each) for name, each in changed.items()},
        )
    if changed or erased:
        pipe.hset(keys.state, index_keys.SUMMARY, entries.encode_entry(after.summary))
    if erased:
        pipe.hdel(keys.players, *erased)
    if forgotten := [name for name in before.histories if name not in after.histories]:
        pipe.hdel(keys.histories, *forgotten)
    if bins := {at: n for at, n in after.bins.items() if n and n != before.bins.get(at)}:
        pipe.hset(keys.bins, mapping=bins)
    if empty := [at for at, n in after.bins.items() if not n]:
        pipe.hdel(keys.bins, *empty)
    histories = {
        name: entries.encode_entry(history)
        for name, history in after.histories.items()
        if history != before.histories.get(name)
    }
    if histories:
        pipe.hset(keys.histories, mapping=histories)
