"""Where a round's performances end is known before its table is made, or tables are made twice."""

from typing import Any

import numpy as np
import pytest

from stream_rater.columns.arrays import Floats
from stream_rater.rating.elo_mmr import bounds, sums
from stream_rater.rating.elo_mmr.performance import solve_rounds
from stream_rater.rating.elo_mmr.sums import KNOWN, TOTAL, WIDEST, round_bounds
from stream_rater.rating.model import DID_NOT_FINISH
from tests.unit.test_large_rounds import a_round

ROUNDS = 100


@pytest.mark.parametrize("tie", [1.0, 0.5])
@pytest.mark.parametrize("n", [33, 64, 1000])
def test_likely_ends_are_within_their_margin(n: int, tie: float) -> None:
    """In 99 of 100 rounds, among them such with ties and with players who did not finish."""
    rng = np.random.default_rng(n)
    shapes: tuple[dict[str, Any], ...] = ({}, {"ties": 0.9}, {"unfinished": 0.3})
    rounds = [a_round(rng, n, **shapes[i % 3]) for i in range(ROUNDS)]
    place, mu, u = (np.concatenate(parts) for parts in zip(*rounds, strict=True))
    starts, which = np.arange(0, n * ROUNDS + 1, n), np.arange(ROUNDS)
    ranked = (place.reshape(ROUNDS, n) != DID_NOT_FINISH).sum(axis=1)
    known, odds = np.empty((ROUNDS, KNOWN)), np.empty(len(mu))
    for r in which:
        part = slice(starts[r], starts[r + 1])
        round_bounds(mu, u, starts[r], starts[r + 1], tie, known[r])
        total = known[r, TOTAL]
        sums.find_odds(place[part], u[part], ranked[r], tie, total, odds[part])
    lanes, ends = np.empty(sums.LANES), np.empty((bounds.ENDS, ROUNDS))
    bounds.likely_ends(starts, which, ranked, known, place, mu, u, tie, odds, lanes, ends)

    found = solve_rounds(starts, place, mu, u, tie).reshape(ROUNDS, n)

    def within(end: Floats, exact: Floats) -> int:
        return int(np.count_nonzero(np.abs(end - exact) * known[:, WIDEST] < bounds.MARGIN))

    assert within(ends[bounds.LEAST], found[which, ranked - 1]) >= 99
    assert within(ends[bounds.MOST], found[:, 0]) >= 99
