"""Peers through our rounds: what they believe and how they rate is what their packages say."""

import math
from typing import Any

import numpy as np
import pytest

from stream_rater.evaluation import peers
from stream_rater.evaluation.calibrating import pairs_of
from stream_rater.evaluation.peers import PeerConfig, model_of, peer_module, peer_run
from stream_rater.evaluation.season import Session
from stream_rater.rating.normal import below
from tests.builders.cases import cases
from tests.rounds import as_json
from tests.unit.test_season import sessions

INSTALLED = [
    pytest.param(
        peer,
        marks=pytest.mark.skipif(
            peer in peers.missing(), reason=f"{peer} is not installed: `make bench` does it"
        ),
    )
    for peer in peers.MODULES
]
each_peer = pytest.mark.parametrize("peer", INSTALLED)


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
    """That the first of two teams wins: `predict_win` of openskill.py; the trueskill package has
    none, so it is what its documentation gives."""
    if peer != "trueskill-package":
        kind = "PlackettLuce" if "plackett" in peer else "ThurstoneMostellerFull"
        model = getattr(peer_module("openskill.models"), kind)(beta=config.beta)
        return float(model.predict_win(teams)[0])
    environment = peer_module("trueskill").TrueSkill(beta=config.beta)
    gap = sum(each.mu for each in teams[0]) - sum(each.mu for each in teams[1])
    members = [each for team in teams for each in team]
    variance = len(members) * config.beta**2 + sum(each.sigma**2 for each in members)
    return float(environment.cdf(gap / math.sqrt(variance)))


@each_peer
@cases("size", [1, 5])
def test_chances_and_ratings_are_the_packages_own(peer: str, size: int) -> None:
    """Of two sides, round by round, with the package called by hand beside it."""
    rounds, given = rounds_of(size), config(peer)
    beliefs = peer_run(rounds, given).sides
    pairs, of_round = pairs_of(
        beliefs.starts, beliefs.place, beliefs.mu, beliefs.variance, draws=False
    )
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


@each_peer
def test_who_did_not_finish_ties_for_last(peer: str) -> None:
    """Whoever of them is named first."""

    def played(*names: str) -> Any:
        lines = [
            as_json({"player": "ann", "rank": 1}, *({"player": n, "dnf": True} for n in names),
                    round_id=str(i))
            for i in range(3)
        ]  # fmt: skip
        run = peer_run(sessions(*lines)[0], config(peer))
        return sorted(run.sides.mu[run.sides.starts[2] :].tolist())

    low, other_low, high = played("bob", "cy")
    assert low == pytest.approx(other_low, rel=1e-3) and low < 0.0 < high
    assert played("cy", "bob") == pytest.approx([low, other_low, high], rel=1e-3)


def test_first_guesses_are_the_packages_defaults() -> None:
    """25, 25/3 and so on, in both."""
    for peer in peers.MODULES:
        space = peers.SPACES[peer]
        start = {each.name: each.start for each in space}
        assert start["beta"] == pytest.approx(peers.SIGMA / 2.0)
        assert start["tau"] == pytest.approx(peers.SIGMA / 100.0)


def test_missing_peers_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those whose package cannot be imported, and no others."""

    def absent(module: str) -> Any:
        if module == "trueskill":
            raise ImportError(module)

    monkeypatch.setattr(peers, "peer_module", absent)
    assert peers.missing() == ["trueskill-package"]
    assert set(peers.SPACES) - set(peers.MODULES) == {"plain-elo", "plain-glicko2"}
