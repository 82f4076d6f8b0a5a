"""Stage 1 by size of round: `stage1/N` and, for Elo-MMx, `stage1-gaussian/N` are µs per player in
waves of some 100,000. `error_points` is the worst error against brute force, which shares no code:
it bisects the balance -Q_i(x) of Theorem 3.2, an increasing sum over all opponents. `two-moment/N`:
medians of both stages of that filter, in turns with Elo-MMR with full histories."""

from collections.abc import Callable, Sequence
from functools import partial
from statistics import median

import numpy as np
from scipy.special import erfcx

from stream_rater.columns.arrays import Floats, Ints
from stream_rater.rating import stages
from stream_rater.rating.model import PERFORMANCE, Beliefs, Wave, newcomers
from stream_rater.rating.parameters import EloMMR, EloMMX, RatingConfig, TwoMoment
from tests.benchmarks.measure import Effort, Result, best_s, result, times_s

# --- brute force ----------------------------------------------------------------------------------

C = np.pi / np.sqrt(3.0)
CHUNK = 2**21  # Terms taken at once.
HALVINGS = 40
FIRST_REACH = 1e-3  # Points around the found performance that are looked at first.


def _logistic(x: Floats, i: Ints, mu: Floats, delta: Floats) -> Floats:
    u = C / delta
    won = np.tanh(0.5 * (x[:, None] - mu) * u) @ u
    own = u[i] * np.tanh(0.5 * (x - mu[i]) * u[i])
    better = np.concatenate([[0.0], np.cumsum(u)])
    balance: Floats = won + own + better[i] - (better[-1] - better[i + 1])
    return balance


def _gaussian(x: Floats, i: Ints, mu: Floats, delta: Floats) -> Floats:
    z = (x[:, None] - mu) / delta
    lost = np.arange(len(mu)) < i[:, None]
    # hazard(z) = phi(z) / Phi(-z): of a loss at z, of a win at -z.
    hazard = np.sqrt(2.0 / np.pi) / erfcx(np.where(lost, z, -z) / np.sqrt(2.0))
    terms = np.where(lost, hazard, -hazard) / delta
    own = (np.arange(len(i)), i)
    terms[own] = z[own] / delta[i]
    balance: Floats = terms.sum(axis=1)
    return balance


def worst_error(found: Floats, at: Ints, mu: Floats, delta: Floats, *, gaussian: bool) -> float:
    """The largest error, in points, of performances `found` (m,) of the entries `at` (m,).

    Entries are in order of place; `mu` and `delta` (n,) are those of all entries."""
    balance = _gaussian if gaussian else _logistic
    size = max(1, CHUNK // len(mu))
    worst = 0.0
    for start in range(0, len(at), size):
        x, i = found[start : start + size], at[start : start + size]
        true = _zeros(lambda x, i=i: balance(x, i, mu, delta), x)  # type: ignore[misc]
        worst = max(worst, float(np.abs(true - x).max()))
    return worst


def _zeros(balance: Callable[[Floats], Floats], near: Floats) -> Floats:
    """The zeros of increasing functions, by bisection from around `near`."""
    low, high, reach = near.copy(), near.copy(), FIRST_REACH
    while (above := balance(low) > 0.0).any():
        low[above] = near[above] - reach
        reach *= 8.0
    reach = FIRST_REACH
    while (below := balance(high) < 0.0).any():
        high[below] = near[below] + reach
        reach *= 8.0
    for _ in range(HALVINGS):
        if (high - low).max() < 1e-9:
            break
        middle = 0.5 * (low + high)
        negative = balance(middle) < 0.0
        low, high = np.where(negative, middle, low), np.where(negative, high, middle)
    return 0.5 * (low + high)


# --- what is measured -----------------------------------------------------------------------------

SIZES = (2, 5, 12, 30, 60, 100, 300, 1000, 10_000, 100_000, 1_000_000)
PLAYERS, QUICK_PLAYERS = 100_000, 2_000
SMALL = (2, 3, 5, 12, 30, 100)
FEW, QUICK_FEW = 20_000, 1_000  # Of the two-moment filter.
TURNS = 100
CHECKED_TERMS = 4_000_000  # Ranks checked times players of their round.
MOST_CHECKED = 2_000

WEIGHT_LIMIT, SIGMA_LIMIT = 0.23, 54.0
LOGISTIC = EloMMR(weight_limit=WEIGHT_LIMIT, sigma_limit=SIGMA_LIMIT, rho=0.04)
GAUSSIAN = EloMMX(weight_limit=WEIGHT_LIMIT, sigma_limit=SIGMA_LIMIT)
GAMMA2 = WEIGHT_LIMIT * SIGMA_LIMIT**2
BETA2 = (1.0 + 1.0 / WEIGHT_LIMIT) * SIGMA_LIMIT**2
"""Section 3 of the paper: an opponent's performance has variance sigma^2 + gamma^2 + beta^2."""


def wave_of_size(size: int, rounds: int, seed: int) -> Wave:
    """Rounds of players who perform about as rated, with uncertainties from new to settled."""
    random, players = np.random.default_rng(seed), size * rounds
    mu = random.normal(1500.0, 300.0, (rounds, size))
    sigma = random.uniform(60.0, 350.0, (rounds, size))
    played = random.normal(mu, np.sqrt(sigma**2 + GAMMA2 + BETA2))
    order = np.argsort(-played, axis=1)
    mu, sigma = (np.take_along_axis(each, order, axis=1).ravel() for each in (mu, sigma))
    return wave_of(size, mu, sigma, np.full(players, 5), np.zeros(players, np.int64))


def wave_of(size: int, mu: Floats, sigma: Floats, played: Ints, last_time: Ints) -> Wave:
    """Rounds of players who each play alone, best first."""
    players, rounds = len(mu), len(mu) // size
    return Wave(
        round_starts=np.arange(0, players + 1, size), weight=np.ones(rounds),
        ceiling=np.full(players, np.inf), time=np.zeros(rounds, np.int64),
        place=np.tile(np.arange(1, size + 1, dtype=np.int32), rounds),
        entry_starts=np.arange(players + 1), share=np.ones(players),
        mu=mu, sigma=sigma, rounds=played, last_time=last_time,
    )  # fmt: skip


def _checked(size: int, rounds: int) -> list[tuple[int, Ints]]:
    """Which rounds to check by brute force, and which ranks in each."""
    ranks = max(8, min(CHECKED_TERMS // size, MOST_CHECKED))
    if ranks < size:
        return [(0, np.unique(np.linspace(0, size - 1, ranks).astype(np.int64)))]
    return [(r, np.arange(size)) for r in range(min(rounds, ranks // size))]


def error_points(wave: Wave, size: int, found: Floats, *, gaussian: bool) -> float:
    """The worst error of performances `found` for a wave of rounds of this size."""
    delta = np.sqrt(wave.sigma**2 + GAMMA2 + BETA2)
    worst = 0.0
    for number, at in _checked(size, len(wave.weight)):
        part = slice(number * size, (number + 1) * size)
        error = worst_error(found[part][at], at, wave.mu[part], delta[part], gaussian=gaussian)
        worst = max(worst, error)
    return worst


def _stage1(config: RatingConfig, name: str, size: int, effort: Effort) -> Result:
    rounds = max(1, (QUICK_PLAYERS if effort.quick else PLAYERS) // size)
    wave = wave_of_size(size, rounds, seed=size)
    found = stages.estimate(config, wave)[:, PERFORMANCE]
    turns, players = effort.turns(max(3, TURNS * PLAYERS // max(PLAYERS, size))), rounds * size
    best = best_s(turns, ours=lambda: stages.estimate(config, wave))["ours"]
    ratio = {"error_points": error_points(wave, size, found, gaussian=config is GAUSSIAN)}
    return result(name, best / players * 1e6, "us/player", ratio, f"{rounds} rounds of {size}")


# --- the two-moment filter ------------------------------------------------------------------------


def _rate(config: RatingConfig, wave: Wave, beliefs: Beliefs) -> None:
    rows = np.arange(len(wave.mu))
    found = stages.estimate(config, wave)
    stages.update(beliefs, rows, found, [stages.rule_of(config)], np.zeros_like(rows))


def _two_moment(name: str, size: int, effort: Effort) -> Result:
    rounds = max(1, (QUICK_FEW if effort.quick else FEW) // size)
    wave, players = wave_of_size(size, rounds, seed=size), rounds * size
    configs: dict[str, RatingConfig] = {"two_moment": TwoMoment(), "elo_mmr": LOGISTIC}
    runs: dict[str, Callable[[], None]] = {}
    for system, config in configs.items():
        new = config.initial_mu, config.initial_sigma
        runs[system] = partial(
            _rate, config, wave, newcomers(players, config.kept + 1, *new, coded=True)
        )
        for _ in range(config.kept + 2 if system == "elo_mmr" else 1):  # until histories are full
            runs[system]()
    times = {each: median(taken) for each, taken in times_s(effort.turns(40), **runs).items()}
    value, ratio = times["two_moment"], {"elo_mmr": times["two_moment"] / times["elo_mmr"]}
    return result(name, value / players * 1e6, "us/player", ratio, f"{rounds} rounds of {size}")


KINDS: dict[str, tuple[Callable[[str, int, Effort], Result], Sequence[int]]] = {
    "stage1": (partial(_stage1, LOGISTIC), SIZES),
    "stage1-gaussian": (partial(_stage1, GAUSSIAN), SIZES),
    "two-moment": (_two_moment, SMALL),
}
BENCHMARKS: dict[str, Callable[[Effort], Result]] = {
    f"{kind}/{size}": partial(measure, f"{kind}/{size}", size)
    for kind, (measure, sizes) in KINDS.items()
    for size in sizes
}
