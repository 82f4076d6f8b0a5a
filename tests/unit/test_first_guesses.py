"""First guesses: that of Elo-MMR against a grid, on real games."""

from itertools import product
from pathlib import Path

import pytest

from stream_rater.evaluation.accuracy import average
from stream_rater.evaluation.game import Game, games_of
from stream_rater.evaluation.sides import own_run, scores_of
from stream_rater.evaluation.spaces import configuration
from stream_rater.operations.evidence import load
from stream_rater.operations.input_file import RoundsFile
from stream_rater.rating.systems.elo_mmr import GOOD_SIGMA, GOOD_WEIGHT
from tests.benchmarks.measure import Skipped
from tests.benchmarks.offline import shared

WEIGHTS, SIGMAS = (0.05, 0.1, 0.2, 0.4), (50.0, 80.0, 120.0)


def real_games() -> list[Game]:
    """Teams, races, and small and large rounds. Skips where the files are not."""
    found: list[Game] = []
    for name, rounds, cut in (("cwl", None, ()), ("formula-one", None, ()),
                              ("map-rando", None, ()), ("codeforces", 40, (2, 5, 20))):  # fmt: skip
        try:
            path: Path = shared(name)
        except Skipped as why:
            pytest.skip(str(why))
        data, _ = load(path, RoundsFile(path), rounds)
        found += games_of(name, data.sessions, cut)
    return found


def log_loss(game: Game, weight: float, sigma: float) -> float:
    config = configuration("elo-mmr", {"weight_limit": weight, "sigma_limit": sigma, "rho": 1.0})
    found = average(scores_of(own_run(game.sessions, config).after(game.boundary)), "log_loss")
    assert found is not None
    return found


def test_the_first_guess_is_good_everywhere() -> None:
    """Of the grid it has the least greatest regret: what a game's log loss has over the least."""
    regret = dict.fromkeys(product(WEIGHTS, SIGMAS), 0.0)
    for game in real_games():
        losses = {point: log_loss(game, *point) for point in regret}
        least = min(losses.values())
        for point, loss in losses.items():
            regret[point] = max(regret[point], loss - least)
    assert min(regret, key=lambda point: regret[point]) == (GOOD_WEIGHT, GOOD_SIGMA)
