"""Elo-R's kernels give what Algorithm 1 of its draft gives, over random seasons of rounds."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stream_rater.rating import stages
from stream_rater.rating.model import newcomers
from stream_rater.rating.parameters import TIED_LAST, EloR
from stream_rater.rounds.batch import wave_of
from tests import elo_r_oracle as oracle
from tests.rounds import ranked, read

PERFORMANCE_POINTS = 2e-6
"""After an upset over a wide gap the equation is almost flat about its root (see Elo-MMR's)."""
POINTS = 1e-6
"""Other performances are found to some 1e-7 points, and mu goes after them, no further."""

NAMES = [f"p{i}" for i in range(6)]


@st.composite
def rounds(draw: st.DrawFn) -> dict[str, Any]:
    who = draw(st.lists(st.integers(0, 5), min_size=2, max_size=6, unique=True))
    places = draw(st.lists(st.integers(0, 4), min_size=len(who), max_size=len(who)))
    return {
        "who": who,
        "places": [places[0] or 1, *places[1:]],
        "weight": draw(st.just(1.0) | st.floats(0.1, 10.0)),
        "ceiling": draw(st.none() | st.floats(500.0, 3000.0)),
    }


def configs() -> st.SearchStrategy[EloR]:
    return st.builds(
        lambda limit, above, **others: EloR(sigma_limit=limit, delta=limit * above, **others),
        st.floats(30.0, 200.0),
        st.floats(1.05, 5.0),
        ties=st.sampled_from(("full", "split")),
        dnf=st.sampled_from(("tied-last", "not-compared")),
        initial_sigma=st.floats(80.0, 500.0),
        history=st.just("full"),
    )


@pytest.mark.slow
@given(configs(), st.lists(rounds(), min_size=1, max_size=6))
@settings(max_examples=200)
def test_beliefs_equal_the_oracles(config: EloR, season: list[dict[str, Any]]) -> None:
    """Performances, mu, sigma, and every factor with its own width, round by round."""
    beliefs = newcomers(6, 8, config.initial_mu, config.initial_sigma)
    slow = [oracle.Player(config.initial_mu, config.initial_sigma) for _ in NAMES]
    for each in season:
        entries = ranked(each["places"], [NAMES[i] for i in each["who"]])
        standings = read(
            config, *entries, weight=each["weight"], performance_ceiling=each["ceiling"]
        )
        rows = np.array([NAMES.index(player) for player in standings.players])
        evidence = stages.estimate(config, wave_of([standings], beliefs.header[rows]))
        stages.update(beliefs, rows, evidence, [stages.rule_of(config)], np.zeros_like(rows))
        expected = oracle.rate_round(
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
