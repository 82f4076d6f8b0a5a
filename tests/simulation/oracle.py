"""What must come out: the sequential replay of the log, its beliefs, events and rejections."""

from dataclasses import dataclass, field

from stream_rater.adapters.memory import Log, Store
from stream_rater.events import RatingChanged, rating_changed_from_json
from stream_rater.lab.replay import Pool
from stream_rater.pipeline.ports import Player
from stream_rater.pipeline.verdicts import Verdicts
from stream_rater.standings import Invalid, Reader

from .scenario import LADDERS


@dataclass
class Expected:
    """The sequential truth about a log."""

    beliefs: dict[Player, bytes] = field(default_factory=dict)
    changes: dict[Player, list[tuple[str, float, float]]] = field(default_factory=dict)
    """By player, in order: (round id, mu, performance)."""
    rejections: list[tuple[int, int, str]] = field(default_factory=list)
    """(partition, offset, code)."""


def replay(log: Log, window: int) -> Expected:
    """Rate every record of round-completed, one after the other."""
    expected = Expected()
    pools = {ladder: Pool(config) for ladder, config in LADDERS.ladders.items()}
    for records in log.rounds:
        verdicts = Verdicts(Reader(LADDERS), window)
        for record in records:
            try:
                standings = verdicts.judge(record)
            except Invalid as invalid:
                expected.rejections.append((record.partition, record.offset, invalid.code))
                continue
            pool = pools[standings.ladder]
            rated = pool.rate(standings, record.offset)
            if rated is None:
                continue
            mu = dict((player, float(header["mu"])) for player, header in pool)
            for player, evidence in zip(standings.players, rated[1], strict=True):
                expected.changes.setdefault((standings.ladder, player), []).append(
                    (standings.round_id, mu[player], float(evidence[0]))
                )
    for ladder, pool in pools.items():
        for player, _ in pool:
            expected.beliefs[ladder, player] = pool.belief_bytes(player)
    return expected


def violations(log: Log, store: Store, window: int) -> list[str]:
    """Where log and store differ from the sequential truth."""
    expected = replay(log, window)
    found: list[str] = []
    held = {p: data for beliefs in store.beliefs.values() for p, data in beliefs.items()}
    if held.keys() != expected.beliefs.keys():
        found.append(f"players differ: {held.keys() ^ expected.beliefs.keys()}")
    wrong = [p for p in held if held[p] != expected.beliefs.get(p)]
    if wrong:
        found.append(f"beliefs differ: {sorted(wrong)}")
    changes: dict[Player, list[tuple[str, float, float]]] = {}
    for events in log.changed:
        for _, value in events:
            event: RatingChanged = rating_changed_from_json(value)
            changes.setdefault((event.ladder, event.player), []).append(
                (event.round_id, event.mu, event.performance)
            )
    for player in changes.keys() | expected.changes.keys():
        if changes.get(player) != expected.changes.get(player):
            found.append(
                f"events of {player}: {changes.get(player)}, not {expected.changes.get(player)}"
            )
    rejections = [(r.record.partition, r.record.offset, r.code) for r in log.rejected]
    if sorted(rejections) != sorted(expected.rejections):
        found.append(f"rejections: {rejections}, not {expected.rejections}")
    return found
