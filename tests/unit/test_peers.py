"""Peers rate as their packages do; Elo and Glicko-2 are compared with published numbers."""

import math
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from stream_rater.evaluation.calibrating import pairs_of
from stream_rater.evaluation.season import Session
from stream_rater.evaluation.sides import scores_of
from stream_rater.rating.normal import below
from tests.benchmarks.lab import peers, plain
from tests.benchmarks.lab.peers import PeerConfig, model_of, peer_module, peer_run
from tests.builders.cases import cases
from tests.rounds import as_json
from tests.unit.test_season import sessions


@pytest.fixture(params=peers.MODULES)
def peer(request: pytest.FixtureRequest) -> str:
    found: str = request.param
    if found in peers.missing():
        pytest.skip(f"{found} is not installed: `make bench` does it")
    return found


def config(peer: str) -> PeerConfig:
    """Other parameters than the package's defaults."""
    return PeerConfig(peer, beta=3.0, tau=0.2)


def rounds_of(size: int, count: int = 12) -> list[Session]:
    """Rounds of two sides of this size; players come again."""
    lines = []
    for i in range(count):
        names = [f"p{(i * 3 + k * (1 + i % 2)) % 17}" for k in range(2 * size)]
        names = [f"{name}{k}" if names.index(name) != k else name for k, name in enumerate(names)]
        sides: list[dict[str, Any]] = [
            {"team": names[:size], "rank": 1 + i % 2}, {"team": names[size:], "rank": 2 - i % 2},
        ]  # fmt: skip
        if size == 1:
            sides = [{"player": side["team"][0], "rank": side["rank"]} for side in sides]
        lines.append(as_json(*sides, round_id=str(i)))
    return sessions(*lines)[0]


def own_chance(peer: str, config: PeerConfig, teams: list[list[Any]]) -> float:
    """That the first of two teams wins, as openskill.py or the trueskill documentation has it."""
    if peer != "trueskill-package":
        kind = "PlackettLuce" if "plackett" in peer else "ThurstoneMostellerFull"
        model = getattr(peer_module("openskill.models"), kind)(beta=config.beta)
        return float(model.predict_win(teams)[0])
    environment = peer_module("trueskill").TrueSkill(beta=config.beta)
    gap = sum(each.mu for each in teams[0]) - sum(each.mu for each in teams[1])
    members = [each for team in teams for each in team]
    variance = len(members) * config.beta**2 + sum(each.sigma**2 for each in members)
    return float(environment.cdf(gap / math.sqrt(variance)))


@cases("size", [1, 5])
def test_chances_and_ratings_are_the_packages_own(peer: str, size: int) -> None:
    """Of two sides, round by round, with the package called by hand beside it."""
    rounds, given = rounds_of(size), config(peer)
    beliefs = peer_run(rounds, given).sides
    columns = beliefs.starts, beliefs.place, beliefs.mu, beliefs.variance
    pairs, of_round = pairs_of(*columns, draws=False)
    z = pairs.gap / np.sqrt(pairs.variance)
    model, ratings = model_of(given), dict[int, Any]()
    assert of_round.tolist() == list(range(12))
    at = 0
    for session in rounds:
        for rows in session.rows.reshape(-1, 2, size).tolist():
            teams = [[ratings.get(row) or model.newcomer() for row in team] for team in rows]
            assert below(float(z[at])) == pytest.approx(own_chance(peer, given, teams), abs=1e-6)
            for team, rated in zip(rows, model.rate(teams, [1, 2], 0.0), strict=True):
                ratings.update(zip(team, rated, strict=True))
            at += 1
    assert at == 12 and np.abs(z).max() > 0.1


@cases("name", [*peers.SPACES])
def test_a_seat_counts_in_the_prediction_and_in_the_round(name: str) -> None:
    """Alike for both sides, it changes no rating. Who wins by it gains less."""
    if name in peers.missing():
        pytest.skip(f"{name} is not installed: `make bench` does it")

    def played(**seats: float) -> Any:
        lines = [
            as_json({"team": ["ann", "bob"], "rank": 1, "seat": "home"},
                    {"player": "cy", "rank": 2, "seat": "away"}, round_id=str(i))
            for i in range(2)
        ]  # fmt: skip
        rounds = sessions(*lines)[0]
        system = peers.PeerSystem(name).on(rounds)
        assert [each.name for each in system.fields] == ["seats.home"]
        values = {each.name: each.start for each in system.space}
        points = {f"seats.{seat}": value for seat, value in seats.items()}
        return system.play(rounds, system.config(values | points)).sides.mu

    none, home, both = played(), played(home=2.0), played(home=2.0, away=2.0)
    assert both == pytest.approx(none + 2.0)
    assert home[:2] == pytest.approx([none[0] + 2.0, none[1]])
    assert none[2] < home[2] < none[2] + 2.0 and none[3] < home[3]


def test_margins_count() -> None:
    """In Elo by their logarithm; in openskill.py by its own rule, where they agree with places."""
    team = [plain.EloRating(plain.INITIAL, plain.PROVISIONAL)]
    elo = plain.Elo(k=10.0, margin=2.0, usual_margin=3.0)
    for scores, times in (((7.0, 1.0), 1.0 + 2.0 * math.log(3.0)), ((1.0, math.nan), 1.0), ((), 1)):
        assert elo.rate([team, team], [1, 2], 0.0, scores)[0][0].mu == 1500.0 + 5.0 * times
    if "openskill-plackett-luce" in peers.missing():
        pytest.skip("openskill is not installed: `make bench` does it")
    model = model_of(PeerConfig("openskill-plackett-luce", 4.0, 0.1, margin=1.0))
    teams = [[model.moved(model.newcomer(), by)] for by in (0.0, 5.0)]
    won = [model.rate(teams, [1, 2], 0.0, each)[0][0].mu for each in ((), (9, 1), (1, 9), (2, 2))]
    assert won[0] == won[2] == won[3] != won[1]


# --- plain Elo and Glicko-2 -----------------------------------------------------------------------

SYSTEMS: list[Any] = [plain.Elo(), plain.Glicko2()]


def test_elo_by_hand() -> None:
    """1600 beats 1500 and gains K (1 - .640065). K is 40 for newcomers and falls with rounds."""
    ann, bob = plain.EloRating(1600.0, 0), plain.EloRating(1500.0, plain.PROVISIONAL)
    (won,), (lost,) = plain.Elo(k=20.0, k_first=40.0).rate([[ann], [bob]], [1, 2], 0.0)
    assert won.mu == pytest.approx(1600.0 + 40.0 * 0.359935, abs=1e-4) and won.rounds == 1
    assert lost.mu == pytest.approx(1500.0 - 20.0 * 0.359935, abs=1e-4)
    found = [plain.Elo(k=10.0, k_first=40.0)._k(rounds) for rounds in range(2 * plain.PROVISIONAL)]
    assert found[0] == 40.0 and found[plain.PROVISIONAL // 2] == 25.0
    assert all(a > b for a, b in pairwise(found[: plain.PROVISIONAL + 1]))
    assert set(found[plain.PROVISIONAL :]) == {10.0}


def test_rounds_of_many() -> None:
    """Elo averages over opponents. By Glicko-2, four draws of five equals are two games each."""
    team = [plain.EloRating(plain.INITIAL, plain.PROVISIONAL)]
    after = plain.Elo(k=30.0).rate([team] * 4, [1, 2, 2, 4], 0.0)
    assert [each.mu - plain.INITIAL for (each,) in after] == pytest.approx([15.0, 0.0, 0.0, -15.0])
    system, precision = plain.Glicko2(initial_volatility=1e-6), dict[int, float]()
    for count in (2, 5):
        (one, *_) = system.rate([[system.newcomer()]] * count, [1] * count, 0.0)
        precision[count] = one[0].deviation ** -2 - 350.0**-2
    assert precision[5] == pytest.approx(2.0 * precision[2], rel=1e-6)
    assert list(plain._opponents([1, 1, 3])) == [
        [(1, 0.5), (2, 1.0)], [(0, 0.5), (2, 1.0)], [(0, 0.0), (1, 0.0)],
    ]  # fmt: skip


def test_deviations_grow_by_rounds_or_by_days() -> None:
    """By one period a round, or by the days since the player's last round, up to a newcomer's."""

    def rated(system: plain.Glicko2, last_s: float | None, now_s: float) -> float:
        away = plain.Glicko2Rating(1500.0, 60.0, 0.06, last_s)
        there = plain.Glicko2Rating(1500.0, 60.0, 0.06, last_s)
        return system.rate([[away], [there]], [1, 2], now_s)[0][0].deviation

    by_days, by_rounds = plain.Glicko2(period_days=30.0), plain.Glicko2()
    assert rated(by_days, 0.0, 30.0 * plain.DAY_S) == pytest.approx(
        rated(by_rounds, 0.0, 1e9), rel=1e-9
    )
    assert rated(by_days, 0.0, 0.0) == rated(by_days, None, 1e9) == rated(by_days, 5.0, 0.0)
    assert rated(by_days, 0.0, 0.0) < rated(by_days, 0.0, 300.0 * plain.DAY_S) < 350.0
    newcomers = [[by_days.newcomer()], [by_days.newcomer()]]
    most = by_days.rate(newcomers, [1, 2], 0.0)[0][0].deviation
    g2 = 1.0 / (1.0 + 3.0 * (60.0 / plain.SCALE) ** 2 / math.pi**2)
    due = 1.0 / math.sqrt(350.0**-2 + 0.25 * g2 / plain.SCALE**2)
    assert rated(by_days, 0.0, 1e12) == pytest.approx(due)
    assert most > rated(by_days, 0.0, 1e12)


@cases("system", [*SYSTEMS, plain.Glicko2(period_days=0.5)])
def test_a_season_is_rated_round_by_round(system: Any) -> None:
    """Each round is predicted before it is rated, at its time, and those who did not finish tie."""
    lines = [
        as_json({"player": f"p{i % 3}", "rank": 1}, {"player": "bob", "dnf": True},
                {"player": "cy", "dnf": True}, round_id=str(i),
                completed_at=f"2026-11-{20 + i}T00:00:00Z")
        for i in range(4)
    ]  # fmt: skip
    run = peer_run(sessions(*lines)[0], system)
    ratings = {name: system.newcomer() for name in ("p0", "p1", "p2", "bob", "cy")}
    wanted = []
    for i in range(4):
        names = [f"p{i % 3}", "bob", "cy"]
        teams = [[ratings[name]] for name in names]
        wanted += [system.side(team) for team in teams]
        time_s = run.sides.number[i] * plain.DAY_S
        for name, (rated,) in zip(names, system.rate(teams, [1, 9, 9], time_s), strict=True):
            ratings[name] = rated
    assert run.sides.mu.tolist() == pytest.approx([side.mu for side in wanted])
    assert run.sides.variance.tolist() == pytest.approx([side.variance for side in wanted])
    assert run.sides.played.reshape(4, 3).tolist() == [[0, 0, 0], [0, 1, 1], [0, 2, 2], [1, 3, 3]]
    assert np.isfinite(scores_of(run)).all()
