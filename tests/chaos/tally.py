"""What subscribers were told, against the rounds that were sent and the beliefs in the store."""

import itertools
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from stream_rater.adapters.redis import RedisStore
from stream_rater.columns.sharding import shards_of
from stream_rater.config import Settings
from stream_rater.contract.events import RatingChanged, joined
from stream_rater.rating import record

Who = tuple[str, str]
"""Ladder and player."""
Due = Mapping[Who, Mapping[str, int]]
"""By round id the number of a player's round, 1 for the first, in the order of their log."""

BATCH = 5000


@dataclass
class Tally:
    """What came of the rounds that were sent."""

    lost: int = 0
    """Changes that are due and were not told."""
    doubled: int = 0
    """Changes that were told again."""
    mistakes: list[str] = field(default_factory=list)
    """What is wrong with those that were told, a line each."""
    last: dict[Who, RatingChanged] = field(default_factory=dict)
    """Each player's last change."""


def tally(due: Due, changes: Iterable[RatingChanged]) -> Tally:
    """Each change that is due is told once, under its own id, in order, and goes on from the one
    before."""
    found = Tally()
    told: set[tuple[Who, str]] = set()
    for change in changes:
        who = change.ladder, change.player
        number = due.get(who, {}).get(change.round_id)
        if (who, change.round_id) in told:
            found.doubled += 1
            continue
        if number is None:
            found.mistakes.append(f"{change.event_id}: {who} did not play in {change.round_id}")
            continue
        told.add((who, change.round_id))
        found.mistakes += mistakes(change, number, found.last.get(who))
        found.last[who] = change
    found.lost = sum(map(len, due.values())) - len(told)
    return found


def mistakes(change: RatingChanged, number: int, last: RatingChanged | None) -> Iterator[str]:
    """What is wrong with a player's change that is due as this one of theirs."""
    if change.event_id != joined(change.ladder, change.round_id, change.player):
        yield f"{change.event_id}: not the id of {change.round_id} of {change.player}"
    if change.rounds != number:
        yield f"{change.event_id}: counted as round {change.rounds}, it is number {number}"
    if last is None:
        return
    if last.rounds >= number:
        yield f"{change.event_id}: told after {last.event_id}"
    elif (last.mu, last.sigma) != (change.previous_mu, change.previous_sigma):
        yield f"{change.event_id}: does not go on from {last.event_id}"


def differing(last: Mapping[Who, RatingChanged], settings: Settings) -> Iterator[str]:
    """Players of whom the store believes something else than what they were told last."""
    store = RedisStore(settings)
    try:
        players = iter(last)
        while batch := list(itertools.islice(players, BATCH)):
            for who, held in _held(store, batch, settings.shards):
                told = last[who]
                if held != (told.mu, told.sigma, told.rounds):
                    yield f"{told.event_id}: the store has {held} of {who}"
    finally:
        store.close()


def _held(
    store: RedisStore, players: list[Who], shards: int
) -> Iterator[tuple[Who, tuple[float, float, int] | None]]:
    """mu, sigma and the number of rounds of each, None where there is no belief."""
    asked: dict[int, list[Who]] = {}
    numbers = shards_of([player for _, player in players], shards).tolist()
    for who, shard in zip(players, numbers, strict=True):
        asked.setdefault(shard, []).append(who)
    for shard, held in store.read(asked).items():
        for who, found in zip(asked[shard], held.records, strict=True):
            if found is None:
                yield who, None
                continue
            header = record.read_headers(found[: record.HEADER_SIZE])[0]
            yield who, (float(header["mu"]), float(header["sigma"]), int(header["rounds"]))
