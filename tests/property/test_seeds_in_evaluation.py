"""Seeds and resets in `evaluation`: they are applied, and never scored."""

import random
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

from stream_rater.config.ladders import ANY_LADDER, any_ladder
from stream_rater.evaluation.evaluation import Contender, evaluate
from stream_rater.evaluation.season import Session, before, sessions_of, singly
from stream_rater.rating.parameters import Elo, EloMMR, RatingConfig
from stream_rater.replay.corrected import verdicts_of_log
from stream_rater.replay.edited_log import records_of
from stream_rater.replay.player_index import PlayerIndex
from stream_rater.replay.sequential import Replay
from tests import edited_by_hand
from tests.builders.lines import Line, a_round, a_seed

from .test_corrections import WINDOW, as_lines

CONFIG = EloMMR(weight_limit=0.2, sigma_limit=80.0, seats={"home": 45.0})
LADDER = edited_by_hand.LADDER


def a_log(rng: random.Random, size: int) -> list[Line]:
    """A log without seasons, which `evaluation` does not know."""
    log = edited_by_hand.a_log(rng, size, seeds=True)
    return [each for each in log if each.get("event_type") != "season-started"]


def sessions(log: list[Line]) -> tuple[list[Session], dict[str, PlayerIndex]]:
    """The sessions of a log as its corrections edit it, and the players of each ladder."""
    lines, players = as_lines(log), dict[str, PlayerIndex]()
    verdicts = verdicts_of_log(lambda: records_of(lines), ANY_LADDER, WINDOW)
    found = sessions_of(records_of(lines), WINDOW, lambda *_: None, players, verdicts=verdicts)
    return list(found), players


def replayed(log: list[Line], config: RatingConfig) -> dict[str, tuple[float, ...]]:
    """Mu, sigma and rounds of each player after the log's last round."""
    lines = as_lines(log)
    verdicts = verdicts_of_log(lambda: records_of(lines), ANY_LADDER, WINDOW)
    replay, found = Replay(any_ladder(config), WINDOW, verdicts=verdicts), {}
    for batch in replay.run(records_of(lines)):
        for rated in batch.rated:
            header = rated.pool.headers(np.arange(len(rated.pool)))
            columns = (header[name].tolist() for name in ("mu", "sigma", "rounds"))
            found = dict(zip(rated.pool.players(), zip(*columns, strict=True), strict=True))
    return found


def believed(
    found: list[Session], players: dict[str, PlayerIndex], config: RatingConfig
) -> dict[str, tuple[float, ...]]:
    """The same after these sessions."""
    contender = Contender(config)
    for _ in contender.rate(found):
        pass
    pool = contender._pools[LADDER]
    header = pool.headers(np.arange(found[-1].players))
    columns = (header[name].tolist() for name in ("mu", "sigma", "rounds"))
    names = players[LADDER].names(np.arange(found[-1].players)).texts()
    both = zip(names, zip(*columns, strict=True), strict=True)
    return {name: values for name, values in both if values[2]}


@settings(max_examples=30, deadline=None)
@given(
    seed=st.integers(0, 2**32), size=st.integers(6, 40), block=st.sampled_from([1, 10_000]),
    config=st.sampled_from([CONFIG, Elo.sample()]),
)  # fmt: skip
def test_beliefs_are_those_of_a_replay(
    seed: int, size: int, block: int, config: RatingConfig
) -> None:
    """However many rounds are read together, and if each round is a session of its own. Each round
    is scored, and nothing else is."""
    log = a_log(random.Random(seed), size)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("stream_rater.evaluation.season.BLOCK_BYTES", block)
        found, players = sessions(log)
    due = replayed(log, config)
    assert believed(found, players, config) == due
    assert believed(singly(found), players, config) == due
    assert len(evaluate(found, config).scores) == sum(len(each.rounds) for each in found)


def test_the_first_round_of_a_seeded_player_is_predicted_by_the_seed() -> None:
    """With its mu, its sigma and its number of rounds; also where a system counts the rounds by
    itself."""
    found, _ = sessions([a_seed(0, "a", mu=1700.0, sigma=90.0, rounds=7), a_round(1, "a", "b")])
    for config in (CONFIG, structs.replace(CONFIG, skip_all_tied=True)):
        ((_, _, wave),) = list(Contender(config).rate(found))
        assert wave is not None
        assert (wave.mu[0], wave.sigma[0], wave.rounds.tolist()) == (1700.0, 90.0, [7, 0])


def test_a_seed_is_cut_to_what_a_configuration_can_have() -> None:
    """A sigma above its initial one, and a mu below its floor."""
    found, _ = sessions([a_seed(0, "a", mu=1100.0, sigma=300.0), a_round(1, "a", "b")])
    narrow = EloMMR(weight_limit=0.2, sigma_limit=80.0, initial_sigma=200.0)
    ((_, _, wave),) = list(Contender(narrow).rate(found))
    assert wave is not None and (wave.mu[0], wave.sigma[0]) == (1100.0, 200.0)
    climbing = Elo(learning_rate=32.0, scale=174.0, floor=1200.0)
    ((_, _, wave),) = list(Contender(climbing).rate(found))
    assert wave is not None and (wave.mu[0], wave.sigma[0]) == (1200.0, climbing.initial_sigma)


def test_seeds_of_other_ladders_and_after_the_last_round_are_left_out() -> None:
    """They predict nothing. The first rounds of a season keep the seeds before them."""
    other = {**a_seed(3, "a", mu=1800.0), "ladder": "other"}
    log = [
        a_seed(0, "a", mu=1700.0),
        other,
        a_round(1, "a", "b"),
        a_round(2, "b", "a"),
        a_seed(4, "a", mu=1.0),
    ]
    found, players = sessions(log)
    assert len(found[0].seeds) == sum(len(each.seeds) for each in found) == 1
    assert before(found, 1)[0].seeds == found[0].seeds
    without = [replace(each, seeds=()) for each in found]
    assert believed(found, players, CONFIG) != believed(without, players, CONFIG)
