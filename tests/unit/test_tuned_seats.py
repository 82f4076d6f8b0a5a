"""The points of seats as dimensions that `tune` searches."""

from collections.abc import Sequence

import numpy as np
import pytest
from msgspec import structs

from stream_rater.evaluation import spaces
from stream_rater.evaluation.contestants import OwnSystem
from stream_rater.evaluation.fits import LOG_LOSS, Fit
from stream_rater.evaluation.present import Present
from stream_rater.evaluation.season import Session
from stream_rater.rating.parameters import Glicko, TwoMoment, fingerprint
from stream_rater.rating.systems.dimension import fraction_of
from stream_rater.rounds.batch import RoundBatch
from tests.rounds import as_json
from tests.unit.test_season import sessions


def season(seats: Sequence[tuple[str | None, str | None]], home_wins: float = 0.6) -> list[Session]:
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


def batches(found: list[Session]) -> list[RoundBatch]:
    return [each.rounds for each in found]


@pytest.mark.parametrize(("seats", "due"), [
    ([("home", "away")], ("home",)),  # away keeps 0 points
    ([("white", "black"), ("white", "black")], ("white",)),
    ([("home", "away"), (None, None)], ("home",)),
    ([("home", None)], ("home",)),
    ([("home", None), ("home", "away")], ("away", "home")),
    ([("home", "home")], ()),
    ([(None, None)], ()),
    ([(f"a{k}", f"b{k}") for k in range(5)], ()),  # more than MOST_SEATS are no seats
])  # fmt: skip
def test_which_seats_are_tuned(seats: list[tuple[str, str]], due: tuple[str, ...]) -> None:
    """All that rounds name, but one if every entry has a seat: only differences matter."""
    assert spaces.seats_to_tune(batches(season(seats))) == due


def test_no_rounds_name_no_seats() -> None:
    assert spaces.seats_to_tune([]) == ()


def test_the_points_come_into_the_configuration() -> None:
    """Beside the dimensions of the system, which know nothing of seats."""
    found = spaces.configuration("elo-r", {"delta": 300.0, "seats.home": 40.0, "seats.b": -2.5})
    assert found.seats == {"home": 40.0, "b": -2.5}
    (dimension,) = spaces.seat_dimensions(["home"])
    assert dimension.parameter == "seats" and dimension.at(fraction_of(dimension, 0.0)) == 0.0


def test_the_search_finds_who_has_an_advantage() -> None:
    """The first side wins 70 % of the rounds of equal players. Then the loss is least where the
    points say so, as exactly as so many rounds show."""
    rounds = season([("home", "away")] * 600, home_wins=0.7)
    problem = Fit(OwnSystem("glicko").on(rounds), rounds, LOG_LOSS)
    (at,) = (i for i, each in enumerate(problem.space) if each.name == "seats.home")
    costs = {}
    for points in (-100.0, 0.0, 100.0, 200.0, 300.0):
        point = problem.start()
        point[at] = fraction_of(problem.space[at], points)
        config = problem.config(point)
        assert config.seats == {"home": points}
        costs[points] = problem.cost(point)
    assert min(costs, key=lambda points: costs[points]) in (100.0, 200.0)
    assert costs[0.0] > costs[100.0] + 10.0 < costs[-100.0]


def test_a_ladder_begins_with_its_own_points() -> None:
    """What is tuned replaces the points of the seats that the rounds name, and keeps the others."""
    rating = TwoMoment(seats={"home": 60.0, "gym": 5.0})
    present = Present(rating).on(season([("home", "away")]))
    start = {each.name: each.start for each in present.space}
    assert start["seats.home"] == 60.0
    assert present.config(start) == rating
    tuned = present.config({**start, "seats.home": 40.0})
    assert tuned == structs.replace(rating, seats={"home": 40.0, "gym": 5.0})
    assert fingerprint(tuned) != fingerprint(rating)
    assert Present(Glicko(beta=200.0, sigma_drift=35.0)).fields == ()
