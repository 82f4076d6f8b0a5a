"""Validation: tuned parameters are taken only if they win on rounds that their search has not
seen."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pytest

from stream_rater.columns.arrays import Floats
from stream_rater.evaluation.contestants import OwnSystem
from stream_rater.evaluation.evaluation import evaluate
from stream_rater.evaluation.fits import LOG_LOSS, ORDER, Fit
from stream_rater.evaluation.measures import FIELDS, MEASURES, WEIGHT_OF, better
from stream_rater.evaluation.research.synthetic import Kind, season
from stream_rater.evaluation.season import Session
from stream_rater.evaluation.sides import calibrated, scores_of, total_loss
from stream_rater.evaluation.spaces import SPACES
from stream_rater.evaluation.tuning import Problem, ProblemWithPrior, middle_of, searched
from stream_rater.evaluation.validation import LEAST_ROUNDS, MARGIN, Validated, validated
from stream_rater.rating.systems.dimension import Dimension

SEASON = list(season(Kind(players=30, rounds=60, per_round=8), 3))
GLICKO = OwnSystem("glicko")


@dataclass
class Made:
    """A problem of one dimension. Its first half is best at `early`, its whole at `whole`. The
    losses of the later rounds are (x - `later`)^2 with a noise that both points share in part."""

    later: float
    early: float = 0.9
    whole: float = 0.8
    noise: float = 0.0
    rounds: int = 50
    best: float | None = None
    searches: list[float] = field(default_factory=list)

    @property
    def space(self) -> tuple[Dimension, ...]:
        return (Dimension("x", 0.1, 1.0, 0.2),)

    def start(self) -> list[float]:
        return [0.3]

    def first_half(self) -> "Made":
        return replace(self, best=self.early)

    def cost(self, point: Sequence[float]) -> float:
        best = self.whole if self.best is None else self.best
        self.searches.append(best)
        return (point[0] - best) ** 2

    def later_losses(self, point: Sequence[float]) -> Floats | None:
        noise = np.random.default_rng(int(1e6 * point[0])).normal(0.0, self.noise, self.rounds)
        found: Floats = (point[0] - self.later) ** 2 + noise
        return found


def test_parameters_that_win_later_are_searched_again_on_all_rounds() -> None:
    """What is found is the best of the whole, not that of the half."""
    problem = Made(later=0.85)
    found = validated(problem, 80)
    assert found.won and found.gain > 0.0
    assert found.point[0] == pytest.approx(0.8, abs=0.01)
    assert set(problem.searches) == {0.9, 0.8}


def test_parameters_that_lose_later_are_dropped() -> None:
    """The first guess stays, and no second search is done."""
    problem = Made(later=0.4)
    found = validated(problem, 80)
    assert (found.point, found.won) == ([0.3], False) and found.gain < 0.0
    assert set(problem.searches) == {0.9}


def test_a_gain_within_the_margin_is_none() -> None:
    """The same mean gain, less and more sure."""
    by_noise = {noise: validated(Made(later=0.61, noise=noise), 80) for noise in (0.0, 1.0)}
    assert by_noise[0.0].won and by_noise[0.0].gain > 0.0
    noisy = by_noise[1.0]
    assert noisy.won == (noisy.gain > MARGIN * noisy.error)
    wide = [validated(Made(later=0.601, noise=0.2, rounds=n), 40) for n in range(4, 40)]
    assert {each.won for each in wide} == {each.gain > MARGIN * each.error for each in wide}
    assert all(each.won == (each.gain > MARGIN * each.error) for each in wide)
    assert any(0.0 < each.gain <= MARGIN * each.error for each in wide), "the margin decides"


def test_too_few_later_rounds_decide_nothing() -> None:
    """One round fewer than are needed, and as many."""
    won = [validated(Made(later=0.9, rounds=n), 40).won for n in (LEAST_ROUNDS - 1, LEAST_ROUNDS)]
    assert won == [False, True]


def test_about_as_many_configurations_are_tried_as_asked_for() -> None:
    """Both searches together."""
    trials = list[None]()
    validated(Made(later=0.85), 80, on_trial=lambda: trials.append(None))
    assert 65 <= len(trials) <= 90


def test_points_without_a_loss_never_win() -> None:
    """And a first guess without one never stays."""

    class Broken(Made):
        def later_losses(self, point: Sequence[float]) -> Floats | None:
            return None if (point == [0.3]) is self.of_start else super().later_losses(point)

        of_start = False

    class BrokenStart(Broken):
        of_start = True

    assert not validated(Broken(later=0.85), 40).won
    assert validated(BrokenStart(later=0.3), 40).won


def test_the_first_search_sees_the_first_half_alone() -> None:
    """Whatever comes later: the same points are tried, and have the same costs."""
    other = [*SEASON[:30], *season(Kind(players=30, rounds=30, per_round=8), 9)]
    other = [replace(each, numbers=np.array([i])) for i, each in enumerate(other)]
    one, two = (searched(Fit(GLICKO, each, LOG_LOSS).first_half(), 20) for each in (SEASON, other))
    assert one == two
    assert searched(Fit(GLICKO, SEASON, LOG_LOSS), 20) != searched(Fit(GLICKO, other, LOG_LOSS), 20)


@pytest.mark.parametrize("aim", [LOG_LOSS, ORDER])
@pytest.mark.parametrize("calibrates", [True, False])
def test_later_losses_are_those_of_a_whole_run(aim: str, calibrates: bool) -> None:
    """Of the rounds of the second half, each predicted by all rounds before it. How sure to be is
    learned from these, too."""
    problem = Fit(GLICKO, SEASON, aim, calibrates=calibrates)
    found = problem.later_losses([0.4, 0.6])
    run = GLICKO.play(SEASON, problem.config([0.4, 0.6]))
    run = calibrated(run) if calibrates else run
    due = total_loss(scores_of(run.after(30)), aim)
    assert found is not None and len(found) == 30 and found.sum() == pytest.approx(due)


@pytest.mark.parametrize("measure", MEASURES)
def test_every_measure_of_tune_has_later_losses(measure: str) -> None:
    """Less is better, whatever the measure; a round counts by its weight."""
    problem = Problem("glicko", SPACES["glicko"], measure, SEASON)
    found = ProblemWithPrior.of(problem).later_losses([0.4, 0.6])
    scores = evaluate(SEASON, problem.config([0.4, 0.6])).scores[30:]
    values = scores[:, FIELDS.index(measure)] * scores[:, FIELDS.index(WEIGHT_OF[measure])]
    assert found is not None
    assert found.tolist() == pytest.approx((-better(measure) * values).tolist())


def test_the_parts_of_a_cut_round_stay_together() -> None:
    """The middle is between two numbers of rounds, however many parts they have."""
    sessions: list[Session] = [
        replace(each, numbers=np.array([number]))
        for each, number in zip(SEASON[:6], (0, 0, 0, 1, 2, 3), strict=True)
    ]
    assert middle_of(sessions) == 2
    assert middle_of([]) == 0


def test_what_was_found_is_said() -> None:
    """Both ways."""
    won, lost = (Validated([0.1], each, 2.5, 1.0, []).sentence() for each in (True, False))
    assert "+2.5" in won and "taken" in won and "first guess is kept" in lost
