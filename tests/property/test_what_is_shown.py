"""What is shown follows the result, up to the bounds of `reference/ladders.md` ("What is shown").

That is for both sides of a match; in a larger round, for the side that is first, or last, alone.
"""

import gzip
import math
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any, Final, Literal

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stream_rater.columns.arrays import Flags, Floats
from stream_rater.columns.ranges import bounds
from stream_rater.config.ladders import any_ladder
from stream_rater.contract.record import Record
from stream_rater.rating import parameters, stages
from stream_rater.rating.model import DID_NOT_FINISH
from stream_rater.replay.pool import ONE_WAVE, Pool
from stream_rater.replay.rating_changes import numbers_of
from stream_rater.replay.sequential import Rated, Replay
from stream_rater.runtime.selfcheck import SYSTEMS
from tests.builders.cases import cases, tag
from tests.rounds import Reader, day, ranked, read

DRIFTING: tuple[parameters.RatingConfig, ...] = (
    parameters.TwoMoment(),
    parameters.EloMMR(weight_limit=0.2, sigma_limit=80.0, drift_per_day=50.0),
    parameters.EloMMR(beta=200.0, gamma=20.0, drift_per_day=50.0, rho="inf"),
    parameters.EloMMX(weight_limit=0.2, sigma_limit=80.0, drift_per_day=50.0),
)
CAUTIOUS = (
    *SYSTEMS,
    *DRIFTING,
    parameters.TwoMoment(display=parameters.MinusSigma(minus_sigma=3.0)),
)
ROUNDED = 2.5e-4  # Points: float32 below 4096 has steps of 2.4e-4.
OF_SIGMA = 2e-4  # Of sigma, with what TrueSkill's tolerance leaves open.


def test_which_number_is_shown() -> None:
    """Where sigma rises by the day, mu is shown, unless the ladder sets `display`."""
    for config in DRIFTING:
        assert stages.rule_of(config).rating(1400.0, 300.0) == 1400.0
        table = {
            **msgspec.structs.asdict(config),
            "display": parameters.MinusSigma(minus_sigma=3.0),
        }
        assert stages.rule_of(type(config)(**table)).rating(1400.0, 300.0) == 500.0
    for config, shown in (
        (parameters.EloMMR(weight_limit=0.2, sigma_limit=80.0), 960.0),
        (parameters.EloMMX(weight_limit=0.2, sigma_limit=80.0), 960.0), (parameters.EloR(), 1000.0),
        (parameters.Glicko(beta=200.0, sigma_drift=35.0), 800.0), (parameters.Topcoder(), 800.0),
        (parameters.TwoMoment(drift_per_day=0.0), 800.0),
    ):  # fmt: skip
        assert stages.rule_of(config).rating(1500.0, 350.0) == shown


def drift(config: parameters.RatingConfig, days: Floats) -> Floats:
    """The variance that these days add to a player before a duel of weight 1."""
    if isinstance(config, parameters.EloMMR | parameters.EloMMX | parameters.EloR):
        weight, sigma = config.limits
        by_day = 0.0 if isinstance(config, parameters.EloR) else config.drift_per_day
        return weight * sigma**2 + by_day * days
    if isinstance(config, parameters.Glicko | parameters.Bar | parameters.TrueSkill):
        return np.full(len(days), config.sigma_drift**2)
    if isinstance(config, parameters.TwoMoment):
        return config.sigma_drift**2 + config.drift_per_day * days
    return np.zeros(len(days))


@given(seed=st.integers(0, 2**32 - 1))
@settings(max_examples=5, deadline=None)
@cases("config", CAUTIOUS, tag)
def test_random_histories_of_duels(config: parameters.RatingConfig, seed: int) -> None:
    """Of five players, near to each other or far apart, with pauses of up to years."""
    rng = np.random.default_rng(seed)
    pool, rule = Pool(config), stages.rule_of(config)
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
        if isinstance(config, parameters.Topcoder):
            continue  # its sigma is a volatility
        days = np.array([at - last[i] for i in pair.tolist()]) * (result.wave.rounds > 0)
        rise = np.sqrt(published.sigma**2 + drift(config, days)) - published.sigma
        fall = np.maximum(published.sigma - after.sigma, 0.0)
        assert shown[0] >= -rule.shown_sigmas * (rise[0] + OF_SIGMA) - ROUNDED
        assert shown[1] <= rule.shown_sigmas * (fall[1] + OF_SIGMA) + ROUNDED
        last |= dict.fromkeys(pair.tolist(), at)


# --- the rounds of real games: every system with its defaults -------------------------------------

LINES: Final = {
    "clubs": 3000, "cwl": 3000, "frc": 3000, "formula-one": 1200, "map-rando": 1600,
    "codeforces": 4,
}  # fmt: skip
"""How many rounds of each file are rated."""


def won_and_lost(rated: Rated) -> tuple[Flags, Flags]:
    """(P,) whether each player's side is alone first, and alone last. Entries come by place."""
    rounds = rated.rounds
    place = rounds.place.astype(np.int64)
    place[place == DID_NOT_FINISH] = np.iinfo(np.int64).max
    starts = bounds(rounds.entries)
    first, last = starts[:-1], starts[1:] - 1
    won, lost = np.zeros(len(place), bool), np.zeros(len(place), bool)
    won[first] = place[first] < place[first + 1]
    lost[last] = place[last - 1] < place[last]
    return np.repeat(won, rounds.members), np.repeat(lost, rounds.members)


def replayed(path: Path, config: parameters.RatingConfig, most: int) -> Iterator[Rated]:
    """The first rounds of a file, rated."""
    with gzip.open(path) as file:
        lines = list(islice(file, most))
    records = [Record(0, i, line, received_s=math.inf) for i, line in enumerate(lines)]
    for batch in Replay(any_ladder(config), len(lines)).run(records):
        yield from batch.rated


@cases("config", (*SYSTEMS, *DRIFTING[1:]), tag)
@cases("name", LINES)
def test_shown_ratings_follow_results(
    shared: Path, config: parameters.RatingConfig, name: str
) -> None:
    """Mu follows, except Elo-R's (below); the rating does as far as sigma's change allows."""
    path, rule, seen = shared / "data" / f"{name}.jsonl.gz", stages.rule_of(config), 0
    for rated in replayed(path, config, LINES[name]):
        numbers, (won, lost) = numbers_of(rated), won_and_lost(rated)
        mu, sigma, old_mu, old_sigma = numbers[:, :4].T
        gain, shown = mu - old_mu, numbers[:, 5] - numbers[:, 6]
        k = rule.shown_sigmas
        rise, fall = np.maximum(sigma - old_sigma, 0.0), np.maximum(old_sigma - sigma, 0.0)
        if not isinstance(config, parameters.EloR):
            assert (gain[won] >= -ROUNDED).all() and (gain[lost] <= ROUNDED).all()
            assert (shown[won] >= -k * rise[won] - ROUNDED).all()
            assert (shown[lost] <= k * fall[lost] + ROUNDED).all()
        if k > 0.0 and not isinstance(
            config, parameters.Topcoder
        ):  # of weight 1, without the drift of days
            most = np.sqrt(old_sigma**2 + drift(config, np.zeros(len(sigma)))) - old_sigma
            assert (rise <= most + OF_SIGMA).all()
        seen += int(np.count_nonzero(won | lost))
    assert seen >= LINES[name]


@pytest.mark.slow
@cases("drift_per_day", [0.0, 50.0])
@cases("history", ["full", parameters.DEFAULT_KEPT])
def test_the_record_takes_nothing_from_a_winner(
    shared: Path, history: int | Literal["full"], drift_per_day: float
) -> None:
    """In teams of three, too, with all performances or with those that a record keeps."""
    config = msgspec.structs.replace(DRIFTING[1], history=history, drift_per_day=drift_per_day)
    for rated in replayed(shared / "data" / "frc.jsonl.gz", config, 10**9):
        numbers, (won, lost) = numbers_of(rated), won_and_lost(rated)
        gain = numbers[:, 0] - numbers[:, 2]
        assert (np.where(won, -gain, np.where(lost, gain, 0.0)) <= ROUNDED).all()


# --- Elo-R ----------------------------------------------------------------------------------------


def mode_of_widened(header: Any, factors: Floats, eta2: float) -> float:
    """The mode of an Elo-R belief (p, a, r) that a round has widened, without its evidence."""
    narrower = 1.0 / math.sqrt(1.0 + eta2 / float(header["sigma"]) ** 2)
    count = int(header["count"])
    p, a = factors[:count, 0], factors[:count, 1] * narrower
    center, precision = float(header["center"]), float(header["precision"]) * narrower**2

    def pull(x: float) -> float:
        return precision * (x - center) + float(np.sum(a * np.tanh((x - p) * a)))

    low, high = min([center, *p.tolist()]), max([center, *p.tolist()])
    for _ in range(100):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if pull(middle) < 0.0 else (low, middle)
    return low


def test_elo_r_widens_before_a_round(shared: Path) -> None:
    """No winner's mu is below both its old value and the widened mode, no loser's above both."""
    config = parameters.EloR(history="full")
    weight, limit = config.limits
    pool, reader, exceptions = Pool(config), Reader(any_ladder(config)), 0
    with gzip.open(shared / "data" / "map-rando.jsonl.gz") as file:
        lines = list(islice(file, 700))
    for number, line in enumerate(lines):
        standings = reader.read(line, received_s=math.inf)
        place = standings.batch.place.astype(np.int64)
        if place[0] == DID_NOT_FINISH:
            continue  # nobody finished
        place[place == DID_NOT_FINISH] = np.iinfo(np.int64).max
        rows = pool.rows(standings.batch.names)
        before = pool.beliefs(rows)
        old = [
            (head["mu"], mode_of_widened(head, factors, weight * limit**2), head["rounds"])
            for head, factors in zip(before.header.copy(), before.factors.copy(), strict=True)
        ]
        mu = pool.rate_rows(standings.batch, rows, ONE_WAVE, np.array([number])).after.mu
        if place[0] < place[1] and old[0][2]:
            assert mu[0] >= min(old[0][:2]) - ROUNDED
            exceptions += mu[0] < old[0][0] - ROUNDED
        if place[-2] < place[-1] and old[-1][2]:
            assert mu[-1] <= max(old[-1][:2]) + ROUNDED
            exceptions += mu[-1] > old[-1][0] + ROUNDED
    assert exceptions
