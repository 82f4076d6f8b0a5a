"""What is played: rounds without end, the same for the same seed."""

import gzip
import itertools
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import msgspec
import numpy as np

from stream_rater.contract.events import joined, round_from_json
from tests.benchmarks.measure import shared

SEASON = "2026-01-01T00:00:00Z"
SKILL, LUCK = 300.0, 120.0  # Spread of the players' skills, and of a performance, in points.
SHARED_BY = 50  # Players that share a hash in Redis, as docs/reference/settings.md advises.


class Round(NamedTuple):
    """A round as it is sent, and the players whose events are due."""

    round_id: str
    ladder: str
    value: bytes
    players: list[str]

    def due(self) -> list[bytes]:
        return [joined(self.ladder, player).encode() for player in self.players]


@dataclass(frozen=True)
class Workload:
    name: str
    size: int
    players: int  # In all: each in one ladder.
    ladders: int
    updates: int  # How many ratings are to change where time matters little.
    peer_updates: int  # For the peer, which is slow with many players; 0: it has no such rounds.
    make: Callable[["Workload", int], Iterator[Round]]
    beside: str = ""  # Another workload that is played beside it, where this is a single round.
    team: int = 1  # Players in a team; 1 where each plays alone.

    def rounds(self, seed: int = 1) -> Iterator[Round]:
        """Without end, unless they come from a file."""
        return self.make(self, seed)

    @property
    def in_ladder(self) -> int:
        return self.players // self.ladders

    def buckets(self, shards: int) -> int:
        """Hashes for a ladder's beliefs, per shard, that suit so many players."""
        return max(1, self.in_ladder // (shards * SHARED_BY))


def drawn(workload: Workload, seed: int) -> Iterator[Round]:
    """Each round is of the next ladder, its players drawn at random; the better are often first."""
    random = np.random.default_rng(seed)
    skill = random.normal(0.0, SKILL, workload.players)
    for number in itertools.count():
        ladder = number % workload.ladders
        first = ladder * workload.in_ladder
        who = first + random.choice(workload.in_ladder, workload.size, replace=False)
        who = who.reshape(-1, workload.team)
        played = skill[who].sum(axis=1) + random.logistic(0.0, LUCK, len(who))
        players = [player_name(each) for each in who[np.argsort(-played)].ravel().tolist()]
        yield made(f"r{number:09d}", ladder_name(ladder), players, workload.team)


def ladder_name(number: int) -> str:
    return f"ladder-{number:02d}"


def player_name(number: int) -> str:
    """Of a player drawn: ten bytes."""
    return f"p{number:09d}"


def made(round_id: str, ladder: str, players: list[str], team: int = 1) -> Round:
    """A round with these players, best first; in teams of so many."""
    standings: list[dict[str, Any]] = []
    for rank, first in enumerate(range(0, len(players), team), start=1):
        members = players[first : first + team]
        who = {"player": members[0]} if team == 1 else {"team": members}
        standings.append({**who, "rank": rank})
    event = {"round_id": round_id, "ladder": ladder, "completed_at": SEASON, "standings": standings}
    return Round(round_id, ladder, msgspec.json.encode(event), players)


def crowds(workload: Workload, seed: int) -> Iterator[Round]:
    """All of a ladder's players, in any order."""
    random = np.random.default_rng(seed)
    for number in itertools.count():
        players = [f"p{player:09d}" for player in random.permutation(workload.size).tolist()]
        yield made(f"crowd-{number}", "crowd", players)


def codeforces(_: Workload, __: int) -> Iterator[Round]:
    """The file, once; Skipped where it is absent."""
    with gzip.open(shared("codeforces")) as file:
        for line in file:
            event = round_from_json(line)
            players = [entry.player for entry in event.standings if entry.player is not None]
            yield Round(event.round_id, event.ladder, line.rstrip(), players)


def updates_of(rounds: Iterable[Round]) -> int:
    return sum(len(each.players) for each in rounds)


def up_to(updates: int, rounds: Iterable[Round]) -> list[Round]:
    """The first rounds, until so many ratings change; at least two, since one is to warm up."""
    return list(limited(updates, rounds))


def limited(updates: int, rounds: Iterable[Round]) -> Iterator[Round]:
    left = updates
    for number, each in enumerate(rounds, start=1):
        yield each
        left -= len(each.players)
        if left <= 0 and number >= 2:
            break


# Of 600,000 updates among 20,000 players each has had 30 rounds: the veterans' records are full.
WORKLOADS = {
    each.name: each
    for each in (
        Workload("lobby5", 5, 200_000, 64, 600_000, 600_000, drawn),
        Workload("duel", 2, 200_000, 64, 400_000, 400_000, drawn),
        Workload("team5v5", 10, 200_000, 64, 600_000, 0, drawn, team=5),
        Workload("squads", 100, 200_000, 64, 600_000, 0, drawn, team=4),
        Workload("royale100", 100, 200_000, 64, 600_000, 600_000, drawn),
        Workload("field10000", 10_000, 200_000, 8, 1_000_000, 20_000, drawn),
        Workload("veterans", 10_000, 20_000, 1, 600_000, 20_000, drawn),
        Workload("hot-ladder", 5, 200_000, 1, 600_000, 600_000, drawn),
        Workload("dense", 5, 500, 1, 25_000, 25_000, drawn),
        Workload("million", 1_000_000, 1_000_000, 1, 1_000_000, 0, crowds, beside="lobby5"),
        Workload("codeforces", 0, 100_000, 1, 600_000, 20_000, codeforces),
    )
}
