"""Seasons in which chance alone decides, and large rounds of newcomers, for `make reference`."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from stream_rater.columns.arrays import Floats, Ints
from stream_rater.rating import stages
from stream_rater.rating.model import Beliefs, Places, Table, Wave, newcomers
from stream_rater.rating.parameters import RatingConfig
from stream_rater.replay.pool import Pool
from tests.rounds import ranked, read

PLAYERS = 100
DAY_S = 86_400
TOGETHER = 200  # Turns that one call rates.


class Size(NamedTuple):
    sides: int
    members: int = 1

    @property
    def players(self) -> int:
        return self.sides * self.members


SIZES = {"duel": Size(2), "five": Size(5), "5v5": Size(2, 5), "hundred": Size(100)}


ENDS = {
    "in order": (1, 2, 3, 4, 5), "two tie for last": (1, 2, 3, 4, 4),
    "two do not finish": (1, 2, 3, 0, 0), "all but the first tie": (1, 2, 2, 2, 2),
    "two tie for first": (1, 1, 3, 4, 5), "all but the last tie": (1, 1, 1, 1, 5),
}  # fmt: skip
"""The places of the sides in rounds of five; 0 did not finish."""


def rise(config: RatingConfig, places: Sequence[int], rounds: int = 50) -> float:
    """The mean points that a player gains in a round: over `rounds` rounds, after as many."""
    season, size, rng = Season(config), Size(len(places)), np.random.default_rng(7)
    all_ = rounds * PLAYERS // size.players
    season.play(size, all_, rng, places=places)
    before = float(season.mu.mean())
    season.play(size, all_, rng, places=places)
    return (float(season.mu.mean()) - before) / rounds


def winner(config: RatingConfig, players: int) -> float:
    """The winner's mu after one round of `players` newcomers without ties."""
    pool = Pool(config)
    pool.rate(read(config, *ranked(range(1, players + 1))), 0)
    return float(pool.headers(np.arange(1))["mu"][0])


class Season:
    """PLAYERS players of one ladder, who meet by chance, each once a day."""

    def __init__(self, config: RatingConfig) -> None:
        self.config = config
        self.played = 0
        capacity = config.kept + 1 if config.kept else 8
        self._beliefs: Beliefs = newcomers(
            PLAYERS, capacity, config.initial_mu, config.initial_sigma, coded=config.kept > 0
        )
        self._turns = 0

    @property
    def header(self) -> Table:
        return self._beliefs.header

    @property
    def mu(self) -> Floats:
        found: Floats = self.header["mu"]
        return found

    @property
    def sigma(self) -> Floats:
        found: Floats = self.header["sigma"]
        return found

    def play(
        self, size: Size, rounds: int, rng: np.random.Generator, *, mirrored: bool = False,
        places: Sequence[int] = (),
    ) -> None:  # fmt: skip
        """Rate so many rounds. `mirrored`: with results reversed. `places`: of a round's sides."""
        in_turn = PLAYERS // size.players
        left = -(-rounds // in_turn)
        while left > 0:
            waves = min(left, TOGETHER)
            order = [rng.permutation(PLAYERS)[: in_turn * size.players] for _ in range(waves)]
            if mirrored:  # sides in reverse order; the order within a side stays
                order = [
                    each.reshape(in_turn, size.sides, size.members)[:, ::-1].ravel()
                    for each in order
                ]
            self.rate(size, np.concatenate(order), np.arange(waves + 1) * in_turn, places)
            left -= waves

    def rate(self, size: Size, rows: Ints, waves: Ints, places: Sequence[int] = ()) -> None:
        rounds = int(waves[-1])
        players = len(rows)
        own = np.array(places or range(1, size.sides + 1), np.int32)
        place: Places = np.tile(own, rounds)
        days = self._turns + np.repeat(np.arange(len(waves) - 1), np.diff(waves))
        wave = Wave(
            np.arange(rounds + 1) * size.sides, np.ones(rounds), np.full(len(place), np.inf),
            days * DAY_S, place, np.arange(rounds * size.sides + 1) * size.members,
            np.ones(players), np.empty(players), np.empty(players), np.empty(players, np.int64),
            np.empty(players, np.int64),
        )  # fmt: skip
        offset = self.played + np.arange(rounds)
        stages.rate_waves(self.config, self._beliefs, rows, wave, waves, offset)
        self._turns, self.played = self._turns + len(waves) - 1, self.played + rounds
