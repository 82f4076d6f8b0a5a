"""Other packages' rating systems, played through the same rounds as ours.

These packages are not dependencies. `peer_module` looks for them among the installed packages, and
then in the folder `peers` of the environment. The mean and the variance of a side's performance are
those of the peer's own model of a match of two sides:

| peer | mean of a side | variance of a side |
|---|---|---|
| openskill.py (`predict_win`) | sum of mu | beta^2 + sum of sigma^2 |
| trueskill | sum of mu | sum of (beta^2 + sigma^2) |

Differences of performances are normal. Ratings start at 0. The members' shares, the weight of a
round and its time are ignored. Entries that did not finish tie for the last place.

Both packages depend only on the ratios of sigma, beta and tau, so sigma keeps its default and the
other two are tuned.

Elo and Glicko-2 are peers, too. They are written out in `plain`, which needs no package.
"""

import importlib
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import Any

import msgspec
import numpy as np

from stream_rater.evaluation.season import Session
from stream_rater.evaluation.sides import Run, Sides, run_of
from stream_rater.rating.model import DID_NOT_FINISH, LAST
from stream_rater.rating.systems.dimension import Dimension
from tests.benchmarks.lab.plain import PLAIN, PlainSystem, Side

PEERS = Path(sys.prefix) / "peers"
"""The folder in which the project's own benchmarks install the peers."""

SIGMA = 25.0 / 3.0  # The default of both packages.

BETA = Dimension("beta", 0.5, 60.0, 25.0 / 6.0)
TAU = Dimension("tau", 0.004, 4.0, 25.0 / 300.0)
DRAW = Dimension("draw_probability", 0.001, 0.5, 0.1)

SPACES: dict[str, tuple[Dimension, ...]] = {
    "openskill-plackett-luce": (BETA, TAU),
    "openskill-thurstone-mosteller": (BETA, TAU),
    "trueskill-package": (BETA, TAU, DRAW),
    **{name: each.space for name, each in PLAIN.items()},
}
"""The dimensions of each peer. Their first guesses are the packages' defaults, or those of the
textbooks."""

MODULES = {  # The module of each peer that is a package.
    "openskill-plackett-luce": "openskill.models",
    "openskill-thurstone-mosteller": "openskill.models",
    "trueskill-package": "trueskill",
}

FAILURES = (ArithmeticError, ValueError)
"""The exceptions that the packages raise if their numbers leave the range of floats."""


class PeerConfig(msgspec.Struct, frozen=True):
    """A package's system and its parameters."""

    peer: str
    beta: float
    tau: float
    draw_probability: float = 0.1


AnyPeer = PeerConfig | PlainSystem


def peer_config(peer: str, values: Mapping[str, float]) -> AnyPeer:
    """The configuration of a peer with these values of its dimensions."""
    return PLAIN[peer](**values) if peer in PLAIN else PeerConfig(peer, **values)


def peer_module(module: str) -> Any:
    """Import a peer's module. Raises ImportError if it is not installed.

    `sys.path` is restored afterwards, because PEERS has other versions of packages that we use.
    """
    before = sys.path[:]
    sys.path.append(str(PEERS))
    try:
        return importlib.import_module(module)
    finally:
        sys.path[:] = before


def missing() -> list[str]:
    """The peers that are not installed."""
    found = []
    for peer, module in MODULES.items():
        try:
            peer_module(module)
        except ImportError:
            found.append(peer)
    return found


Rate = Callable[[list[list[Any]], list[int], float], Any]
"""Takes the ratings of teams, the ranks of the teams and the time in Unix seconds. Returns the new
ratings in the same order."""


@dataclass(frozen=True, slots=True)
class Model:
    """A peer with its parameters, ready to rate."""

    newcomer: Callable[[], Any]
    rate: Rate
    side: Callable[[Sequence[Any]], Side]
    """Takes the ratings of a team. Returns the mean and the variance of its
    performance."""


def model_of(config: AnyPeer) -> Model:
    """The peer's model with these parameters. Raises ImportError if it is a package that is not
    installed."""
    if not isinstance(config, PeerConfig):
        return Model(config.newcomer, config.rate, config.side)
    module = peer_module(MODULES[config.peer])
    given: dict[str, Any] = {"mu": 0.0, "sigma": SIGMA, "beta": config.beta, "tau": config.tau}
    if config.peer == "trueskill-package":
        chance = config.draw_probability
        environment = module.TrueSkill(draw_probability=chance, **given)
        side = _side(config.beta, of_members=True)
        return Model(environment.create_rating, _ranked(environment.rate), side)
    kind = "PlackettLuce" if config.peer.endswith("luce") else "ThurstoneMostellerFull"
    model = getattr(module, kind)(**given)
    side = _side(config.beta, of_members=False)
    return Model(lambda: model.rating(mu=0.0, sigma=SIGMA), _ranked(model.rate), side)


def _ranked(rate: Any) -> Rate:
    return lambda teams, ranks, _: rate(teams, ranks=ranks)


def _side(beta: float, *, of_members: bool) -> Callable[[Sequence[Any]], Side]:
    """The mean and the variance that a package gives a team. `of_members`: whether the variance has
    beta^2 once for each member. If not, it has beta^2 once."""

    def side(team: Sequence[Any]) -> Side:
        noises = len(team) if of_members else 1
        variance = sum(rating.sigma**2 for rating in team) + noises * beta**2
        return Side(sum(rating.mu for rating in team), variance)

    return side


class PeerReplay:
    """The ratings of one peer during a season. A peer takes no seeds: all players begin as
    newcomers."""

    def __init__(self, config: AnyPeer) -> None:
        self.seconds, self.failed = 0.0, 0
        self._model = model_of(config)
        self._ladders: dict[str, dict[int, tuple[Any, int]]] = {}

    def play(self, session: Session) -> tuple[Sides, int] | None:
        """Rate a session's rounds. Returns the beliefs about the sides before each round, and the
        number of players that were rated. Returns None if no round is informative."""
        rated, indices = session.rating(skip_all_tied=False)
        if rated is None:
            return None
        stored = self._ladders.setdefault(session.ladder, {})
        before_round: list[tuple[float, float, int]] = []
        rows, members = rated.rows.tolist(), rated.rounds.members.tolist()
        place, player, entry = rated.rounds.place, 0, 0
        ranks = np.where(place == DID_NOT_FINISH, LAST, place).tolist()
        times = rated.rounds.time.tolist()
        for entries, time_s in zip(rated.rounds.entries.tolist(), times, strict=True):
            teams = []
            for size in members[entry : entry + entries]:
                teams.append(rows[player : player + size])
                player += size
            before_round += self._round(stored, teams, ranks[entry : entry + entries], time_s)
            entry += entries
        mu, variance, played = (np.array(each) for each in zip(*before_round, strict=True))
        numbers, sizes = session.numbers[indices], rated.rounds.entries
        sides = Sides(numbers, sizes, place, mu, variance, played)
        return sides, len(rows)

    def _round(
        self,
        stored: dict[int, tuple[Any, int]],
        teams: list[list[int]],
        ranks: list[int],
        time_s: float,
    ) -> list[tuple[float, float, int]]:
        """Rate one round. Returns, for each side before the round, the mean and the variance of its
        performance and its number of rounds. A round that the package fails on changes no
        rating."""
        began_s = perf_counter()
        fresh = self._model.newcomer
        before = [[stored.get(row) or (fresh(), 0) for row in team] for team in teams]
        ratings = [[rating for rating, _ in team] for team in before]
        try:
            after = self._model.rate(ratings, ranks, time_s)
        except FAILURES:
            after, self.failed = ratings, self.failed + 1
        for team, counts, rated in zip(teams, before, after, strict=True):
            for row, (_, played), rating in zip(team, counts, rated, strict=True):
                stored[row] = rating, played + 1
        self.seconds += perf_counter() - began_s
        return [
            (*self._model.side(own), min(played for _, played in team))
            for own, team in zip(ratings, before, strict=True)
        ]


def peer_run(sessions: Iterable[Session], config: AnyPeer) -> Run:
    """Rate a season with a peer. Raises ImportError if its package is not installed."""
    peer = PeerReplay(config)
    played = [each for session in sessions if (each := peer.play(session)) is not None]
    results = sum(count for _, count in played)
    sides = Sides.concat([sides for sides, _ in played])
    return run_of(sides, peer.seconds, results, peer.failed)
