"""Seasons in which chance alone decides: what ratings do where there is nothing to find out."""

from typing import NamedTuple

import numpy as np

from stream_rater.columns.arrays import Floats, Ints
from stream_rater.rating import stages
from stream_rater.rating.model import Beliefs, Places, Table, Wave, newcomers
from stream_rater.rating.parameters import RatingConfig

PLAYERS = 100
DAY_S = 86_400
TOGETHER = 200
"""Turns in a call."""


class Size(NamedTuple):
    sides: int
    members: int = 1

    @property
    def players(self) -> int:
        return self.sides * self.members


SIZES = {"duel": Size(2), "five": Size(5), "5v5": Size(2, 5), "hundred": Size(100)}


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
        self, size: Size, rounds: int, rng: np.random.Generator, *, mirrored: bool = False
    ) -> None:
        """So many rounds. `mirrored`: all results are turned around, the last wins."""
        in_turn = PLAYERS // size.players
        left = -(-rounds // in_turn)
        while left > 0:
            waves = min(left, TOGETHER)
            order = [rng.permutation(PLAYERS)[: in_turn * size.players] for _ in range(waves)]
            if mirrored:  # sides in the other order; their members stay in theirs
                order = [
                    each.reshape(in_turn, size.sides, size.members)[:, ::-1].ravel()
                    for each in order
                ]
            self.rate(size, np.concatenate(order), np.arange(waves + 1) * in_turn)
            left -= waves

    def rate(self, size: Size, rows: Ints, waves: Ints) -> None:
        rounds = int(waves[-1])
        players = len(rows)
        place: Places = np.tile(np.arange(1, size.sides + 1, dtype=np.int32), rounds)
        days = self._turns + np.repeat(np.arange(len(waves) - 1), np.diff(waves))
        wave = Wave(
            np.arange(rounds + 1) * size.sides, np.ones(rounds), np.full(rounds, np.inf),
            days * DAY_S, place, np.arange(rounds * size.sides + 1) * size.members,
            np.ones(players), np.empty(players), np.empty(players), np.empty(players, np.int64),
            np.empty(players, np.int64),
        )  # fmt: skip
        offset = self.played + np.arange(rounds)
        stages.rate_waves(self.config, self._beliefs, rows, wave, waves, offset)
        self._turns, self.played = self._turns + len(waves) - 1, self.played + rounds
