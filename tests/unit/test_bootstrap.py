"""The paired bootstrap, where the answer is known."""

from collections.abc import Iterator

import numpy as np
import pytest

from stream_rater.columns.arrays import Floats
from stream_rater.evaluation import bootstrap
from stream_rater.evaluation.bootstrap import Difference, difference, differences
from stream_rater.evaluation.measures import FIELDS, MEASURES


def scores(values: Floats, weights: Floats) -> Floats:
    """Rounds with this pair inversion."""
    found = np.zeros((len(values), len(FIELDS)))
    found[:, FIELDS.index("experienced")] = weights
    found[:, FIELDS.index("pair_inversion")] = values
    return found


RNG = np.random.default_rng(7)
VALUES, WEIGHTS = RNG.normal(75.0, 5.0, 400), RNG.integers(2, 50, 400).astype(np.float64)


def test_a_system_does_not_differ_from_itself() -> None:
    """By nothing, with certainty."""
    same = scores(VALUES, WEIGHTS)
    assert difference(same, same, "pair_inversion") == Difference(0.0, 0.0, 0.0)


def test_what_is_better_in_every_round_is_certain() -> None:
    """Rounds are paired: however much they vary, a constant gap has no width."""
    found = difference(scores(VALUES + 0.5, WEIGHTS), scores(VALUES, WEIGHTS), "pair_inversion")
    assert found is not None and not found.noise
    assert (found.mean, found.low, found.high) == pytest.approx((0.5, 0.5, 0.5))


def test_the_interval_is_as_wide_as_the_normal_one() -> None:
    """With equal weights: 1.96 standard errors of the differences on both sides, within 5 %."""
    gaps = RNG.normal(0.3, 2.0, len(VALUES))
    even = np.ones(len(VALUES))
    found = difference(scores(VALUES + gaps, even), scores(VALUES, even), "pair_inversion")
    assert found is not None
    error = 1.96 * gaps.std() / np.sqrt(len(gaps))
    assert found.mean == pytest.approx(gaps.mean())
    assert (found.low, found.high) == pytest.approx(
        (gaps.mean() - error, gaps.mean() + error), abs=0.05 * 2 * error
    )


def test_noise_is_called_noise() -> None:
    """A gap that changes its sign from round to round is none."""
    gaps = np.where(np.arange(len(VALUES)) % 2, 1.0, -1.0)
    found = difference(scores(VALUES + gaps, WEIGHTS), scores(VALUES, WEIGHTS), "pair_inversion")
    assert found is not None and found.noise and found.low < 0.0 < found.high


def test_heavy_rounds_count_more() -> None:
    """The mean weighs as the averages do."""
    base, other = np.array([50.0, 50.0]), np.array([60.0, 50.0])
    found = difference(
        scores(other, np.array([3.0, 1.0])), scores(base, np.array([3.0, 1.0])), "pair_inversion"
    )
    assert found is not None and found.mean == pytest.approx(7.5)


def test_the_same_seed_gives_the_same_interval() -> None:
    """However the draws are dealt into chunks is fixed, too."""
    pair = scores(VALUES + RNG.normal(0, 1, 400), WEIGHTS), scores(VALUES, WEIGHTS)
    assert difference(*pair, "pair_inversion") == difference(*pair, "pair_inversion")


def test_several_measures_have_the_same_draws(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each difference is what it is alone; rounds are drawn once, which takes most of the time."""
    one, other = (np.random.default_rng(seed).random((60, len(FIELDS))) for seed in (1, 2))
    one[:, FIELDS.index("pairs")] = 0.0
    alone = {measure: difference(one, other, measure) for measure in MEASURES}
    assert alone["kendall_tau"] is None and alone["brier"] is not None
    drawn: list[int] = []
    draws = bootstrap._resample

    def counting(rounds: int, count: int) -> Iterator[Floats]:
        drawn.append(count)
        return draws(rounds, count)

    monkeypatch.setattr(bootstrap, "_resample", counting)
    together = differences(one, other, MEASURES)
    assert len(drawn) == 1 and together["kendall_tau"] is None
    for measure, found in together.items():
        same = alone[measure]
        assert found is same is None or (
            found is not None
            and same is not None
            and (found.mean, found.low, found.high)
            == pytest.approx((same.mean, same.low, same.high))
        )


@pytest.mark.parametrize("rounds", [50, 51])
def test_each_draw_takes_as_many_rounds_as_there_are(
    monkeypatch: pytest.MonkeyPatch, rounds: int
) -> None:
    """With repetition, and as independent draws vary; however they are cut into chunks."""
    found = []
    for chunk in (1, 7 * rounds, 10**6):
        monkeypatch.setattr(bootstrap, "CHUNK", chunk)
        found.append(np.concatenate([each.copy() for each in bootstrap._resample(rounds, 3000)]))
    times = found[0]
    assert times.shape == (3000, rounds) and set(times.sum(axis=1)) == {float(rounds)}
    assert abs(times.mean(axis=0) - 1.0).max() < 0.1
    assert times.var() == pytest.approx(1.0 - 1.0 / rounds, rel=0.05)
    correlations = np.corrcoef(times.T) - np.eye(rounds)
    assert abs(correlations).max() < 0.1
    assert np.array_equal(times, found[1]) and np.array_equal(times, found[2])


def test_many_rounds_are_drawn_in_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    """The mean is the same, and the interval about as wide."""
    rng = np.random.default_rng(5)
    weights = rng.integers(2, 9, 6001).astype(np.float64)
    base = scores(rng.normal(70.0, 5.0, 6001), weights)
    other = scores(rng.normal(70.2, 5.0, 6001), weights)
    alone = difference(base, other, "pair_inversion")
    monkeypatch.setattr(bootstrap, "MOST_RESAMPLED", 1000)
    grouped = difference(base, other, "pair_inversion")
    assert alone is not None and grouped is not None
    assert grouped.mean == pytest.approx(alone.mean)
    assert grouped.high - grouped.low == pytest.approx(alone.high - alone.low, rel=0.15)


def test_nothing_scored_has_no_difference() -> None:
    """No number is made up."""
    nothing = np.zeros((5, len(FIELDS)))
    assert difference(nothing, nothing, "brier") is None
    assert difference(nothing[:0], nothing[:0], "brier") is None
