"""The published differences add up to the rating, however often the past is corrected."""

import json
import random
from collections.abc import Iterator
from itertools import pairwise

import pytest

from stream_rater.config.ladders import ANY_LADDER
from stream_rater.contract.corrections import EVENT_TYPE
from stream_rater.contract.events import RatingChanged, rating_changed_from_json
from stream_rater.pipeline.corrections.correction_work import THRESHOLD
from stream_rater.rating import stages
from stream_rater.replay.corrected import verdicts_of_log
from stream_rater.replay.sequential import Replay
from stream_rater.runtime.embedded import Engine

from .test_corrections import Line, time_of

ROUNDS, CORRECTIONS = 300, 1000
PLAYERS = [f"p{number}" for number in range(20)]
WINDOW = 100_000


def a_season(rng: random.Random) -> Iterator[Line]:
    """Rounds with corrections after every 20 of them: a wave that is applied together, then a
    single one."""
    for number in range(ROUNDS):
        yield {
            "round_id": f"r{number}", "completed_at": time_of(number), "standings": standings(rng),
        }  # fmt: skip
        if number % 20 == 19:
            waves = ROUNDS // 20
            for _ in range(CORRECTIONS // waves):
                yield {**a_correction(rng, number), "batched": True}
            yield {"event_type": "corrections-applied"}
            yield a_correction(rng, number)


def standings(rng: random.Random) -> list[Line]:
    players = rng.sample(PLAYERS, rng.randint(2, 5))
    return [{"rank": rng.randint(1, 3), "player": each} for each in players]


def a_correction(rng: random.Random, number: int) -> Line:
    """Mostly of a recent round, and nearly always one that is accepted."""
    recent = f"r{rng.randrange(max(0, number - rng.choice([20, 300])), number + 1)}"
    amended = {"event_type": "round-amended", "round_id": recent, "standings": standings(rng)}
    if rng.random() < 0.1:  # so small a change that no event is published
        return {**amended, "weight": 0.999}
    if rng.random() < 0.15:
        first = rng.randrange(number)
        return {
            "event_type": "player-removed", "player": rng.choice(PLAYERS[:4]),
            "from": time_of(first), "until": time_of(first + 2),
        }  # fmt: skip
    return {"event_type": "round-voided", "round_id": recent} if rng.random() < 0.1 else amended


@pytest.mark.slow
def test_all_differences_add_up_to_the_rating() -> None:
    """This holds for every player after a season with a thousand corrections. The last published
    rating is the rating that the corrected log gives, within the threshold of an event."""
    engine = Engine(checkpoint_every=20)
    for line in a_season(random.Random(7)):
        kind = line.pop("event_type", "")
        headers = ((EVENT_TYPE, kind.encode()),) if kind else ()
        value = json.dumps({"ladder": "l", **line}).encode()
        engine.log.submit(0, value, headers, received_s=1.8e9, key=b"l")
        engine.settle()
    accepted = engine.log.read().corrections["l"]
    assert len(accepted) >= 0.9 * CORRECTIONS
    events_of: dict[str, list[RatingChanged]] = {}
    for published in engine.log.changed:
        for event in map(rating_changed_from_json, (each.value for each in published)):
            events_of.setdefault(event.player, []).append(event)
    corrected = [each for some in events_of.values() for each in some if each.correction]
    assert len(corrected) > 10 * len(PLAYERS)
    records = engine.log.rounds[0]
    replay = Replay(
        ANY_LADDER, WINDOW, verdicts=verdicts_of_log(lambda: records, ANY_LADDER, WINDOW)
    )
    for _ in replay.run(records):
        pass
    pool = replay.pools["l"]
    rule = stages.rule_of(pool.rating)
    shown = {player: float(rule.rating(each["mu"], each["sigma"])) for player, each in pool}
    start = events_of["p0"][0].previous_rating
    for player, events in events_of.items():
        assert events[0].previous_rating == start
        for before, after in pairwise(events):
            assert (after.previous_mu, after.previous_sigma) == (before.mu, before.sigma)
        gained = sum(each.rating - each.previous_rating for each in events)
        assert start + gained == pytest.approx(events[-1].rating, abs=1e-6)
        assert abs(events[-1].rating - shown.get(player, start)) < THRESHOLD
