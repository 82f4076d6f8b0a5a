"""Tuning finds better parameters, the same ones again, and says what is missing."""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest
from msgspec import structs

from stream_rater.columns.arrays import Floats
from stream_rater.evaluation import spaces, tuning
from stream_rater.evaluation.evaluation import evaluate
from stream_rater.evaluation.fits import LOG_LOSS, ORDER, Fit, OwnSystem, Present
from stream_rater.evaluation.measures import AIMS
from stream_rater.evaluation.season import Session
from stream_rater.evaluation.sides import calibrated, scores_of, total_loss
from stream_rater.evaluation.spaces import SPACES, configuration, start
from stream_rater.evaluation.tuning import (
    LEAST_ROUNDS,
    MARGIN,
    generation_of,
    search,
    searched,
    validated,
)
from stream_rater.rating import parameters
from stream_rater.rating.systems.common import Dimension, fraction_of
from stream_rater.rating.systems.elo_mmr import newcomer_weights
from stream_rater.rating.systems.two_moment import BETTER, Score
from tests.benchmarks.lab.game import Kind, season
from tests.builders.cases import cases
from tests.pages import text
from tests.rounds import as_json
from tests.unit.test_season import sessions

SEASON = list(season(Kind(players=25, rounds=150, per_round=6), 11))


POOR = Present(parameters.Codeforces(beta=200.0, weight=0.0015))  # Ratings hardly move.


def test_tuning_improves_on_the_first_guess() -> None:
    """The first guess is one of the trials, and wins where all are equal or nothing is scored."""
    poor = Fit(POOR, SEASON, ORDER, has_prior=False)
    trials: list[None] = []
    found = search(poor, 40, on_trial=lambda: trials.append(None))
    assert poor.cost(found) < 0.95 * poor.cost(poor.start())
    assert 30 <= len(trials) <= 50
    blind = Fit(OwnSystem("codeforces"), [], ORDER)
    assert search(blind, 12) == blind.start()


@cases("measure", AIMS)
def test_every_measure_has_a_cost(measure: str) -> None:
    """The total loss by it of the rounds, of which a half counts where entries weigh."""
    some = Fit(OwnSystem("codeforces"), SEASON, measure, has_prior=False)
    scores = evaluate(SEASON, some.config(some.start()), most_sides=0).scores
    assert some.cost(some.start()) == pytest.approx(total_loss(scores, measure))


@cases("system", sorted(SPACES))
def test_every_point_of_every_space_is_a_configuration(system: str) -> None:
    """It is valid, and is read as itself without its defaults. Places give their values back."""
    for at in (0.0, 0.37, 1.0):
        found = Fit(OwnSystem(system), [], "brier").config([at] * len(SPACES[system]))
        assert parameters.from_builtins(tuning.without_defaults(found)) == found
    for each in SPACES[system]:
        assert each.low <= each.start <= each.high
        assert each.at(fraction_of(each, each.start)) == pytest.approx(each.start)
        assert (each.at(0.0), each.at(1.0)) == (each.low, each.high)


def test_the_first_guess_of_two_moment_is_better_than_its_defaults() -> None:
    """Newcomers' weights approach 1 by the same part each round. Defaults are not written."""
    first = configuration("two-moment", start(SPACES["two-moment"]))
    assert first == parameters.from_builtins({"system": "two-moment", **BETTER})
    assert newcomer_weights(3.0, 0.5)[:4] == [3.0, 2.0, 1.5, 1.25]
    assert newcomer_weights(1.0, 0.5) == []
    config: Any = parameters.EloMMR(weight_limit=0.2, sigma_limit=80.0, rho="inf")
    expected = {"system": "elo-mmr", "weight_limit": 0.2, "sigma_limit": 80.0, "rho": "inf"}
    assert tuning.without_defaults(config) == expected


@cases("measure", AIMS)
def test_a_prior_holds_parameters_where_rounds_say_little(measure: str) -> None:
    """Of every measure: of a few rounds most of what is gained far off is noise."""
    few = Fit(OwnSystem("codeforces"), SEASON[:40], measure)
    free = replace(few, has_prior=False).cost
    start, point = few.start(), [0.0, 1.0]
    assert few.cost(start) == pytest.approx(free(start))
    gap = sum((a - b) ** 2 for a, b in zip(start, point, strict=True)) / (2.0 * tuning.PRIOR**2)
    assert few.cost(point) == pytest.approx(free(point) + gap)


def test_ends_of_ranges_are_noticed() -> None:
    """Unless the first guess is there, too: a drift of 0 is where it begins."""
    space = SPACES["elo-mmr"]
    begun = [fraction_of(each, each.start) for each in space]
    assert tuning.at_ends(space, begun) == ()
    names = [each.name for each in space]
    drift, weight = names.index("drift_per_day"), names.index("weight_limit")
    assert begun[drift] == 0.0
    for x, due in ((0.0, "weight_limit"), (0.995, "weight_limit"), (0.5, None)):
        point = list(begun)
        point[weight] = x
        assert tuning.at_ends(space, point) == ((due,) if due else ())
    point = list(begun)
    point[drift] = 1.0
    assert tuning.at_ends(space, point) == ("drift_per_day",)


# --- validation: parameters are taken only if they win on rounds that their search has not seen ---

LATER = list(season(Kind(players=30, rounds=60, per_round=8), 3))
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
    lost: str = ""  # The point that has no losses later, that of the start or what was found.
    searches: list[float] = field(default_factory=list)
    tried: Sequence[Sequence[Mapping[int, float]]] = ()

    def presets(self) -> Sequence[Sequence[Mapping[int, float]]]:
        return self.tried

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
        if self.lost == ("start" if point == [0.3] else "found"):
            return None
        noise = np.random.default_rng(int(1e6 * point[0])).normal(0.0, self.noise, self.rounds)
        found: Floats = (point[0] - self.later) ** 2 + noise
        return found


def test_parameters_that_win_later_are_searched_again_on_all_rounds() -> None:
    """If they lose, the first guess stays, and there is no second search."""
    problem = Made(later=0.85)
    found = validated(problem, 80)
    assert found.won and found.gain > 0.0
    assert found.point[0] == pytest.approx(0.8, abs=0.01)
    assert set(problem.searches) == {0.9, 0.8}
    trials = list[None]()
    validated(Made(later=0.85), 80, on_trial=lambda: trials.append(None))
    assert 65 <= len(trials) <= 90
    problem = Made(later=0.4)
    found = validated(problem, 80)
    assert (found.point, found.won) == ([0.3], False) and found.gain < 0.0
    assert set(problem.searches) == {0.9}


def test_presets_come_before_the_search() -> None:
    """The best of each group changes the best so far. Without trials to spare they are all."""
    problem = Made(later=0.85, tried=[[{0: 0.5}, {0: 0.85}], [{0: 0.95}]])
    found = validated(problem, 8)
    assert (found.point, found.won, len(problem.searches)) == ([0.85], True, 4 + 5)
    assert validated(problem, 60).point[0] == pytest.approx(0.8, abs=0.01)
    found = validated(Made(later=0.55, tried=[[{0: 0.6}]]), 60)
    assert (found.point, found.won) == ([0.6], True), "what the search found lost"


def test_a_gain_within_the_margin_is_none() -> None:
    """The same mean gain, less and more sure."""
    wide = [validated(Made(later=0.601, noise=0.2, rounds=n), 40) for n in range(4, 40)]
    assert all(each.won == (each.gain > MARGIN * each.error) for each in wide)
    assert any(0.0 < each.gain <= MARGIN * each.error for each in wide), "the margin decides"


def test_too_few_later_rounds_decide_nothing() -> None:
    """One fewer than are needed, and as many. A point without a loss never wins, nor stays."""
    won = [validated(Made(later=0.9, rounds=n), 40).won for n in (LEAST_ROUNDS - 1, LEAST_ROUNDS)]
    assert won == [False, True]
    assert not validated(Made(later=0.85, lost="found"), 40).won
    assert validated(Made(later=0.3, lost="start"), 40).won


def test_the_first_search_sees_the_first_half_alone() -> None:
    """Whatever comes later: the same points are tried, and have the same costs."""
    other = [*LATER[:30], *season(Kind(players=30, rounds=30, per_round=8), 9)]
    other = [replace(each, numbers=np.array([i])) for i, each in enumerate(other)]
    one, two = (searched(Fit(GLICKO, each, LOG_LOSS).first_half(), 20) for each in (LATER, other))
    assert one == two
    assert searched(Fit(GLICKO, LATER, LOG_LOSS), 20) != searched(Fit(GLICKO, other, LOG_LOSS), 20)


@cases("aim", AIMS)
@cases("calibrates", [True, False])
def test_later_losses_are_those_of_a_whole_run(aim: str, calibrates: bool) -> None:
    """Of the second half, each predicted by all before it, which also says how sure to be."""
    problem = Fit(GLICKO, LATER, aim, calibrates=calibrates)
    found = problem.later_losses([0.4, 0.6])
    run = GLICKO.play(LATER, problem.config([0.4, 0.6]))
    run = calibrated(run) if calibrates else run
    due = total_loss(scores_of(run.after(30)), aim)
    assert found is not None and len(found) == 30 and found.sum() == pytest.approx(due)


def test_parts_of_a_cut_round_stay_in_one_half() -> None:
    """The middle is between two numbers of rounds, however many parts they have."""
    sessions: list[Session] = [
        replace(each, numbers=np.array([number]))
        for each, number in zip(LATER[:6], (0, 0, 0, 1, 2, 3), strict=True)
    ]
    assert tuning.middle_of(sessions) == 2
    assert tuning.middle_of([]) == 0


# --- what scores are worth, as dimensions ---------------------------------------------------------

Scores = Sequence[float | None]


def scored_season(*rounds: Scores) -> list[Session]:
    """Rounds of players, ranked in the order in which their scores are given."""
    lines = []
    for number, scores in enumerate(rounds):
        entries: list[dict[str, Any]] = [
            {"player": f"p{i}", "rank": i + 1, **({} if score is None else {"score": score})}
            for i, score in enumerate(scores)
        ]
        lines.append(as_json(*entries, round_id=str(number)))
    return sessions(*lines)[0]


def margin(*rounds: Scores, by: str = "difference") -> float:
    return spaces.mean_margin([each.rounds for each in scored_season(*rounds)], by)


@cases("rounds, due", [
    ([(3, 1)], 2.0), ([(3, 1), (5, 1)], 3.0),
    ([(3, 1), (1, 3)], 2.0),  # a score that contradicts the places shows nothing
    ([(3, 1), (None, 3)], 2.0), ([(3, 1), (3, 2, 1)], 2.0),
    ([(3, 1), (3, 2, 1), (None, None)], 0.0),  # most rounds show nothing
    ([(2, 2)], 0.0), ([(None, None)], 0.0),
])  # fmt: skip
def test_the_mean_margin(rounds: Sequence[Scores], due: float) -> None:
    """Of the rounds of two sides whose scores show something, if they are half of all."""
    assert margin(*rounds) == due


def test_the_mean_margin_by_ratio() -> None:
    """Logarithms of 1 + score; a negative score has none. Ranges follow the scores' unit."""
    assert margin((math.e - 1.0, 0.0), (3, -3), by="ratio") == pytest.approx(1.0)
    rounds = scored_season((30, 10), (50, 10))
    scale, cap = spaces.field_dimensions("two-moment", rounds)
    assert (scale.name, scale.start, scale.high) == ("score.scale", 0.0, spaces.MOST_POINTS / 30.0)
    assert (cap.name, cap.start) == ("score.cap", 180.0)
    assert spaces.field_dimensions("glicko", rounds) == ()
    assert spaces.field_dimensions("two-moment", scored_season((None, None))) == ()
    assert spaces.field_dimensions("two-moment", []) == ()


def test_the_first_guess_is_that_scores_do_not_count() -> None:
    """A ladder that has a scale begins with it, and keeps how it measures margins."""
    own = OwnSystem("two-moment").on(scored_season((3, 1)))
    start = {each.name: each.start for each in own.space}
    assert own.config(start).score is None
    assert own.config({**start, "score.scale": 40.0}).score == Score(scale=40.0, cap=12.0)
    rating = parameters.TwoMoment(score=Score(scale=150.0, cap=2.5, by="ratio"))
    present = Present(rating).on(scored_season((3, 1)))
    start = {each.name: each.start for each in present.space}
    assert (start["score.scale"], start["score.cap"]) == (150.0, 2.5)
    assert present.config(start) == rating
    assert present.config({**start, "score.scale": 0.0}).score is None
    without_scores = Present(rating).on(scored_season((None, None)))
    assert without_scores.config({"beta": 200.0}).score == rating.score


# --- the points of seats as dimensions ------------------------------------------------------------


def seated_season(
    seats: Sequence[tuple[str | None, str | None]], home_wins: float = 0.6
) -> list[Session]:
    """Duels of eight equal players in turn. The first side of each round wins this often."""
    rng, lines = np.random.default_rng(4), []
    for number, names in enumerate(seats):
        pair = rng.permutation(8)[:2]
        wins = rng.random() < home_wins
        entries = [
            {"player": f"p{player}", "rank": rank, **({} if seat is None else {"seat": seat})}
            for player, rank, seat in zip(pair, (1, 2) if wins else (2, 1), names, strict=True)
        ]
        lines.append(as_json(*entries, round_id=str(number)))
    return sessions(*lines)[0]


@cases("seats, due", [
    ([("home", "away")], ("home",)),  # away keeps 0 points
    ([("white", "black"), ("white", "black")], ("white",)),
    ([("home", "away"), (None, None)], ("home",)), ([("home", None)], ("home",)),
    ([("home", None), ("home", "away")], ("away", "home")), ([("home", "home")], ()),
    ([(None, None)], ()),
    ([(f"a{k}", f"b{k}") for k in range(5)], ()),  # more than MOST_SEATS are no seats
])  # fmt: skip
def test_which_seats_are_tuned(seats: list[tuple[str, str]], due: tuple[str, ...]) -> None:
    """All that rounds name, but one if every entry has a seat: only differences matter."""
    assert spaces.seats_to_tune([]) == ()
    assert spaces.seats_to_tune([each.rounds for each in seated_season(seats)]) == due


def test_the_points_come_into_the_configuration() -> None:
    """Tuned points replace those of seats that rounds name; other seats keep theirs."""
    found = spaces.configuration("elo-r", {"delta": 300.0, "seats.home": 40.0, "seats.b": -2.5})
    assert found.seats == {"home": 40.0, "b": -2.5}
    (dimension,) = spaces.seat_dimensions(["home"])
    assert dimension.parameter == "seats" and dimension.at(fraction_of(dimension, 0.0)) == 0.0
    rating = parameters.TwoMoment(seats={"home": 60.0, "gym": 5.0})
    present = Present(rating).on(seated_season([("home", "away")]))
    start = {each.name: each.start for each in present.space}
    assert start["seats.home"] == 60.0
    points = [each["seats.home"] for each in present.presets[-1]]
    assert (min(points), max(points)) == pytest.approx((-180.0, 180.0))
    teams = [{"rank": i, "team": [f"{x}{i}" for x in "abcd"]} for i in (1, 2)]
    (fours,), _ = sessions(as_json(*teams))
    (wide,) = spaces.seat_dimensions(["home"], spaces.spread_of([fours.rounds]))
    assert wide.high == pytest.approx(300.0 * 4**0.75, rel=1e-3)
    assert present.config(start) == rating
    tuned = present.config({**start, "seats.home": 40.0})
    assert tuned == structs.replace(rating, seats={"home": 40.0, "gym": 5.0})
    assert parameters.fingerprint(tuned) != parameters.fingerprint(rating)
    assert Present(parameters.Glicko(beta=200.0, sigma_drift=35.0)).fields == ()


def test_the_page_says_how_many_workers_a_generation_keeps_busy() -> None:
    """For each system: three configurations a parameter, and two, as the search makes them."""
    row = r"^\| (`.*?) \| (\d+) \| (\d+) \|$"
    for systems, dimensions, count in re.findall(row, text("how-to/tune-on-a-cluster.md"), re.M):
        assert generation_of(int(dimensions), 200) == int(count)
        for system in re.findall(r"`([\w-]+)`", systems):
            assert len(SPACES[system]) == int(dimensions)
