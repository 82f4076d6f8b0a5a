"""Stage 1: what a round says of each player, by hand and by its symmetries."""

import itertools
import math
from functools import partial
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stream_rater.columns.arrays import Floats
from stream_rater.rating import stages
from stream_rater.rating.elo_mmr import performance
from stream_rater.rating.elo_mmr.oracle import zero
from stream_rater.rating.elo_mmr.performance import LEAST_WEIGHT, performances
from stream_rater.rating.model import Beliefs, Evidence, newcomers
from stream_rater.rating.parameters import EloMMR
from stream_rater.rounds.batch import wave_of
from tests.benchmarks.stage1 import LOGISTIC, wave_of_size
from tests.rounds import ranked, read

C = math.pi / math.sqrt(3.0)
CONFIG = EloMMR(weight_limit=0.25, sigma_limit=80.0, rho=1.0)
BETA2, GAMMA2 = (1.0 + 1.0 / 0.25) * 6400.0, 0.25 * 6400.0
SOLVED = 1e-9
"""Points: Halley's last step is below 1e-7 of the scale (~100) and cubes the error; rounding of the
sums leaves about 1e-12."""


def solve(places: list[int], mu: list[float], delta: list[float], tie: float = 1.0) -> Floats:
    found: Floats = performances(
        np.array(places, np.int32), np.array(mu), C / np.array(delta), tie
    )  # fmt: skip
    return found


def veterans(mu: list[float], sigma: list[float]) -> Beliefs:
    beliefs = newcomers(len(mu), 4, 1500.0, 350.0)
    beliefs.header["mu"], beliefs.header["sigma"] = mu, sigma
    beliefs.header["rounds"] = 9
    return beliefs


def evidence(beliefs: Beliefs, *standings: Any, config: EloMMR = CONFIG, **fields: Any) -> Evidence:
    """Of one round whose players are the beliefs, in order of place."""
    return stages.estimate(
        config, wave_of([read(config, *standings, **fields)], beliefs.header)
    )  # fmt: skip


def test_a_duel_by_hand() -> None:
    """Equal players: the winner's tie and win make s = 2 t, so p = mu + ln 2 / u; else mirrored.
    With a tie as half a win and half a loss, s / 2 = t / 2 + t, so p = mu + ln 3 / u. In an upset
    over any gap f is flat: the winner's s - t = t_2 means s_2 = 2 t_1, ln 2 / 2u above the
    middle."""
    u = C / 200.0
    for tie, ratio in ((1.0, 2.0), (0.5, 3.0)):
        expected = [1500.0 + math.log(ratio) / u, 1500.0 - math.log(ratio) / u]
        found = solve([1, 2], [1500.0] * 2, [200.0] * 2, tie)
        assert expected == pytest.approx(found, abs=SOLVED), tie
    u = C / 100.0
    for gap in (60.0, 75.0, 100.0, 700.0, 1400.0):
        middle = 1500.0 + gap / u / 2.0
        expected = [middle + math.log(2.0) / u / 2.0, middle - math.log(2.0) / u / 2.0]
        found = solve([1, 2], [1500.0, 1500.0 + gap / u], [100.0] * 2)
        assert expected == pytest.approx(found, abs=1e-7), gap  # bisected to 1e-10 of 1/u, rounded


@given(
    st.lists(st.tuples(st.floats(500, 2500), st.floats(100, 400)), min_size=2, max_size=12),
    st.data(),
)
def test_a_mirrored_round_has_mirrored_performances(field: list[Any], data: Any) -> None:
    """Ranks and ratings turned round turn the performances round: there is no drift up or down."""
    places = sorted(
        data.draw(st.lists(st.integers(1, 6), min_size=len(field), max_size=len(field)))
    )
    mu, delta = [m for m, _ in field], [d for _, d in field]
    mirrored = solve([7 - p for p in reversed(places)], [-m for m in mu[::-1]], delta[::-1])
    # An upset over a wide gap leaves f flat at its root, known to 1e-6 of the scale there.
    assert (-mirrored[::-1]).tolist() == pytest.approx(solve(places, mu, delta), abs=1e-4)


def test_upsets_keep_the_order() -> None:
    """Three beat three who are far above: finite, in order, no higher than the best can be. A
    winner's performance is at most max mu + ln(sum u / u_i) / min u (mathematics.md)."""
    u = C / 100.0
    orders = [1, 2, 3, 4, 5, 6], [1, 1, 2, 3, 3, 4], [1, 2, 3, 4, 0, 0]
    for gap, places, tie in itertools.product((60.0, 1400.0, 1e6), orders, (1.0, 0.5)):
        delta = [100.0, 130.0, 90.0] * 2
        found = solve(places, [1500.0] * 3 + [1500.0 + gap / u] * 3, delta, tie)
        by_place = dict(zip(places, found.tolist(), strict=True))
        falling = [by_place[place] for place in sorted(by_place) if place]
        case = gap, places, tie
        # At 1400 widths two performances differ by less than a float can express.
        assert falling == sorted(falling, reverse=True), case
        assert gap > 60.0 or len(set(falling)) == len(falling), case
        assert 0.0 < found.min() <= found.max() < 3000.0 + gap / u, case
    mu, widths = np.linspace(1000.0, 2000.0, 50), np.full(50, 200.0)
    found = solve(list(range(1, 51)), mu.tolist(), widths.tolist())
    assert found[0] <= 2000.0 + math.log(50.0 + 1.0) * 200.0 / C


def test_a_round_does_not_depend_on_those_beside_it() -> None:
    """Any number of rounds side by side, some of other sizes or with ties, give each one's bits
    alone."""
    for size, tie in itertools.product((1, 2, 3, 5, 14), (1.0, 0.5)):
        random = np.random.default_rng(size)
        sizes = [size, *random.choice([size, size, 4], 70).tolist()]
        starts = np.concatenate([[0], np.cumsum(sizes)])
        mu, u = random.normal(1500.0, 400.0, starts[-1]), C / random.uniform(50, 400, starts[-1])
        places = [np.sort(random.choice(np.arange(n) + 1, n, replace=n % 2 == i % 2))
                  for i, n in enumerate(sizes)]  # fmt: skip
        place = np.concatenate(places).astype(np.int32)
        together = performance.solve_rounds(starts, place, mu, u, tie)
        for a, b in itertools.pairwise(starts.tolist()):
            alone = performance.performances(place[a:b], mu[a:b], u[a:b], tie)
            assert alone.tobytes() == together[a:b].tobytes(), (size, tie)


def test_a_wave_is_no_more_than_its_rounds() -> None:
    """More entries than are rated together, of rounds that differ: each has its bits alone."""
    size, rounds = 300, 30
    wave = wave_of_size(size, rounds, seed=1)._replace(
        weight=np.linspace(0.5, 2.0, rounds), ceiling=np.linspace(1500.0, 2500.0, rounds)
    )
    assert size * rounds > performance.TOGETHER > size
    together = stages.estimate(LOGISTIC, wave)
    for r in range(rounds):
        own, its = slice(r * size, (r + 1) * size), slice(r, r + 1)
        alone = wave._replace(
            round_starts=np.array([0, size]), weight=wave.weight[its],
            ceiling=wave.ceiling[its], time=wave.time[its], place=wave.place[own],
            entry_starts=np.arange(size + 1), share=wave.share[own], mu=wave.mu[own],
            sigma=wave.sigma[own], rounds=wave.rounds[own], last_time=wave.last_time[own],
        )  # fmt: skip
        assert stages.estimate(LOGISTIC, alone).tobytes() == together[own].tobytes()


def test_the_ceiling_caps_and_the_lightest_round_is_finite() -> None:
    """performance_ceiling is the most a performance can be. A weight below LEAST_WEIGHT counts as
    that, so that 1/w stays a number."""
    beliefs = veterans([1500.0] * 3, [100.0] * 3)
    free = evidence(beliefs, *ranked([1, 2, 3]))[:, 0]
    capped = evidence(beliefs, *ranked([1, 2, 3]), performance_ceiling=1490.0)[:, 0]
    assert [min(p, 1490.0) for p in free] == capped.tolist()
    assert free[0] > 1490.0 > free[2]
    light = evidence(beliefs, *ranked([1, 2, 3]), weight=1e-320)[:, 1]
    assert light.tolist() == [(1 + 1 / LEAST_WEIGHT) * 6400.0] * 3


def team(place: int, *members: str, shares: list[float] | None = None) -> dict[str, Any]:
    return {"team": members, "rank": place} | ({"shares": shares} if shares else {})


def test_a_team_of_one_is_that_player() -> None:
    """A team of one who played it all is rated like a solo player, who is no team, to the bit."""
    mu, sigma = np.array([1512.3, 1633.9]), np.array([101.0, 77.7])
    beliefs = veterans(mu.tolist(), sigma.tolist())
    far = msgspec.structs.replace(CONFIG, initial_mu=1e6)  # a sum of deviations would lose digits
    solo = evidence(beliefs, {"player": "a", "rank": 1}, {"player": "b", "rank": 2}, config=far)
    teams = evidence(beliefs, team(1, "a", shares=[1.0]), team(2, "b"), config=far)
    assert solo.tobytes() == teams.tobytes()
    u = C / np.sqrt(sigma * sigma + GAMMA2 + BETA2)
    assert performances(np.array([1, 2], np.int32), mu, u, 1.0).tolist() == solo[:, 0].tolist()
    assert solo[:, 1].tolist() == [BETA2, BETA2]


def test_teams_by_hand() -> None:
    """A team of one who played half has half the deviation, and evidence of twice the spread. Where
    two newcomers tie with one, nobody's rating moves: deviations from the initial rating add up, to
    none. Newcomers of one team get the same evidence: credit is by share, not by name."""
    half = evidence(veterans([1700.0] * 2, [100.0] * 2), team(1, "a", shares=[0.5]), team(1, "b"))
    # They tie at the level of those present, from which neither deviates.
    assert pytest.approx(half[:, 0], abs=SOLVED) == [1700.0, 1700.0]
    assert half[:, 1].tolist() == [BETA2, BETA2]
    drawn = evidence(newcomers(3, 1, 1500.0, 350.0), team(1, "a", "b"), team(1, "c"))
    assert pytest.approx(drawn[:, 0], abs=SOLVED) == [1500.0] * 3
    found = evidence(newcomers(4, 1, 1500.0, 350.0), team(1, "a", "b"), team(2, "c", "d"))
    assert found[0].tolist() == found[1].tolist()
    assert found[2].tolist() == found[3].tolist()
    assert found[0, 0] > 1500.0 > found[2, 0]


SHARES = st.sampled_from((None, [1.0, 1.0], [1.0, 0.5], [0.3, 0.9]))


@given(
    st.lists(st.tuples(st.floats(1000, 2000), st.floats(50, 350)), min_size=4, max_size=4), SHARES
)
def test_teams_by_section_3_3(field: list[Any], shares: list[float] | None) -> None:
    """Two against two and by hand: sums of moments, a duel of teams, less the others' ratings."""
    beliefs = veterans([m for m, _ in field], [s for _, s in field])
    share = [shares or [1.0, 1.0], [1.0, 1.0]]
    mu = np.array([m for m, _ in field]).reshape(2, 2)
    prior = np.array([s * s + GAMMA2 for _, s in field]).reshape(2, 2)
    part = np.array(share)

    uneven = abs(part[0].sum() - part[1].sum()) > 1e-9
    level = (part * mu).sum() / part.sum() if uneven else 1500.0
    team_mu = level + (part * (mu - level)).sum(1)
    spread = (part**2 * (prior + BETA2)).sum(1)
    u = C / np.sqrt(spread)

    def minus_q(x: float, won: float) -> float:
        own, other = np.tanh((x - team_mu) * u / 2.0) * u
        # the winner meets itself as a tie (s - t) and the other as a loser (-t); else mirrored
        if won:
            return float(own - (u[1] - other) / 2.0)
        return float(other + (u[0] + own) / 2.0)

    found = [zero(partial(minus_q, won=won), -9000.0, 12000.0) for won in (True, False)]
    expected = []
    for t in range(2):
        for i in range(2):
            others = part[t, 1 - i] * (mu[t, 1 - i] - level)
            p = level + (found[t] - level - others) / part[t, i]
            beta2 = (spread[t] - part[t, i] ** 2 * prior[t, i]) / part[t, i] ** 2
            expected.append((p, beta2))
    actual = evidence(beliefs, team(1, "a", "b", shares=shares), team(2, "c", "d"))
    # 1e-6: the golden tolerance; zero() here sums cancelling terms, and shares of 0.3 triple it
    assert [p for p, _ in expected] == pytest.approx(actual[:, 0], abs=1e-6)
    # relative: the same sum in another order
    assert [b for _, b in expected] == pytest.approx(actual[:, 1], rel=1e-13)
