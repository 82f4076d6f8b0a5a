"""A ladder of millions of players in the index, written there as `serve` would write it."""

from collections.abc import Iterator

import numpy as np

from stream_rater.adapters.redis.client import connect
from stream_rater.adapters.redis.index_keys import ROOT, SUMMARY, keys_of, member_of
from stream_rater.config.settings import Settings
from stream_rater.serve.entries import IndexedPlayer, LadderSummary, bin_of, encode_entry

LADDER = "crowd"
DIGITS = 7
"""Of the number in a player's id: as many players as that has."""
AT_ONCE = 5_000
MEAN, SPREAD = 1500.0, 300.0
TIME = "2026-01-01T00:00:00Z"


def player(number: int) -> str:
    """The id of a player."""
    return f"p{number:0{DIGITS}}"


def fill(settings: Settings, players: int) -> None:
    """Write the index of so many listed players."""
    client = connect(settings)
    keys = keys_of(LADDER)
    bins: dict[int, int] = {}
    for first, ratings in _ratings(players):
        found = {
            player(first + i): IndexedPlayer(r + 20.0, 90.0, r, 40, False, TIME, first + i)
            for i, r in enumerate(ratings)
        }
        with client.pipeline(transaction=False) as pipe:
            pipe.hset(keys.players, mapping={name: encode_entry(p) for name, p in found.items()})
            pipe.zadd(keys.ranks, {name: -p.rating for name, p in found.items()})
            pipe.execute()
        for each in ratings:
            bins[bin_of(each)] = bins.get(bin_of(each), 0) + 1
    client.hset(keys.bins, mapping=bins)
    client.hset(keys.state, SUMMARY, encode_entry(LadderSummary(players, players, TIME)))
    client.zadd(ROOT, {member_of(LADDER): 0})
    client.close()


def _ratings(players: int) -> Iterator[tuple[int, list[float]]]:
    random = np.random.default_rng(7)
    for first in range(0, players, AT_ONCE):
        yield first, random.normal(MEAN, SPREAD, min(AT_ONCE, players - first)).tolist()
