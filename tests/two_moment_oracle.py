"""The two-moment filter, slow and readable, one integral at a time. It shares no code with kernels:
it has SciPy's distribution functions, a dense grid for each side alone, and no running sums."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import log_ndtr, logsumexp

from stream_rater.columns.arrays import Floats
from stream_rater.rating.parameters import TwoMoment

SECONDS_PER_DAY = 86400.0
TOTAL = 1.64
KINDS = ((0.8, 0.4 / math.sqrt(TOTAL), 1.0 / TOTAL), (0.2, -1.6 / math.sqrt(TOTAL), 1.0 / TOTAL))
"""Noise of mean 0 and variance 1, as a mixture of normals: (weight, mean, variance) of each."""
REACH, STEP = 9.0, 0.15  # Of the grid: in deviations of the widest and the narrowest performance.


@dataclass
class Player:
    mu: float
    sigma: float
    rounds: int = 0
    time: int = 0


@dataclass
class Side:
    place: int
    players: Sequence[Player]
    shares: Sequence[float]
    mean: float = 0.0
    variance: float = 0.0
    noise: float = 0.0
    points: float = 0.0  # What the experience of its players adds to its mean.


def newcomers_means(config: TwoMoment, sides: Sequence[Side]) -> list[float]:
    total, known = 0.0, 1.0
    for player in [each for side in sides for each in side.players]:
        if player.rounds:
            x = max(0.0, 1.0 - (player.sigma / config.initial_sigma) ** 2)
            total, known = total + x * (player.mu - config.initial_mu), known + x
    found = []
    for side in sides:
        members = zip(side.players, side.shares, strict=True)
        newcomers = sum(share for player, share in members if player.rounds == 0)
        offset = config.newcomer_offset / max(1.0, newcomers)
        found.append(config.initial_mu + offset + config.newcomer_field * total / known)
    return found


def points_of(config: TwoMoment, player: Player) -> float:
    """The points that experience adds to a player's performance: at most 0."""
    return -config.inexperience * math.exp(-player.rounds / config.inexperience_rounds)


def scales_of(sides: Sequence[Side]) -> list[float]:
    """By how much the deviations of each side are multiplied, so that all have one total share."""
    totals = [sum(side.shares) for side in sides]
    if max(totals) - min(totals) < 1e-6:
        return [1.0] * len(sides)
    unit = len(sides) / sum(1.0 / each for each in totals)
    return [unit / each for each in totals]


def log_below(x: Floats, side: Side, sign: float) -> Floats:
    """ln F of a side's performance at x, or of 1 - F where the sign is -1."""
    b = math.sqrt(side.noise)
    parts = [
        math.log(pi)
        + log_ndtr(sign * (x - side.mean - d * b) / math.sqrt(side.variance + c * side.noise))
        for pi, d, c in KINDS
    ]
    found: Floats = np.logaddexp(*parts)
    return found


def log_density(x: Floats, side: Side) -> Floats:
    """The logarithm of the density of a side's performance at x."""
    b = math.sqrt(side.noise)
    parts = []
    for pi, d, c in KINDS:
        whole = side.variance + c * side.noise
        z2 = (x - side.mean - d * b) ** 2 / whole
        parts.append(math.log(pi) - 0.5 * math.log(2.0 * math.pi * whole) - 0.5 * z2)
    found: Floats = np.logaddexp(*parts)
    return found


def rate_side(sides: Sequence[Side], own: int, ceiling: float) -> tuple[float, float, float]:
    """The mean of a side's performance, and the mean and variance of its skill, after a round."""
    side = sides[own]
    widest = max(math.sqrt(each.variance + each.noise) for each in sides)
    narrowest = min(math.sqrt(each.variance + 0.6 * each.noise) for each in sides)
    x = np.arange(
        min(each.mean for each in sides) - REACH * widest,
        max(each.mean for each in sides) + REACH * widest,
        STEP * narrowest / math.sqrt(len(sides)),
    )
    said = np.zeros(len(x))
    for i, other in enumerate(sides):
        if i == own:
            continue
        if other.place == side.place:
            said += log_density(x, other)
        else:
            said += log_below(x, other, 1.0 if other.place > side.place else -1.0)
    weights, means, skills, variances = [], [], [], []
    for pi, d, c in KINDS:
        centre, whole = side.mean + d * math.sqrt(side.noise), side.variance + c * side.noise
        height = said + math.log(pi) - 0.5 * math.log(whole) - 0.5 * (x - centre) ** 2 / whole
        weights.append(float(logsumexp(height)))
        density = np.exp(height - weights[-1])
        mean = float(density @ x)
        spread = float(density @ (x - mean) ** 2)
        k = side.variance / whole
        means.append(min(mean, ceiling))
        skills.append(side.mean + k * (means[-1] - centre))
        variances.append(side.variance * (1.0 - k) + k * k * spread)
    part = np.exp(np.array(weights) - logsumexp(weights))
    skill = float(part @ skills)
    variance = float(part @ (np.array(variances) + (np.array(skills) - skill) ** 2))
    return float(part @ means), skill, variance


def rate_round(
    config: TwoMoment, sides: Sequence[Side], weight: float, ceiling: float, time: int
) -> list[list[float]]:
    """Rate a round, in place. Returns each side's performances, one for each member."""
    scales = scales_of(sides)
    begins = newcomers_means(config, sides)
    for side, begin, scale in zip(sides, begins, scales, strict=True):
        side.mean = side.variance = side.noise = side.points = 0.0
        members = list(zip(side.players, side.shares, strict=True))
        new = sum(share for player, share in members if player.rounds == 0)
        for player, share in members:
            variance = player.sigma**2
            lead, offset = player.mu - config.initial_mu, 0.0
            if player.rounds == 0:
                player.mu, offset = begin, config.newcomer_offset / max(1.0, new)
                lead = begin - config.initial_mu - offset
            else:
                days = max(time - player.time, 0) / SECONDS_PER_DAY
                drift = (config.sigma_drift / len(side.players)) ** 2 + config.drift_per_day * days
                variance = min(variance + drift, max(variance, config.initial_sigma**2))
            points = points_of(config, player)
            player.sigma = math.sqrt(variance)
            side.variance += (scale * share) ** 2 * variance
            size = len(side.players) if len(side.players) > 2 else 1
            side.noise += (scale * share * config.beta * size**config.team_noise) ** 2 / weight
            side.mean += share * (scale * (lead + points) + offset)
            side.points += scale * share * points
    above = [(ceiling - config.initial_mu) * scale for scale in scales]
    found = [rate_side(sides, i, above[i]) for i in range(len(sides))]
    shown = []
    for side, (performance, mean, variance), scale, most in zip(
        sides, found, scales, above, strict=True
    ):
        members = list(zip(side.players, side.shares, strict=True))
        new = sum(share for player, share in members if player.rounds == 0)
        once = config.newcomer_offset * new / max(1.0, new)  # it was not scaled
        back = once + (min(performance - side.points, most) - once) / scale
        shown.append([config.initial_mu + back] * len(side.players))
        for player, share in members:
            part = scale * share * player.sigma**2 / side.variance
            player.mu += part * (mean - side.mean)
            player.sigma = math.sqrt(player.sigma**2 - part**2 * (side.variance - variance))
            player.time = time if player.rounds == 0 else max(player.time, time)
            player.rounds += 1
    return shown
