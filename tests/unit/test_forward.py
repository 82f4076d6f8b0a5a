"""Games played forward: nothing that is scored has a say in what predicts it."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from stream_rater.evaluation import forward, tuning
from stream_rater.evaluation.accuracy import average
from stream_rater.evaluation.contestants import OwnSystem, PeerSystem
from stream_rater.evaluation.fits import DEFAULT, LOG_LOSS
from stream_rater.evaluation.forward import ORDER, USUAL_DIMENSIONS, fit, trials_of
from stream_rater.evaluation.game import Game, games_of
from stream_rater.evaluation.research.synthetic import Kind, season
from stream_rater.evaluation.season import Session
from stream_rater.evaluation.sides import Run
from stream_rater.rating.systems.dimension import Dimension

SEASON = list(season(Kind(players=30, rounds=150, per_round=12), 3))
GLICKO = OwnSystem("glicko")


def game(rounds: list[Session] = SEASON) -> Game:
    (found,) = games_of("made up", rounds)
    return found


def turned(session: Session) -> Session:
    """The last come first."""
    return replace(session, rows=session.rows[::-1].copy())


@pytest.mark.parametrize("until", [15, 60, 100])
def test_no_later_round_has_a_say(until: int) -> None:
    """Whatever happens from a round on, those before it are predicted alike: the first part's
    parameters, what was followed, and what was found on the way."""
    other = [*SEASON[:until], *map(turned, SEASON[until:])]
    (mine, scored), (theirs, others) = fit(GLICKO, game(), 40), fit(GLICKO, game(other), 40)
    for one, another in zip(mine.variants, theirs.variants, strict=True):
        assert one.log_loss != another.log_loss
    assert mine.won == theirs.won
    for aim in (DEFAULT, LOG_LOSS):
        before, after = scored[aim][: until - 15], others[aim][: until - 15]
        assert np.array_equal(before, after)
        assert not np.array_equal(scored[aim], others[aim])
    assert until > 15 or mine.of(DEFAULT).first_log_loss == theirs.of(DEFAULT).first_log_loss


def test_the_first_part_has_a_say() -> None:
    """Other rounds there, other predictions of all later ones."""
    other = [*map(turned, SEASON[:7]), *SEASON[7:]]
    (_, mine), (_, theirs) = fit(GLICKO, game(), 20), fit(GLICKO, game(other), 20)
    assert not np.array_equal(mine[LOG_LOSS][:2], theirs[LOG_LOSS][:2])


class Stepwise:
    """A system whose one parameter fits only a time of the season: the mean of its first sides
    depends on the number of the round."""

    name, space = "stepwise", (Dimension("at", 0.0, 1.0, 0.1, "linear"),)

    def __init__(self) -> None:
        self.plays: list[tuple[int, float]] = []

    def config(self, values: Mapping[str, float]) -> Any:
        return values["at"]

    def play(self, sessions: Iterable[Session], config: Any) -> Run:
        run = GLICKO.play(sessions, GLICKO.config({"beta": 300.0, "sigma_drift": 9.0}))
        self.plays.append((len(run.sides.number), config))
        now = np.repeat(run.sides.number, run.sides.sizes) / 150.0
        worse = run.sides.variance * (1.0 + 40.0 * np.abs(now - config)) ** 2
        return run._replace(sides=type(run.sides)(*[
            worse if name == "variance" else getattr(run.sides, name)
            for name in type(run.sides).__struct_fields__
        ]))  # fmt: skip

    def described(self, config: Any) -> dict[str, Any]:
        return {"at": config}


def test_parameters_are_followed_to_where_they_fit() -> None:
    """The last ones suit the end of the season, and the gain is what they gained."""
    found, scored = fit(Stepwise(), game(), 60)
    assert found.changes > 0
    assert found.of(LOG_LOSS).config["at"] > found.of(DEFAULT).config["at"]
    gain = found.gain
    assert gain.followed == average(scored[LOG_LOSS], LOG_LOSS) == found.of(LOG_LOSS).log_loss
    assert gain.default == average(scored[DEFAULT], LOG_LOSS) == found.of(DEFAULT).log_loss
    assert gain.followed is not None and gain.validated is not None
    assert gain.followed < gain.validated


def test_a_search_on_the_way_sees_the_rounds_so_far(monkeypatch: pytest.MonkeyPatch) -> None:
    """At a third and at two thirds of the rounds that are scored."""
    seen = list[int]()
    own = tuning.refined

    def watched(problem: Any, point: Any, trials: int) -> Any:
        seen.append(sum(len(each.rounds) for each in problem.first))
        return own(problem, point, trials)

    monkeypatch.setattr(forward, "refined", watched)
    fit(GLICKO, game(), 20)
    assert seen == pytest.approx([15 + 135 / 3, 15 + 135 * 2 / 3], abs=5)


class Diverging(Stepwise):
    """A system whose ratings diverge in later rounds except by its first guess."""

    name = "diverging"

    def play(self, sessions: Iterable[Session], config: Any) -> Run:
        rounds = list(sessions)
        if config != 0.1 and max(int(each.numbers.max()) for each in rounds) > 20:
            raise ArithmeticError("beliefs are no numbers")
        return super().play(rounds, config)


def test_points_that_diverge_later_are_not_followed() -> None:
    """The first guess predicts all rounds then."""
    found, _ = fit(Diverging(), game(), 30)
    assert found.changes == 0 and found.of(LOG_LOSS).config == {"at": 0.1}


def test_effort_is_alike_for_each_dimension() -> None:
    """Of ours and of peers."""
    for system in (OwnSystem("two-moment"), PeerSystem("openskill-plackett-luce")):
        each = 100 / USUAL_DIMENSIONS
        assert trials_of(system, 100) == pytest.approx(each * len(system.space))


def test_order_is_measured_beside() -> None:
    """Of the very predictions that have the log loss."""
    found, scored = fit(GLICKO, game(), 20)
    assert found.of(LOG_LOSS).order == average(scored[LOG_LOSS], ORDER)
    assert len(scored[LOG_LOSS]) == 135
