"""Seasons of several kinds, and how far Elo-MMR with a bounded history is from a full one there."""

import math
from dataclasses import dataclass

import msgspec
import numpy as np

from stream_rater.columns.arrays import Floats, Ints
from stream_rater.rating import stages
from stream_rater.rating.model import Wave, newcomers
from stream_rater.rating.parameters import EloMMR

PLAYERS, ROUNDS = 60, 60


@dataclass(frozen=True)
class Kind:
    """How the rounds of a season look."""

    size: int = 1  # The members of a side; 0: from 1 to 6.
    sides: int = 12
    weights: tuple[float, ...] = (1.0,)
    shares: bool = False  # Whether two of five members leave early.


SEASONS = {
    "solo": Kind(), "weights ½ to 4": Kind(weights=(0.5, 1.0, 2.0, 4.0)),
    "duels, weights ¼ to 4": Kind(sides=2, weights=(0.25, 1.0, 4.0)), "2 v 2": Kind(2, 2),
    "5 v 5": Kind(5, 2), "1 to 6 a side": Kind(0, 2),
    "5 v 5, weights ½ to 4": Kind(5, 2, (0.5, 1.0, 2.0, 4.0)),
    "5 v 5, with leavers": Kind(5, 2, shares=True),
}  # fmt: skip


def sizes_of(kind: Kind, random: np.random.Generator) -> Ints:
    """(E,) the members of each side of the rounds of one wave, in which all players play."""
    if kind.size:
        return np.full(PLAYERS // kind.size, kind.size)
    ends = np.unique(np.minimum(np.cumsum(random.integers(1, 7, PLAYERS)), PLAYERS))
    sizes = np.diff(np.append(0, ends))
    return sizes if len(sizes) % 2 == 0 else np.append(sizes[:-2], sizes[-2:].sum())


def distances(config: EloMMR, kind: Kind, seed: int) -> Floats:
    """(ROUNDS, PLAYERS) the distances in mu between both histories after each round of a season."""
    random, whole = np.random.default_rng(seed), msgspec.structs.replace(config, history="full")
    skill, found = random.normal(1500.0, 300.0, PLAYERS), np.empty((ROUNDS, PLAYERS))
    pair = [
        (whole, newcomers(PLAYERS, ROUNDS + 1, 1500.0, 350.0)),
        (config, newcomers(PLAYERS, config.kept + 1, 1500.0, 350.0, coded=True)),
    ]
    for t in range(ROUNDS):
        sizes, rows = sizes_of(kind, random), random.permutation(PLAYERS)
        early = kind.shares & (random.random(PLAYERS) < 0.4)
        share = np.where(early, random.uniform(0.1, 1.0, PLAYERS), 1.0)
        day = share * (skill[rows] - 1500.0 + random.normal(0.0, 200.0, PLAYERS))
        side = np.repeat(np.arange(len(sizes)), sizes)
        number = np.arange(len(sizes)) // kind.sides
        by_place = np.lexsort((-np.bincount(side, day), number))
        players = np.argsort(np.argsort(by_place)[side], kind="stable")
        n = len(sizes) // kind.sides
        weight, blank = random.choice(kind.weights, n), np.empty(PLAYERS, np.int64)
        for each, beliefs in pair:
            wave = Wave(
                np.arange(n + 1) * kind.sides, weight, np.full(len(sizes), math.inf),
                np.zeros(n, np.int64),
                np.tile(np.arange(1, kind.sides + 1, dtype=np.int32), n),
                np.append(0, np.cumsum(sizes[by_place])), share[players], np.empty(PLAYERS),
                np.empty(PLAYERS), blank.copy(), blank.copy(),
            )  # fmt: skip
            stages.rate_waves(each, beliefs, rows[players], wave, np.array([0, n]), np.full(n, t))
        found[t] = np.abs(pair[0][1].header["mu"] - pair[1][1].header["mu"])
    return found
