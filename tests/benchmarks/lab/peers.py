"""Other packages' rating systems, played through the same rounds as ours. The packages are no
dependencies (`peer_module`). A side's mean and variance are those of the peer's model of two sides:
the mean is the sum of mu; the variance is beta^2 + the sum of sigma^2 for openskill.py
(`predict_win`), and the sum of beta^2 + sigma^2 for trueskill. Ratings start at 0. Shares, weights
and times are ignored, and entries that did not finish tie for last. Only the ratios of sigma, beta
and tau matter, so sigma keeps its default. Elo and Glicko-2 need no package: see `plain`."""

import importlib
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import Any

import msgspec
import numpy as np

from stream_rater.evaluation import spaces
from stream_rater.evaluation.fits import OwnSystem
from stream_rater.evaluation.season import Session
from stream_rater.evaluation.sides import Run, Sides, run_of
from stream_rater.rating.model import DID_NOT_FINISH, LAST
from stream_rater.rating.systems.common import Dimension
from tests.benchmarks.lab.plain import PLAIN, PlainSystem, Side

PEERS = Path(sys.prefix) / "peers"  # Where the project's own benchmarks install the peers.

SIGMA = 25.0 / 3.0  # The default of both packages.

BETA = Dimension("beta", 0.5, 60.0, 25.0 / 6.0)
TAU = Dimension("tau", 0.004, 4.0, 25.0 / 300.0)
DRAW = Dimension("draw_probability", 0.001, 0.5, 0.1)

SPACES: dict[str, tuple[Dimension, ...]] = {
    "openskill-plackett-luce": (BETA, TAU), "openskill-thurstone-mosteller": (BETA, TAU),
    "trueskill-package": (BETA, TAU, DRAW), **{name: each.space for name, each in PLAIN.items()},
}  # fmt: skip
"""The dimensions of each peer, with first guesses as the packages' defaults or the textbooks'."""

MODULES = {  # The module of each peer that is a package.
    "openskill-plackett-luce": "openskill.models",
    "openskill-thurstone-mosteller": "openskill.models",
    "trueskill-package": "trueskill",
}

FAILURES = (ArithmeticError, ValueError)  # Raised by packages if numbers leave the range of floats.


class PeerConfig(msgspec.Struct, frozen=True):
    peer: str
    beta: float
    tau: float
    draw_probability: float = 0.1


AnyPeer = PeerConfig | PlainSystem


def peer_module(module: str) -> Any:
    """Import a peer's module, or ImportError. PEERS has other versions of ours: only for this."""
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
"""Takes teams' ratings, their ranks and the time in Unix seconds. Returns new ratings."""


@dataclass(frozen=True, slots=True)
class Model:
    """A peer with its parameters, ready to rate."""

    newcomer: Callable[[], Any]
    rate: Rate
    side: Callable[[Sequence[Any]], Side]  # From a team's ratings, its mean and variance.


def model_of(config: AnyPeer) -> Model:
    """The peer with these parameters. Raises ImportError if its package is not installed."""
    if not isinstance(config, PeerConfig):
        return Model(config.newcomer, config.rate, config.side)
    module = peer_module(MODULES[config.peer])
    given: dict[str, Any] = {"mu": 0.0, "sigma": SIGMA, "beta": config.beta, "tau": config.tau}
    if config.peer == "trueskill-package":
        environment = module.TrueSkill(draw_probability=config.draw_probability, **given)
        side = _side(config.beta, of_members=True)
        return Model(environment.create_rating, _ranked(environment.rate), side)
    kind = "PlackettLuce" if config.peer.endswith("luce") else "ThurstoneMostellerFull"
    model = getattr(module, kind)(**given)
    side = _side(config.beta, of_members=False)
    return Model(lambda: model.rating(mu=0.0, sigma=SIGMA), _ranked(model.rate), side)


def _ranked(rate: Any) -> Rate:
    return lambda teams, ranks, _: rate(teams, ranks=ranks)


def _side(beta: float, *, of_members: bool) -> Callable[[Sequence[Any]], Side]:
    """A package's mean and variance of a team; beta^2 once, or for each member (`of_members`)."""

    def side(team: Sequence[Any]) -> Side:
        noises = len(team) if of_members else 1
        variance = sum(rating.sigma**2 for rating in team) + noises * beta**2
        return Side(sum(rating.mu for rating in team), variance)

    return side


class PeerReplay:
    """The ratings of one peer during a season, without seeds: all begin as newcomers."""

    def __init__(self, config: AnyPeer) -> None:
        self.seconds, self.failed = 0.0, 0
        self._model = model_of(config)
        self._ladders: dict[str, dict[int, tuple[Any, int]]] = {}

    def play(self, session: Session) -> tuple[Sides, int] | None:
        """Rate a session: beliefs about sides before each round, and players. None: no round."""
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
        return Sides(numbers, sizes, place, mu, variance, played), len(rows)

    def _round(
        self,
        stored: dict[int, tuple[Any, int]],
        teams: list[list[int]],
        ranks: list[int],
        time_s: float,
    ) -> list[tuple[float, float, int]]:
        """Mean, variance and rounds of each side before the round; it may fail, unrated."""
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


# --- as systems that are compared -----------------------------------------------------------------

LEFT_OUT = {"elo", "thurstone"}  # Elo is pairwise Elo; Thurstone's time grows with ratings' range.


def compared_systems(systems: Sequence[str]) -> list[OwnSystem]:
    """Those asked for; of all: without LEFT_OUT, with TrueSkill that places newcomers by field."""
    if set(systems) != set(spaces.SPACES):
        return [OwnSystem(each) for each in systems]
    return [
        *(OwnSystem(each) for each in systems if each not in LEFT_OUT),
        OwnSystem("trueskill", placing=True),
    ]


@dataclass(frozen=True, slots=True)
class PeerSystem:
    name: str

    @property
    def space(self) -> tuple[Dimension, ...]:
        return SPACES[self.name]

    def config(self, values: Mapping[str, float]) -> Any:
        """The configuration with these values of the dimensions."""
        return PLAIN[self.name](**values) if self.name in PLAIN else PeerConfig(self.name, **values)

    def play(self, sessions: Iterable[Session], config: Any) -> Run:
        return peer_run(sessions, config)

    def described(self, config: Any) -> dict[str, Any]:
        found: dict[str, Any] = msgspec.to_builtins(config)
        return found
