"""Why a rating is what it is: pulls that cancel, and what each is of."""

import random
from typing import Any

import numpy as np
import pytest

from stream_rater.rating import record
from stream_rater.rating.factor import WIDTH_SHIFT, factors_of
from stream_rater.rating.model import Beliefs
from stream_rater.rating.parameters import RatingConfig
from stream_rater.rating.roots import TOLERANCE
from stream_rater.rating.stages import rule_of
from stream_rater.runtime.selfcheck import SYSTEMS
from stream_rater.serve.bodies import ExplainAnswer
from stream_rater.serve.entries import IndexedChange
from stream_rater.serve.explaining import explain_belief
from tests.property.test_notebook import ladder_of

ROUNDS = 60


def season(rating: RatingConfig) -> tuple[Beliefs, list[IndexedChange]]:
    """The stored belief about `ann` after some rounds, and the changes published for her."""
    ladder = ladder_of(rating)
    rng, published = random.Random(1), []
    for number in range(ROUNDS):
        ranks = rng.sample(range(1, 5), 4)
        result = ladder.rate(["ann", "bob", "cy", "dee"], ranks, round_id=f"r{number}")
        row = result.to_dicts()[0]
        published.append(
            IndexedChange(
                number, f"r{number}", "", row["rank"], row["performance"], row["mu"], row["sigma"],
                row["rating"], row["previous_rating"], number + 1,
            )
        )  # fmt: skip
    stored = ladder._rater.pool.belief_bytes("ann")
    return record.decode([stored], 0, 0.0, 1.0), published


def explanation(rating: RatingConfig, kept: int = ROUNDS) -> ExplainAnswer:
    beliefs, published = season(rating)
    return explain_belief("ann", beliefs, rule_of(rating), published[-kept:])


@pytest.mark.parametrize("rating", SYSTEMS, ids=lambda rating: rating.__struct_config__.tag)
def test_pulls_cancel(rating: RatingConfig) -> None:
    """Of every system, because mu is the mode of the belief; weights are parts of one."""
    found = explanation(rating)
    factors = [found.gaussian, *found.performances]
    assert sum(each.weight for each in factors) == pytest.approx(1.0)
    assert sum(each.pull for each in factors) == pytest.approx(0.0, abs=TOLERANCE)
    assert found.performances == sorted(found.performances, key=lambda each: -each.weight)
    for each in factors:
        assert each.pull * (each.at - found.mu) >= 0.0


def test_a_pull_is_what_the_rating_moves_by() -> None:
    """To first order: with a factor a hundredth lighter, the mode is a hundredth of its pull
    lower."""
    rating = SYSTEMS[0]
    beliefs, published = season(rating)
    found = explain_belief("ann", beliefs, rule_of(rating), published)
    header: Any = beliefs.header[0]
    p, a, r = factors_of(beliefs)[0, : header["count"]].T
    for each in found.performances[:5]:
        lighter = np.where(p == each.at, 0.99, 1.0) * r

        def slope(x: float, r: Any = lighter) -> float:
            pulls = header["scale"] * r * np.tanh((x - p) * a)
            return float(header["precision"] * (x - header["center"]) + pulls.sum())

        low, high = found.mu - 50.0, found.mu + 50.0
        for _ in range(100):
            middle = (low + high) / 2
            low, high = (low, middle) if slope(middle) > 0.0 else (middle, high)
        assert found.mu - low == pytest.approx(each.pull / 100.0, rel=0.05, abs=1e-3)


def test_rounds_are_named() -> None:
    """A performance by its round, as far as the history reaches back; one that stands for several
    rounds by none."""
    beliefs, published = season(SYSTEMS[0])
    count = beliefs.header["count"][0]
    wide = beliefs.factors[0, :count] >> WIDTH_SHIFT > 0
    merged = set(factors_of(beliefs)[0, :count][wide, 0].tolist())
    found = explanation(SYSTEMS[0]).performances
    named = [each for each in found if each.rounds]
    assert merged and not merged & {each.at for each in named}
    assert len(named) > count / 2
    by_round = {each.round_id: each.performance for each in published}
    for each in named:
        for one in each.rounds:
            assert each.at == pytest.approx(by_round[one], abs=1 / 32 + 1e-9)
    few = explanation(SYSTEMS[0], kept=3).performances
    last = {f"r{ROUNDS - i}" for i in (1, 2, 3)}
    kept = {one for each in few for one in each.rounds}
    assert kept and kept <= last


def test_in_words() -> None:
    """Sentences with the same numbers; of a system without performances, that it has none."""
    found = explanation(SYSTEMS[0])
    strongest = max(found.performances, key=lambda each: abs(each.pull))
    text = " ".join(found.in_words)
    assert f"{found.mu:.1f}, give or take {found.sigma:.1f}" in text
    assert f"A performance of {strongest.at:.1f}" in text
    assert f"by {abs(strongest.pull):.1f} points" in text
    (glicko,) = [explanation(each) for each in SYSTEMS if each.__struct_config__.tag == "glicko"]
    assert glicko.performances == [] and len(glicko.in_words) == 2
    assert glicko.gaussian.pull == 0.0 and glicko.gaussian.weight == 1.0
