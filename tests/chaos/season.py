"""Rounds that are sent during faults, and how changes and beliefs differ from expected ones."""

import gzip
import itertools
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import numpy as np

from local.tools import ROOT
from stream_rater.adapters.kafka.topics import Topics
from stream_rater.adapters.redis.store import RedisStore
from stream_rater.columns.player_column import PlayerColumn
from stream_rater.columns.sharding import shards_of
from stream_rater.config.settings import Settings
from stream_rater.contract.events import RatingChanged, joined, rating_changed_from_json
from stream_rater.rating import record
from tests.integration.topics import Bytes, Finished, produce, read_topic

_seed = 0


def reseed(seed: int) -> None:
    """Set the seed of the following rows. With 0, they are those of `make chaos`."""
    global _seed  # noqa: PLW0603  # every module that a row imports reads it
    _seed = seed


def seeded(base: int) -> int:
    """The seed for one purpose, which `base` names."""
    return base + 1_000_003 * _seed


T = TypeVar("T")

Who = tuple[str, str]  # ladder and player
Due = Mapping[Who, Mapping[str, int]]  # Expected: by round id, the player's round count.

BATCH = 5000


@dataclass
class Tally:
    lost: int = 0  # expected changes that were not published
    doubled: int = 0  # changes that were published again
    mistakes: list[str] = field(default_factory=list)  # what is wrong with changes, a line each
    last: dict[Who, RatingChanged] = field(default_factory=dict)  # the last change of each player


def compared(
    due: Mapping[Any, T], changes: Iterable[RatingChanged],
    place_of: Callable[[RatingChanged], Any], mistakes: Callable[[RatingChanged, T], Iterable[str]],
) -> Tally:  # fmt: skip
    """Check that each change that is due is published once, in order, and joins the last one."""
    found, seen = Tally(), set[Any]()
    for change in changes:
        who, place = (change.ladder, change.player), place_of(change)
        if place in seen:
            found.doubled += 1
        elif place not in due:
            found.mistakes.append(f"{change.event_id}: nothing is expected of {who} at {place}")
        else:
            seen.add(place)
            found.mistakes += [*mistakes(change, due[place]), *broken(change, found.last.get(who))]
            found.last[who] = change
    found.lost = len(due) - len(seen)
    return found


def tally(due: Due, changes: Iterable[RatingChanged]) -> Tally:
    """Compare changes with rounds: each has its own id, and the number of the player's round."""
    numbers = {(*who, name): number for who, some in due.items() for name, number in some.items()}
    return compared(
        numbers, changes, lambda each: (each.ladder, each.player, each.round_id), _mistakes
    )


def _mistakes(change: RatingChanged, number: int) -> Iterator[str]:
    if change.event_id != joined(change.ladder, change.round_id, change.player):
        yield f"{change.event_id}: not the id of {change.round_id} of {change.player}"
    if change.rounds != number:
        yield f"{change.event_id}: counted as round {change.rounds}, it is number {number}"


def broken(change: RatingChanged, last: RatingChanged | None) -> Iterator[str]:
    """What is wrong with a change after the last one of its player."""
    if last is None:
        return
    if last.offset >= change.offset:
        yield f"{change.event_id}: published after {last.event_id}"
    elif (last.mu, last.sigma) != (change.previous_mu, change.previous_sigma):
        yield f"{change.event_id}: does not go on from {last.event_id}"


def counted_otherwise(due: Due, settings: Settings) -> Iterator[str]:
    """Lines for players whose belief in the store is not of as many rounds as are due."""
    for who, data in stored_records(due, settings):
        stored = _numbers(data)
        if stored is None or stored[2] != len(due[who]):
            yield f"{who} has {stored} in the store, and played {len(due[who])} rounds"


def differing(last: Mapping[Who, RatingChanged], settings: Settings) -> Iterator[str]:
    """Lines for players whose belief in the store differs from their last change."""
    for who, data in stored_records(last, settings):
        change, stored = last[who], _numbers(data)
        if stored != (change.mu, change.sigma, change.rounds):
            yield f"{change.event_id}: the store has {stored} of {who}"


def stored_records(
    players: Iterable[Who], settings: Settings
) -> Iterator[tuple[Who, bytes | None]]:  # fmt: skip
    """The record of each player in the store; None if there is none."""
    with closing(RedisStore(settings)) as store:
        left = iter(players)
        while batch := list(itertools.islice(left, BATCH)):
            asked: dict[int, list[Who]] = {}
            shards = shards_of([player for _, player in batch], settings.shards).tolist()
            for who, shard in zip(batch, shards, strict=True):
                asked.setdefault(shard, []).append(who)
            columns = {shard: PlayerColumn.of(found) for shard, found in asked.items()}
            for shard, stored in store.read(columns).items():
                yield from zip(asked[shard], stored.records, strict=True)


def _numbers(data: bytes | None) -> tuple[float, float, int] | None:
    if data is None:
        return None
    header = record.read_headers(data[: record.HEADER_SIZE])[0]
    return float(header["mu"]), float(header["sigma"]), int(header["rounds"])


PLAYERS, LOBBY = 2_000, 8
LADDERS = ("duels", "lobbies", "ranked")


class Season:
    """Sends rounds, and knows which of them each player must have been rated by."""

    def __init__(self, settings: Settings, rounds: Iterator[dict[str, Any]]) -> None:
        self._settings = settings
        self._rounds = rounds
        self._due: dict[Who, dict[str, int]] = {}
        self.updates = 0  # the number of expected ratings
        self.finished = Finished(settings)

    def play(self, count: int) -> list[dict[str, Any]]:
        """Send `count` more rounds, wait until all are acknowledged, and return them."""
        events = list(itertools.islice(self._rounds, count))
        self.replay(events)
        for event in events:
            for entry in event["standings"]:
                mine = self._due.setdefault((event["ladder"], entry["player"]), {})
                mine[event["round_id"]] = len(mine) + 1
                self.updates += 1
        return events

    def replay(self, rounds: Sequence[dict[str, Any]]) -> None:
        """Send these rounds, which were sent before and are in the log no longer."""
        produce(
            self._settings, [Bytes(msgspec.json.encode(e), e["ladder"].encode()) for e in rounds]
        )

    def rated_otherwise(self) -> list[str]:
        """Lines for players whose belief in the store is not of as many rounds as they played."""
        return list(counted_otherwise(self._due, self._settings))

    def tally(self) -> Tally:
        messages = read_topic(self._settings, Topics.of(self._settings).changed)
        found = tally(self._due, (rating_changed_from_json(m.value() or b"") for m in messages))
        found.mistakes += differing(found.last, self._settings)
        return found


def lobbies(seed: int = 1) -> Iterator[dict[str, Any]]:
    random = np.random.default_rng(seeded(seed))
    for number in itertools.count():
        players = random.choice(PLAYERS, LOBBY, replace=False).tolist()
        yield {
            "round_id": f"lobby-{number}",
            "ladder": LADDERS[number % len(LADDERS)],
            "completed_at": "2026-01-01T00:00:00Z",
            "standings": [{"player": f"p{p}", "rank": 1 + i} for i, p in enumerate(players)],
        }


CODEFORCES = Path(os.environ.get("STREAM_RATER_SHARED") or ROOT.parent / "shared").joinpath(
    "data", "codeforces.jsonl.gz"
)


def codeforces() -> Iterator[dict[str, Any]]:
    """The rounds of the Codeforces file, repeated."""
    for turn in itertools.count():
        with gzip.open(CODEFORCES) as file:
            for line in file:
                event: dict[str, Any] = msgspec.json.decode(line)
                yield event | {"round_id": f"{event['round_id']}-{turn}"}
