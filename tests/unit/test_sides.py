"""What is believed of sides, and its scores, against whole evaluations and by hand."""

import math

import numpy as np
import pytest
from msgspec import structs

from stream_rater.columns.arrays import Floats
from stream_rater.evaluation.calibrating import Calibration
from stream_rater.evaluation.evaluation import evaluate
from stream_rater.evaluation.measures import FIELDS, OF_PAIRS
from stream_rater.evaluation.research.synthetic import Kind, season
from stream_rater.evaluation.season import Session
from stream_rater.evaluation.sides import (
    Run,
    Sides,
    as_it_is,
    calibrated,
    calibration_error,
    calibration_of,
    joined,
    own_run,
    run_of,
    scores_of,
    total_loss,
)
from stream_rater.rating.parameters import EloMMR, Glicko, RatingConfig, TrueSkill, TwoMoment
from tests.rounds import as_json, ranked
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
        found = scores_of(run.calibrated_by(Calibration(factor)))
        assert found == pytest.approx(whole, rel=1e-9, abs=1e-12)


def test_as_it_is_scores_are_those_of_evaluate_with_draws() -> None:
    """The width of draws is learned in the same way; all of a calibration as by ladders."""
    lines = (as_json(*ranked([1, 1 + i % 3 % 2], [f"p{i % 5}", f"q{i % 7}"]), round_id=str(i))
             for i in range(200))  # fmt: skip
    rounds = sessions(*lines)[0]
    config = Glicko(beta=300.0, sigma_drift=35.0)
    run = own_run(rounds, config)
    assert run.draws
    whole = evaluate(rounds, config).scores[:, :OF_PAIRS]
    assert scores_of(as_it_is(run)) == pytest.approx(whole, rel=1e-9, abs=1e-12)
    ladder = structs.replace(config, variance_factor=1.5, draw_width=90.0, upset=0.05)
    found = scores_of(run.calibrated_by(Calibration(1.5, 90.0, 0.05)))
    whole = evaluate(rounds, ladder).scores[:, :OF_PAIRS]
    assert found == pytest.approx(whole, rel=1e-9, abs=1e-12)


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
    right, unsure = (calibration_error(run.calibrated_by(Calibration(f))) for f in (1.0, 4.0))
    assert right is not None and unsure is not None
    assert right < 0.01
    assert unsure > 0.05
    assert calibration_of(run).factor == pytest.approx(1.0, abs=0.15)


def test_a_run_has_the_calibrations_of_earlier_rounds() -> None:
    """They stay with their rounds. The last one is for the next round."""
    random = np.random.default_rng(4)
    z = np.abs(random.normal(0.0, 1.0, 400)) * np.where(random.random(400) < 0.7, 1.0, -1.0)
    whole = calibrated(by_hand(z.tolist()))
    other = calibrated(by_hand([*z[:200], *-z[200:]]))
    assert whole.calibrations is not None and other.calibrations is not None
    assert whole.calibrations[:201].tolist() == other.calibrations[:201].tolist()
    assert whole.calibrations[-1].tolist() != other.calibrations[-1].tolist()
    parts = whole.before(100), whole.after(100)
    both: Floats = np.concatenate([scores_of(each) for each in parts])
    assert both.tolist() == scores_of(whole).tolist() == scores_of(joined(parts)).tolist()
    again = calibrated(by_hand([*z, 1.0])).calibrations
    assert again is not None
    assert again[-1].tolist() == pytest.approx([*calibration_of(by_hand(z.tolist()))], rel=0.1)


def test_a_calibration_is_that_of_its_round() -> None:
    """And of no other."""
    run = by_hand([1.0, -0.5, 2.0])
    usual, other = Calibration(), Calibration(4.0, 0.0, 0.1)
    rows = np.array([usual, other, usual])
    apart = [scores_of(run.calibrated_by(each)) for each in (usual, other)]
    due = np.stack([apart[0][0], apart[1][1], apart[0][2]])
    assert scores_of(run._replace(calibrations=rows)).tolist() == due.tolist()


def test_draws_count_against_the_favourite() -> None:
    """In the calibration error of a season with draws, as in its probability to win."""
    random = np.random.default_rng(1)
    gap, width = random.normal(0.0, 1.0, 40_000), 0.4
    performed = random.normal(gap, 1.0)
    mu = np.stack([gap, np.zeros(len(gap))], axis=1)
    drew = np.abs(performed) <= width
    place = np.stack([np.ones(len(gap)), np.where(drew, 1, 2)], axis=1).astype(np.int32)
    mu = np.where((performed < -width)[:, None], mu[:, ::-1], mu)
    sides = Sides(
        np.arange(len(gap)), np.full(len(gap), 2), place.ravel(), mu.ravel(),
        np.full(2 * len(gap), 0.5), np.full(2 * len(gap), 9),
    )  # fmt: skip
    run = run_of(sides, 0.0, 2 * len(gap))
    assert run.draws
    right, narrow = (
        calibration_error(run.calibrated_by(Calibration(1.0, each))) for each in (width, 0.1)
    )
    assert right is not None and narrow is not None
    assert right < 0.01
    assert narrow > 0.05


def test_equal_ratings_have_no_favourite() -> None:
    """Half of each pair is right, so there is no error."""
    assert calibration_error(by_hand([0.0] * 30)) == pytest.approx(0.0)
