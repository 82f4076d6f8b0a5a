"""A directed search for what a player could gain by finishing worse: hill climbing over plans.

A plan has three rounds of one player, each with mates and with sides of any size that nobody met
before, with shares, weights and ties. In one of them the player's side finishes worse than it
could. Theorem 5.5 of the paper says that this never raises the rating, at any time after.
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from stream_rater.columns.arrays import Floats, Ints
from stream_rater.rating import stages
from stream_rater.rating.model import Beliefs, Wave, newcomers
from stream_rater.rating.parameters import EloMMR, EloMMX, RatingConfig, TwoMoment
from tests.builders.cases import cases

ROUNDS, SIDES, MEMBERS = 3, 4, 6
MU, SIGMA, SHARE = range(3)
COUNTS = 0.01  # Points: plans that cost less in their round do not climb.
ROUNDING = 1e-9


@dataclass(frozen=True)
class Plans:
    """C plans. The player is the first member of the first side of each round."""

    start: Floats  # (C, 2) the player's mu and sigma before.
    sizes: Ints  # (C, ROUNDS, SIDES) the members of each side; 0: there is no such side.
    members: Floats  # (C, ROUNDS, SIDES, MEMBERS, 3) their mu, sigma and share.
    places: Ints  # (C, ROUNDS, SIDES)
    worse: Ints  # (C,) how many places the player's side loses on purpose, at least 1.
    at: Ints  # (C,) in which round.
    weight: Floats  # (C, ROUNDS)

    def __len__(self) -> int:
        return len(self.at)


def drawn(random: np.random.Generator, count: int) -> Plans:
    """Random plans."""
    members = np.empty((count, ROUNDS, SIDES, MEMBERS, 3))
    members[..., MU] = random.normal(1500.0, 500.0, members.shape[:-1])
    members[..., SIGMA] = random.uniform(40.0, 350.0, members.shape[:-1])
    part = random.uniform(0.05, 1.0, members.shape[:-1])
    members[..., SHARE] = np.where(random.random(part.shape) < 0.6, 1.0, part)
    sizes = random.integers(1, MEMBERS + 1, (count, ROUNDS, SIDES))
    sizes[..., 2:] *= random.integers(0, 2, (count, ROUNDS, SIDES - 2))
    start = np.column_stack(
        (random.normal(1500.0, 500.0, count), random.uniform(60.0, 350.0, count))
    )
    return Plans(
        start, sizes, members, random.integers(1, 6, sizes.shape), random.integers(1, 6, count),
        random.integers(0, ROUNDS, count), 2.0 ** random.uniform(-2.0, 2.0, (count, ROUNDS)),
    )  # fmt: skip


def mutated(plans: Plans, random: np.random.Generator) -> Plans:
    """Each plan with some numbers moved a little or drawn again."""
    other, changed = drawn(random, len(plans)), dict[str, Any]()
    for name in vars(plans):
        now, new = getattr(plans, name), getattr(other, name)
        if now.dtype == np.float64:
            new = np.where(random.random(now.shape) < 0.5, new, now + 0.1 * (new - now))
        changed[name] = np.where(random.random(now.shape) < 0.1, new, now)
    return Plans(**changed)


def wave_of(plans: Plans, number: int, places: Ints, me: Beliefs) -> tuple[Wave, Ints]:
    """The rounds of this number, and (C,) the index of the player among the wave's players."""
    sizes, members = plans.sizes[:, number], plans.members[:, number].copy()
    members[:, 0, 0, MU], members[:, 0, 0, SIGMA] = me.header["mu"], me.header["sigma"]
    order = np.argsort(np.where(sizes > 0, places, 10**6), axis=1, kind="stable")
    first = np.arange(len(plans))[:, None]
    sizes, members, places = sizes[first, order], members[first, order], places[first, order]
    plays = np.arange(MEMBERS) < sizes[:, :, None]
    mine = (order == 0)[:, :, None] & (np.arange(MEMBERS) == 0)
    played = members[plays]
    sides = (sizes > 0).sum(axis=1)
    zeros = np.zeros(len(played), np.int64)
    wave = Wave(
        np.append(0, np.cumsum(sides)), plans.weight[:, number], np.full(sides.sum(), math.inf),
        np.zeros(len(plans), np.int64), places[sizes > 0].astype(np.int32),
        np.append(0, np.cumsum(sizes[sizes > 0])), played[:, SHARE].copy(), played[:, MU].copy(),
        played[:, SIGMA].copy(), zeros + 9, zeros,
    )  # fmt: skip
    return wave, np.flatnonzero(mine[plays])


def lost(config: RatingConfig, plans: Plans, *, same_sigma: bool) -> Floats:
    """(C, ROUNDS) the player's mu after each round if nothing is thrown, less that of the plan.
    `same_sigma`: the plan leaves sigma as it would have been."""
    rule, rows, life = [stages.rule_of(config)], np.arange(len(plans)), list[Beliefs]()
    for _ in ("honest", "thrown"):
        me = newcomers(len(plans), ROUNDS + 1, config.initial_mu, config.initial_sigma)
        me.header["mu"] = me.header["center"] = plans.start[:, 0]
        me.header["sigma"], me.header["precision"] = plans.start[:, 1], plans.start[:, 1] ** -2.0
        me.header["rounds"] = 9
        life.append(me)
    found = np.empty((len(plans), ROUNDS))
    for number in range(ROUNDS):
        for way, me in enumerate(life):
            places = 2 * plans.places[:, number]
            places[:, 0] += np.where(way & (plans.at == number), plans.worse, 0)
            wave, mine = wave_of(plans, number, places, me)
            stages.update(me, rows, stages.estimate(config, wave)[mine], rule, 0 * rows)
        if same_sigma:
            life[1].header["sigma"] = life[0].header["sigma"]
        found[:, number] = life[0].header["mu"] - life[1].header["mu"]
    return found


def best_gain(
    config: RatingConfig, seed: int, steps: int, count: int = 250, *, same_sigma: bool = True
) -> float:
    """The most that a plan gained at the end, in `steps` steps of hill climbing of `count` plans.
    They climb by the gain as a part of what the round itself costs."""
    random, most = np.random.default_rng(seed), -math.inf

    def gains(plans: Plans) -> Floats:
        nonlocal most
        by = lost(config, plans, same_sigma=same_sigma)
        most = max(most, float(-by[:, -1].min()))
        cost = by[np.arange(len(plans)), plans.at]
        return np.where(cost > COUNTS, -by[:, -1] / np.maximum(cost, COUNTS), -math.inf)

    plans = drawn(random, count)
    now = gains(plans)
    for _ in range(steps):
        tried = mutated(plans, random)
        found = gains(tried)
        better = found > now
        plans = Plans(*(
            np.where(better.reshape((-1,) + (1,) * (a.ndim - 1)), b, a)
            for a, b in zip(vars(plans).values(), vars(tried).values(), strict=True)
        ))  # fmt: skip
        now = np.where(better, found, now)
    return most


@cases("config", [
    *(EloMMR(weight_limit=0.2, sigma_limit=80.0, rho=rho, history="full")
      for rho in (0.05, 0.3, 1.0)),
    EloMMX(weight_limit=0.2, sigma_limit=80.0), TwoMoment(),
])  # fmt: skip
def test_finishing_worse_gains_nothing(config: RatingConfig) -> None:
    """Nor does it by the two-moment filter, as far as mu decides."""
    assert best_gain(config, seed=1, steps=60) <= ROUNDING


def test_the_search_finds_a_gain() -> None:
    """In wide plans a defeat that surprises leaves the two-moment filter's sigma higher."""
    assert best_gain(TwoMoment(), seed=1, steps=60, same_sigma=False) > 100.0
