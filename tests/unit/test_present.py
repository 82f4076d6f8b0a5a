"""A ladder's present parameters are where its tuning begins, and all that it may leave."""

from typing import Any

import pytest
from msgspec import structs

from stream_rater.evaluation.present import Present, system_of
from stream_rater.evaluation.spaces import SPACES
from stream_rater.rating.parameters import (
    Elo,
    EloMMR,
    EloR,
    MinusSigma,
    RatingConfig,
    Topcoder,
    TrueSkill,
)
from stream_rater.rating.systems.dimension import fraction_of
from stream_rater.runtime.selfcheck import SYSTEMS

MMR = EloMMR(weight_limit=0.2, sigma_limit=80.0)
OTHERS: list[RatingConfig] = [
    EloMMR(weight_limit=5.0, sigma_limit=400.0, rho=20.0, drift_per_day=500.0,
           newcomer_weights=(9.0, 5.0, 3.0, 2.0, 1.5, 1.25, 1.125, 1.062, 1.031, 1.016, 1.008,
                             1.004)),
    EloMMR(weight_limit=0.2, sigma_limit=8.0, initial_mu=0.0, initial_sigma=35.0),
    EloR(delta=3000.0, sigma_limit=60.0),
    TrueSkill(beta=4.0, sigma_drift=0.083, draw_margin=0.7, initial_mu=25.0, initial_sigma=8.333),
    Elo(learning_rate=0.1),
    Elo(learning_rate=((1000.0, 40.0), (2000.0, 17.7)), initial_mu=1333.0, scale=174.0),
]  # fmt: skip
"""Far from what is usual, but with values that the dimensions can have."""


def at_start(present: Present, rating: RatingConfig | None = None) -> RatingConfig:
    """The configuration at the first guesses."""
    found: RatingConfig = present.config({each.name: each.start for each in present.space})
    return found


def name_of(rating: RatingConfig) -> str:
    return f"{system_of(rating)} {rating.initial_sigma:g}"


@pytest.mark.parametrize("rating", [*SYSTEMS, *OTHERS], ids=name_of)
def test_the_search_begins_at_the_present_parameters(rating: RatingConfig) -> None:
    """Of every system, and in any points: what has not moved is what is rated by now."""
    present = Present(rating)
    assert at_start(present) == rating
    for each in present.space:
        assert each.low <= each.start <= each.high
        assert each.at(fraction_of(each, each.start)) == pytest.approx(each.start, rel=1e-3)


def test_a_table_of_rates_keeps_its_form() -> None:
    """All of its rates are multiplied alike."""
    present = Present(Elo(learning_rate=((1000.0, 40.0), (2000.0, 20.0)), anchor=1200.0))
    found = present.config({"learning_rate": 60.0})
    assert found == Elo(learning_rate=((1000.0, 80.0), (2000.0, 40.0)), anchor=1200.0)


def test_every_system_has_a_present() -> None:
    """The systems of this test are all that can be tuned."""
    assert {system_of(each) for each in SYSTEMS} == set(SPACES)


@pytest.mark.parametrize("rating", SYSTEMS, ids=name_of)
def test_what_is_no_dimension_stays(rating: RatingConfig) -> None:
    """Wherever the search goes: how ratings are shown, how newcomers begin, what is rated."""
    kept: dict[str, Any] = {
        "initial_mu": 1200.0, "initial_sigma": 200.0, "history": 7, "floor": 100.0,
        "display": MinusSigma(2.0), "provisional_rounds": 3, "skip_all_tied": True,
    }  # fmt: skip
    present = Present(structs.replace(rating, **kept))
    for part in (0.0, 0.4, 1.0):
        found = present.config({each.name: each.at(part) for each in present.space})
        assert {name: getattr(found, name) for name in kept} == kept
        assert found != present.rating


def test_a_spread_is_tuned_as_limits() -> None:
    """`beta` and `gamma` are another form of the same pair, which a change replaces."""
    spread = EloMMR(beta=200.0, gamma=40.0)
    found = at_start(Present(spread))
    assert isinstance(found, EloMMR) and (found.beta, found.gamma) == (None, None)
    assert found.limits == pytest.approx(spread.limits, rel=1e-12)


def test_what_a_scale_cannot_have_begins_at_its_end() -> None:
    """An infinite rho, a rho of 0, a rate that depends on the rating, a fading that grows."""
    for rho, end in (("inf", 10.0), (0.0, 0.001)):
        rating: Any = structs.replace(MMR, rho=rho)
        assert at_start(Present(rating)) == structs.replace(MMR, rho=end)
    (rate,) = Present(Elo(learning_rate=((1000.0, 40.0), (2000.0, 20.0)))).space
    assert rate.start == 30.0
    growing = Present(structs.replace(MMR, newcomer_weights=(2.0, 4.0)))
    assert isinstance(at_start(growing), EloMMR)


def test_ranges_are_in_the_ladders_points() -> None:
    """A ladder with a tenth of the points has a tenth of the range, and of a variance a hundredth;
    the rest of the space is the same."""
    small = structs.replace(MMR, initial_sigma=35.0, sigma_limit=8.0)
    for ours, theirs in zip(Present(small).space, Present(MMR).space, strict=True):
        shrunk = {"sigma_limit": 0.1, "drift_per_day": 0.01}.get(ours.name, 1.0)
        assert (ours.low, ours.high, ours.start) == pytest.approx(
            (shrunk * theirs.low, shrunk * theirs.high, shrunk * theirs.start)
        )


def test_where_newcomers_begin_is_not_tuned() -> None:
    """A change leaves the beliefs of all who have played: it would move some and not others."""
    assert "initial_mu" in {each.name for each in SPACES["topcoder"]}
    assert "initial_mu" not in {each.name for each in Present(Topcoder()).space}
