"""Whatever a valid round and valid parameters are, every system's evidence is a finite number.

Ratings lie up to 60 initial sigmas from the initial one: a seed may give 30, and players may move
on from there. Kerby's systems have no such bound, because their steps have none, so they are given
all that a record can hold.
"""

import math
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.integrate import quad

from stream_rater.rating import stages
from stream_rater.rating.kernels import trueskill
from stream_rater.rating.kernels.climb import MOST_RATING
from stream_rater.rating.model import BEGAN, Wave
from stream_rater.rating.parameters import (
    SYSTEMS,
    Climbing,
    EloMMR,
    EloR,
    RatingConfig,
    Thurstone,
    from_builtins,
)
from stream_rater.rating.stages import NotANumber

NAMES = sorted(SYSTEMS)
POSITIVE = (
    "beta", "delta", "draw_margin", "drift_per_day", "initial_sigma", "learning_rate", "rho",
    "scale", "sigma_drift", "sigma_limit", "weight_limit",
)  # fmt: skip
ANY_SIGN = ("anchor", "initial_mu", "newcomer_offset")
CHOICES = {
    "dnf": ("tied-last", "not-compared"), "ties": ("full", "split"),
    "model": ("logistic", "gaussian"), "pairs": ("sum", "average"),
}  # fmt: skip


def parameters(name: str, rng: np.random.Generator) -> RatingConfig:
    """Valid parameters of a system: each of them its sample's, or drawn over seven decades."""
    table: dict[str, Any] = msgspec.to_builtins(SYSTEMS[name].sample())
    for field in msgspec.structs.fields(SYSTEMS[name]):
        if rng.random() < 0.5 or table.get(field.name, 0) is None:
            continue
        if field.name in POSITIVE:
            table[field.name] = 10.0 ** float(rng.uniform(-2.0, 5.0))
        elif field.name in ANY_SIGN:
            table[field.name] = float(rng.choice([-1.0, 1.0])) * 10.0 ** float(rng.uniform(-2, 5))
        elif field.name in CHOICES:
            table[field.name] = str(rng.choice(CHOICES[field.name]))
    try:
        return from_builtins(table)
    except ValueError:  # some go with some others only
        return SYSTEMS[name].sample()


def a_round(config: RatingConfig, rng: np.random.Generator) -> Wave:
    """A valid round, however uneven: weights from the least number to `max_weight`, ties, entries
    that did not finish, teams with shares of next to nothing."""
    most = 9 if isinstance(config, EloMMR | EloR) else 40  # their tables may take gigabytes
    sides = int(rng.choice([2, 3, 5, 9, most]))
    members = rng.integers(1, 4, sides) if rng.random() < 0.4 else np.ones(sides, np.int64)
    starts = np.concatenate([[0], np.cumsum(members)])
    n = int(starts[-1])
    mu = config.initial_mu + config.initial_sigma * rng.uniform(-60.0, 60.0, n)
    if isinstance(config, Climbing):
        mu = rng.choice([-1.0, 1.0], n) * 10.0 ** rng.uniform(-3.0, rng.choice([4.0, 38.0]), n)
    reported = np.arange(1, sides + 1) if rng.random() < 0.5 else rng.integers(1, 4, sides)
    place = np.sort(reported).astype(np.int32)
    if rng.random() < 0.4:
        place[rng.integers(0, sides) :] = 0
    share = 10.0 ** rng.uniform(-6.0, 0.0, n) if n > sides else np.ones(n)
    exponent = rng.uniform(-300.0, 3.0) if rng.random() < 0.2 else rng.uniform(-3.0, 3.0)
    return Wave(
        np.array([0, sides]), np.full(1, 10.0**exponent), rng.choice([math.inf, 1600.0], 1),
        np.full(1, 10**9), place, starts, share, mu.astype(np.float32).astype(np.float64),
        config.initial_sigma * 10.0 ** rng.uniform(-3.0, 0.0, n), rng.integers(0, 3, n),
        np.zeros(n, np.int64),
    )  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
@given(st.integers(0, 2**32 - 1))
@settings(max_examples=150, deadline=None)
def test_the_evidence_is_finite(name: str, seed: int) -> None:
    rng = np.random.default_rng(seed)
    config = parameters(name, rng)
    wave = a_round(config, rng)
    found = stages.estimate(config, wave)
    assert np.isfinite(found[:, :BEGAN]).all()
    if isinstance(config, Climbing):
        assert (np.abs(found[:, 1]) <= MOST_RATING).all()


@pytest.mark.parametrize("weight", [900.0, 1e300])
def test_thurstone_may_run_away_but_stays_a_number(weight: float) -> None:
    """Upset after upset, with steps far beyond where the climb converges."""
    config = Thurstone.sample()
    mu = np.array([1500.0, 1500.0, 1500.0])
    for _ in range(200):
        order = np.argsort(mu, kind="stable")  # the lowest wins
        wave = Wave(
            np.array([0, 3]), np.full(1, weight), np.full(1, math.inf), np.zeros(1, np.int64),
            np.arange(1, 4, dtype=np.int32), np.arange(4), np.ones(3), mu[order], np.full(3, 350.0),
            np.full(3, 5), np.zeros(3, np.int64),
        )  # fmt: skip
        found = stages.estimate(config, wave)
        assert np.isfinite(found).all()
        mu[order] = found[:, 1].astype(np.float32)
    assert mu.min() == -MOST_RATING and mu.max() == MOST_RATING
    assert np.float32(MOST_RATING) == np.finfo(np.float32).max


@pytest.mark.parametrize("name", ["elo-mmr", "elo-r"])
def test_large_rounds_too_wide_for_a_table(name: str) -> None:
    """Forty players in two groups, a thousand million spreads apart."""
    config, n = SYSTEMS[name].sample(), 40
    mu = 1500.0 + np.where(np.arange(n) % 2, 1e12, -1e12)
    wave = Wave(
        np.array([0, n]), np.ones(1), np.full(1, math.inf), np.zeros(1, np.int64),
        np.arange(1, n + 1, dtype=np.int32), np.arange(n + 1), np.ones(n), mu, np.full(n, 350.0),
        np.full(n, 5), np.zeros(n, np.int64),
    )  # fmt: skip
    found = stages.estimate(config, wave)[:, 0]
    assert np.isfinite(found).all() and (np.diff(found) < 0.0).all()
    assert (np.abs(found[[0, -1]] - [1e12, -1e12]) < 1e5).all()


def test_steps_converge_where_the_docstring_says() -> None:
    """rate * weight / scale: below 2 the same result again and again comes to rest at the ratings
    that make it the most likely, and beyond 2 the gap grows."""

    def gap_after(ratio: float) -> float:
        config = Thurstone(learning_rate=ratio * 174.0, scale=174.0, initial_mu=0.0)
        mu = np.array([-100.0, 100.0]) * 174.0
        for turn in range(40):
            order = np.array([0, 1]) if turn % 2 else np.array([1, 0])
            wave = Wave(
                np.array([0, 2]), np.ones(1), np.full(1, math.inf), np.zeros(1, np.int64),
                np.arange(1, 3, dtype=np.int32), np.arange(3), np.ones(2), mu[order],
                np.full(2, 350.0), np.full(2, 5), np.zeros(2, np.int64),
            )  # fmt: skip
            mu[order] = stages.estimate(config, wave)[:, 1]
        return float(abs(mu[0] - mu[1])) / 174.0

    assert gap_after(1.9) < 10.0
    assert gap_after(2.5) > 1e4


@pytest.mark.parametrize("k", [0.0, 1e-9, 0.05, 0.0999, 0.1001, 1.0, 30.0, 1e9])
def test_the_moments_of_a_narrow_interval(k: float) -> None:
    """Of e^(-k t) on [-1, 1], by quadrature from its steep end."""
    total, first, second = (
        quad(lambda s, n=n: s**n * math.exp(-k * s), 0.0, min(2.0, 60.0 / max(k, 1e-9)))[0]
        for n in range(3)
    )
    mean, variance = trueskill._narrowly(k)
    assert mean == pytest.approx(first / total - 1.0, abs=1e-7)
    assert variance == pytest.approx(second / total - (first / total) ** 2, rel=1e-4)


def test_no_evidence_leaves_that_is_no_number(monkeypatch: pytest.MonkeyPatch) -> None:
    """A system that gives none raises: what is no number must not replace a belief."""
    config, wave = SYSTEMS["glicko"].sample(), a_round(Thurstone.sample(), np.random.default_rng(1))
    for wrong in (math.nan, math.inf):
        given_: Any = np.full((len(wave.mu), 3), wrong)
        monkeypatch.setattr(SYSTEMS["glicko"], "estimate", lambda *_, found=given_: found)
        with pytest.raises(NotANumber):
            stages.estimate(config, wave)
