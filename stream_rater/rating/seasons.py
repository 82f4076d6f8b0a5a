"""Applies seasons: when a season starts, every belief is drawn towards the initial rating.

A season has two numbers, `keep` and `sigma`. It changes a belief as follows:

    mu <- initial_mu + keep (mu - initial_mu),   sigma <- at least the season's

On the posterior, this means that all factors (the Gaussian's center and the performances) move by
the same amount, so the mode moves with them. Then the belief is diffused as before a round (by
`belief.diffuse`, or Elo-R's widening), by gamma^2 = (the season's sigma)^2 - sigma^2 if that is
positive. The beliefs of other systems are mu and sigma only, so there is nothing to diffuse.

No belief is rewritten when a season starts. A belief stores the number of seasons that had started
at its last round. The seasons that have started since then are applied one after the other before
its next round. A reader applies them to mu and sigma alone (`seen`). The rules are:

- A draw is a function of the belief alone. Stage 1 reads only headers, so `_drawn` uses only fields
  of the header, and both stages compute the same bits.
- Performances that are codes lie on a grid, so all factors and the mode move by whole steps of it.
  Only a code at the end of the grid stays there.
- A record need not be able to store a drawn belief exactly: the round that follows rounds it.
- Newcomers have played no round, and are not drawn.
- The previous mu, sigma and season of a belief are those before the draw, which were published last
  for the player. A reader that uses them as a prior applies the seasons again.

Players also get a belief without a round. A seed is like a round of one player: the belief that it
gives has at least one round, and one Gaussian factor with the mu and sigma that were given. A reset
is like a season of one player: all factors move by the same amount, and sigma becomes at least the
one that was given.
"""

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import msgspec
import numpy as np

from stream_rater.columns.arrays import Flags, Floats, Ints
from stream_rater.columns.kernels import inlined, kernel
from stream_rater.rating import factor, record
from stream_rater.rating.elo_mmr import belief
from stream_rater.rating.factor import power_of_two, single
from stream_rater.rating.kernels import elo_r
from stream_rater.rating.model import Beliefs, Factors, Table, newcomers
from stream_rater.rating.parameters import SYSTEMS, Season
from stream_rater.rating.stages import RatingRule
from stream_rater.rating.systems.common import DIFFUSES, KEEPS, WIDENS, Common

MOST = 2**16 - 1
"""The maximum number of seasons of a ladder, because a record counts them in 16 bits."""


class Draws(NamedTuple):
    """The seasons of L rules, S in all, as kernels take them."""

    way: Ints  # (L,) how a belief's sigma grows, DIFFUSES or WIDENS; KEEPS if it has no factors.
    rho: Floats  # (L,) the inverse momentum; may be infinite.
    kept: Ints  # (L,) the number of factors that a belief keeps; 0 if beliefs are not records.
    initial_mu: Floats  # (L,) the initial rating.
    starts: Ints  # (L+1,) the first season of each rule; the last element is S.
    keep: Floats  # (S,) the season's `keep`.
    sigma: Floats  # (S,) the season's `sigma`.


class Before(NamedTuple):
    """The values of D beliefs before they were drawn."""

    rows: Ints  # (D,) the rows of the beliefs.
    mu: Floats  # (D,) the rating.
    sigma: Floats  # (D,) the uncertainty.
    season: Ints  # (D,) the number of seasons that had started at the last round.

    def take(self, chosen: Flags) -> "Before":
        """The values of the chosen beliefs only; `chosen` is (D,)."""
        return Before(self.rows[chosen], self.mu[chosen], self.sigma[chosen], self.season[chosen])


@inlined
def _drawn(
    mu: float, sigma: float, step: float, kept: int, initial_mu: float, keep: float, least: float
) -> tuple[float, float, float]:
    """The mu and sigma of a belief after the draw of one season, and the distance that its factors
    move. `step` is the step of the grid if performances are codes, and 0 if not."""
    shift = (1.0 - keep) * (initial_mu - mu)
    if step > 0.0:
        shift = np.floor(shift / step + 0.5) * step
    moved = mu + shift
    if step == 0.0 and kept > 0:
        moved = single(moved)
    return moved, max(sigma, least), shift


@inlined
def _step(head: Any, kept: int, way: int) -> float:
    """The step of the grid on which a system has performances; 0 if they are no codes, or if it has
    none. A seeded belief has none yet. It moves by whole steps all the same: after its first round
    the prior that it remembers is drawn again, and must move as it did."""
    return power_of_two(head.grid) if kept > 0 and way != KEEPS else 0.0


@kernel
def _draw_headers(header: Table, draws: Draws) -> None:
    """Apply the seasons of the first rule to beliefs without their factors, in place."""
    kept, initial_mu, started = draws.kept[0], draws.initial_mu[0], draws.starts[1]
    way = draws.way[0]
    for i in range(len(header)):
        head = header[i]
        first = head.season + 0  # + 0: signed, or numba counts in floats
        if head.rounds > 0:
            step, mu, sigma = _step(head, kept, way), head.mu, head.sigma
            for k in range(first, started):
                mu, sigma, _ = _drawn(
                    mu, sigma, step, kept, initial_mu, draws.keep[k], draws.sigma[k]
                )
            head.mu, head.sigma = mu, sigma
        head.season = max(first, started)


@kernel
def _move(head: Any, factors: Factors, shift: float, step: float) -> None:
    """Move all factors of a belief. `factors` are its own: (capacity,) codes or (capacity, 3) rows
    (p, a, r)."""
    head.center += shift
    for k in range(head.count):
        if factors.ndim == 1:
            factors[k] = factor.moved(factors[k], shift / step)
        else:
            factors[k, 0] += shift


@kernel
def _draw_one(head: Any, factors: Factors, rule: int, draws: Draws) -> None:
    """Apply all seasons of a rule that a belief lacks to it and its factors, in place."""
    kept, way = draws.kept[rule], draws.way[rule]
    step = _step(head, kept, way)
    for k in range(draws.starts[rule] + head.season, draws.starts[rule + 1]):
        mu, sigma, shift = _drawn(
            head.mu, head.sigma, step, kept, draws.initial_mu[rule], draws.keep[k], draws.sigma[k]
        )
        _move(head, factors, shift, step)
        head.mu = mu
        if sigma > head.sigma and way == DIFFUSES:
            belief.diffuse_one(head, sigma, draws.rho[rule])
        elif sigma > head.sigma and way == WIDENS:
            elo_r.widen(head, factors, sigma, kept > 0)
        head.sigma = sigma


@kernel
def _draw(
    header: Table, factors: Factors, rows: Ints, rule: Ints, draws: Draws
) -> tuple[Ints, Floats, Floats, Ints]:
    """Draw the beliefs in `rows`, in place. Returns the rows, mu, sigma and seasons, before the
    draw, of those that lacked a season."""
    count, late = 0, np.empty(len(rows), np.int64)
    mu, sigma = np.empty(len(rows)), np.empty(len(rows))
    season = np.empty(len(rows), np.int64)
    for i in range(len(rows)):
        head = header[rows[i]]
        started = draws.starts[rule[i] + 1] - draws.starts[rule[i]]
        if head.season + 0 >= started:
            continue
        late[count], season[count] = rows[i], head.season
        mu[count], sigma[count] = head.mu, head.sigma
        count += 1
        if head.rounds > 0:
            _draw_one(head, factors[rows[i]], rule[i], draws)
        head.season = started
    return late[:count], mu[:count], sigma[:count], season[:count]


@lru_cache(maxsize=256)
def _draws_of(rules: tuple[RatingRule, ...]) -> Draws:
    assert all(len(each.seasons) <= MOST for each in rules)
    all_seasons = [season for each in rules for season in each.seasons]
    return Draws(
        way=np.array([SYSTEMS.get(each.system, Common).season_growth for each in rules], np.int64),
        rho=np.array([each.momentum for each in rules], np.float64),
        kept=np.array([each.kept for each in rules], np.int64),
        initial_mu=np.array([each.initial_mu for each in rules], np.float64),
        starts=np.cumsum([0, *(len(each.seasons) for each in rules)], dtype=np.int64),
        keep=np.array([each.keep for each in all_seasons], np.float64),
        sigma=np.array([each.sigma for each in all_seasons], np.float64),
    )


def draw(rules: Sequence[RatingRule], rule: Ints, beliefs: Beliefs, rows: Ints) -> Before | None:
    """Apply the seasons that they lack to the beliefs in `rows`, in place, before the update. Each
    belief occurs only once in `rows`; rule[i] is the index of row i's rule. Returns the values that
    `remember` needs after the update, or None if no rule has seasons."""
    if not any(each.seasons for each in rules):
        return None
    draws = _draws_of(tuple(rules))
    return Before(*_draw(beliefs.header, beliefs.factors, rows, rule, draws))


def remember(beliefs: Beliefs, before: Before | None) -> None:
    """Set the previous mu, sigma and season of drawn beliefs to those before the draw. Call it
    after the update and after `record_rounds`, which set these fields. Newcomers were not drawn, so
    their previous mu and sigma stay."""
    if before is not None:
        header = beliefs.header
        header["previous_season"][before.rows] = before.season
        drawn = header["rounds"][before.rows] > 1
        header["previous_mu"][before.rows[drawn]] = before.mu[drawn]
        header["previous_sigma"][before.rows[drawn]] = before.sigma[drawn]


def draw_headers(rule: RatingRule, header: Table) -> None:
    """Apply the seasons that they lack to the headers (n,) of beliefs of a ladder, in place. Mu and
    sigma are drawn, which is all that stage 1 and readers see; the factors are not needed. `header`
    needs the fields that a record's header has."""
    if rule.seasons:
        _draw_headers(header, _draws_of((rule,)))


def seen(rule: RatingRule, header: Table) -> tuple[Floats, Floats]:
    """(n,) mu and (n,) sigma of beliefs of a ladder, after the seasons that have started since
    their last rounds. `header` (n,) is not changed."""
    if rule.seasons:
        header = header.copy()
        draw_headers(rule, header)
    return header["mu"], header["sigma"]


def seeded(
    rule: RatingRule, mu: Floats, sigma: Floats, rounds: Ints, time: Ints, offset: Ints
) -> Table:
    """(n,) the headers of beliefs that a seed gives. They have no logistic factor.

    `mu` and `sigma` are numbers that a record can store (float32). `rounds` are the numbers of
    rounds that stand behind them, at least 1. `time` and `offset` are those of the seed. The
    previous values are a newcomer's.
    """
    header = newcomers(len(mu), 0, rule.initial_mu, rule.initial_sigma).header
    header["mu"] = header["center"] = mu
    header["sigma"], header["precision"] = sigma, 1.0 / (sigma * sigma)
    header["rounds"], header["time"], header["last"] = rounds, time, offset
    header["season"] = header["previous_season"] = len(rule.seasons)
    return header


def reset(
    rule: RatingRule, beliefs: Beliefs, rows: Ints, mu: Floats, sigma: Floats, offset: Ints
) -> None:
    """Reset the beliefs in `rows`, in place. Each belief occurs only once, and has a round.

    `mu` (len(rows),) are the ratings afterwards; NaN keeps a rating. If a belief has
    performances on a grid, its mu moves by whole steps of the grid. `sigma` (len(rows),) are the
    least sigmas afterwards. Seasons that the beliefs lack are applied first. `offset` (len(rows),)
    is stored as the beliefs' last one; their rounds and times stay. The beliefs are rounded as a
    record stores them.
    """
    header, same = beliefs.header, np.zeros(len(rows), np.int64)
    before = header[rows].copy()
    draw([rule], same, beliefs, rows)
    takes_sigma = SYSTEMS.get(rule.system, Common).takes_sigma
    for row, to, least in zip(rows.tolist(), mu.tolist(), sigma.tolist(), strict=True):
        header["season"][row] = 0
        own = Season(0, 1.0 if math.isnan(to) else 0.0, least if takes_sigma else 0.0)
        one = msgspec.structs.replace(
            rule, initial_mu=rule.initial_mu if math.isnan(to) else to, seasons=(own,)
        )
        draw([one], same[:1], beliefs, np.array([row]))
        if header["count"][row] == 0 and not math.isnan(to):
            header["mu"][row] = header["center"][row] = to
    header["season"][rows] = np.maximum(before["season"], len(rule.seasons))
    for name in ("mu", "sigma", "time", "season"):
        header[f"previous_{name}"][rows] = before[name]
    header["last"][rows], header["untold"][rows] = offset, 0
    if not beliefs.in_full:
        _round(rule, beliefs, rows)


def _round(rule: RatingRule, beliefs: Beliefs, rows: Ints) -> None:
    """Round beliefs as their records store them, in place."""
    own = Beliefs(beliefs.header[rows], beliefs.factors[rows])
    found = record.decode(record.encode(own), 0, rule.initial_mu, rule.initial_sigma)
    kept = min(found.factors.shape[1], beliefs.factors.shape[1])
    beliefs.header[rows] = found.header
    beliefs.factors[rows, :kept] = found.factors[:, :kept]
