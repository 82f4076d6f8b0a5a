"""Learns how sure predictions should be, from predictions of past pairs and their outcomes.

A rating system knows who is probably better. It knows less well how sure that is: its variances
follow from parameters that were chosen for something else, few systems have a model of draws, and
some results have nothing to do with skill. A *calibration* corrects this with three numbers:

- the variance of each side's performance is multiplied by `factor`;
- two sides draw if their performances differ by at most `draw_width`, in rating points;
- a share of 2 `upset` of the pairs that do not draw is decided by chance alone.

Let W and L be the probabilities by the model that the first side of a pair wins and loses, by more
than the width. Then the three outcomes have the probabilities

    P(win) = (1 - upset) W + upset L,  P(loss) = (1 - upset) L + upset W,  P(draw) = 1 - W - L

which add up to 1. Without draws, L = 1 - W and P(win) = upset + (1 - 2 upset) W. A calibration
changes no rating, so a season is rated once for all of them.

**Fitting.** The calibration that is chosen is the most probable one. It minimises

    sum over pairs of weight * -ln P(outcome)
    + (ln factor)^2 / (2 PRIOR_OF_FACTOR^2)
    + (ln v - ln USUAL_WIDTH)^2 / (2 PRIOR_OF_WIDTH^2) + upset^2 / (2 PRIOR_OF_UPSET^2)

where v is the width in standard deviations of a performance difference. With few pairs it stays
near the model as it is. A round of n sides counts as n / 2 pairs, because n / 2 of its pairs can be
chosen so that none share a side; but as at most MOST_OF_ROUND, because all pairs of a round depend
on the same course, weather or problem set.

**Forgetting.** Pools change: a calibration that suits the first years of a game need not suit the
last ones. So a pair's weight halves with every HALF_LIFE pairs that come after it.

**No leak.** A `Learner` gives each round the calibration that was fitted on rounds before it.
"""

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from stream_rater.columns.arrays import Flags, Floats, Ints
from stream_rater.columns.kernels import kernel
from stream_rater.columns.ranges import bounds, spread
from stream_rater.rating.elementary import exp, log
from stream_rater.rating.model import DID_NOT_FINISH, Places
from stream_rater.rating.normal import density, mills
from stream_rater.rating.wins import MOST_OF_ROUND, Performances

HALF_LIFE = 1500.0  # The number of pairs after which a pair's weight is halved.
HALF_LIVES = 6  # Pairs older than this many half-lives are dropped.
PRIOR_OF_FACTOR = 0.5  # The prior standard deviation of ln factor around 0.
USUAL_WIDTH = 0.1
"""The prior median of the width, in standard deviations of a performance difference. Two equal
sides then draw with a probability of 8 %."""
PRIOR_OF_WIDTH = 1.5
"""The prior standard deviation of the logarithm of the width. It is wide: a quarter of the results
of football are draws, and hardly any in a race."""
PRIOR_OF_UPSET = 0.05  # The prior standard deviation of `upset`, which is not negative.
MOST_UPSET = 0.2  # The largest `upset`. Then two of five results are decided by chance alone.
ALL_PAIRS = 8
"""All pairs of a round of up to this many sides are looked at. In a larger round, MOST_COMPARED
sides, spread evenly over the standings, are each compared with DISTANCES others, near and far."""
DISTANCES, MOST_COMPARED = 4, 50
LEAST_PART, MOST_PART, GROWTH = 20.0, 150.0, 0.05
"""A calibration is fitted again as soon as the pairs since the last fit are GROWTH of all pairs so
far, but at least LEAST_PART and at most MOST_PART pairs."""

LEAST_PROBABILITY = 1e-15  # A smaller probability of what happened counts as this one.
ENOUGH = 1e-4  # A fit ends when a step promises to gain less than this, in nats.
MOST_STEPS, MOST_HALVINGS = 50, 30
WIDEST = 3.5  # The largest |ln factor|, and the largest distance of ln v from its prior, in a step.


class Calibration(NamedTuple):
    """The corrections of a model's predictions. The default changes nothing."""

    factor: float = 1.0  # The variance of each side's performance is multiplied by it.
    draw_width: float = 0.0
    """Two sides draw if their performances differ by at most this much, in rating points."""
    upset: float = 0.0  # Half the share of the decided pairs in which chance alone decides.


class Pairs(NamedTuple):
    """P predicted pairs of sides and their outcomes. The better placed side comes first."""

    gap: Floats  # (P,) the difference of the means of both sides' performances, in rating points.
    variance: Floats  # (P,) the variance of the difference of the performances.
    drew: Flags  # (P,) whether the sides share a place.
    weight: Floats  # (P,) the number of pairs that a pair counts as.

    def of(self, chosen: slice | Flags) -> "Pairs":
        """A copy with only these pairs."""
        return Pairs._make(each[chosen] for each in self)

    def and_then(self, later: "Pairs") -> "Pairs":
        """These pairs, followed by later ones."""
        return Pairs._make(map(np.concatenate, zip(self, later, strict=True)))


class Learned(NamedTuple):
    """Which numbers of a calibration are learned. The others keep their values; a width keeps its
    value in standard deviations of a difference of performances."""

    factor: bool = True
    draw_width: bool = True
    upset: bool = True


EVERYTHING, ONLY_WIDTH = Learned(), Learned(factor=False, upset=False)
ONLY_FACTOR = Learned(draw_width=False, upset=False)


def fit(
    pairs: Pairs, *, draws: bool, start: Calibration | None = None, learned: Learned = EVERYTHING
) -> Calibration:
    """The most probable calibration by these pairs. Where draws are no outcomes, pairs that drew
    are left out and the width is 0. The search begins at `start`, and keeps its values of what is
    not learned. Without pairs the result is the prior's optimum, where a width of 0 stands for an
    unknown one."""
    start = Calibration() if start is None else start
    total = float(pairs.weight.sum())  # `scale` is the average standard deviation of a difference
    scale = float(np.sqrt(pairs.weight @ pairs.variance / total)) if total > 0.0 else 0.0
    if scale == 0.0:
        return start
    spread = np.sqrt(start.factor) * scale
    width = max(start.draw_width, 0.01 * spread) / spread if start.draw_width else USUAL_WIDTH
    x = np.array([np.log(start.factor), np.log(width), start.upset])
    found = _fit(*pairs, scale, x, np.array([*learned]) & [True, draws, True], draws)
    factor = float(np.exp(found[0])) if learned.factor else start.factor
    width = float(np.exp(found[1]) * np.sqrt(factor) * scale)
    return Calibration(factor, width if draws else 0.0, float(found[2]))


@kernel
def _cost(
    gap: Floats, variance: Floats, drew: Flags, weight: Floats, scale: float, x: Floats,
    draws: bool, gradient: Floats, curvature: Floats,
) -> float:  # fmt: skip
    """The cost at x = (ln factor, ln v, upset). Its gradient (3,) is written to `gradient`, and its
    expected second derivative (3, 3), by the model at x, to `curvature`. Of each outcome's
    probability p, d0, d1 and d2 are the derivatives by x. The sums are numbers, not elements of
    arrays, so that they stay in registers."""
    width, factor, upset, cost = exp(x[1]) if draws else 0.0, exp(x[0]), x[2], 0.0
    g0, g1, g2, c00, c01, c02, c11, c12, c22 = 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0
    for i in range(len(gap)):
        if drew[i] and not draws:
            continue
        z, reach = gap[i] / np.sqrt(factor * variance[i]), width * scale / np.sqrt(variance[i])
        a, b = z - reach, -z - reach
        at_a, at_b = density(a), density(b)
        tail_a, tail_b = at_a * mills(abs(a)), at_b * mills(abs(b))  # as `below` does
        above = tail_a if a < 0.0 else 1.0 - tail_a
        under = tail_b if b < 0.0 else 1.0 - tail_b
        for outcome in range(3 if draws else 2):  # the first side wins, it loses, a draw
            if outcome == 2:
                p, d2 = 1.0 - above - under, 0.0
                d0, d1 = 0.5 * z * (at_a - at_b), reach * (at_a + at_b)
            elif outcome == 0:
                p, d2 = (1.0 - upset) * above + upset * under, under - above
                d0 = -0.5 * z * ((1.0 - upset) * at_a - upset * at_b)
                d1 = -reach * ((1.0 - upset) * at_a + upset * at_b)
            else:
                p, d2 = (1.0 - upset) * under + upset * above, above - under
                d0 = 0.5 * z * ((1.0 - upset) * at_b - upset * at_a)
                d1 = -reach * ((1.0 - upset) * at_b + upset * at_a)
            p = max(p, LEAST_PROBABILITY)
            part = weight[i] / p
            c00, c01, c02 = c00 + part * d0 * d0, c01 + part * d0 * d1, c02 + part * d0 * d2
            c11, c12, c22 = c11 + part * d1 * d1, c12 + part * d1 * d2, c22 + part * d2 * d2
            if outcome == (2 if drew[i] else 0):
                cost -= weight[i] * log(p)
                g0, g1, g2 = g0 - part * d0, g1 - part * d1, g2 - part * d2
    gradient[0], gradient[1], gradient[2] = g0, g1, g2
    curvature[0, 0], curvature[1, 1], curvature[2, 2] = c00, c11, c22
    curvature[0, 1] = curvature[1, 0] = c01
    curvature[0, 2] = curvature[2, 0] = c02
    curvature[1, 2] = curvature[2, 1] = c12
    centre = np.array([0.0, log(USUAL_WIDTH), 0.0])
    wide = np.array([PRIOR_OF_FACTOR, PRIOR_OF_WIDTH, PRIOR_OF_UPSET])
    for k in range(3):
        away = (x[k] - centre[k]) / wide[k]
        cost += 0.5 * away * away
        gradient[k] += away / wide[k]
        curvature[k, k] += 1.0 / (wide[k] * wide[k])
    return cost


@kernel
def _step(gradient: Floats, curvature: Floats, free: Flags) -> Floats:
    """(3,) the step -curvature^-1 gradient in the free dimensions, by elimination. The matrix is
    positive definite, because each prior adds to its diagonal."""
    a, b = curvature.copy(), -gradient
    for k in range(3):
        if not free[k]:
            a[k, :], a[:, k], b[k] = 0.0, 0.0, 0.0
            a[k, k] = 1.0
    for k in range(3):
        for i in range(k + 1, 3):
            part = a[i, k] / a[k, k]
            for j in range(k, 3):
                a[i, j] -= part * a[k, j]
            b[i] -= part * b[k]
    for k in range(2, -1, -1):
        for j in range(k + 1, 3):
            b[k] -= a[k, j] * b[j]
        b[k] /= a[k, k]
    return b


@kernel
def _fit(
    gap: Floats, variance: Floats, drew: Flags, weight: Floats, scale: float, start: Floats,
    learned: Flags, draws: bool,
) -> Floats:  # fmt: skip
    """(3,) the x of least cost, from `start` on: Fisher's scoring, with steps that are halved until
    they gain. `upset` stays within its bounds."""
    x, gradient, curvature = start.copy(), np.empty(3), np.empty((3, 3))
    there, there_gradient, there_curvature = np.empty(3), np.empty(3), np.empty((3, 3))
    cost = _cost(gap, variance, drew, weight, scale, x, draws, gradient, curvature)
    for _ in range(MOST_STEPS):
        free = learned.copy()
        if (x[2] <= 0.0 and gradient[2] > 0.0) or (x[2] >= MOST_UPSET and gradient[2] < 0.0):
            free[2] = False
        step = _step(gradient, curvature, free)
        if not -np.sum(step * gradient) > ENOUGH:
            break
        better = False
        for _ in range(MOST_HALVINGS):
            for k in range(3):
                there[k] = x[k] + step[k]
            there[0] = min(max(there[0], -WIDEST), WIDEST)
            there[1] = min(max(there[1], x[1] - WIDEST), x[1] + WIDEST)
            there[2] = min(max(there[2], 0.0), MOST_UPSET)
            found = _cost(
                gap, variance, drew, weight, scale, there, draws, there_gradient, there_curvature
            )
            if found < cost:
                better = True
                break
            step *= 0.5
        if not better:
            break
        cost = found
        x[:], gradient[:], curvature[:, :] = there, there_gradient, there_curvature
    return x


# --- pairs ----------------------------------------------------------------------------------------


@kernel
def _pairs(
    starts: Ints, place: Places, mu: Floats, variance: Floats, draws: bool
) -> tuple[Floats, Floats, Flags, Ints]:
    """The gaps and variances of the pairs that are compared, whether they drew, and the indices of
    their rounds."""
    total = 0
    for r in range(len(starts) - 1):
        n = starts[r + 1] - starts[r]
        total += n * (n - 1) // 2 if n <= ALL_PAIRS else min(n, 2 * MOST_COMPARED) * DISTANCES
    gap, spread = np.empty(total), np.empty(total)
    drew, of_round, at = np.empty(total, np.bool_), np.empty(total, np.int64), 0
    for r in range(len(starts) - 1):
        a, b = starts[r], starts[r + 1]
        n = b - a
        for k in range(n - 1 if n <= ALL_PAIRS else DISTANCES):
            d = k + 1 if n <= ALL_PAIRS else 1 + (2 * k + 1) * (n - 1) // (2 * DISTANCES)
            for i in range(a, b - d, max(n // MOST_COMPARED, 1)):
                j = i + d
                tied = place[i] == place[j]
                if tied and (not draws or place[i] == DID_NOT_FINISH):
                    continue
                gap[at], spread[at] = mu[i] - mu[j], variance[i] + variance[j]
                drew[at], of_round[at] = tied, r
                at += 1
    return gap[:at], spread[:at], drew[:at], of_round[:at]


def pairs_of(
    starts: Ints, place: Places, mu: Floats, variance: Floats, *, draws: bool
) -> tuple[Pairs, Ints]:
    """The pairs of R rounds, and (P,) the index of each pair's round, in ascending order. `starts`
    (R+1,) has the index of each round's first side; `place`, `mu` and `variance` are of the sides,
    in order of place within a round. Pairs of which neither finished are left out, and so are pairs
    that drew if draws are no outcomes."""
    gap, spread, drew, of_round = _pairs(starts, place, mu, variance, draws)
    counts = np.bincount(of_round, minlength=len(starts) - 1)
    worth = np.minimum(0.5 * np.diff(starts), MOST_OF_ROUND) / np.maximum(counts, 1)
    return Pairs(gap, spread, drew, worth[of_round]), of_round


def fading(pairs: Pairs) -> tuple[Pairs, Pairs]:
    """The pairs that are not forgotten, of some in the order of the season; and the same with the
    weights that they still have."""
    younger = pairs.weight.sum() - np.cumsum(pairs.weight)
    kept = int(np.searchsorted(-younger, -HALF_LIVES * HALF_LIFE))
    pairs, younger = pairs.of(slice(kept, None)), younger[kept:]
    return pairs, pairs._replace(weight=pairs.weight * 0.5 ** (younger / HALF_LIFE))


def factor_of(starts: Ints, place: Places, sides: Performances) -> float:
    """The factor that suits a ladder by past rounds, as in `pairs_of`, the newest one last. It is
    fitted with the ladder's own width of draws and upset."""
    start = Calibration(1.0, sides.margin, sides.upset)
    draws = sides.margin > 0.0
    pairs, _ = pairs_of(starts, place, sides.mu, sides.sigma**2, draws=draws)
    return fit(fading(pairs)[1], draws=draws, start=start, learned=ONLY_FACTOR).factor


# --- as rounds come in ----------------------------------------------------------------------------

NO_PAIRS = Pairs(np.empty(0), np.empty(0), np.empty(0, np.bool_), np.empty(0))


@dataclass(slots=True)
class Learner:
    """Gives each round of a season the calibration fitted on earlier rounds."""

    draws: bool
    """Whether draws are outcomes. If not, pairs that drew are left out, and the width stays 0."""
    start: Calibration = field(default_factory=Calibration)
    """The calibration of the first rounds, and what is kept of what is not learned."""
    learned: Learned = EVERYTHING
    _now: Calibration | None = None
    _pairs: Pairs = NO_PAIRS  # The pairs so far that are not forgotten, in the order of the season.
    _seen: float = 0.0  # The number of pairs so far, as they count.
    _since: float = 0.0  # The number of pairs since the last fit.

    @property
    def now(self) -> Calibration:
        """The calibration for the next round. It is fitted on all pairs so far."""
        if self._since or self._now is None:
            self._now = self._fitted()
        return self._now

    def follow(
        self, number: Ints, starts: Ints, place: Places, mu: Floats, variance: Floats
    ) -> Floats:
        """(R, 3) the factor, the width and the upset of each of the next R rounds, in any order.
        `number` (R,) has the numbers of the rounds in the season. Rounds of the same number are
        simultaneous. The rest is as in `pairs_of`."""
        found, sizes = np.empty((len(number), 3)), np.diff(starts)
        order = np.argsort(number, kind="stable")
        chosen = spread(starts[order], sizes[order])
        number, starts = number[order], bounds(sizes[order])
        sides = place[chosen], mu[chosen], variance[chosen]
        pairs, of_round = pairs_of(starts, *sides, draws=self.draws)
        if self._now is None and len(pairs.gap):
            self._now = self._first(float(pairs.variance[0]))
        ends = np.cumsum(np.bincount(of_round, pairs.weight, len(number)))
        ends_of_pairs = np.searchsorted(of_round, np.arange(len(number)), side="right")
        at, at_pair = 0, 0
        while at < len(number):
            begun = ends[at - 1] if at else 0.0
            last = int(np.searchsorted(ends, begun + self._due()))  # the first that makes it due
            is_due = last < len(number)
            last = min(last, len(number) - 1)
            stop = int(np.searchsorted(number, number[last], side="right"))
            found[order[at:stop]] = self._now or self.start
            to_pair = int(ends_of_pairs[stop - 1])
            taken = pairs.of(slice(at_pair, to_pair))
            self._pairs = self._pairs.and_then(taken)
            self._seen += (count := float(taken.weight.sum()))
            self._since += count
            if is_due:
                self._now = self._fitted()
            at, at_pair = stop, to_pair
        return found

    def _first(self, variance: float) -> Calibration:
        """The calibration before any outcome. An unknown width is the prior's for this variance."""
        start = self.start
        if not self.draws:
            return start._replace(draw_width=0.0)
        usual = USUAL_WIDTH * float(np.sqrt(start.factor * variance))
        return start._replace(draw_width=start.draw_width or usual)

    def _due(self) -> float:
        """The number of pairs until the next fit."""
        part = min(max(GROWTH * self._seen, LEAST_PART), MOST_PART)
        return max(part - self._since, 0.0)

    def _fitted(self) -> Calibration:
        self._since = 0.0
        if not len(self._pairs.gap):
            return self._now or self.start
        self._pairs, recent = fading(self._pairs)
        return fit(recent, draws=self.draws, start=self._now, learned=self.learned)
