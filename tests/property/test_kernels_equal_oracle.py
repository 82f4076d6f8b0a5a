"""The fast kernels give what the readable oracles give, over random seasons of rounds: Elo-MMR's,
and for Elo-R Algorithm 1 of its draft."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stream_rater.config.ladders import Ladder
from stream_rater.rating import stages
from stream_rater.rating.elo_mmr import oracle
from stream_rater.rating.model import PERFORMANCE, newcomers
from stream_rater.rating.parameters import TIED_LAST, EloMMR, EloR
from stream_rater.replay.pool import Pool
from stream_rater.rounds.batch import OneRound, wave_of
from tests import elo_r_oracle
from tests.rounds import day, ranked, read
from tests.strategies import configs, days, weights

PERFORMANCE_POINTS = 2e-6
"""After an upset over a wide gap Q_i is almost flat about its zero, and the cancelling sums of the
oracle blur where it is: up to 6e-7 points in 24,000 random seasons. Where most entries of a small
round tie, the kernels' last step leaves as much (against 50 digits; the oracle has all of its own):
up to 9e-7 points in 23,000 seasons of such rounds."""
POINTS = 1e-6
"""A blurred performance is far from mu, so it pulls alike. After the others mu goes, and no
further: up to 6.2e-7 points in these seasons."""

PLAYERS = [f"p{i}" for i in range(8)]


@dataclass(frozen=True)
class Season:
    config: EloMMR
    rounds: list[dict[str, Any]]


@st.composite
def rounds(draw: st.DrawFn) -> dict[str, Any]:
    names = draw(st.lists(st.sampled_from(PLAYERS), min_size=2, max_size=8, unique=True))
    places = draw(st.lists(st.integers(0, 5), min_size=len(names), max_size=len(names)))
    return {
        "names": names,
        "places": [places[0] or 1, *places[1:]],
        "weight": draw(weights()),
        "ceiling": draw(st.none() | st.floats(0.0, 3000.0)),
        "day": draw(days()),
    }


seasons = st.builds(Season, configs(), st.lists(rounds(), min_size=1, max_size=5))


def standings_of(config: EloMMR | EloR, each: dict[str, Any]) -> OneRound:
    return read(
        config,
        *ranked(each["places"], each["names"]),
        weight=each["weight"],
        performance_ceiling=each["ceiling"],
        completed_at=day(each["day"]),
    )


def by_kernels(pool: Pool, standings: OneRound, offset: int) -> dict[str, float]:
    """Rate a round fast; each player's performance."""
    rated = pool.rate(standings, offset)
    assert rated is not None
    return dict(zip(standings.players, rated[1][:, PERFORMANCE].tolist(), strict=True))


def by_oracle(players: dict[str, oracle.Player], config: EloMMR, standings: OneRound) -> Any:
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
@settings(max_examples=100)
def test_ratings_equal_the_oracles(season: Season) -> None:
    """Performances, mu and sigma of every player, round by round: whatever the parameters."""
    pool, slow = Pool(Ladder(rating=season.config)), dict[str, Any]()
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


# --- Elo-R ----------------------------------------------------------------------------------------


def elo_r() -> st.SearchStrategy[EloR]:
    return st.builds(
        lambda limit, above, **others: EloR(sigma_limit=limit, delta=limit * above, **others),
        st.floats(30.0, 200.0),
        st.floats(1.05, 5.0),
        ties=st.sampled_from(("full", "split")),
        dnf=st.sampled_from(("tied-last", "not-compared")),
        initial_sigma=st.floats(80.0, 500.0),
        history=st.just("full"),
    )


@given(elo_r(), st.lists(rounds(), min_size=1, max_size=6))
@settings(max_examples=60)
def test_elo_r_equals_its_oracle(config: EloR, season: list[dict[str, Any]]) -> None:
    """Performances, mu, sigma, and every factor with its own width, round by round."""
    beliefs = newcomers(8, 8, config.initial_mu, config.initial_sigma)
    slow = [elo_r_oracle.Player(config.initial_mu, config.initial_sigma) for _ in PLAYERS]
    for each in season:
        standings = standings_of(config, each)
        rows = np.array([PLAYERS.index(player) for player in standings.players])
        evidence = stages.estimate(config, wave_of([standings], beliefs.header[rows]))
        stages.update(beliefs, rows, evidence, [stages.rule_of(config)], np.zeros_like(rows))
        expected = elo_r_oracle.rate_round(
            [slow[i] for i in rows], standings.place.tolist(), config.delta, config.sigma_limit,
            config.ties == "split", standings.weight, standings.ceiling, config.dnf == TIED_LAST,
        )  # fmt: skip
        assert expected == pytest.approx(evidence[:, 0], rel=0, abs=PERFORMANCE_POINTS)
    for player, head, factors in zip(slow, beliefs.header, beliefs.factors, strict=True):
        assert (player.mu, player.sigma) == pytest.approx(
            (float(head["mu"]), float(head["sigma"])), rel=0, abs=POINTS
        )
        (center, tau_0), *logistic = player.pdfs
        # relative: roots and quotients in another order
        assert (center, tau_0**-2) == pytest.approx(
            (float(head["center"]), float(head["precision"])), rel=1e-13
        )
        terms = factors[: head["count"]]
        widths = sorted((1.0 / tau for _, tau in logistic), reverse=True)
        assert widths == pytest.approx(sorted(terms[:, 1], reverse=True), rel=1e-13)
        assert terms[:, 1] == pytest.approx(float(head["scale"]) * terms[:, 2], rel=1e-15)
