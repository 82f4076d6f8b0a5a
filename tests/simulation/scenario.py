"""What a simulated game does: rounds of a few players on a few ladders, with duplicates and junk."""

import random
from dataclasses import dataclass

import msgspec

from stream_rater.config import Ladder, Ladders
from stream_rater.rating.parameters import EloMMR

LADDERS = Ladders(
    ladders={
        "a": Ladder(rating=EloMMR(weight_limit=0.2, sigma_limit=80.0, rho=1.0, history=4)),
        "b": Ladder(
            rating=EloMMR(
                weight_limit=0.3, sigma_limit=60.0, rho="inf", drift_per_day=5.0,
                newcomer_weights=(0.5,), initial_mu=1000.0, history=4,
            )
        ),
        "c": Ladder(rating=EloMMR(weight_limit=0.2, sigma_limit=80.0, rho=0.0, history=4)),
    }
)  # fmt: skip

PARTITION_OF = {"a": 0, "b": 1, "c": 1}
"""Ladders by partition of round-completed: one alone, two together."""

PARTITIONS = 2
SHARDS = 3
PLAYERS = [f"p{i}" for i in range(9)]
START_S = 1_700_000_000


@dataclass(frozen=True)
class Submission:
    """One record to append to round-completed."""

    partition: int
    value: bytes


def submissions(rng: random.Random, count: int) -> list[Submission]:
    """Records in the order they are sent."""
    sent: list[Submission] = []
    for i in range(count):
        chance = rng.random()
        if chance < 0.05:
            sent.append(Submission(rng.randrange(PARTITIONS), b'{"round_id": 1'))
        elif chance < 0.12 and sent:
            sent.append(rng.choice(sent))
        else:
            sent.append(_round(rng, i))
    return sent


def _round(rng: random.Random, number: int) -> Submission:
    ladder = rng.choice(list(LADDERS.ladders))
    players = rng.sample(PLAYERS, rng.choice([2, 2, 3, 4, 6]))
    standings = [
        {"player": player, "dnf": True}
        if rng.random() < 0.1
        else {"player": player, "rank": rng.randint(1, len(players))}
        for player in players
    ]
    seconds = number * 3600 + rng.randint(-7200, 7200)
    completed = msgspec.to_builtins(_moment(START_S + seconds))
    value = msgspec.json.encode(
        {
            "round_id": f"r{number}",
            "ladder": ladder,
            "completed_at": completed,
            "standings": standings,
            "weight": rng.choice([1.0, 1.0, 0.5]),
        }
    )
    return Submission(PARTITION_OF[ladder], value)


def _moment(seconds: int) -> object:
    from datetime import UTC, datetime

    return datetime.fromtimestamp(seconds, UTC)
