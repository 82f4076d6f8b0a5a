"""How sure a ladder's predictions are follows from its rounds alone."""

import random
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import numpy as np
import pytest

from stream_rater import Ladder
from stream_rater.config.ladders import BETTER_RATING
from stream_rater.evaluation.calibrating import factor_of
from stream_rater.evaluation.season import sessions_of
from stream_rater.evaluation.sides import own_run
from stream_rater.library.learned_factor import LEAST_STEP, WINDOW
from stream_rater.rating.parameters import EloMMR, Glicko, RatingConfig
from stream_rater.rating.wins import Performances
from tests.builders.cases import cases, tag
from tests.builders.commands import as_file
from tests.builders.lines import a_record, a_round
from tests.property.test_notebook import ladder_of

SYSTEMS = (
    BETTER_RATING,
    EloMMR(weight_limit=0.2, sigma_limit=80.0),
    Glicko(beta=280.0, sigma_drift=35.0, draw_width=50.0),
)
PAIR = ["p1", "p2"]


def by_chance(most: int) -> Iterator[list[str]]:
    """Rounds of two to `most` players in which chance alone decides."""
    rng = random.Random(1)
    while True:
        yield rng.sample([f"p{k}" for k in range(20)], rng.randint(2, most))


def followed(rating: RatingConfig, rounds: list[list[str]], asked: int) -> Ladder:
    """A ladder that rates these rounds one by one, and is asked for every so many of them."""
    ladder = ladder_of(rating)
    for number, players in enumerate(rounds):
        ladder.rate(players, completed_at=a_round(number)["completed_at"])
        if number % asked == 0:
            ladder.predict(players).win.sum()
    return ladder


@cases("rating", SYSTEMS, tag)
def test_it_does_not_matter_when_and_how_rounds_come(rating: RatingConfig, tmp_path: Path) -> None:
    """The same from a file and one by one, asked often or once, by duels and by other rounds; and
    as `evaluate` sees the rounds of the window, of which the latest ones are not yet in."""
    for most, count in (2, WINDOW + 700), (6, 300):
        rounds = list(islice(by_chance(most), count))
        lines = [a_round(number, *players) for number, players in enumerate(rounds)]
        filed = ladder_of(rating)
        filed.rate_file(as_file(tmp_path / "rounds.jsonl", lines))
        found = [filed, followed(rating, rounds, count), followed(rating, rounds, 37)]
        said = [repr(each.predict(sides)) for each in found for sides in (PAIR, [["p1"], ["p2"]])]
        assert len({*said}) == 1, said
        first = found[0].predict(PAIR)
        pairs = np.cumsum([0.5 * len(each) for each in rounds])
        step = 512 if most == 2 else 128
        level = pairs[-1] // step * step
        records = [a_record(number, line) for number, line in enumerate(lines)]
        sides = own_run(sessions_of(records, 10, lambda *_: None), rating).sides
        sides = sides.take(np.argsort(sides.number))
        kept = sides.take(np.flatnonzero((pairs > level - WINDOW) & (pairs <= level)))
        performed = Performances(kept.mu, np.sqrt(kept.variance), rating.drawn_within)
        factor = factor_of(kept.starts, kept.place, performed)
        assert first.variance_factor == pytest.approx(factor, rel=1e-12)
        assert first.learned_from == len(kept.sizes) < count


def test_what_chance_decides_is_predicted_less_surely() -> None:
    """`raw` is the model; so is `win` with a factor of 1, and as long as too little is known."""
    for rating in SYSTEMS:
        few = followed(rating, list(islice(by_chance(2), LEAST_STEP - 1)), 1)
        assert few.predict(PAIR).learned_from == 0 and few.predict(PAIR).variance_factor == 1.0
        ladder = followed(rating, list(islice(by_chance(2), 600)), 600)
        for sides in (PAIR, [["p1", "p3"], ["p2"]]):
            found, model = ladder.predict(sides), ladder.predict(sides, variance_factor=1)
            assert found.variance_factor > 2.0 and model.learned_from == 0
            assert found.raw.tolist() == model.win.tolist() == model.raw.tolist()
            assert abs(found.win[0] - found.win[1]) < abs(found.raw[0] - found.raw[1])
            assert found.draw == pytest.approx(model.draw, abs=0.01)
            assert f"calibrated by {found.learned_from} rounds" in repr(found)
