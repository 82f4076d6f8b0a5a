"""Other packages' rating systems, played through the same rounds as ours. The packages are no
dependencies (`peer_module`). A side's mean and variance are those of the peer's model of two sides:
the mean is the sum of mu; the variance is beta^2 + the sum of sigma^2 for openskill.py
(`predict_win`), and the sum of beta^2 + sigma^2 for trueskill. Ratings start at 0. Shares, weights
and times are ignored, and entries that did not finish tie for last. Only the ratios of sigma, beta
and tau matter, so sigma keeps its default. Elo and Glicko-2 need no package: see `plain`.

Where rounds name seats, every peer has the points of each seat as dimensions, as our systems have:
a side's mean is so much higher in the prediction and in the round that is rated, and its members
are moved back afterwards. Where rounds of two have scores, openskill.py's own `margin` and that of
plain Elo are dimensions, which begin where scores do not count."""

import importlib
import math
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
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
from stream_rater.rating.seats import shifts_of
from stream_rater.rating.systems.common import USUAL_SIGMA, Dimension
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

MOST_POINTS = 300.0  # The most that a seat adds, in points of Elo, for a side of one.

FAILURES = (ArithmeticError, ValueError)  # Raised by packages if numbers leave the range of floats.


class PeerConfig(msgspec.Struct, frozen=True):
    peer: str
    beta: float
    tau: float
    draw_probability: float = 0.1
    margin: float = 0.0  # openskill.py's: larger differences of scores count more; 0: none does.
    seats: Mapping[str, float] = {}  # What each seat adds to a side's mean.


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


Rate = Callable[..., Any]
"""Takes teams' ratings, their ranks, the time in Unix seconds, and perhaps their scores. Returns
new ratings."""


@dataclass(frozen=True, slots=True)
class Model:
    """A peer with its parameters, ready to rate."""

    newcomer: Callable[[], Any]
    rate: Rate
    side: Callable[[Sequence[Any]], Side]  # From a team's ratings, its mean and variance.
    moved: Callable[[Any, float], Any]  # A player's rating with a mean that is so much higher.
    sums: bool  # Whether the means of a team's members add up; else their mean counts.


def model_of(config: AnyPeer) -> Model:
    """The peer with these parameters. Raises ImportError if its package is not installed."""
    if not isinstance(config, PeerConfig):
        moved = lambda rating, by: rating._replace(mu=rating.mu + by)  # noqa: E731
        return Model(config.newcomer, config.rate, config.side, moved, sums=False)
    module = peer_module(MODULES[config.peer])
    given: dict[str, Any] = {"mu": 0.0, "sigma": SIGMA, "beta": config.beta, "tau": config.tau}
    if config.peer == "trueskill-package":
        environment = module.TrueSkill(draw_probability=config.draw_probability, **given)
        side, rating = _side(config.beta, of_members=True), environment.create_rating
        return Model(rating, _ranked(environment.rate), side, _moved(rating), sums=True)
    kind = "PlackettLuce" if config.peer.endswith("luce") else "ThurstoneMostellerFull"
    model = getattr(module, kind)(margin=config.margin, **given)
    side, rate = _side(config.beta, of_members=False), _ranked(model.rate, config.margin)
    newcomer = lambda: model.rating(mu=0.0, sigma=SIGMA)  # noqa: E731
    return Model(newcomer, rate, side, _moved(model.rating), sums=True)


def _ranked(rate: Any, margin: float = 0.0) -> Rate:
    """A package's function. With a margin it takes scores in place of ranks that agree with them:
    it refuses both."""

    def rated(teams: Any, ranks: list[int], _: float, scores: Sequence[float] = ()) -> Any:
        if margin > 0.0 and scores and _agree(ranks, scores):
            return rate(teams, scores=list(scores))
        return rate(teams, ranks=ranks)

    return rated


def _agree(ranks: Sequence[int], scores: Sequence[float]) -> bool:
    """Whether more is better, and equal scores tie; `ranks` ascend. A score of NaN never agrees."""
    pairs = zip(pairwise(ranks), pairwise(scores), strict=True)
    return all(x > y if a < b else x == y for (a, b), (x, y) in pairs)


def _moved(rating: Callable[[float, float], Any]) -> Callable[[Any, float], Any]:
    return lambda old, by: rating(old.mu + by, old.sigma)


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
        self._model, self._seats = model_of(config), config.seats
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
        times, scores = rated.rounds.time.tolist(), rated.rounds.score.tolist()
        shifts = shifts_of(self._seats, rated.rounds.seat).tolist() or [0.0] * len(place)
        for entries, time_s in zip(rated.rounds.entries.tolist(), times, strict=True):
            teams = []
            for size in members[entry : entry + entries]:
                teams.append(rows[player : player + size])
                player += size
            own = slice(entry, entry + entries)
            before_round += self._round(stored, teams, shifts[own], ranks[own], time_s, scores[own])
            entry += entries
        mu, variance, played = (np.array(each) for each in zip(*before_round, strict=True))
        numbers, sizes = session.numbers[indices], rated.rounds.entries
        return Sides(numbers, sizes, place, mu, variance, played), len(rows)

    def _round(
        self, stored: dict[int, tuple[Any, int]], teams: list[list[int]], shifts: list[float],
        ranks: list[int], time_s: float, scores: list[float],
    ) -> list[tuple[float, float, int]]:  # fmt: skip
        """Mean, variance and rounds of each side before the round; it may fail, unrated."""
        began_s = perf_counter()
        fresh = self._model.newcomer
        before = [[stored.get(row) or (fresh(), 0) for row in team] for team in teams]
        ratings = self._moved(([rating for rating, _ in team] for team in before), shifts)
        try:
            after = self._model.rate(ratings, ranks, time_s, scores)
        except FAILURES:
            after, self.failed = ratings, self.failed + 1
        after = self._moved(after, [-each for each in shifts])
        for team, counts, rated in zip(teams, before, after, strict=True):
            for row, (_, played), rating in zip(team, counts, rated, strict=True):
                stored[row] = rating, played + 1
        self.seconds += perf_counter() - began_s
        return [
            (*self._model.side(own), min(played for _, played in team))
            for own, team in zip(ratings, before, strict=True)
        ]

    def _moved(self, teams: Iterable[list[Any]], shifts: Sequence[float]) -> list[list[Any]]:
        """Teams whose means are higher by these points."""
        found = []
        for team, shift in zip(teams, shifts, strict=True):
            by = shift / len(team) if self._model.sums else shift
            found.append([self._model.moved(each, by) for each in team] if by else team)
        return found


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
    fields: tuple[Dimension, ...] = ()  # Those of the optional fields that the rounds have.
    usual_margin: float = 1.0

    @property
    def space(self) -> tuple[Dimension, ...]:
        return (*SPACES[self.name], *self.fields)

    def on(self, sessions: Sequence[Session]) -> "PeerSystem":
        """The peer, with dimensions for seats, by the spread of a side, and for margins."""
        rounds = [each.rounds for each in sessions]
        most = MOST_POINTS
        if self.name not in PLAIN:  # a side's mean is a sum
            sides = sum(len(each.place) for each in rounds)
            members = sum(len(each.share) for each in rounds) / max(sides, 1)
            most *= SIGMA / USUAL_SIGMA * math.sqrt(members)
        seats = (
            Dimension(spaces.SEAT + name, -most, most, 0.0, "linear")
            for name in spaces.seats_to_tune(rounds)
        )
        mean = spaces.mean_margin(rounds)
        margins: tuple[Dimension, ...] = ()
        if mean > 0.0 and self.name == "plain-elo":
            margins = (Dimension("margin", 0.0, 4.0, 0.0, "linear"),)
        elif mean > 0.0 and self.name.startswith("openskill"):  # no difference is above the first
            margins = (Dimension("margin", 0.3 * mean, 30.0 * mean, 30.0 * mean),)
        return replace(self, fields=(*seats, *margins), usual_margin=mean or 1.0)

    def config(self, values: Mapping[str, float]) -> Any:
        """The configuration with these values of the dimensions."""
        own: dict[str, Any] = {x: y for x, y in values.items() if not spaces.is_of_field(x)}
        own["seats"] = spaces.seats_of(values)
        if self.name not in PLAIN:
            return PeerConfig(self.name, **own)
        if "margin" in own:
            own["usual_margin"] = self.usual_margin
        return PLAIN[self.name](**own)

    def play(self, sessions: Iterable[Session], config: Any) -> Run:
        return peer_run(sessions, config)

    def described(self, config: Any) -> dict[str, Any]:
        found: dict[str, Any] = msgspec.to_builtins(config)
        return found
