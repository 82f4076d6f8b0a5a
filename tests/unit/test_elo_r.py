"""Elo-R: the draft's own figures and properties, what the sketch costs, and teams."""

from typing import Any

import numpy as np
import pytest

from stream_rater.rating import stages
from stream_rater.rating.model import newcomers
from stream_rater.rating.parameters import BadParameters, EloR, from_builtins
from stream_rater.replay.pool import Pool
from tests.rounds import ranked, read, wave_of


def evidence_of(config: EloR, places: list[int], mu: list[float]) -> Any:
    header = newcomers(len(places), 4, config.initial_mu, 120.0).header
    header["mu"] = mu
    return stages.estimate(config, wave_of([read(config, *ranked(places))], header))


def test_the_drafts_own_figures() -> None:
    """delta = 250 and sigma* = 100 give an eta of 43.64; newcomers are shown 1000 (section 4)."""
    config = from_builtins({"system": "elo-r"})
    assert isinstance(config, EloR)
    _, delta2, eta2 = evidence_of(config, [1, 2], [1500.0, 1500.0])[0]
    assert delta2**0.5 == pytest.approx(250.0, rel=1e-15)
    assert eta2**0.5 == pytest.approx(43.64, abs=0.005)
    assert stages.rule_of(EloR()).rating(1500.0, 350.0) == 1000.0
    nonsense: list[dict[str, Any]] = [{"delta": 100}, {"delta": 99.0}, {"ties": "half"}, {"rho": 1}]
    for change in nonsense:
        with pytest.raises(BadParameters, match=next(iter(change))):
            from_builtins({"system": "elo-r", **change})


def test_the_uncertainty_settles() -> None:
    """sigma goes from 350 to sigma*, whatever a round weighs."""
    for weight in (0.5, 1.0, 4.0):
        config = EloR(history="full")
        pool = Pool(config)
        for offset in range(200):
            pool.rate(read(config, *ranked([1, 2]), weight=weight), offset)
        sigmas = [float(head["sigma"]) for _, head in pool]
        assert sigmas == pytest.approx([100.0, 100.0], abs=1e-6)


def test_ties() -> None:
    """Full ties share a performance. Of split ones, the higher rated has a little more."""
    full, split = (
        evidence_of(EloR(ties=ties), [1, 2, 2, 3], [1500.0, 1700.0, 1400.0, 1500.0])[:, 0]
        for ties in ("full", "split")
    )
    assert full[1] == full[2]
    assert split[1] > split[2]
    assert abs(split[1] - split[2]) < 100.0
    assert (split[0], split[3]) == (full[0], full[3])
    mu = np.linspace(-4000.0, 6000.0, 1000).tolist()
    found = evidence_of(EloR(ties="split"), [1] * 1000, mu)[:, 0]
    assert np.all(np.isfinite(found))
    assert np.all(np.diff(found) >= -1e-9)
    assert found[-1] - found[0] > 5.0


def test_a_better_performance_later_is_worth_more_near_the_rating() -> None:
    """Section 5 of the drafts says so of any two performances. It holds where the rating lies
    between them, and in general not: a counterexample loses nearly a point, since what lies far
    away loses less of its pull by age than what lies at a spread's distance."""
    grid = np.arange(1300.0, 3101.0, 100.0)
    one, two = grid[np.triu_indices(len(grid), 1)[0]], grid[np.triu_indices(len(grid), 1)[1]]
    rules, rows = [stages.rule_of(EloR(history="full"))], np.arange(len(one))
    rated = []
    for last in ((two, one), (one, two)):
        beliefs = newcomers(len(one), 14, 1500.0, 350.0)
        for p in (*[np.full(len(one), 1500.0)] * 10, *last):
            noise = np.full(len(one), 250.0**2), np.full(len(one), 43.64**2)
            stages.update(beliefs, rows, np.column_stack((p, *noise)), rules, np.zeros_like(rows))
        rated.append(beliefs.header["mu"].copy())
    gain = rated[1] - rated[0]
    between = (one < np.minimum(*rated)) & (np.maximum(*rated) < two)
    assert (gain[between] > 0.0).all() and between.sum() > 20
    worst = int(np.argmin(gain))
    assert (one[worst], two[worst]) == (1900.0, 3100.0)
    assert [each[worst] for each in rated] == pytest.approx([1605.87, 1604.93], abs=0.01)


def season(history: Any) -> dict[str, float]:
    random = np.random.default_rng(7)
    config = EloR(history=history)
    skill = random.normal(1500.0, 300.0, 30)
    pool = Pool(config)
    for offset in range(300):
        who = random.choice(30, 8, replace=False)
        order = who[np.argsort(-random.normal(skill[who], 250.0))]
        pool.rate(read(config, *ranked(range(1, 9), [f"p{i}" for i in order])), offset)
    return {player: float(head["mu"]) for player, head in pool}


def test_the_widest_fold_into_the_gaussian() -> None:
    """The more factors are kept, the nearer mu is: within 3.3, 0.29 and 0.028 with 8, 16 and 24."""
    full = season("full")
    for kept, points in ((8, 4.0), (16, 0.4), (24, 0.04)):
        found = season(kept)
        assert max(abs(full[player] - found[player]) for player in full) < points


def test_what_is_forgotten_wholly_leaves_a_number() -> None:
    """Even where each round widens a belief many times over, the rating stays a number."""
    for part in (0.5, 0.85, 0.95, 0.999):
        config = EloR(delta=500.0, sigma_limit=500.0 * part, history=5)
        pool = Pool(config)
        random = np.random.default_rng(3)
        for number in range(200):
            names = random.permutation(list("abcdef")).tolist()
            pool.rate(read(config, *ranked([1, 2, 3, 3, 5, 6], names)), number)
        header = pool.beliefs(np.arange(6)).header
        assert np.isfinite(header["mu"]).all() and np.isfinite(header["center"]).all(), part
        assert np.abs(header["mu"] - 1500.0).max() < 50_000.0, part


def test_teams_share_what_they_learn() -> None:
    """Two newcomers against one start level; a half-played member's evidence is weaker."""
    config = EloR()
    standings = read(
        config, {"team": ["a", "b"], "shares": [1, 0.5], "rank": 1}, {"player": "c", "rank": 2}
    )
    evidence = stages.estimate(config, wave_of([standings], newcomers(3, 4, 1500.0, 350.0).header))
    a, b, c = (evidence[standings.players.index(name)] for name in "abc")
    assert a[0] > 1500.0 > c[0]
    assert b[1] > a[1] > c[1]
