"""Writes the index of `serve` into Redis: a compare-and-set for each ladder and batch.

Every `serve` process follows `rating-changed`, since its own clients want the events, and every one
writes the index. This needs no leader, and what a killed process leaves out another one writes:

1. Names: all ladders of the batch are added to LADDERS.
2. Apply: for each ladder WATCH its positions, read what the events touch, and write that and the
   new positions in one MULTI/EXEC. If another process wrote meanwhile, nothing happens, and it is
   done again; then the events mostly are there already, and change nothing.
3. Checkpoint, now and then: ladders without events have their positions raised, then POSITIONS.

Reading starts at the least position of all. So Redis may lose its last writes, or all of them, on
any of its servers: positions are lost with what they stand for, and never before it. A process that
finds a position lower than it was raises IndexLost, and reads again from there.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import redis

from stream_rater.adapters.index_keys import LADDERS, POSITIONS, LadderKeys, keys_of
from stream_rater.adapters.redis_client import FAILURES, connect
from stream_rater.config import Settings
from stream_rater.contract.events import RatingChanged
from stream_rater.pipeline.ports import Denied, StoreTrouble
from stream_rater.serving.entries import (
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
        """Those of POSITIONS."""

    def begin(self, partitions: int) -> list[int]:
        """From where each partition is to be read."""
        with _named():
            names = sorted(each.decode() for each in self._client.smembers(LADDERS))
            self._positions = _positions(self._client.hgetall(POSITIONS))
            self._ladders = {
                name: _positions(self._client.hgetall(keys_of(name).positions)) for name in names
            }
        all_positions = [self._positions, *self._ladders.values()]
        return [min(each.get(p, 0) for each in all_positions) for p in range(partitions)]

    def apply(self, events: Sequence[RatingChanged], positions: Sequence[int]) -> None:
        """Apply a batch of events; afterwards everything before these positions was read. Raises
        IndexLost."""
        with _named():
            each_ladder = ladders_in(events)
            if new := each_ladder.keys() - self._ladders.keys():
                self._client.sadd(LADDERS, *sorted(new))
            for ladder, own in each_ladder.items():
                self._apply(ladder, own, positions)

    def checkpoint(self, positions: Sequence[int]) -> None:
        """Note that everything before these positions is applied, and that the index is still
        there. Raises IndexLost."""
        with _named():
            for ladder in list(self._ladders):
                self._apply(ladder, (), positions)
            with self._client.pipeline(transaction=True) as pipe:
                pipe.watch(LADDERS, POSITIONS)
                stored = self._checked(pipe, POSITIONS, self._positions)
                if pipe.scard(LADDERS) < len(self._ladders):
                    raise IndexLost(f"the set {LADDERS} is not whole")
                if not (raised := _raised(stored, positions)):
                    return
                pipe.multi()
                pipe.hset(POSITIONS, mapping=raised)
                try:
                    pipe.execute()
                except redis.WatchError:
                    return  # another process did it, or names a ladder
                self._positions = stored | raised

    def _apply(
        self, ladder: str, events: Sequence[RatingChanged], positions: Sequence[int]
    ) -> None:
        keys, known = keys_of(ladder), self._ladders.get(ladder, {})
        with self._client.pipeline(transaction=True) as pipe:
            for _ in range(ATTEMPTS):
                pipe.watch(keys.positions)
                stored = self._checked(pipe, keys.positions, known)
                if not (raised := _raised(stored, positions)):
                    self._ladders[ladder] = stored  # another process was here
                    return
                before = _read(pipe, keys, events) if events else None
                pipe.multi()
                if before is not None:
                    _write(pipe, keys, before, folded(before, events, self._history))
                pipe.hset(keys.positions, mapping=raised)
                try:
                    pipe.execute()
                except redis.WatchError:
                    continue
                self._ladders[ladder] = stored | raised
                return
        raise StoreTrouble(f"redis: ladder {ladder!r}: others wrote its index {ATTEMPTS} times")

    def _checked(self, pipe: Any, key: str, known: Positions) -> Positions:
        """The positions that stand there. Raises IndexLost if one is lower than it was."""
        stored = _positions(pipe.hgetall(key))
        if any(stored.get(p, 0) < at for p, at in known.items()):
            raise IndexLost(f"{key} went back")
        return stored


class _named:  # noqa: N801  # read as a word of the with statement
    """Turns a client's error into the exception that the follower handles."""

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: Any, error: BaseException | None, _: Any) -> None:
        if isinstance(error, redis.AuthenticationError | redis.exceptions.NoPermissionError):
            raise Denied(f"redis: {error}") from None
        if isinstance(error, FAILURES):
            raise StoreTrouble(f"redis: {error}") from None


def _positions(found: Mapping[bytes, bytes]) -> Positions:
    return {int(partition): int(at) for partition, at in found.items()}


def _raised(stored: Positions, positions: Sequence[int]) -> Positions:
    """Those of the positions that are beyond what is stored."""
    return {p: at for p, at in enumerate(positions) if at > stored.get(p, 0)}


def _read(pipe: Any, keys: LadderKeys, events: Sequence[RatingChanged]) -> Indexed:
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
    summary = pipe.get(keys.summary)
    return Indexed(
        players, histories, {int(at): int(n) for at, n in pipe.hgetall(keys.bins).items()},
        LadderSummary() if summary is None else summary_from(summary),
    )  # fmt: skip


def _write(pipe: Any, keys: LadderKeys, before: Indexed, after: Indexed) -> None:
    """Queue the commands that lead from one to the other."""
    changed = {
        name: player for name, player in after.players.items() if before.players.get(name) != player
    }
    if changed:
        pipe.hset(keys.players, mapping={name: packed(each) for name, each in changed.items()})
        pipe.set(keys.summary, packed(after.summary))
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
