"""Entries that did not finish: tied for last, or not compared with each other, as a ladder says."""

from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stream_rater.columns.arrays import Floats
from stream_rater.config.ladders import Ladder
from stream_rater.rating import stages
from stream_rater.rating.elo_mmr.small_rounds import SMALL
from stream_rater.rating.parameters import (
    NOT_COMPARED,
    TIED_LAST,
    Climbing,
    EloMMR,
    EloMMX,
    EloR,
    Ordering,
    PlackettLuce,
    RatingConfig,
    Thurstone,
)
from stream_rater.replay.pool import Pool
from stream_rater.runtime.selfcheck import SYSTEMS
from tests.builders.cases import cases
from tests.rounds import day, ranked, read, wave_among

BEYOND = 10
"""A rank behind all others."""

SPLIT: tuple[RatingConfig, ...] = (
    EloMMR(weight_limit=0.2, sigma_limit=80.0, ties="split", history="full"),
    EloMMX(weight_limit=0.2, sigma_limit=80.0, ties="split"),
    EloR(ties="split"),
)
ANCHORED = tuple(
    msgspec.structs.replace(each, anchor=1450.0) for each in SYSTEMS if isinstance(each, Climbing)
)
TIED = [msgspec.structs.replace(each, dnf=TIED_LAST) for each in (*SYSTEMS, *SPLIT, *ANCHORED)]
APART = [
    msgspec.structs.replace(each, dnf=NOT_COMPARED)
    for each in (*SYSTEMS, *SPLIT, *ANCHORED)
    if not isinstance(each, Ordering)
]


def name_of(config: RatingConfig) -> str:
    """The name of the system, with the other parameters that distinguish the configuration."""
    more = [getattr(config, "ties", ""), "anchor" if getattr(config, "anchor", None) else ""]
    return " ".join([str(config.__struct_config__.tag), *filter(None, more)])


Entry = tuple[tuple[str, ...], int]
"""A side, and its place; 0 did not finish."""


def standings(entries: Sequence[Entry], last: int) -> list[dict[str, Any]]:
    """Of these entries; those that did not finish have the rank `last`, or none if it is 0."""
    return [
        ({"team": side} if len(side) > 1 else {"player": side[0]})
        | ({"rank": place or last} if place or last else {"dnf": True})
        for side, place in entries
    ]


@st.composite
def rounds(draw: st.DrawFn) -> list[Entry]:
    """Players and teams, ties, some who did not finish and one who did."""
    names = draw(st.permutations([f"p{i}" for i in range(9)]))
    sizes = draw(st.lists(st.sampled_from([1, 1, 1, 2, 3]), min_size=2, max_size=5))
    ends = np.minimum(np.cumsum(sizes), len(names)).tolist()
    sides = [tuple(names[a:b]) for a, b in zip([0, *ends], ends, strict=False) if a < b]
    places = draw(st.lists(st.integers(0, 3), min_size=len(sides), max_size=len(sides)))
    places[0] = places[0] or 1
    return list(zip(sides, places, strict=True))


def records(config: RatingConfig, season: Sequence[Sequence[Entry]], last: int) -> dict[str, bytes]:
    """Every player's belief after a season, in all its bits."""
    pool = Pool(Ladder(rating=config))
    for number, each in enumerate(season):
        rated = read(config, *standings(each, last), completed_at=day(number), weight=1 + number)
        pool.rate(rated, number)
    if config.kept:
        return {player: pool.belief_bytes(player) for player, _ in pool}
    return {player: header.tobytes() for player, header in pool}


@given(season=st.lists(rounds(), min_size=1, max_size=4))
@settings(max_examples=12)
@cases("config", TIED, name_of)
def test_tied_last_is_one_shared_last_rank(config: RatingConfig, season: list[list[Entry]]) -> None:
    """Bit for bit, by each system."""
    assert records(config, season, 0) == records(config, season, BEYOND)


@cases("config", APART, name_of)
def test_not_compared_is_no_tie(config: RatingConfig) -> None:
    """The ladder's word is heard: two of unequal rating come out elsewhere."""
    first = [((name,), 1 + i) for i, name in enumerate("abcd")]
    season = [first, [(("a",), 1), (("b",), 2), (("c",), 0), (("d",), 0)]]
    apart, tied = (
        records(msgspec.structs.replace(config, dnf=rule), season, 0)
        for rule in (NOT_COMPARED, TIED_LAST)
    )
    same = getattr(config, "anchor", None) is not None  # whose last place is not observed anyway
    assert (apart == tied) == same


def evidence(config: RatingConfig, places: list[int], last: int, mu: Floats) -> Floats:
    """Of a round of players in order of place."""
    entries = [((f"p{i}",), place) for i, place in enumerate(places)]
    wave = wave_among([read(config, *standings(entries, last))], mu, 60.0 + 0.1 * mu)
    found: Floats = stages.estimate(config, wave)
    return found


@cases("config", TIED, name_of)
@cases("size", [SMALL + 1, 2000])
def test_in_large_rounds_too(config: RatingConfig, size: int) -> None:
    """Which have kernels of their own."""
    if isinstance(config, Thurstone):
        size = min(size, 200)  # it takes n^1.5
    random = np.random.default_rng(size)
    places = np.sort(random.integers(1, size // 2, size - size // 5)).tolist()
    places += [0] * (size - len(places))
    mu = random.normal(1500.0, 200.0, size)
    mine, shared = (evidence(config, places, last, mu) for last in (0, size))
    assert mine.tobytes() == shared.tobytes()


@given(
    places=st.lists(st.integers(1, 4), min_size=1, max_size=5).map(sorted),
    gone=st.integers(2, 4), seed=st.integers(0, 2**32),
)  # fmt: skip
@settings(max_examples=20)
@cases("config", [e for e in APART if not isinstance(e, PlackettLuce | Thurstone)], name_of)
def test_not_compared_is_as_if_the_others_were_not_there(
    config: RatingConfig, places: list[int], gone: int, seed: int
) -> None:
    """For who did not finish. (Plackett-Luce and Thurstone rate a whole order at once.)"""
    mu = np.random.default_rng(seed).normal(1500.0, 200.0, len(places) + gone)
    together = evidence(config, [*places, *[0] * gone], 0, mu)
    for i in range(len(places), len(mu)):
        alone = evidence(config, [*places, 0], 0, np.append(mu[: len(places)], mu[i]))
        assert alone[-1] == pytest.approx(together[i], rel=0, abs=1e-5)


NUMBERS = {
    "elo-mmr full": [1904.8365, 1633.281, 1633.281, 1375.0008, 1286.5272, 1432.7959],
    "elo-r full": [1921.5944, 1640.148, 1640.148, 1359.5794, 1271.5144, 1421.9273],
    "elo-mmx full": [1767.9231, 1548.8214, 1513.3184, 1526.1223, 1355.7572, 1774.9756],
    "elo": [1754.5131, 1551.0988, 1512.1125, 1545.501, 1369.9155, 1816.859],
    "pairwise-elo": [1754.5131, 1551.0988, 1512.1125, 1545.501, 1369.9155, 1816.859],
    "plackett-luce": [1718.5055, 1516.7118, 1479.6598, 1576.9119, 1388.4207, 1869.7903],
    "thurstone": [1726.248, 1530.0902, 1488.6732, 1576.5209, 1392.8469, 1835.6208],
    "elo-mmr split": [1995.6567, 1703.657, 1703.657, 1287.9014, 1231.319, 1312.6318],
    "elo-mmx split": [1784.002, 1561.0872, 1525.5842, 1509.1999, 1344.1652, 1748.8116],
    "elo-r split": [1921.5944, 1673.1526, 1666.5439, 1359.5794, 1271.5144, 1421.9273],
    "elo anchor": [1760.6585, 1564.8157, 1528.1125, 1545.501, 1369.9155, 1816.859],
    "pairwise-elo anchor": [1760.6585, 1564.8157, 1528.1125, 1545.501, 1369.9155, 1816.859],
    "plackett-luce anchor": [1719.8029, 1520.807, 1485.1183, 1577.8009, 1389.8909, 1869.9872],
    "thurstone anchor": [1727.3235, 1532.1201, 1490.7447, 1577.9265, 1393.5728, 1837.5899],
}
"""Of players who came 1, 2, 2 and thrice not in: performances of Elo-MMR and Elo-R, else ratings.
By kernel version 10, which knew no other rule."""


@cases("config", APART, name_of)
def test_not_compared_is_the_former_rule(config: RatingConfig) -> None:
    """Its numbers, of every system that had it."""
    mu = np.array([1700.0, 1500.0, 1450.0, 1600.0, 1400.0, 1900.0])
    read_in = read(config, *ranked([1, 2, 2, 0, 0, 0]))
    found = stages.estimate(config, wave_among([read_in], mu, np.full(6, 120.0)))
    column = found[:, 0 if isinstance(config, EloMMR | EloR) else 1]
    assert NUMBERS[name_of(config)] == pytest.approx(column, rel=0, abs=1e-4)  # its digits
