"""Evaluation: what is predicted, from which beliefs, and which rounds count."""

import math

import numpy as np
import pytest
from msgspec import structs

from stream_rater.evaluation.accuracy import averages
from stream_rater.evaluation.evaluation import Contender, displayed, evaluate, trained
from stream_rater.evaluation.measures import FIELDS, OF_PAIRS
from stream_rater.evaluation.research.synthetic import Kind, season
from stream_rater.evaluation.season import Session, in_blocks, singly, split
from stream_rater.rating.parameters import EloMMR, Glicko, MinusSigma, RatingConfig, Topcoder
from tests.rounds import as_json, ranked
from tests.unit.test_season import sessions

CONFIG = EloMMR(weight_limit=0.2, sigma_limit=80.0)
SEASON = list(season(Kind(players=40, rounds=60, per_round=8), 5))


def duels(*winners: str) -> list[Session]:
    """Rounds of ann against bob."""
    names = {"ann": ["ann", "bob"], "bob": ["bob", "ann"]}
    found, _ = sessions(
        *(as_json(*ranked([1, 2], names[w]), round_id=str(i)) for i, w in enumerate(winners))
    )
    return found


def column(scores: object, name: str) -> list[float]:
    return [row[FIELDS.index(name)] for row in scores.tolist()]  # type: ignore[attr-defined]


def test_a_round_is_predicted_by_what_was_known_before_it() -> None:
    """Nothing at first; then that the winner wins again, right or wrong."""
    scores = evaluate(duels("ann", "ann", "bob"), CONFIG).scores
    assert column(scores, "kendall_tau") == [0.5, 0.0, 1.0]


def test_experience_is_counted_over_all_rounds_before() -> None:
    """In a player's sixth round, five are behind them."""
    scores = evaluate(duels(*["ann"] * 7), CONFIG).scores
    assert column(scores, "experienced") == [0.0] * 5 + [2.0] * 2


def test_ladders_are_kept_apart() -> None:
    """Each has its own ratings."""
    lines = [as_json(*ranked([1, 2]), round_id=str(i), ladder=name) for i, name in enumerate("aab")]
    found, _ = sessions(*lines)
    assert column(evaluate(found, CONFIG).scores, "kendall_tau") == [0.5, 0.0, 0.5]


def test_uninformative_rounds_count_but_are_not_scored() -> None:
    """They count, so that the first part is the same for every system."""
    lines = (as_json(*ranked(places), round_id=str(places)) for places in ([0, 0], [1, 1], [1, 2]))
    outcome = evaluate(sessions(*lines)[0], EloMMR(weight_limit=0.2, sigma_limit=80.0,
                                                   skip_all_tied=True))  # fmt: skip
    assert column(outcome.scores, "entries") == [0.0, 0.0, 2.0]
    assert outcome.players.tolist() == [2.0, 2.0, 2.0]


def test_the_first_part_builds_experience_only() -> None:
    """floor(train R), whatever floats make of it."""
    assert [trained(30, 0.1), trained(1071, 0.1), trained(9, 0.1), trained(7, 0.0)] == [
        3,
        107,
        0,
        0,
    ]
    outcome = evaluate(SEASON, CONFIG)
    assert len(outcome.scored(0.1)) == 54
    assert np.array_equal(outcome.scored(0.1), outcome.scores[6:])


def test_threads_change_nothing() -> None:
    """Stages side by side give the same scores as one after the other."""
    alone, together = evaluate(SEASON, CONFIG), evaluate(iter(SEASON), CONFIG, threads=True)
    assert np.array_equal(alone.scores, together.scores)


@pytest.mark.parametrize("config", [CONFIG, Topcoder()])
def test_rounds_in_blocks_are_rated_as_one_after_the_other(config: RatingConfig) -> None:
    """Scores come in the order of the season."""
    blocks = list(in_blocks(SEASON))
    assert len(blocks) == 1 and 1 < len(blocks[0].waves) - 1 <= len(SEASON)
    alone, together = evaluate(SEASON, config), evaluate(blocks, config)
    assert np.array_equal(alone.scores, together.scores)
    assert np.array_equal(alone.players, together.players)


def test_rounds_side_by_side_are_rated_as_one_after_the_other() -> None:
    """Those that a round is split into share no player."""
    rng = np.random.default_rng(2)
    dealt = [split(session, 3, rng) for session in SEASON]
    assert np.array_equal(evaluate(dealt, CONFIG).scores, evaluate(singly(dealt), CONFIG).scores)


def test_winners_are_left_out_where_nobody_asks() -> None:
    """The other scores are the same."""
    whole, pairs = (evaluate(SEASON, CONFIG, most_sides=most) for most in (8, 0))
    assert np.array_equal(pairs.scores[:, :OF_PAIRS], whole.scores[:, :OF_PAIRS])
    assert whole.scores[:, OF_PAIRS].all() and not pairs.scores[:, OF_PAIRS:].any()
    assert whole.calibration(0.1) and pairs.calibration(0.1) == []


def test_better_parameters_predict_better() -> None:
    """A ladder that hardly moves calls every pair a coin toss; one that moves knows more."""
    stuck = EloMMR(weight_limit=1e-6, sigma_limit=1.0, initial_sigma=1.0)
    found = [averages(evaluate(SEASON, c).scored(0.2)) for c in (CONFIG, Topcoder(), stuck)]
    losses = [each["log_loss"] for each in found]
    assert losses[2] == pytest.approx(math.log(2.0), abs=0.01)
    assert losses[0] is not None and losses[0] < 0.6
    assert losses[1] is not None and losses[1] < 0.6


# --- the order by what is shown ------------------------------------------------------------------


def test_the_order_is_that_of_mu_or_of_what_is_shown() -> None:
    """Ann won once, and bob every other of many games: by mu she leads, by mu less sigmas he does.
    Probabilities are the same."""
    names = [[f"p{i % 5}", "bob"][:: (-1) ** i] for i in range(60)]
    lines = [as_json(*ranked([1, 2], each), round_id=f"b{i}") for i, each in enumerate(names)]
    lines.append(as_json(*ranked([1, 2], ["ann", "bob"]), round_id="a"))
    lines.append(as_json(*ranked([1, 2], ["bob", "ann"]), round_id="last"))
    found = sessions(*lines)[0]
    config = Glicko(beta=100.0, sigma_drift=5.0, display=MinusSigma(minus_sigma=2.0))
    by_mu, by_display = (evaluate(found, config, by_display=shown) for shown in (False, True))
    assert column(by_mu.scores, "kendall_tau")[-1] == 1.0
    assert column(by_display.scores, "kendall_tau")[-1] == 0.0
    for name in ("log_loss", "brier", "winner_log_loss", "winner_brier"):
        assert column(by_mu.scores, name) == column(by_display.scores, name)


def test_a_display_of_mu_is_mu() -> None:
    """Of teams and of singles."""
    for config in (Glicko(beta=300.0, sigma_drift=35.0, display="mu"), CONFIG):
        shown = structs.replace(config, display="mu")
        assert np.array_equal(
            evaluate(SEASON, shown, by_display=True).scores, evaluate(SEASON, config).scores
        )


def test_a_team_is_shown_by_the_sum_of_its_members() -> None:
    """Newcomers count nothing, however many they are; shares count as they do in mu."""
    two = [{"team": ["ann", "bob"], "shares": [1.0, 0.5], "rank": 1}, {"team": ["cy"], "rank": 2}]
    lines = [as_json(*two, round_id=str(i)) for i in range(2)]
    config = Glicko(beta=300.0, sigma_drift=35.0, display=MinusSigma(minus_sigma=3.0))
    waves = [wave for _, _, wave in Contender(config).rate(sessions(*lines)[0]) if wave is not None]
    first, second = displayed(config, waves[0]).reshape(2, 2)
    assert first.tolist() == pytest.approx([1500.0 - 3.0 * 350.0] * 2)
    mu, sigma = waves[0].mu[3:], waves[0].sigma[3:]
    gains = mu - 1500.0 - 3.0 * (sigma - 350.0)
    level = (gains[0] + 0.5 * gains[1] + gains[2]) / 2.5  # of those present
    due = [gains[0] - level + 0.5 * (gains[1] - level), gains[2] - level]
    assert (second - first).tolist() == pytest.approx(due)
