"""What `serve` learns about how sure its predictions should be, and what it answers by that."""

import asyncio
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stream_rater.config.ladders import any_ladder
from stream_rater.contract.errors import LogTrouble
from stream_rater.contract.events import rating_changed_from_json
from stream_rater.evaluation.calibrating import Calibration, Learned, Learner
from stream_rater.rating import levels
from stream_rater.rating.systems.two_moment import TwoMoment
from stream_rater.rating.wins import Believed, performances_of
from stream_rater.serve import bodies
from stream_rater.serve.door.calibration import AGAIN_S, Calibrations
from stream_rater.serve.questions import Questions
from tests.builders.indexes import Index
from tests.builders.lines import LADDER, a_correction, a_round
from tests.builders.memory_place import MemoryPlace
from tests.builders.memory_places import a_rated_place

CONFIG, ROUNDS, VOIDED = TwoMoment(), 300, 7


@pytest.fixture(scope="module")
def place() -> MemoryPlace:
    """Duels that chance decides, a two against one in each tenth, and a round that is voided."""
    rng, names = random.Random(5), [f"p{i}" for i in range(12)]
    lines = list[Any]()
    for i in range(ROUNDS):
        one, two, three = rng.sample(names, 3)
        entries = [{"team": [one, two], "rank": 1}, {"player": three, "rank": 2}]
        lines.append(a_round(i, one, two) | ({} if i % 10 else {"standings": entries}))
    lines.append(a_correction("round-voided", round_id=f"r{ROUNDS - VOIDED}"))
    return a_rated_place(lines, any_ladder(CONFIG))


@pytest.fixture
def index(tmp_path: Path, place: MemoryPlace) -> Iterator[Index]:
    found = Index(tmp_path, any_ladder(CONFIG), kept=1000)
    found.apply([rating_changed_from_json(each.value or b"") for each in place.events()])
    yield found
    found.close()


def expected(place: MemoryPlace) -> float:
    """The factor by the last event of each player before each round."""
    learner = Learner(False, Calibration(), Learned(draw_width=False, upset=False))
    known: dict[str, tuple[float, float, int]] = {}
    events = [rating_changed_from_json(each.value or b"") for each in place.events()]
    for i in range(ROUNDS):
        own = [each for each in events if each.offset == i]
        first = [each.player for each in own if each.rank == 1]
        players = [*first, *(each.player for each in own if each.rank == 2)]
        beliefs = [known.get(each, (1500.0, 350.0, 0)) for each in players]
        if i != ROUNDS - VOIDED:
            believed = Believed(*map(np.array, zip(*beliefs, strict=True)))
            starts = np.array([0, len(first), len(players)])
            share = np.ones(len(players))
            began = levels.of_newcomers(CONFIG, starts, share, *believed)
            mu, share = levels.of_one_round(CONFIG, starts, share, began, believed.rounds)
            sides = performances_of(CONFIG, starts, share, mu, believed.sigma)
            at = np.array([i]), np.array([0, 2]), np.array([1, 2], np.int32)
            learner.follow(*at, sides.mu, sides.sigma**2)
        known |= {each.player: (each.mu, each.sigma, each.rounds) for each in own}
    return learner.now.factor


def answers(index: Index, connect: Callable[[], Any], factors: list[float | None]) -> list[Any]:
    """The answers to one question, each after what the last one began; then the troubles."""
    troubles, now_s = list[str](), [0.0]

    async def asked() -> list[Any]:
        learned = Calibrations(
            index.reader, any_ladder(CONFIG), connect, troubles.append, lambda: now_s[0]
        )
        ask = Questions(
            index.reader, any_ladder(CONFIG), lambda: True, lambda: 0.0,
            asyncio.to_thread, lambda: 0.0, learned.of,
        )  # fmt: skip
        found = list[Any]()
        for factor in factors:
            sides = [bodies.SideQuestion(players=[each]) for each in ("p1", "p2")]
            question = bodies.PredictQuestion(sides=sides, variance_factor=factor)
            found.append(await ask.predict(LADDER, question))
            if learned.task is not None:
                await learned.task
            now_s[0] += AGAIN_S
        return [*found, troubles]

    return asyncio.run(asked())


def test_the_factor_is_learned_from_what_was_known_before(index: Index, place: MemoryPlace) -> None:
    """It is that of the ratings before each round. The first answer, and one for which a factor is
    given, are raw."""
    first, second, given, troubles = answers(index, lambda: place, [None, None, 1.0])
    wins = [each.win for each in first.sides]
    assert (first.calibrated, first.calibration, first.raw, troubles) == (False, None, wins, [])
    assert (second.calibrated, second.calibration.rounds) == (True, ROUNDS - 1)
    assert 1.2 < expected(place) == pytest.approx(second.calibration.factor, rel=1e-6)
    assert second.raw == wins and max(wins) > max(each.win for each in second.sides) > 0.5
    assert (given.calibrated, given.raw, [each.win for each in given.sides]) == (False, wins, wins)


def test_a_log_that_fails_leaves_the_last_answer(index: Index, place: MemoryPlace) -> None:
    """Without a calibration the answers stay raw; with one, it stays."""
    broken = iter([True, False, True])

    def connect() -> MemoryPlace:
        if next(broken):
            raise LogTrouble("kafka: down")
        return place

    *found, troubles = answers(index, connect, [None] * 4)
    assert [each.calibrated for each in found] == [False, False, True, True]
    assert found[2] == found[3]
    assert len(troubles) == 2 and "kafka: down" in troubles[0]
