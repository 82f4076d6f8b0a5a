"""Elo and Glicko-2 as their authors describe them, in plain Python.

Systems are compared with these two in `evidence`. So that a mistake in our kernels cannot be in
both, nothing here calls them, and every formula can be read beside its source:

- Elo: A. Elo, The Rating of Chessplayers, Past and Present (1978). The gain of a player is K times
  (the score - the expected score). K falls from `k_first` to `k` during the first PROVISIONAL
  rounds, as FIDE has a higher K for as many games;
- Glicko-2: M. Glickman, Example of the Glicko-2 system (2013), steps 1 to 8.

Both are defined for games of two players. For other rounds they need conventions. These are ours:

- a round of n sides is all its pairs of sides. In Elo the gain is the mean over the n - 1
  opponents. In Glicko-2 the round is a rating period, in which each opponent counts as
  3 / (n + 1) games. The pairs of a round depend on each other: among equals, the number of
  opponents beaten has the variance (n^2 - 1) / 12, which is (n + 1) / 3 times that of n - 1 games;
- a team plays as one player with the mean of its members' ratings. Its deviation is the root mean
  square of theirs. Each member gains by the team's results, in Glicko-2 in proportion to the square
  of the member's own deviation;
- a draw is half a win;
- Elo can count margins, as World Football Elo Ratings do: what a pair moves is multiplied by
  1 + `margin` ln(1 + difference of the scores / `usual_margin`).

All numbers are in the usual points of Elo and Glicko, with newcomers at INITIAL.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import ClassVar, NamedTuple

import msgspec

from stream_rater.rating.systems.common import Dimension

INITIAL = 1500.0
SCALE = 400.0 / math.log(10.0)  # Of a difference of performances, in points: Glicko-2's 173.7178.
NOISE = 0.5 * (math.pi * SCALE) ** 2 / 3.0  # A side's variance, in points^2: half a difference's.
PROVISIONAL = 30  # The number of rounds in which Elo's K falls.
CLOSE = 1e-9  # The error of the logarithm of a variance in step 5. The source has 1e-6.
MOST_STEPS = 200
TIMES = 10.0
"""A volatility is within the initial one divided and multiplied by this: the source has no bounds,
and its volatilities grow without end in rounds of many sides and little skill."""
DAY_S = 86_400.0


class Side(NamedTuple):
    """A side before a round: the mean and the variance of its performance."""

    mu: float  # In points.
    variance: float  # In points^2.


def _opponents(ranks: Sequence[int]) -> Iterator[list[tuple[int, float]]]:
    """For each side: the index of each opponent, and the score against it, 0 to 1."""
    for i, own in enumerate(ranks):
        yield [
            (j, 1.0 if own < other else 0.5 if own == other else 0.0)
            for j, other in enumerate(ranks) if j != i
        ]  # fmt: skip


def _expected(gap: float) -> float:
    """The logistic function, for gaps in units of the scale."""
    if gap < -700.0:
        return 0.0
    return 1.0 / (1.0 + math.exp(-gap))


# --- Elo ------------------------------------------------------------------------------------------


class EloRating(NamedTuple):
    """A player's rating in points, and the number of rounds played."""

    mu: float
    rounds: int


class Elo(msgspec.Struct, frozen=True, tag="plain-elo", tag_field="peer"):
    """Elo with a K that falls during the first rounds. Both are in points."""

    k: float = 20.0
    k_first: float = 40.0
    margin: float = 0.0  # What margins add to K; 0: they do not count.
    usual_margin: float = 1.0  # In the unit of the scores.
    seats: Mapping[str, float] = {}  # Points by seat (`peers`).

    space: ClassVar = (Dimension("k", 2.0, 200.0, 20.0), Dimension("k_first", 2.0, 400.0, 40.0))

    def newcomer(self) -> EloRating:
        return EloRating(INITIAL, 0)

    def side(self, team: Sequence[EloRating]) -> Side:
        return Side(sum(each.mu for each in team) / len(team), NOISE)

    def rate(
        self, teams: Sequence[Sequence[EloRating]], ranks: Sequence[int], time_s: float,
        scores: Sequence[float] = (),
    ) -> list[list[EloRating]]:  # fmt: skip
        """The ratings after a round. Lower ranks are better. Elo has no use for the time. `scores`:
        of each team, perhaps NaN, or of none."""
        means, after = [self.side(team).mu for team in teams], []
        for i, (team, opponents) in enumerate(zip(teams, _opponents(ranks), strict=True)):
            gains = [
                (score - _expected((means[i] - means[j]) / SCALE)) * self._times(scores, i, j)
                for j, score in opponents
            ]
            gain = sum(gains) / len(gains) if gains else 0.0
            after.append(
                [EloRating(each.mu + self._k(each.rounds) * gain, each.rounds + 1) for each in team]
            )
        return after

    def _times(self, scores: Sequence[float], i: int, j: int) -> float:
        gap = abs(scores[i] - scores[j]) if scores and self.margin else 0.0
        return 1.0 + self.margin * math.log1p(gap / self.usual_margin) if gap > 0.0 else 1.0

    def _k(self, rounds: int) -> float:
        fresh = max(0.0, 1.0 - rounds / PROVISIONAL)
        return self.k + (self.k_first - self.k) * fresh


# --- Glicko-2 -------------------------------------------------------------------------------------


class Glicko2Rating(NamedTuple):
    """A player's rating and deviation in points, the volatility, and the time of the last round."""

    mu: float
    deviation: float
    volatility: float
    time_s: float | None  # Unix seconds; None for a newcomer.


class Glicko2(msgspec.Struct, frozen=True, tag="plain-glicko2", tag_field="peer"):
    """Glicko-2 with rating periods of one round of the player, or of a number of days."""

    tau: float = 0.5
    initial_deviation: float = 350.0
    initial_volatility: float = 0.06
    period_days: float | None = None  # Days in which it grows so; None: in each round played.
    seats: Mapping[str, float] = {}  # Points by seat (`peers`).

    space: ClassVar = (
        Dimension("tau", 0.05, 3.0, 0.5),
        Dimension("initial_deviation", 40.0, 800.0, 350.0),
        Dimension("initial_volatility", 0.002, 0.6, 0.06),
    )

    def newcomer(self) -> Glicko2Rating:
        return Glicko2Rating(INITIAL, self.initial_deviation, self.initial_volatility, None)

    def side(self, team: Sequence[Glicko2Rating]) -> Side:
        mean = sum(each.mu for each in team) / len(team)
        return Side(mean, sum(each.deviation**2 for each in team) / len(team) + NOISE)

    def rate(
        self, teams: Sequence[Sequence[Glicko2Rating]], ranks: Sequence[int], time_s: float,
        scores: Sequence[float] = (),
    ) -> list[list[Glicko2Rating]]:  # fmt: skip
        """The ratings after a round at this time. Lower ranks are better. Scores do not count."""
        sides = [self.side(team) for team in teams]
        phi2 = [(side.variance - NOISE) / SCALE**2 for side in sides]
        g = [1.0 / math.sqrt(1.0 + 3.0 * each / math.pi**2) for each in phi2]
        games, after = 3.0 / (len(ranks) + 1), []
        for side, team, opponents in zip(sides, teams, _opponents(ranks), strict=True):
            precision, surprise = 0.0, 0.0
            for j, score in opponents:
                chance = _expected(g[j] * (side.mu - sides[j].mu) / SCALE)
                precision += games * g[j] ** 2 * chance * (1.0 - chance)
                surprise += games * g[j] * (score - chance)
            after.append([self._rated(each, precision, surprise, time_s) for each in team])
        return after

    def _rated(
        self, player: Glicko2Rating, precision: float, surprise: float, time_s: float
    ) -> Glicko2Rating:
        """Steps 3 to 8. `precision` is 1 / v, and `surprise` is delta / v."""
        phi2 = (player.deviation / SCALE) ** 2
        volatility = player.volatility
        if precision > 0.0:
            volatility = self._volatility(volatility, phi2, 1.0 / precision, surprise / precision)
        prior = phi2 + volatility**2 * self._periods(player, time_s)
        if self.period_days is not None:  # a long absence makes nobody less known than a newcomer
            prior = min(prior, max((self.initial_deviation / SCALE) ** 2, phi2))
        variance = 1.0 / (1.0 / prior + precision)
        mu = player.mu + SCALE * variance * surprise
        return Glicko2Rating(mu, SCALE * math.sqrt(variance), volatility, time_s)

    def _periods(self, player: Glicko2Rating, time_s: float) -> float:
        if self.period_days is None:
            return 1.0
        if player.time_s is None:
            return 0.0
        return max(0.0, time_s - player.time_s) / (self.period_days * DAY_S)

    def _volatility(self, volatility: float, phi2: float, v: float, delta: float) -> float:
        """Step 5: the new volatility, by the Illinois algorithm."""
        start = math.log(volatility**2)

        def slope(x: float) -> float:
            e = math.exp(x)
            gap = delta**2 - phi2 - v - e
            return e * gap / (2.0 * (phi2 + v + e) ** 2) - (x - start) / self.tau**2

        low, high = start, start - self.tau
        if delta**2 > phi2 + v:
            high = math.log(delta**2 - phi2 - v)
        else:
            while slope(high) < 0.0:
                high -= self.tau
        at_low, at_high = slope(low), slope(high)
        for _ in range(MOST_STEPS):
            if abs(high - low) <= CLOSE:
                break
            x = low + (low - high) * at_low / (at_high - at_low)
            at_x = slope(x)
            if at_x * at_high <= 0.0:
                low, at_low = high, at_high
            else:
                at_low /= 2.0
            high, at_high = x, at_x
        most, least = self.initial_volatility * TIMES, self.initial_volatility / TIMES
        return min(max(math.exp(low / 2.0), least), most)


PlainSystem = Elo | Glicko2
PLAIN: dict[str, type[Elo] | type[Glicko2]] = {"plain-elo": Elo, "plain-glicko2": Glicko2}
"""The systems of this module, by name."""
