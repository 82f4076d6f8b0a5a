"""`lobby/5`, `lobby/100`: µs per update of both stages in memory, beside openskill.py's
PlackettLuce and the trueskill package. All rate the same evenings, whose lobbies share no player;
ours rates in waves, as the service does. All look up ratings before a lobby and store new ones.
`loop/two-moment/5v5` and others: µs of `Ladder.rate` and `Ladder.predict` in a loop over rounds."""

from collections import deque
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from itertools import count
from statistics import median
from typing import Any

import numpy as np

from stream_rater import Ladder
from stream_rater.columns.arrays import Ints
from stream_rater.rating import stages
from stream_rater.rating.model import Beliefs, look_up, newcomers
from tests.benchmarks.lab.peers import peer_module
from tests.benchmarks.measure import Effort, Result, best_s, result, times_s
from tests.benchmarks.stage1 import LOGISTIC, wave_of

PLAYERS = 2_000
WARM_UP = 40  # Evenings before the time counts, so that players' histories are full.
TURNS = 40
PEERS_PLAYERS = {"openskill": 500, "trueskill": 100}  # Smaller: an update's time does not change.

EVENINGS = 8  # In a turn of ours, which should last as long as a peer's.

Evening = Ints  # Lobbies, a row each: their players, best first.

Rate = Callable[[Evening], None]


def evenings(size: int, players: int, seed: int) -> Callable[[], Evening]:
    """Makes evenings on which all players meet in lobbies, most as their skills want it."""
    random = np.random.default_rng(seed)
    skill = random.normal(0.0, 300.0, players)

    def evening() -> Evening:
        mixed = random.permutation(players)[: players // size * size].reshape(-1, size)
        played = skill[mixed] + random.logistic(0.0, 120.0, mixed.shape)
        return np.take_along_axis(mixed, np.argsort(-played, axis=1), axis=1)

    return evening


def ours(players: int) -> Rate:
    """Beliefs in memory, rated by waves: both stages and the book-keeping."""
    law, offsets = stages.rule_of(LOGISTIC), count()
    beliefs: Beliefs = newcomers(
        players, law.kept + 1, LOGISTIC.initial_mu, LOGISTIC.initial_sigma, coded=True
    )

    def rate(lobbies: Evening) -> None:
        rows, size = lobbies.ravel(), lobbies.shape[1]
        wave = wave_of(size, *look_up(beliefs.header, rows))
        same = np.zeros(len(rows), np.int64)
        stages.update(beliefs, rows, stages.estimate(LOGISTIC, wave), [law], same)
        stages.record_round(beliefs, rows, same + next(offsets), same)

    return rate


def one_by_one(package: Callable[[Any], Any], ratings: list[Any]) -> Rate:
    """A package that rates lobbies one by one, as teams of one player in order of their ranks."""

    def rate(lobbies: Evening) -> None:
        for rows in lobbies.tolist():
            rated = package([[ratings[row]] for row in rows])
            for row, (rating,) in zip(rows, rated, strict=True):
                ratings[row] = rating

    return rate


def openskill(players: int) -> Rate:
    model: Any = peer_module("openskill.models").PlackettLuce()
    return one_by_one(model.rate, [model.rating() for _ in range(players)])


def trueskill(players: int) -> Rate:
    environment: Any = peer_module("trueskill").TrueSkill(draw_probability=0.0)
    return one_by_one(environment.rate, [environment.create_rating() for _ in range(players)])


def _all(rate: Rate, turn: list[Evening]) -> None:
    for lobbies in turn:
        rate(lobbies)


def _lobby(name: str, size: int, effort: Effort) -> Result:
    players = PLAYERS // 2 if effort.quick else PLAYERS
    runs, updates, absent = {"ours": ours(players)}, {"ours": players}, []
    for peer, make_peer in (("openskill", openskill), ("trueskill", trueskill)):
        try:
            runs[peer] = make_peer(PEERS_PLAYERS[peer])
            updates[peer] = PEERS_PLAYERS[peer]
        except ImportError:
            absent.append(f"{peer} is not installed")
    evening = {peer: evenings(size, updates[peer], seed=size) for peer in runs}
    for _ in range(3 if effort.quick else WARM_UP):
        runs["ours"](evening["ours"]())
    best = dict.fromkeys(runs, float("inf"))
    for _ in range(effort.turns(TURNS)):
        often = dict.fromkeys(runs, 1) | {"ours": EVENINGS}
        turn = {peer: [make() for _ in range(often[peer])] for peer, make in evening.items()}
        taken = best_s(1, **{peer: partial(_all, run, turn[peer]) for peer, run in runs.items()})
        for peer, time_s in taken.items():
            best[peer] = min(best[peer], time_s / sum(each.size for each in turn[peer]) * 1e6)
    faster = {peer: best[peer] / best["ours"] for peer in runs if peer != "ours"}
    note = "; ".join([f"waves of {players} players", *absent])
    return result(name, best["ours"], "us/update", faster, note)


ROUNDS, PLAYING, LOOPS = 5_000, 1_000, 15
SHAPES = {"1v1": (2, 1), "5v5": (2, 5), "5": (5, 1)}  # The sides of a round, and their members.


def _loop(system: str, shape: str, effort: Effort) -> Result:
    """Medians of loops over the same rounds, in turns. Of each prediction a chance is read."""
    random, (sides, members) = np.random.default_rng(1), SHAPES[shape]
    chosen = [
        random.choice(PLAYING, (sides, members), replace=False).tolist()
        for _ in range(ROUNDS // 10 if effort.quick else ROUNDS)
    ]
    teams = [[[f"player-{i}" for i in side] for side in each] for each in chosen]
    named: list[Any] = [[s[0] for s in each] if members == 1 else each for each in teams]
    ladder = Ladder(system)
    runs: dict[str, Callable[[], object]] = {
        "rate": lambda: deque(map(ladder.rate, named), 0),
        "predict": lambda: deque((ladder.predict(each).win[0] for each in named), 0),
    }
    with suppress(ImportError):
        model: Any = peer_module("openskill.models").PlackettLuce()
        of = [model.rating() for _ in range(PLAYING)]

        def rate() -> None:
            for each in chosen:
                rated = model.rate([[of[i] for i in side] for side in each])
                for side, new in zip(each, rated, strict=True):
                    for i, rating in zip(side, new, strict=True):
                        of[i] = rating

        runs["openskill_rate"] = rate
        runs["openskill_predict"] = lambda: [
            model.predict_win([[of[i] for i in side] for side in each])[0] for each in chosen
        ]
    times = times_s(effort.turns(LOOPS), **runs)
    us = {name: median(each) / len(chosen) * 1e6 for name, each in times.items()}
    return result(f"loop/{system}/{shape}", us.pop("rate"), "us/round", us)


BENCHMARKS: dict[str, Callable[[Effort], Result]] = {
    **{f"lobby/{size}": partial(_lobby, f"lobby/{size}", size) for size in (5, 100)},
    **{
        f"loop/{system}/{shape}": partial(_loop, system, shape)
        for system in ("elo-mmr", "two-moment")
        for shape in SHAPES
    },
}
