"""Performances are fair: Theorem 5.2 and Lemma 5.3 of the paper, in rounds small and large."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stream_rater.columns.arrays import Floats
from stream_rater.rating import stages
from stream_rater.rating.elo_mmr.small_rounds import SMALL
from stream_rater.rating.model import PERFORMANCE
from stream_rater.rating.parameters import EloMMR, EloMMX
from tests.rounds import ranked, read, wave_among
from tests.strategies import configs, gaussian_configs

POINTS = 1e-5
"""How far two performances that are equal may come out apart: a table's error is about 1e-5 in
rounds this wide, and after an upset the balance is nearly flat about its zero, so that the sums'
last bits blur where it is."""

Config = EloMMR | EloMMX
any_config = st.one_of(configs(), gaussian_configs())


@dataclass(frozen=True)
class Field:
    """A round of players with these ratings; place 0 did not finish."""

    places: list[int]
    mu: Floats
    sigma: Floats

    def performances(self, config: Config) -> Floats:
        """Each player's performance, in the order of `places`."""
        names = [f"{i:04}" for i in range(len(self.places))]
        standings = read(config, *ranked(self.places, names))
        order = np.array(standings.players, np.int64)
        wave = wave_among([standings], self.mu[order], self.sigma[order])
        found = np.empty(len(order))
        found[order] = stages.estimate(config, wave)[:, PERFORMANCE]
        return found

    def with_place(self, i: int, place: int) -> "Field":
        """The same, the others' order unchanged, but i came in at this place."""
        return Field([*self.places[:i], place, *self.places[i + 1 :]], self.mu, self.sigma)


@st.composite
def fields(draw: st.DrawFn, most: int = 8) -> Field:
    """Small rounds drawn number by number, large ones (`most` over 40: another code) by seed."""
    size = draw(st.integers(2, most) if most <= SMALL else st.integers(SMALL + 1, most))
    if most <= SMALL:
        places = draw(st.lists(st.integers(0, 5), min_size=size, max_size=size))
        mu = draw(st.lists(st.floats(-1000.0, 4000.0), min_size=size, max_size=size))
        sigma = draw(st.lists(st.floats(30.0, 400.0), min_size=size, max_size=size))
    else:
        random = np.random.default_rng(draw(st.integers(0, 2**32)))
        places = random.integers(0, draw(st.sampled_from((3, size, 10 * size))), size).tolist()
        mu = random.normal(1500.0, draw(st.sampled_from((1.0, 300.0, 2000.0))), size).tolist()
        sigma = random.uniform(30.0, 400.0, size).tolist()
    return Field([places[0] or 1, *places[1:]], np.array(mu), np.array(sigma))


any_field = st.one_of(fields(), fields(SMALL + 60))


@given(any_config, any_field)
@settings(max_examples=300)
def test_performance_falls_strictly_with_rank(config: Config, field: Field) -> None:
    """Who beats another performed better, who ties performed alike, the unfinished are below all
    (Theorem 5.2)."""
    by_place: dict[int, list[float]] = {}
    for place, p in zip(field.places, field.performances(config).tolist(), strict=True):
        by_place.setdefault(place, []).append(p)
    unfinished = by_place.pop(0, [])
    groups = [by_place[place] for place in sorted(by_place)]
    # Elo-MMx credits each player as a team of one, with roundings of its own.
    assert max(np.ptp(group) for group in groups) <= 1e-11
    falling = [group[0] for group in groups] + ([max(unfinished)] if unfinished else [])
    assert (np.diff(falling) < 0.0).all()


@given(any_config, any_field, st.data())
@settings(max_examples=300)
def test_finishing_better_is_performing_better(
    config: Config, field: Field, data: st.DataObject
) -> None:
    """With the others' order as it was, p_i rises with i's rank (Lemma 5.3), dnf being the last."""
    i = data.draw(st.integers(0, len(field.places) - 1))
    place = st.integers(0, max(field.places) + 1)
    order = sorted(data.draw(st.tuples(place, place)), key=lambda p: p or 2**30, reverse=True)
    if not any(field.with_place(i, 0).places):
        order = [max(1, p) for p in order]  # someone has to finish
    worse, better = (field.with_place(i, p).performances(config)[i] for p in order)
    assert worse <= better + POINTS


@given(configs(), any_field, st.data(), st.floats(0.0, 3000.0))
@settings(max_examples=300)
def test_a_better_rating_before_is_a_better_performance(
    config: EloMMR, field: Field, data: st.DataObject, more: float
) -> None:
    """p_i rises with i's prior rating, through the tie with oneself (Lemma 5.3), by no more."""
    i = data.draw(st.integers(0, len(field.places) - 1))
    mu = field.mu.copy()
    mu[i] += more
    # A whole tie with all others of a group is drawn to their mean; alone, by less than `more`.
    p, raised = (
        Field(field.places, each, field.sigma).performances(config)[i] for each in (field.mu, mu)
    )
    assert p <= raised + POINTS
    assert raised <= p + more + POINTS


@pytest.mark.parametrize("config", [
    EloMMR(weight_limit=0.2, sigma_limit=80.0), EloMMX(weight_limit=0.2, sigma_limit=80.0),
])  # fmt: skip
@pytest.mark.parametrize("size", [5, SMALL + 10])
def test_a_place_gained_counts(config: Config, size: int) -> None:
    """Strictly: passing one more opponent, or drawing level, is worth more than a point here."""
    level = np.full(size, 1500.0)
    field = Field([2 * i + 1 for i in range(size)], level, level / 15.0)
    found = [field.with_place(0, p).performances(config)[0] for p in range(2 * size, 1, -1)]
    assert (np.diff(found) > 1.0).all()


@given(any_config, any_field, st.randoms(use_true_random=False))
@settings(max_examples=200)
def test_the_order_of_the_list_does_not_matter(config: Config, field: Field, random: Any) -> None:
    """A shuffled list gives the same performances, but for sums in another order."""
    order = list(range(len(field.places)))
    random.shuffle(order)
    shuffled = Field([field.places[i] for i in order], field.mu[order], field.sigma[order])
    expected, actual = field.performances(config)[order], shuffled.performances(config)
    assert expected == pytest.approx(actual, rel=0, abs=POINTS)
