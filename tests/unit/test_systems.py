"""The interface of rating systems: laws, displayed numbers, waves and book-keeping."""

import math
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stream_rater.rating import stages
from stream_rater.rating.model import NEVER, Beliefs, newcomers
from stream_rater.rating.parameters import EloMMR, MinusSigma, fingerprint
from stream_rater.rating.stages import RatingRule, rule_of
from stream_rater.rounds.batch import wave_of
from tests.rounds import ranked, read

CONFIG = EloMMR(weight_limit=0.2, sigma_limit=80.0, rho=1.0)


def config(**fields: Any) -> EloMMR:
    return msgspec.structs.replace(CONFIG, **fields)


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, 1600.0 - 2.0 * (100.0 - 80.0)),
        ({"display": "mu"}, 1600.0),
        ({"display": MinusSigma(minus_sigma=3.0)}, 1600.0 - 3.0 * 100.0),
        ({"floor": 1590.0}, 1590.0),
        ({"floor": 1500.0}, 1560.0),
    ],
)
def test_the_displayed_rating(fields: dict[str, Any], expected: float) -> None:
    """mu - 2 (sigma - sigma_limit) unless the ladder says otherwise, and never below its floor."""
    rule = rule_of(config(**fields))
    assert expected == rule.rating(1600.0, 100.0)
    assert [expected] * 2 == rule.rating(np.full(2, 1600.0), np.full(2, 100.0)).tolist()


def test_the_displayed_rating_by_spread() -> None:
    """A ladder given by beta and gamma has a sigma_limit, too."""
    limits = (math.sqrt(1.0 + 1.0 / 0.2) * 80.0, math.sqrt(0.2) * 80.0)
    rule = rule_of(EloMMR(beta=limits[0], gamma=limits[1]))
    assert rule.rating(1600.0, 100.0) == pytest.approx(1560.0, abs=1e-9)


@pytest.mark.parametrize("rho", [0.0, 0.04, 1.0, "inf"])
def test_a_law_travels(rho: Any) -> None:
    """Through JSON and MessagePack a law stays what it was, infinite momentum included."""
    rule = rule_of(config(rho=rho, history="full", floor=100.0))
    assert rule.momentum == (math.inf if rho == "inf" else rho)
    assert rule == msgspec.json.decode(msgspec.json.encode(rule), type=RatingRule)
    assert rule == msgspec.msgpack.decode(msgspec.msgpack.encode(rule), type=RatingRule)
    assert (rule.kept, rule.floor, rule.provisional_rounds) == (0, 100.0, 5)
    assert rule.config == fingerprint(config(rho=rho, history="full", floor=100.0))


def priors(random: np.random.Generator, count: int) -> Beliefs:
    """Players who have played, to various degrees."""
    beliefs = newcomers(count, 4, 1500.0, 350.0)
    beliefs.header["mu"] = random.normal(1500.0, 300.0, count)
    beliefs.header["sigma"] = random.uniform(80.0, 350.0, count)
    beliefs.header["rounds"] = random.integers(0, 5, count)
    beliefs.header["time"] = random.integers(1_700_000_000, 1_790_000_000, count)
    return beliefs


def a_round(random: np.random.Generator, conf: EloMMR, number: int) -> Any:
    """A round of players of its own: ties, unfinished, a weight, perhaps a team."""
    size = int(random.integers(2, 9))
    places = [1, *random.integers(0, 5, size - 1).tolist()]
    entries: list[Any] = ranked(places, [f"r{number}-{i}" for i in range(size)])
    if random.random() < 0.5:
        entries.append({"team": [f"r{number}-x", f"r{number}-y"], "rank": 2, "shares": [1, 0.5]})
    return read(conf, *entries, weight=float(random.uniform(0.2, 3.0)))


@given(st.integers(0, 2**32))
def test_results_do_not_depend_on_the_grouping_into_waves(seed: int) -> None:
    """A wave of many rounds is estimated bit for bit as each of its rounds alone."""
    random = np.random.default_rng(seed)
    conf = config(
        newcomer_weights=(2.0, 1.5), drift_per_day=3.0, ties=random.choice(["full", "split"]).item()
    )
    rounds = [a_round(random, conf, number) for number in range(random.integers(1, 8))]
    players = [len(each.players) for each in rounds]
    beliefs = priors(random, sum(players))
    together = stages.estimate(conf, wave_of(rounds, beliefs.header))
    ends = np.cumsum(players)
    alone = [
        stages.estimate(conf, wave_of([each], beliefs.header[end - size : end]))
        for each, size, end in zip(rounds, players, ends, strict=True)
    ]
    assert np.concatenate(alone).tobytes() == together.tobytes()


def test_each_row_is_updated_by_its_own_law() -> None:
    """Rows of several ladders in one call use their own rho and K."""
    rules = [rule_of(config(rho="inf", history=3)), rule_of(config(rho=0.0, history=2))]
    beliefs, rows = newcomers(2, 8, 1500.0, 350.0, coded=True), np.arange(2)
    for p in (1700.0, 1300.0, 1900.0):
        stages.update(beliefs, rows, np.array([[p, 32_000.0, 1_600.0]] * 2), rules, rows)
    assert beliefs.header["count"].tolist() == [1, 2]


def test_book_keeping() -> None:
    """A round counts, its offset is the last, and the stored time never goes back."""
    beliefs, row = newcomers(2, 1, 1500.0, 350.0), np.zeros(1, np.int64)
    seen = []
    for offset, time in ((3, -50), (4, 100), (9, 70)):
        stages.record_round(beliefs, row, row + offset, row + time)
        head = beliefs.header[0]
        seen.append([int(head[n]) for n in ("rounds", "last", "time", "previous_time")])
    assert seen == [[1, 3, -50, 0], [2, 4, 100, -50], [3, 9, 100, 100]]
    assert (beliefs.header["rounds"][1], beliefs.header["last"][1]) == (0, NEVER)
