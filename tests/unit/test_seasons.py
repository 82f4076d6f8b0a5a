"""Seasons: how a belief is drawn, and that whoever draws it gets the same bits."""

from functools import cache
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import brentq

from stream_rater.columns.arrays import Floats
from stream_rater.rating import factor, record, seasons, stages
from stream_rater.rating.factor import factors_of
from stream_rater.rating.model import Beliefs, newcomers
from stream_rater.rating.parameters import EloMMR, EloR, RatingConfig, Season
from stream_rater.rating.stages import RatingRule, rule_of
from stream_rater.replay.pool import Pool
from stream_rater.runtime.selfcheck import SYSTEMS
from tests.rounds import day, logistic_weight, ranked, read

SPREAD: dict[str, Any] = {"weight_limit": 0.2, "sigma_limit": 80.0}
MMR, MMR_IN_FULL = EloMMR(**SPREAD, history=5), EloMMR(**SPREAD, history="full")
BRISK = EloMMR(**SPREAD, history=5, rho="inf", initial_mu=-300.0)
R, R_IN_FULL = EloR(history=5), EloR(history="full")
ALL = (*SYSTEMS, MMR, MMR_IN_FULL, BRISK, R, R_IN_FULL)
CODED = (MMR, BRISK, R)
NAMES = "abcdefgh"
HALF = Season(1, 0.5, 200.0)
SOFT = Season(2, 0.75, 0.0)
WIDE = Season(3, 1.0, 333.3)

any_season = st.builds(
    Season, st.integers(1, 9),
    st.sampled_from([0.0, 1.0]) | st.floats(0.0, 1.0),
    st.sampled_from([0.0, 350.0]) | st.floats(0.0, 600.0),
)  # fmt: skip
some_seasons = st.lists(any_season, min_size=1, max_size=3).map(tuple)
configs = st.sampled_from(ALL)


@cache
def played(config: RatingConfig) -> Pool:
    """Eight players after twelve rounds of five, by surprise and otherwise."""
    random, pool = np.random.default_rng(7), Pool(config)
    for number in range(12):
        names = random.permutation(list(NAMES))[:5].tolist()
        pool.rate(read(config, *ranked([1, 2, 2, 3, 4], names), completed_at=day(number)), number)
    return pool


def beliefs_of(config: RatingConfig) -> Beliefs:
    pool = played(config)
    stored = pool._beliefs
    return Beliefs(stored.header[: len(pool)].copy(), stored.factors[: len(pool)].copy())


def drawn(beliefs: Beliefs, rule: RatingRule) -> seasons.Before:
    rows = np.arange(len(beliefs))
    before = seasons.draw([rule], rows * 0, beliefs, rows)
    assert before is not None
    return before


def step_of(beliefs: Beliefs) -> float:
    """Of the grid on which all of them are."""
    return 2.0 ** int(beliefs.header["grid"][0])


# --- what a draw is -------------------------------------------------------------------------------


@given(configs, any_season)
def test_mu_and_sigma(config: RatingConfig, season: Season) -> None:
    """mu keeps a part of its distance from the initial one, and sigma is at least the season's:
    by every system, to half a step of the grid where factors are on one, or half a float32."""
    rule, beliefs = rule_of(config, (season,)), beliefs_of(config)
    mu, sigma = beliefs.header["mu"].copy(), beliefs.header["sigma"].copy()
    drawn(beliefs, rule)
    wanted = rule.initial_mu + season.keep * (mu - rule.initial_mu)
    unit = np.spacing(np.abs(wanted).astype(np.float32)).astype(np.float64) if config.kept else 1e-9
    if config.kept and beliefs.header["count"].all():
        unit = np.maximum(unit, step_of(beliefs))
    elif config.kept:
        assert beliefs.header["mu"].astype(np.float32).tolist() == beliefs.header["mu"].tolist()
    assert (np.abs(beliefs.header["mu"] - wanted) <= 0.5 * unit + 1e-9).all()
    assert np.maximum(sigma, season.sigma).tolist() == beliefs.header["sigma"].tolist()


def slope(beliefs: Beliefs, i: int, x: float) -> float:
    """The derivative of a belief's log-posterior."""
    head = beliefs.header[i]
    p, a, r = factors_of(beliefs)[i, : head["count"]].T
    pulls = head["scale"] * r * np.tanh((x - p) * a)
    return float(head["precision"] * (x - head["center"]) + pulls.sum())


def modes(beliefs: Beliefs) -> Floats:
    """(n,) found by another method than the kernels'."""
    found = [brentq(lambda x, i=i: slope(beliefs, i, x), -1e5, 1e5, xtol=1e-11)
             for i in range(len(beliefs))]  # fmt: skip
    return np.array(found)


def performances(beliefs: Beliefs) -> list[Floats]:
    counts = beliefs.header["count"].tolist()
    return [each[:count, 0].copy() for each, count in zip(factors_of(beliefs), counts, strict=True)]


def test_all_factors_and_the_mode_move_alike() -> None:
    """Whether they are codes, which move by whole steps of the grid, or numbers."""
    for config in (*CODED, MMR_IN_FULL, R_IN_FULL):
        beliefs = beliefs_of(config)
        before, was, mode = beliefs.header.copy(), performances(beliefs), modes(beliefs)
        drawn(beliefs, rule_of(config, (SOFT,)))
        shift = beliefs.header["mu"] - before["mu"]
        assert (np.abs(shift) > 1.0).any(), config
        if config.kept:
            assert (shift % step_of(beliefs) == 0.0).all(), config
        little = 0.0 if config.kept else 1e-9  # numbers of some 2^11 points
        for own, old, new in zip(shift.tolist(), was, performances(beliefs), strict=True):
            assert np.abs(new - old - own).max() <= little, config
        assert beliefs.header["center"] == pytest.approx(before["center"] + shift, abs=1e-9), config
        assert modes(beliefs) - mode == pytest.approx(shift, abs=1e-8), config  # two roots


def test_codes_as_numbers() -> None:
    """All are off by the same part of a step; weights and slopes are the same, to float32."""
    for config in CODED:
        coded = beliefs_of(config)
        whole = Beliefs(coded.header.copy(), factors_of(coded).copy())
        rule = rule_of(config, (HALF, WIDE))
        drawn(coded, rule)
        drawn(whole, msgspec.structs.replace(rule, kept=0))
        off = coded.header["mu"] - whole.header["mu"]
        assert 0.0 < np.abs(off).max() <= step_of(coded), config  # half a step for each season
        for own, old, new in zip(
            off.tolist(), performances(whole), performances(coded), strict=True
        ):
            assert new - old == pytest.approx(own, abs=1e-9), config
        for name in ("sigma", "precision", "scale"):
            assert coded.header[name] == pytest.approx(whole.header[name], rel=2.0**-23), config
        mine, other = factors_of(coded)[..., 1:], whole.factors[..., 1:]
        assert mine == pytest.approx(other, rel=2.0**-23), config


def test_diffusion_by_a_season() -> None:
    """By Elo-MMR, mu stays the mode, the weights sum to sigma^-2, and rho counts."""
    for season in (HALF, WIDE):
        beliefs = beliefs_of(MMR_IN_FULL)
        was = logistic_weight(beliefs)
        before = float(beliefs.header["sigma"][0])
        drawn(beliefs, rule := rule_of(MMR_IN_FULL, (season,)))
        header, weight = beliefs.header[0], logistic_weight(beliefs)
        assert header["sigma"] == season.sigma > before
        kappa = (before / season.sigma) ** 2
        assert weight == pytest.approx(was * kappa ** (1.0 + rule.rho), rel=1e-13)
        assert header["precision"] + weight.sum() == pytest.approx(season.sigma**-2, rel=1e-12)
        assert modes(beliefs) == pytest.approx(beliefs.header["mu"], abs=1e-8)


def test_widening_by_a_season() -> None:
    """Of Elo-R: all widths grow by one factor, so that the sum of tau^-2 is sigma^-2."""
    for config in (R, R_IN_FULL):
        beliefs = beliefs_of(config)
        was, before = factors_of(beliefs)[..., 1].copy(), beliefs.header.copy()
        drawn(beliefs, rule_of(config, (HALF,)))
        by = (before["sigma"] / HALF.sigma)[:, np.newaxis]
        assert (by < 1.0).all()
        rounding = 2.0**-23 if config.kept else 1e-14  # the scale is a float32
        found = factors_of(beliefs)[..., 1]
        assert found == pytest.approx(was * by, rel=rounding), config
        total = beliefs.header["precision"] + np.square(found).sum(axis=1)
        was_total = before["precision"] + np.square(was).sum(axis=1)
        due = np.square(by[:, 0])
        assert total / was_total == pytest.approx(due, rel=2.0 * rounding), config


def test_a_performance_at_the_end_of_the_grid_stays_there() -> None:
    """All others move on; none comes out at the other end."""
    beliefs = beliefs_of(MMR)
    most, step = 2**19 - 1, step_of(beliefs)
    beliefs.header["mu"] = -3000.0
    last = beliefs.header["count"] - 1
    rows = np.arange(len(beliefs))
    top = [factor.code_of(most * step - 1.0, 0.5, 0.0, 1.0 / step) for _ in rows]
    beliefs.factors[rows, last] = top
    was = performances(beliefs)
    drawn(beliefs, rule_of(MMR, (HALF,)))
    for old, new in zip(was, performances(beliefs), strict=True):
        assert new[-1] == most * step
        assert (new[:-1] - old[:-1] == 2250.0).all()


@given(configs, any_season, some_seasons)
def test_missed_seasons_come_one_after_the_other(
    config: RatingConfig, first: Season, others: tuple[Season, ...]
) -> None:
    """Whether they are applied in one call or in several."""
    at_once, one_by_one = beliefs_of(config), beliefs_of(config)
    drawn(at_once, rule_of(config, (first, *others)))
    for i in range(len(others) + 1):
        drawn(one_by_one, rule_of(config, (first, *others)[: i + 1]))
    assert at_once.header.tobytes() == one_by_one.header.tobytes()
    assert at_once.factors.tobytes() == one_by_one.factors.tobytes()
    assert (at_once.header["season"] == 1 + len(others)).all()
    again = at_once.header.tobytes()
    assert len(drawn(at_once, rule_of(config, (first, *others))).rows) == 0
    assert again == at_once.header.tobytes()


# --- who draws ------------------------------------------------------------------------------------


@given(configs, some_seasons)
def test_headers_alone_give_the_same_bits(
    config: RatingConfig, started: tuple[Season, ...]
) -> None:
    """Stage 1 draws headers, stage 2 draws beliefs, and a reader sees what both will see."""
    rule, beliefs = rule_of(config, started), beliefs_of(config)
    header = beliefs.header.copy()
    if config.kept:
        data = b"".join(each[: record.HEADER_SIZE] for each in record.encode(beliefs))
        header = record.read_headers(data)
    as_stored = header.tobytes()
    mu, sigma = seasons.seen(rule, header)
    assert as_stored == header.tobytes()
    seasons.draw_headers(rule, header)
    drawn(beliefs, rule)
    for name, shown in (("mu", mu), ("sigma", sigma)):
        assert beliefs.header[name].tobytes() == header[name].tobytes() == shown.tobytes()
    assert (header["season"] == len(started)).all()
    seasons.draw_headers(rule, header)  # twice is once
    assert beliefs.header["mu"].tobytes() == header["mu"].tobytes()


def test_a_seeded_prior_moves_as_the_one_that_is_remembered() -> None:
    """Otherwise the round after a seed would be estimated differently a second time."""
    for config in ALL:
        rule = rule_of(config, (HALF,))
        mu = np.array([1700.1, 1023.7, -12.34])
        begun = seasons.seeded(rule_of(config), mu, np.full(3, 150.0), *np.full((3, 3), 1))
        remembered = begun.copy()
        remembered["count"] = min(config.kept, 1)
        for each in (begun, remembered):
            seasons.draw_headers(rule, each)
        for name in ("mu", "sigma"):
            assert begun[name].tolist() == remembered[name].tolist(), config


def test_newcomers_are_not_drawn() -> None:
    """They begin in the season that there is, as others began in theirs."""
    for config in (MMR, R, SYSTEMS[5]):
        rule = rule_of(config, (Season(1, 0.0, 500.0), HALF))
        beliefs = newcomers(3, 2, 1400.0, 300.0, coded=True)
        assert drawn(beliefs, rule).season.tolist() == [0, 0, 0]
        assert beliefs.header["season"].tolist() == [2, 2, 2]
        assert beliefs.header["mu"].tolist() == [1400.0] * 3
        mu, sigma = seasons.seen(rule, newcomers(3, 0, 1400.0, 300.0).header)
        assert (mu.tolist(), sigma.tolist()) == ([1400.0] * 3, [300.0] * 3), config


# --- rounds after it ------------------------------------------------------------------------------


def season_and_round(config: RatingConfig, *started: Season) -> Beliefs:
    rule, beliefs = rule_of(config, started), beliefs_of(config)
    rows = np.arange(len(beliefs))
    same, time = rows * 0, rows * 0 + 1_790_000_000
    evidence = np.array([[1450.0 + 40.0 * i, 9e4, 900.0] for i in rows])
    if rule.system not in ("elo-mmr", "elo-r"):
        evidence[:, 1], evidence[:, 2] = evidence[:, 0], 90.0
    before = seasons.draw([rule], same, beliefs, rows)
    stages.update(beliefs, rows, evidence, [rule], same)
    stages.record_round(beliefs, rows, same + 99, time)
    seasons.remember(beliefs, before)
    return beliefs


def test_what_was_before_is_not_drawn() -> None:
    """The previous values are those published. A season that keeps all only changes its number."""
    for config in ALL:
        was, after = beliefs_of(config).header, season_and_round(config, HALF).header
        assert was["mu"].tolist() == after["previous_mu"].tolist(), config
        assert was["sigma"].tolist() == after["previous_sigma"].tolist(), config
        assert (set(after["previous_season"]), set(after["season"])) == ({0}, {1}), config
        plain, kept = season_and_round(config), season_and_round(config, Season(1, 1.0, 0.0))
        assert plain.factors.tobytes() == kept.factors.tobytes(), config
        assert set(kept.header["season"]) == {1}, config
        kept.header["season"] = 0
        assert plain.header.tobytes() == kept.header.tobytes(), config


def test_a_rule_with_seasons_travels() -> None:
    """In MessagePack as in JSON; a rule of a release before seasons has none."""
    rule = rule_of(MMR, (HALF, SOFT))
    packed = msgspec.msgpack.encode(rule)
    assert rule == msgspec.msgpack.decode(packed, type=RatingRule)
    assert rule == msgspec.json.decode(msgspec.json.encode(rule), type=RatingRule)
    older = msgspec.msgpack.encode(msgspec.msgpack.decode(packed)[:-1])
    assert rule_of(MMR) == msgspec.msgpack.decode(older, type=RatingRule)
    assert rule_of(MMR) is rule_of(MMR)
