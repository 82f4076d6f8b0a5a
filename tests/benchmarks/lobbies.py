"""`lobby/5` and `lobby/100`: both stages in memory, µs an update, beside two peers in memory.

The same evenings of lobbies are rated by openskill.py's PlackettLuce, by the trueskill package, and
by us in waves, as the service does: the lobbies of an evening share no player. Ratings are looked
up before a lobby and kept after it by all three.
"""

from collections.abc import Callable
from functools import partial
from itertools import count
from typing import Any

import numpy as np

from stream_rater.columns.arrays import Ints
from stream_rater.evaluation.peers import peer_module
from stream_rater.rating import stages
from stream_rater.rating.model import Beliefs, Wave, look_up, newcomers
from stream_rater.rating.parameters import EloMMR
from tests.benchmarks.measure import Effort, Result, best_s, result

CONFIG = EloMMR(weight_limit=0.23, sigma_limit=54.0, rho=0.04)
PLAYERS = 2_000
WARM_UP = 40
"""Evenings before: as many rounds for each player, so that histories are full."""
TURNS = 40
PEERS_PLAYERS = {"openskill": 500, "trueskill": 100}
"""A peer's evening is smaller: its time for an update does not depend on how many lobbies wait."""

EVENINGS = 8
"""In a turn of ours: a turn should last as long as a peer's does."""

Evening = Ints
"""Lobbies, a row each: their players, best first."""


def evenings(size: int, players: int, seed: int) -> Callable[[], Evening]:
    """Makes evenings on which all players meet in lobbies, most as their skills want it."""
    random = np.random.default_rng(seed)
    skill = random.normal(0.0, 300.0, players)

    def evening() -> Evening:
        mixed = random.permutation(players)[: players // size * size].reshape(-1, size)
        played = skill[mixed] + random.logistic(0.0, 120.0, mixed.shape)
        return np.take_along_axis(mixed, np.argsort(-played, axis=1), axis=1)

    return evening


class Ours:
    """Beliefs in memory, rated by waves."""

    def __init__(self, players: int) -> None:
        self._law = stages.rule_of(CONFIG)
        self._beliefs: Beliefs = newcomers(
            players, self._law.kept + 1, CONFIG.initial_mu, CONFIG.initial_sigma, coded=True
        )
        self._offsets = count()

    def rate(self, lobbies: Evening) -> None:
        """Both stages and the book-keeping for an evening's lobbies."""
        rows, size = lobbies.ravel(), lobbies.shape[1]
        mu, sigma, rounds, last_time = look_up(self._beliefs.header, rows)
        wave = Wave(
            round_starts=np.arange(0, len(rows) + 1, size),
            weight=np.ones(len(lobbies)),
            ceiling=np.full(len(lobbies), np.inf),
            time=np.zeros(len(lobbies), np.int64),
            place=np.tile(np.arange(1, size + 1, dtype=np.int32), len(lobbies)),
            entry_starts=np.arange(len(rows) + 1),
            share=np.ones(len(rows)),
            mu=mu,
            sigma=sigma,
            rounds=rounds,
            last_time=last_time,
        )
        same = np.zeros(len(rows), np.int64)
        stages.update(self._beliefs, rows, stages.estimate(CONFIG, wave), [self._law], same)
        stages.record_round(self._beliefs, rows, same + next(self._offsets), same)


class OpenSkill:
    """openskill.py's PlackettLuce: teams of one."""

    def __init__(self, players: int) -> None:
        model: Any = peer_module("openskill.models").PlackettLuce()
        self._rate = model.rate
        self._ratings = [model.rating() for _ in range(players)]

    def rate(self, lobbies: Evening) -> None:
        """One lobby after the other; the order of the teams is that of their ranks."""
        ratings = self._ratings
        for rows in lobbies.tolist():
            rated = self._rate([[ratings[row]] for row in rows])
            for row, (rating,) in zip(rows, rated, strict=True):
                ratings[row] = rating


class TrueSkill:
    """The trueskill package: groups of one."""

    def __init__(self, players: int) -> None:
        environment: Any = peer_module("trueskill").TrueSkill(draw_probability=0.0)
        self._rate = environment.rate
        self._ratings = [environment.create_rating() for _ in range(players)]

    def rate(self, lobbies: Evening) -> None:
        """One lobby after the other; the order of the groups is that of their ranks."""
        ratings = self._ratings
        for rows in lobbies.tolist():
            rated = self._rate([(ratings[row],) for row in rows])
            for row, (rating,) in zip(rows, rated, strict=True):
                ratings[row] = rating


def often(peer: str) -> int:
    """How many evenings there are in a turn."""
    return EVENINGS if peer == "ours" else 1


def _all(rate: Callable[[Evening], None], turn: list[Evening]) -> None:
    for lobbies in turn:
        rate(lobbies)


def _lobby(name: str, size: int, effort: Effort) -> Result:
    players = PLAYERS // 2 if effort.quick else PLAYERS
    runs, updates, absent = {"ours": Ours(players).rate}, {"ours": players}, []
    for peer, kind in (("openskill", OpenSkill), ("trueskill", TrueSkill)):
        try:
            runs[peer] = kind(PEERS_PLAYERS[peer]).rate
            updates[peer] = PEERS_PLAYERS[peer]
        except ImportError:
            absent.append(f"{peer} is not installed")
    evening = {peer: evenings(size, updates[peer], seed=size) for peer in runs}
    for _ in range(3 if effort.quick else WARM_UP):
        runs["ours"](evening["ours"]())
    best = dict.fromkeys(runs, float("inf"))
    for _ in range(effort.turns(TURNS)):
        turn = {peer: [make() for _ in range(often(peer))] for peer, make in evening.items()}
        taken = best_s(1, **{peer: partial(_all, run, turn[peer]) for peer, run in runs.items()})
        for peer, time_s in taken.items():
            best[peer] = min(best[peer], time_s / sum(each.size for each in turn[peer]) * 1e6)
    faster = {peer: best[peer] / best["ours"] for peer in runs if peer != "ours"}
    note = "; ".join([f"waves of {players} players", *absent])
    return result(name, best["ours"], "us/update", faster, note)


BENCHMARKS: dict[str, Callable[[Effort], Result]] = {
    f"lobby/{size}": partial(_lobby, f"lobby/{size}", size) for size in (5, 100)
}
