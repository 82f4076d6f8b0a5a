"""Elo-R, slow and readable, by Algorithm 1 of the draft; it shares no code with the kernels.

A belief is a list of pdfs (mu_k, tau_k): the first is normal, the others are logistic."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field


@dataclass
class Player:
    """(mu_k, tau_k), the normal one first."""

    mu: float
    sigma: float
    pdfs: list[tuple[float, float]] = field(init=False)

    def __post_init__(self) -> None:
        self.pdfs = [(self.mu, self.sigma)]


def zero(increasing: Callable[[float], float], low: float, high: float) -> float:
    """By bisection, to the last bit."""
    while low < (middle := 0.5 * (low + high)) < high:
        low, high = (middle, high) if increasing(middle) < 0.0 else (low, middle)
    return 0.5 * (low + high)


def noise(delta: float, limit: float, weight: float) -> tuple[float, float]:
    """(delta, eta) of a round by Equation 29, after the weight has changed delta.

    In the limit, a round of weight 1 adds 1/delta^2 to the precision 1/limit^2 - 1/delta^2: its
    part limit^2 / (delta^2 - limit^2). A round of weight q adds q times that part."""
    part = weight * limit**2 / (delta**2 - limit**2)
    delta = limit * math.sqrt(1.0 + 1.0 / part)
    return delta, math.sqrt(1.0 / (1.0 / limit**2 - 1.0 / delta**2) - limit**2)


def performance(
    place: Sequence[int], r: Sequence[float], tau: Sequence[float], i: int, split: bool
) -> float:
    """Line 5 of Algorithm 1. A tie counts as a win and a loss, or half of each; place 0 is dnf."""

    def surprise(p: float) -> float:
        total = 0.0
        for j in range(len(r)):
            th = math.tanh((p - r[j]) / tau[j])
            won, lost = (th - 1.0) / tau[j], (th + 1.0) / tau[j]
            if j == i:
                total += won + lost
            elif place[j] == place[i]:
                total += 0.0 if place[i] == 0 else (won + lost) * (0.5 if split else 1.0)
            elif place[i] != 0 and (place[j] == 0 or place[i] < place[j]):
                total += won
            else:
                total += lost
        return total

    reach = 30.0 * max(tau) + 1.0
    return zero(surprise, min(r) - reach, max(r) + reach)


def rate_round(
    players: Sequence[Player], place: Sequence[int], delta: float, limit: float, split: bool,
    weight: float = 1.0, ceiling: float = math.inf, tied_last: bool = True,
) -> list[float]:  # fmt: skip
    """Algorithm 1, in place. Returns performances. `tied_last`: all that did not finish tie."""
    if tied_last:
        place = [p or max(place) + 1 for p in place]
    spread, eta = noise(delta, limit, weight)
    for each in players:
        k = 1.0 + eta**2 / each.sigma**2
        each.pdfs = [(mu, math.sqrt(k) * tau) for mu, tau in each.pdfs]
        each.sigma = math.hypot(each.sigma, eta)
    r = [each.mu for each in players]
    tau = [math.hypot(each.sigma, spread) for each in players]
    found = [min(performance(place, r, tau, i, split), ceiling) for i in range(len(players))]
    for each, p in zip(players, found, strict=True):
        each.pdfs.append((p, spread))
        each.mu = posterior_mode(each.pdfs)
        each.sigma = 1.0 / math.sqrt(sum(tau**-2 for _, tau in each.pdfs))
    return found


def posterior_mode(pdfs: Sequence[tuple[float, float]]) -> float:
    """Line 7 of Algorithm 1."""
    (mu_0, tau_0), *others = pdfs

    def slope(r: float) -> float:
        return (r - mu_0) / tau_0**2 + sum(math.tanh((r - mu) / tau) / tau for mu, tau in others)

    points = [mu for mu, _ in pdfs]
    return zero(slope, min(points), max(points))
