"""The fast kernels give what the readable oracle gives, over random seasons of rounds."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stream_rater.config import Ladder
from stream_rater.lab.replay import Pool
from stream_rater.rating import oracle
from stream_rater.rating.model import PERFORMANCE, PERFORMANCE_VARIANCE
from stream_rater.rating.parameters import EloMMR
from stream_rater.standings import Standings
from tests.rounds import ranked, read

PERFORMANCE_POINTS = 1e-6
"""After an upset over a wide gap Q_i is almost flat about its zero, and the cancelling sums of the
oracle blur where it is: up to 6e-7 points in 24,000 random seasons."""
POINTS = 1e-9
"""A blurred performance is far from mu, so it pulls alike: mu and sigma stayed within 3e-11."""

PLAYERS = [f"p{i}" for i in range(8)]


@dataclass(frozen=True)
class Season:
    config: EloMMR
    rounds: list[dict[str, Any]]


def spreads() -> st.SearchStrategy[dict[str, float]]:
    limits = st.fixed_dictionaries(
        {"weight_limit": st.floats(0.02, 2.0), "sigma_limit": st.floats(30.0, 200.0)}
    )
    spread = st.fixed_dictionaries({"beta": st.floats(80, 500), "gamma": st.floats(10, 150)})
    return limits | spread


def configs() -> st.SearchStrategy[EloMMR]:
    return st.builds(
        lambda pair, **others: EloMMR(**pair, **others, history="full"),
        pair=spreads(),
        rho=st.sampled_from((0.0, "inf")) | st.floats(0.01, 5.0),
        ties=st.sampled_from(("full", "split")),
        drift_per_day=st.just(0.0) | st.floats(0.1, 500.0),
        newcomer_weights=st.lists(st.floats(0.2, 5.0), max_size=3).map(tuple),
        initial_mu=st.floats(-2000.0, 3000.0),
        initial_sigma=st.floats(80.0, 500.0),
    )


@st.composite
def rounds(draw: st.DrawFn) -> dict[str, Any]:
    names = draw(st.lists(st.sampled_from(PLAYERS), min_size=2, max_size=8, unique=True))
    places = draw(st.lists(st.integers(0, 5), min_size=len(names), max_size=len(names)))
    return {
        "names": names,
        "places": [places[0] or 1, *places[1:]],
        "weight": draw(st.just(1.0) | st.floats(0.05, 20.0)),
        "ceiling": draw(st.none() | st.floats(0.0, 3000.0)),
        "day": draw(st.integers(0, 400)),
    }


seasons = st.builds(Season, configs(), st.lists(rounds(), min_size=1, max_size=5))


def standings_of(config: EloMMR, each: dict[str, Any]) -> Standings:
    day = datetime(2026, 1, 1, tzinfo=UTC) + timedelta(days=each["day"])
    return read(
        config,
        *ranked(each["places"], each["names"]),
        weight=each["weight"],
        performance_ceiling=each["ceiling"],
        completed_at=day.isoformat(),
    )


def by_kernels(pool: Pool, standings: Standings, offset: int) -> dict[str, float]:
    """Rate a round fast; each player's performance."""
    rated = pool.rate(standings, offset)
    assert rated is not None
    return dict(zip(standings.players, rated[1][:, PERFORMANCE].tolist(), strict=True))


def by_oracle(players: dict[str, oracle.Player], config: EloMMR, standings: Standings) -> Any:
    """Rate a round slowly; each player's performance."""
    names = standings.players
    found = oracle.rate_round(
        [players.setdefault(name, oracle.newcomer(config)) for name in names],
        standings.place.tolist(),
        config,
        weight=standings.weight,
        ceiling=standings.ceiling,
        time=standings.time,
    )
    return dict(zip(names, found, strict=True))


@given(seasons)
@settings(max_examples=300)
def test_ratings_equal_the_oracles(season: Season) -> None:
    """Performances, mu and sigma of every player, round by round: whatever the parameters."""
    pool, slow = Pool(Ladder(rating=season.config)), {}
    for offset, each in enumerate(season.rounds):
        standings = standings_of(season.config, each)
        performances = by_kernels(pool, standings, offset)
        expected = by_oracle(slow, season.config, standings)
        assert expected == pytest.approx(performances, rel=0, abs=PERFORMANCE_POINTS)
    beliefs = dict(pool)
    actual = {p: (float(b["mu"]), float(b["sigma"])) for p, b in beliefs.items()}
    for name, player in slow.items():
        assert (player.mu, player.sigma) == pytest.approx(actual[name], rel=0, abs=POINTS)
        assert (player.rounds, player.time) == (beliefs[name]["rounds"], beliefs[name]["time"])


@given(configs(), rounds(), st.randoms(use_true_random=False))
@settings(max_examples=100)
def test_the_order_of_the_list_does_not_matter(config: EloMMR, each: Any, random: Any) -> None:
    """A shuffled list gives the same performances (to 1e-9: sums in another order round else)."""
    pairs = list(zip(each["names"], each["places"], strict=True))
    expected = by_kernels(Pool(Ladder(rating=config)), standings_of(config, each), 0)
    random.shuffle(pairs)
    shuffled = {**each, "names": [p[0] for p in pairs], "places": [p[1] for p in pairs]}
    actual = by_kernels(Pool(Ladder(rating=config)), standings_of(config, shuffled), 0)
    assert expected == pytest.approx(actual, rel=0, abs=1e-9)


@given(configs(), st.lists(rounds(), min_size=1, max_size=4))
@settings(max_examples=100)
def test_performance_falls_strictly_with_rank(config: EloMMR, season: list[Any]) -> None:
    """A worse rank is a lower performance, equal ranks are equal, unfinished is below all."""
    pool = Pool(Ladder(rating=config))
    for offset, each in enumerate(season):
        found = by_kernels(pool, standings_of(config, {**each, "ceiling": None}), offset)
        by_place: dict[int, set[float]] = {}
        for name, place in zip(each["names"], each["places"], strict=True):
            by_place.setdefault(place, set()).add(found[name])
        unfinished = by_place.pop(0, set())
        falling = [by_place[place] for place in sorted(by_place)]
        assert [1] * len(falling) == [len(tied) for tied in falling]
        order = [max(tied) for tied in falling] + ([max(unfinished)] if unfinished else [])
        assert all(better > worse for better, worse in pairwise(order))


@given(configs(), rounds())
@settings(max_examples=50)
def test_evidence_is_what_a_round_of_this_weight_tells(config: EloMMR, each: Any) -> None:
    """beta^2 by (1 + 1/w) s^2 + d/w for newcomers, w with the round's and the first weight."""
    pool = Pool(Ladder(rating=config))
    standings = read(config, *ranked(each["places"], each["names"]), weight=each["weight"])
    rated = pool.rate(standings, 0)
    assert rated is not None
    limit, sigma = config.limits
    w = limit * each["weight"] * (config.newcomer_weights or (1.0,))[0]
    beta2 = (1 + 1 / w) * sigma**2 + config.drift_per_day / w
    # relative: the same few operations in another order
    assert [beta2] * len(rated[1]) == pytest.approx(rated[1][:, PERFORMANCE_VARIANCE], rel=1e-14)
