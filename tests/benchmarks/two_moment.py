"""`two-moment/N`: both stages of the two-moment filter in rounds of N players, µs a player.

Both systems rate the same wave of rounds, in turns, in this process. `ratio.elo_mmr` is the time of
the two-moment filter divided by that of Elo-MMR, whose players have full histories. Times are
medians.
"""

from collections.abc import Callable
from functools import partial
from statistics import median

import numpy as np

from stream_rater.rating import stages
from stream_rater.rating.model import Beliefs, Wave, newcomers
from stream_rater.rating.parameters import RatingConfig, TwoMoment
from tests.benchmarks.measure import Effort, Result, result, times_s
from tests.benchmarks.stage1 import LOGISTIC, wave_of_size

SIZES = (2, 3, 5, 12, 30, 100)
PLAYERS, QUICK_PLAYERS = 20_000, 1_000
TURNS = 40
CONFIGS: dict[str, RatingConfig] = {"two_moment": TwoMoment(), "elo_mmr": LOGISTIC}


def _rate(config: RatingConfig, wave: Wave, beliefs: Beliefs) -> None:
    """Both stages."""
    rows = np.arange(len(wave.mu))
    found = stages.estimate(config, wave)
    stages.update(beliefs, rows, found, [stages.rule_of(config)], np.zeros_like(rows))


def _measure(name: str, size: int, effort: Effort) -> Result:
    rounds = max(1, (QUICK_PLAYERS if effort.quick else PLAYERS) // size)
    wave = wave_of_size(size, rounds, seed=size)
    runs: dict[str, Callable[[], None]] = {}
    for system, config in CONFIGS.items():
        beliefs = newcomers(
            len(wave.mu), config.kept + 1, config.initial_mu, config.initial_sigma, coded=True
        )
        runs[system] = partial(_rate, config, wave, beliefs)
        for _ in range(config.kept + 2 if system == "elo_mmr" else 1):  # until histories are full
            runs[system]()
    times = {each: median(taken) for each, taken in times_s(effort.turns(TURNS), **runs).items()}
    return result(
        name,
        times["two_moment"] / len(wave.mu) * 1e6,
        "us/player",
        {"elo_mmr": times["two_moment"] / times["elo_mmr"]},
        f"{rounds} rounds of {size}",
    )


BENCHMARKS: dict[str, Callable[[Effort], Result]] = {
    f"two-moment/{size}": partial(_measure, f"two-moment/{size}", size) for size in SIZES
}
