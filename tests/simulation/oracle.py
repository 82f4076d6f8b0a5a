"""The oracle of the simulation: the sequential replay of the log, with its beliefs, events and
rejections."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from stream_rater.adapters.memory_servers import Log, Store
from stream_rater.columns.sharding import shards_of
from stream_rater.config import Ladders
from stream_rater.contract.events import Headers, RatingChanged, joined, rating_changed_from_json
from stream_rater.contract.record import Player, Record
from stream_rater.pipeline.ports import REBUILT, Position
from stream_rater.replay.pool import Pool
from stream_rater.replay.sequential import Judge
from stream_rater.rounds.batch import Standings

EventValues = tuple[
    str, int | None, float, float, float, float, float | None, int, int, Headers
]  # fmt: skip
"""The values of an event: round id, rank, mu, sigma, previous mu and sigma, performance, rounds,
offset, and the trace of its round."""


_SHOWN = ("mu", "sigma", "previous_mu", "previous_sigma")


@dataclass
class Expected:
    """The expected outcome of a log."""

    beliefs: dict[Player, bytes] = field(default_factory=dict)
    changes: dict[Player, list[EventValues]] = field(default_factory=dict)
    """The events of each player, in order."""
    rejections: list[tuple[int, int, str]] = field(default_factory=list)
    """(partition, offset, code)."""

    def rate(self, pool: Pool, standings: Standings, record: Record) -> None:
        """Rate one round, and return the values of its events."""
        rated = pool.rate(standings, record.offset)
        if rated is None:
            return
        header = dict(pool)
        places = standings.player_places().tolist()
        performances = rated[1][:, 0].tolist()
        for player, place, performance in zip(standings.players, places, performances, strict=True):
            row = header[player]
            self.changes.setdefault((standings.ladder, player), []).append(
                (
                    standings.round_id, place or None,
                    *(float(row[name]) for name in _SHOWN),
                    performance, int(row["rounds"]), record.offset, record.headers,
                )  # type: ignore[arg-type]
            )  # fmt: skip


def replay(log: Log, ladders: Ladders, window: int) -> Expected:
    """Rate every record of round-completed, one after the other."""
    expected = Expected()
    pools = {ladder: Pool(config) for ladder, config in ladders.ladders.items()}
    for records in log.rounds:
        judge = Judge(ladders, window, len(log.rounds))
        for record in records:
            decoded = judge.decode([record])
            (refusal,) = decoded.refusals
            if refusal is not None:
                expected.rejections.append((record.partition, record.offset, refusal.code))
                continue
            (standings,) = decoded.rounds
            pool = pools[standings.ladder]
            pool.follow(judge.round_decoder.ratings[int(decoded.rule[0])])
            expected.rate(pool, standings, record)
    for ladder, pool in pools.items():
        for player, _ in pool:
            expected.beliefs[ladder, player] = pool.belief_bytes(player)
    return expected


def violations(log: Log, store: Store, ladders: Ladders, window: int, once: int) -> list[str]:
    """The differences of log and store from the expected outcome. `once` is the former number of
    shards."""
    expected = replay(log, ladders, window)
    shards = len(log.parts)
    found = _beliefs(store, expected, shards)
    changes = _changes(log, once)
    for player in sorted(changes.keys() | expected.changes.keys()):
        published, due = changes.get(player, []), expected.changes.get(player, [])
        if published != due:
            found.append(f"events of {player}: {_rounds(published)}, not {_rounds(due)}")
    rejections = [(r.record.partition, r.record.offset, r.code) for r in log.rejected]
    if sorted(rejections) != sorted(expected.rejections):
        found.append(f"rejections: {rejections}, not {expected.rejections}")
    return found


def _beliefs(store: Store, expected: Expected, shards: int) -> list[str]:
    held = {
        player: (shard, data)
        for shard, beliefs in store.beliefs.items()
        for player, data in beliefs.items()
        if player != REBUILT
    }
    due = {
        player: (int(shards_of([player[1]], shards)[0]), data)
        for player, data in expected.beliefs.items()
    }
    wrong = [p for p in held.keys() | due.keys() if held.get(p) != due.get(p)]
    return [f"beliefs differ: {sorted(wrong)}"] if wrong else []


def _changes(log: Log, once: int) -> dict[Player, list[EventValues]]:
    """The events of each player, in order: first those from the player's former shard."""
    changes: dict[Player, list[EventValues]] = {}
    moved: dict[Player, list[EventValues]] = {}
    now = len(log.parts)
    for shard, events in enumerate(log.changed):
        for sent in events:
            event: RatingChanged = rating_changed_from_json(sent.value)
            assert sent.key.decode() == joined(event.ladder, event.player)
            homes = [shards_of([event.player], among)[0] for among in (once, now)]
            assert shard in homes
            found = changes if shard == homes[0] else moved
            found.setdefault((event.ladder, event.player), []).append(
                (
                    event.round_id, event.rank, event.mu, event.sigma, event.previous_mu,
                    event.previous_sigma, event.performance, event.rounds, event.offset,
                    sent.trace.headers() if sent.trace else (),
                )
            )  # fmt: skip
    for player, values in moved.items():
        changes.setdefault(player, []).extend(values)
    return changes


def _rounds(values: Sequence[EventValues]) -> list[str]:
    return [f"{round_id} {mu:.6f}" for round_id, _, mu, *_ in values]


def is_done(log: Log, store: Store) -> bool:
    """Whether every record of both topics is finished."""
    return (
        all(log.estimators.committed.get(p, 0) == len(r) for p, r in enumerate(log.rounds))
        and all(log.updaters.committed.get(s, 0) == len(p) for s, p in enumerate(log.parts))
        and all(_applied(store, s) == len(p) for s, p in enumerate(log.parts))
    )


def where(log: Log, store: Store) -> str:
    """How far the two groups and the store have come."""
    applied = [_applied(store, shard) for shard in range(len(log.parts))]
    return (
        f"source {log.estimators.committed} of {list(map(len, log.rounds))}, "
        f"parts {log.updaters.committed} of {list(map(len, log.parts))}, applied {applied}"
    )


def _applied(store: Store, shard: int) -> int:
    return store.positions.get(shard, Position()).applied
