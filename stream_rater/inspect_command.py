"""`stream-rater inspect`: a player's belief in words, and where it lives; or how far shards are."""

import math
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Any

import numpy as np

from stream_rater.adapters.redis import RedisStore
from stream_rater.adapters.topics import Admin
from stream_rater.commands import named_failures
from stream_rater.config import Settings, service_ladders
from stream_rater.events import shown
from stream_rater.pipeline.ports import Position
from stream_rater.pipeline.sharding import belief_key, shards_of
from stream_rater.rating import record as belief_record
from stream_rater.rating.model import Floats
from stream_rater.rating.systems import law_of
from stream_rater.service import ESTIMATORS, UPDATERS
from stream_rater.terminal import Failed

C = math.pi / math.sqrt(3.0)
"""Of a factor's weight, 2 a o / C^2 (`rating.model`)."""


def inspect(settings: Settings, ladder: str | None, player: str | None) -> None:
    """Print what is held of a player of a ladder, or without one of all partitions."""
    with named_failures():
        lines = _player(settings, ladder or "", player) if player else _partitions(settings)
        for line in lines:
            print(line)


# --- a player ------------------------------------------------------------------------------------


def _player(settings: Settings, ladder: str, player: str) -> Iterator[str]:
    admin, store = Admin(settings), RedisStore(settings)
    store.prepare()
    (shards,) = admin.partitions_of(admin.topics.parts)
    shard = int(shards_of([player], shards)[0])
    held = store.read({shard: [(ladder, player)]})[shard]
    (record,) = held.records
    if record is None:
        raise Failed(f"ladder {ladder!r} has no player {player!r} (they would be in shard {shard})")
    terms = service_ladders(settings).find(ladder)
    beliefs = belief_record.decode([record], 0, 0.0, 1.0)
    header: Any = beliefs.header[0]
    yield f"{shown(player)} on {shown(ladder)}"
    if terms is not None:
        yield f"shown: {law_of(terms.rating).rating(header['mu'], header['sigma']):.1f}"
    yield from described(header, beliefs.factors[0])
    key = belief_key(shard, ladder, player.encode(), settings.buckets)
    encoding = store.encoding(shard, (ladder, player)) or "unknown encoding"
    yield f"in Redis: shard {shard}, {len(record)} bytes in the hash {shown(key)} ({encoding})"


def described(header: Any, factors: Floats) -> Iterator[str]:
    """A belief in words: `header` one of HEADER, `factors` (capacity, 3) as in Beliefs."""
    yield f"believed: {_about(header['mu'], header['sigma'])}, after {header['rounds']} rounds"
    yield (
        f"before the last one: {_about(header['previous_mu'], header['previous_sigma'])}; "
        f"it was completed at {_moment(int(header['time']))}, "
        f"at offset {header['last']} of its partition"
    )
    if not header["count"]:
        return
    held = factors[: header["count"]]
    weights = 2.0 * held[:, 1] * header["scale"] * held[:, 2] / C**2
    total = float(header["precision"] + weights.sum())
    yield (
        f"by a Gaussian factor: {_about(header['center'], 1.0 / math.sqrt(header['precision']))}, "
        f"{header['precision'] / total:.0%} of the weight"
    )
    yield f"and {len(held)} performances, with their parts of the weight, the heaviest first:"
    for i in np.argsort(-weights, kind="stable"):
        yield f"  {held[i, 0]:8.1f} {weights[i] / total:6.1%}"


def _about(mu: float, sigma: float) -> str:
    return f"{mu:.1f} give or take {sigma:.1f}"


def _moment(seconds: int) -> str:
    try:
        return datetime.fromtimestamp(seconds, UTC).isoformat()
    except (ValueError, OverflowError, OSError):
        return f"{seconds} s"


# --- all partitions ------------------------------------------------------------------------------


def _partitions(settings: Settings) -> Iterator[str]:
    admin, store = Admin(settings), RedisStore(settings)
    store.prepare()
    rounds, parts = admin.topics.rounds, admin.topics.parts
    partitions, shards, _ = admin.partitions_of(rounds, parts, admin.topics.changed)
    held = store.read(dict.fromkeys(range(shards), ()))
    yield from _topic(admin, rounds, ESTIMATORS, partitions)
    yield ""
    positions = [held[shard].position for shard in range(shards)]
    yield from _topic(admin, parts, UPDATERS, shards, positions)
    yield from _hidden(admin, parts, shards)
    yield from _hidden(admin, admin.topics.changed, shards)


def _hidden(admin: Admin, topic: str, count: int) -> Iterator[str]:
    """What readers of committed records do not see yet; asked last, so that it is not outrun."""
    ends = admin.ends(topic, count)
    for p, (end, stable) in enumerate(zip(ends, admin.stable_ends(topic, count), strict=True)):
        if stable < end:
            yield f"{topic} {p}: from {stable} on hidden to readers by an open transaction"


def _topic(
    admin: Admin, topic: str, group: str, count: int, applied: Sequence[Position] = ()
) -> Iterator[str]:
    committed, owners = admin.committed(group, topic, count), admin.owners(group, topic)
    starts, ends = admin.starts(topic, count), admin.ends(topic, count)
    store = f"{'in Redis':>10}" if applied else ""
    yield f"{topic}\n  {'':>5} {'from':>10} {'done':>10}{store} {'to':>10} {'behind':>8}  owner"
    for p in range(count):
        done = max(committed[p] or 0, starts[p])
        store = f"{applied[p].applied:>10}" if applied else ""
        yield (
            f"  {p:>5} {starts[p]:>10} {done:>10}{store} {ends[p]:>10} {ends[p] - done:>8}  "
            f"{owners.get(p, 'nobody')}"
        )
