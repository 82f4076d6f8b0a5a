"""Glicko-2 as a system: its paper's example, and what the plain textbook version says."""

import math
from typing import Any

import numpy as np
import pytest

from stream_rater.rating import record
from stream_rater.rating.kernels import glicko2
from stream_rater.rating.model import Wave, newcomers
from stream_rater.rating.parameters import Glicko2
from stream_rater.replay.pool import Pool
from tests.benchmarks.lab import plain
from tests.rounds import day, ranked, read

SCALE = 400.0 / math.log(10.0)
FULL: Any = {"history": "full"}


def test_the_authors_example() -> None:
    """Three games of one period give 1464.06 (151.52), volatility 0.05999 (Glickman 2013)."""
    precision = surprise = 0.0
    for mu, sigma, score in ((1400.0, 30.0, 1.0), (1550.0, 100.0, 0.0), (1700.0, 300.0, 0.0)):
        g = 1.0 / math.sqrt(1.0 + 3.0 * (sigma / SCALE) ** 2 / math.pi**2)
        chance = 1.0 / (1.0 + math.exp(-g * (1500.0 - mu) / SCALE))
        precision += g * g * chance * (1.0 - chance) / SCALE**2
        surprise += g * (score - chance) / SCALE
    beliefs = newcomers(1, 0, 1500.0, 200.0)
    evidence = np.array([[1500.0 + surprise / precision, 1.0 / precision, (0.06 * SCALE) ** 2]])
    one = np.zeros(1, np.int64)
    glicko2.update(beliefs.header, one, evidence, np.array([0.5]), one)
    assert beliefs.header["mu"][0] == pytest.approx(1464.06, abs=0.01)
    assert beliefs.header["sigma"][0] == pytest.approx(151.52, abs=0.01)
    assert 0.06 * beliefs.header["volatility"][0] == pytest.approx(0.05999, abs=1e-5)
    assert beliefs.header["previous_mu"][0] == 1500.0


def played(config: Glicko2, rounds: list[list[int]], names: list[str]) -> dict[str, Any]:
    """The headers after rounds of these places, a day apart."""
    pool = Pool(config)
    for i, places in enumerate(rounds):
        pool.rate(read(config, *ranked(places, names), completed_at=day(i), round_id=str(i)), i)
    return dict(pool)


def test_it_is_the_textbooks() -> None:
    """Rounds of any size, also those whose sums are tabulated, with draws and surprises."""
    for count in (2, 5, 31, 32, 33, 90):
        random = np.random.default_rng(count)
        rounds = [random.integers(1, 1 + count, count).tolist() for _ in range(12)]
        names = [f"p{i}" for i in range(count)]
        found = played(Glicko2(tau=0.8, volatility=0.15, **FULL), rounds, names)
        book = plain.Glicko2(tau=0.8, initial_volatility=0.15, initial_deviation=350.0)
        ratings = [book.newcomer()] * count
        for places in rounds:
            ratings = [each for (each,) in book.rate([[r] for r in ratings], places, 0.0)]
        exact = 1e-6 if count <= 32 else 1e-3
        for name, rating in zip(names, ratings, strict=True):
            own = found[name]
            assert own["mu"] == pytest.approx(rating.mu, abs=exact * 350.0), (count, name)
            assert own["sigma"] == pytest.approx(rating.deviation, rel=exact), (count, name)
            volatility = 0.15 * own["volatility"]
            assert volatility == pytest.approx(rating.volatility, rel=exact), (count, name)


def test_the_volatility_is_in_the_record() -> None:
    """It takes four bytes behind the header, so a ladder continues from its records."""
    config = Glicko2()
    pool = Pool(config)
    pool.rate(read(config, *ranked([1, 2], ["ann", "bob"]), completed_at=day(0)), 0)
    data = pool.belief_bytes("ann")
    assert len(data) == record.HEADER_SIZE + record.VOLATILITY_SIZE and data[41] & record.VOLATILE
    (again,) = record.decode([data], 0, 1500.0, 350.0).header
    before = dict(pool)["ann"]
    assert again["volatility"] == before["volatility"] > 0.0 and again["mu"] == before["mu"]
    assert np.float32(again["volatility"]) == again["volatility"]
    assert record.encode(record.decode([data], 0, 1500.0, 350.0)) == [data]
    with pytest.raises(record.UnknownRecord, match="46 bytes for 0 factors"):
        record.decode([data[:41] + b"\x00" + data[42:]], 0, 1500.0, 350.0)
    with pytest.raises(record.UnknownRecord, match="42 bytes for 0 factors"):
        record.decode([data[:-4]], 0, 1500.0, 350.0)
    assert len(record.encode(newcomers(1, 0, 1500.0, 350.0, coded=True))[0]) == record.HEADER_SIZE


def test_surprises_raise_the_volatility() -> None:
    """Sigma rises with it. It stays between a tenth and ten times the initial volatility."""
    names, rounds = ["ann", "bob"], [[1, 2]] * 30
    calm = played(Glicko2(), rounds, names)["ann"]
    assert calm["volatility"] < played(Glicko2(), [*rounds, [2, 1]], names)["ann"]["volatility"]
    beliefs, two = newcomers(2, 0, 1500.0, 50.0), np.arange(2)
    for _ in range(40):
        beliefs.header["mu"], beliefs.header["sigma"] = 1500.0, 50.0
        evidence = np.array([[9000.0, 50.0**2, 100.0], [1500.0, 50.0**2, 100.0**2]])
        glicko2.update(beliefs.header, two, evidence, np.full(2, 3.0), np.zeros(2, np.int64))
    assert beliefs.header["volatility"].tolist() == pytest.approx([10.0, 0.1])


def test_days_raise_sigma_up_to_the_initial_one() -> None:
    """`drift_per_day` adds to what a round adds, also before it: but a newcomer has no days."""
    names = ["ann", "bob"]

    def after(days: int, drift: float) -> float:
        config = Glicko2(drift_per_day=drift, volatility=0.0, tau=1e-3, **FULL)
        pool = Pool(config)
        for i, when in enumerate((0, days)):
            pool.rate(read(config, *ranked([1, 1], names), completed_at=day(when)), i)
        return float(dict(pool)["ann"]["sigma"])

    still = after(9, 0.0)
    g2 = 1.0 / (1.0 + 3.0 * (after_one() / SCALE) ** 2 / math.pi**2)
    prior = after_one() ** 2 + 9 * 100.0
    assert after(9, 100.0) == pytest.approx((1.0 / prior + 0.25 * g2 / SCALE**2) ** -0.5)
    assert after(0, 100.0) == still < after(9, 100.0)
    assert after(20_000, 1e6) == pytest.approx((350.0**-2 + 0.25 * g2 / SCALE**2) ** -0.5)


def after_one() -> float:
    """Sigma after a draw of two newcomers."""
    config = Glicko2(volatility=0.0, tau=1e-3, **FULL)
    return float(played(config, [[1, 1]], ["ann", "bob"])["ann"]["sigma"])


def test_a_ceiling_caps_the_performance() -> None:
    """And so the gain."""
    config = Glicko2()
    gains = []
    for ceiling in (None, 1600.0):
        pool = Pool(config)
        whole = read(config, *ranked([1, 2], ["ann", "bob"]), performance_ceiling=ceiling)
        _, evidence = pool.rate(whole, 0) or (None, np.zeros((2, 3)))
        gains.append((float(evidence[0, 0]), float(dict(pool)["ann"]["mu"])))
    (free, high), (capped, low) = gains
    assert free > 1600.0 and capped == pytest.approx(1600.0) and 1500.0 < low < high


def test_a_team_gains_as_its_members_together() -> None:
    """Without volatility, it gains as in a linear Gaussian model, by the sum of variances."""
    config = Glicko2(volatility=0.0, tau=1e-3, **FULL)
    wave = Wave(
        np.array([0, 2]), np.ones(1), np.full(2, math.inf), np.zeros(1, np.int64),
        np.array([1, 2], np.int32), np.array([0, 2, 4]), np.ones(4),
        np.array([1500.0, 1600.0, 1550.0, 1500.0]), np.array([60.0, 80.0, 90.0, 70.0]),
        np.ones(4, np.int64), np.zeros(4, np.int64),
    )  # fmt: skip
    evidence = config.estimate(wave)
    beliefs, rows = newcomers(4, 0, 1500.0, 350.0), np.arange(4)
    beliefs.header["mu"], beliefs.header["sigma"] = wave.mu, wave.sigma
    glicko2.update(beliefs.header, rows, evidence, np.full(4, 1e-3), np.zeros(4, np.int64))
    gain = beliefs.header["mu"] - wave.mu
    together = plain.Glicko2(initial_volatility=1e-9).rate(
        [[plain.Glicko2Rating(1600.0, 100.0, 1e-9, 0.0)],
         [plain.Glicko2Rating(1550.0, math.hypot(90.0, 70.0), 1e-9, 0.0)]], [1, 2], 0.0
    )  # fmt: skip
    assert gain[0] + gain[1] == pytest.approx(together[0][0].mu - 1600.0, rel=1e-6)
    assert gain[1] / gain[0] == pytest.approx((80.0 / 60.0) ** 2)
    assert gain[2] + gain[3] == pytest.approx(together[1][0].mu - 1550.0, rel=1e-6)
