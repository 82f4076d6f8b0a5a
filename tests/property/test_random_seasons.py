"""Random seasons: kernels equal their oracles; a ladder's zero and unit do not matter (section 4.2
of the paper); all evidence is finite.

Ratings lie up to 60 initial sigmas from the initial one: a seed may give 30, and players move on.
Kerby's systems, whose steps have no bound, are given all that a record can hold.
"""

import math
from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.integrate import quad

from stream_rater.columns.arrays import Floats
from stream_rater.rating import parameters, stages
from stream_rater.rating.kernels import trueskill
from stream_rater.rating.kernels.climb import MOST_RATING
from stream_rater.rating.model import BEGAN, PERFORMANCE, Wave, newcomers
from stream_rater.rating.stages import NotANumber
from stream_rater.replay.pool import Pool
from stream_rater.rounds.batch import OneRound
from tests import elo_mmr_oracle as oracle
from tests import elo_r_oracle
from tests.builders.cases import cases
from tests.property.test_two_moment import wave
from tests.rounds import day, ranked, read, wave_of
from tests.strategies import configs, days, weights

POINTS = 1e-6  # What a search leaves open, in points.

SWEEPS = 1e-4
"""The same for TrueSkill: messages settle to 1e-9, but a tie of margin 1 is a thin slice of sigmas
of hundreds, so that what is left is divided by a small number."""

COLUMNS = 1e-3
"""The same for the two-moment filter, which may have one column more in another unit: a millionth
of the deviations there are."""

ELO_MMR = parameters.EloMMR(
    weight_limit=0.2, sigma_limit=80.0, rho=0.5, drift_per_day=3.0, history="full"
)
EVOLVING: list[Any] = [
    ELO_MMR,
    parameters.EloMMX(beta=200.0, gamma=40.0, ties="split", history="full"),
]
UNROUNDED: list[parameters.RatingConfig] = [
    *EVOLVING,
    parameters.Codeforces(beta=200.0, weight=0.5, history="full"),
    parameters.Glicko(beta=200.0, sigma_drift=35.0, history="full"),
    parameters.Bar(beta=200.0, sigma_drift=35.0, history="full"),
    parameters.TrueSkill(
        beta=200.0, sigma_drift=35.0, draw_margin=1.0, tolerance=1e-9, history="full"
    ),
    parameters.Glicko2(drift_per_day=3.0, history="full"),
    parameters.TwoMoment(history="full"),
]
"""All but Topcoder, whose rule has constants in points; unrounded, as rounding has a unit."""

PLAYERS = [f"p{i}" for i in range(8)]
LENGTHS = ("initial_mu", "initial_sigma", "sigma_limit", "beta", "gamma", "sigma_drift",
           "draw_margin", "tolerance", "newcomer_offset", "inexperience", "scale")  # fmt: skip
"""Parameters in points; those in points^2 are AREAS."""
AREAS = ("drift_per_day",)


@st.composite
def rounds(draw: st.DrawFn, players: int = 8, place: range = range(6)) -> dict[str, Any]:
    """A round of some of the players, at least one of whom finished."""
    some = st.sampled_from(PLAYERS[:players])
    names = draw(st.lists(some, min_size=2, max_size=players, unique=True))
    places = draw(st.lists(st.sampled_from(place), min_size=len(names), max_size=len(names)))
    return {"names": names, "places": [places[0] or 1, *places[1:]], "weight": draw(weights()),
            "ceiling": draw(st.none() | st.floats(0.0, 3000.0)), "day": draw(days())}  # fmt: skip


seasons = st.lists(rounds(), min_size=1, max_size=5)
finished = st.lists(rounds(6, range(1, 7)), min_size=1, max_size=5)
"""Seasons in which everybody finished every round."""
Season = list[dict[str, Any]]


def standings_of(
    config: parameters.RatingConfig, each: dict[str, Any], measure: Callable[[float], float] = float
) -> OneRound:
    """The round as a system reads it; its ceiling is changed by `measure`."""
    ceiling = None if each["ceiling"] is None else measure(each["ceiling"])
    return read(
        config, *ranked(each["places"], each["names"]), weight=each["weight"],
        performance_ceiling=ceiling, completed_at=day(each["day"]),
    )  # fmt: skip


def performances_of(pool: Pool, standings: OneRound, offset: int) -> dict[str, float]:
    """Rate a round. Returns each player's performance."""
    rated = pool.rate(standings, offset)
    assert rated is not None
    return dict(zip(standings.players, rated[1][:, PERFORMANCE].tolist(), strict=True))


# --- kernels and oracles ---

PERFORMANCE_POINTS = 2e-6
"""After an upset over a wide gap Q_i is almost flat about its zero, and the cancelling sums of the
oracle blur where it is: up to 6e-7 points in 24,000 random seasons. Where most entries of a small
round tie, the kernels' last step leaves as much (against 50 digits; the oracle has all of its own):
up to 9e-7 points in 23,000 seasons of such rounds."""
MU_POINTS = 1e-6
"""A blurred performance is far from mu, so it pulls alike. After the others mu goes, and no
further: up to 6.2e-7 points in these seasons."""


def by_oracle(
    players: dict[str, oracle.SlowPlayer], config: parameters.EloMMR, standings: OneRound
) -> Any:
    """Rate a round by the oracle. Returns each player's performance."""
    names = standings.players
    found = oracle.rate_round(
        [players.setdefault(name, oracle.newcomer(config)) for name in names],
        standings.place.tolist(), config, weight=standings.weight, ceiling=standings.ceiling,
        time=standings.time,
    )  # fmt: skip
    return dict(zip(names, found, strict=True))


@given(configs(), seasons)
def test_ratings_equal_the_oracles(config: parameters.EloMMR, season: Season) -> None:
    """Performances, mu and sigma of every player are equal, round by round, for any parameters."""
    pool, slow = Pool(config), dict[str, Any]()
    for offset, each in enumerate(season):
        standings = standings_of(config, each)
        performances = performances_of(pool, standings, offset)
        expected = by_oracle(slow, config, standings)
        assert expected == pytest.approx(performances, rel=0, abs=PERFORMANCE_POINTS)
    beliefs = dict(pool)
    actual = {p: (float(b["mu"]), float(b["sigma"])) for p, b in beliefs.items()}
    for name, player in slow.items():
        assert (player.mu, player.sigma) == pytest.approx(actual[name], rel=0, abs=MU_POINTS)
        assert (player.rounds, player.time) == (beliefs[name]["rounds"], beliefs[name]["time"])


elo_r = st.builds(
    lambda limit, by, **others: parameters.EloR(sigma_limit=limit, delta=limit * by, **others),
    st.floats(30.0, 200.0), st.floats(1.05, 5.0), ties=st.sampled_from(("full", "split")),
    dnf=st.sampled_from(("tied-last", "not-compared")), initial_sigma=st.floats(80.0, 500.0),
    history=st.just("full"),
)  # fmt: skip


@given(elo_r, st.lists(rounds(), min_size=1, max_size=6))
@settings(max_examples=60)
def test_elo_r_equals_its_oracle(config: parameters.EloR, season: Season) -> None:
    """Performances, mu, sigma, and factors with their own widths are equal, round by round."""
    beliefs = newcomers(8, 8, config.initial_mu, config.initial_sigma)
    slow = [elo_r_oracle.Player(config.initial_mu, config.initial_sigma) for _ in PLAYERS]
    for each in season:
        standings = standings_of(config, each)
        rows = np.array([PLAYERS.index(player) for player in standings.players])
        evidence = stages.estimate(config, wave_of([standings], beliefs.header[rows]))
        stages.update(beliefs, rows, evidence, [stages.rule_of(config)], np.zeros_like(rows))
        expected = elo_r_oracle.rate_round(
            [slow[i] for i in rows], standings.place.tolist(), config.delta, config.sigma_limit,
            config.ties == "split", standings.weight, standings.ceiling,
            config.dnf == parameters.TIED_LAST,
        )  # fmt: skip
        assert expected == pytest.approx(evidence[:, 0], rel=0, abs=PERFORMANCE_POINTS)
    for player, head, factors in zip(slow, beliefs.header, beliefs.factors, strict=True):
        assert (player.mu, player.sigma) == pytest.approx(
            (float(head["mu"]), float(head["sigma"])), rel=0, abs=MU_POINTS
        )
        (center, tau_0), *logistic = player.pdfs
        # relative: roots and quotients in another order
        assert (center, tau_0**-2) == pytest.approx(
            (float(head["center"]), float(head["precision"])), rel=1e-13
        )
        terms = factors[: head["count"]]
        widths = sorted((1.0 / tau for _, tau in logistic), reverse=True)
        assert widths == pytest.approx(sorted(terms[:, 1], reverse=True), rel=1e-13)
        assert terms[:, 1] == pytest.approx(float(head["scale"]) * terms[:, 2], rel=1e-15)


# --- zero and unit --------------------------------------------------------------------------------


def history(
    config: parameters.RatingConfig, season: Season, measure: Callable[[float], float] = float
) -> Iterator[Floats]:
    """(n, 3) by name, after each round: performance, mu and sigma. `measure` changes ceilings."""
    pool = Pool(config)
    for offset, each in enumerate(season):
        found = performances_of(pool, standings_of(config, each, measure), offset)
        after = {name: (float(b["mu"]), float(b["sigma"])) for name, b in pool}
        yield np.array([(found[name], *after[name]) for name in sorted(found)])


def left_open(config: parameters.RatingConfig) -> float:
    return {parameters.TrueSkill: SWEEPS, parameters.TwoMoment: COLUMNS}.get(type(config), POINTS)


def scaled(config: parameters.RatingConfig, unit: float) -> parameters.RatingConfig:
    """The same ladder with its parameters in a unit that is so many times smaller."""
    fields = {name: value for name, value in msgspec.structs.asdict(config).items() if value}
    lengths = {name: fields[name] * unit for name in LENGTHS if name in fields}
    areas = {name: fields[name] * unit**2 for name in AREAS if name in fields}
    return msgspec.structs.replace(config, **lengths, **areas)


@given(season=finished, unit=st.floats(0.01, 100.0))
@settings(max_examples=15)
@cases("config", UNROUNDED, type)
def test_another_unit(config: parameters.RatingConfig, season: Season, unit: float) -> None:
    """All parameters in another unit give performances, mu and sigma in that unit."""
    after = history(scaled(config, unit), season, lambda points: points * unit)
    for expected, actual in zip(history(config, season), after, strict=True):
        assert expected * unit == pytest.approx(actual, rel=0, abs=left_open(config) * unit)


# --- every number is finite -----------------------------------------------------------------------

NAMES = sorted(parameters.SYSTEMS)
POSITIVE = (
    "beta", "delta", "draw_margin", "drift_per_day", "initial_sigma", "learning_rate", "rho",
    "scale", "sigma_drift", "sigma_limit", "weight_limit",
)  # fmt: skip
ANY_SIGN = ("anchor", "initial_mu", "newcomer_offset")
CHOICES = {
    "dnf": ("tied-last", "not-compared"), "ties": ("full", "split"),
    "model": ("logistic", "gaussian"), "pairs": ("sum", "average"),
    "orientation": ("first", "last"),
}  # fmt: skip


def drawn_parameters(name: str, rng: np.random.Generator) -> parameters.RatingConfig:
    """Valid parameters of a system: each of them the sample's, or drawn over seven decades."""
    table: dict[str, Any] = msgspec.to_builtins(parameters.SYSTEMS[name].sample())
    for field in msgspec.structs.fields(parameters.SYSTEMS[name]):
        if rng.random() < 0.5 or table.get(field.name, 0) is None:
            continue
        if field.name in POSITIVE:
            table[field.name] = 10.0 ** float(rng.uniform(-2.0, 5.0))
        elif field.name in ANY_SIGN:
            table[field.name] = float(rng.choice([-1.0, 1.0])) * 10.0 ** float(rng.uniform(-2, 5))
        elif field.name in CHOICES:
            table[field.name] = str(rng.choice(CHOICES[field.name]))
    try:
        return parameters.from_builtins(table)
    except ValueError:  # some exclude each other
        return parameters.SYSTEMS[name].sample()


def a_round(config: parameters.RatingConfig, rng: np.random.Generator) -> Wave:
    """A valid round, however uneven: any weight, ties, unfinished entries, hardly any shares."""
    most = (
        9 if isinstance(config, parameters.EloMMR | parameters.EloR) else 40
    )  # their tables may take gigabytes
    sides = int(rng.choice([2, 3, 5, 9, most]))
    members = rng.integers(1, 4, sides) if rng.random() < 0.4 else np.ones(sides, np.int64)
    starts = np.concatenate([[0], np.cumsum(members)])
    n = int(starts[-1])
    mu = config.initial_mu + config.initial_sigma * rng.uniform(-60.0, 60.0, n)
    if isinstance(config, parameters.Climbing):
        mu = rng.choice([-1.0, 1.0], n) * 10.0 ** rng.uniform(-3.0, rng.choice([4.0, 34.0]), n)
    reported = np.arange(1, sides + 1) if rng.random() < 0.5 else rng.integers(1, 4, sides)
    place = np.sort(reported).astype(np.int32)
    if rng.random() < 0.4:
        place[rng.integers(0, sides) :] = 0
    share = 10.0 ** rng.uniform(-6.0, 0.0, n) if n > sides else np.ones(n)
    exponent = rng.uniform(-300.0, 3.0) if rng.random() < 0.2 else rng.uniform(-3.0, 3.0)
    return Wave(
        np.array([0, sides]), np.full(1, 10.0**exponent),
        np.full(sides, rng.choice([math.inf, 1600.0])), np.full(1, 10**9), place, starts,
        share, mu.astype(np.float32).astype(np.float64),
        config.initial_sigma * 10.0 ** rng.uniform(-3.0, 0.0, n), rng.integers(0, 3, n),
        np.zeros(n, np.int64),
    )  # fmt: skip


@given(seed=st.integers(0, 2**32 - 1))
@settings(max_examples=40)
@cases("name", NAMES)
def test_the_evidence_is_finite(name: str, seed: int) -> None:
    rng = np.random.default_rng(seed)
    config = drawn_parameters(name, rng)
    found = stages.estimate(config, a_round(config, rng))
    assert np.isfinite(found[:, :BEGAN]).all()
    if isinstance(config, parameters.Climbing):
        assert (np.abs(found[:, 1]) <= MOST_RATING).all()


def in_order(mu: Floats, weight: float = 1.0) -> Wave:
    """A round of players who finished in this order."""
    players = wave(range(1, len(mu) + 1), mu, np.full(len(mu), 350.0))
    return players._replace(weight=np.full(1, weight))


@cases("weight", [900.0, 1e300])
def test_thurstone_may_run_away_but_stays_a_number(weight: float) -> None:
    """Upset follows upset, by steps far beyond those by which the climb converges."""
    config = parameters.Thurstone.sample()
    mu = np.array([1500.0, 1500.0, 1500.0])
    for _ in range(60):
        order = np.argsort(mu, kind="stable")  # the lowest wins
        found = stages.estimate(config, in_order(mu[order], weight))
        assert np.isfinite(found).all()
        mu[order] = found[:, 1].astype(np.float32)
    assert mu.min() == -MOST_RATING and mu.max() == MOST_RATING
    assert np.float32(MOST_RATING) == np.finfo(np.float32).max


@cases("name", ["elo-mmr", "elo-r"])
def test_large_rounds_too_wide_for_a_table(name: str) -> None:
    """Forty players in two groups, a thousand million spreads apart."""
    config, n = parameters.SYSTEMS[name].sample(), 40
    mu = 1500.0 + np.where(np.arange(n) % 2, 1e12, -1e12)
    found = stages.estimate(config, in_order(mu))[:, 0]
    assert np.isfinite(found).all() and (np.diff(found) < 0.0).all()
    assert (np.abs(found[[0, -1]] - [1e12, -1e12]) < 1e5).all()


def test_steps_converge_where_the_docstring_says() -> None:
    """If rate * weight / scale is below 2 the same result comes to rest; beyond, the gap grows."""

    def gap_after(ratio: float) -> float:
        config = parameters.Thurstone(learning_rate=ratio * 174.0, scale=174.0, initial_mu=0.0)
        mu = np.array([-100.0, 100.0]) * 174.0
        for turn in range(40):
            order = np.array([0, 1]) if turn % 2 else np.array([1, 0])
            mu[order] = stages.estimate(config, in_order(mu[order]))[:, 1]
        return float(abs(mu[0] - mu[1])) / 174.0

    assert gap_after(1.9) < 10.0
    assert gap_after(2.5) > 1e4


@cases("k", [0.0, 1e-9, 0.05, 0.0999, 0.1001, 1.0, 30.0, 1e9])
def test_the_moments_of_a_narrow_interval(k: float) -> None:
    """They are those of e^(-k t) on [-1, 1], by quadrature from the steep end."""
    total, first, second = (
        quad(lambda s, n=n: s**n * math.exp(-k * s), 0.0, min(2.0, 60.0 / max(k, 1e-9)))[0]
        for n in range(3)
    )
    mean, variance = trueskill._narrowly(k)
    assert mean == pytest.approx(first / total - 1.0, abs=1e-7)
    assert variance == pytest.approx(second / total - (first / total) ** 2, rel=1e-4)


def test_no_evidence_leaves_that_is_no_number(monkeypatch: pytest.MonkeyPatch) -> None:
    """A system that gives such evidence raises, because it must not replace a belief."""
    config = parameters.SYSTEMS["glicko"].sample()
    wave = a_round(parameters.Thurstone.sample(), np.random.default_rng(1))
    for wrong in (math.nan, math.inf):
        given_: Any = np.full((len(wave.mu), 3), wrong)
        monkeypatch.setattr(
            parameters.SYSTEMS["glicko"], "estimate", lambda *_, found=given_: found
        )
        with pytest.raises(NotANumber):
            stages.estimate(config, wave)
