"""What is shown follows the result: a victory does not lower it, and a defeat does not raise it, up
to the bounds that `reference/ladders.md` states ("What is shown")."""

import gzip
import math
from itertools import groupby, islice
from pathlib import Path

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stream_rater.columns.arrays import Floats
from stream_rater.config.ladders import Ladder, any_ladder
from stream_rater.contract.record import Record
from stream_rater.rating import stages
from stream_rater.rating.parameters import (
    Bar,
    EloMMR,
    EloMMX,
    EloR,
    Glicko,
    MinusSigma,
    RatingConfig,
    Topcoder,
    TrueSkill,
    TwoMoment,
)
from stream_rater.replay.pool import ONE_WAVE, Pool
from stream_rater.replay.rating_changes import changes_of
from stream_rater.replay.sequential import Replay
from stream_rater.runtime.selfcheck import SYSTEMS
from tests.rounds import day, ranked, read

DRIFTING: tuple[RatingConfig, ...] = (
    TwoMoment(),
    EloMMR(weight_limit=0.2, sigma_limit=80.0, drift_per_day=50.0),
    EloMMR(beta=200.0, gamma=20.0, drift_per_day=50.0, rho="inf"),
    EloMMX(weight_limit=0.2, sigma_limit=80.0, drift_per_day=50.0),
)
CAUTIOUS = (*SYSTEMS, *DRIFTING, TwoMoment(display=MinusSigma(minus_sigma=3.0)))
ROUNDED = 2.5e-4
"""Points: float32 of a rating below 4096 is 2.4e-4 apart."""
OF_SIGMA = 2e-4
"""The same of sigma, and what TrueSkill's tolerance leaves open."""


def ids(config: RatingConfig) -> str:
    return str(config.__struct_config__.tag)


def test_which_number_is_shown() -> None:
    """Where sigma rises by the day, mu; an explicit display holds all the same; all else as it
    was."""
    for config in DRIFTING:
        assert stages.rule_of(config).rating(1400.0, 300.0) == 1400.0
        table = {**msgspec.structs.asdict(config), "display": MinusSigma(minus_sigma=3.0)}
        assert stages.rule_of(type(config)(**table)).rating(1400.0, 300.0) == 500.0
    for config, shown in (
        (EloMMR(weight_limit=0.2, sigma_limit=80.0), 960.0),
        (EloMMX(weight_limit=0.2, sigma_limit=80.0), 960.0),
        (EloR(), 1000.0),
        (Glicko(beta=200.0, sigma_drift=35.0), 800.0),
        (TwoMoment(drift_per_day=0.0), 800.0),
        (Topcoder(), 800.0),
    ):
        assert stages.rule_of(config).rating(1500.0, 350.0) == shown


def drift(config: RatingConfig, days: Floats) -> Floats:
    """The variance that is added to a player before a duel of weight 1, after these days."""
    if isinstance(config, EloMMR | EloMMX | EloR):
        weight, sigma = config.limits
        by_day = 0.0 if isinstance(config, EloR) else config.drift_per_day
        return weight * sigma**2 + by_day * days
    if isinstance(config, Glicko | Bar | TrueSkill):
        return np.full(len(days), config.sigma_drift**2)
    if isinstance(config, TwoMoment):
        return config.sigma_drift**2 + config.drift_per_day * days
    return np.zeros(len(days))


@pytest.mark.parametrize("config", CAUTIOUS, ids=ids)
@given(seed=st.integers(0, 2**32 - 1))
@settings(max_examples=12, deadline=None)
def test_random_histories_of_duels(config: RatingConfig, seed: int) -> None:
    """Of five players who are far apart, or not, with pauses up to years."""
    rng = np.random.default_rng(seed)
    pool, rule = Pool(Ladder(rating=config)), stages.rule_of(config)
    skill = rng.normal(0.0, 10.0 ** rng.uniform(0.0, 3.0), 5)
    at, last = 0, dict.fromkeys(range(5), 0)
    for number in range(40):
        at += int(rng.choice([0, 1, 30, 700]))
        pair = rng.permutation(5)[:2]
        if rng.random() < 1.0 / (1.0 + math.exp(-(skill[pair[1]] - skill[pair[0]]) / 200.0)):
            pair = pair[::-1]
        standings = read(config, *ranked([1, 2], [f"p{i}" for i in pair]), completed_at=day(at))
        rows = pool.rows(standings.batch.names)
        result = pool.rate_rows(standings.batch, rows, ONE_WAVE, np.array([number]))
        published, after = result.published, result.after
        gain = after.mu - published.mu
        assert gain[0] >= -ROUNDED and gain[1] <= ROUNDED
        shown = rule.rating(after.mu, after.sigma) - rule.rating(published.mu, published.sigma)
        if isinstance(config, Topcoder):
            continue  # its sigma is a volatility
        days = np.array([at - last[i] for i in pair.tolist()]) * (result.wave.rounds > 0)
        rise = np.sqrt(published.sigma**2 + drift(config, days)) - published.sigma
        fall = np.maximum(published.sigma - after.sigma, 0.0)
        assert shown[0] >= -rule.shown_sigmas * (rise[0] + OF_SIGMA) - ROUNDED
        assert shown[1] <= rule.shown_sigmas * (fall[1] + OF_SIGMA) + ROUNDED
        last |= dict.fromkeys(pair.tolist(), at)


@pytest.mark.parametrize("config", DRIFTING, ids=ids)
@pytest.mark.parametrize("name", ["clubs", "cwl", "frc"])
def test_real_seasons(shared: Path, config: RatingConfig, name: str) -> None:
    """The first rounds of real games between two sides: duels and teams, years of them."""
    with gzip.open(shared / "data" / f"{name}.jsonl.gz") as file:
        lines = list(islice(file, 6000))
    records = [Record(0, i, line, received_s=math.inf) for i, line in enumerate(lines)]
    seen = 0
    for batch in Replay(any_ladder(config), len(lines)).run(records):
        for round_id, changes in groupby(changes_of(batch), lambda each: each.round_id):
            sides = list(changes)
            if {each.rank for each in sides} != {1, 2}:
                continue  # a tie
            for each in sides:
                gain = each.rating - each.previous_rating
                assert gain >= -ROUNDED if each.rank == 1 else gain <= ROUNDED, round_id
            seen += 1
    assert seen > 3000
