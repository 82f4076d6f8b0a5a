"""Elo-MMR as the paper has it, slow and readable, one number at a time. It shares no code with the
kernels: tanh instead of logarithms, functions of libm, bisection instead of Halley's method."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from stream_rater.rating.parameters import TIED_LAST, EloMMR

C = math.pi / math.sqrt(3.0)
SECONDS_PER_DAY = 86400.0
LEAST_WEIGHT = 1e-9


@dataclass
class SlowPlayer:
    """A belief with its whole history: performances p_k, with o_k and u_k = C / beta_k."""

    mu: float
    sigma: float
    center: float
    precision: float
    history: list[tuple[float, float, float]] = field(default_factory=list)
    """(p, u, o) of each round, the oldest first."""
    rounds: int = 0
    time: int = 0


def newcomer(config: EloMMR) -> SlowPlayer:
    sigma = config.initial_sigma
    return SlowPlayer(config.initial_mu, sigma, config.initial_mu, 1.0 / sigma**2)


def zero(increasing: Callable[[float], float], low: float, high: float) -> float:
    """The zero of an increasing function by bisection, to the last bit."""
    for _ in range(2000):
        middle = 0.5 * (low + high)
        if middle in (low, high):
            break
        if increasing(middle) < 0.0:
            low = middle
        else:
            high = middle
    return 0.5 * (low + high)


def variances(player: SlowPlayer, config: EloMMR, weight: float, time: int) -> tuple[float, float]:
    """(beta^2, gamma^2) of this player in a round of this weight."""
    w, s = config.limits
    w *= weight
    if player.rounds < len(config.newcomer_weights):
        w *= config.newcomer_weights[player.rounds]
    w = max(w, LEAST_WEIGHT)
    days = max(time - player.time, 0) / SECONDS_PER_DAY if player.rounds else 0.0
    drift = config.drift_per_day
    in_beta = 0.0 if config.beta else drift  # an explicit beta is not changed
    return (1.0 + 1.0 / w) * s**2 + in_beta / w, w * s**2 + drift * days


def diffuse(player: SlowPlayer, gamma2: float, rho: float) -> None:
    """Apply Algorithm 2 to the player, in place."""
    variance = player.sigma**2
    kappa = variance / (variance + gamma2)
    stays = 0.0 if math.isinf(rho) else kappa**rho
    total = player.precision + sum(u * o / C**2 for _, u, o in player.history)
    gaussian, moved = stays * player.precision, (1.0 - stays) * total
    player.center = (gaussian * player.center + moved * player.mu) / (gaussian + moved)
    player.precision = kappa * (gaussian + moved)
    player.history = [(p, u, kappa * stays * o) for p, u, o in player.history]
    player.sigma = math.sqrt(variance + gamma2)


def performance(
    place: Sequence[int], mu: Sequence[float], delta: Sequence[float], i: int, tie: float
) -> float:
    """The zero of Q_i (Theorem 3.2). Entries of place 0 (dnf) are not compared with one another."""

    def minus_q(x: float) -> float:
        total = 0.0
        for j, (mu_j, delta_j) in enumerate(zip(mu, delta, strict=True)):
            u = C / delta_j
            won = u * (1.0 - math.tanh((x - mu_j) * u / 2.0)) / 2.0
            lost = won - u
            if j == i or place[j] == place[i] != 0:
                total += tie * (won + lost)
            elif place[j] == place[i] == 0:
                continue
            elif place[j] == 0 or 0 < place[i] < place[j]:
                total += won
            else:
                total += lost
        return -total

    reach = 60.0 * max(delta) + 1.0
    return zero(minus_q, min(mu) - reach, max(mu) + reach)


def hazard(z: float) -> float:
    """phi(z) / Phi(-z)."""
    if z > 30.0:  # erfc would soon underflow; the next term of the series is below 1e-9
        return z + 1.0 / z - 2.0 / z**3 + 10.0 / z**5
    return math.sqrt(2.0 / math.pi) * math.exp(-z * z / 2.0) / math.erfc(z / math.sqrt(2.0))


def gaussian_performance(
    place: Sequence[int], mu: Sequence[float], delta: Sequence[float], i: int, split: bool
) -> float:
    """The performance of entry i in Elo-MMx, where performances are normal (section 3)."""

    def minus_q(x: float) -> float:
        total = 0.0
        for j, (mu_j, delta_j) in enumerate(zip(mu, delta, strict=True)):
            z = (x - mu_j) / delta_j
            lost, won = hazard(z), -hazard(-z)
            if j == i or place[j] == place[i] != 0:
                total += ((won + lost) / 2.0 if split else z) / delta_j
            elif place[j] == place[i] == 0:
                continue
            elif place[j] == 0 or 0 < place[i] < place[j]:
                total += won / delta_j
            else:
                total += lost / delta_j
        return total

    reach = 60.0 * max(delta)
    return zero(minus_q, min(mu) - reach, max(mu) + reach)


def update(player: SlowPlayer, p: float, beta2: float) -> None:
    """The second phase of Algorithm 3, in place, for a player whose belief is diffused."""
    u = C / math.sqrt(beta2)
    player.history.append((p, u, u))

    def slope(x: float) -> float:
        pull = sum(o * math.tanh((x - p) * u / 2.0) for p, u, o in player.history)
        return player.precision * (x - player.center) + pull

    points = [player.center, *(p for p, _, _ in player.history)]
    player.mu = zero(slope, min(points), max(points))
    player.sigma = (1.0 / player.sigma**2 + 1.0 / beta2) ** -0.5


def rate_round(
    players: Sequence[SlowPlayer], place: Sequence[int], config: EloMMR,
    weight: float = 1.0, ceiling: float = math.inf, time: int = 0,
) -> list[float]:  # fmt: skip
    """Apply Algorithm 1 to one round, with players in any order. Returns the performances."""
    if config.dnf == TIED_LAST:
        place = [p or max(place) + 1 for p in place]
    spreads = [variances(player, config, weight, time) for player in players]
    for player, (_, gamma2) in zip(players, spreads, strict=True):
        diffuse(player, gamma2, config.momentum)
    mu = [player.mu for player in players]
    delta = [
        math.sqrt(player.sigma**2 + beta2)
        for player, (beta2, _) in zip(players, spreads, strict=True)
    ]
    tie = 1.0 if config.ties == "full" else 0.5
    found = [min(performance(place, mu, delta, i, tie), ceiling) for i in range(len(players))]
    for player, p, (beta2, _) in zip(players, found, spreads, strict=True):
        update(player, p, beta2)
        player.time = max(player.time, time) if player.rounds else time
        player.rounds += 1
    return found
