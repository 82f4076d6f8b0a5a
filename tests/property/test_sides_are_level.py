"""Sides of any size: level where the documents say so, and the same from either end.

All systems that predict, with teams of 1 to 6, newcomers among veterans, members who played a part
of the round, and members who hardly played.
"""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stream_rater.columns.arrays import Floats
from stream_rater.config.ladders import Ladder
from stream_rater.rating import stages
from stream_rater.rating.model import Wave
from stream_rater.rating.parameters import (
    Bar,
    Glicko,
    Glicko2,
    PlacingNewcomers,
    RatingConfig,
    Topcoder,
    TrueSkill,
    TwoMoment,
)
from stream_rater.rating.prediction.forecast import Believed, of_round
from stream_rater.replay.pool import Pool
from stream_rater.runtime.selfcheck import SYSTEMS
from tests.rounds import ranked, read

PLACING: tuple[RatingConfig, ...] = (
    TwoMoment(),
    Glicko(beta=200.0, sigma_drift=35.0, newcomer_offset=-150.0, newcomer_field=0.8),
    Bar(beta=200.0, sigma_drift=35.0, newcomer_offset=90.0),
    TrueSkill(beta=200.0, sigma_drift=35.0, draw_margin=1.0, newcomer_offset=-150.0),
)
"""Systems that place newcomers: some always, some by their parameters."""
ALL = (*SYSTEMS, *PLACING[1:])

EVEN = 1e-6
"""Of probabilities: where newcomers begin is rounded to float32, 1.2e-4 points a member."""


def ids(config: RatingConfig) -> str:
    return str(config.__struct_config__.tag)


def chances(
    config: RatingConfig, sizes: tuple[int, int], shares: list[float], mu: list[float],
    rounds: list[int],
) -> Floats:  # fmt: skip
    """How likely each of two sides is to win."""
    sigma = np.where(np.array(rounds) > 0, 80.0, config.initial_sigma)
    starts = np.array([0, sizes[0], sum(sizes)])
    found = of_round(
        config, starts, np.array(shares), Believed(np.array(mu), sigma, np.array(rounds))
    )
    return found.win


sides = st.tuples(st.integers(1, 6), st.integers(1, 6))


@pytest.mark.parametrize("config", ALL, ids=ids)
@given(sizes=sides, known=st.booleans(), seed=st.integers(0, 2**32 - 1))
@settings(max_examples=15, deadline=None)
def test_n_equals_and_m_equals_are_level(
    config: RatingConfig, sizes: tuple[int, int], known: bool, seed: int
) -> None:
    """Newcomers, or players at the initial rating, however many and whatever part each played; of
    newcomers whom the system places, if their shares make one player at least."""
    rng = np.random.default_rng(seed)
    n = sum(sizes)
    shares = rng.uniform(0.1, 1.0, n)
    shares[0] = shares[-1] = 1.0
    found = chances(config, sizes, shares.tolist(), [config.initial_mu] * n, [int(known)] * n)
    assert found[0] == pytest.approx(found[1], abs=EVEN)


def test_a_lone_newcomer_and_five_are_level() -> None:
    """The lone one was favoured by 0.715 when each of the five brought the offset."""
    found = chances(TwoMoment(), (5, 1), [1.0] * 6, [1500.0] * 6, [0] * 6)
    assert found.tolist() == pytest.approx([0.5, 0.5], abs=EVEN)


@pytest.mark.parametrize("config", ALL, ids=ids)
@given(sizes=sides, seed=st.integers(0, 2**32 - 1))
@settings(max_examples=15, deadline=None)
def test_either_side_first(config: RatingConfig, sizes: tuple[int, int], seed: int) -> None:
    """The probabilities are exchanged with the sides, veterans and newcomers mixed."""
    rng = np.random.default_rng(seed)
    n, m = sizes
    shares, mu = rng.uniform(0.01, 1.0, n + m), rng.normal(1500.0, 200.0, n + m)
    rounds = rng.integers(0, 2, n + m)
    mu[rounds == 0] = config.initial_mu
    turned = np.r_[n : n + m, 0:n]
    one = chances(config, (n, m), shares.tolist(), mu.tolist(), rounds.tolist())
    other = chances(
        config, (m, n), shares[turned].tolist(), mu[turned].tolist(), rounds[turned].tolist()
    )
    assert one.tolist() == pytest.approx(other[::-1].tolist(), abs=1e-7)


@pytest.mark.parametrize("config", ALL, ids=ids)
@given(sizes=sides, new=st.booleans(), seed=st.integers(0, 2**32 - 1))
@settings(max_examples=15, deadline=None)
def test_a_member_who_hardly_played_changes_nothing(
    config: RatingConfig, sizes: tuple[int, int], new: bool, seed: int
) -> None:
    """The predictions stay the same, and so do the performances or ratings of the others after
    the round."""
    rng = np.random.default_rng(seed)
    n = sum(sizes)
    rounds = rng.integers(0, 2, n)
    if not new:  # a veteran sets the field level of newcomers, whatever share the veteran has
        rounds = np.ones(n, np.int64)
    mu = np.where(rounds > 0, rng.normal(1500.0, 200.0, n), config.initial_mu)
    absent = np.array([1e-6]), np.array([config.initial_mu if new else 2000.0])
    shares = np.r_[np.ones(n), absent[0]]
    more, level = np.r_[rounds, 0 if new else 7], np.r_[mu, absent[1]]
    alone = chances(config, sizes, [1.0] * n, mu.tolist(), rounds.tolist())
    with_them = chances(
        config, (sizes[0], sizes[1] + 1), shares.tolist(), level.tolist(), more.tolist()
    )
    assert alone.tolist() == pytest.approx(with_them.tolist(), abs=2e-3)
    before = learnt(config, sizes, np.ones(n), mu, rounds.astype(np.float64))
    after = learnt(config, (sizes[0], sizes[1] + 1), shares, level, more)[:n]
    if isinstance(config, Topcoder):
        return  # its weights are by rounds played, of a side those of its oldest member
    # in the two-moment filter drift is divided by the square of the side's size
    # and Glicko-2 can move by thousands of points in a round of such players
    most = {TwoMoment: 2.0, Glicko2: 0.1}.get(type(config), 0.01)
    assert after == pytest.approx(before, abs=most)


def learnt(
    config: RatingConfig, sizes: tuple[int, int], shares: Floats, mu: Floats, rounds: Floats
) -> list[float]:
    """(P,) the players' performances or new mu, if the first of two sides wins."""
    n = sum(sizes)
    sigma = np.where(rounds > 0, 80.0, config.initial_sigma)
    wave = Wave(
        np.array([0, 2]), np.ones(1), np.full(1, math.inf), np.zeros(1, np.int64),
        np.array([1, 2], np.int32), np.array([0, sizes[0], n]), shares, mu.copy(), sigma,
        rounds.astype(np.int64), np.zeros(n, np.int64),
    )  # fmt: skip
    by_performance = ids(config) in ("elo-mmr", "elo-r", "codeforces", "glicko2")
    found: list[float] = stages.estimate(config, wave)[:, 0 if by_performance else 1].tolist()
    return found


@pytest.mark.parametrize("config", ALL, ids=ids)
def test_beliefs_do_not_depend_on_the_order_of_sides(config: RatingConfig) -> None:
    """Three play against two, with a newcomer on either side and with shares. Either order of the
    sides gives the same bytes."""
    one = {"team": ["ann", "bob", "new"], "shares": [1.0, 0.5, 0.25], "rank": 1}
    other = {"team": ["cy", "newer"], "shares": [1.0, 1.0], "rank": 2}
    pools = []
    for standings in ((one, other), (other, one)):
        pool = Pool(Ladder(rating=config))
        pool.rate(read(config, *ranked([1, 2], ["ann", "cy"])), 0)
        pool.rate(read(config, *standings), 1)
        pools.append({name: pool.belief_bytes(name) for name in sorted(pool.players())})
    assert pools[0] == pools[1]


@pytest.mark.parametrize("config", PLACING, ids=ids)
@pytest.mark.parametrize("sizes", [(1, 1), (2, 1), (1, 5), (5, 5), (3, 6)])
def test_newcomers_rise_with_a_victory(config: RatingConfig, sizes: tuple[int, int]) -> None:
    """From where the round began, which is the mu before it; teams of any size, and symmetric: the
    sums of both sides begin level."""
    pool = Pool(Ladder(rating=config))
    teams = [[f"{side}{i}" for i in range(size)] for side, size in zip("ab", sizes, strict=True)]
    pool.rate(
        read(config, *({"team": team, "rank": rank} for rank, team in enumerate(teams, 1))), 0
    )
    heads = dict(pool)
    began = [[float(heads[p]["previous_mu"]) for p in team] for team in teams]
    now = [[float(heads[p]["mu"]) for p in team] for team in teams]
    assert all(b < a for b, a in zip(began[0], now[0], strict=True))
    assert all(b > a for b, a in zip(began[1], now[1], strict=True))
    level = [sum(x - config.initial_mu for x in team) for team in began]
    assert level[0] == pytest.approx(level[1], abs=0.01)
    assert isinstance(config, PlacingNewcomers)
    assert level[0] == pytest.approx(config.newcomer_offset, abs=0.01)
