"""Writes the index of `serve` into Redis: a compare-and-set for each ladder and batch.

Every `serve` process follows `rating-changed`, since its own clients want the events, and every one
writes the index. This needs no leader, and what a killed process leaves out another one writes:

1. Names: all ladders of the batch are added to ROOT.
2. Apply: for each ladder WATCH its positions, read what the events touch, and write that and the
   new positions in one MULTI/EXEC. If another process wrote meanwhile, nothing happens, and it is
   done again; then the events mostly are there already, and change nothing.
3. Checkpoint, now and then: ladders without events have their positions raised, then those of ROOT.

Reading starts at the least position of all. So Redis may lose its last writes, or all of them, on
any of its servers: positions are lost with what they stand for, and never before it. A process that
finds a position lower than it was raises IndexLost, and reads again from there.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import redis

from stream_rater.adapters.index_keys import (
    EVERY_KEY,
    INDEX,
    NO_LADDER,
    ROOT,
    SUMMARY,
    LadderKeys,
    keys_of,
    member_of,
    partition_member,
    root_of,
    topic_member,
)
from stream_rater.adapters.redis_client import connect, failures_named, servers
from stream_rater.config import Settings
from stream_rater.pipeline.ports import CannotGoOn, StoreTrouble
from stream_rater.serving.entries import (
    Change,
    History,
    Indexed,
    IndexedPlayer,
    LadderSummary,
    folded,
    history_from,
    ladders_in,
    packed,
    player_from,
    summary_from,
)

ATTEMPTS = 100
"""So often a write is tried that other processes get ahead of."""

Positions = dict[int, int]
"""The next offset by partition; a partition that is absent was not read: 0."""


def drop_index(settings: Settings) -> None:
    """Delete the whole index. Whoever follows makes it anew. Raises StoreTrouble or Denied."""
    client = connect(settings)
    with failures_named():
        for server in servers(client):
            for key in list(server.scan_iter(match=EVERY_KEY, count=10_000)):
                client.unlink(key)


class IndexLost(Exception):
    """Redis lost a part of the index. It is read again from where the rest stands."""


class IndexWriter:
    """Changes the index. It is for one thread. Raises StoreTrouble or Denied where Redis fails."""

    def __init__(self, settings: Settings) -> None:
        self._client = connect(settings)
        self._history = settings.serve_history
        self._ladders: dict[str, Positions] = {}
        """The positions that each ladder had when this process last saw them."""
        self._positions: Positions = {}
        """Those of ROOT."""

    def check(self) -> None:
        """Try all rights that writing needs. Raises Denied."""
        keys = keys_of(NO_LADDER)
        with failures_named(), self._client.pipeline(transaction=True) as pipe:
            pipe.watch(keys.state)
            pipe.hmget(keys.players, [""])
            pipe.unwatch()
            pipe.multi()
            pipe.hset(keys.state, "", "")
            pipe.hdel(keys.state, "")
            pipe.zadd(keys.ranks, {"": 0})
            pipe.zrem(keys.ranks, "")
            pipe.execute()

    def begin(self, topic: str, partitions: int) -> list[int]:
        """From where each partition is to be read. Raises CannotGoOn for an index of another
        topic."""
        with failures_named():
            root = root_of(self._client.zrange(ROOT, 0, -1, withscores=True))
            if others := [each for each in root.topics if each != topic]:
                raise of_another(topic, f"made of {others[0]!r}")
            self._client.zadd(ROOT, {topic_member(topic): 0})
            self._positions = root.positions
            self._ladders = {
                name: _positions(self._client.hgetall(keys_of(name).state)) for name in root.ladders
            }
        all_positions = [self._positions, *self._ladders.values()]
        return [min(each.get(p, 0) for each in all_positions) for p in range(partitions)]

    def apply(self, events: Sequence[Change], positions: Sequence[int]) -> None:
        """Apply a batch of events; afterwards everything before these positions was read. Raises
        IndexLost."""
        with failures_named():
            each_ladder = ladders_in(events)
            if new := each_ladder.keys() - self._ladders.keys():
                self._client.zadd(ROOT, dict.fromkeys(map(member_of, sorted(new)), 0))
            for ladder, own in each_ladder.items():
                self._apply(ladder, own, positions)

    def checkpoint(self, positions: Sequence[int]) -> None:
        """Note that everything before these positions is applied, and that the index is still
        there. Raises IndexLost."""
        with failures_named():
            for ladder in list(self._ladders):
                self._apply(ladder, (), positions)
            with self._client.pipeline(transaction=True) as pipe:
                pipe.watch(ROOT)
                root = root_of(pipe.zrange(ROOT, 0, -1, withscores=True))
                stored = _checked(ROOT, root.positions, self._positions)
                if not self._ladders.keys() <= set(root.ladders):
                    raise IndexLost(f"{ROOT} lacks ladders")
                if not (raised := _raised(stored, positions)):
                    return
                pipe.multi()
                pipe.zadd(ROOT, {partition_member(p): at for p, at in raised.items()})
                try:
                    pipe.execute()
                except redis.WatchError:
                    return  # another process did it, or names a ladder
                self._positions = stored | raised

    def _apply(self, ladder: str, events: Sequence[Change], positions: Sequence[int]) -> None:
        keys, known = keys_of(ladder), self._ladders.get(ladder, {})
        with self._client.pipeline(transaction=True) as pipe:
            for _ in range(ATTEMPTS):
                pipe.watch(keys.state)
                state = pipe.hgetall(keys.state)
                stored = _checked(keys.state, _positions(state), known)
                if not (raised := _raised(stored, positions)):
                    self._ladders[ladder] = stored  # another process was here
                    return
                before = _read(pipe, keys, state, events) if events else None
                pipe.multi()
                if before is not None:
                    _write(pipe, keys, before, folded(before, events, self._history))
                pipe.hset(keys.state, mapping=raised)
                try:
                    pipe.execute()
                except redis.WatchError:
                    continue
                self._ladders[ladder] = stored | raised
                return
        raise StoreTrouble(f"redis: ladder {ladder!r}: others wrote its index {ATTEMPTS} times")


def of_another(topic: str, why: str) -> CannotGoOn:
    """The index in Redis is not of this topic."""
    return CannotGoOn(
        f"the index in Redis is of another topic than {topic!r}: it is {why}: delete the keys that "
        f"begin with {INDEX!r} or {ROOT!r}, or give `serve` another database of Redis"
    )


def _positions(found: Mapping[bytes, bytes]) -> Positions:
    return {int(name): int(at) for name, at in found.items() if name != SUMMARY}


def _checked(key: str, stored: Positions, known: Positions) -> Positions:
    """The positions that stand there. Raises IndexLost if one is lower than it was."""
    if any(stored.get(p, 0) < at for p, at in known.items()):
        raise IndexLost(f"{key} went back")
    return stored


def _raised(stored: Positions, positions: Sequence[int]) -> Positions:
    """Those of the positions that are beyond what is stored."""
    return {p: at for p, at in enumerate(positions) if at > stored.get(p, 0)}


def _read(
    pipe: Any, keys: LadderKeys, state: Mapping[bytes, bytes], events: Sequence[Change]
) -> Indexed:
    """What these events may change."""
    names = sorted({event.player for event in events})
    players: dict[str, IndexedPlayer] = {}
    histories: dict[str, History] = {}
    for name, player, history in zip(
        names, pipe.hmget(keys.players, names), pipe.hmget(keys.histories, names), strict=True
    ):
        if player is not None:
            players[name] = player_from(player)
        if history is not None:
            histories[name] = history_from(history)
    summary = state.get(SUMMARY)
    return Indexed(
        players, histories, {int(at): int(n) for at, n in pipe.hgetall(keys.bins).items()},
        LadderSummary() if summary is None else summary_from(summary),
    )  # fmt: skip


def _write(pipe: Any, keys: LadderKeys, before: Indexed, after: Indexed) -> None:
    """Queue the commands that lead from one to the other."""
    changed = {
        name: player for name, player in after.players.items() if before.players.get(name) != player
    }
    gone = [name for name in before.players if name not in after.players]
    if changed:
        pipe.hset(keys.players, mapping={name: packed(each) for name, each in changed.items()})
    if changed or gone:
        pipe.hset(keys.state, SUMMARY, packed(after.summary))
    if gone:
        pipe.hdel(keys.players, *gone)
        pipe.zrem(keys.ranks, *gone)
    if forgotten := [name for name in before.histories if name not in after.histories]:
        pipe.hdel(keys.histories, *forgotten)
    if scores := {name: -each.rating for name, each in changed.items() if each.listed}:
        pipe.zadd(keys.ranks, scores)
    if unlisted := [name for name in changed if name not in scores]:
        pipe.zrem(keys.ranks, *unlisted)
    if bins := {at: n for at, n in after.bins.items() if n and n != before.bins.get(at)}:
        pipe.hset(keys.bins, mapping=bins)
    if empty := [at for at, n in after.bins.items() if not n]:
        pipe.hdel(keys.bins, *empty)
    histories = {
        name: packed(history)
        for name, history in after.histories.items()
        if history != before.histories.get(name)
    }
    if histories:
        pipe.hset(keys.histories, mapping=histories)
