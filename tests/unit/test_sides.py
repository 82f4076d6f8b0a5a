"""What is believed of sides, and its scores, against whole evaluations and by hand."""

import math
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from stream_rater.columns.arrays import Floats
from stream_rater.evaluation import calibrating
from stream_rater.evaluation import sides as module
from stream_rater.evaluation.calibrating import Calibration, Learner, Pairs, fit, pairs_of
from stream_rater.evaluation.evaluation import evaluate
from stream_rater.evaluation.measures import FIELDS, OF_PAIRS
from stream_rater.evaluation.season import Session
from stream_rater.evaluation.sides import Run, Sides, own_run, scores_of
from stream_rater.rating.parameters import EloMMR, Glicko, RatingConfig, TrueSkill, TwoMoment
from stream_rater.rating.wins import MOST_OF_ROUND
from tests.benchmarks.lab.calibration import calibration_errors
from tests.benchmarks.lab.game import Kind, season
from tests.builders.cases import cases
from tests.rounds import as_json, ranked
from tests.unit.test_season import sessions

SEASON = list(season(Kind(players=40, rounds=120, per_round=8), 5))
CONFIGS = (
    EloMMR(weight_limit=0.2, sigma_limit=15.0), Glicko(beta=300.0, sigma_drift=35.0),
    TrueSkill(beta=200.0, sigma_drift=35.0, draw_margin=1.0), TwoMoment(),
)  # fmt: skip


def teams() -> list[Session]:
    """Rounds of two teams. The better one is mostly that with ann; one did not finish."""
    lines = []
    for i in range(30):
        ann, other = ["ann", f"p{i % 7}"], [f"q{i % 5}", f"r{i % 3}"]
        won, lost = (ann, other) if i % 4 else (other, ann)
        last = {"dnf": True} if i % 6 == 0 else {"rank": 2}
        lines.append(as_json({"team": won, "rank": 1}, {"team": lost, **last}, round_id=str(i)))
    return sessions(*lines)[0]


def calibrated_by(run: Run, calibration: Calibration) -> Run:
    """A copy in which every round has this calibration."""
    count = len(run.sides.number)
    return run._replace(calibrations=np.tile(np.array(calibration), (count, 1)))


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


@cases("config", CONFIGS)
@cases("rounds", [SEASON, teams()], len)
def test_scores_are_those_of_evaluate(rounds: list[Session], config: RatingConfig) -> None:
    """Every measure of pairs, with and without a variance factor; where draws are no outcomes."""
    run = own_run(rounds, config)
    for factor in (1.0, 2.5):
        whole = evaluate(rounds, config, variance_factor=factor, draws=False).scores[:, :OF_PAIRS]
        found = scores_of(calibrated_by(run, Calibration(factor)))
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
    assert scores_of(module.as_it_is(run)) == pytest.approx(whole, rel=1e-9, abs=1e-12)
    ladder = structs.replace(config, variance_factor=1.5, draw_width=90.0, upset=0.05)
    found = scores_of(calibrated_by(run, Calibration(1.5, 90.0, 0.05)))
    whole = evaluate(rounds, ladder).scores[:, :OF_PAIRS]
    assert found == pytest.approx(whole, rel=1e-9, abs=1e-12)


def test_a_run_is_parted_by_numbers_of_rounds() -> None:
    """No round is lost, none is on both sides. A calibration is that of its round alone."""
    run = own_run(SEASON, CONFIGS[0])
    early, late = run.before(50), run.after(50)
    assert early.sides.number.tolist() == list(range(50))
    assert late.sides.number.tolist() == list(range(50, 120))
    both: Floats = np.concatenate([scores_of(early), scores_of(late)])
    assert both.tolist() == scores_of(run).tolist()
    run = by_hand([1.0, -0.5, 2.0])
    usual, other = Calibration(), Calibration(4.0, 0.0, 0.1)
    rows = np.array([usual, other, usual])
    apart = [scores_of(calibrated_by(run, each)) for each in (usual, other)]
    due = np.stack([apart[0][0], apart[1][1], apart[0][2]])
    assert scores_of(run._replace(calibrations=rows)).tolist() == due.tolist()


def test_the_total_loss_of_duels_is_the_sum_of_their_log_losses() -> None:
    """And of wrong orders the number of these. A round of eight sides counts as four duels."""
    z = [1.0, -0.5, 2.0]
    scores = scores_of(by_hand(z))
    p = [0.5 * math.erfc(-x / math.sqrt(2.0)) for x in z]
    assert module.total_loss(scores, "log_loss") == pytest.approx(-sum(map(math.log, p)), rel=1e-6)
    assert module.total_loss(scores, "pair_inversion") == pytest.approx(1.0)
    assert module.total_loss(scores[:0], "log_loss") is None
    scores = scores_of(own_run(SEASON, CONFIGS[0]))
    mean = scores[:, FIELDS.index("log_loss")].sum()
    assert module.total_loss(scores, "log_loss") == pytest.approx(4.0 * mean)


def test_the_calibration_error_is_that_of_the_favourites() -> None:
    """Of ten equal duels the favourite won six. Of equals, half of each pair is right."""
    run = by_hand([1.0] * 6 + [-1.0] * 4)
    p = 0.5 * math.erfc(-1.0 / math.sqrt(2.0))
    wins = [1.0] * 6 + [0.0] * 4  # a bin each
    assert calibration_errors(run)[0] == pytest.approx(sum(abs(p - won) for won in wins) / 10)
    hundred = by_hand([1.0, -1.0] * 50)
    assert calibration_errors(hundred)[0] == pytest.approx(p - 0.5), "half of each bin"
    assert calibration_errors(run.before(0)) == (None, None)
    assert calibration_errors(by_hand([0.0] * 30))[0] == pytest.approx(0.0)
    chance = math.sqrt(2.0 * p * (1.0 - p) / (math.pi * 10))
    assert calibration_errors(hundred)[1] == pytest.approx(chance)  # ten pairs a bin


def test_a_run_has_the_calibrations_of_earlier_rounds() -> None:
    """They stay with their rounds. The last one is for the next round."""
    random = np.random.default_rng(4)
    z = np.abs(random.normal(0.0, 1.0, 400)) * np.where(random.random(400) < 0.7, 1.0, -1.0)
    whole = module.calibrated(by_hand(z.tolist()))
    other = module.calibrated(by_hand([*z[:200], *-z[200:]]))
    assert whole.calibrations is not None and other.calibrations is not None
    assert whole.calibrations[:201].tolist() == other.calibrations[:201].tolist()
    assert whole.calibrations[-1].tolist() != other.calibrations[-1].tolist()
    parts = whole.before(100), whole.after(100)
    both: Floats = np.concatenate([scores_of(each) for each in parts])
    assert both.tolist() == scores_of(whole).tolist() == scores_of(module.joined(parts)).tolist()
    again = module.calibrated(by_hand([*z, 1.0])).calibrations
    assert again is not None
    assert again[-1].tolist() == pytest.approx(
        [*module.calibration_of(by_hand(z.tolist()))], rel=0.1
    )


# --- calibrations: what is learned from past pairs, against simulated data and by hand ------------

SCALE = 300.0


def simulated(count: int, true: Calibration, seed: int = 1) -> Pairs:
    """Pairs whose model has a variance of SCALE^2, and whose outcomes are those of `true`."""
    random = np.random.default_rng(seed)
    gap = random.normal(0.0, SCALE, count)
    performed = gap + random.normal(0.0, SCALE * math.sqrt(true.factor), count)
    drew = np.abs(performed) <= true.draw_width
    performed = np.where(random.random(count) < true.upset, -performed, performed)
    won = np.where(drew | (performed > 0.0), gap, -gap)
    return Pairs(won, np.full(count, SCALE**2), drew, np.ones(count))


def loss(pairs: Pairs, at: Calibration) -> float:
    """The total loss, taken word by word from the module's docstring."""
    total = 0.0
    for gap, variance, drew, weight in zip(*(each.tolist() for each in pairs), strict=True):
        spread = math.sqrt(at.factor * variance)
        win, lose = (_below((way * gap - at.draw_width) / spread) for way in (1.0, -1.0))
        p = 1.0 - win - lose if drew else (1.0 - at.upset) * win + at.upset * lose
        total -= weight * math.log(p)
    return total


def cost(pairs: Pairs, at: Calibration) -> float:
    """The total loss and the priors' part of it."""
    unit = math.sqrt(at.factor * float(pairs.weight @ pairs.variance / pairs.weight.sum()))
    narrow = math.log(at.draw_width / unit / calibrating.USUAL_WIDTH) if at.draw_width else 0.0
    away = (
        math.log(at.factor) / calibrating.PRIOR_OF_FACTOR,
        narrow / calibrating.PRIOR_OF_WIDTH,
        at.upset / calibrating.PRIOR_OF_UPSET,
    )
    return loss(pairs, at) + 0.5 * sum(each * each for each in away)


def _below(z: float) -> float:
    return 0.5 * math.erfc(-z / math.sqrt(2.0))


TRUE = (
    Calibration(1.0, 60.0, 0.0), Calibration(2.0, 120.0, 0.05), Calibration(0.5, 20.0, 0.12),
    Calibration(1.5, 100.0, 0.02),
)  # fmt: skip


@cases("true", TRUE)
def test_what_was_simulated_is_found(true: Calibration) -> None:
    """Twice the excess loss is chi-squared of 3 degrees, below 16.3 in all but 1 of 1,000 cases."""
    pairs = simulated(20_000, true)
    found = fit(pairs, draws=True)
    assert 0.0 <= loss(pairs, true) - loss(pairs, found) + 0.5 < 0.5 + 16.3 / 2.0
    assert math.log(found.factor / true.factor) == pytest.approx(0.0, abs=0.25)
    assert found.draw_width == pytest.approx(true.draw_width, rel=0.1)
    assert found.upset == pytest.approx(true.upset, abs=0.02)


@cases("draws", [True, False])
def test_no_other_calibration_suits_better(draws: bool) -> None:
    """Neither nearby nor far off, in each of the three directions."""
    pairs = simulated(400, TRUE[1])
    if not draws:
        pairs = pairs.of(~pairs.drew)
    found = fit(pairs, draws=draws)
    assert (found.draw_width > 0.0) == draws
    least = cost(pairs, found)
    for by in (0.3, 0.95, 1.05, 3.0):
        unit = math.sqrt(by) if draws else 1.0  # v stays
        other = found._replace(factor=found.factor * by, draw_width=found.draw_width * unit)
        assert least < cost(pairs, other)
        if draws:
            assert least < cost(pairs, found._replace(draw_width=found.draw_width * by))
    for upset in (found.upset - 0.01, found.upset + 0.01, calibrating.MOST_UPSET):
        if upset >= 0.0:
            assert least < cost(pairs, found._replace(upset=upset))


def test_drawn_pairs_do_not_count_where_draws_are_no_outcomes() -> None:
    """As if they were not there. Where only the width is learned, it suits the other two best."""
    pairs = simulated(2000, TRUE[3])
    decided = pairs.of(~pairs.drew)
    assert pairs.drew.sum() > 200
    assert fit(pairs, draws=False)[::2] == pytest.approx(fit(decided, draws=False)[::2], rel=1e-3)
    pairs, start = simulated(5000, TRUE[1]), Calibration(2.0, 0.0, 0.05)
    found = fit(pairs, draws=True, start=start, learned=calibrating.ONLY_WIDTH)
    assert found[::2] == start[::2]
    least = cost(pairs, found)
    for by in (0.9, 1.1):
        assert least < cost(pairs, found._replace(draw_width=found.draw_width * by))


def test_nothing_says_nothing() -> None:
    """A single pair hardly does. Where nobody drew, the width falls, and stays above 0."""
    none = simulated(0, TRUE[0])
    assert fit(none, draws=True) == fit(none, draws=False) == Calibration()
    one = fit(simulated(1, TRUE[0]), draws=False)
    assert one.factor == pytest.approx(1.0, rel=0.2)
    assert one.upset < 0.01
    found = fit(simulated(3000, Calibration(1.0, 0.0, 0.0)), draws=True)
    assert 0.0 < found.draw_width < 0.003 * SCALE


@given(st.lists(st.tuples(st.floats(-5000, 5000), st.floats(1e-2, 1e6), st.booleans()), min_size=1,
                max_size=30), st.booleans())  # fmt: skip
def test_a_fit_is_finite_whatever_happened(
    rows: list[tuple[float, float, bool]], draws: bool
) -> None:
    """Within its bounds, and no worse than the start."""
    gap, variance, drew = (np.array(each) for each in zip(*rows, strict=True))
    found = fit(Pairs(gap, variance, drew.astype(bool), np.ones(len(rows))), draws=draws)
    assert all(math.isfinite(each) for each in found)
    assert found.factor > 0.0
    assert 0.0 <= found.upset <= calibrating.MOST_UPSET
    assert (found.draw_width > 0.0) == draws


# --- as rounds come in ----------------------------------------------------------------------------


def followed(pairs: Pairs, learner: Learner, parts: Sequence[int] = ()) -> Floats:
    """(P, 3) the calibration of each pair as a round, given in one part or several."""
    count, found = len(pairs.gap), []
    for first, last in zip((0, *parts), (*parts, count), strict=True):
        gap, drew = pairs.gap[first:last], pairs.drew[first:last]
        found.append(learner.follow(
            np.arange(first, last), 2 * np.arange(last - first + 1),
            np.stack([np.ones_like(gap), np.where(drew, 1, 2)], axis=1).ravel().astype(np.int32),
            np.stack([gap, np.zeros_like(gap)], axis=1).ravel(),
            np.repeat(0.5 * pairs.variance[first:last], 2),
        ))  # fmt: skip
    return np.concatenate(found)


def test_no_round_has_a_part_in_its_own_calibration() -> None:
    """Earlier ones alone have, in whatever blocks. The first rounds have the model as it is."""
    pairs = simulated(1500, TRUE[1])
    found = followed(pairs, Learner(draws=True))
    for n in (300, 777):
        other = pairs._replace(gap=np.where(np.arange(1500) < n, pairs.gap, -pairs.gap))
        changed = np.flatnonzero((followed(other, Learner(draws=True)) != found).any(axis=1))
        assert n < changed.min() <= n + calibrating.MOST_PART
    pairs = simulated(10, TRUE[1])
    assert followed(pairs, Learner(draws=False)).tolist() == [[1.0, 0.0, 0.0]] * 10
    width = calibrating.USUAL_WIDTH * SCALE
    assert followed(pairs, Learner(draws=True)) == pytest.approx(np.array([[1.0, width, 0.0]] * 10))
    pairs = simulated(1000, TRUE[1])
    whole = followed(pairs, Learner(draws=True))
    assert followed(pairs, Learner(draws=True), (7, 100, 101, 640)).tolist() == whole.tolist()


def test_rounds_of_one_number_learn_nothing_of_each_other() -> None:
    """Parts of a round that was cut are simultaneous, and come in any order."""
    pairs = simulated(600, TRUE[1])
    number = np.repeat(np.arange(6), 100)
    place = np.stack([np.ones(600), np.where(pairs.drew, 1, 2)], axis=1).astype(np.int32)
    mu = np.stack([pairs.gap, np.zeros(600)], axis=1)
    variance = np.repeat(0.5 * pairs.variance, 2)
    starts = 2 * np.arange(601)
    found = Learner(draws=True).follow(number, starts, place.ravel(), mu.ravel(), variance)
    for n in range(6):
        assert len(np.unique(found[number == n], axis=0)) == 1
    assert len(np.unique(found, axis=0)) == 6
    mixed = np.arange(600).reshape(6, 100).T.ravel()  # one of each number, then the next one
    again = Learner(draws=True).follow(
        number[mixed], starts, place[mixed].ravel(), mu[mixed].ravel(), variance
    )
    assert again == pytest.approx(found[mixed], rel=1e-3)


def test_what_is_long_ago_is_forgotten() -> None:
    """After six half-lives the factor is the new pool's, and forgotten pairs are dropped."""
    old, new = simulated(9000, Calibration(0.5)), simulated(9000, Calibration(2.0), seed=2)
    changing = old.and_then(new)
    assert followed(changing, Learner(draws=False))[-1, 0] == pytest.approx(2.0, rel=0.15)
    assert fit(changing, draws=False).factor < 1.5
    assert followed(old, Learner(draws=False))[-1, 0] == pytest.approx(0.5, rel=0.2)
    learner = Learner(draws=False)
    followed(simulated(30_000, Calibration()), learner)
    kept = len(learner._pairs.gap)
    assert kept <= calibrating.HALF_LIVES * calibrating.HALF_LIFE + calibrating.MOST_PART


def test_pairs_are_those_of_the_rounds() -> None:
    """Who did not finish is worse than all, and drew with nobody; a round of n counts as n / 2."""
    starts = np.array([0, 2, 6])
    place = np.array([1, 1, 1, 2, 0, 0], np.int32)
    mu, variance = np.array([5.0, 3.0, 9.0, 7.0, 1.0, 2.0]), np.arange(1.0, 7.0)
    pairs, of_round = pairs_of(starts, place, mu, variance, draws=True)
    assert of_round.tolist() == [0] + [1] * 5
    seen = sorted(zip(*(each.tolist() for each in pairs[:3]), strict=True))
    due = [(2.0, 3.0, True), (2.0, 7.0, False), (8.0, 8.0, False), (7.0, 9.0, False),
           (6.0, 9.0, False), (5.0, 10.0, False)]  # fmt: skip
    assert seen == sorted(due)
    assert np.bincount(of_round, pairs.weight).tolist() == pytest.approx([1.0, 2.0])
    assert len(pairs_of(starts, place, mu, variance, draws=False)[0].gap) == 5


@cases("n", [9, 100, 5000])
def test_a_large_round_counts_as_a_bounded_number_of_pairs(n: int) -> None:
    """And a side is compared with a few others, near and far."""
    place = np.arange(1, n + 1, dtype=np.int32)
    pairs, _ = pairs_of(np.array([0, n]), place, -np.arange(float(n)), np.ones(n), draws=True)
    assert pairs.weight.sum() == pytest.approx(min(n / 2, MOST_OF_ROUND))
    assert len(pairs.gap) <= calibrating.DISTANCES * min(n, 2 * calibrating.MOST_COMPARED)
    assert len(np.unique(pairs.gap)) == calibrating.DISTANCES
