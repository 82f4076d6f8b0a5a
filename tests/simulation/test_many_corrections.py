"""A season with a thousand corrections: what was told adds up."""

import random

import msgspec
import pytest

from stream_rater.contract.corrections import EVENT_TYPE
from stream_rater.contract.events import rating_changed_from_json
from stream_rater.rating import systems

from . import oracle
from .actors import PRODUCTION
from .simulator import WINDOW
from .stage import Stage

PLAYERS = [f"p{n}" for n in range(30)]
CORRECTIONS, AT_ONCE = 1000, 250


@pytest.mark.slow
def test_differences_told_add_up_to_the_rating() -> None:
    """For every player, after each event: the initial rating and all differences told are the
    rating; and the last of them is that of a replay of the edited log."""
    rng, stage = random.Random(1), Stage(PRODUCTION)
    estimator, updater = stage.estimator(), stage.updater()
    sent = 0
    while sent < CORRECTIONS:
        for _ in range(8):
            _round(stage, rng)
        for _ in range(AT_ONCE):
            sent += 1
            _correct(stage, rng)
        stage.correct("corrections-applied")
        while not oracle.is_done(stage.log, stage.store):
            stage.perform(estimator)
            stage.perform(updater)
    assert not oracle.violations(
        stage.log, stage.store, stage.ladders, WINDOW, stage.once, rebuilt=False
    )
    rule = systems.rule_of(stage.ladders.ladders["a"].rating)
    initial = rule.rating(rule.initial_mu, rule.initial_sigma)
    sums, told = dict.fromkeys(PLAYERS, initial), 0
    for shard in stage.log.changed:
        for event in map(rating_changed_from_json, (each.value for each in shard)):
            assert event.previous_rating == sums[event.player]
            sums[event.player] = event.rating
            told += event.correction is not None
    assert told > AT_ONCE


def _round(stage: Stage, rng: random.Random) -> None:
    stage._rounds += 1
    day, hour = divmod(stage._rounds, 24)
    standings = [{"player": each, "rank": i} for i, each in enumerate(rng.sample(PLAYERS, 4), 1)]
    event = {
        "round_id": f"r{stage._rounds}", "ladder": "a", "standings": standings,
        "completed_at": f"2026-01-{day + 1:02}T{hour:02}:00:00Z",
    }  # fmt: skip
    stage.report(msgspec.json.encode(event))


def _correct(stage: Stage, rng: random.Random) -> None:
    """Any correction; most are right, since rounds and players are there."""
    some = f"r{rng.randrange(1, stage._rounds + 1)}"
    kind = rng.choice(["round-voided", "round-amended", "round-amended", "player-removed"])
    about: dict[str, object] = {
        "round-voided": {"round_id": some},
        "round-amended": {
            "round_id": some,
            "standings": [
                {"player": each, "rank": i} for i, each in enumerate(rng.sample(PLAYERS, 4), 1)
            ],
        },
        "player-removed": {
            "player": rng.choice(PLAYERS),
            "from": "2026-01-01T05:00:00Z",
            "until": "2026-01-01T06:00:00Z",
        },
    }[kind]  # type: ignore[assignment]
    if rng.random() < 0.95:
        about["batched"] = True
    value = msgspec.json.encode({"ladder": "a", **about})
    stage.log.submit(0, value, [(EVENT_TYPE, kind.encode())], received_s=1.8e9)
