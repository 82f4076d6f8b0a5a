"""The two-moment filter gives the numbers that its oracle computed once for a small season.

`python -m tests.golden.test_two_moment` prints them again.
"""

import math
from typing import Any

import msgspec
import pytest

from stream_rater.config.ladders import Ladder
from stream_rater.rating.parameters import TwoMoment
from stream_rater.replay.pool import Pool
from tests import two_moment_oracle as oracle
from tests.rounds import day, read

CONFIG = TwoMoment(history="full")

SEASON: list[dict[str, Any]] = [
    {"standings": [{"player": "ann", "rank": 1}, {"player": "bob", "rank": 2}]},
    {"standings": [{"player": "cy", "rank": 1}, {"player": "ann", "rank": 1},
                   {"player": "dee", "rank": 3}, {"player": "bob", "dnf": True},
                   {"player": "eve", "dnf": True}], "weight": 0.5},
    {"standings": [{"team": ["bob", "dee"], "rank": 1, "shares": [1.0, 0.5]},
                   {"team": ["ann", "flo", "gus"], "rank": 2}], "performance_ceiling": 1550.0},
    {"standings": [{"player": "gus", "rank": 1}, {"player": "ann", "rank": 2},
                   {"player": "cy", "rank": 3}], "weight": 2.0},
]  # fmt: skip
DAYS = (0, 3, 4, 40)

GOLDEN = {
    "ann": (1446.0945, 202.7779),
    "bob": (1190.5709, 256.1502),
    "cy": (1263.8128, 228.5228),
    "dee": (1371.4946, 277.9029),
    "eve": (1146.0222, 289.6479),
    "flo": (1174.5239, 326.401),
    "gus": (1566.6329, 243.4545),
}
"""mu and sigma after all rounds."""


def by_oracle() -> dict[str, oracle.Player]:
    players = dict[str, oracle.Player]()
    for each, number in zip(SEASON, DAYS, strict=True):
        sides = []
        for entry in each["standings"]:
            names = entry.get("team") or [entry["player"]]
            members = [
                players.setdefault(name, oracle.Player(CONFIG.initial_mu, CONFIG.initial_sigma))
                for name in names
            ]
            place = entry.get("rank", math.inf)
            sides.append(oracle.Side(place, members, entry.get("shares") or [1.0] * len(names)))
        oracle.rate_round(
            CONFIG, sides, each.get("weight", 1.0), each.get("performance_ceiling", math.inf),
            86400 * number,
        )  # fmt: skip
    return players


def test_the_season() -> None:
    """To a thousandth of a point: newcomers, a tie, dnf, teams with shares, weights, a ceiling."""
    pool = Pool(Ladder(rating=CONFIG))
    for offset, (each, number) in enumerate(zip(SEASON, DAYS, strict=True)):
        fields = {name: value for name, value in each.items() if name != "standings"}
        pool.rate(read(CONFIG, *each["standings"], completed_at=day(number), **fields), offset)
    found = {name: (float(head["mu"]), float(head["sigma"])) for name, head in pool}
    assert found.keys() == GOLDEN.keys()
    for name, due in GOLDEN.items():
        assert found[name] == pytest.approx(due, abs=1e-3), name


if __name__ == "__main__":
    golden = {name: (round(p.mu, 4), round(p.sigma, 4)) for name, p in by_oracle().items()}
    print(msgspec.json.encode(golden).decode())
