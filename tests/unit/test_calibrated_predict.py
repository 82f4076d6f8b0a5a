"""What `serve` learns about how sure its predictions should be, and what it answers by that."""

import asyncio
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

from stream_rater.config.ladders import any_ladder
from stream_rater.contract.errors import LogTrouble
from stream_rater.contract.events import rating_changed_from_json
from stream_rater.rating.systems.two_moment import TwoMoment
from stream_rater.serve import bodies
from stream_rater.serve.door.calibration import AGAIN_S, Calibrations
from stream_rater.serve.questions import Questions
from tests.builders.indexes import Index
from tests.builders.lines import LADDER, a_correction, a_round
from tests.builders.memory_place import MemoryPlace
from tests.builders.memory_places import a_rated_place

ANY, ROUNDS = any_ladder(TwoMoment()), 300


def a_place() -> MemoryPlace:
    """Duels that chance decides, one against two in each tenth, and a round that is voided."""
    rng, lines = random.Random(5), list[Any]()
    for i in range(ROUNDS):
        one, two, three = rng.sample([f"p{i}" for i in range(12)], 3)
        entries = [{"player": one, "rank": 1}, {"team": [two, three], "rank": 2}]
        lines.append(a_round(i, one, two) | ({} if i % 10 else {"standings": entries}))
    return a_rated_place([*lines, a_correction("round-voided", round_id="r290")], ANY)


def answers(where: Path, connect: Callable[[], Any], factors: list[float | None]) -> list[Any]:
    """The answers to one question, each after what the last one began; then the troubles."""
    troubles, now_s, index = list[str](), [0.0], Index(where, ANY, kept=1000)
    index.apply([rating_changed_from_json(each.value or b"") for each in a_place().events()])

    async def asked() -> list[Any]:
        learned = Calibrations(index.reader, ANY, connect, troubles.append, lambda: now_s[0])
        ask = Questions(
            index.reader, ANY, lambda: True, lambda: 0.0, asyncio.to_thread, lambda: 0.0, learned.of
        )
        found, sides = list[Any](), [bodies.SideQuestion(players=[each]) for each in ("p1", "p2")]
        for factor in factors:
            question = bodies.PredictQuestion(sides=sides, variance_factor=factor)
            found.append(await ask.predict(LADDER, question))
            assert learned.task is not None
            await learned.task
            now_s[0] += 2.0 * AGAIN_S
        return [*found, troubles]

    found = asyncio.run(asked())
    index.close()
    return found


def test_the_factor_is_learned_from_ratings_before_each_round(tmp_path: Path) -> None:
    """By those after it, chance seems to be skill. Raw: the first answer, and a given factor."""
    first, then, given, troubles = answers(tmp_path, a_place, [None, None, 1.0])
    raw = [each.win for each in first.sides]
    assert (first.calibrated, first.calibration, first.raw, troubles) == (False, None, raw, [])
    assert (then.calibrated, then.calibration.rounds, then.raw) == (True, ROUNDS - 1, raw)
    assert then.calibration.factor > 2.0 and max(raw) > max(each.win for each in then.sides) > 0.5
    assert (given.calibrated, given.raw, [each.win for each in given.sides]) == (False, raw, raw)


def test_a_log_that_fails_leaves_the_last_answer(tmp_path: Path) -> None:
    """Without a calibration the answers stay raw; with one, it stays. The reason is logged."""
    broken = iter([True, False, True])

    def connect() -> MemoryPlace:
        if next(broken):
            raise LogTrouble("kafka: down")
        return a_place()

    *found, troubles = answers(tmp_path, connect, [None] * 4)
    assert [each.calibrated for each in found] == [False, False, True, True]
    assert found[2] == found[3] and "kafka: down" in troubles[1]
