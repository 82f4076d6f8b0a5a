"""What is believed of sides, and its scores, against whole evaluations and by hand."""

import math

import numpy as np
import pytest

from stream_rater.columns.arrays import Floats
from stream_rater.evaluation import variance_factor as module
from stream_rater.evaluation.evaluation import evaluate
from stream_rater.evaluation.measures import FIELDS, OF_PAIRS
from stream_rater.evaluation.research.synthetic import Kind, season
from stream_rater.evaluation.season import Session
from stream_rater.evaluation.sides import (
    REFITS,
    Run,
    Sides,
    calibration_error,
    factors_of,
    own_run,
    scores_of,
    total_loss,
    variance_factor,
)
from stream_rater.rating.parameters import EloMMR, Glicko, RatingConfig, TrueSkill, TwoMoment
from tests.rounds import as_json
from tests.unit.test_season import sessions

SEASON = list(season(Kind(players=40, rounds=120, per_round=8), 5))
CONFIGS = (
    EloMMR(weight_limit=0.2, sigma_limit=15.0),
    Glicko(beta=300.0, sigma_drift=35.0),
    TrueSkill(beta=200.0, sigma_drift=35.0, draw_margin=1.0),
    TwoMoment(),
)


def teams() -> list[Session]:
    """Rounds of two teams. The better one is mostly that with ann; one did not finish."""
    lines = []
    for i in range(30):
        ann, other = ["ann", f"p{i % 7}"], [f"q{i % 5}", f"r{i % 3}"]
        won, lost = (ann, other) if i % 4 else (other, ann)
        last = {"dnf": True} if i % 6 == 0 else {"rank": 2}
        lines.append(as_json({"team": won, "rank": 1}, {"team": lost, **last}, round_id=str(i)))
    return sessions(*lines)[0]


def by_hand(z: list[float]) -> Run:
    """Rounds of two with these standardised differences, the better placed side first."""
    count = len(z)
    mu = np.stack([np.array(z), np.zeros(count)], axis=1).ravel()
    return Run(
        Sides(
            np.arange(count), np.full(count, 2), np.tile(np.array([1, 2], np.int32), count),
            mu, np.full(2 * count, 0.5), np.full(2 * count, 9),
        ),
        0.0, 2 * count,
    )  # fmt: skip


@pytest.mark.parametrize("config", CONFIGS, ids=lambda each: each.__struct_config__.tag)
@pytest.mark.parametrize("rounds", [SEASON, teams()], ids=["singles", "teams"])
def test_scores_are_those_of_evaluate(rounds: list[Session], config: RatingConfig) -> None:
    """Every measure of pairs, with and without a variance factor; where draws are no outcomes."""
    run = own_run(rounds, config)
    for factor in (1.0, 2.5):
        outcome = evaluate(rounds, config, variance_factor=factor, draws=False)
        whole = outcome.scores[:, :OF_PAIRS]
        assert scores_of(run, factor) == pytest.approx(whole, rel=1e-9, abs=1e-12)


def test_a_run_is_parted_by_numbers_of_rounds() -> None:
    """No round is lost, and none is on both sides."""
    run = own_run(SEASON, CONFIGS[0])
    early, late = run.before(50), run.after(50)
    assert early.sides.number.tolist() == list(range(50))
    assert late.sides.number.tolist() == list(range(50, 120))
    both: Floats = np.concatenate([scores_of(early), scores_of(late)])
    assert both.tolist() == scores_of(run).tolist()


def test_the_total_loss_of_duels_is_the_sum_of_their_log_losses() -> None:
    """And of wrong orders the number of these."""
    z = [1.0, -0.5, 2.0]
    scores = scores_of(by_hand(z))
    p = [0.5 * math.erfc(-x / math.sqrt(2.0)) for x in z]
    assert total_loss(scores, "log_loss") == pytest.approx(-sum(map(math.log, p)), rel=1e-6)
    assert total_loss(scores, "pair_inversion") == pytest.approx(1.0)
    assert total_loss(scores[:0], "log_loss") is None


def test_a_round_counts_as_its_pairs_that_share_no_side() -> None:
    """Eight sides: four such pairs."""
    scores = scores_of(own_run(SEASON, CONFIGS[0]))
    mean = scores[:, FIELDS.index("log_loss")].sum()
    assert total_loss(scores, "log_loss") == pytest.approx(4.0 * mean)


def test_no_other_variance_factor_suits_better() -> None:
    """No other factor is better, nearby or far off. Too certain predictions need more variance."""
    run = own_run(SEASON, CONFIGS[0])
    found = variance_factor(run)

    def cost(factor: float) -> float:
        loss = total_loss(scores_of(run, factor), "log_loss")
        assert loss is not None
        return loss + 0.5 * (math.log(factor) / module.PRIOR) ** 2

    assert all(cost(found) < cost(found * by) for by in (0.2, 0.9, 1.1, 5.0))
    assert found > 1.5
    assert variance_factor(run.before(0)) == 1.0, "no rounds say nothing"


def test_the_calibration_error_is_that_of_the_favourites() -> None:
    """Ten duels of the same probability, of which the favourite won six."""
    run = by_hand([1.0] * 6 + [-1.0] * 4)
    p = 0.5 * math.erfc(-1.0 / math.sqrt(2.0))
    wins = [1.0] * 6 + [0.0] * 4  # a bin each
    assert calibration_error(run) == pytest.approx(sum(abs(p - won) for won in wins) / 10)
    hundred = by_hand([1.0, -1.0] * 50)
    assert calibration_error(hundred) == pytest.approx(p - 0.5), "half of each bin"
    assert calibration_error(run.before(0)) is None


def test_right_chances_have_no_calibration_error() -> None:
    """The winners of duels are drawn by the predicted chances; twice the variance is wrong."""
    random = np.random.default_rng(1)
    z = random.normal(0.0, 1.0, 40_000)
    happened = random.normal(0.0, 1.0, len(z)) < z
    run = by_hand(np.where(happened, z, -z).tolist())
    right, unsure = (
        calibration_error(run.with_variance_factors(np.full(len(z), f))) for f in (1.0, 4.0)
    )
    assert right is not None and unsure is not None
    assert right < 0.01
    assert unsure > 0.05
    assert variance_factor(run) == pytest.approx(1.0, abs=0.05)


def test_no_round_has_a_part_in_its_own_factor() -> None:
    """Each part's factor is that of all rounds before it, whatever the rounds from it on are."""
    random = np.random.default_rng(4)
    z = np.abs(random.normal(0.0, 1.0, 400)) * np.where(random.random(400) < 0.7, 1.0, -1.0)
    run, boundary = by_hand(z.tolist()), 40
    factors = factors_of(run, boundary)
    assert len(factors) == 360 and len(set(factors.tolist())) == REFITS
    first = [boundary + i * 360 // REFITS for i in range(REFITS)]
    assert factors[:: 360 // REFITS].tolist() == [variance_factor(run.before(n)) for n in first]
    for n in (first[1], first[5]):
        other = by_hand([*z[:n], *-z[n:]])
        changed = np.flatnonzero(factors_of(other, boundary) != factors)
        assert changed.min() == n - boundary + 360 // REFITS


def test_a_factor_multiplies_the_variance_of_its_round() -> None:
    """And of no other; the scores are those of the factor."""
    run = by_hand([1.0, -0.5, 2.0])
    rescaled = run.with_variance_factors(np.array([1.0, 4.0, 1.0]))
    assert rescaled.sides.variance.tolist() == [0.5, 0.5, 2.0, 2.0, 0.5, 0.5]
    apart = np.stack([scores_of(run, 1.0)[0], scores_of(run, 4.0)[1], scores_of(run, 1.0)[2]])
    assert scores_of(rescaled) == pytest.approx(apart, rel=1e-12)


def test_equal_ratings_have_no_favourite() -> None:
    """Half of each pair is right, so there is no error."""
    assert calibration_error(by_hand([0.0] * 30)) == pytest.approx(0.0)
